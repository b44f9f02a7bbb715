"""`SecondOrderCone` for `lines.py`; see `curved.py`."""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._set import ConvexSet
from ..sets.second_order_cone import SecondOrderCone
from .curved import Curved, Margin, direction, larger_root, pick
from .kinds import norm, positive, roundoff


@dataclass(frozen=True)
class _Cones(Curved, ABC):
    """All cones |A x + b| <= z.x + d, of rows (A, z) each."""

    rows: Tensor
    """What a point is multiplied by: the rows of every cone, and what else is linear in it."""
    back: Tensor
    """The rows of every cone, `(m (k + 1), n)`."""

    dims, kept = (3, 2, 2, 1), 2

    @staticmethod
    def fields(set: SecondOrderCone, method: Any) -> tuple[Any, ...] | None:
        return None if method == "paper" and set.d.shape[-1] > 1 else (set.A, set.b, set.z, set.d)

    @staticmethod
    def count(fields: tuple[Any, ...], x: Tensor) -> int:
        m, k, _ = fields[0].shape
        return m * (k + 2)

    def less(self, v: Tensor, t: Tensor, points: Tensor, i: Tensor, turned: Tensor) -> Tensor:
        k = turned.shape[-1]
        wide = v.new_zeros(len(v), len(self.inverse), k).scatter(
            1, i[..., None].expand(-1, -1, k), (t * turned)[:, None]
        )
        return torch.addmm(v, wide.reshape(len(v), -1), self.back, alpha=-1)


class ConeTerms(NamedTuple):
    """What is known of cones and an anchor, in float64, an entry for each."""

    set: SecondOrderCone
    p: Tensor
    """A x0 + b."""
    a: Tensor
    """z.x0 + d."""
    steep: tuple[Tensor, Tensor]
    """|A|, |z|."""
    sizes: tuple[Tensor, Tensor]
    """What rounding adds to h at most: at the anchor, and per unit of the distance from it."""
    margin: Margin

    @classmethod
    def of(cls, fields: tuple[Tensor, ...], anchor: Tensor) -> ConeTerms:
        (A, b, z, d), x0, u = [v.double() for v in fields], anchor.double(), roundoff(anchor)
        k, size = u * (A.shape[2] + A.shape[1] / 2 + 4), norm(x0)
        steep = norm(A.flatten(1)), norm(z)
        slope, offset = steep[0] + steep[1], norm(b) + d.abs()
        p, a = A @ x0 + b, z @ x0 + d
        fixed = 4 * k * (slope * size + offset) + 8 * u * slope * size
        constant, linear = fixed + 2 * k * offset + 4 * u * slope * size, (2 * k + 4 * u) * slope
        margin = Margin.of(a - norm(p) - 2 * fixed, size, anchor.dtype, constant, linear)
        return cls(SecondOrderCone(*fields), p, a, steep, (k * (slope * size + offset), k * slope), margin)


@dataclass(frozen=True)
class _ConesChord(_Cones):
    """h = M (|p| - a), with (p, a) the rows times (x, 1) / M and M = max(1, |x|)."""

    offset: Tensor
    slope: Tensor
    """What rounding may add to h: constant, and per unit of |x|."""

    @classmethod
    @torch.no_grad()
    def known(cls, *fields: Tensor, anchor: Tensor) -> _ConesChord:
        now, (A, b, z, d) = ConeTerms.of(fields, anchor), fields
        back = torch.cat([A, z[:, None]], 1)
        rows = torch.cat([back, torch.cat([b, d[:, None]], 1)[..., None]], -1)
        inverse = 1 / positive(now.a - norm(now.p))
        # twice: where x is evaluated here, and where it is again
        inverse, *sizes = [v.to(anchor.dtype) for v in (inverse, 2 * now.sizes[0], 2 * now.sizes[1])]
        return cls(now.set, anchor.clone(), now.margin, inverse, rows.flatten(0, 1), back.flatten(0, 1), *sizes)

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        length = norm(points, keepdim=True)
        M = length.clamp(min=1)
        image = (torch.cat([points, torch.ones_like(M)], -1) / M) @ self.rows.mT
        image = image.view(len(points), len(self.inverse), -1)
        long = torch.linalg.vector_norm(image[..., :-1], dim=-1)
        h = (long - image[..., -1]).mul_(M)
        if strict:
            h.add_(torch.addcmul(self.offset, length, self.slope))
        out, i = (h * self.inverse).max(-1, keepdim=True)
        if not sloped:
            return out, length
        turned = pick(image, i).div_(long.gather(-1, i).clamp_min_(torch.finfo(long.dtype).tiny))
        turned.select(-1, -1).fill_(-1)
        return out, length, i, turned.mul_(self.inverse.take(i))


@dataclass(frozen=True)
class _ConesRay(_Cones):
    """The gauge is the larger root of (a^2 - |p|^2) s^2 - 2 (p.q - a c) s - (|q|^2 - c^2) = 0.

    The notation is that of `SecondOrderCone`: p, a at the anchor, q, c of the direction.
    """

    apex: Tensor
    """(p, a), the rows of each cone at the anchor."""
    smaller: tuple[Tensor, ...]
    """With `strict`: a, 1 / (a^2 - |p|^2), and what is added to |q|, taken from c, and added to p.q."""

    @classmethod
    @torch.no_grad()
    def known(cls, *fields: Tensor, anchor: Tensor) -> _ConesRay:
        now, (A, _, z, _) = ConeTerms.of(fields, anchor), fields
        back = torch.cat([A, z[:, None]], 1)
        across = torch.linalg.vecdot(A.double().mT, now.p[:, None]).to(A.dtype)
        inner, k = norm(now.p), roundoff(A) * (A.shape[2] + A.shape[1] / 2 + 4)
        lead = positive(now.a - inner) * (now.a + inner)
        # rounding where x is evaluated again, in a + c; of the constants, which are computed in float64; of (A, z) w
        known = roundoff(now.a) / roundoff(A) * now.sizes[0]
        low = now.a - now.sizes[0] - known
        tight = positive(low - inner) * (low + inner)
        off = (k * now.steep[0], now.sizes[1] + k * now.steep[1], now.steep[0] * (k * inner + 2 * known))
        smaller = tuple([v.to(A.dtype) for v in (low, 1 / tight, *off)])
        rows = torch.cat([back, across[:, None]], 1).flatten(0, 1)
        inverse, apex = (1 / lead).to(A.dtype), torch.cat([now.p, now.a[:, None]], -1).to(A.dtype)
        return cls(now.set, anchor.clone(), now.margin, inverse, rows, back.flatten(0, 1), apex, smaller)

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        w, length = direction(points, self.anchor)
        image = (w @ self.rows.mT).unflatten(-1, (len(self.inverse), -1))
        outer, c, across = torch.linalg.vector_norm(image[..., :-2], dim=-1), image[..., -2], image[..., -1]
        a, inverse, slack = self.apex[:, -1], self.inverse, 0.0
        if strict:
            a, inverse, longer, less, more = self.smaller
            outer, c, across = outer + longer, c - less, across + more
            slack = 16 * roundoff(w)
        half, last = torch.addcmul(across, a, c, value=-1) * inverse, (outer - c) * (outer + c) * inverse
        root, disc = larger_root(half, last, slack)
        root, i = root.max(-1, keepdim=True)
        out = length * root * (1 + slack) - 1
        if not sloped:
            return out, length
        disc, turned = disc.gather(-1, i), pick(image, i)[:, :-1] + root * self.apex[i[:, 0]]
        turned[:, -1].neg_()
        turned = turned * (inverse[i] / torch.where(disc > 0, disc, 1.0))
        return out, length, i, turned


KNOWN: dict[type[ConvexSet], dict[str, Any]] = {
    SecondOrderCone: {"paper": _ConesChord, "chord": _ConesChord, "ray": _ConesRay}
}

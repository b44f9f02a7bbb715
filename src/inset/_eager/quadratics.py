"""`Quadratic`, and intersections of such, for `lines.py`; see `kinds.py` for what a kind is.

`ray` is the root of a quadratic equation whose coefficients are forms of the direction; its margin is that of
f(x) = x.Px/2 + q.x + r, for `chord` too, whose eta is that of h.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._combine import Intersection
from .._set import ConvexSet
from ..sets.quadratic import Quadratic
from .curved import Curved, Margin, direction, larger_root, pick
from .kinds import norm, positive, roundoff

WIDE = 2048
"""How many numbers of a point's images under the matrices of quadratics are made at once, if one matrix has fewer."""


@dataclass(frozen=True)
class _Quadratics(Curved, ABC):
    """All quadratics x.Px/2 + q.x + r: how far out is a function of z.Pz and one linear form, z a multiple of x."""

    groups: tuple[tuple[Tensor, slice], ...]
    """Matrices side by side, and which they are."""
    rows: Tensor
    """Those of the linear forms."""
    dims, kept = (2, 1, 0), 1

    @staticmethod
    def fields(set: Any, method: Any) -> tuple[Any, ...] | None:
        parts: Any = set.parts if isinstance(set, Intersection) else (set,)
        if any([type(part) is not Quadratic for part in parts]) or (method == "paper" and len(parts) > 1):
            return None
        numbers = [(part.P, part.q, float(part.r) if isinstance(part.r, int) else part.r) for part in parts]
        return tuple([value for triple in numbers for value in triple])

    @staticmethod
    def count(fields: tuple[Any, ...], x: Tensor) -> int:
        return max(2 * len(fields), min(len(fields) // 3 * x.shape[-1], WIDE), x.shape[-1])

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        z, length = self._scaled(points)
        lines = z @ self.rows.mT
        out = slope = None
        for P, at in self.groups:  # one after the other: the images of all would not fit into a cache
            image = z @ P
            if len(self.inverse) == 1:
                form = torch.linalg.vecdot(image, z).unsqueeze(-1)
                out, a, b = self._reach(form, lines, length, at, strict)
                return (out, length, torch.addcmul(a * image, b, self.rows)) if sloped else (out, length)
            image = image.unflatten(-1, (-1, z.shape[-1]))
            form = torch.linalg.vecdot(image, z[:, None])
            reached, a, b = self._reach(form, lines[:, at], length, at, strict)
            reached, i = reached.max(-1, keepdim=True)
            if not sloped:
                out = reached if out is None else torch.maximum(out, reached)
                continue
            turned = torch.addcmul(a.gather(-1, i) * pick(image, i), b.gather(-1, i), self.rows[at][i[:, 0]])
            if out is None or slope is None:
                out, slope = reached, turned
            else:
                further = (reached > out) | reached.isnan()
                out, slope = torch.where(further, reached, out), torch.where(further, turned, slope)
        return (out, length, slope) if sloped else (out, length)

    @abstractmethod
    def _scaled(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """z, and the length of which it is a fraction."""

    @abstractmethod
    def _reach(self, form: Tensor, line: Tensor, length: Tensor, at: slice, strict: bool) -> tuple[Tensor, ...]:
        """s for the constraints `at`, and a, b with ds = a Pz + b row."""

    def less(self, v: Tensor, t: Tensor, points: Tensor, slope: Tensor) -> Tensor:
        return torch.addcmul(v, t, slope, value=-1)


class _Terms(NamedTuple):
    """What is known of quadratics and an anchor, in float64, an entry for each."""

    set: ConvexSet
    groups: tuple[tuple[Tensor, slice], ...]
    q: Tensor
    r: Tensor
    gradient: Tensor
    depth: Tensor
    """-f(x0)."""
    matrix: Tensor
    """|P|."""
    vector: Tensor
    """|q|."""
    margin: Margin

    @classmethod
    def of(cls, fields: tuple[Any, ...], anchor: Tensor) -> _Terms:
        x0, n, u = anchor.double(), anchor.shape[0], roundoff(anchor)
        matrices, vectors = fields[::3], [q.double() for q in fields[1::3]]
        q, size = torch.stack(vectors), norm(anchor.double())
        r = torch.stack([torch.as_tensor(r, dtype=torch.float64, device=x0.device) for r in fields[2::3]])
        image = torch.stack([(P.double() @ x0 + x0 @ P.double()) / 2 for P in matrices])
        depth = -(image / 2 + q) @ x0 - r
        matrix = torch.stack([norm(P.double().flatten()) for P in matrices])
        vector, k = norm(q), u * (2 * n + 8)
        fixed = 4 * k * (matrix * size**2 / 2 + vector * size + r.abs()) + 8.1 * u * size * (matrix * size + vector)
        constant = fixed + 2 * k * r.abs() + 4.1 * u * size * vector
        linear = 2 * k * vector + 4.1 * u * (vector + matrix * size)
        margin = Margin.of(depth - 2 * fixed, size, anchor.dtype, constant, linear, (k + 4.1 * u) * matrix)
        parts = tuple([Quadratic(*fields[i : i + 3]) for i in range(0, len(fields), 3)])
        set = parts[0] if len(parts) == 1 else Intersection(parts)
        width = max(1, WIDE // n)
        starts = range(0, len(matrices), width)
        even = [torch.cat([(P + P.mT) / 2 for P in matrices[i : i + width]], -1) for i in starts]
        groups = tuple([(P, slice(i, i + width)) for P, i in zip(even, starts, strict=True)])
        return cls(set, groups, q, r, image + q, depth, matrix, vector, margin)


@dataclass(frozen=True)
class _QuadraticsRay(_Quadratics):
    """The gauge is the larger root of d s^2 - (Px0 + q).v s - v.Pv / 2 = 0."""

    smaller: tuple[Tensor, ...]
    """With `strict`: the ratio of the depths, and what is added to half the linear form and to v.Pv / 2d."""

    @classmethod
    @torch.no_grad()
    def known(cls, *fields: Any, anchor: Tensor) -> _QuadraticsRay:
        now, u, n = _Terms.of(fields, anchor), roundoff(anchor), anchor.shape[0]
        depth, size, k = positive(now.depth), norm(anchor.double()), u * (2 * n + 8)
        # rounding where x is evaluated again, and of the constants, which are in float64; then of the forms here
        again = k + roundoff(depth) * (2 * n + 8)
        less = positive(depth - again * (now.matrix * size**2 / 2 + now.vector * size + now.r.abs()))
        linear = again * (now.matrix * size + now.vector) + k * norm(now.gradient)
        smaller = (depth / less, linear / (2 * less), k * now.matrix / less)
        rows = now.gradient / (2 * depth)[:, None]
        inverse, rows, *smaller = [v.to(anchor.dtype) for v in (1 / depth, rows, *smaller)]
        return cls(now.set, anchor.clone(), now.margin, inverse, now.groups, rows, tuple(smaller))

    def _scaled(self, points: Tensor) -> tuple[Tensor, Tensor]:
        return direction(points, self.anchor)

    def _reach(self, form: Tensor, line: Tensor, length: Tensor, at: slice, strict: bool) -> tuple[Tensor, ...]:
        half, last, slack, inverse = line, form.clamp(min=0) * (self.inverse[at] / 2), 0.0, self.inverse[at]
        if strict:
            ratio, linear, square = [v[at] for v in self.smaller]
            half, last = torch.addcmul(linear, half, ratio), torch.addcmul(square, last, ratio)
            slack, inverse = 8 * roundoff(form), inverse * ratio
        root, disc = larger_root(half, last, slack)
        steep = 1 / torch.where(disc > 0, disc, 1.0)
        b = root * steep if not strict else root * steep * self.smaller[0][at]
        return length * root * (1 + slack) - 1, inverse / 2 * steep, b


@dataclass(frozen=True)
class _QuadraticsChord(_Quadratics):
    """h = 4 s f / (R + t + s) in the notation of `Quadratic`, all but s divided by M = max(1, |x|)."""

    s: Tensor
    r: Tensor
    matrix: Tensor
    vector: Tensor
    least: Tensor
    """That a sum may be which 4 s is divided by."""

    @classmethod
    @torch.no_grad()
    def known(cls, *fields: Any, anchor: Tensor) -> _QuadraticsChord:
        now = _Terms.of(fields, anchor)
        s = torch.where(now.r == 0, 1.0, now.r.abs())
        t = -(now.q @ anchor.double() + now.r)
        form = ((now.gradient - now.q) @ anchor.double() / 2).clamp(
            min=0
        )  # not t - depth, of which nothing may be left
        size = (4 * s * form + (t - s) ** 2).sqrt()
        inverse = (size + t + s) / (4 * s * positive(now.depth))  # a depth is inside, so t + s > 0
        least = torch.finfo(anchor.dtype).tiny * (4 * s).clamp(min=1)
        inverse, *constants = [v.to(anchor.dtype) for v in (inverse, now.q, s, now.r, now.matrix, now.vector, least)]
        return cls(now.set, anchor.clone(), now.margin, inverse, now.groups, *constants)

    def _scaled(self, points: Tensor) -> tuple[Tensor, Tensor]:
        length = norm(points, keepdim=True)
        return points / length.clamp(min=1), length

    def _reach(self, form: Tensor, line: Tensor, length: Tensor, at: slice, strict: bool) -> tuple[Tensor, ...]:
        s, r, inverse = self.s[at], self.r[at], self.inverse[at]
        M = length.clamp(min=1)
        t, fraction, double = -torch.addcdiv(line, r, M), s / M, 2 * s
        total, gap = t + fraction, t - fraction
        R = torch.addcmul(double * form, gap, gap).clamp_(min=0).sqrt_()
        stretch = 2 * double / torch.maximum(R + total.abs(), self.least[at])
        h = torch.where(total > 0, stretch * (M * form / 2 - t), M * (R - total))
        if strict:
            k, unit = 2 * roundoff(form) * (2 * self.anchor.shape[0] + 8), length / M
            terms = torch.addcmul(self.vector[at], length, self.matrix[at], value=0.5) * unit
            h = torch.add(h, torch.addcmul(M * R, stretch, torch.addcdiv(terms, r.abs(), M)), alpha=k)
        full = R.masked_fill(R == 0, 1.0)
        return h * inverse, double / full * inverse, (1 - gap / full) * inverse


_KINDS = {"paper": _QuadraticsChord, "chord": _QuadraticsChord, "ray": _QuadraticsRay}
KNOWN: dict[type[ConvexSet], dict[str, Any]] = {Quadratic: _KINDS, Intersection: _KINDS}

"""`Ball` and `Ellipsoid` for `lines.py`, as |(x - c) L| - r; see `kinds.py` for what a kind is, `curved.py` for `ray`.

L is 1, a vector or a matrix. What rounding does to a product with a matrix is a matter of |x - c| and of the greatest
stretch of |L|, otherwise of |(x - c) L| alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._set import ConvexSet
from ..sets.ball import Ball
from ..sets.ellipsoid import Ellipsoid
from .curved import direction, larger_root
from .kinds import certainty, norm, positive, roundoff

LEAST, MOST = 1e-12, 1e12
"""Of r, of the greatest stretch, and of r over it: sets whose squares stay in the range of float32."""


def _image(v: Tensor, L: Tensor | None) -> Tensor:
    """v L."""
    return v if L is None else v * L if L.ndim == 1 else v @ L


def _back(v: Tensor, L: Tensor | None) -> Tensor:
    """v L^T."""
    return _image(v, L if L is None or L.ndim == 1 else L.mT)


class _Terms(NamedTuple):
    """What is known of a set and an anchor, in float64."""

    a: Tensor
    """(x0 - c) L."""
    depth: Tensor
    steep: Tensor
    """The greatest stretch of |L|, or more."""
    k: float
    """Of the error k (steep |x - c| + r) of h(x)."""
    here: Tensor
    """steep |x0 - c|, or less where that is enough."""
    p: Tensor
    q: Tensor | None
    """The error at y relative to the depth is p + q eta |x - c| at most, or with |x - x0|; p alone if q is None."""

    @classmethod
    def of(cls, center: Tensor, L: Tensor | None, radius: Any, anchor: Tensor) -> _Terms:
        (c, x0), u, n = (v.double() for v in (center, anchor)), roundoff(anchor), anchor.shape[0]
        wide = None if L is None else L.double()
        a = _image(x0 - c, wide)
        depth = radius - norm(a)
        if wide is not None and wide.ndim == 2:
            k, size = u * (n + wide.shape[1] / 2 + 6), wide.abs()
            steep = (size.sum(0).max() * size.sum(1).max()).sqrt()  # which it is at most, and a graph of CUDA can have
            here, far, middle = (steep * norm(v) for v in (x0 - c, x0, c))
            reached, linear = 2 * here, (2 * k + 4 * u) * steep  # |y - c| <= |x0 - c| + eta (|x - c| + |x0 - c|)
        else:
            k, steep = u * (n / 2 + 6), torch.ones_like(depth) if wide is None else wide.abs().max()
            here, far, middle = (norm(_image(v, wide)) for v in (x0 - c, x0, c))
            reached, linear = 1.01 * radius, None  # y is in the set
        fixed = 4 * k * (here + radius) + 8 * u * far
        error = fixed + 2 * k * (reached + radius) + 4 * u * (middle + reached + far)
        left = positive(depth - 2 * fixed)
        return cls(a, positive(depth), steep, k, here, error / left, None if linear is None else linear / left)


@dataclass(frozen=True)
class _Norms(ABC):
    """All sets |(x - c) L| <= r."""

    set: ConvexSet
    anchor: Tensor
    center: Tensor
    L: Tensor | None
    inverse: Tensor
    certain: Tensor
    base: Tensor
    """1 + p of the error p + q eta |x - c| at y, and rounding of this."""
    q: Tensor | None

    kept = 1

    @staticmethod
    @abstractmethod
    def made(*fields: Any) -> tuple[ConvexSet, Tensor | None, Any]:
        """The set, L and r."""

    @staticmethod
    def count(fields: tuple[Any, ...], x: Tensor) -> int:
        return max(x.shape[-1], *[v.shape[-1] for v in fields if isinstance(v, Tensor) and v.ndim])

    @classmethod
    @torch.no_grad()
    def known(cls, *fields: Any, anchor: Tensor) -> _Norms | None:
        set, L, radius = cls.made(*fields)
        r = radius.double() if isinstance(radius, Tensor) else torch.full((), radius, dtype=torch.float64)
        r, dtype = r.to(anchor.device), anchor.dtype
        now = _Terms.of(fields[0], L, r, anchor)
        usual = (r >= LEAST) & (r <= MOST) & (now.steep <= MOST) & (r >= LEAST * now.steep)
        if anchor.is_cpu and not usual.item():
            return None
        inverse, *rest = [v.to(dtype) for v in cls._prepared(now, r, roundoff(anchor))]
        base, q = ((1 + now.p) * (1 + 8 * roundoff(anchor))).to(dtype), None if now.q is None else now.q.to(dtype)
        certain = torch.where(usual, certainty(base), torch.nan)  # without a look at a value of a GPU
        return cls(set, anchor.clone(), fields[0], L, inverse, certain, base, q, *rest)

    @staticmethod
    @abstractmethod
    def _prepared(now: _Terms, r: Tensor, u: float) -> tuple[Tensor, ...]:
        """The numbers that `out` works with, of which the first is `inverse`."""

    def more(self, eta: Tensor, length: Tensor) -> Tensor:
        return self.base if self.q is None else torch.addcmul(self.base, eta * length, self.q)


@dataclass(frozen=True)
class _Chord(_Norms):
    """s = h(x) / d."""

    radius: Tensor
    offset: Tensor
    slope: Tensor
    """With `strict` s is offset + slope |(x - c) L|, and what rounding may hide."""
    hidden: Tensor
    """That of a product with a matrix, per unit of |x - c|."""

    kept = 2

    @staticmethod
    def _prepared(now: _Terms, r: Tensor, u: float) -> tuple[Tensor, ...]:
        inverse, hidden = 1 / now.depth, 2 * now.k + 4 * u  # of h, here and where it is evaluated again, and of s
        return inverse, r, -r * (1 - hidden) * inverse, (1 + hidden) * inverse, hidden * now.steep * inverse

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        v = points - self.center
        away = _image(v, self.L)
        long = norm(away, keepdim=True)
        if not strict:
            out, length = (long - self.radius) * self.inverse, None
        elif self.q is None:
            out, length = torch.addcmul(self.offset, long, self.slope), None
        else:
            length = norm(v, keepdim=True)
            out = torch.addcmul(self.offset, long, self.slope).addcmul_(length, self.hidden)
        return (out, length, away, long) if sloped else (out, length)

    def less(self, v: Tensor, t: Tensor, points: Tensor, away: Tensor, long: Tensor) -> Tensor:
        unit = away / long.clamp_min(1e-30)  # outside it is longer
        return torch.addcmul(v, _back(unit, self.L), t * self.inverse, value=-1)


@dataclass(frozen=True)
class _Ray(_Norms):
    """The gauge is the larger root of (r^2 - |a|^2) s^2 - 2 a.q s - |q|^2 = 0, with q = (x - x0) L."""

    a: Tensor
    tight: Tensor
    """With `strict` in place of `inverse`, that is 1 / (r^2 - |a|^2), and what is then added to |q| and to a.q."""
    longer: Tensor
    more_across: Tensor

    @staticmethod
    def _prepared(now: _Terms, r: Tensor, u: float) -> tuple[Tensor, ...]:
        inner = norm(now.a)
        per = 2 * now.k * now.steep  # h plus its error is h + 2 k (here + r) + per |x - x0| at most
        low = r - 2 * now.k * (now.here + r)
        tight, lead = positive(low - inner) * (low + inner), now.depth * (r + inner)
        return 1 / lead, now.a, 1 / tight, per, per * (inner + low)

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        w, length = direction(points, self.anchor)
        q = _image(w, self.L)
        outer, across, inverse, slack = norm(q, keepdim=True), (q @ self.a)[:, None], self.inverse, 0.0
        if strict:
            outer, across, inverse, slack = outer + self.longer, across + self.more_across, self.tight, 16 * roundoff(w)
        root, disc = larger_root(across * inverse, outer * outer * inverse, slack)
        out = length * root * (1 + slack) - 1
        if not sloped:
            return out, length
        turned = torch.addcmul(q, root, self.a) * (inverse / torch.where(disc > 0, disc, 1.0))
        return out, length, _back(turned, self.L)

    def less(self, v: Tensor, t: Tensor, points: Tensor, slope: Tensor) -> Tensor:
        return torch.addcmul(v, t, slope, value=-1)


class _OfBall(_Norms, ABC):
    dims = (1, 0)

    @staticmethod
    def fields(set: Ball, method: Any) -> tuple[Any, ...] | None:
        if set.p != 2 or not isinstance(set.center, Tensor):
            return None
        return set.center, float(set.radius) if isinstance(set.radius, int) else set.radius

    @staticmethod
    def made(*fields: Any) -> tuple[ConvexSet, Tensor | None, Any]:
        return Ball(*fields), None, fields[1]


class _OfEllipsoid(_Norms, ABC):
    dims = (1, None)

    @staticmethod
    def fields(set: Ellipsoid, method: Any) -> tuple[Any, ...] | None:
        batched = getattr(set.L, "ndim", 0) != (1 if set.diagonal else 2)
        return None if batched else (set.center, set.L)

    @staticmethod
    def made(*fields: Any) -> tuple[ConvexSet, Tensor | None, Any]:
        return Ellipsoid(*fields, diagonal=fields[1].ndim == 1), fields[1], 1.0


class _BallChord(_OfBall, _Chord): ...


class _BallRay(_OfBall, _Ray): ...


class _EllipsoidChord(_OfEllipsoid, _Chord): ...


class _EllipsoidRay(_OfEllipsoid, _Ray): ...


KNOWN: dict[type[ConvexSet], dict[str, Any]] = {
    Ball: {"paper": _BallChord, "chord": _BallChord, "ray": _BallRay},  # paper and chord: the same for one constraint
    Ellipsoid: {"paper": _EllipsoidChord, "chord": _EllipsoidChord, "ray": _EllipsoidRay},
}

"""`Ball` and `Ellipsoid` for `lines.py`, as |(x - c) L| - r; see `kinds.py` for what a kind is, `curved.py` for `ray`.

L is 1, a vector or a matrix. Rounding of v L is a matter of ||v| |L||, which for a matrix is bounded by `spread` |D v|:
D has the lengths of the rows of L, and `spread` is the greatest stretch of |L| with its rows divided by these.
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
"""Of r and of r over the greatest stretch, which is below MOST: squares stay in the range of float32."""


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
    D: Tensor | None
    """For a matrix alone."""
    spread: Tensor
    steep: Tensor
    """The greatest stretch of L, or more."""
    k: float
    """Of the error k (||x - c| |L|| + r) of h(x)."""
    here: Tensor
    """||x0 - c| |L||."""
    p: Tensor
    q: Tensor | None
    """The error at y relative to the depth is p + q eta |D (x - c)| at most, or with x - x0; p alone if q is None."""

    @classmethod
    def of(cls, center: Tensor, L: Tensor | None, radius: Any, anchor: Tensor) -> _Terms:
        (c, x0), u, n = (v.double() for v in (center, anchor)), roundoff(anchor), anchor.shape[0]
        wide = None if L is None else L.double()
        a = _image(x0 - c, wide)
        depth, D, linear = radius - norm(a), None, None
        sizes = None if wide is None else wide.abs()
        here, far, middle = (norm(_image(v.abs(), sizes)) for v in (x0 - c, x0, c))
        spread = torch.ones_like(depth)
        if sizes is not None and sizes.ndim == 2:
            k, D = u * (n + sizes.shape[1] / 2 + 4), norm(sizes)
            unit = sizes / D.clamp(min=torch.finfo(D.dtype).tiny)[:, None]
            spread = (unit.sum(0).max() * unit.sum(1).max()).sqrt()  # that at most, and a graph of CUDA can have it
            reached, linear, steep = here, (2 * k + 4 * u) * spread, spread * D.max()
        else:
            k, steep = u * (n / 2 + (4 if sizes is None else 6)), spread if sizes is None else sizes.max()
            reached = 1.01 * radius  # y is in the set
        fixed = 4 * k * (here + radius) + 8 * u * far
        error = fixed + 2 * k * (reached + radius) + 4 * u * (middle + reached + far)
        left, depth = positive(depth - 2 * fixed), positive(depth)
        return cls(a, depth, D, spread, steep, k, here, error / left, None if linear is None else linear / left)


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
    """1 + p of the error p + q eta |D (x - c)| at y, and rounding of this."""
    q: Tensor | None
    D: Tensor | None

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
    def known(cls, *fields: Any, anchor: Tensor) -> _Norms:
        set, L, radius = cls.made(*fields)
        r = radius.double() if isinstance(radius, Tensor) else torch.full((), radius, dtype=torch.float64)
        r, dtype = r.to(anchor.device), anchor.dtype
        now = _Terms.of(fields[0], L, r, anchor)
        usual = (r >= LEAST) & (r <= MOST) & (now.steep <= MOST) & (r >= LEAST * now.steep)
        inverse, *rest = [v.to(dtype) for v in cls._prepared(now, r, roundoff(anchor))]
        base = ((1 + now.p) * (1 + 8 * roundoff(anchor))).to(dtype)
        q, D = (None if v is None else v.to(dtype) for v in (now.q, now.D))
        certain = torch.where(usual, certainty(base), torch.nan)
        return cls(set, anchor.clone(), fields[0], L, inverse, certain, base, q, D, *rest)

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
    """That of a product with a matrix, per unit of |D (x - c)|."""

    kept = 2

    @staticmethod
    def _prepared(now: _Terms, r: Tensor, u: float) -> tuple[Tensor, ...]:
        inverse, hidden = 1 / now.depth, 2 * now.k + 4 * u  # of h, here and where it is evaluated again, and of s
        return inverse, r, -r * (1 - hidden) * inverse, (1 + hidden) * inverse, hidden * now.spread * inverse

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        v = points - self.center
        away = _image(v, self.L)
        long = norm(away, keepdim=True)
        if not strict:
            out, length = (long - self.radius) * self.inverse, None
        elif self.D is None:
            out, length = torch.addcmul(self.offset, long, self.slope), None
        else:
            length = norm(v * self.D, keepdim=True)
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
    """With `strict` in place of `inverse`, which is 1 / (r^2 - |a|^2)."""
    longer: Tensor
    """What is then added to |q|, per unit of it, or of |D (x - x0)|."""
    more_across: Tensor
    """And to a.q, per unit of that."""

    @staticmethod
    def _prepared(now: _Terms, r: Tensor, u: float) -> tuple[Tensor, ...]:
        inner = norm(now.a)
        low = r - 2 * now.k * (now.here + r)  # h plus its error is at most h + r - low, and what `longer` says
        tight, lead = positive(low - inner) * (low + inner), now.depth * (r + inner)
        return 1 / lead, now.a, 1 / tight, 2 * now.k * now.spread, inner + low

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        w, length = direction(points, self.anchor)
        q = _image(w, self.L)
        outer, across, inverse, slack, far = norm(q, keepdim=True), (q @ self.a)[:, None], self.inverse, 0.0, None
        if strict:
            size = outer if self.D is None else norm(w * self.D, keepdim=True)
            longer, inverse, slack, far = size * self.longer, self.tight, 16 * roundoff(w), length * size
            outer, across = outer + longer, torch.addcmul(across, longer, self.more_across)
        scale = outer.clamp_min(1e-30)  # of q, which may be short: squares of it would be 0
        root, disc = larger_root(across / scale * inverse, inverse, slack)
        root = root * scale
        out = length * root * (1 + slack) - 1
        if not sloped:
            return out, far
        turned = torch.addcmul(q, root, self.a) * (inverse / (disc * scale))
        return out, far, _back(turned, self.L)

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

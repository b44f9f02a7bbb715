"""What `lines.py` computes once of each set and its anchor, and how far out a point is then.

A kind of set, for a method, is a class with `fields(set, method)`, its fields, or None where it does not apply;
`dims`, how many dimensions they have, in turn; `count`, how many numbers are made of a point; `known(*fields, anchor)`;
and then

- `out(points, strict, sloped)`: s for each point, with `strict` the most that rounding may hide; the length of x where
  `more` needs it; and, unless no derivative is asked for, as many tensors as `kept` says, which `less` needs and which
  are saved for the backward pass;
- `certain`: 1, or NaN if the anchor is not certainly inside, or numbers are out of range: on a CPU the formulas tell;
- `more(eta, length)`: 1 and the greatest error at y relative to the depth, for some sets the same for all points;
- `less(v, t, points, ...)`: v - t ds.

`joint.py` makes one kind of several, and `planes.py` of one and of equalities.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._set import ConvexSet
from ..sets.box import Box
from ..sets.polytope import Polytope


def roundoff(v: Tensor) -> float:
    return torch.finfo(v.dtype).eps / 2


def norm(v: Tensor, keepdim: bool = False) -> Tensor:
    """|v|, rounded once."""
    if v.dtype == torch.float64:
        return torch.linalg.vector_norm(v, dim=-1, keepdim=keepdim)
    return torch.linalg.vector_norm(v, dim=-1, keepdim=keepdim, dtype=torch.float64).to(v.dtype)


def positive(v: Tensor) -> Tensor:
    """v, NaN where it is not positive: there the anchor is not inside."""
    return torch.where(v > 0, v, torch.nan)


def certainty(p: Tensor) -> Tensor:
    """1, or NaN where p is."""
    return 1 + 0 * p


def finite(b: Any, like: Tensor) -> Tensor:
    """A bound that may be infinite, as a large number."""
    largest = torch.finfo(like.dtype).max / 8
    b = b if isinstance(b, Tensor) else torch.full_like(like, b)
    return b.clamp(-largest, largest)


@dataclass(frozen=True)
class _OfPolytope:
    set: ConvexSet
    offset: Tensor
    """-b, and what rounding adds to it."""
    slope: Tensor
    """What rounding adds to each constraint per unit of |x|."""
    bare: Tensor
    """-b."""
    inverse: Tensor
    """1 / d."""
    certain: Tensor
    base: Tensor
    """1 + p of the error p + q |x| at y, and rounding of this."""
    q: Tensor

    dims, kept = (2, 1), 1

    @staticmethod
    def fields(set: Polytope, method: Any) -> tuple[Any, ...] | None:
        return set.A, set.b

    @staticmethod
    def count(fields: tuple[Any, ...], x: Tensor) -> int:
        return fields[1].shape[0]

    @classmethod
    @torch.no_grad()
    def known(cls, A: Tensor, b: Tensor, anchor: Tensor) -> _OfPolytope:
        u = roundoff(A)
        k = u * (A.shape[1] + 2)
        rows, size, length = norm(A), norm(anchor), b.abs().clamp(max=1e30)
        bound = finite(b, b)
        depth = bound - A @ anchor
        fixed = 4 * k * length + rows * ((4 * k + 8 * u) * size)
        left = positive(depth - 2 * fixed)
        p = ((fixed + 2 * k * length + 4 * u * rows * size) / left).max()
        q = ((2 * k + 4 * u) * rows / left).max()
        base = (1 + p + q * size) * (1 + 8 * u)  # |y| <= |x0| + eta |x|
        return cls(Polytope(A, b), k * length - bound, k * rows, -b, 1 / positive(depth), certainty(p), base, q)

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        A = self.set.A  # type: ignore[attr-defined]
        if not strict:
            out, i = torch.addmm(self.bare, points, A.mT).mul_(self.inverse).max(-1, keepdim=True)
            return out, None, i
        length = norm(points, keepdim=True)
        values = torch.addmm(self.offset, points, A.mT).addcmul_(length, self.slope)
        out, i = values.mul_(self.inverse).max(-1, keepdim=True)
        return out, length, i

    def more(self, eta: Tensor, length: Tensor) -> Tensor:
        return torch.addcmul(self.base, eta * length, self.q)

    def less(self, v: Tensor, t: Tensor, points: Tensor, i: Tensor) -> Tensor:
        A = self.set.A  # type: ignore[attr-defined]
        return torch.addcmul(v, t * self.inverse.take(i), A.index_select(0, i[:, 0]), value=-1)


@dataclass(frozen=True)
class _OfBox:
    set: ConvexSet
    low: Tensor
    high: Tensor
    """The bounds, and with `strict` what numbers may be off."""
    loose: tuple[Tensor, Tensor]
    """Those without."""
    down: Tensor
    up: Tensor
    """1 / d on each side."""
    certain: Tensor
    base: Tensor
    """1 + p, the error at y."""

    dims, kept = (1, 1), 2

    @staticmethod
    def fields(set: Box, method: Any) -> tuple[Any, ...] | None:
        return tuple([v if not isinstance(v, int) else float(v) for v in (set.lower, set.upper)])

    @staticmethod
    def count(fields: tuple[Any, ...], x: Tensor) -> int:
        return 2 * x.shape[-1]

    @classmethod
    @torch.no_grad()
    def known(cls, lower: Any, upper: Any, anchor: Tensor) -> _OfBox:
        u, size, errors, ends = roundoff(anchor), anchor.abs(), [], []
        for bound, side in ((lower, -1), (upper, 1)):
            end = finite(bound, anchor)
            length = torch.where(end.abs() < 1e30, end.abs(), 0.0)
            off = 0.0 if isinstance(bound, Tensor) else u * length  # a number was rounded
            fixed = 16 * u * size + 4 * off
            # rounding grows more slowly than the distance from a bound: it is enough to know it there
            error = fixed + 8 * u * (length + size) + 2 * off
            depth = side * (end - anchor)
            errors.append((error / positive(depth - 2 * fixed)).max())
            ends.append((end, end - side * off, 1 / positive(depth)))
        (low, inner, down), (high, outer, up) = ends
        p = torch.maximum(*errors)
        return cls(Box(lower, upper), inner, outer, (low, high), down, up, certainty(p), (1 + p) * (1 + 4 * u))

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        low, high = (self.low, self.high) if strict else self.loose
        above, below = (points - high).mul_(self.up), (low - points).mul_(self.down)
        out, i = torch.maximum(above, below).max(-1, keepdim=True)
        return (out, None, i, above.gather(-1, i) > below.gather(-1, i)) if sloped else (out, None)

    def more(self, eta: Tensor, length: None) -> Tensor:
        return self.base

    def less(self, v: Tensor, t: Tensor, points: Tensor, i: Tensor, over: Tensor) -> Tensor:
        return v.scatter_add(-1, i, t * torch.where(over, -self.up.take(i), self.down.take(i)))


KNOWN: dict[type[ConvexSet], dict[str, Any]] = {
    Box: {"chord": _OfBox, "ray": _OfBox},  # the same for affine ones
    Polytope: {"chord": _OfPolytope, "ray": _OfPolytope},
}

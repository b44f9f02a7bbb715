"""What `dependent.py` finds out about N points and their sets: which constraint counts, its derivatives, the margin.

A kind of set is a class with `made`, the type of the set; `dims`, how many dimensions its two fields have for one
sample; `methods(set)`, for which this is right; `count`, how many numbers are made of a point;
`solve(x, x0, *fields, strict)`, which is None where the formulas are to tell; and `by_field(k, w, ...)`, the derivative
by field k, for each sample, or of all of them if they share it.

The margin of `strict` is that of `_strict.py`, with all errors at x0 and at y in one bound: the part of the depth d
that it takes is the part of eta to give up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._set import ConvexSet
from ..sets.ball import Ball
from ..sets.box import Box
from ..sets.polytope import Polytope
from .kinds import norm
from .small import ROUNDOFF

LEAST, SHALLOW = 1e-12, 1e-8
"""Weights, and depths, for which nothing that counts leaves the range of float32."""
MOST_LOST = 0.01
"""Of eta, to rounding."""
Field = Tensor | float


class Solved(NamedTuple):
    """Of points `(N, n)`."""

    eta: Tensor
    """`(N, 1)`."""
    raw: Tensor
    """Without the margin."""
    pull: Tensor
    """w, 0 for points inside."""
    slope: Tensor
    """dh_i(x), `(N, n)`."""
    slope0: Tensor | None
    """dh_i(x0), unless it is the same."""
    active: Tensor | None
    """i, `(N, 1)`, where there are many."""


def _weight(out: Tensor, depth: Tensor) -> Tensor | None:
    """1 / (1 + s), with s how far a point is out, or None where that is no number or the anchor is hardly inside."""
    raw = out.clamp(min=0).add_(1).reciprocal_()
    return raw if raw.min().item() >= LEAST and depth.min().item() >= SHALLOW else None


def _kept(raw: Tensor, part: Tensor, outside: Tensor) -> Tensor | None:
    """What is left of a weight; None where rounding takes too much."""
    if not part.max().item() <= MOST_LOST:
        return None
    return torch.where(outside, torch.addcmul(raw, raw, part, value=-1.03), raw)  # 1 / (1 - part), and its rounding


def _summed(v: Tensor, shared: bool) -> Tensor:
    return v.sum(0) if shared else v


class _OfPolytope:
    """h_i(x) = a_i.x - b_i, whose errors are multiples of |a_i| and |b_i|."""

    made, dims = Polytope, (2, 1)

    @staticmethod
    def fields(set: Polytope) -> tuple[Any, ...]:
        return set.A, set.b

    @staticmethod
    def methods(set: Polytope) -> tuple[str, ...]:
        return "chord", "ray"

    @staticmethod
    def count(fields: tuple[Any, ...], x: Tensor) -> int:
        return 2 * fields[1].shape[-1]

    @staticmethod
    def solve(x: Tensor, x0: Tensor, A: Tensor, b: Tensor, strict: bool) -> Solved | None:
        n, errors = x.shape[-1], None
        ends = torch.stack((x, x0 if x0.shape == x.shape else x0.expand(x.shape)))
        at, at0 = (ends @ A.mT).unbind() if A.ndim == 2 else torch.bmm(A, ends.permute(1, 2, 0)).unbind(-1)
        values, depth = at - b, b - at0
        if strict:
            errors = _Rows(ends, A, b)
            values = errors.above(values)
        out, i = (values / depth).max(-1, keepdim=True)
        raw, outside = _weight(out, depth), out > 0  # also where it rounds to a weight of 1
        eta = raw if raw is None or errors is None else _kept(raw, errors.part(raw, depth), outside)
        if raw is None or eta is None:
            return None
        row = A.index_select(0, i[:, 0]) if A.ndim == 2 else A.gather(1, i[..., None].expand(-1, 1, n))[:, 0]
        return Solved(eta, raw, raw / depth.gather(-1, i) * outside, row, None, i)

    @staticmethod
    def by_field(k: int, w: Tensor, solved: Solved, x: Tensor, x0: Tensor, shape: Any, shared: bool) -> Tensor:
        i = solved.active
        assert i is not None
        if k == 1:
            return w.new_zeros(shape).index_add_(0, i[:, 0], w[:, 0]) if shared else _placed(w, i, shape)
        y = torch.lerp(x0, x, solved.raw.view(*x.shape[:-1], 1)).reshape(-1, x.shape[-1])
        if shared:
            return w.new_zeros(shape).index_add_(0, i[:, 0], -w * y)
        return _placed((-w * y)[:, None], i[..., None].expand(-1, 1, shape[-1]), shape)


def _placed(v: Tensor, i: Tensor, shape: Any) -> Tensor:
    """v at i of each sample, and 0 elsewhere."""
    return v.new_zeros(len(v), *shape).scatter_(1, i, v)


class _Rows:
    """What rounding does to the rows of a polytope at x, x0 and y."""

    def __init__(self, ends: Tensor, A: Tensor, b: Tensor) -> None:
        self.u = ROUNDOFF[b.dtype]
        self.k = 1.01 * self.u * (ends.shape[-1] + 2)
        self.rows, self.sizes = norm(A), b.abs()
        self.far, self.far0 = norm(ends, keepdim=True).unbind()
        # below the smallest normal number a coordinate is off by as much however small it is
        self.tiny = 64 * ends.shape[-1] * torch.finfo(b.dtype).smallest_normal

    def above(self, values: Tensor) -> Tensor:
        """The most that the values at x may be."""
        return torch.addcmul(values, self.rows, self.far, value=self.k).add_(self.sizes, alpha=self.k)

    def part(self, raw: Tensor, depth: Tensor) -> Tensor:
        """Of the depth, `(N, 1)`; |y| <= |x0| + eta |x|."""
        k, u = self.k, self.u
        moved = torch.addcmul(self.far0 * (6 * k + 17 * u), raw, self.far, value=2 * k + 5 * u).add_(self.tiny)
        return torch.addcmul(self.sizes * (6 * k), self.rows, moved).div(depth).amax(-1, keepdim=True)


class _OfBox:
    """lower - x and x - upper, whose errors are those of y and x0 alone, or of bounds that are numbers."""

    made, dims = Box, (1, 1)

    @staticmethod
    def fields(set: Box) -> tuple[Any, ...]:
        return set.lower, set.upper

    @staticmethod
    def methods(set: Box) -> tuple[str, ...]:
        return "chord", "ray"

    @staticmethod
    def count(fields: tuple[Any, ...], x: Tensor) -> int:
        return 2 * x.shape[-1]

    @staticmethod
    def solve(x: Tensor, x0: Tensor, lower: Field, upper: Field, strict: bool) -> Solved | None:
        u = ROUNDOFF[x.dtype]
        low, high = (1.01 * u * abs(v) if isinstance(v, float) and strict else 0.0 for v in (lower, upper))
        over, under = upper - x0, x0 - lower
        above = torch.sub(x, upper - high if high else upper).div_(over)
        below = torch.rsub(x, lower + low if low else lower).div_(under)
        out, i = torch.maximum(above, below).max(-1, keepdim=True)
        depth = torch.minimum(over, under)
        raw, outside = _weight(out, depth), out > 0
        eta = raw
        if raw is not None and strict:
            # |y| <= |x0| + eta |x - x0|
            error = torch.addcmul(x0.abs() * (33 * u), raw, (x - x0).abs(), value=8.2 * u)
            error = error.add_(6 * max(low, high)) if low or high else error
            eta = _kept(raw, error.div_(depth).amax(-1, keepdim=True), outside)
        if raw is None or eta is None:
            return None
        upward = above.gather(-1, i) > below.gather(-1, i)
        deep, deep0 = (v.expand(x.shape).gather(-1, i) for v in (over, under))
        slope = torch.zeros_like(x).scatter_(-1, i, torch.where(upward, 1.0, -1.0).to(x.dtype))
        return Solved(eta, raw, raw / torch.where(upward, deep, deep0) * outside, slope, None, None)

    @staticmethod
    def by_field(k: int, w: Tensor, solved: Solved, x: Tensor, x0: Tensor, shape: Any, shared: bool) -> Tensor:
        return _summed(w * (solved.slope.clamp(min=0) if k else solved.slope.clamp(max=0)), shared)


class _OfBall:
    """|x - c| - r."""

    made, dims = Ball, (1, 0)

    @staticmethod
    def fields(set: Ball) -> tuple[Any, ...]:
        return set.center, set.radius

    @staticmethod
    def methods(set: Ball) -> tuple[str, ...]:
        return ("paper", "chord") if set.p == 2 else ()  # the same for one constraint

    @staticmethod
    def count(fields: tuple[Any, ...], x: Tensor) -> int:
        return 2 * x.shape[-1]

    @staticmethod
    def solve(x: Tensor, x0: Tensor, center: Field, radius: Field, strict: bool) -> Solved | None:
        u, n, r = ROUNDOFF[x.dtype], x.shape[-1], radius
        if isinstance(r, Tensor) and r.ndim:
            r = r[:, None]
        k = 1.01 * u * (n / 2 + 4)
        spans = torch.stack((x, x0 if x0.shape == x.shape else x0.expand(x.shape))) - center
        sizes = torch.linalg.vector_norm(spans, dim=-1, keepdim=True)
        long, inner = sizes.unbind()
        depth, hidden = r - inner, k + 4 * u
        off = 0.0 if isinstance(center, Tensor) else 1.01 * u * n**0.5 * abs(center)  # a number was rounded
        values = long * (1 + hidden) - (r * (1 - hidden) - off) if strict else long - r
        raw, outside = _weight(values / depth, depth), values > 0
        eta = raw
        if raw is not None and strict:
            # |y| <= |c| + 1.01 r, |x0| <= |c| + r
            middle = (
                center.norm(dim=-1, keepdim=True) if isinstance(center, Tensor) else depth.new_tensor(n * abs(center))
            )
            error = middle * (17 * u) + r * (12.2 * k + 17.2 * u) + 6 * off
            eta = _kept(raw, error / depth, outside)
        if raw is None or eta is None:
            return None
        slope, slope0 = spans.div_(sizes.clamp_(min=LEAST)).unbind()
        return Solved(eta, raw, raw / depth * outside, slope, slope0, None)

    @staticmethod
    def by_field(k: int, w: Tensor, solved: Solved, x: Tensor, x0: Tensor, shape: Any, shared: bool) -> Tensor:
        if k == 1:
            return w.sum() if shared else w[:, 0]
        assert solved.slope0 is not None
        return _summed(w * torch.lerp(solved.slope0, solved.slope, solved.raw), shared)


KINDS: dict[type[ConvexSet], Any] = {Ball: _OfBall, Box: _OfBox, Polytope: _OfPolytope}

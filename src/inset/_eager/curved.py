"""What curved sets share in `lines.py`; see `kinds.py` for what a kind is.

`chord` is s = max_i h_i(x) / d_i, as there, and `ray` is s = gauge - 1. With `strict` the gauge is that of a smaller
set, in which rounding is allowed for: the error of h_i(x) is at most a polynomial in the distance from the anchor, so
that h_i plus its error is, along a ray, a function of the same form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .._set import ConvexSet
from .kinds import certainty, norm, positive


class Margin(NamedTuple):
    """The greatest error at y relative to the depth, p + q |y| + c |y|^2, for all constraints."""

    p: Tensor
    q: Tensor
    size: Tensor
    """|x0|."""
    certain: Tensor
    base: Tensor
    """1 and the error at the anchor, and rounding of that."""
    linear: Tensor
    """What is added to it per unit of |y - x0|, and of the square of that, if something is."""
    square: Tensor | None

    @classmethod
    def of(cls, left: Tensor, size: Tensor, dtype: torch.dtype, *errors: Tensor) -> Margin:
        """`left`: what is left of the depth; NaN where that is not positive."""
        p, q, *c = [(error / positive(left)).max() for error in errors]
        base, linear = 1 + p + q * size, q
        if c:
            base, linear = base + c[0] * size**2, q + 2 * c[0] * size
        base = base * (1 + 4 * torch.finfo(dtype).eps)
        p, q, size, base, linear, *c = [v.to(dtype) for v in (p, q, size, base, linear, *c)]
        return cls(p, q, size, certainty(p), base, linear, c[0] if c else None)

    def more(self, eta: Tensor, length: Tensor) -> Tensor:
        """1 and the error at the greatest |y|."""
        away = eta * length
        linear = self.linear if self.square is None else torch.addcmul(self.linear, away, self.square)
        return torch.addcmul(self.base, away, linear)


def direction(points: Tensor, anchor: Tensor) -> tuple[Tensor, Tensor]:
    """(x - x0) / |x - x0|, or 0, and |x - x0|."""
    v = points - anchor
    length = norm(v, keepdim=True)
    return v / torch.where(length == 0, 1.0, length), length


def larger_root(half: Tensor, last: Tensor, slack: float) -> tuple[Tensor, Tensor]:
    """The larger root s of s^2 - 2 half s - last = 0, and s - half; `slack`: of the terms of its discriminant."""
    square = half * half
    disc = (square + last + slack * (square + last.abs())).clamp(min=0).sqrt()
    inward = last / (disc - half).clamp(min=torch.finfo(half.dtype).tiny)
    return torch.where(half > 0, half + disc, inward), disc


@dataclass(frozen=True)
class Curved:
    """A set and an anchor."""

    set: ConvexSet
    anchor: Tensor
    margin: Margin
    inverse: Tensor
    """1 / d."""

    @property
    def certain(self) -> Tensor:
        return self.margin.certain

    def more(self, eta: Tensor, length: Tensor) -> Tensor:
        return self.margin.more(eta, length)


def pick(rows: Tensor, i: Tensor) -> Tensor:
    """Row i of each sample, `(batch, n)`, of rows `(batch, m, n)` and i `(batch, 1)`."""
    return rows.gather(1, i[..., None].expand(-1, -1, rows.shape[-1]))[:, 0]

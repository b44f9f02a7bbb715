"""What stands in place of the layer in a training step, to tell what any layer must take there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import inset
from inset.torch import TrustRegion

Pair = tuple[Tensor, Tensor]


class Halfway(torch.autograd.Function):
    """(x0 + x) / 2, with its derivatives by x and by x0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor) -> Tensor:
        ctx.save_for_backward(x, anchor)
        return torch.lerp(anchor, x, 0.5)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        _ = ctx.saved_tensors  # which a layer needs
        half = g * 0.5
        return half, half if ctx.needs_input_grad[1] else None


class HalfwayOfTwo(torch.autograd.Function):
    """The same for a pair of arrays around a pair of constants."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, x2: Tensor, anchor: Tensor, anchor2: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, x2, anchor, anchor2)
        return torch.lerp(anchor, x, 0.5), torch.lerp(anchor2, x2, 0.5)

    @staticmethod
    def backward(ctx: Any, g: Tensor, g2: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        _ = ctx.saved_tensors  # which a layer needs
        return g * 0.5, g2 * 0.5, None, None


class Bare(nn.Module):
    """The least that a layer on a line to an anchor takes, where torch runs one operation after another."""

    layout = TrustRegion().layout

    def __init__(self, set: inset.ConvexSet, anchor: Tensor | None = None) -> None:
        super().__init__()
        self.set, self.anchor = set, anchor

    def forward(self, x: Any, anchor: Any = None) -> Any:
        if isinstance(x, tuple):
            return HalfwayOfTwo.apply(*x, *anchor)
        return Halfway.apply(x, self.anchor if anchor is None else anchor)


# -- the paper's formula, written by hand for one set ------------------------------------------------------------


class ByHand(nn.Module):
    """A formula of x and an anchor, as one would write it for one model: no checks, no margin, no other sets."""

    layout = TrustRegion(parameterization="covariance").layout

    def __init__(self, formula: Callable[..., Any]) -> None:
        super().__init__()
        self.formula = formula

    def forward(self, x: Any, anchor: Any = None) -> Any:
        return self.formula(x, anchor)


def trust_region_by_hand(epsilon: float) -> ByHand:
    """Means `(..., states, actions)` and variances `(..., actions)`, around an old policy."""

    def formula(new: Pair, old: Pair) -> Pair:
        (mean, variance), (center, before) = new, old
        ratio = variance / before
        shift = ((mean - center).square() / before[..., None, :]).sum(-1).mean(-1)
        h = (shift + (ratio - 1 - ratio.log()).sum(-1)) / 2 - epsilon
        eta = (epsilon / (epsilon + h.clamp(min=0)))[..., None]
        return center + eta[..., None] * (mean - center), before + eta * (variance - before)

    return ByHand(formula)


def strings_by_hand(set: inset.Strings) -> ByHand:
    """Positions, around an anchor that has all bodies in one place."""
    first, second = set.links.unbind(-1)

    def formula(x: Tensor, anchor: Tensor) -> Tensor:
        spans = x.index_select(-2, first) - x.index_select(-2, second)
        ratio = torch.linalg.vector_norm(spans, dim=-1).amax(-1) / set.lengths
        return anchor + (1 / ratio.clamp(min=1))[..., None, None] * (x - anchor)

    return ByHand(formula)


def polytope_by_hand(set: inset.Polytope, anchor: Tensor) -> ByHand:
    """With every row divided by its depth at the anchor beforehand."""
    depth = set.b - set.A @ anchor
    rows, bounds = (set.A / depth[:, None]).mT.contiguous(), set.b / depth

    def formula(x: Tensor, _: None) -> Tensor:
        s = torch.addmm(-bounds, x, rows).amax(-1, keepdim=True)
        return anchor + (x - anchor) / (1 + s.clamp(min=0))

    return ByHand(formula)

"""Sets that depend on the input: what a network might give for each sample, and the formula written by hand for it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

import inset
from inset.torch import Projection

DIMENSION, ROWS = 8, 16
#: A set, and the formula by hand, of points, anchors and the fields of the set.
Dependent = tuple[Callable[..., inset.ConvexSet], Callable[..., Tensor], tuple[Tensor, ...]]


def polytope(batch: int) -> Dependent:
    def formula(x: Tensor, x0: Tensor, A: Tensor, b: Tensor) -> Tensor:
        h, h0 = ((A @ v[..., None])[..., 0] - b for v in (x, x0))
        eta = torch.where(h > 0, h0 / (h0 - h), 1.0).amin(-1, keepdim=True)
        return x0 + eta * (x - x0)

    return inset.Polytope, formula, (torch.randn(batch, ROWS, DIMENSION), 1 + torch.rand(batch, ROWS))


def ball(batch: int) -> Dependent:
    def formula(x: Tensor, x0: Tensor, center: Tensor, radius: Tensor) -> Tensor:
        h, h0 = (torch.linalg.vector_norm(v - center, dim=-1) - radius for v in (x, x0))
        eta = (h0 / (h0 - h.clamp(min=0)))[..., None]
        return x0 + eta * (x - x0)

    return inset.Ball, formula, (0.1 * torch.randn(batch, DIMENSION), 1 + torch.rand(batch))


def box(batch: int) -> Dependent:
    def formula(x: Tensor, x0: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        h, h0 = (torch.cat([lower - v, v - upper], dim=-1) for v in (x, x0))
        eta = torch.where(h > 0, h0 / (h0 - h), 1.0).amin(-1, keepdim=True)
        return x0 + eta * (x - x0)

    bounds = -1 - torch.rand(batch, DIMENSION), 1 + torch.rand(batch, DIMENSION)
    return inset.Box, formula, bounds


SETS = {"polytope": polytope, "ball": ball, "box": box}


def steps(name: str, batch: int) -> dict[str, Callable[[], object]]:
    """Forward and backward, by the points and by all fields, by hand (first: the reference) and by a layer."""
    make, formula, fields = SETS[name](batch)
    x, anchor, cotangent = (
        3 * torch.randn(batch, DIMENSION),
        torch.zeros(batch, DIMENSION),
        torch.randn(batch, DIMENSION),
    )
    inputs = [v.requires_grad_() for v in (x, *fields)]
    loose, tight = Projection(strict=False), Projection()
    functions: dict[str, Callable[[], Tensor]] = {
        "by hand": lambda: formula(x, anchor, *fields),
        "Projection, strict=False": lambda: loose(x, set=make(*fields), anchor=anchor),
        "Projection, strict=True": lambda: tight(x, set=make(*fields), anchor=anchor),
    }
    expected = torch.autograd.grad(functions["by hand"](), inputs, cotangent)
    for function in functions.values():
        torch.testing.assert_close(function(), functions["by hand"](), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(torch.autograd.grad(function(), inputs, cotangent), expected, rtol=1e-3, atol=1e-3)

    def step(function: Callable[[], Tensor]) -> Callable[[], object]:
        return lambda: torch.autograd.grad(function(), inputs, cotangent)

    return {label: step(function) for label, function in functions.items()}

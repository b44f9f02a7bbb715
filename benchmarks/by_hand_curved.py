"""More formulas by hand, see `by_hand.py`: quadratics, cones, matrices, strings and policies."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import inset

Pair = tuple[Tensor, Tensor]
FEW = 10
"""Cones, rows of a matrix, and bodies."""


def _along(x: Tensor, x0: Tensor, h: Tensor, h0: Tensor) -> Tensor:
    """x0 + eta (x - x0) with the chord's eta of constraints h, of which those at the anchor are h0."""
    eta = (h0 / (h0 - h.clamp(min=0))).amin(-1, keepdim=True)
    return torch.where(eta < 1, x0 + eta * (x - x0), x)


def quadratic(n: int = 50) -> Any:
    """One, with its norm-like h."""
    half = torch.randn(n, n).double() / n**0.5
    P, q, r = half @ half.T + 0.3 * torch.eye(n).double(), 0.1 * torch.randn(n).double(), torch.tensor(-4.0).double()
    x0 = torch.zeros(n).double()

    def h(x: Tensor) -> Tensor:
        energy, t = ((x @ P) * x).sum(-1, keepdim=True) / 2, -(x @ q)[..., None] - r
        return (4 * -r * energy + (t + r).square()).sqrt() - (t - r)

    h0 = h(x0)
    return inset.Quadratic(P, q, r), x0, {"by hand": lambda x: _along(x, x0, h(x), h0)}


def cones(n: int = 50, k: int = 4) -> Any:
    """Some, of k rows."""
    A, b = torch.randn(FEW, k, n).double() / n**0.5, 0.1 * torch.randn(FEW, k).double()
    z, d, x0 = 0.1 * torch.randn(FEW, n).double(), 1 + torch.rand(FEW).double(), torch.zeros(n).double()
    rows, ends = A.flatten(0, 1).T.contiguous(), b.flatten()

    def h(x: Tensor) -> Tensor:
        return torch.linalg.vector_norm((x @ rows + ends).unflatten(-1, (FEW, k)), dim=-1) - (x @ z.T + d)

    h0 = h(x0)
    return inset.SecondOrderCone(A, b, z, d), x0, {"by hand": lambda x: _along(x, x0, h(x), h0)}


def lmi(n: int = 50) -> Any:
    """Matrices of some rows."""
    A = torch.randn(n, FEW, FEW).double() / n**0.5
    A, C, x0 = (A + A.mT) / 2, -2 * torch.eye(FEW).double(), torch.zeros(n).double()
    flat = A.flatten(1)

    def h(x: Tensor) -> Tensor:
        return -torch.linalg.eigvalsh((x @ flat).unflatten(-1, (FEW, FEW)) - C)[..., :1]

    h0 = h(x0)
    return inset.LMI(A, C), x0, {"by hand": lambda x: _along(x, x0, h(x), h0)}


def strings(n: int = 2 * FEW) -> Any:
    """A chain of bodies in the plane, all in one place at the anchor."""
    first = torch.arange(n // 2 - 1)
    second, length, x0 = first + 1, 1.5, torch.zeros(1, 2).double().expand(n // 2, 2)

    def formula(x: Tensor) -> Tensor:
        spans = x.index_select(-2, first) - x.index_select(-2, second)
        ratio = torch.linalg.vector_norm(spans, dim=-1).amax(-1)[..., None, None] / length
        return torch.where(ratio > 1, x0 + (x - x0) / ratio.clamp(min=1), x)

    return inset.Strings(torch.stack([first, second], -1), length), x0, {"by hand": formula}


def policies(n: int = FEW, epsilon: float = 0.3) -> Any:
    """Means and log-stds of some actions, and an old policy for all states, which is the anchor."""
    center, before = torch.randn(n).double(), 0.3 * torch.randn(n).double()
    precision = torch.exp(-2 * before)

    def formula(x: Pair) -> Pair:
        shift, wider = x[0] - center, x[1] - before
        h = ((shift.square() * precision) + torch.expm1(2 * wider) - 2 * wider).sum(-1, keepdim=True) / 2 - epsilon
        eta = epsilon / (epsilon + h.clamp(min=0))
        outside = eta < 1
        return torch.where(outside, center + eta * shift, x[0]), torch.where(outside, before + eta * wider, x[1])

    set = inset.GaussianKL(center, before, epsilon, average=False, parameterization="log_std")
    return set, (center, before), {"by hand": formula}

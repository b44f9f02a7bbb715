"""trust-region-layers: the published formulas of its KL projection, here for diagonal Gaussians, in torch.

Otto et al., "Differentiable Trust Region Layers for Deep Reinforcement Learning", ICLR 2021. Means and variances are
bounded apart; the KL is the sum of both parts, so that each gets one half of epsilon here. With the old policy
N(mq, Sq), a new one N(m, S) and the bound b = epsilon / 2,

    m' = (m + w mq) / (1 + w),               w = max(sqrt(d / b) - 1, 0),  d = (m - mq).Sq^-1 (m - mq) / 2,
    S' = ((S^-1 + v Sq^-1) / (1 + v))^-1,    v >= 0 least with KL(N(., S') | N(., Sq)) <= b.

These are nearest: m' by Sq^-1, S' by KL(N(., S') | N(., S)). The root v, which their code finds in C++ on the CPU,
comes from Newton steps for all samples at once, and its derivative from the implicit function theorem, as in the paper.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .peers_calls import TorchLayer
from .peers_sets import Problem, tensor

STEPS = 60  # at most: three or four are usual, and halving alone needs so many


def layer(problem: Problem, dtype: torch.dtype, device: str) -> TorchLayer:
    """Both parts with one half of epsilon each."""
    mean, variance = (tensor(problem.arrays[name], dtype, device) for name in ("mean", "variance"))
    bound = float(problem.arrays["epsilon"]) / 2
    return TorchLayer(
        lambda m, S: (nearest_mean(m, mean, variance, bound), nearest_variance(S, variance, bound)), dtype, device
    )


def nearest_mean(m: Tensor, mean: Tensor, variance: Tensor, bound: float) -> Tensor:
    """m' = (m + w mq) / (1 + w)."""
    d = ((m - mean).square() / variance).sum(-1, keepdim=True) / 2
    w = (d / bound).clamp(min=1).sqrt() - 1
    return (m + w * mean) / (1 + w)


def nearest_variance(S: Tensor, variance: Tensor, bound: float) -> Tensor:
    """S' = Sq / (1 + s p) with s = 1 / (1 + v) and p = Sq / S - 1, or S where that is near enough."""
    p = (variance - S) / S
    s = Share.apply(p, bound)
    return torch.where(s < 1, variance / (1 + s * p), S)


class Share(torch.autograd.Function):
    """The s in (0, 1] with k(s) = bound, or 1 where k(1) <= bound: the share of the new precision in the result.

    k(s) = sum(log(1 + s p) - s p / (1 + s p)) / 2 is the KL of the variances, and ds/dp = -k_p / k_s.
    """

    @staticmethod
    def forward(ctx: Any, p: Tensor, bound: float) -> Tensor:  # type: ignore[override]
        s = root(p, bound)
        ctx.save_for_backward(p, s)
        return s

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        p, s = ctx.saved_tensors
        u = s * p
        steep = u / (1 + u).square()
        slope = (p * steep).sum(-1, keepdim=True)
        return -g * s * steep / torch.where(slope > 0, slope, 1), None


def root(p: Tensor, bound: float) -> Tensor:
    """That s, by Newton steps on sqrt(k), nearly a line through 0, and by halving where one leaves the bracket."""
    least = torch.finfo(p.dtype).eps ** 0.5 / 4  # the error after a step is about the square of the step
    guess = (2 * math.sqrt(bound) / torch.linalg.vector_norm(p, dim=-1, keepdim=True)).clamp(max=1)  # k = s^2 |p|^2 / 4
    s = torch.where(spread(p) <= bound, 1, guess)
    low, high = torch.zeros_like(s), torch.ones_like(s)
    for _ in range(STEPS):
        u = s * p
        k = spread(u)
        slope = (p * u / (1 + u).square()).sum(-1, keepdim=True) / 2
        low, high = torch.where(k > bound, low, s), torch.where(k > bound, s, high)
        step = 2 * ((k * bound).sqrt() - k) / slope
        following = s + step
        following = torch.where((following >= low) & (following <= high), following, (low + high) / 2)
        moving = (following - s).abs() > least * s
        s = following
        if not moving.any():
            break
    return s


def spread(u: Tensor) -> Tensor:
    """The KL of variances that are 1 / (1 + u) times those of before: sum(log(1 + u) - u / (1 + u)) / 2."""
    return (u.log1p() - u / (1 + u)).sum(-1, keepdim=True) / 2

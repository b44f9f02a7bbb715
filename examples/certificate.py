"""A certificate behind any approximate layer: `method="ray"` makes its output feasible, exactly.

    python examples/certificate.py

Solvers and unrolled schemes stop early, and their outputs are outside of the set by a tolerance. Here the layer of
somebody else is a few rounds of cyclic projections onto half-spaces and a ball. `project(..., method="ray")` behind it
moves what is outside by about as much as it was outside, nothing that is inside, and passes gradients on.
"""

from __future__ import annotations

import torch
from torch import Tensor

from inset import Ball, Polytope, interior_point, project


def somebody_elses_layer(x: Tensor, A: Tensor, b: Tensor, radius: float, rounds: int) -> Tensor:
    """Almost a point of {A x <= b, |x| <= radius}: projected onto one constraint after the other, a few times."""
    for _ in range(rounds):
        for row, level in zip(A, b, strict=True):
            x = x - (x @ row - level).clamp(min=0)[:, None] * row / row.square().sum()
        x = x * (radius / x.norm(dim=1, keepdim=True)).clamp(max=1)
    return x


def main(rounds: int = 10) -> float:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    A, b, radius = torch.randn(30, 10), 0.5 + torch.rand(30), 1.5
    safe = Polytope(A, b) & Ball(torch.zeros(10), radius)
    anchor = interior_point(safe)

    x = (2 * torch.randn(1000, 10)).requires_grad_()
    rough = somebody_elses_layer(x, A, b, radius, rounds)
    y = project(safe, rough, anchor, method="ray")

    outside = ~safe.contains(rough)
    moved = (y - rough).norm(dim=1)
    print(f"without the certificate: {outside.float().mean():.0%} outside, the worst by {safe.h(rough).max():.1e}")
    print(f"with it: {(~safe.contains(y)).float().mean():.0%} outside, max h = {safe.h(y).max():+.1e}")
    print(f"moved by {moved[outside].mean():.1e} on average, {moved.max():.1e} at most")
    y.square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all() and safe.contains(y).all()
    return safe.h(y).max().item()


if __name__ == "__main__":
    main()

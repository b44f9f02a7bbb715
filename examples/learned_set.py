"""A convex set learned from samples, then used as a layer.

    python examples/learned_set.py

An input-convex network h(x) is trained to be negative on points of a region and positive around it; {x : h(x) <= 0} is
then convex whatever the weights. `Sublevel` makes a set of it. The promise holds for the learned set, not for the
region it was learned from: how well the two agree is printed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import inset
from inset import ConvexSet, Ellipsoid, Polytope, Sublevel
from inset.torch import Projection


class InputConvex(nn.Module):
    """h(x) convex in x: non-negative weights between hidden layers, convex increasing activations."""

    def __init__(self, n: int, width: int) -> None:
        super().__init__()
        self.first, self.skip, self.skip_out = nn.Linear(n, width), nn.Linear(n, width), nn.Linear(n, 1)
        self.between = nn.Parameter(torch.randn(width, width) - 3)  # softplus makes them positive
        self.out = nn.Parameter(torch.randn(width) - 2)

    def forward(self, x: Tensor) -> Tensor:
        z = F.softplus(self.first(x))
        z = F.softplus(z @ F.softplus(self.between) + self.skip(x))
        return z @ F.softplus(self.out) + self.skip_out(x)[..., 0]


def region() -> ConvexSet:
    """What the samples come from: an ellipse cut by a line."""
    ellipse = Ellipsoid(torch.zeros(2), torch.diag(torch.tensor([1 / 1.5, 1.0])))
    return ellipse & Polytope(torch.tensor([[1.0, 1.0]]), torch.tensor([1.0]))


def main(steps: int = 800) -> float:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    truth, h = region(), InputConvex(2, 32)
    optimizer = torch.optim.Adam(h.parameters(), lr=1e-2)
    for _ in range(steps):
        x = 4 * torch.rand(256, 2) - 2
        label = torch.where(truth.contains(x), -1.0, 1.0)
        loss = F.softplus(-label * 4 * h(x)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    h.requires_grad_(False)
    learned = Sublevel(h, finite=True)  # finite: h has a value everywhere
    anchor = inset.interior_point(learned, start=torch.zeros(2))
    layer = Projection(learned, anchor, method="ray")  # h grows faster than linearly: the chord would fall short

    x = 4 * torch.rand(10_000, 2) - 2
    agree = (learned.contains(x) == truth.contains(x)).float().mean().item()
    y = layer(3 * x)
    worst = learned.h(y).max().item()
    print(f"anchor {anchor.numpy().round(3)}, h there {learned.h(anchor).item():+.3f}")
    print(f"the learned set and the region agree on {agree:.1%} of the points of a square")
    print(f"10,000 points projected: max h(y) = {worst:+.1e} in the learned set, {truth.h(y).max():+.2f} in the region")
    return worst


if __name__ == "__main__":
    main()

"""Constraints and an anchor that depend on the input, one set per sample.

    python examples/input_dependent.py

Each sample z has a polytope A(z) y <= b(z), an equality sum(y) = budget(z) and an anchor. The layer holds no set of its
own: it is given one in each call. Gradients flow into A, b and the anchor too, so networks may produce them.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from inset import Equality, Polytope
from inset.torch import Projection

N = 4  # coordinates of y: say, four generators that share a load


def A_of(z: Tensor) -> Tensor:
    """Rows of y >= 0, y <= capacity, and one joint limit whose weights depend on z; (batch, 2N + 1, N)."""
    eye = torch.eye(N).expand(len(z), N, N)
    joint = 1 + z[:, :N].sigmoid()
    return torch.cat([-eye, eye, joint[:, None, :]], dim=1)


def b_of(z: Tensor) -> Tensor:
    """(batch, 2N + 1); the joint limit leaves 30 % of room above the anchor."""
    capacity = 1 + z[:, :N].abs()
    limit = 1.3 * (A_of(z)[:, -1] * anchor_of(z)).sum(1, keepdim=True)
    return torch.cat([torch.zeros_like(capacity), capacity, limit], dim=1)


def budget_of(z: Tensor) -> Tensor:
    """The load that the coordinates have to add up to: half of the capacity; (batch, 1)."""
    return 0.5 * (1 + z[:, :N].abs()).sum(1, keepdim=True)


def anchor_of(z: Tensor) -> Tensor:
    """Half of each capacity: strictly inside, and it meets the budget; (batch, N)."""
    return 0.5 * (1 + z[:, :N].abs())


def set_of(z: Tensor) -> tuple[Polytope, Equality]:
    A = torch.ones(len(z), 1, N)
    return Polytope(A_of(z), b_of(z)), Equality(A, budget_of(z))


def main(steps: int = 300) -> float:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, N))
    layer = Projection()  # no set: it comes with the call
    price = torch.tensor([1.0, 2.0, 3.0, 4.0])
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

    worst, residual = -torch.inf, 0.0
    for step in range(steps + 1):
        z = torch.randn(128, 8)
        limits, balance = set_of(z)
        y, info = layer(net(z), set=limits & balance, anchor=anchor_of(z), return_info=True)
        cost = (price * y).sum(1).mean()
        assert (limits & balance).contains(y).all()
        worst = max(worst, limits.h(y.detach()).max().item())
        residual = max(residual, (y.sum(1, keepdim=True) - budget_of(z)).abs().max().item())
        if step % (steps // 3) == 0:
            cut = (info.eta < 1).float().mean().item()
            print(f"step {step:4d}   cost {cost.item():.3f}   pulled back {cut:.0%}   max h(y) {worst:+.1e}")
        optimizer.zero_grad()
        (cost + 1e-3 * (1 - info.eta).mean()).backward()  # the small term keeps raw outputs from drifting away
        optimizer.step()

    print(f"inequalities: max h {worst:+.1e};  equality: residual at most {residual:.1e}, float32 rounding")
    return worst


if __name__ == "__main__":
    main()

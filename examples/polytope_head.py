"""A network whose output stays in a polygon and a disc, trained on targets that leave them.

    python examples/polytope_head.py

The targets run around an ellipse that leaves the set in several places. The output is in the set before, during and
after training, and the loss goes as far down as the set allows.
"""

from __future__ import annotations

import torch
from torch import nn

from inset import Ball, Polytope
from inset.torch import Projection


def main(steps: int = 300) -> float:
    torch.manual_seed(0)
    torch.set_num_threads(1)

    A = torch.tensor([[1.0, 1.0], [-1.0, 0.5], [0.0, -1.0]])
    b = torch.tensor([1.0, 1.3, 0.8])
    safe = Polytope(A, b) & Ball(torch.zeros(2), radius=1.4)  # Ax <= b and |x| <= 1.4

    body = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    net = nn.Sequential(body, Projection(safe))  # the anchor is found here, once

    angle = torch.linspace(-torch.pi, torch.pi, 256)[:, None]
    target = torch.cat([1.6 * angle.cos(), angle.sin()], dim=1)
    outside = (~safe.contains(target)).float().mean().item()
    print(f"{outside:.0%} of the targets are outside of the set")

    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    worst = -torch.inf
    for step in range(steps + 1):
        y = net(angle)
        loss = (y - target).square().sum(1).mean()
        h = safe.h(y.detach()).max().item()
        worst = max(worst, h)
        if step % (steps // 3) == 0:
            raw = safe.h(body(angle).detach()).max().item()
            print(f"step {step:4d}   loss {loss.item():.4f}   max h: raw {raw:+.2e}, projected {h:+.2e}")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    print(f"largest h(y) over all steps: {worst:+.2e}  ({'never violated' if worst <= 0 else 'VIOLATED'})")
    return worst


if __name__ == "__main__":
    main()

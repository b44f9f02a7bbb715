"""A network that predicts covariance matrices which stay positive definite.

    python examples/covariance.py

The head writes a matrix freely; `PSD(n, floor)` takes its symmetric part and keeps the smallest eigenvalue at `floor`
or above. No Cholesky factor, no softplus: where the matrix is definite already, nothing changes. Trained by likelihood.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from inset import PSD
from inset.torch import Projection

N, FLOOR = 3, 0.05


def true_covariance(z: Tensor) -> Tensor:
    """A rotation in the first two coordinates, of variances 1, 0.1 and 0.3."""
    c, s, zero, one = z.cos(), z.sin(), torch.zeros_like(z), torch.ones_like(z)
    R = torch.stack([c, -s, zero, s, c, zero, zero, zero, one], dim=-1).unflatten(-1, (N, N))
    return R @ torch.diag(torch.tensor([1.0, 0.1, 0.3])) @ R.mT


def main(steps: int = 300) -> float:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    body = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, N * N), nn.Unflatten(-1, (N, N)))
    definite = PSD(N, floor=FLOOR)
    layer = Projection(definite, method="ray")  # the anchor is (floor + 1) I
    optimizer = torch.optim.Adam(body.parameters(), lr=5e-3)

    lowest = torch.inf
    for step in range(steps + 1):
        z = torch.pi * torch.rand(256)
        x = (torch.linalg.cholesky(true_covariance(z)) @ torch.randn(256, N, 1))[..., 0]
        raw = body(torch.stack([(2 * z).cos(), (2 * z).sin()], dim=-1))
        S = layer(raw)
        assert definite.contains(S).all()
        lowest = min(lowest, torch.linalg.eigvalsh(S).min().item())
        loss = -torch.distributions.MultivariateNormal(torch.zeros(N), S).log_prob(x).mean()
        if step % (steps // 3) == 0:
            smallest = torch.linalg.eigvalsh((raw + raw.mT) / 2).min().item()
            error = torch.linalg.matrix_norm(S - true_covariance(z)).mean().item()
            print(f"step {step:4d}   nll {loss.item():.3f}   |S - true| {error:.3f}   smallest eigenvalue: "
                  f"raw {smallest:+.3f}, projected {torch.linalg.eigvalsh(S).min().item():.6f}")  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    print(f"smallest eigenvalue over all steps: {lowest:.6f}, floor {FLOOR}")
    return lowest


if __name__ == "__main__":
    main()

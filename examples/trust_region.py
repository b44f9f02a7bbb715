"""A policy update inside a Gaussian KL trust region: mean KL <= epsilon, at every gradient step.

    python examples/trust_region.py

The new policy is (means of all states, one vector of variances). With `average=True` they are one point and the mean KL
over the states is one constraint. `method="ray"` uses all of epsilon; the KL grows quadratically, so the chord
does not. The KL printed is computed anew, by `torch.distributions` in float64.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from inset import GaussianKL
from inset.torch import project

EPSILON = 0.01
Method = Literal["paper", "chord", "ray"]


def mean_kl(means: Tensor, variances: Tensor, old_means: Tensor, old_variances: Tensor) -> float:
    """By torch.distributions, independently of this library."""
    p = torch.distributions.Normal(means.double(), variances.double().sqrt())
    q = torch.distributions.Normal(old_means.double(), old_variances.double().sqrt())
    return torch.distributions.kl_divergence(p, q).sum(-1).mean().item()


def update(policy: nn.Module, log_std: Tensor, states: Tensor, method: Method, steps: int) -> list[float]:
    """Maximise the importance-weighted advantage; returns it before and after, and the KL reached."""
    with torch.no_grad():
        old_means, old_variances = policy(states), (2 * log_std).exp()
        old = torch.distributions.Normal(old_means, old_variances.sqrt())
        actions = old.sample()
        advantage = -(actions - torch.tensor([1.0, -1.0])).square().sum(-1)  # the best action is (1, -1)
        advantage = (advantage - advantage.mean()) / advantage.std()
    region = GaussianKL(old_means, old_variances, epsilon=EPSILON, average=True)
    optimizer = torch.optim.Adam([*policy.parameters(), log_std], lr=1e-2)
    gains = []
    for _ in range(steps):
        # no anchor given: it is the old policy
        means, variances = project(region, (policy(states), (2 * log_std).exp()), method=method)
        new = torch.distributions.Normal(means, variances.sqrt())
        gain = ((new.log_prob(actions) - old.log_prob(actions)).sum(-1).exp() * advantage).mean()
        assert region.contains((means, variances))
        gains.append(gain.item())
        optimizer.zero_grad()
        (-gain).backward()
        optimizer.step()
    with torch.no_grad():
        means, variances = project(region, (policy(states), (2 * log_std).exp()), method=method)
    return [gains[0], gains[-1], mean_kl(means, variances, old_means, old_variances)]


def main(steps: int = 100) -> float:
    torch.set_num_threads(1)
    largest = 0.0
    methods: tuple[Method, ...] = ("paper", "chord", "ray")
    for method in methods:
        torch.manual_seed(0)
        policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
        states, log_std = torch.randn(512, 4), torch.zeros(2, requires_grad=True)
        first, last, kl = update(policy, log_std, states, method, steps)
        print(f"{method:6s} gain {first:+.4f} -> {last:+.4f}   mean KL {kl:.6f} = {kl / EPSILON:.1%} of epsilon")
        largest = max(largest, kl)
    return largest


if __name__ == "__main__":
    main()

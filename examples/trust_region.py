"""A policy update inside a Gaussian KL trust region: mean KL <= epsilon, at every gradient step.

    python examples/trust_region.py

The new policy is (means of all states, one log_std). They are one point, and the mean KL over the states is one
constraint. `method="ray"` uses all of epsilon; the KL grows quadratically, so the chord does not. The KL printed is
computed anew, by `torch.distributions` in float64.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from inset.torch import TrustRegion

EPSILON = 0.01
Method = Literal["paper", "chord", "ray"]


def mean_kl(new: tuple[Tensor, Tensor], old: tuple[Tensor, Tensor]) -> float:
    """By torch.distributions, independently of this library."""
    p, q = (torch.distributions.Normal(mean.double(), log_std.double().exp()) for mean, log_std in (new, old))
    return torch.distributions.kl_divergence(p, q).sum(-1).mean().item()


def update(policy: nn.Module, log_std: Tensor, states: Tensor, method: Method, steps: int) -> list[float]:
    """Maximise the importance-weighted advantage; returns it before and after, and the KL reached."""
    with torch.no_grad():
        old = (policy(states), log_std.clone())
        behaviour = torch.distributions.Normal(old[0], old[1].exp())
        actions = behaviour.sample()
        advantage = -(actions - torch.tensor([1.0, -1.0])).square().sum(-1)  # the best action is (1, -1)
        advantage = (advantage - advantage.mean()) / advantage.std()
    region = TrustRegion(EPSILON, method=method)
    optimizer = torch.optim.Adam([*policy.parameters(), log_std], lr=1e-2)
    gains, divergences = [], []
    for _ in range(steps):
        new = region((policy(states), log_std), old)
        log_ratio = torch.distributions.Normal(new[0], new[1].exp()).log_prob(actions) - behaviour.log_prob(actions)
        gain = (log_ratio.sum(-1).exp() * advantage).mean()
        gains.append(gain.item())
        divergences.append(mean_kl(new, old))
        optimizer.zero_grad()
        (-gain).backward()
        optimizer.step()
    assert max(divergences) <= EPSILON
    return [gains[0], gains[-1], divergences[-1]]


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

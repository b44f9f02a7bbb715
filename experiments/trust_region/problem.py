"""The problems: maximise the weighted advantage over the new policy, within epsilon of the old one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..common.store import Arrays
from .policy import SPREAD, Parameters, Policy, divergence, log_density, policy

FIXED, OLD = "fixed.", "old."
"""In files, before the names of what describes the old policy."""


@dataclass(frozen=True)
class Problems:
    """A stack of problems; those with fewer states than the largest are padded, with weight 0."""

    policy: Policy
    old: Parameters
    features: Tensor
    """What the policy sees of each state, `(problems, N, ...)`."""
    old_means: Tensor
    actions: Tensor
    advantages: Tensor
    weights: Tensor
    """1 / number of states, or 0 for padding."""
    counts: Tensor
    """Number of states of each problem."""

    def means(self, parameters: Parameters) -> Tensor:
        return self.policy.mean(parameters, self.features)

    def gain(self, parameters: Parameters) -> Tensor:
        """E[p(a|s) / q(a|s) A(s, a)] for each problem: 0 at the old policy, because advantages have mean 0."""
        return (self.weights * torch.exp(self.log_ratio(parameters)) * self.advantages).sum(-1)

    def log_ratio(self, parameters: Parameters) -> Tensor:
        """log p(a|s) - log q(a|s)."""
        new = log_density(self.means(parameters), parameters[SPREAD], self.actions)
        return new - log_density(self.old_means, self.old[SPREAD], self.actions)

    def kl(self, parameters: Parameters) -> Tensor:
        """E[KL(p(.|s) | q(.|s))] for each problem."""
        each = divergence(self.means(parameters), parameters[SPREAD], self.old_means, self.old[SPREAD])
        return (self.weights * each).sum(-1)


def pack(fixed: Arrays, old: Arrays, states: np.ndarray, actions: np.ndarray, advantages: np.ndarray) -> Arrays:
    """One problem as it is stored."""
    names = {FIXED + name: value for name, value in fixed.items()} | {OLD + name: value for name, value in old.items()}
    return {**names, "states": states, "actions": actions, "advantages": advantages}


def stack(problems: list[Arrays], device: torch.device) -> Problems:
    """Stored problems of one kind of policy, side by side."""
    counts = [len(p["states"]) for p in problems]

    def padded(name: str) -> Tensor:
        size = (len(problems), max(counts), *problems[0][name].shape[1:])
        rows = np.zeros(size, np.float32)
        for row, problem in zip(rows, problems, strict=True):
            row[: len(problem[name])] = problem[name]
        return torch.from_numpy(rows).to(device)

    def part(prefix: str) -> Parameters:
        names = [name for name in problems[0] if name.startswith(prefix)]
        return {n.removeprefix(prefix): torch.from_numpy(np.stack([p[n] for p in problems])).to(device) for n in names}

    made, old, count = policy(part(FIXED)), part(OLD), torch.tensor(counts, device=device)
    inside = torch.arange(max(counts), device=device) < count[:, None]
    features = made.features(padded("states"))
    return Problems(
        made,
        old,
        features,
        made.mean(old, features),
        padded("actions"),
        padded("advantages"),
        inside / count[:, None],
        count,
    )

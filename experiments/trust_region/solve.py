"""The methods: each solves a stack of problems, by Adam on mini-batches of states, with or without a layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from inset import GaussianKL
from inset.torch import TrustRegion

from ..common.graphs import replayed
from .natural import grad
from .policy import SPREAD, Parameters, log_density
from .problem import Problems

BETAS, TINY = (0.9, 0.999), 1e-8
"""Of Adam."""


@dataclass(frozen=True)
class Method:
    """How Adam sees the policy, and where it starts."""

    layer: Literal["none", "paper", "ray", "nearest"]
    """What keeps means and variances of a mini-batch in the trust region."""
    start: Literal["old", "natural"] = "old"
    """The old policy, or the solution of natural gradient after its line search."""


METHODS = {
    "naive": Method("none"),
    "paper": Method("paper"),
    "nearest": Method("nearest"),
    "ray": Method("ray"),
    "started": Method("ray", "natural"),
}


@dataclass(frozen=True)
class Setting:
    """The numbers of Adam."""

    minibatch: int
    rate: float
    epochs: int
    decay: bool = False
    """Whether the step size falls to zero, by the same amount with each step."""


class Solver:
    """Adam on a stack of problems, all at once; each has its own parameters, moments and number of steps."""

    def __init__(self, problems: Problems, start: Parameters, method: Method, setting: Setting, epsilon: float) -> None:
        self.problems, self.method, self.setting, self.epsilon = problems, method, setting, epsilon
        self.parameters = {name: p.clone() for name, p in start.items()}
        self.moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in start.items()}
        device = problems.weights.device
        self.steps = torch.zeros(len(problems.weights), device=device)
        """That each problem has behind it."""
        self.rows = torch.zeros(len(problems.weights), setting.minibatch, dtype=torch.long, device=device)
        self.active = torch.zeros(len(problems.weights), dtype=torch.bool, device=device)
        """The mini-batch of each problem, and whether it has one: problems with fewer states have fewer."""
        self.rate = torch.full((), setting.rate, device=device)
        self.old_variances = torch.exp(2 * problems.old[SPREAD][:, 0])
        self.region = None
        """The interpolation of means and variances, as the paper has it; in float32 as it comes."""
        if method.layer in ("paper", "ray"):
            self.region = TrustRegion(epsilon, parameterization="covariance", method=method.layer, strict=False)
        self.stream = torch.cuda.Stream() if device.type == "cuda" else None

    def solve(self, seed: int) -> Parameters:
        """The parameters after all epochs."""
        step = replayed(self.step, self.stream)  # the problems are not active yet: nothing changes
        counts, setting = self.problems.counts, self.setting
        total = setting.epochs * (int(counts.max()) // setting.minibatch)
        with torch.cuda.stream(self.stream):  # all of it: another stream would not wait for the mini-batches
            for k, (rows, active) in enumerate(minibatches(counts, setting, seed)):
                self.rate.fill_(setting.rate * (1 - k / total if setting.decay else 1))
                self.rows.copy_(rows)
                self.active.copy_(active)
                step()
        if self.stream is not None:
            torch.cuda.synchronize()
        return self.parameters

    def step(self) -> None:
        """One step of Adam for each active problem."""
        leaves = {name: p.detach().requires_grad_() for name, p in self.parameters.items()}
        gradient = grad(-self.gain(leaves), leaves)
        with torch.no_grad():
            self.steps += self.active
            weight = self.active.to(self.steps.dtype)[:, None, None]
            count = self.steps.clamp(min=1)[:, None, None]
            for name, p in self.parameters.items():
                for moment, beta, new in zip(
                    self.moments[name], BETAS, (gradient[name], gradient[name] ** 2), strict=True
                ):
                    moment.lerp_(new, (1 - beta) * weight)
                first, second = (m / (1 - beta**count) for m, beta in zip(self.moments[name], BETAS, strict=True))
                p.sub_(self.rate * weight * first / (second.sqrt() + TINY))

    def gain(self, parameters: Parameters) -> Tensor:
        """The gain of each problem on its mini-batch, through the layer."""
        problems, old = self.problems, self.problems.old
        features, old_means, actions = (self.pick(v) for v in (problems.features, problems.old_means, problems.actions))
        means = problems.policy.mean(parameters, features)
        means, log_std = self.constrain(means, parameters[SPREAD], old_means)
        ratio = log_density(means, log_std, actions) - log_density(old_means, old[SPREAD], actions)
        return (torch.exp(ratio) * problems.advantages.gather(1, self.rows)).mean(-1)

    def pick(self, values: Tensor) -> Tensor:
        """The rows of the mini-batches of `(problems, N, d)`."""
        return values.gather(1, self.rows[..., None].expand(-1, -1, values.shape[-1]))

    def constrain(self, means: Tensor, log_std: Tensor, old_means: Tensor) -> tuple[Tensor, Tensor]:
        """Means and log-std in the trust region; what is interpolated or projected are means and variances."""
        if self.method.layer == "none":
            return means, log_std
        new, old = (means, torch.exp(2 * log_std[:, 0])), (old_means, self.old_variances)
        means, variances = GaussianKL(*old, self.epsilon).nearest(new) if self.region is None else self.region(new, old)
        return means, torch.log(variances)[:, None] / 2


def minibatches(counts: Tensor, setting: Setting, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """For each step the states of each problem, `(problems, minibatch)`, and which problems have that many left.

    In an epoch every state comes at most once; those that do not fill a mini-batch wait for the next one.
    """
    random, size = torch.Generator().manual_seed(seed), setting.minibatch
    longest = int(counts.max())
    padding = torch.arange(longest, device=counts.device) >= counts[:, None]
    for _ in range(setting.epochs):
        drawn = torch.rand(len(counts), longest, generator=random).to(counts.device)
        order = drawn.masked_fill(padding, 2.0).argsort(dim=1)
        for k in range(longest // size):
            yield order[:, k * size : (k + 1) * size], (k + 1) * size <= counts

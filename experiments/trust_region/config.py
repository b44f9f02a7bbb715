"""The numbers of the policy-update experiment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Config:
    """The defaults are the paper's numbers; "our choice" marks what the paper leaves open or what we do otherwise."""

    policies: tuple[str, ...] = ("linear", "network")
    """Mean of the policy: linear in random Fourier features, or a network."""
    runs: int = 11
    """Independent runs of natural gradient for each policy: their updates are the problems to solve."""
    steps: int = 1_000_000
    """Steps of the environment in a run."""
    batch: int = 3000
    """Steps before an update, at least: whole episodes are played."""
    epsilon: float = 0.01
    """Bound on the mean KL divergence of the new policy from the old one."""
    features: int = 2000
    """Random Fourier features of the linear policy."""
    width: int = 64
    """Nodes in each of the two hidden layers of the network, and of the network that learns values."""
    epochs: int = 30
    """Passes through the states of a problem by Adam."""
    rates: tuple[float, ...] = (5e-5, 1e-4, 2e-4)
    """Step sizes of Adam; the first is the paper's, the others are in its footnote."""
    minibatches: tuple[int, ...] = (64, 256, 1024)
    """States per step of Adam; tables are about the first. Our choice."""
    factors: tuple[float, ...] = (0.9, 0.5)
    """By which the line search shortens the way back to the old policy; runs use the first. Our choice."""
    started_minibatch: int = 1024
    """States per step of Adam for our method, which starts from the solution of natural gradient. Our choice."""
    started_rate: float = 2e-4
    """Its first step size, which falls to zero. Our choice."""
    started_epochs: int = 100
    """Its passes through the states; with `epochs` it is tried on every so many problems. Our choice."""
    every: int = 10
    """Step sizes and mini-batches other than the first are tried on every so many problems. Our choice."""
    discount: float = 0.99
    """Of rewards. Our choice."""
    trace: float = 0.97
    """Of generalised advantage estimation. Our choice."""
    damping: float = 1e-3
    """Added to the Fisher matrix of natural gradient. Our choice."""
    conjugate: int = 15
    """Conjugate-gradient steps of natural gradient. Our choice."""
    other_conjugate: tuple[int, ...] = (100, 10, 10, 10, 10, 5, 1)
    """Of other natural gradients to compare with: conjugate-gradient steps. Codes for TRPO take 10. Our choice."""
    other_damping: tuple[float, ...] = (1e-6, 1e-3, 1e-1, 1e-1, 1e-1, 1e-1, 1e-1)
    """Of each of them: the damping. Our choice."""
    other_every: tuple[int, ...] = (1, 1, 1, 5, 10, 1, 1)
    """Of each of them: the Fisher matrix is estimated from every so many states. Our choice."""
    seed: int = 0
    """The first of the seeds of the runs."""
    workers: int = field(default=len(os.sched_getaffinity(0)), compare=False)
    """Processes that play."""
    device: str = field(default="auto", compare=False)
    """Where problems are solved: cpu, cuda, or auto: cuda where there is one."""

    @property
    def others(self) -> list[tuple[int, float, int]]:
        """The other natural gradients: conjugate-gradient steps, damping, every so many states."""
        return list(zip(self.other_conjugate, self.other_damping, self.other_every, strict=True))

    @classmethod
    def quick(cls) -> Config:
        """The first updates of one run of each policy, one setting of Adam."""
        return cls(runs=1, steps=6000, rates=(2e-4,), minibatches=(512,), started_minibatch=512, started_epochs=30)


def key(policy: str, run: int) -> str:
    """The cell of a run."""
    return f"{policy}-{run}"

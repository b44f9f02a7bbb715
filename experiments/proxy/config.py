"""The numbers of the optimisation-proxy benchmark."""

from __future__ import annotations

from dataclasses import dataclass, field

VARIANTS = ("convex", "nonconvex")
"""Objectives: 1/2 y'Qy + p'y, and 1/2 y'Qy + p'sin(y)."""
KINDS = ("epoch", "forward", "both")
"""What is timed: an epoch of training, a forward pass, and one there and back."""


@dataclass(frozen=True)
class Config:
    """The defaults are the benchmark's numbers (DC3's problems, Pi-net's network); "our choice" marks the others."""

    variants: tuple[str, ...] = VARIANTS
    """Objectives, each with networks of its own."""
    methods: tuple[str, ...] = (
        "penalty",
        "paper",
        "chord",
        "ray",
        "near",
        "near_float32",
        "near_tuned",
        "pinet",
        "pinet_tuned",
    )
    """Methods, see methods.py. Our choice."""
    seeds: int = 5
    """Seeds of each method: of its first weights and of the order of the data; all methods share them. Our choice."""
    variables: int = 100
    """Variables y of a program."""
    equalities: int = 50
    """Rows of A y = x; the parameter x is what the network sees."""
    inequalities: int = 50
    """Rows of G y <= h."""
    samples: int = 10_000
    """Parameters x: the last are for test, those before for validation, the others for training."""
    validation: int = 1024
    """Of them for validation: learning curves, and every choice that is made."""
    test: int = 1024
    """Of them for test: the tables."""
    width: int = 200
    """Nodes of a hidden layer."""
    depth: int = 2
    """Hidden layers."""
    epochs: int = 50
    """Passes over the training samples."""
    batch: int = 2048
    """Samples per update."""
    rate: float = 1e-2
    """Step size of Adam; constant, but for the tuned methods."""
    tuned_rates: tuple[float, ...] = (1e-2, 5e-3)
    """Tuned: step sizes at the start, which fall to 0 along half a cosine; one is chosen by validation. Our choice."""
    tuned_batches: tuple[int, ...] = (256,)
    """Tuned: samples per update, likewise chosen. Our choice."""
    tuned_pulls: tuple[float, ...] = (1e-3, 1e-2)
    """Tuned: weights of |raw - y|^2, which pulls raw outputs towards the set, likewise chosen. Our choice."""
    penalties: tuple[float, ...] = (1.0, 10.0, 100.0, 1000.0)
    """Weights of the penalty, of which one is chosen by validation; DC3 has 100. Our choice."""
    pinet_steps: int = 50
    """Iterations of Pi-net, in training and in test; these and the following four are its tuned ones."""
    pinet_backward: int = 25
    """Iterations of its backward pass."""
    pinet_sigma: float = 0.06806787572155291
    """Its penalty parameter."""
    pinet_omega: float = 1.7
    """Its relaxation."""
    pinet_equilibration: int = 25
    """Iterations of the equilibration of its matrix."""
    cost_batch: int = 1024
    """Samples in the measurement of a forward and a backward pass."""
    cost_rounds: int = 7
    """Rounds in which every method is timed once. Our choice."""
    layers_batch: int = 32
    """Samples on which cvxpylayers is timed, to be extrapolated; 0 leaves it out. Our choice."""
    seed: int = 17
    """Of the problem; the networks have the seeds 0, 1, ..."""
    workers: int = field(default=2, compare=False)
    """Processes, with one thread each. The results do not depend on it; a GPU takes one."""
    device: str = field(default="auto", compare=False)
    """cpu, cuda, or auto: cuda where there is one."""

    @classmethod
    def quick(cls) -> Config:
        """The same problem with one objective, one seed and half of the epochs, without peers."""
        return cls(
            variants=("nonconvex",),
            methods=("paper", "chord", "near"),
            seeds=1,
            epochs=25,
            cost_rounds=3,
            layers_batch=0,
        )

    @classmethod
    def large(cls) -> Config:
        """Ten times as many variables, for a GPU; Pi-net with what it is tuned to there, nothing chosen anew."""
        return cls(
            methods=("chord", "near", "near_float32", "near_tuned", "pinet"),
            seeds=3,
            variables=1000,
            equalities=500,
            inequalities=500,
            tuned_rates=(1e-2,),
            tuned_pulls=(1e-3,),
            pinet_sigma=0.1610690263538914,
            cost_rounds=5,
            layers_batch=0,
        )


def key(variant: str, method: str) -> str:
    """The cell of a method on an objective, all seeds together."""
    return f"{variant}-{method}"

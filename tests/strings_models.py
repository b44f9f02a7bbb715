"""What the tests of the dynamics models share: a tiny configuration, and models that would tear all strings."""

from __future__ import annotations

import dataclasses

import torch
from experiments.strings import objects
from experiments.strings.config import Config
from experiments.strings.model import PAST, Dynamics, Variant
from experiments.strings.simulator import simulate

from inset import Strings

TINY = Config(
    objects=("chain",),
    models=("plain", "strings", "smooth"),
    seeds=2,
    train=6,
    validation=4,
    test=5,
    steps=40,
    width=16,
    horizons=(4, 8),
    updates=(12, 6),
    layer_from=1,
    batch=4,
)


def strings(name: str = "chain", length: float = 2.005) -> Strings:
    return Strings(torch.from_numpy(objects.shape(name).links), length)


def model(variant: Variant, name: str = "chain", size: float = 0.1, members: int | None = None) -> Dynamics:
    """A model whose random outputs leave the set within a few steps."""
    made = Dynamics(variant, strings(name), torch.tensor([2.0, 0.06, 0.007]), 16, 4, members)
    made.initialise([torch.Generator().manual_seed(k) for k in range(members or 1)])
    with torch.no_grad():
        made.weights[-1].normal_(0, size, generator=torch.Generator().manual_seed(7))
    return made


def start(name: str = "chain", count: int = 3) -> torch.Tensor:
    """The first positions of some trajectories."""
    return torch.from_numpy(simulate(name, dataclasses.replace(TINY, steps=PAST, test=count)))[-count:]

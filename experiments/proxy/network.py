"""The network that all methods share: its first weights, the order of its data, its forward pass."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .config import Config

Weights = list[tuple[np.ndarray, np.ndarray]]


def first_weights(config: Config, seed: int) -> Weights:
    """Uniform between -1 / sqrt(inputs) and that, as PyTorch begins: better for every method than a normal of Flax."""
    rng = np.random.default_rng([seed, 0])
    pairs = itertools.pairwise([config.equalities, *[config.width] * config.depth, config.variables])
    return [(rng.uniform(-1, 1, (n, m)) / math.sqrt(n), rng.uniform(-1, 1, m) / math.sqrt(n)) for n, m in pairs]


def batches(count: int, size: int, seed: int) -> Iterator[list[np.ndarray]]:
    """For each epoch the rows of its batches: a new order of all, cut into pieces."""
    rng = np.random.default_rng([seed, 1])
    while True:
        order = rng.permutation(count)
        yield [order[start : start + size] for start in range(0, count, size)]


def forward(weights: Any, x: Any, relu: Callable[[Any], Any]) -> Any:
    """The raw output, for arrays of any framework."""
    for W, b in weights[:-1]:
        x = relu(x @ W + b)
    W, b = weights[-1]
    return x @ W + b


def step_size(rate: float, falling: bool, done: float) -> float:
    """Of an update, with `done` the share of updates before it: constant, or falling to 0 along half a cosine."""
    return rate * (1 + math.cos(math.pi * done)) / 2 if falling else rate

"""Gaussian policies with a covariance that does not depend on the state, many side by side.

Every parameter has a leading dimension: policy p of a stack has `parameters[name][p]`. States are `(policies, N, d)`.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Parameters = dict[str, Tensor]
SPREAD = "log_std"
"""The parameter `(policies, 1, actions)` that all policies have."""


@dataclass(frozen=True)
class Linear:
    """mean(s) = M^T sin(P s + phase) + offset, with fixed P and phase: random Fourier features."""

    frequencies: Tensor
    """`(policies, d, features)`"""
    phases: Tensor
    """`(policies, 1, features)`"""

    def features(self, states: Tensor) -> Tensor:
        return torch.sin(torch.baddbmm(self.phases, states, self.frequencies))

    def mean(self, parameters: Parameters, features: Tensor) -> Tensor:
        return torch.baddbmm(parameters["offset"], features, parameters["matrix"])


@dataclass(frozen=True)
class Network:
    """mean(s) by a network with two hidden layers."""

    def features(self, states: Tensor) -> Tensor:
        return states

    def mean(self, parameters: Parameters, features: Tensor) -> Tensor:
        x = features
        for k in range(3):
            x = torch.baddbmm(parameters[f"bias{k}"], x, parameters[f"weight{k}"])
            x = torch.tanh(x) if k < 2 else x
        return x


Policy = Linear | Network


def begin_linear(states: np.ndarray, actions: int, features: int, random: np.random.Generator) -> tuple[dict, dict]:
    """The fixed part and the parameters of a linear policy; the bandwidth is the mean distance between states."""
    d = states.shape[-1]
    distances = np.linalg.norm(states[:, None] - states[None], axis=-1)
    bandwidth = distances.sum() / (len(states) * (len(states) - 1))
    fixed = {
        "frequencies": random.normal(size=(d, features)) / bandwidth,
        "phases": random.uniform(-np.pi, np.pi, (1, features)),
    }
    parameters = {"matrix": np.zeros((features, actions)), "offset": np.zeros((1, actions))}
    return single(fixed), single({**parameters, SPREAD: np.full((1, actions), -0.5)})


def begin_network(d: int, actions: int, width: int, random: np.random.Generator) -> tuple[dict, dict]:
    """Weights as Glorot and Bengio do it; the last ones a hundred times smaller, so that the first means are near 0."""
    sizes = [d, width, width, actions]
    parameters = {}
    for k, (m, n) in enumerate(itertools.pairwise(sizes)):
        scale = math.sqrt(6 / (m + n)) * (0.01 if k == 2 else 1)
        parameters[f"weight{k}"] = random.uniform(-scale, scale, (m, n))
        parameters[f"bias{k}"] = np.zeros((1, n))
    return {}, single({**parameters, SPREAD: np.full((1, actions), -0.5)})


def single(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """In single precision."""
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def policy(fixed: Parameters) -> Policy:
    """The policy with this fixed part; without one it is a network."""
    return Linear(**fixed) if fixed else Network()


def log_density(mean: Tensor, log_std: Tensor, actions: Tensor) -> Tensor:
    """log N(a; mean, diag(exp(2 log_std))) up to a constant, `(policies, N)`."""
    return -(((actions - mean) * torch.exp(-log_std)).square() / 2 + log_std).sum(-1)


def divergence(mean: Tensor, log_std: Tensor, old_mean: Tensor, old_log_std: Tensor) -> Tensor:
    """KL(N(mean, .) | N(old_mean, .)) for each state, `(policies, N)`."""
    change = log_std - old_log_std
    shift = (mean - old_mean) * torch.exp(-old_log_std)
    return (shift.square() + torch.expm1(2 * change) - 2 * change).sum(-1) / 2

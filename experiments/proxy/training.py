"""Train a network with a layer, and judge its answers."""

from __future__ import annotations

import time

import numpy as np
import torch

from ..common.store import Arrays
from .config import Config
from .methods import METHODS, Settings, Trainee
from .network import batches, step_size
from .problem import Problem

SHARES = np.linspace(0, 1, 21)
"""Quantiles of the suboptimality that are kept: least, every twentieth, greatest."""
TOUCHING = 1e-3
"""A constraint is active at y if its slack is below this share of h_i."""


def trainee(
    problem: Problem, config: Config, variant: str, method: str, settings: Settings, seed: int, device: torch.device
) -> Trainee:
    """A network with its first weights."""
    if METHODS[method].layer == "pinet":
        from .pinet import JaxTrainee  # and JAX

        return JaxTrainee(problem, config, variant, settings, seed)
    from .trainee import TorchTrainee

    return TorchTrainee(problem, config, variant, METHODS[method], settings, seed, device)


def train(
    student: Trainee,
    problem: Problem,
    config: Config,
    variant: str,
    method: str,
    settings: Settings,
    seed: int,
    least: np.ndarray,
) -> Arrays:
    """All epochs; the mean suboptimality and violation on the validation programs after each, and its seconds."""
    order = batches(len(problem.train), settings.batch, seed)
    total = config.epochs * -(-len(problem.train) // settings.batch)
    curve, seconds, done = [], [], 0
    for _ in range(config.epochs):
        start = time.perf_counter()
        for rows in next(order):
            student.update(rows, step_size(settings.rate, METHODS[method].falling, done / total))
            done += 1
        y = student.predict(problem.validation)  # waits for the updates
        seconds.append(time.perf_counter() - start)
        found = judge(problem, problem.validation, y, variant, least)
        curve.append((found["mean"], found["inequality_mean"], found["equality_mean"]))
    return {"curve": np.asarray(curve, np.float32), "seconds": np.asarray(seconds, np.float32)}


def judge(problem: Problem, x: np.ndarray, y: np.ndarray, variant: str, least: np.ndarray) -> Arrays:
    """What answers y are worth: (f(y) - f*) / |f*|, violations, and active constraints, all computed in float64.

    G, A, h and x are rounded to the precision of y first: that is the set that its layer knew.
    """
    wide = y.astype(np.float64)
    G, A, h, given = (a.astype(y.dtype).astype(np.float64) for a in (problem.G, problem.A, problem.h, x))
    gap = (problem.value(wide, variant) - least) / np.abs(least)
    excess = np.maximum(wide @ G.T - h, 0).max(-1)
    residual = np.abs(wide @ A.T - given).max(-1)
    active = (h - wide @ G.T < TOUCHING * h).sum(-1)
    return {
        "mean": gap.mean(),
        "quantiles": np.quantile(gap, SHARES),
        "inequality": excess.max(),
        "inequality_mean": excess.mean(),
        "equality": residual.max(),
        "equality_mean": residual.mean(),
        "violated": np.asarray((excess > 0).mean()),
        "active": active.mean(),
    }

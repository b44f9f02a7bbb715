"""What the methods gained, in units of another method's gain."""

from __future__ import annotations

import numpy as np

from ..common.store import Arrays, Store
from .config import Config, key

STAGES = ("early", "middle", "late")
"""Thirds of a run."""


def cells(store: Store, policy: str) -> list[Arrays]:
    """The runs of a policy that were solved."""
    keys = [key(policy, k) for k in range(store.config(Config).runs)]
    return [store.load(at) for at in keys if store.has(at)]


def ratios(store: Store, policy: str, method: str, factor: int = 0, over: str = "natural") -> np.ndarray:
    """Gain of a method over that of another on every problem, after the line search with a factor of the config.

    Problems on which the other one gains nothing are left out.
    """
    found = cells(store, policy)
    if not found:
        return np.zeros(0)
    gain, base = (np.concatenate([cell[f"{name}-gain"][factor] for cell in found]) for name in (method, over))
    return (gain / np.where(base > 0, base, 1))[base > 0].astype(float)


def quartiles(values: np.ndarray) -> tuple[float, float, float]:
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float(low), float(middle), float(high)


def stage(update: np.ndarray, run: np.ndarray) -> np.ndarray:
    """For problems of several runs, in which third of its run each is: 0, 1 or 2."""
    last = np.asarray([update[run == k].max() for k in run])
    return np.minimum(3 * update // (last + 1), 2)


def grid_medians(store: Store, policy: str, method: str) -> np.ndarray:
    """Median ratio to natural gradient for each setting, `(minibatches, rates, factors, stages)`.

    NaN where there is no problem.
    """
    cell = store.load(f"{policy}-grid")
    base, at = cell["natural"], stage(cell["update"], cell["run"])
    ratio = np.where(base > 0, cell[method] / np.where(base > 0, base, 1), np.nan)
    medians = [
        np.nanmedian(ratio[..., at == k], axis=-1) if (at == k).any() else np.full(ratio.shape[:-1], np.nan)
        for k in range(len(STAGES))
    ]
    return np.stack(medians, axis=-1)


def natural_medians(store: Store, policy: str, method: str) -> np.ndarray:
    """Median over the problems of the grid of a method's gain over that of each other natural gradient.

    `(others, minibatches, rates, factors)`, or `(others, factors)` for natural gradient itself as the method.
    """
    cell = store.load(f"{policy}-grid")
    found = []
    for base in cell["others"]:
        ratio = np.where(base > 0, cell[method] / np.where(base > 0, base, 1), np.nan)
        found.append(np.nanmedian(ratio, axis=-1))
    return np.stack(found)

"""The stored errors as numbers to compare: medians over iterations, at the end, and against one another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..common.store import Store
from .config import Config
from .run import cell

OURS = ("LinB",)
"""Classes that are not in the paper."""


def classes(store: Store, ours: bool = True) -> tuple[str, ...]:
    """The classes that were run, in the order of the paper's columns; without ours on request."""
    return tuple(name for name in store.config(Config).classes if ours or name not in OURS)


@dataclass(frozen=True)
class Curves:
    """Best error so far of one method on one class, for each step size (one row if the method has none)."""

    recorded: np.ndarray
    quartiles: np.ndarray
    """`(step sizes, 3, R)`."""
    worst: np.ndarray
    """`(step sizes, R)`."""

    @property
    def median(self) -> np.ndarray:
        return self.quartiles[:, 1]

    def at(self, iteration: int) -> int:
        """The last record at or before an iteration."""
        return int(np.searchsorted(self.recorded, iteration, side="right")) - 1

    def best(self, iteration: int) -> tuple[float, float]:
        """Median and worst after so many iterations, with the step size that is best in the median there."""
        k = self.at(iteration)
        row = int(self.median[:, k].argmin())
        return float(self.median[row, k]), float(self.worst[row, k])


def curves(store: Store, name: str, method: str) -> Curves:
    arrays = store.load(cell(name, method))
    return Curves(arrays["recorded"], arrays["quartiles"].astype(float), arrays["worst"].astype(float))


def wins(store: Store, method: str = "igd", against: str = "subgd") -> dict[tuple[str, float], bool]:
    """For each of the paper's classes and step sizes: is the median error at the end smaller? A tie is no win."""
    found = {}
    for name in classes(store, ours=False):
        if not store.has(cell(name, against)):
            continue
        ours, theirs = (curves(store, name, m).median[:, -1] for m in (method, against))
        for step, a, b in zip(store.config(Config).steps, ours, theirs, strict=True):
            found[name, step] = bool(a < b - 1e-6 * abs(b))
    return found


def parts_at(curve: np.ndarray, target: np.ndarray, factor: float = 2.0) -> float:
    """The target's error where a curve is first more than a factor above it; NaN if it follows to the end.

    A target at rounding counts as 1e-15.
    """
    apart = np.flatnonzero(curve > factor * np.maximum(target, 1e-15))
    return float(max(target[apart[0]], 1e-15)) if len(apart) else float("nan")

"""The programs: minimise f(y) over A y = x and G y <= h, one for each parameter x.

Everything but x is drawn once. With h_i = sum_j |(G A^+)_ij| the point A^+ x is strictly feasible for every x between
the corners of the cube [-1, 1]^k: it is the anchor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .config import Config


@dataclass(frozen=True)
class Problem:
    """The arrays of all programs, in float64."""

    Q: np.ndarray
    """The diagonal of Q."""
    p: np.ndarray
    A: np.ndarray
    G: np.ndarray
    h: np.ndarray
    inverse: np.ndarray
    """A^+."""
    train: np.ndarray
    """Parameters x to train on, one per row."""
    validation: np.ndarray
    test: np.ndarray

    def anchors(self, x: np.ndarray) -> np.ndarray:
        """A^+ x, the feasible point of least norm on A y = x."""
        return x @ self.inverse.T

    def value(self, y: np.ndarray, variant: str) -> np.ndarray:
        """f(y)."""
        return objective(y, self.Q, self.p, np.sin if variant == "nonconvex" else None)


def draw(config: Config) -> Problem:
    """The problem of DC3, for its sizes to the last bits: the same legacy generator, asked in the same order."""
    random = np.random.RandomState(config.seed)
    Q, p = random.uniform(size=config.variables), random.uniform(size=config.variables)
    A = random.normal(size=(config.equalities, config.variables))
    x = random.uniform(-1, 1, size=(config.samples, config.equalities))
    G = random.normal(size=(config.inequalities, config.variables))
    inverse = np.linalg.pinv(A)
    kept = config.samples - config.validation - config.test
    train, validation, test = np.split(x, [kept, kept + config.validation])
    return Problem(Q, p, A, G, np.abs(G @ inverse).sum(-1), inverse, train, validation, test)


def objective(y: Any, Q: Any, p: Any, sine: Callable[[Any], Any] | None) -> Any:
    """1/2 y'Qy + p'y, or with a sine 1/2 y'Qy + p'sin(y), for arrays of any framework."""
    return (y * y) @ (Q / 2) + (y if sine is None else sine(y)) @ p

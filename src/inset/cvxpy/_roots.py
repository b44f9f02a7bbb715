"""Where a line along e meets the boundary of an exponential or a power cone: roots of one variable, by Newton's method.

Each equation is written in a variable in which it is almost a straight line, so that four to ten steps do. NumPy, which
is quicker than torch on a handful of numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

NEWTON = 60
"""Most steps of a root."""
CLOSE = 1e-9
"""A last step of this relative size leaves an error below rounding, as Newton's method squares it."""


def log_ratio_below(c: np.ndarray, D: np.ndarray) -> np.ndarray:
    """log(1 + D/w) for the root w of w (1 + log(1 + D/w)) = c, where c > 0 and D >= 0.

    In log w the logarithm of the left side has a slope between 0.68 and 1.
    """
    goal, D = np.log(np.where(c > 0, c, 1.0)), np.maximum(D, 0.0)

    def log_ratio(u: np.ndarray) -> np.ndarray:
        w = np.exp(u)
        return np.where(w < D, np.log(w + D) - u, np.log1p(D / w))  # D/w may overflow

    def step(u: np.ndarray) -> np.ndarray:
        log = log_ratio(u)
        return (goal - u - np.log1p(log)) / (1 - D / (np.exp(u) + D) / (1 + log))

    return log_ratio(_newton(step, goal - np.log1p(log_ratio(goal))))


def log_ratio_above(c: np.ndarray, D: np.ndarray) -> np.ndarray:
    """log(1 + 1/q) for the root q > 0 of q - (1 + q) log(1 + 1/q) = c/D, where D > 0.

    With q = log(1 + exp u) the left side is u + O(1) at both ends.
    """
    goal = np.clip(c / np.where(D > 0, D, 1.0), -600.0, 1e15)

    def step(u: np.ndarray) -> np.ndarray:
        q = np.logaddexp(u, 0.0)
        log = np.log1p(1 / q)
        return (goal - q + (1 + q) * log) / ((1 - log + 1 / q) / (1 + np.exp(-u)))

    return np.log1p(1 / np.logaddexp(_newton(step, goal), 0.0))


def smaller_over_larger(c: np.ndarray, D: np.ndarray, a: np.ndarray) -> np.ndarray:
    """w / (w + D) for the root w >= 0 of w^a (w + D)^(1-a) = c; 0 where c = 0.

    In log w the logarithm of the left side is convex with a slope between a and 1.
    """
    positive = c > 0
    goal, D = np.log(np.where(positive, c, 1.0)), np.where(positive, D, 0.0)

    def step(u: np.ndarray) -> np.ndarray:
        w = np.exp(u)
        return (goal - a * u - (1 - a) * np.log(w + D)) / (a + (1 - a) * w / (w + D))

    w = np.exp(_newton(step, goal))
    return np.where(positive, w / (w + D), 0.0)


def _newton(step: Callable[[np.ndarray], np.ndarray], u: np.ndarray) -> np.ndarray:
    """u after steps until they are small."""
    for _ in range(NEWTON):
        move = step(u)
        u = u + move
        if np.all(np.abs(move) <= CLOSE * (1 + np.abs(u))):
            break
    return u

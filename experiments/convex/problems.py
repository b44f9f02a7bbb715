"""`Problems`: the instances of one class, as sets of `inset`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import inset

from .generators import Arrays, exponential


@dataclass(frozen=True)
class Problems:
    """Minimise c.x over a set, for n instances at once: every array has the instance first."""

    set: inset.ConvexSet
    c: np.ndarray
    anchor: np.ndarray
    optimum: np.ndarray

    @property
    def value(self) -> np.ndarray:
        """f*, the least value."""
        return (self.c * self.optimum).sum(-1)

    @property
    def start(self) -> np.ndarray:
        """f at the anchor."""
        return (self.c * self.anchor).sum(-1)

    def error(self, value: np.ndarray) -> np.ndarray:
        """(f - f*) / (f(x0) - f*) for values `(..., n)`: 1 at the anchor, 0 at the optimum."""
        return (value - self.value) / (self.c * (self.anchor - self.optimum)).sum(-1)


def problems(name: str, arrays: Arrays) -> Problems:
    """The instances of a class from the arrays of `generators.sample`."""
    return Problems(SETS[name](arrays), arrays["c"], arrays["anchor"], arrays["optimum"])


SETS: dict[str, Callable[[Arrays], inset.ConvexSet]] = {
    "Lin": lambda a: inset.Polytope(a["A"], a["b"]),
    "SDP": lambda a: inset.LMI(a["A"], a["C"]),
    "SOC": lambda a: inset.SecondOrderCone(a["A"], a["b"], a["z"], a["d"]),
    "Norm": lambda a: inset.Ball(np.zeros_like(a["c"]), 1.0),
    "Exp": lambda a: inset.Sublevel(exponential),
    "LinB": lambda a: inset.Polytope(a["A"], a["b"]),
}

"""The numbers of Fig. 1."""

from __future__ import annotations

from dataclasses import dataclass

CELL = "paths"
"""The one cell of results."""


@dataclass(frozen=True)
class Config:
    """The paper gives the objective f(x) = |x|^2 and one linear constraint a.x <= b; its numbers are our choice."""

    normal: tuple[float, ...] = (-0.6, -1.0)
    """a, the normal of the constraint."""
    offset: float = -1.0
    """b < 0, so that the minimiser of f alone, 0, is outside."""
    anchor: tuple[float, ...] = (-1.2, 2.9)
    """x0, where both methods start; not on the line from 0 to the optimum, which would hide the difference."""
    step: float = 0.1
    """Step size alpha."""
    steps: int = 100
    """Steps of each method; the figure shows the first few."""

    @classmethod
    def quick(cls) -> Config:
        """Half the steps: the whole takes a second in any case."""
        return cls(steps=50)

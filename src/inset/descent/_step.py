"""The step size of the solvers that have one: a number, or one per problem."""

from __future__ import annotations

from typing import Any

from .._namespace import Array, is_array, is_traced, like, namespace
from ._program import Program


def check_step(solver: Any) -> None:
    """Raise unless the step size is positive; an array is looked at only where it has values."""
    step = solver.step
    if is_array(step):
        good = is_traced(step) or bool((step > 0).all())
    else:
        # a placeholder of a tree transform is neither
        good = not isinstance(step, (int, float)) or step > 0
    if not good:
        raise ValueError(f"{type(solver).__name__}(step={step}): expected positive step sizes")


def column(step: Any, program: Program) -> Array:
    """The step sizes as a column, `(N, 1)`, or the number."""
    if not is_array(step):
        return step
    return program.at.flat(like(step, program.anchor))[:, None]


def step_shape(solver: Any) -> tuple[int, ...]:
    """The batch shape of the solver's own step sizes."""
    step = getattr(solver, "step", None)
    return tuple(namespace(step).asarray(step).shape) if is_array(step) else ()

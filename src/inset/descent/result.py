"""`Result`: what `minimize` returns, one entry per problem of the batch."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from .._namespace import Array, Point, host, is_traced


class Status(enum.IntEnum):
    """How the descent of one problem ended: the values of `Result.status`.

    >>> Status(2).name
    'UNBOUNDED'
    """

    CONVERGED = 0
    """`lower` certifies that `value` is optimal, up to the tolerance of the solver."""
    OUT_OF_STEPS = 1
    """The steps ran out; the point is feasible, and how good it is is not known."""
    UNBOUNDED = 2
    """The objective falls along a feasible ray as far as rounding lets one see."""
    FAILED_ANCHOR = 3
    """The anchor is not strictly inside the set; `x` and `value` are NaN."""
    NOT_FINITE = 4
    """h, the objective or a gradient became NaN or infinite; the point is the best one before that."""
    STALLED = 5
    """No further progress was possible in this floating-point arithmetic, and optimality is not certified."""


class Result(NamedTuple):
    """The best feasible points that a descent found, and its record. Prints as a summary.

    >>> import torch
    >>> from inset import Ball
    >>> from inset.torch import minimize
    >>> ball = Ball(torch.zeros(2, dtype=torch.float64), radius=2.0)
    >>> result = minimize(torch.tensor([3.0, 4.0], dtype=torch.float64), ball)
    >>> print(result)
    converged after 2 steps: value -10, optimum at least -10, 3 evaluations of h
    """

    x: Point
    """The best feasible point, `(*batch, *event)`."""
    value: Array
    """The objective there, `(*batch,)`."""
    average: Point
    """The mean of the projected iterates, also feasible: what the paper's theorem is about."""
    history: Array
    """The best value after `recorded[r]` steps, `(*batch, R)`."""
    recorded: tuple[int, ...]
    """The steps of the history: each of the first 100, then about 30 per factor of ten."""
    evaluations: Array
    """Calls of h with its subgradient, `(*batch,)`."""
    lower: Array
    """A lower bound of the optimal value, from the cuts that were seen, `(*batch,)`; -inf where there is none."""
    status: Array
    """A `Status` as an integer, `(*batch,)`."""

    def __str__(self) -> str:
        if is_traced(self.value):
            return f"Result(value={self.value})"
        values, lower, codes, calls = (_flat(v) for v in (self.value, self.lower, self.status, self.evaluations))
        counts = [(sum(code == status for code in codes), _word(status)) for status in Status]
        if len(values) == 1:
            found = f"{_word(Status(codes[0]))} after {self.recorded[-1] if self.recorded else 0} steps"
            return f"{found}: value {values[0]:.10g}, optimum at least {lower[0]:.10g}, {calls[0]} evaluations of h"
        ended = ", ".join([f"{count} {word}" for count, word in counts if count])
        good = sorted(v for v in values if v == v)
        spread = f"{good[0]:.6g} to {good[-1]:.6g}, median {good[len(good) // 2]:.6g}" if good else "none"
        return (
            f"{len(values)} problems, {self.recorded[-1] if self.recorded else 0} steps: {ended}\n"
            f"value {spread}; evaluations of h at most {max(calls)}"
        )


def _word(status: Status) -> str:
    return status.name.lower().replace("_", " ")


def _flat(v: Array) -> list[Any]:
    """The numbers of an array."""
    v = host(v)
    return v.reshape(-1).tolist()

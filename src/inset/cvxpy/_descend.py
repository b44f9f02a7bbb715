"""Minimise a program from a strictly feasible point, by a descent method of inset, until a certificate says enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..descent import Result, Status
from ..torch import minimize
from ._certificate import ROUNDS, Certificate, certify
from ._program import Program, feasible

FIRST_CHECK = 64
"""Steps before the first certificate is tried; then at each doubling."""


@dataclass(frozen=True, eq=False)
class Descent:
    """How a descent ended."""

    proof: Certificate
    """The best point, in the coordinates of the program, and what is proved of it."""
    steps: int
    stopped: bool
    """Whether `enough` ended it."""
    unbounded: bool
    """Whether the method saw the objective fall as far as rounding lets one see."""


def descend(
    program: Program,
    anchor: Tensor,
    solver: Any,
    steps: int,
    tol: float,
    *,
    enough: Callable[[int, float], bool] = lambda step, value: False,
    say: Callable[[str], None] = lambda text: None,
) -> Descent:
    """Minimise from the anchor, in coordinates in which the set is round there, until the value is proved to tol."""
    T = rounding(program, anchor)
    local = program.moved(anchor, T)
    origin = torch.zeros_like(local.c)
    proof = Certificate(origin, local.offset, -float("inf"), None, 0)
    stopped = False

    def watch(step: int, result: Result) -> bool:
        nonlocal proof, stopped
        stopped = enough(step, local.value(result.x))
        if not stopped and step >= FIRST_CHECK and step & (step - 1) == 0:
            proof = _best(proof, certify(local, result.x, tol, patience=1))
            say(f"  step {step}: value {local.value(result.x):.8g}, after cuts {proof.value:.8g}, gap {proof.gap:.1e}")
        return stopped or proof.within(tol)

    result = minimize(local.c, feasible(local), origin, solver, steps, callback=watch)
    if torch.isfinite(result.x).all() and local.value(result.x) < proof.value:
        proof = replace(proof, x=result.x, value=local.value(result.x))
    if not stopped and not proof.within(tol):
        proof = _best(proof, certify(local, proof.x, tol, patience=8, rounds=min(steps, ROUNDS)))
    proof = replace(proof, x=anchor + T @ proof.x)
    return Descent(proof, result.recorded[-1], stopped, int(result.status) == Status.UNBOUNDED)


def rounding(program: Program, x: Tensor) -> Tensor:
    """T = H^(-1/2) with H the Hessian of the barrier at x: the set contains x + T w for all |w| < 1.

    At the centre of the set it contains no w of length above the number of rows; elsewhere it may.
    """
    H = torch.func.hessian(program.barrier)(x)
    values, V = torch.linalg.eigh((H + H.T) / 2)
    return V / values.clamp(min=1e-12 * float(values[-1])).sqrt()


def _best(a: Certificate, b: Certificate) -> Certificate:
    """The better point and the better bound of two."""
    bound, point = (a if a.lower > b.lower else b), (a if a.value < b.value else b)
    both = replace(bound, x=point.x, value=point.value, rounds=a.rounds + b.rounds)
    return both if both.sound else replace(both, lower=-float("inf"), y=None)

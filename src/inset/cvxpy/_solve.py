"""From a conic program to a status that is never better than what is proved."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import cvxpy.settings as status
import numpy as np
import torch
from torch import Tensor

from ._certificate import recession
from ._descend import Descent, descend
from ._phase_one import SHALLOW, Start, find_anchor
from ._presolve import Reduced, reduce

FAR = 1e6
"""An objective that falls below this, relative to its value at the anchor, without a bound known, falls without end."""
NO_INTERIOR = (
    "the feasible set has no interior, or is empty by a hair: the deepest point found is {depth:.2g} inside, and none "
    "is more than {deepest:.2g}. This method needs a strictly feasible point; write what holds with equality as =="
)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What is known of a conic program in the end."""

    status: str
    """One of CVXPY's."""
    message: str
    x: np.ndarray | None = None
    """The best feasible point of the given variables."""
    y: np.ndarray | None = None
    """Dual values of the given rows; of an infeasible program a proof of that: A^T y = 0, b.y < 0."""
    value: float = float("nan")
    gap: float = float("inf")
    """How much better than the value the optimum may be at most."""
    steps: int = 0
    """Of both phases."""


@dataclass(frozen=True, eq=False)
class Task:
    """A conic program as CVXPY gives it, min c.x s.t. A x + s = b, s in K, and how to solve it."""

    c: np.ndarray
    A: np.ndarray
    b: np.ndarray
    dims: Any
    solver: Any
    steps: int
    tol: float
    verbose: bool
    faces: tuple[np.ndarray, ...] = ()
    """Dual points y with A^T y = 0 and b.y = 0: where y is positive, s is 0 on the whole set."""

    @property
    def implied(self) -> np.ndarray:
        """The rows of half-lines that the faces make equalities."""
        lines = np.arange(self.dims.zero, self.dims.zero + self.dims.nonneg)
        if not self.faces:
            return lines[:0]
        return lines[np.any([y[lines] > 1e-6 * np.abs(y).max() for y in self.faces], axis=0)]

    def say(self, text: str) -> None:
        if self.verbose:
            print(f"inset: {text}", flush=True)


def solve(task: Task) -> Outcome:
    """Reduce, find an anchor, descend, and judge.

    Where phase one proves that rows hold with equality all over the set, they are eliminated too and it begins again.
    """
    steps = 0
    while True:
        reduced = reduce(task.c, task.A, task.b, task.dims, task.implied)
        program = reduced.program
        task.say(f"{len(task.c)} variables, {len(task.b)} rows; {len(program.c)} and {len(program.h)} after presolve")
        if reduced.contradiction:
            ended = status.INFEASIBLE_INACCURATE if task.faces else status.INFEASIBLE
            return Outcome(ended, reduced.contradiction, steps=steps)
        start = find_anchor(program, task.solver, task.steps, task.say)
        steps += start.steps
        task.say(f"phase one, {start.steps} steps: a point {start.depth:.3g} inside")
        if start.anchor is not None:
            outcome = _phase_two(task, reduced, start.anchor)
            return replace(outcome, steps=steps + outcome.steps)
        face = _face(task, reduced, start)
        if face is None:
            return replace(_without_anchor(task, reduced, start), steps=steps)
        known = len(task.implied)
        task = replace(task, faces=(*task.faces, face))
        task.say(f"{len(task.implied) - known} inequalities hold with equality; they are eliminated as well")


def _phase_two(task: Task, reduced: Reduced, anchor: Tensor) -> Outcome:
    """The descent from the anchor, and the judgement."""
    program = reduced.program
    if reduced.free is not None:
        return Outcome(status.UNBOUNDED, "the objective falls along a direction that no constraint knows")
    if not bool(program.c.any()):
        dual = _dual(task, reduced, torch.zeros_like(program.h))
        return Outcome(status.OPTIMAL, "any feasible point", _given(reduced, anchor), dual, program.offset, 0.0)
    found = descend(program, anchor, task.solver, task.steps, task.tol, say=task.say)
    outcome = replace(_judge(task, reduced, anchor, found), steps=found.steps)
    task.say(f"phase two, {found.steps} steps and {found.proof.rounds} rounds of cuts: {outcome.message}")
    return outcome


def _judge(task: Task, reduced: Reduced, anchor: Tensor, found: Descent) -> Outcome:
    """Optimal if proved to be, unbounded if a direction proves it, otherwise what is left of either."""
    proof, program = found.proof, reduced.program
    if proof.y is None:
        if recession(program, proof.x - anchor) is not None:
            return Outcome(status.UNBOUNDED, "the objective falls along a direction of the set")
        if proof.value < -FAR * max(1.0, abs(program.value(anchor))):
            return Outcome(status.UNBOUNDED_INACCURATE, f"the objective falls to {proof.value:.2g} and further")
    ended = status.OPTIMAL if proof.within(task.tol) else status.USER_LIMIT
    if ended == status.USER_LIMIT and proof.within(1e3 * task.tol):
        ended = status.OPTIMAL_INACCURATE
    y = None if proof.y is None else _dual(task, reduced, proof.y)
    message = f"the optimum is at most {proof.gap:.2g} below the value {proof.value:.10g}"
    return Outcome(ended, message, _given(reduced, proof.x), y, proof.value, proof.gap)


def _without_anchor(task: Task, reduced: Reduced, start: Start) -> Outcome:
    """Infeasible if phase one proved that every cone must grow; otherwise it is only not known to be feasible."""
    if start.contradiction and start.y is not None:
        message = f"every point violates a constraint, scaled to unit gradients, by {-start.deepest:.2g} or more"
        return Outcome(status.INFEASIBLE, message, y=_dual(task, reduced, start.y, ray=True))
    if start.deepest < 1e3 * SHALLOW:
        return Outcome(status.INFEASIBLE_INACCURATE, NO_INTERIOR.format(depth=start.depth, deepest=start.deepest))
    message = f"no feasible point was found; the nearest one violates a constraint by {-start.depth:.2g}"
    return Outcome(status.INFEASIBLE_INACCURATE, message)


def _face(task: Task, reduced: Reduced, start: Start) -> np.ndarray | None:
    """A dual point y with A^T y = 0 and b.y = 0, positive on new half-lines: their rows hold with equality."""
    if start.y is None or max(abs(start.deepest), -start.depth) > SHALLOW:
        return None
    y = _dual(task, reduced, start.y, ray=True)
    y[np.abs(y) <= 1e-9 * np.abs(y).max()] = 0.0
    return y if len(replace(task, faces=(*task.faces, y)).implied) > len(task.implied) else None


def _given(reduced: Reduced, x: Tensor) -> np.ndarray:
    """The point in the given variables."""
    return reduced.origin + reduced.F @ x.numpy()


def _dual(task: Task, reduced: Reduced, y: Tensor, ray: bool = False) -> np.ndarray:
    """The dual point of the given rows; the equalities make A^T y = -c, or 0 for a ray.

    Inequalities that were eliminated may get a negative multiplier by that; enough of their face makes it positive.
    """
    full = np.zeros(len(task.b))
    full[reduced.rows] = reduced.scale * y.numpy()
    equal = np.concatenate([np.arange(task.dims.zero), task.implied])
    if len(equal):
        rest = -(task.A.T @ full) - (0.0 if ray else task.c)
        full[equal] = np.linalg.lstsq(task.A[equal].T, rest, rcond=None)[0]
    for face in reversed(task.faces):
        support = task.implied[face[task.implied] > 0]
        full = full + max(0.0, np.max(-full[support] / face[support], initial=0.0)) * face
    return full

"""The CVXPY front-end: `Solver`, which solves any conic problem of CVXPY by a descent method of inset."""

from __future__ import annotations

import time
import warnings
from typing import Any

import cvxpy.settings as s
from cvxpy.constraints.exponential import ExpCone
from cvxpy.constraints.nonpos import NonNeg
from cvxpy.constraints.power import PowCone3D
from cvxpy.constraints.psd import SvecPSD
from cvxpy.constraints.second_order import SOC
from cvxpy.constraints.zero import Zero
from cvxpy.reductions.solution import Solution, failure_solution
from cvxpy.reductions.solvers import utilities
from cvxpy.reductions.solvers.conic_solvers.conic_solver import ConicSolver
from cvxpy.utilities.psd_utils import TriangleKind

from ..descent import Radial
from ._solve import Outcome, Task, solve

__all__ = ["Solver"]

OPTIONS = ("steps", "tol")
CITATION = "@misc{inset, title = {inset: hard convex constraints for learning systems}}"


class Solver(ConicSolver):
    """A solver for CVXPY problems over linear, second-order, semidefinite, exponential and power cones.

    `problem.solve(solver=Solver(Radial()))`. Equalities are eliminated, the cones become the constraints of a set, a
    first descent finds a strictly feasible point (phase one), and a second one minimises from there, for at most
    `steps` steps each. Cutting planes at the point it reaches prove how good that is, and finish it. `steps` and
    `tol` may also be given in the call, `problem.solve(solver=..., steps=..., tol=...)`.

    The point returned satisfies the constraints to rounding. The status says what is proved, by the dual values:

    - `optimal`: the value is within tol max(1, |value|) of the optimum;
    - `optimal_inaccurate`: within 1000 times that; `user_limit`: not even that is proved;
    - `infeasible`, `unbounded`: proved; with `_inaccurate`: no feasible point was found, or the objective fell as far
      as one can see, and a warning says more.

    `problem.solver_stats.extra_stats` holds the proved `gap` and the `message`. Made for problems of some tens of
    variables whose feasible set has an interior once the equalities are eliminated, also those that inequalities hide;
    without an interior the status is `infeasible_inaccurate`, and the message says why.

    >>> import cvxpy as cp
    >>> import numpy as np
    >>> x = cp.Variable(2)
    >>> problem = cp.Problem(cp.Minimize(cp.norm(x - np.array([2.0, 1.0]))), [cp.sum(x) == 1, x >= 0])
    >>> round(float(problem.solve(solver=Solver(Radial()))), 6), problem.status
    (1.414214, 'optimal')
    >>> bool((x.value >= 0).all())
    True
    """

    MIP_CAPABLE = False
    SUPPORTED_CONSTRAINTS = [Zero, NonNeg, SOC, SvecPSD, ExpCone, PowCone3D]
    EXP_CONE_ORDER = [0, 1, 2]
    PSD_TRIANGLE_KIND = TriangleKind.UPPER
    PSD_SQRT2_SCALING = True

    def __init__(self, solver: Any = None, *, steps: int = 4096, tol: float = 1e-8) -> None:
        super().__init__()
        if isinstance(solver, type) or not (solver is None or hasattr(solver, "advance")):
            raise TypeError(f"Solver({solver!r}): expected a descent method such as inset.Radial()")
        self.solver = Radial() if solver is None else solver
        self.steps = steps
        self.tol = tol

    def name(self) -> str:
        return "INSET"

    def import_solver(self) -> None:
        """Nothing more to import."""

    def supports_quad_obj(self) -> bool:
        """Quadratic objectives come as second-order cones."""
        return False

    def solve_via_data(
        self, data: Any, warm_start: bool, verbose: bool, solver_opts: Any, solver_cache: Any = None
    ) -> tuple[Outcome, float]:
        """The outcome for the conic data of CVXPY, and the seconds it took. There is no warm start."""
        unknown = sorted({*solver_opts} - {*OPTIONS, "use_quad_obj"})
        if unknown:
            raise TypeError(f"inset.cvxpy.Solver: unknown option {', '.join(unknown)}; expected {' or '.join(OPTIONS)}")
        steps, tol = solver_opts.get("steps", self.steps), solver_opts.get("tol", self.tol)
        if steps < 1 or not tol > 0:
            raise ValueError(f"inset.cvxpy.Solver(steps={steps}, tol={tol}): expected at least one step and tol > 0")
        start = time.perf_counter()
        task = Task(data[s.C], data[s.A].toarray(), data[s.B], data[self.DIMS], self.solver, steps, tol, verbose)
        outcome = solve(task)
        if outcome.status in s.INACCURATE:
            warnings.warn(f"inset: {outcome.status}: {outcome.message}", stacklevel=2)
        return outcome, time.perf_counter() - start

    def invert(self, solution: tuple[Outcome, float], inverse_data: Any) -> Solution:
        """CVXPY's record of an outcome."""
        outcome, seconds = solution
        extra = {"gap": outcome.gap, "message": outcome.message}
        attributes = {s.SOLVE_TIME: seconds, s.NUM_ITERS: outcome.steps, s.EXTRA_STATS: extra}
        dual = {} if outcome.y is None else self._dual_values(outcome.y, inverse_data)
        if outcome.status not in s.SOLUTION_PRESENT:
            return failure_solution(outcome.status, attributes, dual)
        value = outcome.value + inverse_data[s.OFFSET]
        return Solution(outcome.status, value, {inverse_data[self.VAR_ID]: outcome.x}, dual, attributes)

    def _dual_values(self, y: Any, inverse_data: Any) -> dict[Any, Any]:
        zero = inverse_data[self.DIMS].zero
        equal = utilities.get_dual_values(y[:zero], utilities.extract_dual_value, inverse_data[self.EQ_CONSTR])
        other = utilities.get_dual_values(y[zero:], utilities.extract_dual_value, inverse_data[self.NEQ_CONSTR])
        return {**equal, **other}

    def cite(self, data: Any) -> str:
        return CITATION

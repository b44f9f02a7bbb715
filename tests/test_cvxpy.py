"""`inset.cvxpy.Solver` against Clarabel, on problems of every cone and mixture: values, feasibility, duals, use."""

from __future__ import annotations

from typing import Any

import cvxpy
import numpy as np
import pytest

import inset.cvxpy
from cvxpy_problems import GEOMETRIC, PROBLEMS, rng
from inset.descent import Radial

cp: Any = cvxpy  # its type hints take every value for a string, a number or nothing

SOLVER = inset.cvxpy.Solver(Radial())
UNIQUE_DUALS = (
    "lp_polytope",
    "qp_simplex",
    "least_squares_equality",
    "robust_lp",
    "sdp_lambda_max",
    "sdp_nearest_correlation",
    "entropy_maximisation",
    "geometric_mean",
    "log_barrier_centre",
    "mixture_power_lp",
    "mixture_soc_exp_psd",
)


def violation(problem: Any) -> float:
    """By how much the worst constraint is violated, in its own units; attributes of variables included."""
    found = [float(np.max(c.violation())) for c in problem.constraints]
    found += [-float(np.min(v.value)) for v in problem.variables() if v.is_nonneg()]
    found += [-float(np.linalg.eigvalsh(v.value)[0]) for v in problem.variables() if v.attributes["PSD"]]
    return max([0.0, *found])


def canonical(problem: Any, gp: bool = False) -> tuple[dict[str, Any], Any]:
    """The conic data that the solver sees, and its cone dimensions."""
    data = problem.get_problem_data(solver=SOLVER, gp=gp)[0]
    return data, data["dims"]


def test_there_are_problems_of_every_cone() -> None:
    assert len(PROBLEMS) >= 30
    seen = [canonical(make(), name in GEOMETRIC)[1] for name, make in PROBLEMS.items()]
    for kind in ("zero", "nonneg", "soc", "psd", "exp", "p3d"):
        assert sum(bool(getattr(dims, kind)) for dims in seen) >= 4, kind


@pytest.mark.parametrize("name", PROBLEMS)
def test_against_clarabel(name: str) -> None:
    gp = name in GEOMETRIC
    expected = PROBLEMS[name]()
    expected.solve(solver=cp.CLARABEL, gp=gp)
    assert expected.status == cp.OPTIMAL
    problem = PROBLEMS[name]()
    value = problem.solve(solver=SOLVER, gp=gp)
    assert problem.status == cp.OPTIMAL
    assert value == pytest.approx(expected.value, rel=1e-6, abs=1e-6)
    assert violation(problem) <= 1e-9
    stats = problem.solver_stats
    assert stats.solver_name == "INSET" and stats.solve_time > 0 and stats.num_iters >= 0
    if name in UNIQUE_DUALS:
        for constraint, other in zip(problem.constraints, expected.constraints, strict=True):
            for ours, theirs in zip(np.atleast_1d(constraint.dual_value), np.atleast_1d(other.dual_value), strict=True):
                np.testing.assert_allclose(ours, theirs, atol=2e-4)
    assert -1e-9 <= stats.extra_stats["gap"] <= 1e-8 * max(1.0, abs(problem.solution.opt_val)) * (1 + 1e-6)


def test_parameters() -> None:
    """A problem compiled once is solved again with other numbers."""
    x, a = cp.Variable(3), cp.Parameter(3)
    problem = cp.Problem(cp.Minimize(cp.norm(x - a)), [x >= 0, cp.sum(x) == 1])
    for seed in range(3):
        a.value = rng(seed).normal(size=3)
        value = problem.solve(solver=SOLVER)
        assert problem.status == cp.OPTIMAL
        assert value == pytest.approx(problem.solve(solver=cp.CLARABEL), abs=1e-6)


def test_options(capsys: pytest.CaptureFixture[str]) -> None:
    problem = PROBLEMS["qp_simplex"]()
    problem.solve(solver=inset.cvxpy.Solver(), steps=200, tol=1e-6)
    assert problem.status == cp.OPTIMAL
    assert problem.solver_stats.extra_stats["gap"] <= 1e-6
    capsys.readouterr()
    problem.solve(solver=SOLVER, verbose=True)
    shown = capsys.readouterr().out
    assert "variables" in shown and "phase one" in shown and "phase two" in shown and "at most" in shown
    with pytest.raises(TypeError, match="unknown option eps; expected steps or tol"):
        problem.solve(solver=SOLVER, eps=1e-3)
    with pytest.raises(ValueError, match="at least one step"):
        problem.solve(solver=SOLVER, steps=0)
    with pytest.raises(TypeError, match="expected a descent method"):
        inset.cvxpy.Solver(Radial)


def test_integers_are_refused() -> None:
    x = cp.Variable(2, integer=True)
    with pytest.raises(cp.SolverError, match="mixed-integer"):
        cp.Problem(cp.Minimize(cp.sum(x)), [x >= 0.5]).solve(solver=SOLVER)


def test_a_second_solve_gives_the_same_point() -> None:
    """There is no random number and no state."""
    points = []
    for _ in range(2):
        problem = PROBLEMS["robust_lp"]()
        problem.solve(solver=SOLVER)
        points.append(problem.variables()[0].value)
    np.testing.assert_array_equal(*points)


def test_random_mixtures() -> None:
    """Three programs with all cones at once, feasible and bounded by construction."""
    for seed in range(3):
        r = rng(100 + seed)
        x = cp.Variable(4)
        A, B = r.normal(size=(3, 4)), r.normal(size=(4, 3, 3))
        S: Any = 4 * np.eye(3) + sum(x[i] * (B[i] + B[i].T) for i in range(4))
        constraints = [A @ x <= 1, cp.norm(x - r.normal(size=4) / 4) <= 2, S >> 0, cp.exp(x[0]) <= 2 + x[1]]
        constraints += [cp.PowCone3D(x[2] + 3, x[3] + 3, x[0] - x[1], 0.2 + 0.6 * r.random())]
        problem = cp.Problem(cp.Minimize(r.normal(size=4) @ x), constraints)
        expected = problem.solve(solver=cp.CLARABEL)
        assert problem.solve(solver=SOLVER) == pytest.approx(expected, rel=1e-6, abs=1e-6)
        assert problem.status == cp.OPTIMAL and violation(problem) <= 1e-9

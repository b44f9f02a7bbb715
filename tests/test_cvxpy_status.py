"""What `inset.cvxpy.Solver` says of problems without an optimum, without an interior, or without enough steps."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import cvxpy
import numpy as np
import pytest

from inset.cvxpy import Solver
from inset.descent import Radial

cp: Any = cvxpy  # its type hints take every value for a string, a number or nothing

SOLVER = Solver(Radial())


@contextmanager
def inaccurate(match: str) -> Iterator[None]:
    """CVXPY warns that the solution may be inaccurate, and this solver says why."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    assert [w for w in seen if "may be inaccurate" in str(w.message)]
    assert [w for w in seen if re.search(match, str(w.message))], [str(w.message) for w in seen]


x = cp.Variable(2)
t = cp.Variable()
X = cp.Variable((2, 2), symmetric=True)

INFEASIBLE = {
    "lp": [x >= 1, cp.sum(x) <= 1],
    "soc": [cp.norm(x) <= 1, x[0] >= 1.5],
    "psd": [X >> np.eye(2), X[0, 1] >= 3, cp.trace(X) <= 4, cp.sum(x) == 0],
    "exponential": [cp.exp(x[0]) <= x[1], x[1] <= 1, x[0] >= 0.5],
    "power": [cp.PowCone3D(x[0], x[1], t, 0.3), t >= 2, cp.sum(x) <= 2],
    "equalities": [cp.sum(x) == 1, 2 * cp.sum(x) == 3, x >= 0],
    "constants": [x == 1, x[0] >= 2],
}


@pytest.mark.parametrize("name", INFEASIBLE)
def test_infeasible(name: str) -> None:
    problem = cp.Problem(cp.Minimize(x[0] + x[1]), INFEASIBLE[name])
    assert problem.solve(solver=SOLVER) == np.inf
    assert problem.status == cp.INFEASIBLE
    assert x.value is None


def test_infeasible_has_a_proof() -> None:
    """Multipliers of the inequalities whose combination reads 0 <= a negative number."""
    A, b = np.array([[-1.0, 0.0], [0.0, -1.0], [1.0, 2.0]]), np.array([0.0, -1.0, 1.0])
    problem = cp.Problem(cp.Minimize(x[0]), [A @ x <= b])
    problem.solve(solver=SOLVER)
    y = problem.constraints[0].dual_value
    assert problem.status == cp.INFEASIBLE
    assert (y >= 0).all() and b @ y < -0.1 * np.abs(y).sum()
    np.testing.assert_allclose(A.T @ y, 0, atol=1e-12)


def test_infeasible_without_a_proof() -> None:
    """1/x <= y, y <= 0 has no point, but points that violate it by as little as one likes."""
    problem = cp.Problem(cp.Minimize(x[0]), [cp.quad_over_lin(1, x[0]) <= x[1], x[1] <= 0])
    with inaccurate("no interior|no feasible point"):
        problem.solve(solver=SOLVER)
    assert problem.status == cp.INFEASIBLE_INACCURATE


UNBOUNDED = {
    "free": (x[0] + x[1], [x[0] >= 1]),
    "no constraint": (x[0], []),
    "lp": (x[0] - 2 * x[1], [x >= 1, x[1] <= x[0] + 3]),
    "soc": (x[0], [cp.norm(x) <= 2 - 1.1 * x[0]]),
    "psd": (-cp.trace(X), [X >> 0]),
    "exponential": (-x[1], [cp.exp(x[0]) <= x[1]]),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_unbounded(name: str) -> None:
    objective, constraints = UNBOUNDED[name]
    problem = cp.Problem(cp.Minimize(objective), constraints)
    assert problem.solve(solver=SOLVER) == -np.inf
    assert problem.status == cp.UNBOUNDED


def test_unbounded_without_a_direction() -> None:
    """x^2 <= y has no direction along which x falls: what is seen is not proved."""
    problem = cp.Problem(cp.Minimize(x[1]), [cp.square(x[1]) <= x[0]])
    with inaccurate("falls to"):
        problem.solve(solver=SOLVER)
    assert problem.status == cp.UNBOUNDED_INACCURATE


NO_INTERIOR = {
    "soc": (x[1], [cp.norm(x) <= 1, x[0] >= 1]),
    "psd": (X[1, 1], [X >> 0, X[0, 0] <= 0, X[1, 1] >= 1]),
    "cone in a plane": (x[0] + x[1], [cp.norm(x) <= t, cp.norm(x - 1) <= np.sqrt(2) - t]),
}


@pytest.mark.parametrize("name", NO_INTERIOR)
def test_empty_interior(name: str) -> None:
    objective, constraints = NO_INTERIOR[name]
    problem = cp.Problem(cp.Minimize(objective), constraints)
    with inaccurate("no interior.*needs a strictly feasible point"):
        problem.solve(solver=SOLVER)
    assert problem.status == cp.INFEASIBLE_INACCURATE
    assert "no interior" in problem.solver_stats.extra_stats["message"]


HIDDEN = {
    "two rows": (x[0], [x[0] + x[1] <= 1, x[0] + x[1] >= 1, x >= 0], 0.0),
    "bounds": (cp.norm(x), [x >= [1, 2], x <= [1, 2]], np.sqrt(5)),
    "three rows": (cp.norm(x - 3), [x >= 0, cp.sum(x) <= 0], np.sqrt(18)),
    "in two rounds": (-x[1], [x[0] <= 0, x[0] >= 0, x[1] <= x[0], x[1] >= 0, t >= x[1], t <= 1], 0.0),
    "within a ball": (x[0] + 3 * x[1], [x[0] <= x[1], x[1] <= x[0], cp.norm(x) <= 1], -np.sqrt(8)),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_inequalities_that_hide_equalities(name: str) -> None:
    """They are found by phase one and eliminated; the dual values are still those of inequalities."""
    objective, constraints, expected = HIDDEN[name]
    problem = cp.Problem(cp.Minimize(objective), constraints)
    assert problem.solve(solver=SOLVER) == pytest.approx(expected, abs=1e-7)
    assert problem.status == cp.OPTIMAL
    assert max(float(np.max(c.violation())) for c in constraints) <= 1e-9
    duals = [np.atleast_1d(c.dual_value) for c in constraints if isinstance(c, cp.constraints.nonpos.Inequality)]
    assert all((d >= -1e-9).all() for d in duals)


def hard() -> Any:
    r = np.random.default_rng(0)
    z = cp.Variable(5)
    A, b = r.normal(size=(10, 5)), r.normal(size=10)
    return cp.Problem(cp.Minimize(cp.sum(cp.huber(A @ z - b, 0.5)) + cp.norm(z)), [cp.norm1(z) <= 2])


@pytest.mark.parametrize("steps", [1, 8])
def test_few_steps(steps: int) -> None:
    """The point is feasible, its value is no better than the optimum, and nothing is claimed that is not proved."""
    expected = hard().solve(solver=cp.CLARABEL)
    problem = hard()
    with inaccurate("the optimum is at most"):
        value = problem.solve(solver=SOLVER, steps=steps)
    gap = problem.solver_stats.extra_stats["gap"]
    assert problem.status in (cp.USER_LIMIT, cp.OPTIMAL_INACCURATE)
    assert max(float(np.max(c.violation())) for c in problem.constraints) <= 1e-9
    assert expected - 1e-6 <= value <= expected + gap + 1e-6 and gap > 1e-8 * abs(value)


def test_phase_one_without_enough_steps() -> None:
    """A feasible problem whose points are far away and few: no point is found, and that is what is said."""
    problem = cp.Problem(cp.Minimize(x[0]), [cp.norm(x - 40) <= 0.01, cp.exp(x[0] / 40) <= 2.7180 + 0.01 * t, t <= 1])
    with inaccurate("no feasible point was found"):
        problem.solve(solver=SOLVER, steps=1)
    assert problem.status == cp.INFEASIBLE_INACCURATE
    problem.solve(solver=SOLVER)
    assert problem.status == cp.OPTIMAL


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
def test_units_do_not_matter(scale: float) -> None:
    problem = cp.Problem(cp.Minimize(cp.sum(x)), [cp.norm(x) <= scale, x[0] >= -scale / 2])
    assert problem.solve(solver=SOLVER, tol=1e-8 * min(1, scale)) == pytest.approx(
        -scale * (0.5 + np.sqrt(0.75)), rel=1e-6
    )
    assert problem.status == cp.OPTIMAL


def test_thin_sets_and_infinite_bounds() -> None:
    thin = cp.Problem(cp.Minimize(x[0]), [cp.sum(x) <= 1, cp.sum(x) >= 1 - 1e-6, x >= 0])
    assert thin.solve(solver=SOLVER) == pytest.approx(0, abs=1e-8) and thin.status == cp.OPTIMAL
    bounds = cp.Problem(cp.Minimize(cp.sum(x)), [x >= [0.0, -1.0], x <= [np.inf, 3.0]])
    assert bounds.solve(solver=SOLVER) == pytest.approx(-1, abs=1e-8) and bounds.status == cp.OPTIMAL

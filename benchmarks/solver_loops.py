"""Clarabel and SCS in a loop over instances: through CVXPY, or by their own interfaces with prepared conic data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import clarabel
import cvxpy
import numpy as np
import scipy.sparse
import scs
from cvxpy.error import SolverError
from cvxpy.reductions.solvers.conic_solvers.clarabel_conif import dims_to_solver_cones
from cvxpy.reductions.solvers.conic_solvers.scs_conif import dims_to_solver_dict
from experiments.convex.generators import Arrays
from experiments.convex.optima import OMEGA

#: The tolerances that a solver is tried with, in units of the accuracy asked for; the first that will do is taken.
LADDER = (10.0, 1.0, 1e-1, 1e-2, 1e-3)


class Model:
    """min c.x over the set of a class, as one CVXPY problem: what differs between the instances is a Parameter."""

    def __init__(self, name: str, arrays: Arrays) -> None:
        self.given: list[tuple[cvxpy.Parameter, np.ndarray]] = []
        self.x = cvxpy.Variable(arrays["c"].shape[-1])
        constraints = CONSTRAINTS[name](self, arrays)
        self.problem = cvxpy.Problem(cvxpy.Minimize(self.parameter(arrays["c"]) @ self.x), constraints)

    def parameter(self, values: np.ndarray) -> cvxpy.Parameter:
        """A Parameter that takes one of the values, `(instances, ...)`, after the other."""
        parameter = cvxpy.Parameter(values.shape[1:])
        self.given.append((parameter, values))
        return parameter

    def select(self, i: int) -> None:
        """Give the Parameters the values of instance i."""
        for parameter, values in self.given:
            parameter.value = values[i]


def linear(model: Model, a: Arrays) -> list[Any]:
    return [model.parameter(a["A"]) @ model.x <= model.parameter(a["b"])]


def semidefinite(model: Model, a: Arrays) -> list[Any]:
    k = a["C"].shape[-1]
    columns = np.reshape(a["A"], (*a["A"].shape[:2], k * k)).mT
    total = cvxpy.reshape(model.parameter(columns) @ model.x, (k, k), order="C")
    return [total - model.parameter(a["C"]) >> 0]


def second_order(model: Model, a: Arrays) -> list[Any]:
    fields = [[model.parameter(a[key][:, i]) for key in ("A", "b", "z", "d")] for i in range(a["d"].shape[-1])]
    return [cvxpy.SOC(z @ model.x + d, A @ model.x + b) for A, b, z, d in fields]


def norm(model: Model, a: Arrays) -> list[Any]:
    return [cvxpy.norm(model.x) <= 1]


def exponential(model: Model, a: Arrays) -> list[Any]:
    v = model.x - OMEGA
    return [cvxpy.sum_squares(v) / 2 + cvxpy.sum(cvxpy.exp(v)) <= a["c"].shape[-1]]


CONSTRAINTS: dict[str, Callable[[Model, Arrays], list[Any]]] = {
    "Lin": linear,
    "SDP": semidefinite,
    "SOC": second_order,
    "Norm": norm,
    "Exp": exponential,
    "LinB": linear,
}


def options(solver: str, tolerance: float) -> dict[str, float]:
    """The settings that ask a solver for this tolerance."""
    names = {"CLARABEL": ("tol_gap_abs", "tol_gap_rel", "tol_feas"), "SCS": ("eps_abs", "eps_rel")}
    return dict.fromkeys(names[solver], tolerance)


def through_cvxpy(model: Model, solver: str, tolerance: float, count: int) -> np.ndarray:
    """The answers `(count, n)` of CVXPY to the first instances, NaN where there is none."""
    points = np.full((count, *model.x.shape), np.nan)
    with _accepting_inaccurate():
        for i in range(count):
            model.select(i)
            try:
                model.problem.solve(solver=solver, **options(solver, tolerance))
            except SolverError:
                continue
            if model.x.value is not None:
                points[i] = model.x.value
    return points


@contextmanager
def _accepting_inaccurate() -> Iterator[None]:
    """The accuracy is measured afterwards, so CVXPY need not warn of it."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        yield


class Core:
    """The conic data of every instance, as CVXPY hands them to a solver: min q.v with b - A v in a cone."""

    def __init__(self, model: Model, solver: str, count: int) -> None:
        self.solver, self.data = solver, []
        for i in range(count):
            model.select(i)
            data, _, _ = model.problem.get_problem_data(solver)
            self.data.append(_prepared(solver, data))
            first = data["param_prob"].var_id_to_col[model.x.id]
            self.columns = slice(first, first + model.x.size)

    def solve(self, tolerance: float) -> np.ndarray:
        """The answers `(count, n)` of the solver; each instance is set up and solved."""
        solve = {"CLARABEL": _clarabel, "SCS": _scs}[self.solver]
        return np.stack([solve(data, options(self.solver, tolerance))[self.columns] for data in self.data])


def _prepared(solver: str, data: dict[str, Any]) -> tuple[Any, ...]:
    A, b, q = data["A"], data["b"], data["c"]
    assert "P" not in data  # no objective here is quadratic
    if solver == "SCS":
        return {"A": A, "b": b, "c": q}, dims_to_solver_dict(data["dims"])
    return scipy.sparse.csc_array((q.size, q.size)), q, A, b, dims_to_solver_cones(data["dims"])


def _clarabel(data: tuple[Any, ...], options: dict[str, float]) -> np.ndarray:
    settings = clarabel.DefaultSettings()  # pyright: ignore[reportAttributeAccessIssue]
    settings.verbose = False
    for name, value in options.items():
        setattr(settings, name, value)
    solver = clarabel.DefaultSolver(*data, settings)  # pyright: ignore[reportAttributeAccessIssue]
    return np.asarray(solver.solve().x)


def _scs(data: tuple[Any, ...], options: dict[str, float]) -> np.ndarray:
    return scs.SCS(*data, verbose=False, **options).solve()["x"]


def tolerance(core: Core, accuracy: float, error: Callable[[np.ndarray], np.ndarray]) -> float:
    """The first tolerance of the ladder at which every instance is within the accuracy, else the most are."""
    found: list[tuple[int, float]] = []
    for factor in LADDER:
        missed = int((error(core.solve(factor * accuracy)) > accuracy).sum())
        found.append((missed, factor * accuracy))
        if not missed:
            break
    return min(found, key=lambda pair: pair[0])[1]

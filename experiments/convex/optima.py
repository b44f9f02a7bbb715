"""Optimal points that no construction gives, to about the last digit: errors of 1e-14 have to mean something.

An interior-point solver finds which constraints are active; Newton's method on the optimality conditions of those,
or one linear solve, then takes the point to rounding. A certificate (multipliers and slacks of the right sign, a
residual at rounding) decides whether the result may be used; instances without one are drawn again.
"""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy
import numpy as np
from cvxpy.error import SolverError

OMEGA = 0.5671432904097838
"""W(1), the Lambert W function at 1: OMEGA exp(OMEGA) = 1."""

TIGHT: dict[str, Any] = {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13}


def solved(problem: cvxpy.Problem, **settings: Any) -> bool:
    """Whether Clarabel solves the problem, at worst to less than the tolerances asked for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")
        try:
            problem.solve(solver=cvxpy.CLARABEL, **settings)
        except SolverError:
            return False
    return problem.status in (cvxpy.OPTIMAL, cvxpy.OPTIMAL_INACCURATE)


def vertex(c: np.ndarray, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The minimiser of c.x over A x <= b if it is one vertex, else NaN."""
    d = len(c)
    x = cvxpy.Variable(d)
    rows = A @ x <= b
    nothing = np.full(d, np.nan)
    if not solved(cvxpy.Problem(cvxpy.Minimize(c @ x), [rows]), **TIGHT):
        return nothing
    active = np.argsort(-np.asarray(rows.dual_value))[:d]
    point = np.linalg.solve(A[active], b[active])
    weights = np.linalg.solve(A[active].T, -c)
    others = np.delete(A @ point - b, active)
    return point if weights.min() > 1e-9 and others.max() < -1e-9 else nothing


def soc_optimum(c: np.ndarray, A: np.ndarray, b: np.ndarray, z: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The minimiser of c.x over |A_i x + b_i| <= z_i.x + d_i, by Newton's method on its optimality conditions.

    NaN if the problem is unbounded or the conditions cannot be solved to rounding.
    """
    nothing = np.full(len(c), np.nan)
    variable = cvxpy.Variable(len(c))
    cones: list[Any] = [cvxpy.SOC(z[i] @ variable + d[i], A[i] @ variable + b[i]) for i in range(len(z))]
    if not solved(cvxpy.Problem(cvxpy.Minimize(c @ variable), cones), **TIGHT):
        return nothing
    weights = np.array([float(np.squeeze(cone.dual_value[0])) for cone in cones])
    active = weights > 1e-6 * weights.max()
    x, w = variable.value, weights[active]
    assert x is not None
    for _ in range(8):
        h, J, curve = cone_derivatives(A[active], b[active], z[active], d[active], x, w)
        matrix = np.block([[curve, J.T], [J, np.zeros((len(w), len(w)))]])
        step = np.linalg.solve(matrix, -np.concatenate([c + J.T @ w, h]))
        x, w = x + step[: len(x)], w + step[len(x) :]
    h, J, _ = cone_derivatives(A[active], b[active], z[active], d[active], x, w)
    slack = cone_derivatives(A[~active], b[~active], z[~active], d[~active], x, weights[~active])[0]
    residual = max(abs(h).max(), abs(c + J.T @ w).max())
    sound = residual < 1e-12 and w.min() > 0 and slack.max(initial=-1.0) < 0
    return x if sound else nothing


def cone_derivatives(
    A: np.ndarray, b: np.ndarray, z: np.ndarray, d: np.ndarray, x: np.ndarray, w: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """h_i(x) = |A_i x + b_i| - z_i.x - d_i, its gradients as rows, and the Hessian of sum_i w_i h_i."""
    v = A @ x + b
    size = np.linalg.norm(v, axis=-1)
    J = ((v / size[:, None])[:, None] @ A)[:, 0]
    curve = np.einsum("i,ikm,ikn->mn", w / size, A, A) - np.einsum("i,im,in->mn", w / size, J, J)
    return size - z @ x - d, J - z, curve


def exp_optimum(c: np.ndarray) -> np.ndarray:
    """The minimiser of c.x over |v|^2 / 2 + sum exp(v_i) <= d, v = x - OMEGA; `c` is `(n, d)`, of unit rows.

    Stationarity is v + exp(v) = -s c for some s > 0, and the left side of the constraint grows with s: two nested
    root searches, both of monotone smooth functions.
    """
    s = np.ones(len(c))
    for _ in range(100):
        v = inverse_of_exp_plus(-s[:, None] * c)
        excess = (v * v / 2 + np.exp(v)).sum(-1) - c.shape[-1]
        growth = s * (c * c / (1 + np.exp(v))).sum(-1)
        s = np.maximum(s - excess / growth, s / 4)
    return OMEGA + inverse_of_exp_plus(-s[:, None] * c)


def inverse_of_exp_plus(y: np.ndarray) -> np.ndarray:
    """The v with v + exp(v) = y, by Newton's method, which descends from the right of the root."""
    v = np.where(y > 1, np.log(np.maximum(y, 1)), y)
    for _ in range(60):
        v = v - (v + np.exp(v) - y) / (1 + np.exp(v))
    return v

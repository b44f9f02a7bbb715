"""Small convex problems of every cone and mixture, in CVXPY, each with its own random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy
import numpy as np

cp: Any = cvxpy  # its type hints take every value for a string, a number or nothing

PROBLEMS: dict[str, Callable[[], Any]] = {}
GEOMETRIC = ("geometric_program", "geometric_program_box")


def problem(fn: Callable[[], Any]) -> Callable[[], Any]:
    PROBLEMS[fn.__name__] = fn
    return fn


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@problem
def lp_box() -> Any:
    x = cp.Variable(4)
    c = rng(0).normal(size=4)
    return cp.Problem(cp.Minimize(c @ x), [x >= -1, x <= 2])


@problem
def lp_polytope() -> Any:
    r = rng(1)
    A = r.normal(size=(20, 6))
    x = cp.Variable(6)
    return cp.Problem(cp.Maximize(r.normal(size=6) @ x), [A @ x <= 1 + r.random(20), cp.norm_inf(x) <= 5])


@problem
def lp_transport() -> Any:
    x = cp.Variable((3, 4), nonneg=True)
    C = rng(2).random((3, 4))
    return cp.Problem(
        cp.Minimize(cp.sum(cp.multiply(C, x))),
        [cp.sum(x, axis=1) == [3.0, 2.0, 4.0], cp.sum(x, axis=0) == [2.0, 3.0, 1.0, 3.0]],
    )


@problem
def lp_chebyshev() -> Any:
    r = rng(3)
    A = r.normal(size=(12, 3))
    b = 1 + r.random(12)
    x, t = cp.Variable(3), cp.Variable()
    return cp.Problem(cp.Maximize(t), [A @ x + np.linalg.norm(A, axis=1) * t <= b])


@problem
def l1_regression() -> Any:
    r = rng(4)
    A = r.normal(size=(10, 4))
    b = r.normal(size=10)
    x = cp.Variable(4)
    return cp.Problem(cp.Minimize(cp.norm1(A @ x - b)))


@problem
def qp_simplex() -> Any:
    r = rng(5)
    L = r.normal(size=(6, 6))
    x = cp.Variable(6)
    return cp.Problem(
        cp.Minimize(cp.quad_form(x, L @ L.T + np.eye(6)) + r.normal(size=6) @ x), [x >= 0, cp.sum(x) == 1]
    )


@problem
def qp_box() -> Any:
    r = rng(6)
    L = r.normal(size=(8, 8))
    x = cp.Variable(8)
    return cp.Problem(cp.Minimize(cp.sum_squares(L @ x - 1)), [x >= -0.3, x <= 0.3])


@problem
def least_squares_nonneg() -> Any:
    r = rng(7)
    A = r.normal(size=(15, 6))
    x = cp.Variable(6, nonneg=True)
    return cp.Problem(cp.Minimize(cp.sum_squares(A @ x - r.normal(size=15))))


@problem
def least_squares_equality() -> Any:
    r = rng(8)
    A = r.normal(size=(10, 5))
    x = cp.Variable(5)
    return cp.Problem(cp.Minimize(cp.norm(A @ x - r.normal(size=10))), [r.normal(size=(2, 5)) @ x == [1.0, -1.0]])


@problem
def lasso() -> Any:
    r = rng(9)
    A = r.normal(size=(12, 6))
    x = cp.Variable(6)
    return cp.Problem(cp.Minimize(cp.sum_squares(A @ x - r.normal(size=12)) + 2 * cp.norm1(x)))


@problem
def huber() -> Any:
    r = rng(10)
    A = r.normal(size=(8, 3))
    b = r.normal(size=8) * 3
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(cp.sum(cp.huber(A @ x - b, 1.0))))


@problem
def portfolio() -> Any:
    r = rng(11)
    mu = r.random(6)
    F = r.normal(size=(6, 3))
    w = cp.Variable(6)
    return cp.Problem(cp.Maximize(mu @ w - 2 * cp.sum_squares(F.T @ w)), [cp.sum(w) == 1, w >= 0, w <= 0.4])


@problem
def socp_facility() -> Any:
    P = rng(12).normal(size=(7, 2))
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(sum(cp.norm(x - p) for p in P)))


@problem
def socp_smallest_ball() -> Any:
    P = rng(13).normal(size=(15, 3))
    x, r = cp.Variable(3), cp.Variable()
    return cp.Problem(cp.Minimize(r), [cp.norm(P - x[None, :], axis=1) <= r])


@problem
def socp_random() -> Any:
    r = rng(14)
    x = cp.Variable(5)
    cons = []
    for _ in range(4):
        A, b, c = r.normal(size=(3, 5)), r.normal(size=3), r.normal(size=5)
        cons.append(cp.norm(A @ x + b) <= 0.3 * c @ x + 4)
    return cp.Problem(cp.Minimize(r.normal(size=5) @ x), [*cons, cp.norm(x) <= 3])


@problem
def robust_lp() -> Any:
    r = rng(15)
    A = r.normal(size=(8, 4))
    x = cp.Variable(4)
    return cp.Problem(
        cp.Maximize(r.normal(size=4) @ x), [a @ x + 0.2 * cp.norm(x) <= 1 for a in A] + [cp.norm_inf(x) <= 4]
    )


@problem
def many_small_socs() -> Any:
    r = rng(16)
    P = r.normal(size=(40, 2))
    x = cp.Variable(2)
    return cp.Problem(cp.Minimize(r.normal(size=2) @ x), [cp.norm(x - p) <= 4 for p in P])


@problem
def sdp_max_cut() -> Any:
    r = rng(17)
    W = np.triu(r.random((5, 5)), 1)
    W = W + W.T
    L = np.diag(W.sum(1)) - W
    X = cp.Variable((5, 5), PSD=True)
    return cp.Problem(cp.Maximize(cp.trace(L @ X) / 4), [cp.diag(X) == 1])


@problem
def sdp_nearest_correlation() -> Any:
    r = rng(18)
    M = r.uniform(-1, 1, size=(4, 4))
    M = (M + M.T) / 2
    X = cp.Variable((4, 4), symmetric=True)
    return cp.Problem(cp.Minimize(cp.norm(X - M, "fro")), [X >> 0, cp.diag(X) == 1])


@problem
def sdp_lambda_max() -> Any:
    r = rng(19)
    S = r.normal(size=(5, 4, 4))
    S = S + S.transpose(0, 2, 1)
    x = cp.Variable(4)
    return cp.Problem(cp.Minimize(cp.lambda_max(S[0] + sum(x[i] * S[i + 1] for i in range(4)))), [cp.norm_inf(x) <= 1])


@problem
def sdp_lyapunov() -> Any:
    A = np.array([[-1.0, 2.0, 0.0], [0.0, -2.0, 1.0], [0.3, 0.0, -1.0]])
    P = cp.Variable((3, 3), symmetric=True)
    return cp.Problem(cp.Minimize(cp.trace(P)), [P >> np.eye(3), A.T @ P + P @ A << -0.1 * np.eye(3)])


@problem
def sdp_several_blocks() -> Any:
    r = rng(20)
    S = r.normal(size=(3, 4, 3, 3))
    S = S + S.transpose(0, 1, 3, 2)
    x = cp.Variable(3)
    return cp.Problem(
        cp.Minimize(r.normal(size=3) @ x),
        [cp.Constant(6 * np.eye(3)) + sum(x[i] * S[i, k] for i in range(3)) >> 0 for k in range(4)],
    )


@problem
def nuclear_norm() -> Any:
    r = rng(21)
    M = r.normal(size=(3, 3))
    X = cp.Variable((3, 3))
    return cp.Problem(cp.Minimize(cp.normNuc(X)), [X[0, :] == M[0, :], X[1, 1] == M[1, 1]])


@problem
def entropy_maximisation() -> Any:
    r = rng(22)
    A = r.normal(size=(2, 6))
    p = cp.Variable(6)
    return cp.Problem(
        cp.Maximize(cp.sum(cp.entr(p))),
        [cp.sum(p) == 1, A @ p == A @ (np.ones(6) / 6 + 0.05 * np.array([1, -1, 1, -1, 1, -1]))],
    )


@problem
def logistic_regression() -> Any:
    r = rng(23)
    X = r.normal(size=(8, 2))
    y = np.sign(X @ [1.0, -1.0] + r.normal(size=8))
    w = cp.Variable(2)
    return cp.Problem(cp.Minimize(cp.sum(cp.logistic(-cp.multiply(y, X @ w))) + 0.1 * cp.sum_squares(w)))


@problem
def log_sum_exp() -> Any:
    r = rng(24)
    A = r.normal(size=(6, 3))
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(cp.log_sum_exp(A @ x + r.normal(size=6)) + 0.3 * cp.norm1(x)), [cp.norm_inf(x) <= 3])


@problem
def geometric_program() -> Any:
    x, y, z = cp.Variable(pos=True), cp.Variable(pos=True), cp.Variable(pos=True)
    return cp.Problem(cp.Minimize(x / y + z), [x >= 2, x <= 3, x**2 + 3 * y / z <= 9 * y**0.5, x / y == z**2])


@problem
def geometric_program_box() -> Any:
    h, w, d = (cp.Variable(pos=True) for _ in range(3))
    return cp.Problem(
        cp.Maximize(h * w * d), [2 * (h * w + h * d) <= 10, w * d <= 5, h / w <= 2, w / h <= 3, d <= 3 * w]
    )


@problem
def kl_projection() -> Any:
    r = rng(25)
    q = r.random(5)
    q /= q.sum()
    p = cp.Variable(5)
    return cp.Problem(
        cp.Minimize(cp.sum(cp.kl_div(p, q))), [cp.sum(p) == 1, np.arange(5.0) @ p <= 0.7 * np.arange(5.0) @ q]
    )


@problem
def log_barrier_centre() -> Any:
    r = rng(26)
    A = r.normal(size=(10, 3))
    x = cp.Variable(3)
    return cp.Problem(cp.Maximize(cp.sum(cp.log(1 - A @ x))), [cp.norm(x) <= 2])


@problem
def water_filling() -> Any:
    a = np.array([0.8, 1.0, 1.2, 1.6])
    x = cp.Variable(4, nonneg=True)
    return cp.Problem(cp.Maximize(cp.sum(cp.log(a + x))), [cp.sum(x) == 1])


@problem
def p_norm_power_cones() -> Any:
    r = rng(27)
    x = cp.Variable(4)
    A = r.normal(size=(2, 4))
    return cp.Problem(cp.Minimize(cp.pnorm(x, 3, approx=False)), [A @ x == [1.0, 2.0]])


@problem
def p_norm_soc_tower() -> Any:
    r = rng(28)
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(r.normal(size=3) @ x), [cp.pnorm(x, 3) <= 1])


@problem
def geometric_mean() -> Any:
    r = rng(29)
    x = cp.Variable(4)
    return cp.Problem(cp.Maximize(cp.geo_mean(x, approx=False)), [r.random((3, 4)) @ x <= 1, x >= 0])


@problem
def powers() -> Any:
    x = cp.Variable(3)
    return cp.Problem(
        cp.Minimize(cp.sum(cp.power(x, 1.7, approx=False)) - cp.sum(cp.power(x, 0.4, approx=False))),
        [x >= 0.05, cp.sum(x) <= 2],
    )


@problem
def power_cone_direct() -> Any:
    x = cp.Variable(3)
    return cp.Problem(cp.Maximize(x[2] - 0.2 * x[0]), [cp.PowCone3D(x[0], x[1], x[2], 0.3), x[0] + 2 * x[1] <= 3])


@problem
def mixture_soc_exp_psd() -> Any:
    r = rng(30)
    X = cp.Variable((3, 3), symmetric=True)
    S = r.normal(size=(3, 3))
    S = S + S.T
    return cp.Problem(cp.Minimize(cp.trace(S @ X) - cp.log_det(X)), [cp.norm(X, "fro") <= 3, X[0, 1] >= 0.1])


@problem
def mixture_power_lp() -> Any:
    x = cp.Variable(3)
    return cp.Problem(
        cp.Minimize(cp.norm(x - np.array([1.0, 2.0, 3.0])) + cp.sum(cp.power(x, 1.5, approx=False))),
        [x >= 0, cp.sum(x) >= 1, cp.exp(x[0]) <= 2],
    )


@problem
def mixture_all() -> Any:
    x = cp.Variable(2)
    t = cp.Variable()
    return cp.Problem(
        cp.Minimize(t + x[0]),
        [
            cp.exp(x[0]) + x[1] <= t,
            cp.norm(x) <= 2,
            cp.bmat([[t, x[1]], [x[1], 1.0]]) >> 0,
            cp.PowCone3D(t, cp.Constant(1.0), x[0] + 0.5, 0.6),
            x[0] + x[1] >= -1,
        ],
    )


@problem
def equality_fixed_point() -> Any:
    x = cp.Variable(3)
    return cp.Problem(
        cp.Minimize(cp.sum(x)),
        [np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [1.0, 0.0, 2.0]]) @ x == [1.0, 2.0, 3.0], x >= -5],
    )


@problem
def total_variation() -> Any:
    y = np.array([0.1, 0.0, 0.2, 1.1, 0.9, 1.0])
    x = cp.Variable(6)
    return cp.Problem(cp.Minimize(cp.sum_squares(x - y) + 0.5 * cp.tv(x)))


@problem
def feasibility_only() -> Any:
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(0), [cp.norm(x - 1) <= 1, x[0] + x[1] <= 1.5])


@problem
def unconstrained_quadratic() -> Any:
    x = cp.Variable(3)
    return cp.Problem(cp.Minimize(cp.sum_squares(x - np.array([1.0, -2.0, 0.5]))))


@problem
def badly_scaled_lp() -> Any:
    x = cp.Variable(3)
    return cp.Problem(
        cp.Minimize(x[0] + 1e3 * x[1] + 1e-2 * x[2]),
        [x >= [1.0, 1e-3, 10.0], 1e3 * x[1] + x[0] + 1e-2 * x[2] >= 5, x[0] <= 100, x[1] <= 1, x[2] <= 1e4],
    )

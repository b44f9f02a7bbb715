"""`nearest` is the orthogonal projection: against CVXPY, by its own characterisation, and with derivatives."""

from __future__ import annotations

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch

import inset
from cases import CASES, Case, convert
from inset._fields import leaves, map_point
from inset._set import offers
from inset.sets.gaussian_entropy import GaussianEntropy
from inset.sets.gaussian_kl import GaussianKL

RNG = np.random.default_rng(3)
ROW = RNG.normal(size=(2, 4))
EXTRA = (
    Case("equality-alone", inset.Equality(ROW, np.array([0.3, -0.2])), np.linalg.pinv(ROW) @ np.array([0.3, -0.2])),
    Case("power-cone-steep", inset.PowerCone(np.array(0.85)), np.array([1.0, 1.2, 0.1])),
    Case(
        "gaussian-kl-full-states",
        inset.GaussianKL(np.zeros(2), np.array([[1.0, 0.6], [0.6, 0.8]]), 0.1, average=False, diagonal=False),
        (np.zeros(2), np.array([[1.0, 0.6], [0.6, 0.8]])),
        0.5,
    ),
    Case(
        "gaussian-entropy-std",
        inset.GaussianEntropy(3, 2.0, average=True, parameterization="cholesky"),
        (np.zeros((2, 3)), np.array([0.6, 0.7, 0.8])),
    ),
    Case(
        "product-of-cones",
        inset.Product((inset.ExponentialCone(), inset.Simplex(3))),
        (np.array([-1.0, 1.0, 1.2]), np.full(3, 1 / 3)),
    ),
)
HARD = ("gaussian-kl-cholesky", "gaussian-kl-std", "gaussian-kl-log-std")  # no closed form in these coordinates
OFFERING = [case for case in (*CASES, *EXTRA) if offers(case.set, "nearest") and case.name not in HARD]
WITHOUT = [case for case in CASES if not offers(case.set, "nearest") or case.name in HARD]

each = pytest.mark.parametrize("case", OFFERING, ids=repr)


def points(case: Case, count: int, seed: int = 0) -> Any:
    """Points near and far, some of them inside; symmetric or lower triangular where the set is."""
    x = case.points(np.random.default_rng(seed), count)
    blocks = getattr(case.set, "blocks", None)
    if blocks is not None:
        return tuple(b.onto(p) if isinstance(b, inset.PSD) else p for b, p in zip(blocks, x, strict=True))
    return case.set.onto(x) if offers(case.set, "onto") and not isinstance(case.set, inset.Simplex) else x


def inner(a: Any, b: Any) -> Any:
    """The sum of products over all entries of two points, per sample."""
    count = leaves(a)[0].shape[0]
    return sum([(u * v).reshape(count, -1).sum(-1) for u, v in zip(leaves(a), leaves(b), strict=True)])


def minus(a: Any, b: Any) -> Any:
    return map_point(lambda u, v: np.asarray(u) - np.asarray(v), a, b)


def size(a: Any) -> np.ndarray:
    """The largest entry of each sample."""
    return np.max([abs(np.asarray(v)).reshape(v.shape[0], -1).max(-1) for v in leaves(a)], axis=0)


# -- the same sets for CVXPY, written from their definitions -----------------------------------------------


def entropy(s: GaussianEntropy, S: Any) -> list[Any]:
    bound = 2 * s.kappa - s.d * math.log(2 * math.pi * math.e)  # log det of the covariance
    if s.parameterization == "log_std":
        return [2 * cp.sum(S) >= bound]
    if s.diagonal:
        return [(2 if s.parameterization == "cholesky" else 1) * cp.sum(cp.log(S)) >= bound]
    if s.parameterization == "cholesky":
        return [2 * cp.sum(cp.log(cp.diag(S))) >= bound, cp.upper_tri(S) == 0]
    return [cp.log_det(S) >= bound, S == S.T]


def divergence(s: GaussianKL, m: Any, S: Any) -> list[Any]:
    Sq = np.diag(s.covariance) if s.diagonal else s.covariance
    P, states = np.linalg.inv(Sq), s.mean.shape[0] if s.average else 1
    shift = cp.sum_squares((m - s.mean) @ np.linalg.cholesky(P)) / states
    log_det = cp.sum(cp.log(S)) if s.diagonal else cp.log_det(S)
    trace = np.diag(P) @ S if s.diagonal else cp.trace(P @ S)
    kl = (trace - Sq.shape[0] - log_det + np.linalg.slogdet(Sq)[1] + shift) / 2
    return [kl <= s.epsilon] + ([] if s.diagonal else [S == S.T])


def quadratic(s: Any, x: Any) -> list[Any]:
    return [cp.quad_form(x, s.P) / 2 + s.q @ x + float(s.r) <= 0]


def positive(s: Any, x: Any) -> list[Any]:
    return [x - s.floor * np.eye(s.n) >> 0, x == x.T]


PROGRAMS: dict[str, Any] = {
    "Box": lambda s, x: (
        [x >= s.lower, x[np.isfinite(s.upper + np.zeros(4))] <= np.minimum(s.upper, 9)[:3]]
        if isinstance(s.upper, np.ndarray)
        else [x >= s.lower, x <= s.upper]
    ),
    "Ball": lambda s, x: [cp.norm(x - s.center, s.p if s.p != math.inf else "inf") <= s.radius],
    "Ellipsoid": lambda s, x: [cp.norm((x - s.center) @ (np.diag(s.L) if s.diagonal else s.L)) <= 1],
    "Quadratic": quadratic,
    "PSD": positive,
    "SpectralBall": lambda s, x: [cp.sigma_max(x - s.center) <= s.radius],
    "ExponentialCone": lambda s, x: [cp.ExpCone(x[0], x[1], x[2])],
    "PowerCone": lambda s, x: [cp.PowCone3D(x[0], x[1], x[2], float(s.alpha))],
    "Simplex": lambda s, x: [x >= 0, cp.sum(x) == s.total],
    "Equality": lambda s, x: [s.A @ x == s.b],
    "GaussianEntropy": lambda s, x: entropy(s, x[1]),
    "GaussianKL": lambda s, x: divergence(s, *x),
    "Strings": lambda s, x: [cp.norm(x[i] - x[j]) <= bound for (i, j), bound in zip(s.links, s.lengths, strict=True)],
    "Product": lambda s, x: [c for block, p in zip(s.blocks, x, strict=True) for c in program(block, p)],
}


def program(s: Any, x: Any) -> list[Any]:
    return PROGRAMS[type(s).__name__](s, x)


def solve(s: Any, target: Any) -> Any:
    """argmin |y - target| over the set, by Clarabel."""
    y = map_point(lambda v: cp.Variable(v.shape), target)
    objective = cp.sum([cp.sum_squares(u - v) for u, v in zip(leaves(y), leaves(target), strict=True)])
    problem = cp.Problem(cp.Minimize(objective), program(s, y))
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return map_point(lambda v: v.value[None], y)


@each
@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # it is asked for more than it may have to give
def test_agrees_with_a_solver(case: Case) -> None:
    # a gap of 1e-10 in |y - x|^2 leaves its square root in y
    x = points(case, 4)
    y = case.set.nearest(x)
    for i in range(4):
        solved = solve(case.set, map_point(lambda v, i=i: v[i], x))
        found = map_point(lambda v, i=i: v[i : i + 1], y)
        assert size(minus(found, solved))[0] <= 1e-5 * (1 + size(map_point(lambda v, i=i: v[i : i + 1], x))[0])


# -- what characterises the projection, without a solver ---------------------------------------------------


@each
def test_no_point_of_the_set_is_nearer(case: Case) -> None:
    """<x - Px, z - Px> <= 0 for all z of the set."""
    x, others = points(case, 200), points(case, 200, seed=1)
    z = inset.project(case.set, others, case.anchor, method="ray")
    y = case.set.nearest(x)
    for other in (z, case.set.nearest(others)):
        slack = inner(minus(x, y), minus(other, y))
        reach = 1 + size(x) + size(other)
        assert (slack <= 1e-11 * reach**2).all()


@each
def test_feasible_up_to_rounding(case: Case) -> None:
    x = points(case, 400)
    y = case.set.nearest(x)
    h = case.set.h(y)
    # a matrix is stored to 1e-16 of its largest entry, which is what its smallest eigenvalue is off by
    tolerance = 1e-11 if case.name == "gaussian-entropy-full" else 2e-14
    assert (h <= tolerance * (1 + size(x))).all()
    assert case.set.contains(y, tol=1e-10).all()


@each
def test_identity_inside_bit_for_bit(case: Case) -> None:
    x = inset.project(case.set, points(case, 100), case.anchor, method="ray")
    x = map_point(lambda a, v: a + 0.5 * (v - a), case.anchor, x)
    if isinstance(case.set, inset.Simplex):
        assert size(minus(case.set.nearest(x), x)).max() <= 1e-15  # an equality is never exact
        return
    for got, given in zip(leaves(case.set.nearest(x)), leaves(x), strict=True):
        if case.name == "product-of-cones" and given.shape[-1] == 3 and abs(given.sum(-1) - 1).max() < 1e-9:
            assert abs(got - given).max() <= 1e-15
        else:
            assert (got == given).all()


@each
def test_idempotent(case: Case) -> None:
    x = points(case, 100)
    y = case.set.nearest(x)
    assert (size(minus(case.set.nearest(y), y)) <= 1e-11 * (1 + size(x))).all()


@each
def test_nonexpansive(case: Case) -> None:
    x, step = points(case, 100), points(case, 100, seed=2)
    for t in (1e-6, 0.1, 1.0):
        other = map_point(lambda a, b, t=t: a + t * (b - a), x, step)
        moved, result = minus(other, x), minus(case.set.nearest(other), case.set.nearest(x))
        limit = np.sqrt(inner(moved, moved)) * (1 + 1e-9) + 1e-11 * (1 + size(x))
        assert (np.sqrt(inner(result, result)) <= limit).all()


# -- frameworks and fields -----------------------------------------------------------------


@each
def test_frameworks_agree(case: Case) -> None:
    x = points(case, 5)
    expected = case.set.nearest(x)
    for framework in ("torch", "jax"):
        got = convert(case.set, framework).nearest(convert(x, framework))
        for u, v in zip(leaves(got), leaves(expected), strict=True):
            np.testing.assert_allclose(np.asarray(u), v, rtol=1e-11, atol=1e-12)


@each
def test_float32_is_close(case: Case) -> None:
    x = points(case, 20)
    expected = case.set.nearest(x)
    got = convert(case.set, "torch", "float32").nearest(convert(x, "torch", "float32"))
    assert all(leaf.dtype == torch.float32 for leaf in leaves(got))
    assert (size(minus(got, expected)) <= 2e-5 * (1 + size(x))).all()


def test_fields_with_batch_dimensions() -> None:
    rng = np.random.default_rng(13)
    x, alpha = rng.normal(size=(3, 3)), np.array([0.2, 0.5, 0.8])
    together = inset.PowerCone(alpha).nearest(x)
    for i in range(3):
        np.testing.assert_allclose(together[i], inset.PowerCone(float(alpha[i])).nearest(x[i]), rtol=1e-14)
        assert (inset.PowerCone(alpha).nearest(x[0])[i] == inset.PowerCone(alpha[i]).nearest(x[0])).all()
    means, S, kappa = rng.normal(size=(3, 2)), np.diag([0.1, 0.2]), np.array([0.0, 1.0, 2.0])
    together = inset.GaussianEntropy(2, kappa, diagonal=False).nearest((means, S))[1]
    for i in range(3):
        alone = inset.GaussianEntropy(2, float(kappa[i]), diagonal=False).nearest((means[i], S))[1]
        np.testing.assert_allclose(together[i], alone, rtol=1e-13)


@pytest.mark.parametrize("case", WITHOUT, ids=repr)
def test_sets_without_nearest_say_so(case: Case) -> None:
    with pytest.raises(NotImplementedError, match=type(case.set).__name__):
        case.set.nearest(case.anchor)
    with pytest.raises(NotImplementedError, match=type(case.set).__name__):
        inset.Product((inset.Box(-1.0, 1.0), case.set)).nearest((np.zeros(2), case.anchor))

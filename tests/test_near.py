"""`method="near"`: almost the nearest point, in the set, with gradients; against CVXPY, and in every framework."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch

import inset
from cases import CASES, CERTIFIED, Case, convert, to_float64
from inset import (
    LMI,
    PSD,
    Ball,
    Box,
    Ellipsoid,
    Equality,
    Near,
    Polytope,
    Quadratic,
    SecondOrderCone,
    Simplex,
    _near,
    project,
)
from inset._fields import leaves, map_point
from inset._set import offers
from inset.torch import Projection

RNG = np.random.default_rng(3)
ZERO, ONES = np.zeros(4), np.ones(4)
G, B = RNG.normal(size=(7, 4)), RNG.uniform(0.5, 1.5, size=7)
ROWS = Polytope(G, B)
SUM = Equality(np.ones((1, 4)), np.array([0.2]))
PLANE = 0.05 * ONES  # an anchor on it
TWO = ROWS & SUM & Equality(np.array([[1.0, -1.0, 0.5, 0.0]]), np.array([0.1]))
PER_SAMPLE = np.array([[0.2], [-0.1], [0.4]])
MATRICES = [PSD(3), inset.SpectralBall(np.eye(3), 1.1)]


def refuses(case: Case) -> bool:
    """Sets that know no nearest point."""
    unknown = ("sublevel", "categorical", "gaussian-kl-cholesky", "gaussian-kl-std", "gaussian-kl-log-std")
    return case.name.startswith(unknown)


#: Intersections with a strictly feasible anchor; each kind of part is in one of them.
SETS: dict[str, tuple[Any, np.ndarray]] = {
    "polytope": (ROWS, ZERO),
    "many-rows": (Polytope(RNG.normal(size=(30, 4)), RNG.uniform(0.5, 1.5, size=30)), ZERO),
    "never-binds": (Polytope(G, np.where(np.arange(7) == 2, np.inf, B)), ZERO),
    "ball-box": (ROWS & Ball(0.1 * ONES, 1.0) & Box(-0.6 * ONES, np.array([0.5, 0.6, np.inf, 1])), ZERO),
    "ball-1": (ROWS & Ball(0.1 * ONES, 1.0, 1), ZERO),
    "equality": (ROWS & SUM, PLANE),
    "two-equalities": (TWO, inset.interior_point(TWO)),
    "per-sample": (Box(-ONES, ONES) & Equality(np.ones((1, 4)), PER_SAMPLE) & Ball(ZERO, 1.2), PER_SAMPLE / 4 * ONES),
    "per-sample-rows": (Polytope(RNG.normal(size=(3, 7, 4)), B) & SUM, PLANE),
    "ellipsoid": (Ellipsoid(0.1 * ONES, RNG.normal(size=(4, 4)) + np.eye(4)) & ROWS, PLANE),
    "ellipsoid-diagonal": (Ellipsoid(0.1 * ONES, np.array([1.0, 0.7, 2.0, -0.8]), diagonal=True) & ROWS, PLANE),
    "quadratic": (Quadratic(np.diag([2.0, 2, 1, 0]), -0.3 * ONES, np.array(-0.8)) & ROWS, ZERO),
    "cone": (
        SecondOrderCone(
            RNG.normal(size=(3, 2, 4)), 0.3 * RNG.normal(size=(3, 2)), RNG.normal(size=(3, 4)), 1.5 * ONES[:3]
        ),
        ZERO,
    ),
    "simplex": (Simplex(4, 1.0) & Box(0.0, 0.4), 0.25 * ONES),
    "lmi": (LMI((lambda S: S + np.swapaxes(S, 1, 2))(RNG.normal(size=(4, 3, 3))), -2 * np.eye(3)) & SUM, PLANE),
    "psd": (MATRICES[0] & MATRICES[1], np.eye(3)),
}
every_set = pytest.mark.parametrize("name", SETS)


def points(name: str, count: int = 3, spread: float = 2.0) -> np.ndarray:
    return spread * np.random.default_rng(5).normal(size=(count, 3, 3) if name == "psd" else (count, 4))


def written(part: Any, y: Any, k: int) -> list[Any]:
    """The part of sample k, as constraints of CVXPY."""

    def at(v: Any, event: int) -> Any:
        return v[k] if getattr(v, "ndim", 0) > event else v

    match part:
        case Polytope():
            A, b = at(part.A, 2), at(part.b, 1)
            return [A[np.isfinite(b)] @ y <= b[np.isfinite(b)]]
        case Box():
            lower, upper = (np.broadcast_to(v, 4) for v in (part.lower, part.upper))
            return [y >= lower, y[np.isfinite(upper)] <= upper[np.isfinite(upper)]]
        case Ball():
            return [cp.norm(y - part.center, int(part.p)) <= part.radius]
        case Ellipsoid():
            return [cp.norm((y - part.center) @ (np.diag(part.L) if part.diagonal else part.L)) <= 1]
        case Quadratic():
            return [cp.quad_form(y, part.P) / 2 + part.q @ y + float(part.r) <= 0]
        case SecondOrderCone():
            return [cp.norm(part.A[i] @ y + part.b[i]) <= part.z[i] @ y + part.d[i] for i in range(3)]
        case Simplex():
            return [y >= 0, cp.sum(y) == part.total]
        case LMI():
            return [sum(y[i] * part.A[i] for i in range(4)) - part.C >> 0]
        case PSD():
            return [y >> 0, y == y.T]
        case inset.SpectralBall():
            return [cp.sigma_max(y - part.center) <= part.radius]
    return [part.A @ y == at(part.b, 1)]


def exact(set: Any, x: np.ndarray) -> np.ndarray:
    """The nearest points, by CVXPY."""
    found = []
    for k, target in enumerate(x):
        y = cp.Variable(target.shape)
        parts = getattr(set, "parts", (set,))
        problem = cp.Problem(cp.Minimize(cp.sum_squares(y - target)), [c for p in parts for c in written(p, y, k)])
        problem.solve(solver="CLARABEL")
        found.append(y.value)
    return np.stack(found)


# -- where it lands --------------------------------------------------------------------------------------


@every_set
def test_many_steps_find_the_nearest_point(name: str) -> None:
    set, anchor = SETS[name]
    x = points(name)
    assert not np.all(set.contains(x))
    y = project(set, x, anchor, method=Near(2000))
    assert set.contains(y).all()
    wanted = exact(set, x)
    near, far = (((v - x) ** 2).reshape(3, -1).sum(1) for v in (y, wanted))
    np.testing.assert_allclose(near, far, rtol=1e-7)  # y is in the set, so it is as near as this is
    np.testing.assert_allclose(y, wanted, atol=1e-4)


@pytest.mark.parametrize("dtype,most", [("float64", 1e-4), ("float32", 5e-3)])
def test_twenty_steps_are_almost_there(dtype: str, most: float) -> None:
    """100 variables, 50 equalities that differ per sample, 50 inequalities, of which some 17 are active."""
    rng = np.random.default_rng(17)
    A, G = rng.normal(size=(50, 100)), rng.normal(size=(50, 100))
    inverse = np.linalg.pinv(A)
    b, h = rng.uniform(-1, 1, size=(64, 50)), np.abs(G @ inverse).sum(1)
    anchor = b @ inverse.T
    x = anchor + 3 * rng.normal(size=(64, 100))
    x = x - (x @ A.T - b) @ inverse.T
    set, given, anchor = (convert(v, "torch") for v in (Polytope(G, h) & Equality(A, b), x, anchor))
    nearest = project(set, given, anchor, method=Near(1000))
    set, given, anchor = (convert(v, "torch", dtype) for v in (Polytope(G, h) & Equality(A, b), x, anchor.numpy()))
    y, ray = (project(set, given, anchor, method=m) for m in ("near", "ray"))
    assert set.contains(y).all() and to_float64(set).h(y.double()).max() <= 0
    away = (torch.as_tensor(x) - nearest).norm(dim=1)
    assert ((y - nearest).norm(dim=1) / away).mean() < most
    assert ((ray - nearest).norm(dim=1) / away).mean() > 1


@pytest.mark.parametrize("case", [case for case in CASES if offers(case.set, "split")], ids=repr)
def test_splits_describe_their_sets(case: Case) -> None:
    """K x is in D where x is in the set, and only there."""
    x = case.points(np.random.default_rng(0), 200)
    if offers(case.set, "onto"):
        x = case.set.onto(x)
    split = case.set.split(x)
    z = x @ np.swapaxes(split.K, -1, -2)
    away = np.linalg.norm(split.excess(z), axis=-1)
    inside = case.set.h(x) <= 0
    assert 0 < inside.sum() < 200 and away[inside].max() < 1e-12 and away[~inside].min() > 1e-9
    assert split.K.shape[-2] % split.block == 0


@pytest.mark.parametrize("case", [c for c in CERTIFIED if not refuses(c)], ids=repr)
def test_a_lone_set_needs_no_steps(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its closed form, moved by no more than the margin of `strict`."""
    if not offers(case.set, "nearest") or case.name == "product":
        return
    monkeypatch.setattr(_near, "_steps", None)
    x = case.points(np.random.default_rng(1), 20)
    y = project(case.set, x, case.anchor, method="near")
    for given, wanted in zip(leaves(y), leaves(case.set.nearest(x)), strict=True):
        np.testing.assert_allclose(given, wanted, atol=1e-6 * (1 + np.abs(wanted).max()))


def test_a_row_that_the_equalities_fix() -> None:
    """x_0 + x_1 is 1 by an equality and at most 2 by a row, which has no direction left to push in."""
    set = Polytope(np.array([[1.0, 1, 0], [0, 0, 1]]), np.array([2.0, 0.5])) & Equality(
        np.array([[1.0, 1, 0]]), np.ones(1)
    )
    y = project(set, np.array([3.0, -1.0, 2.0]), np.array([0.5, 0.5, 0.0]), method="near")
    np.testing.assert_allclose(y, [2.5, -1.5, 0.5], atol=1e-9)


# -- in the set ------------------------------------------------------------------------------------------


@every_set
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_results_are_in_the_set(name: str, dtype: str) -> None:
    """In their own dtype and in float64, from points near and far."""
    far = np.exp(np.linspace(-4, 12, 30)).reshape(30, *(1,) * (points(name).ndim))
    set, anchor = (convert(v, "torch", "float32" if dtype == "bfloat16" else dtype) for v in SETS[name])
    x = convert(far * points(name), "torch", dtype)
    for method in (Near(3), Near(20), Near(20, tol=1e-2)):
        y = project(set, x, anchor, method=method)
        assert y.dtype == x.dtype and y.isfinite().all() and set.contains(y).all()
        assert (to_float64(set).h(y.double()) <= 0).all()


@pytest.mark.parametrize("case", [c for c in CERTIFIED if not refuses(c)], ids=repr)
def test_points_inside_stay(case: Case) -> None:
    """Bit for bit, and with the identity as derivative."""
    set, anchor = convert(case.set, "torch"), convert(case.anchor, "torch")
    x = map_point(
        lambda a, b: (a + 1e-3 * (b - a)).requires_grad_(),
        anchor,
        convert(case.points(np.random.default_rng(2), 5), "torch"),
    )
    if offers(set, "onto") or case.name == "equality":
        x = map_point(lambda v: v.detach().requires_grad_(), project(set, x, anchor))
    if case.name == "product":
        x = tuple((v + v.mT).detach().div(2).requires_grad_() if v.ndim == 3 else v for v in x)
    y = project(set, x, anchor, method="near")
    for a, b in zip(leaves(x), leaves(y), strict=True):
        assert torch.equal(a, b)
    torch.stack([(v * v).sum() for v in leaves(y)]).sum().backward()
    if not offers(set, "onto") and case.name not in ("equality", "product"):
        for leaf in leaves(x):
            torch.testing.assert_close(leaf.grad, 2 * leaf.detach(), rtol=1e-12, atol=1e-15)


def test_tol_ends_the_steps_of_each_sample_alone() -> None:
    """What is left violated is at most tol, a sample does not see its neighbours, and no step is made after."""
    set, anchor = SETS["many-rows"]
    x = points("many-rows", 20)
    rough, _ = _near.nearer(set, x, Near(500, tol=1e-2))
    fine, _ = _near.nearer(set, x, Near(500))
    violated = set.h(rough)
    assert 1e-4 < violated.max() <= 1e-2 and set.h(fine).max() < 1e-9
    alone = np.stack([_near.nearer(set, row, Near(500, tol=1e-2))[0] for row in x])
    np.testing.assert_allclose(rough, alone, atol=1e-12)
    split, counted = set.split(x), []
    F = _near._graph(split.K, None, [(30, 1)])
    for tol in (np.inf, 1e-2, 1e-6):
        calls: list[np.ndarray] = []

        def excess(z: np.ndarray, calls: list[np.ndarray] = calls) -> np.ndarray:
            calls.append(z)
            return split.excess(z)

        _near._steps(split.K, F, excess, x @ split.K.T, Near(500, tol=tol))
        counted.append(len(calls))
    assert counted[0] == 1 < counted[1] < counted[2] < 500
    assert set.contains(project(set, x, anchor, method=Near(500, tol=1e-2))).all()


def test_info_is_about_x() -> None:
    set, anchor = SETS["ball-box"]
    x = np.concatenate([points("ball-box"), anchor[None] + 0.01])
    y, info = inset.project_with_info(set, x, anchor, method="near")
    np.testing.assert_array_equal(info.h, set.h(x))
    assert (info.eta[:3] > 0.9).all() and info.eta[3] == 1 and info.active[3] == -1
    np.testing.assert_array_equal(y[3], x[3])


# -- what it refuses -------------------------------------------------------------------------------------


def test_errors_say_what_to_do() -> None:
    bowl = ROWS & inset.Sublevel(lambda x: (x * x).sum(-1) - 1)
    wanted = r"received Polytope & Sublevel, and Sublevel has neither nearest\(x\) nor split\(x\). Use method='ray'"
    with pytest.raises(NotImplementedError, match=wanted):
        project(bowl, ONES, ZERO, method="near")
    with pytest.raises(NotImplementedError, match=wanted):
        Projection(inset.Product((convert(bowl, "torch"),)), method=Near(5))
    kl = inset.GaussianKL(np.zeros(2), np.zeros(2), 0.1, average=False, parameterization="log_std")
    with pytest.raises(NotImplementedError, match=r"method='near': GaussianKL.nearest .* Use method='ray'"):
        project(kl, (np.ones(2), np.ones(2)), (np.zeros(2), np.zeros(2)), method="near")
    with pytest.raises(
        ValueError, match=r"project\(method='nearest'\): expected one of paper, chord, ray, near, or Near"
    ):
        project(ROWS, ONES, ZERO, method="nearest")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"IGD\(method='near'\): expected one of paper, chord, ray"):
        inset.IGD(0.1, "near")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Near\(steps=0\): expected a whole number"):
        Near(0)
    with pytest.raises(ValueError, match=r"Near\(tol=-1.0\): expected None, or a number"):
        Near(tol=-1.0)


def test_anchors_are_needed_as_elsewhere() -> None:
    rows = convert(ROWS, "torch")
    with pytest.raises(inset.AnchorError, match="strictly inside"):
        Projection(rows, 9 * torch.ones(4), method="near")
    y = project(ROWS, np.stack([3 * ONES, 3 * ONES]), np.stack([ZERO, 9 * ONES]), method="near")
    assert ROWS.contains(y[0]) and np.isnan(y[1]).all()
    y = project(ROWS & SUM, np.stack([np.nan * ONES, 3 * ONES]), PLANE, method="near")
    assert np.isnan(y[0]).all() and (ROWS & SUM).contains(y[1])

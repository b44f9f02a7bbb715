"""Bad input: what raises, with which words, and what becomes NaN for one sample alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import inset
from cases import CASES, Case, convert
from inset._fields import leaves, map_point
from inset._project import METHODS, project_with_info

eye, zero = np.eye(2), np.zeros(2)
every_case = pytest.mark.parametrize("case", CASES, ids=repr)
every_method = pytest.mark.parametrize("method", METHODS)


# -- shapes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build, words",
    (
        (lambda: inset.Polytope(np.ones((5, 3)), np.ones(4)), ("Polytope", "A=(5, 3)", "b=(4,)", "expected", "m, n")),
        (lambda: inset.Polytope(np.ones(3), np.ones(4)), ("Polytope", "A has 1 dimensions", "expected")),
        (lambda: inset.Box(np.zeros(2), np.ones(3)), ("Box", "lower=(2,)", "upper=(3,)", "expected")),
        (lambda: inset.Ellipsoid(np.zeros(2), np.eye(3)), ("Ellipsoid", "center=(2,)", "L=(3, 3)", "expected")),
        (
            lambda: inset.Quadratic(np.ones((2, 3)), zero, 0.0),
            ("Quadratic", "P=(2, 3)", "n is 2 in P but 3", "expected"),
        ),
        (lambda: inset.LMI(np.ones((4, 3, 3)), np.eye(2)), ("LMI", "A=(4, 3, 3)", "C=(2, 2)", "expected")),
        (
            lambda: inset.SecondOrderCone(np.ones((2, 3, 4)), np.ones((2, 3)), np.ones((2, 5)), np.ones(2)),
            ("SecondOrderCone", "z=(2, 5)", "expected"),
        ),
        (lambda: inset.Strings(np.array([[0, 1, 2]]), 1.0), ("Strings", "links", "size 2", "3", "expected")),
        (lambda: inset.GaussianKL(np.zeros((3, 2)), np.ones(4), 0.1), ("GaussianKL", "(3, 2)", "(4,)", "expected")),
        (lambda: inset.Equality(np.ones((3, 2)), np.ones(3)), ("Equality", "(3, 2)", "3 equations", "k <= n")),
        (lambda: inset.Equality(np.ones((1, 2)), np.ones(3)), ("Equality", "A=(1, 2)", "b=(3,)", "expected")),
        (lambda: inset.Ball(zero, 1.0) & inset.PSD(2), ("event_ndim", "Ball: 1", "PSD: 2")),
    ),
)
def test_fields_against_fields(build: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(inset.PointShapeError) as error:
        build()
    for word in words:
        assert word in str(error.value), str(error.value)


@every_case
def test_points_against_sets(case: Case) -> None:
    """A point with one coordinate too many, and a scalar, are refused with both shapes in the message."""
    if case.name.startswith("sublevel"):
        return  # a user's function says what it takes
    if case.name == "box-numbers":
        with pytest.raises(inset.PointShapeError, match=r"Box expects points of shape \(..., n\); received \(\)"):
            case.set.h(np.zeros(()))
        return
    if isinstance(case.anchor, tuple):
        wrong: Any = (*case.anchor[:-1], np.zeros((*case.anchor[-1].shape[:-1], 7)))
    else:
        wrong = np.zeros((*case.anchor.shape[:-1], 7))
    last = wrong[-1] if isinstance(wrong, tuple) else wrong
    if case.name == "strings":
        wrong = last = np.zeros(4)
    for call, what in (
        (lambda: case.set.h(wrong), "points"),
        (lambda: inset.project(case.set, wrong, case.anchor), "points"),
        (lambda: inset.project(case.set, case.anchor, wrong), "an anchor"),
    ):
        with pytest.raises(inset.PointShapeError) as error:
            call()
        message = str(error.value)
        assert f"expects {what}" in message and "(..., " in message and f"received {last.shape}" in message, message


@every_case
def test_tuples_and_arrays_are_not_mixed_up(case: Case) -> None:
    if isinstance(case.anchor, tuple):
        with pytest.raises(inset.PointShapeError, match="tuples of 2; received ndarray"):
            case.set.h(case.anchor[0])
        with pytest.raises(inset.PointShapeError, match="tuples of 2; received a tuple of 3"):
            case.set.h((*case.anchor, case.anchor[0]))
    else:
        with pytest.raises(inset.PointShapeError, match="one array; received a tuple of 2"):
            case.set.h((case.anchor, case.anchor))


@every_case
@pytest.mark.parametrize("framework, dtype", (("torch", "int64"), ("jax", "int32"), ("numpy", "int64")))
def test_integer_points(case: Case, framework: str, dtype: str) -> None:
    set = convert(case.set, framework)
    with pytest.raises(TypeError, match=r"floating dtype; received .*int"):
        set.h(convert(case.anchor, framework, dtype))
    with pytest.raises(TypeError, match=r"floating dtype; received .*int"):
        inset.project(set, convert(case.anchor, framework, dtype), convert(case.anchor, framework))


@pytest.mark.parametrize(
    "build",
    (
        lambda: inset.Polytope([[1.0, 0.0]], np.ones(1)),
        lambda: inset.Ball([0.0, 0.0], 1.0),
        lambda: inset.Box([0.0], [1.0]),
        lambda: inset.GaussianKL([[0.0]], np.ones(1), 0.1),
        lambda: inset.Sublevel(lambda x, a: x @ a, ([1.0, 2.0],)),
    ),
)
def test_lists_are_refused(build: Any) -> None:
    with pytest.raises(TypeError, match="array or a number, received list; wrap lists in an array"):
        build()


def test_points_that_are_no_arrays() -> None:
    with pytest.raises(TypeError, match="torch, JAX or NumPy array, received list"):
        inset.Ball(zero, 1.0).h([1.0, 2.0])


def test_unknown_method() -> None:
    with pytest.raises(ValueError, match=r"method='x'.*paper, chord, ray"):
        inset.project(inset.Ball(zero, 1.0), zero, zero, method="x")  # type: ignore[arg-type]


# -- values -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "set, words",
    (
        (inset.Ball(zero, 0.0), ("Ball(radius", "positive", "received 0")),
        (inset.Ball(zero, -1.5), ("Ball(radius", "positive", "received -1.5")),
        (inset.Ball(zero, np.array([1.0, -2.0])), ("Ball(radius", "positive", "received -2", "index [1]")),
        (inset.Ball(np.array([0.0, np.inf]), 1.0), ("Ball(center", "finite", "received inf", "index [1]")),
        (inset.Box(np.array([0.0, 2.0]), np.ones(2)), ("Box(upper", "greater than lower", "received 1", "index [1]")),
        (inset.Box(0.5, -0.5), ("Box(upper", "greater than lower", "received -0.5")),
        (inset.Box(np.zeros(2), 0.0), ("Box(upper", "greater than lower", "received 0")),
        (inset.Ellipsoid(zero, np.diag([1.0, 0.0])), ("Ellipsoid(L", "independent", "received a singular")),
        (inset.Quadratic(np.diag([1.0, -0.5]), zero, -1.0), ("Quadratic(P", "semidefinite", "received", "-0.5")),
        (inset.Quadratic(np.array([[1.0, 1.0], [0.0, 1.0]]), zero, -1.0), ("Quadratic(P", "symmetric", "received")),
        (inset.LMI(np.array([[[0.0, 1.0], [0.0, 0.0]]]), eye), ("LMI(A", "symmetric", "received")),
        (inset.LMI(np.stack([eye]), np.array([[0.0, 2.0], [0.0, 0.0]])), ("LMI(C", "symmetric", "received")),
        (inset.PowerCone(1.0), ("PowerCone(alpha", "between 0 and 1", "received 1")),
        (inset.PowerCone(np.array([0.5, -0.1])), ("PowerCone(alpha", "between 0 and 1", "received -0.1")),
        (inset.CategoricalEntropy(4, 1.4), ("CategoricalEntropy(kappa", "log n", "1.38629", "received 1.4")),
        (inset.CategoricalEntropy(4, -0.1), ("CategoricalEntropy(kappa", "received -0.1")),
        (inset.GaussianEntropy(2, float("nan")), ("GaussianEntropy(kappa", "finite", "received nan")),
        (inset.GaussianKL(np.zeros((1, 2)), np.ones(2), 0.0), ("GaussianKL(epsilon", "positive", "received 0")),
        (
            inset.GaussianKL(np.zeros((1, 2)), np.array([1.0, -1.0]), 0.1),
            ("GaussianKL(covariance", "positive", "received -1", "index [1]"),
        ),
        (
            inset.GaussianKL(np.zeros((1, 2)), np.diag([1.0, -1.0]), 0.1, diagonal=False),
            ("GaussianKL(covariance", "positive definite", "received", "-1"),
        ),
        (
            inset.GaussianKL(np.zeros((1, 2)), np.diag([1.0, 0.0]), 0.1, diagonal=False, parameterization="cholesky"),
            ("GaussianKL(covariance", "positive diagonal", "received 0"),
        ),
        (inset.Simplex(3, -1.0), ("Simplex(total", "positive", "received -1")),
        (inset.PSD(2, float("nan")), ("PSD(floor", "finite", "received nan")),
        (inset.SpectralBall(eye, -1.0), ("SpectralBall(radius", "positive", "received -1")),
        (inset.Strings(np.array([[0, 1]]), np.array([-1.0])), ("Strings(lengths", "positive", "received -1")),
        (inset.Polytope(np.full((1, 2), np.nan), np.ones(1)), ("Polytope(A", "finite", "received nan", "index [0, 0]")),
        (inset.Ball(zero, 1.0) & inset.Ball(zero, -1.0), ("Ball(radius", "positive", "received -1")),
        (inset.Product((inset.Ball(zero, 1.0), inset.PowerCone(2.0))), ("PowerCone(alpha", "received 2")),
    ),
    ids=repr,
)
@pytest.mark.parametrize("framework", ("numpy", "torch", "jax"))
def test_check_names_what_it_received(set: Any, words: tuple[str, ...], framework: str) -> None:
    with pytest.raises(ValueError, match="must") as error:
        convert(set, framework).check()
    for word in words:
        assert word in str(error.value), str(error.value)


@every_case
@pytest.mark.parametrize("framework", ("numpy", "torch", "jax"))
def test_check_passes_good_sets(case: Case, framework: str) -> None:
    convert(case.set, framework).check()


@pytest.mark.parametrize(
    "build, words",
    (
        (lambda: inset.Ball(zero, 1.0, 3), ("Ball(p=3)", "1, 2 or math.inf")),
        (
            lambda: inset.GaussianKL(zero[None], zero, 0.1, parameterization="std"),  # pyright: ignore[reportArgumentType]
            ("parameterization='std'", "log_std"),
        ),
        (
            lambda: inset.GaussianEntropy(2, 0.1, diagonal=False, parameterization="log_std"),
            ("GaussianEntropy", "log_std", "diagonal=True"),
        ),
    ),
)
def test_static_fields(build: Any, words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="expected") as error:
        build()
    for word in words:
        assert word in str(error.value), str(error.value)


# -- samples that are not finite, anchors that are not inside -----------------------------------------------


@every_case
@every_method
@pytest.mark.parametrize("framework", ("torch", "numpy"))
@pytest.mark.parametrize("bad", (float("nan"), float("inf")))
def test_nonfinite_rows_stay_alone(case: Case, method: Any, framework: str, bad: float) -> None:
    """NaN out for the sample that had NaN or inf; bit for bit the same for the others; no exception."""
    x = case.points(np.random.default_rng(0), 6)
    poisoned = map_point(np.copy, x)
    for leaf in leaves(poisoned):
        leaf[2].flat[0] = bad
    set, x0 = convert(case.set, framework), convert(case.anchor, framework)
    clean, dirty = (inset.project(set, convert(v, framework), x0, method=method) for v in (x, poisoned))
    for a, b in zip(leaves(clean), leaves(dirty), strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert np.isnan(b[2]).any()
        np.testing.assert_allclose(np.delete(b, 2, 0), np.delete(a, 2, 0), rtol=1e-12)


@every_case
@every_method
@pytest.mark.parametrize("strict", (True, False))
def test_bad_anchors_are_loud(case: Case, method: Any, strict: bool) -> None:
    """An anchor outside or on the boundary gives NaN for that sample, never an infeasible number."""
    rng = np.random.default_rng(1)
    far = case.points(rng, 64, spread=10 * case.spread)
    outside = ~case.set.contains(inset.project(case.set, far, case.anchor, strict=False), tol=1e9) | (
        case.set.h(far) > 1e-6
    )
    assert outside.any()
    pick = int(np.argmax(outside))
    anchors = map_point(lambda good, bad: np.stack([good, bad[pick], good]), case.anchor, far)
    x = case.points(rng, 5, 3)
    y, info = project_with_info(case.set, x, anchors, method=method, strict=strict)
    etas = info.eta if isinstance(info.eta, tuple) else (info.eta,)
    sick = np.stack([np.isnan(eta[:, 1]).all() for eta in etas])
    assert sick.any()
    assert not np.isnan(np.stack([eta[:, ::2] for eta in etas])).any()
    if isinstance(case.set, inset.Product):
        return
    assert all(np.isnan(leaf[:, 1]).any() for leaf in leaves(y))


@pytest.mark.parametrize(
    "set, anchor",
    (
        (inset.Ball(zero, 1.0), np.array([1.0, 0.0])),
        (inset.Box(-np.ones(2), np.ones(2)), np.array([1.0, 0.0])),
        (inset.Polytope(eye, np.ones(2)), np.array([1.0, 0.0])),
        (inset.PSD(2), np.diag([1.0, 0.0])),
        (inset.Simplex(2), np.array([1.0, 0.0])),
    ),
    ids=repr,
)
@every_method
@pytest.mark.parametrize("strict", (True, False))
def test_anchor_on_the_boundary(set: Any, anchor: np.ndarray, method: Any, strict: bool) -> None:
    x = anchor + np.array([[0.0], [-0.1], [3.0]]).reshape(3, *(1,) * anchor.ndim)
    y, info = project_with_info(set, x, anchor, method=method, strict=strict)
    assert np.isnan(info.eta).all() and np.isnan(y).all()


def test_torch_and_numpy_fields_do_not_mix_silently() -> None:
    """A NumPy set takes torch points: the fields are converted, the result is a tensor."""
    y = inset.project(inset.Ball(zero, 1.0), torch.tensor([3.0, 4.0], dtype=torch.float64), torch.zeros(2).double())
    assert isinstance(y, torch.Tensor)
    np.testing.assert_allclose(y.numpy(), [0.6, 0.8], rtol=1e-12)

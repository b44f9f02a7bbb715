"""What every set and every method promises, over random points: convexity, feasibility, the segment, the batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import inset
from cases import CASES, Case, convert
from inset._combine import parts
from inset._fields import field_leaves, leaves, map_fields, map_point
from inset._namespace import is_array
from inset._project import METHODS, project_with_info
from inset._ray import between, into_domain
from inset._set import offers
from inset.affine import onto

SEEDS = st.integers(0, 2**32 - 1)
every_case = pytest.mark.parametrize("case", CASES, ids=repr)
every_method = pytest.mark.parametrize("method", METHODS)
examples = settings(max_examples=3)


def points(case: Case, rng: np.random.Generator, *batch: int) -> Any:
    """A batch half of which is thrown far and half close to the anchor, so that many are inside."""
    near, far = case.points(rng, *batch, spread=0.03 * case.spread), case.points(rng, *batch)
    close = rng.random(batch) < 0.5
    return map_point(lambda a, b, k: np.where(close[(..., *(None,) * k)], a, b), near, far, case.set.event_ndim)


def moved_onto(set: Any, x: Any) -> Any:
    """x after the linear map onto the affine hull, which comes before the interpolation."""
    if isinstance(set, inset.Product):
        return tuple(moved_onto(block, point) for block, point in zip(set.blocks, x, strict=True))
    return onto(set, x)


def pairs(case: Case, x: Any, eta: Any) -> list[tuple[Any, Any, Any, Any]]:
    """`(set, anchor, point, eta)` of each block of a product, or of the set itself."""
    if isinstance(case.set, inset.Product):
        return list(zip(case.set.blocks, case.anchor, x, eta, strict=True))
    return [(case.set, case.anchor, x, eta)]


def flat(x: Any, set: Any) -> np.ndarray:
    """The coordinates of points side by side, `(*batch, n)`."""
    ndims = leaves(set.event_ndim)
    arrays = [np.asarray(leaf) for leaf in leaves(x)]
    return np.concatenate([a.reshape(*a.shape[: a.ndim - k], -1) for a, k in zip(arrays, ndims, strict=True)], axis=-1)


def slack(set: Any, y: Any) -> Any:
    """Rounding of h(y), with room: what `strict=False` may be off by."""
    if isinstance(set, inset.Product):
        return np.maximum(*(slack(block, point) for block, point in zip(set.blocks, y, strict=True)))
    size = map_point(lambda leaf: 1e-15 * (1 + abs(leaf)), y)
    bounds = [part.rounding(y, size, 1e-15).max(-1, initial=0) for part in parts(set) if offers(part, "rounding")]
    return 1e-9 + sum(bounds)


@every_case
@examples
@given(seed=SEEDS)
def test_constraints_are_convex(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    set, a, b = case.set, *(moved_onto(case.set, points(case, rng, 64)) for _ in range(2))
    if not isinstance(set, inset.Product):  # a product has no domain of its own; its blocks here have none
        with np.errstate(invalid="ignore"):
            a, b = (into_domain(set, point, case.anchor)[0] for point in (a, b))
        a, b = (between(set, case.anchor, np.float64(0.999), point) for point in (a, b))  # in it by more than rounding
    t = rng.uniform(size=64)
    mix = map_point(lambda p, q, k: (1 - t[(..., *(None,) * k)]) * p + t[(..., *(None,) * k)] * q, a, b, set.event_ndim)
    at_a, at_b, at_mix = (set.constraints(point) for point in (a, b, mix))
    binds = at_a[0] > -np.inf  # not a bound at infinity
    assert np.isfinite(at_a[:, binds]).all() and np.isfinite(at_b[:, binds]).all()
    at_a, at_b, at_mix = (value[:, binds] for value in (at_a, at_b, at_mix))
    chord = (1 - t)[:, None] * at_a + t[:, None] * at_b
    assert (at_mix <= chord + 1e-10 * (1 + abs(at_a) + abs(at_b))).all()


@every_case
def test_anchor_is_strict(case: Case) -> None:
    assert case.set.h(case.anchor) < 0
    assert case.set.contains(case.anchor)
    try:
        own = case.set.anchor(case.anchor)
    except inset.AnchorError:
        return
    assert (case.set.h(own) < 0).all()
    assert np.asarray(case.set.contains(own)).all()


@every_case
@every_method
@examples
@given(seed=SEEDS)
def test_result_is_feasible(case: Case, method: Any, seed: int) -> None:
    x = points(case, np.random.default_rng(seed), 64)
    y = inset.project(case.set, x, case.anchor, method=method)
    assert (case.set.h(y) <= 0).all()
    assert case.set.contains(y).all()
    y = inset.project(case.set, x, case.anchor, method=method, strict=False)
    assert (case.set.h(y) <= slack(case.set, y)).all()


@every_case
@every_method
@pytest.mark.parametrize("strict", (True, False))
@examples
@given(seed=SEEDS)
def test_result_lies_on_the_segment(case: Case, method: Any, strict: bool, seed: int) -> None:
    x = points(case, np.random.default_rng(seed), 64)
    y, info = project_with_info(case.set, x, case.anchor, method=method, strict=strict)
    moved = moved_onto(case.set, x)
    for (set, x0, point, eta), result in zip(
        pairs(case, moved, info.eta), y if isinstance(case.set, inset.Product) else (y,), strict=True
    ):
        assert ((eta >= 0) & (eta <= 1)).all()
        start, end, reached = (flat(p, set) for p in (x0, point, result))
        expected = start + eta[:, None] * (end - start)
        size = abs(end - start).max(-1, keepdims=True) + abs(start).max()
        assert (abs(reached - expected) <= 1e-12 * eta[:, None] * size + 1e-14 * (1 + abs(start).max())).all()


@every_case
@every_method
@examples
@given(seed=SEEDS)
def test_identity_inside(case: Case, method: Any, seed: int) -> None:
    """Bit for bit where h(x) <= 0; with `strict`, where h is below zero by more than rounding."""
    rng = np.random.default_rng(seed)
    x = moved_onto(case.set, points(case, rng, 64))
    for strict in (False, True):
        inside = case.set.h(x) <= (-2 * slack(case.set, x) if strict else 0.0)
        y = inset.project(case.set, x, case.anchor, method=method, strict=strict)
        for before, after in zip(leaves(x), leaves(y), strict=True):
            assert (before[inside] == after[inside]).all()
        assert inside.sum() >= 2, "the points thrown are all outside"


@every_case
@every_method
def test_batch_equals_loop(case: Case, method: Any) -> None:
    x = points(case, np.random.default_rng(0), 12)
    whole = inset.project(case.set, x, case.anchor, method=method)
    for i in range(12):
        alone = inset.project(case.set, map_point(lambda leaf, i=i: leaf[i], x), case.anchor, method=method)
        for a, b in zip(leaves(alone), leaves(whole), strict=True):
            np.testing.assert_allclose(a, b[i], rtol=1e-9, atol=1e-12)


@every_case
@pytest.mark.parametrize("strict", (True, False))
@examples
@given(seed=SEEDS)
def test_ray_reaches_further_than_chord_and_paper(case: Case, strict: bool, seed: int) -> None:
    x = points(case, np.random.default_rng(seed), 64)
    etas = [project_with_info(case.set, x, case.anchor, method=m, strict=strict)[1].eta for m in METHODS]
    paper, chord, ray = (np.concatenate(eta) if isinstance(eta, tuple) else eta for eta in etas)
    assert (chord >= paper * (1 - 1e-12)).all()
    assert (ray >= chord * (1 - 1e-12)).all()


@every_case
@examples
@given(seed=SEEDS)
def test_paper_is_the_formula(case: Case, seed: int) -> None:
    x = points(case, np.random.default_rng(seed), 64)
    eta = project_with_info(case.set, x, case.anchor, method="paper", strict=False)[1].eta
    for set, x0, point, weight in pairs(case, moved_onto(case.set, x), eta):
        with np.errstate(invalid="ignore"):
            _, reach = into_domain(set, point, x0)
        whole = np.broadcast_to(reach == 1, weight.shape)
        h, h0 = set.h(point), set.h(x0)
        expected = np.where(h > 0, h0 / (h0 - np.where(h > 0, h, 0)), 1)
        np.testing.assert_allclose(weight[whole], expected[whole], rtol=1e-9)
        assert whole.any()


@every_case
@examples
@given(seed=SEEDS)
def test_ray_lands_on_the_boundary(case: Case, seed: int) -> None:
    """A weight larger by 1e-9 is outside of the set, one smaller by 1e-9 inside."""
    x = points(case, np.random.default_rng(seed), 64)
    eta = project_with_info(case.set, x, case.anchor, method="ray", strict=False)[1].eta
    for set, x0, point, weight in pairs(case, moved_onto(case.set, x), eta):
        outside = weight < 1
        with np.errstate(invalid="ignore"):  # the logarithm of the user's function
            if isinstance(set, inset.Sublevel):  # its domain is known up to a power of two, and the ray ends there
                outside = outside & (into_domain(set, point, x0)[1] == 1)
            assert outside.any()
            beyond, before = (set.h(along(set, x0, point, weight * (1 + step))) for step in (1e-9, -1e-9))
        assert (~(beyond <= 0))[outside].all()
        assert (before <= 0)[outside].all()


def along(set: Any, x0: Any, x: Any, t: np.ndarray) -> Any:
    return map_point(lambda a, b, k: a + t[(..., *(None,) * k)] * (b - a), x0, x, set.event_ndim)


def digits(case: Case) -> float:
    """Relative error by rounding. det(S)^(1/2) keeps half the digits at the edge of the domain, where points land."""
    return 1e-7 if case.name == "gaussian-entropy-full" else 1e-9


@every_case
@every_method
@pytest.mark.parametrize("framework", ("torch", "jax"))
def test_frameworks_agree(case: Case, method: Any, framework: str) -> None:
    x = points(case, np.random.default_rng(1), 32)
    set, z, x0 = (convert(v, framework) for v in (case.set, x, case.anchor))
    for strict in (True, False):
        y, info = project_with_info(case.set, x, case.anchor, method=method, strict=strict)
        other, other_info = project_with_info(set, z, x0, method=method, strict=strict)
        for a, b in zip(leaves(other), leaves(y), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=digits(case), atol=1e-3 * digits(case))
        for a, b in zip(leaves(other_info.eta), leaves(info.eta), strict=True):
            np.testing.assert_allclose(np.asarray(a), b, rtol=digits(case))
    np.testing.assert_allclose(np.asarray(set.h(z)), case.set.h(x), rtol=1e-9, atol=1e-12)
    far = abs(case.set.h(x)) > 1e-9
    np.testing.assert_array_equal(np.asarray(set.contains(z))[far], case.set.contains(x)[far])


@every_case
@every_method
@pytest.mark.parametrize("framework", ("torch", "numpy"))
def test_batches_of_any_shape(case: Case, method: Any, framework: str) -> None:
    set, x0 = convert(case.set, framework), convert(case.anchor, framework)
    x = points(case, np.random.default_rng(2), 6)
    expected = inset.project(set, convert(x, framework), x0, method=method)
    for shape in ((2, 3), (6, 1), (1, 1, 6)):
        folded = map_point(lambda leaf, shape=shape: leaf.reshape(*shape, *leaf.shape[1:]), x)
        y = inset.project(set, convert(folded, framework), x0, method=method)
        assert set.h(y).shape == shape
        for a, b in zip(leaves(y), leaves(expected), strict=True):
            np.testing.assert_allclose(np.asarray(a).reshape(b.shape), np.asarray(b), rtol=1e-9, atol=1e-12)
    alone = inset.project(set, convert(map_point(lambda leaf: leaf[0], x), framework), x0, method=method)
    for a, b in zip(leaves(alone), leaves(expected), strict=True):
        assert a.shape == b.shape[1:]
        np.testing.assert_allclose(np.asarray(a), np.asarray(b[0]), rtol=1e-9, atol=1e-12)
    empty = convert(map_point(lambda leaf: leaf[:0], x), framework)
    none = inset.project(set, empty, x0, method=method)
    for a, b in zip(leaves(none), leaves(empty), strict=True):
        assert a.shape == b.shape
    assert set.h(none).shape == (0,)


def perturbed(set: Any, rng: np.random.Generator) -> Any:
    """A set near the given one: each real field scaled a little, so that symmetric ones stay so."""
    return map_fields(set, lambda v, role: v * (1 + 0.02 * rng.random()) if role == "array" and not callable(v) else v)


def stacked(sets: list[Any]) -> Any:
    """One set whose real fields carry a leading batch dimension; numbers become arrays, but for those of a box."""
    fields = [iter([v for _, v, role in field_leaves(s) if role != "static"]) for s in sets]

    def stack(value: Any, role: str) -> Any:
        values = [next(field) for field in fields]
        if is_array(value) and role == "array":
            return np.stack(values)
        return np.array(values) if isinstance(value, float) and not isinstance(sets[0], inset.Box) else values[0]

    return map_fields(sets[0], stack)


@every_case
@every_method
@pytest.mark.parametrize("framework", ("torch", "numpy"))
def test_batched_fields_and_anchors(case: Case, method: Any, framework: str) -> None:
    rng = np.random.default_rng(3)
    copies = [perturbed(case.set, rng) for _ in range(3)]
    if isinstance(case.set, inset.Box) and not is_array(case.set.lower):
        copies = [copies[0]] * 3
    anchors = [map_point(lambda leaf: leaf * (1 + 0.001 * rng.random()), case.anchor) for _ in range(3)]
    batch = stacked(copies), map_point(lambda *leaf: np.stack(leaf), *anchors)
    x = points(case, rng, 5, 3)
    for sets, starts, set, x0 in (
        (copies, anchors, *batch),
        (copies[:1] * 3, anchors, copies[0], batch[1]),
        (copies, anchors[:1] * 3, batch[0], anchors[0]),
    ):
        y = inset.project(*(convert(v, framework) for v in (set, x, x0)), method=method)
        for j in range(3):
            expected = inset.project(sets[j], map_point(lambda leaf, j=j: leaf[:, j], x), starts[j], method=method)
            for a, b in zip(leaves(y), leaves(expected), strict=True):
                np.testing.assert_allclose(np.asarray(a)[:, j], b, rtol=10 * digits(case), atol=1e-2 * digits(case))

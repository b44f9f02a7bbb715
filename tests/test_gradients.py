"""Derivatives: against differences, against the paper's formula, at kinks and far away, torch against JAX."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch

import inset
from cases import CASES, Case, convert, repeats_the_chord
from inset._fields import field_leaves, leaves, map_fields, map_point
from inset._namespace import is_array
from inset._project import METHODS, project_with_info
from inset._ray import into_domain
from inset.affine import has_equalities, onto

BY_NAME = {case.name: case for case in CASES}
every_case = pytest.mark.parametrize("case", CASES, ids=repr)
every_method = pytest.mark.parametrize("method", METHODS)


def rebuild(x: Any, flat: list[Any]) -> Any:
    """A point of the structure of x from its arrays in order."""
    rest = iter(flat)
    return map_point(lambda _: next(rest), x)


def blocks(case: Case) -> list[tuple[Any, Any, Any]]:
    """`(set, anchor, index)` of each block of a product, or of the set itself."""
    if isinstance(case.set, inset.Product):
        return [(s, a, k) for k, (s, a) in enumerate(zip(case.set.blocks, case.anchor, strict=True))]
    return [(case.set, case.anchor, None)]


def margins(set: Any, anchor: Any, x: Any) -> np.ndarray:
    """How far a sample is from where g is not smooth: ties of the two largest constraints, h = 0, the domain's edge.

    Ties are looked for in h_i and in h_i/|h_i(x0)| at x (paper, chord) and at the ray's result. 0 outside of the
    domain: at its edge a root or a logarithm has an infinite slope, and rounding of the edge is magnified.
    """
    x = onto(set, x)
    near, reach = into_domain(set, x, anchor)
    h0 = set.constraints(anchor)
    binds = np.isfinite(h0)
    result = np.abs(set.h(near))
    for point in (near, inset.project(set, x, anchor, method="ray", strict=False)):
        value = set.constraints(point)[..., binds]
        for v in (value, value / -h0[binds]):
            ordered = np.sort(v, axis=-1)
            if ordered.shape[-1] > 1:
                result = np.minimum(result, ordered[..., -1] - ordered[..., -2])
    further = into_domain(set, map_point(lambda a, b: a + 1.1 * (b - a), anchor, x), anchor)[1]
    return np.where((reach == 1) & (further == 1), result, 0.0)


def smooth_points(case: Case, count: int, seed: int = 0) -> Any:
    """Points at which differences can be trusted: every kink known is at least 1e-2 away, and differences over steps of
    1e-5 and 1e-3 agree, so that none that is not known is near. They are thrown close, to keep rounding small.
    """
    rng = np.random.default_rng(seed)
    x = map_point(
        lambda *leaf: np.concatenate(leaf), *(case.points(rng, 4000, spread=k * case.spread) for k in (0.4, 0.1))
    )
    with np.errstate(invalid="ignore"):  # the logarithm of the user's function
        clear = [margins(s, a, x if k is None else x[k]) > 1e-2 * min(case.spread, 1) for s, a, k in blocks(case)]
        kept = np.flatnonzero(np.all(clear, axis=0))
        outer, inner = (kept[side][:20] for side in (case.set.h(x)[kept] > 0, case.set.h(x)[kept] < 0))
        x = map_point(lambda leaf: leaf[np.concatenate([outer, inner])], x)
        good = np.all([_isolated(s, a, x if k is None else x[k]) for s, a, k in blocks(case)], axis=0)
        outside = [*np.flatnonzero(good & (case.set.h(x) > 0))]
        inside = [*np.flatnonzero(good & (case.set.h(x) < 0))]
    chosen = outside[: count - 1] + inside[:1]
    assert len(chosen) == count, f"{case}: {len(outside)} smooth points outside, {len(inside)} inside"
    return map_point(lambda leaf: leaf[np.array(chosen)], x)


@functools.cache
def smooth(name: str) -> Any:
    """Three smooth points of a case, the same for every method."""
    return smooth_points(BY_NAME[name], 3)


@functools.cache
def off_centre(name: str) -> tuple[Any, Any]:
    """An anchor off the symmetric one of the case, where constraints or eigenvalues tie, and smooth points for it."""
    case = BY_NAME[name]
    anchor = moved_onto(case.set, case.points(np.random.default_rng(8), spread=0.02 * case.spread))
    return anchor, smooth_points(Case(name, case.set, anchor, case.spread), 3)


def _isolated(set: Any, anchor: Any, x: Any) -> np.ndarray:
    """Whether central differences of the result over two steps agree, for each method."""
    rng = np.random.default_rng(9)
    way = map_point(lambda leaf: rng.normal(size=leaf.shape), x)
    good: Any = True
    for method in METHODS:

        def g(t: float, method: Any = method) -> np.ndarray:
            point = map_point(lambda a, b: a + t * b, x, way)
            y = inset.project(set, point, anchor, method=method, strict=False)
            return np.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves(y)], axis=-1)

        fine, coarse = ((g(t) - g(-t)) / (2 * t) for t in (1e-5, 1e-3))
        good = good & (abs(fine - coarse).max(-1) < 1e-3 * (1 + abs(fine).max(-1)))
    return good


def symmetriser(case: Case, like: np.ndarray, event: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Matrices of these sets must stay symmetric: differences are taken along symmetric directions."""
    if event == 2 and like.shape[-1] == like.shape[-2] and not case.name.endswith("cholesky"):
        return lambda X: (X + X.mT) / 2
    if event == 2 and case.name.endswith("cholesky"):
        return torch.tril
    return lambda X: X


def moved_onto(set: Any, x: Any) -> Any:
    """x after the linear map onto the affine hull."""
    if isinstance(set, inset.Product):
        return tuple(moved_onto(block, point) for block, point in zip(set.blocks, x, strict=True))
    return onto(set, x)


# -- against differences -------------------------------------------------------------------------------------


@every_case
@every_method
def test_gradcheck_of_points(case: Case, method: Any) -> None:
    set, anchor = convert(case.set, "torch"), convert(case.anchor, "torch")
    x = convert(smooth(case.name), "torch")
    arrays = [leaf.clone().requires_grad_() for leaf in leaves(x)]

    def g(*flat: torch.Tensor) -> Any:
        return inset.project(set, rebuild(x, list(flat)), anchor, method=method, strict=False)

    many = sum(leaf.numel() for leaf in arrays) > 15  # then along random directions instead of each coordinate
    assert torch.autograd.gradcheck(g, arrays, atol=1e-6, rtol=1e-4, fast_mode=many)
    assert torch.autograd.gradgradcheck(g, arrays, atol=1e-4, rtol=1e-3, fast_mode=True)


@every_case
@every_method
def test_gradcheck_of_fields_and_anchors(case: Case, method: Any) -> None:
    """At an anchor off the symmetric one, see `off_centre`."""
    anchor, x = (convert(v, "torch") for v in off_centre(case.name))
    floats = [
        convert(np.asarray(v), "torch")
        for _, v, role in field_leaves(case.set)
        if role == "array" and is_array(v) and np.isfinite(v).all()
    ]
    start = list(leaves(anchor))
    tidy = [symmetriser(case, leaf, min(leaf.ndim, 2)) for leaf in [*floats, *start]]
    if case.name in (
        "spectral-ball",
        "ellipsoid",
        "strings",
        "polytope",
        "second-order-cone",
        "equality",
        "intersection",
    ):
        tidy = [lambda X: X] * len(tidy)
    if case.name.startswith("gaussian-kl"):
        tidy = [
            t if leaf.shape[-2:] == (2, 2) else (lambda X: X) for t, leaf in zip(tidy, [*floats, *start], strict=True)
        ]

    def g(*flat: torch.Tensor) -> Any:
        values = iter([clean(v) for clean, v in zip(tidy, flat, strict=True)])
        fields = map_fields(
            convert(case.set, "torch"),
            lambda v, role: next(values) if role == "array" and is_array(v) and v.isfinite().all() else v,
        )
        x0 = rebuild(anchor, list(values))
        return inset.project(_fresh(fields), x, x0, method=method, strict=False)

    arrays = [leaf.clone().requires_grad_() for leaf in [*floats, *start]]
    assert torch.autograd.gradcheck(g, arrays, atol=1e-6, rtol=1e-4, fast_mode=True)


def _fresh(set: Any) -> Any:
    """The set without what it keeps from constant fields (the pseudo-inverse of an equality)."""
    if isinstance(set, inset.Equality):
        return inset.Equality(set.A, set.b)
    if isinstance(set, inset.Intersection):
        return inset.Intersection(tuple(_fresh(part) for part in set.parts))
    return set


# -- against the paper ---------------------------------------------------------------------------------------


@every_case
def test_gradient_is_the_papers(case: Case) -> None:
    """J^T v = eta (v + (v.(g - x0) / h(x0)) grad h), grad h by autograd of h; away from the edge of a domain."""
    for set, anchor, k in blocks(case):
        points = case.points(np.random.default_rng(2), 4000, spread=0.3 * case.spread)
        points = points if k is None else points[k]
        with np.errstate(invalid="ignore"):
            keep = (margins(set, anchor, points) > 1e-6) & (set.h(onto(set, points)) > 0)
        assert keep.sum() >= 3
        set, x0 = convert(set, "torch"), convert(anchor, "torch")
        x = map_point(lambda leaf, keep=keep: convert(leaf[keep], "torch").requires_grad_(), points)
        y, info = project_with_info(set, x, x0, method="paper", strict=False)
        generator = torch.Generator().manual_seed(0)
        v = [torch.randn(leaf.shape, generator=generator, dtype=leaf.dtype) for leaf in leaves(y)]
        got = torch.autograd.grad(leaves(y), leaves(x), v)
        moved = onto(set, x)
        slope = torch.autograd.grad(set.h(moved).sum(), leaves(moved), allow_unused=True)
        slope = [torch.zeros_like(p) if s is None else s for s, p in zip(slope, leaves(moved), strict=True)]
        count = int(keep.sum())
        dot = sum(
            (a * (b - c)).reshape(count, -1).sum(-1)
            for a, b, c in zip(v, leaves(y), leaves(onto(set, x0)), strict=True)
        )
        weight = (dot / set.h(onto(set, x0))).detach()
        wide = [(..., *(None,) * (leaf.ndim - 1)) for leaf in v]
        pulled = [(info.eta[w] * (a + weight[w] * s)).detach() for w, a, s in zip(wide, v, slope, strict=True)]
        if has_equalities(set):  # then through the linear map onto the affine hull
            pulled = torch.autograd.grad(leaves(moved), leaves(x), pulled)
        for a, b in zip(got, pulled, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@every_case
@every_method
@pytest.mark.parametrize("strict", (True, False))
def test_jacobian_at_the_anchor(case: Case, method: Any, strict: bool) -> None:
    """The identity, or the linear map onto the affine hull: a head that starts at the anchor trains."""
    for set, anchor, _ in blocks(case):
        set, x0 = convert(set, "torch"), convert(anchor, "torch")
        flat = list(leaves(x0))

        def g(*flat: torch.Tensor, set: Any = set, x0: Any = x0) -> Any:
            return leaves(inset.project(set, rebuild(x0, list(flat)), x0, method=method, strict=strict))

        def linear(*flat: torch.Tensor, set: Any = set, x0: Any = x0) -> Any:
            return leaves(onto(set, rebuild(x0, list(flat)), None))

        got = torch.autograd.functional.jacobian(g, tuple(flat))
        expected = torch.autograd.functional.jacobian(linear, tuple(flat))
        for rows, wanted in zip(got, expected, strict=True):
            for a, b in zip(rows, wanted, strict=True):
                torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


# -- where a gradient is hard to have ------------------------------------------------------------------------


def gradient(set: Any, x: Any, anchor: Any, method: Any, strict: bool) -> tuple[Any, list[torch.Tensor]]:
    x = map_point(lambda leaf: leaf.detach().clone().requires_grad_(), x)
    y = inset.project(set, x, anchor, method=method, strict=strict)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(leaf.shape, generator=generator, dtype=torch.float64).to(leaf.dtype) for leaf in leaves(y)]
    return y, list(torch.autograd.grad(leaves(y), leaves(x), weights))


def assert_alive(y: Any, grads: list[torch.Tensor], batch: int) -> None:
    """Finite, and not all zero, for each sample."""
    assert all(torch.isfinite(leaf).all() for leaf in leaves(y))
    assert all(torch.isfinite(grad).all() for grad in grads)
    size = torch.stack([grad.abs().reshape(batch, -1).sum(-1) for grad in grads]).sum(0)
    assert (size > 0).all(), f"gradient is zero at samples {torch.nonzero(~(size > 0)).flatten().tolist()}"


@every_case
@every_method
@pytest.mark.parametrize("strict", (True, False))
def test_alive_at_kinks(case: Case, method: Any, strict: bool) -> None:
    """At the anchor, at ties of coordinates, exactly on the boundary, and outside the domain."""
    for base, anchor, _ in blocks(case):
        set, x0 = convert(base, "torch"), convert(anchor, "torch")

        def shifted(amount: float, x0: Any = x0) -> Any:
            return map_point(lambda leaf: leaf + amount, x0)

        edge = inset.project(set, shifted(5.0), x0, method="ray", strict=False)
        diagonal = map_point(lambda leaf: leaf + 2 * torch.eye(*leaf.shape[-2:]) if leaf.ndim > 1 else leaf, x0)
        rows = [x0, shifted(5.0), shifted(-5.0), edge, map_point(torch.zeros_like, x0), shifted(0.0), diagonal]
        rows += [map_point(lambda leaf, s=s: s * torch.ones_like(leaf), x0) for s in (1.0, -1.0, 10.0, -10.0)]
        x = map_point(lambda *row: torch.stack(row), *rows)
        assert_alive(*gradient(set, x, x0, method, strict), len(rows))


@every_case
@every_method
@pytest.mark.parametrize("dtype, size", (("float32", 1e30), ("float32", None), ("float64", 1e300), ("float64", None)))
def test_finite_for_huge_points(case: Case, method: Any, dtype: str, size: float | None) -> None:
    """Up to the largest number of the dtype; the gradient is finite, and non-zero as far as it can be represented."""
    size = float(torch.finfo(getattr(torch, dtype)).max) if size is None else size
    rng = np.random.default_rng(4)
    for base, anchor, _ in blocks(case):
        set, x0 = convert(base, "torch", dtype), convert(anchor, "torch", dtype)

        def throw(leaf: torch.Tensor, k: int) -> torch.Tensor:
            direction = rng.uniform(-1, 1, size=(8, *leaf.shape[leaf.ndim - k :]))
            direction[:2] = np.sign(direction[:2])
            return convert(size * direction, "torch", dtype)

        x = map_point(throw, x0, base.event_ndim)
        y, grads = gradient(set, x, x0, method, True)
        assert all(torch.isfinite(leaf).all() for leaf in leaves(y))
        assert (set.h(y) <= 0).all()
        assert all(torch.isfinite(grad).all() for grad in grads)
        # a function that grows like |x|^2 folds: eta like 1/|x|^2 is below the smallest float32
        folds = method != "ray" and isinstance(base, (inset.GaussianKL, inset.Sublevel))
        assert folds or sum(float(grad.abs().double().sum()) for grad in grads) > 0


@every_method
@pytest.mark.parametrize("strict", (True, False))
@pytest.mark.parametrize(
    "name, x",
    (
        (
            "exponential-cone",
            [[-1.0, 1.0, -2.0], [1.0, -1.0, 1.0], [1.0, -1.0, -1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]],
        ),
        ("power-cone", [[-1.0, 1.0, 0.5], [1.0, -1.0, 0.5], [-1.0, -1.0, 5.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),
        (
            "categorical-entropy",
            [[-1.0, 1.0, 0.5, 0.5], [1.0, 0.0, 0.0, 0.0], [-3.0, -3.0, 5.0, 2.0], [0.5, 0.5, 0.0, 0.0]],
        ),
        ("sublevel-domain", [[-2.0, 0.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [-50.0, 3.0, -2.0, 8.0]]),
    ),
)
def test_alive_outside_the_domain(name: str, x: list[list[float]], method: Any, strict: bool) -> None:
    case = BY_NAME[name]
    points = torch.tensor(x, dtype=torch.float64)
    set, x0 = convert(case.set, "torch"), convert(case.anchor, "torch")
    y, grads = gradient(set, points, x0, method, strict)
    assert_alive(y, grads, len(x))


@every_method
@pytest.mark.parametrize("strict", (True, False))
@pytest.mark.parametrize("case", [case for case in CASES if case.name.startswith("gaussian")], ids=repr)
def test_alive_for_negative_variances(case: Case, method: Any, strict: bool) -> None:
    set, (mean, covariance) = convert(case.set, "torch"), convert(case.anchor, "torch")
    rows = torch.tensor([-1.0, 0.0, -1e-8, -1e6, 1e-12], dtype=torch.float64)
    wide = (..., *(None,) * covariance.ndim)
    x = (mean.expand(5, *mean.shape).clone(), rows[wide] * (covariance + 0.01))
    y, grads = gradient(set, x, (mean, covariance), method, strict)
    assert_alive(y, grads, 5)


# -- torch against JAX ---------------------------------------------------------------------------------------


#: The chord is derived in `test_jax.py`, where jit and grad take the set.
OTHERS = [m for m in METHODS if m != "chord"]
DERIVED = [(case, method) for case in CASES for method in OTHERS if not repeats_the_chord(case, method)]


@pytest.mark.parametrize("case, method", DERIVED, ids=repr)
def test_torch_equals_jax(case: Case, method: Any) -> None:
    """Under jit: without it JAX compiles each operation of each derivative on its own, which takes longer."""
    x = case.points(np.random.default_rng(3), 6)
    set, point, anchor = (convert(v, "torch") for v in (case.set, x, case.anchor))
    y, got = gradient(set, point, anchor, method, True)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(leaf.shape, generator=generator, dtype=torch.float64).numpy() for leaf in leaves(y)]
    set, x0 = convert(case.set, "jax"), convert(case.anchor, "jax")

    def weighted(point: Any) -> Any:
        result = inset.project(set, point, x0, method=method)
        return sum((w * leaf).sum() for w, leaf in zip(weights, leaves(result), strict=True))

    derivative = jax.jit(jax.grad(weighted), compiler_options={"xla_backend_optimization_level": 0})
    for a, b in zip(got, leaves(derivative(convert(x, "jax"))), strict=True):
        np.testing.assert_allclose(np.asarray(b), a.numpy(), rtol=1e-7, atol=1e-9)

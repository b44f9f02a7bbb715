"""The JAX front-end: sets are pytrees, so `jit`, `vmap` and `grad` take them as arguments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import inset
import inset.jax
from cases import CASES, Case, convert
from inset._fields import field_leaves, leaves, map_arrays, map_point
from inset._namespace import is_array
from inset.jax import project, project_with_info

every_case = pytest.mark.parametrize("case", CASES, ids=repr)
BY_NAME = {case.name: case for case in CASES}
RAY = ("ball-1", "quadratic", "psd", "spectral-ball", "exponential-cone", "gaussian-kl", "sublevel", "intersection")


def prepared(case: Case, count: int = 5) -> tuple[Any, Any, Any]:
    return tuple(convert(v, "jax") for v in (case.set, case.anchor, case.points(np.random.default_rng(1), count)))  # type: ignore[return-value]


def tolerance(case: Case) -> float:
    """Rounding; where logarithms meet the edge of their domain it decides which of two feasible points is taken."""
    return 2e-4 if "entropy" in case.name or "cone" in case.name else 1e-9


def loss(y: Any) -> Any:
    return sum(jnp.sin(1 + leaf).sum() for leaf in leaves(y))


def torch_gradient(case: Case) -> list[np.ndarray]:
    """The gradient of `loss` at the points of `prepared`, by torch."""
    points = convert(case.points(np.random.default_rng(1), 5), "torch")
    z = map_point(lambda leaf: leaf.requires_grad_(), points)
    y = inset.project(convert(case.set, "torch"), z, convert(case.anchor, "torch"))
    value = torch.stack([torch.sin(1 + leaf).sum() for leaf in leaves(y)]).sum()
    return [grad.numpy() for grad in torch.autograd.grad(value, leaves(z))]


def assert_close(given: Any, expected: Any, rtol: float = 1e-9) -> None:
    for a, b in zip(leaves(given), leaves(expected), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * (1 + float(jnp.abs(b).max())))


@pytest.fixture(autouse=True)
def quick_compiler() -> Iterator[None]:
    """Hundreds of small programs are compiled here and each is run once or twice: XLA need not optimise them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


@every_case
def test_jit_and_grad_take_the_set(case: Case) -> None:
    """Set, points and anchor as arguments: the result of NumPy, in the set; and the gradient of every array.

    There are as many gradients as arrays, of their shapes and finite, those of the points not all zero and equal to
    torch's. All values share one trace.
    """
    set, anchor, x = prepared(case)
    wanted = (0, 1, 2) if case.name != "strings" else (1, 2)  # `grad` refuses the links, which are integers
    traces = []

    def value(set: Any, x: Any, anchor: Any) -> Any:
        traces.append(1)
        y = project(set, x, anchor)
        return loss(y), y

    g = jax.jit(jax.grad(value, wanted, has_aux=True))
    grads, y = g(set, x, anchor)
    assert_close(y, inset.project(case.set, case.points(np.random.default_rng(1), 5), case.anchor), tolerance(case))
    assert case.set.contains(map_point(np.asarray, y)).all()
    flat = jax.tree_util.tree_leaves(grads)
    fields = [v for _, v, role in field_leaves(set) if is_array(v) and role == "array"]
    expected = [*(fields if 0 in wanted else []), *leaves(x), *leaves(anchor)]
    assert [g.shape for g in flat] == [v.shape for v in expected]
    assert all(bool(jnp.isfinite(g).all()) for g in flat)
    of_points = leaves(grads[wanted.index(1)])
    assert all(bool((g != 0).any()) for g in of_points)
    for a, b in zip(of_points, torch_gradient(case), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    g(map_arrays(set, lambda v: v * 0.999), map_point(lambda leaf: leaf * 2, x), anchor)
    assert len(traces) == 1


@pytest.mark.parametrize("name", RAY)
def test_jit_of_the_ray(name: str) -> None:
    case = BY_NAME[name]
    set, anchor, x = prepared(case)
    y = jax.jit(lambda set, x, anchor: project(set, x, anchor, method="ray"))(set, x, anchor)
    expected = inset.project(case.set, case.points(np.random.default_rng(1), 5), case.anchor, method="ray")
    assert_close(y, expected, tolerance(case))
    assert case.set.contains(map_point(np.asarray, y)).all()


@pytest.mark.parametrize("method", ("chord", "ray"))
@pytest.mark.parametrize("name", ("polytope", "ball-2", "quadratic"))
def test_strict_in_optimised_code(name: str, method: str) -> None:
    """As XLA compiles for users, fused and reordered: in the set in float32, and as float64 numbers."""
    case = BY_NAME[name]
    set, anchor, x = (
        convert(v, "jax", "float32") for v in (case.set, case.anchor, case.points(np.random.default_rng(2), 4096))
    )
    options = {"xla_cpu_use_fusion_emitters": True, "xla_backend_optimization_level": 3}
    options |= {"xla_llvm_disable_expensive_passes": False}
    y = np.asarray(jax.jit(project, static_argnames="method", compiler_options=options)(set, x, anchor, method=method))
    assert y.dtype == np.float32
    for dtype in ("float32", "float64"):
        stored = map_arrays(set, lambda v, dtype=dtype: np.asarray(v).astype(dtype))
        assert stored.contains(y.astype(dtype)).all()


@pytest.mark.parametrize("name", ("polytope", "ball-2", "simplex", "sublevel-parameters"))
def test_jit_equals_eager(name: str) -> None:
    """On a few sets: without jit, JAX compiles each operation on its own, which takes seconds."""
    set, anchor, x = prepared(BY_NAME[name])
    assert_close(jax.jit(project)(set, x, anchor), project(set, x, anchor), 1e-12)


@every_case
def test_vmap_over_sets(case: Case) -> None:
    """A set each of whose arrays has a leading axis, mapped over together with points and anchors."""
    set, anchor, x = prepared(case, 2)
    sets, anchors = jax.tree_util.tree_map(lambda v: jnp.stack([v, v]), (set, anchor))
    expected = inset.project(case.set, case.points(np.random.default_rng(1), 2), case.anchor)
    assert_close(jax.jit(jax.vmap(project))(sets, x, anchors), expected, tolerance(case))


@pytest.mark.parametrize("name", RAY)
def test_vmap_over_points(name: str) -> None:
    case = BY_NAME[name]
    set, anchor, x = prepared(case, 2)
    expected = inset.project(case.set, case.points(np.random.default_rng(1), 2), case.anchor)
    assert_close(jax.jit(jax.vmap(project, (None, 0, None)))(set, x, anchor), expected, tolerance(case))


def test_vmap_axes_of_fields() -> None:
    """`in_axes` may be a set that holds an axis in place of each array: here radii are mapped over, centres not."""
    balls = inset.Ball(jnp.zeros(2), jnp.array([1.0, 2.0, 3.0]))
    axes = jax.tree_util.tree_map_with_path(
        lambda path, _: 0 if "radius" in jax.tree_util.keystr(path) else None, balls
    )
    for in_axes in (axes, jax.tree_util.tree_map(lambda _: 0, inset.Ball(jnp.zeros((3, 2)), balls.radius))):
        set = balls if in_axes is axes else inset.Ball(jnp.zeros((3, 2)), balls.radius)
        y = jax.vmap(project, (in_axes, None, None))(set, jnp.array([6.0, 8.0]), jnp.zeros(2))
        np.testing.assert_allclose(y, [[0.6, 0.8], [1.2, 1.6], [1.8, 2.4]], rtol=1e-12)


@pytest.mark.parametrize(
    "field, build",
    (
        ("radius", lambda r: inset.Ball(jnp.zeros(3), r)),
        ("b", lambda r: inset.Polytope(jnp.eye(3), r * jnp.ones(3))),
        ("L", lambda r: inset.Ellipsoid(jnp.zeros(3), jnp.eye(3) / r)),
    ),
)
def test_gradient_of_a_field_by_hand(field: str, build: Any) -> None:
    """Along one axis, the result is the size of the set: its derivative is 1."""
    x, anchor = jnp.array([5.0, 0.0, 0.0]), jnp.zeros(3)
    slope = jax.grad(lambda r: project(build(r), x, anchor, strict=False)[0])(jnp.asarray(2.0))
    np.testing.assert_allclose(slope, 1.0, rtol=1e-12)


@every_case
def test_tree_map_round_trip(case: Case) -> None:
    set = convert(case.set, "jax")
    arrays, structure = jax.tree_util.tree_flatten(set)
    again = jax.tree_util.tree_unflatten(structure, arrays)
    assert type(again) is type(set) and repr(again) == repr(set)
    for (path, a, _), (_, b, _) in zip(field_leaves(set), field_leaves(again), strict=True):
        assert a is b or (isinstance(a, (int, float)) and a == b), path
    assert structure == jax.tree_util.tree_structure(jax.tree_util.tree_map(lambda v: v + 0, set))
    assert structure == jax.tree_util.tree_structure(jax.tree_util.tree_map(lambda v: 0.0, set))  # numbers, for once
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(set)[0]]
    assert len(names) == len(arrays) and all(name.startswith(".") for name in names)


def test_field_names_in_paths() -> None:
    both = inset.Ball(jnp.zeros(2), jnp.asarray(1.0)) & inset.Polytope(jnp.eye(2), jnp.ones(2))
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(both)[0]]
    assert names == [".parts[0].center", ".parts[0].radius", ".parts[1].A", ".parts[1].b"]


def test_numbers_are_static() -> None:
    """A Python number is part of the type: no leaf, and another one traces anew."""
    traces = []

    @jax.jit
    def g(set: Any, x: Any) -> Any:
        traces.append(1)
        return project(set, x)

    x = jnp.array([3.0, 4.0])
    for radius, count in ((1.0, 1), (1.0, 1), (2.0, 2)):
        set = inset.Ball(jnp.zeros(2), radius)
        assert len(jax.tree_util.tree_leaves(set)) == 1
        np.testing.assert_allclose(g(set, x), radius * jnp.array([0.6, 0.8]), rtol=1e-12)
        assert len(traces) == count
    for radius in (1.0, 2.0):  # an array is traced: one trace for all values
        np.testing.assert_allclose(
            g(inset.Ball(jnp.zeros(2), jnp.asarray(radius)), x), radius * jnp.array([0.6, 0.8]), rtol=1e-12
        )
    assert len(traces) == 3


def test_a_set_of_the_users() -> None:
    """Defined after `import inset.jax`: a pytree at once, under jit, grad and vmap."""

    @inset.convex_set
    class Diamond(inset.ConvexSet):
        """{x : sum_i w_i |x_i| <= size}."""

        w: Any
        size: float = inset.static(default=1.0)
        event_ndim = 1
        shapes = {"w": "n", "x": "n"}

        def constraints(self, x: Any) -> Any:
            return (self.w * abs(x)).sum(-1)[..., None] - self.size

    set, x, anchor = Diamond(jnp.array([1.0, 2.0]), 2.0), jnp.array([[4.0, 0.0], [0.0, 3.0], [0.1, 0.1]]), jnp.zeros(2)
    methods: tuple[Any, ...] = ("chord", "ray")
    for method in methods:
        y = jax.jit(lambda s, x, a, m=method: project(s, x, a, method=m))(set, x, anchor)
        np.testing.assert_allclose(y, [[2.0, 0.0], [0.0, 1.0], [0.1, 0.1]], rtol=1e-8)
        assert set.contains(y).all()
    slope = jax.jit(jax.grad(lambda s: project(s, x, anchor).sum()))(set)
    assert isinstance(slope, Diamond) and slope.size == 2.0
    np.testing.assert_allclose(slope.w, [-2.0, -0.5], rtol=1e-6)
    batch = jax.vmap(project, (0, None, None))(Diamond(jnp.array([[1.0, 2.0], [2.0, 1.0]]), 2.0), x[0], anchor)
    np.testing.assert_allclose(batch, [[2.0, 0.0], [1.0, 0.0]], rtol=1e-8)


def test_info_under_jit() -> None:
    set = inset.Polytope(jnp.eye(2), jnp.ones(2))
    y, info = jax.jit(project_with_info)(set, jnp.array([[0.5, 0.5], [0.0, 4.0]]), jnp.zeros(2))
    np.testing.assert_allclose(info.eta, [1.0, 0.25], rtol=1e-12)
    assert info.active.tolist() == [-1, 1] and info.h.tolist() == [-0.5, 3.0]
    assert set.contains(y).all()


def test_public_names() -> None:
    assert inset.jax.project is inset.project
    for name in inset.jax.__all__:
        assert getattr(inset.jax, name).__doc__

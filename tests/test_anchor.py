"""`interior_point`: deep anchors where there are some, and errors that name the conflict where there are none."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from cases import CASES, Case, convert
from inset import (
    LMI,
    AnchorError,
    Ball,
    Box,
    Equality,
    GaussianEntropy,
    Polytope,
    Product,
    Quadratic,
    SecondOrderCone,
    Simplex,
    Sublevel,
)
from inset._anchor import interior_point
from inset._fields import leaves, map_arrays
from inset._lp import chebyshev

jax.config.update("jax_enable_x64", True)
FRAMEWORKS = ("numpy", "torch", "jax")


def oracle(A: np.ndarray, b: np.ndarray, E: np.ndarray | None = None, f: np.ndarray | None = None) -> float:
    """The Chebyshev radius by SciPy, within {x : E x = f}."""
    n = A.shape[-1]
    inside = A if E is None else A @ (np.eye(n) - np.linalg.pinv(E) @ E)
    cost, rows = np.r_[np.zeros(n), -1.0], np.c_[A, np.linalg.norm(inside, axis=1)]
    equal = {} if E is None else {"A_eq": np.c_[E, np.zeros(len(E))], "b_eq": f}
    return -linprog(cost, A_ub=rows, b_ub=b, bounds=[(None, None)] * (n + 1), **equal).fun


def depth(A: np.ndarray, b: np.ndarray, x: np.ndarray) -> float:
    return float(np.min((b - A @ x) / np.linalg.norm(A, axis=1)))


def bounded(rng: np.random.Generator, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """A bounded polytope around a random centre, with rows of very different lengths."""
    A = np.concatenate([rng.normal(size=(m, n)), np.eye(n), -np.eye(n)])
    A = A * np.exp(2 * rng.normal(size=(len(A), 1)))
    return A, A @ (5 * rng.normal(size=n)) + np.linalg.norm(A, axis=1) * rng.uniform(0.1, 3.0, size=len(A))


# -- Chebyshev centres ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_polytope_gets_its_chebyshev_centre(seed: int) -> None:
    rng = np.random.default_rng(seed)
    A, b = bounded(rng, n := int(rng.integers(1, 12)), 3 * n)
    assert depth(A, b, interior_point(Polytope(A, b))) == pytest.approx(oracle(A, b), rel=1e-6)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_batched_polytopes_are_solved_at_once(framework: str) -> None:
    rng = np.random.default_rng(1)
    A, b = (np.stack(v).reshape(2, 3, *v[0].shape) for v in zip(*[bounded(rng, 4, 9) for _ in range(6)], strict=True))
    x = np.asarray(interior_point(convert(Polytope(A, b), framework)))
    assert x.shape == (2, 3, 4)
    for i in np.ndindex(2, 3):
        assert depth(A[i], b[i], x[i]) == pytest.approx(oracle(A[i], b[i]), rel=1e-6)


def test_equalities_are_eliminated_per_sample() -> None:
    rng = np.random.default_rng(2)
    A, b = bounded(rng, 5, 8)
    centre, E = interior_point(Polytope(A, b)), rng.normal(size=(2, 5))
    f = E @ centre + 0.01 * rng.normal(size=(3, 2))
    for lines in (E, np.stack([E, E[::-1], 2 * E])):
        right = f if lines.ndim == 2 else np.stack([f[0], f[1, ::-1], 2 * f[2]])
        set = Polytope(A, b) & Equality(lines, right)
        x = interior_point(set)
        assert set.contains(x).all()
        within = np.linalg.norm(A @ (np.eye(5) - np.linalg.pinv(E) @ E), axis=1)
        radii = [float(np.min((b - A @ y) / within)) for y in x]
        assert radii == pytest.approx([oracle(A, b, E, g) for g in f], rel=1e-6)


def test_parts_that_are_all_affine_give_one_centre() -> None:
    box, first = Box(0.0, np.array([0.5, np.inf, 1.0])), Equality(np.eye(3)[:1], np.full(1, 0.25))
    set = Simplex(3, np.array([1.0, 2.0])) & box & first
    x = interior_point(set)
    # x_1 + x_2 = total - 1/4 with x_2 <= 1: the middle of what is left, at equal distance from both ends
    np.testing.assert_allclose(x, [[0.25, 0.375, 0.375], [0.25, 1.25, 0.5]], atol=1e-6)


def test_unbounded_polytopes_and_infinite_bounds() -> None:
    wedge = Polytope(np.array([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]]), np.array([0.0, 0.0, np.inf]))
    x = interior_point(wedge)
    assert wedge.h(x) < -0.5 and np.abs(x).max() < 100
    plane = Polytope(np.array([[1.0, 0.0]]), np.array([-7.0]))
    x = interior_point(plane)
    assert plane.h(x) < -0.5 and np.abs(x).max() < 100


def test_multipliers_prove_the_radius() -> None:
    A, b = bounded(np.random.default_rng(5), 4, 9)
    centre = chebyshev(A[None], b[None])
    unit, w = A / np.linalg.norm(A, axis=1, keepdims=True), centre.weights[0]
    assert np.abs(w @ unit).max() < 1e-6 and w.sum() == pytest.approx(1)
    assert w @ (b / np.linalg.norm(A, axis=1)) == pytest.approx(centre.radius[0], rel=1e-6)


# -- every set -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_every_set_gets_a_strict_anchor(case: Case, framework: str) -> None:
    set, start = convert(case.set, framework), convert(case.anchor, framework)
    needs_start = case.name.startswith(("sublevel", "strings", "box-numbers"))
    x = interior_point(set, start=start if needs_start else None)
    assert bool((set.h(x) < -1e-3).all()) and bool(set.contains(x).all())
    assert all(bool((abs(leaf) < 100).all()) for leaf in leaves(x))


@pytest.mark.parametrize("framework", ("numpy", "torch"))
@pytest.mark.parametrize("name", ("second-order-cone", "lmi", "paraboloid", "intersection"))
def test_search_reaches_the_set_from_far_outside(name: str, framework: str) -> None:
    case = next(case for case in CASES if case.name == name)
    set = convert(case.set, framework)
    start = convert(np.full((2, 4), 30.0) * np.array([[1.0], [-1.0]]), framework)
    x = interior_point(set, start=start)
    assert x.shape == (2, 4) and bool((set.h(x) < -1e-3).all())


def test_sets_of_numbers_need_a_start() -> None:
    with pytest.raises(AnchorError, match=r"Box\(lower=-1.0, upper=1.0\).*start=x"):
        interior_point(Box(-1.0, 1.0))
    x = interior_point(Box(-1.0, 1.0), start=torch.ones(2, 3))
    assert x.shape == (2, 3) and x.dtype == torch.float32


# -- quality, warm start, dtypes -----------------------------------------------------------------------


def test_smooth_minimum_is_approached() -> None:
    two = Ball(np.zeros(3), 1.0) & Ball(np.array([1.0, 0.0, 0.0]), 1.0)
    x = interior_point(two)
    assert two.h(x) == pytest.approx(-0.5, abs=0.02)
    off = interior_point(two, start=np.array([9.0, -5.0, 3.0]))
    assert two.h(off) == pytest.approx(-0.5, abs=0.02)


def test_equalities_with_curved_sets() -> None:
    cut = Ball(np.zeros(3), 1.0) & Equality(np.ones((1, 3)), np.array([[0.9], [-0.9]]))
    x = interior_point(cut)
    np.testing.assert_allclose(x, np.array([[0.3] * 3, [-0.3] * 3]), atol=0.05)
    assert cut.contains(x).all()


def test_start_in_the_domain_is_kept_there() -> None:
    def fn(x: Any) -> Any:
        return (-np.log(x) - np.log(1 - x) - 1.5).sum(-1)  # finite in (0, 1), least in the middle

    x = interior_point(Sublevel(fn), start=np.array([1e-3, 0.9, 0.5]))
    assert fn(x) < 0.9 * fn(np.full(3, 0.5)) < 0
    with pytest.raises(AnchorError, match=r"not finite at the start.*start"):
        interior_point(Sublevel(fn), start=np.full(3, -5.0))


def test_a_cone_does_not_run_off() -> None:
    cone = SecondOrderCone(np.eye(3)[None, :2], np.zeros((1, 2)), np.eye(3)[2:], np.zeros(1))
    x = interior_point(cone)
    assert -100 < cone.h(x) < -0.5


def test_batched_lmi_equals_its_members() -> None:
    rng = np.random.default_rng(4)
    A = rng.normal(size=(5, 6, 4, 4))
    A = A + np.swapaxes(A, -1, -2)
    C = np.einsum("bn,bnij->bij", 3 * rng.normal(size=(5, 6)), A) - np.diag([0.1, 0.2, 0.3, 0.4])
    x = interior_point(LMI(torch.as_tensor(A), torch.as_tensor(C))).numpy()
    assert x.shape == (5, 6)
    for a, c, y in zip(A, C, x, strict=True):
        assert np.linalg.eigvalsh(np.einsum("n,nij->ij", y, a) - c)[0] > 0.1


@pytest.mark.parametrize("dtype", ("float16", "float32"))
def test_the_anchor_is_strict_in_the_dtype_of_the_set(dtype: str) -> None:
    A, b = bounded(np.random.default_rng(6), 3, 5)
    for set in (Polytope(A / 10, b / 10), Polytope(A / 10, b / 10) & Ball(np.zeros(3), 100.0)):
        set = convert(set, "torch", dtype)
        x = interior_point(set)
        assert x.dtype == getattr(torch, dtype) and set.h(x) < 0
        wide = map_arrays(set, lambda v: v.double())
        assert wide.h(x.double()) < 0


def test_jax_without_float64() -> None:
    with jax.enable_x64(False):
        A, b = bounded(np.random.default_rng(7), 3, 5)
        x = interior_point(convert(Polytope(A, b), "jax", "float32"))
        assert x.dtype == "float32"
        assert depth(A, b, np.asarray(x, dtype=float)) == pytest.approx(oracle(A, b), rel=1e-3)
        both = interior_point(convert(Polytope(A, b) & Ball(np.asarray(x), 1.0), "jax", "float32"))
        assert both.dtype == "float32"


def test_gradients_do_not_leak() -> None:
    A = torch.tensor([[1.0], [-1.0]], requires_grad=True)
    assert not interior_point(Polytope(A, torch.ones(2))).requires_grad
    assert not interior_point(Ball(torch.zeros(2, requires_grad=True), 1.0)).requires_grad
    net = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Softplus())
    bowl = Sublevel(lambda x: net(x).sum(-1) + (x * x).sum(-1) - 20) & Box(-torch.ones(2), 1.0)
    x = interior_point(bowl, start=torch.full((2,), 3.0))
    assert not x.requires_grad and bowl.contains(x)


def test_a_thin_set_is_found_in_float64_and_refused_in_float32() -> None:
    A, b = np.array([[1.0], [-1.0]]), np.array([1.0 + 1e-4, -1.0])
    scale = 2.0**12  # 1e-4 of room at 4096 is one ulp of float32
    assert Polytope(A, scale * b).h(interior_point(Polytope(A, scale * b))) < 0
    with pytest.raises(AnchorError, match=r"too thin|flat"):
        interior_point(convert(Polytope(A, np.array([scale + 3e-4, -scale])), "torch", "float32"))


# -- no interior ---------------------------------------------------------------------------------------


def test_infeasible_polytope_names_the_conflicting_rows() -> None:
    A = np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, -1.0], [-1.0, -1.0]])
    b = np.array([5.0, 1.0, 9.0, 4.0, 4.0, -2.0])  # x + y <= 1 against x + y >= 2
    with pytest.raises(AnchorError, match=r"is empty: rows 1, 5 of Polytope contradict") as error:
        interior_point(Polytope(A, b))
    assert "0.354" in str(error.value)  # half of the gap 1 / sqrt(2)


def test_infeasible_batch_names_indices_and_rows() -> None:
    A = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    b = np.ones((2, 2, 4))
    b[0, 1, :2], b[1, 0, 2:] = (-1.0, -1.0), (-3.0, -3.0)
    indices = r"at batch index \(0, 1\), \(1, 0\); the set at batch index \(1, 0\) is empty: rows 2, 3"
    with pytest.raises(AnchorError, match=indices):
        interior_point(Polytope(A, b))


def test_infeasible_intersection_names_the_parts() -> None:
    far = Polytope(np.array([[0.0, 1.0], [-1.0, -1.0]]), np.array([7.0, -3.0]))
    conflict = r"rows 2, 3 of part {} \(Box\) and row 1 of part {} \(Polytope\) contradict"
    with pytest.raises(AnchorError, match=conflict.format(0, 1)):
        interior_point(Box(np.zeros(2), np.ones(2)) & far)
    with pytest.raises(AnchorError, match=conflict.format(1, 2)):
        interior_point(Ball(np.zeros(2), 9.0) & Box(np.zeros(2), np.ones(2)) & far)


def test_flat_polytope_suggests_equalities() -> None:
    A, b = np.array([[1.0, 1.0], [-1.0, 0.0], [-1.0, -1.0]]), np.array([1.0, 3.0, -1.0])
    with pytest.raises(AnchorError, match=r"is flat: rows 0, 2 of Polytope leave no room.*& Equality\(A, b\)"):
        interior_point(Polytope(A, b))
    line = Polytope(A[1:2], b[1:2]) & Equality(A[:1], b[:1])
    assert line.contains(interior_point(line))


def test_contradicting_equalities() -> None:
    both = Box(np.zeros(2), np.ones(2)) & Equality(np.ones((2, 2)), np.array([1.0, 2.0]))
    with pytest.raises(AnchorError, match="equalities A x = b of Box & Equality have no common solution"):
        interior_point(both)


@pytest.mark.parametrize("framework", ("numpy", "torch"))
def test_infeasible_curved_sets(framework: str) -> None:
    cone = SecondOrderCone(np.eye(2)[None], np.zeros((1, 2)), np.zeros((1, 2)), np.array([-0.5]))
    with pytest.raises(AnchorError, match=r"seems to be empty: the best h reached is 0\.5, at row 0"):
        interior_point(convert(cone, framework))
    bowl = Sublevel(lambda x: (x * x).sum(-1) + 1)
    with pytest.raises(AnchorError, match="seems to be empty: the best h reached is 1, at row 0 of Sublevel"):
        interior_point(bowl, start=convert(np.ones(4), framework))
    apart = Ball(np.zeros(2), np.array([1.0, 3.0])) & Ball(np.array([4.0, 0.0]), 2.0)
    both = r"at batch index 0; .*best h reached is 0.5, at row 0 of part 0 .* of part 1"
    with pytest.raises(AnchorError, match=both):
        interior_point(convert(apart, framework))


def test_flat_curved_sets_suggest_equalities() -> None:
    for set in (Quadratic(np.eye(2), np.zeros(2), 0.0), Ball(np.zeros(2), 1.0) & Ball(np.array([2.0, 0.0]), 1.0)):
        with pytest.raises(AnchorError, match=r"seems to be flat.*& Equality\(A, b\)"):
            interior_point(set)


def test_product_is_solved_block_by_block() -> None:
    A, b = bounded(np.random.default_rng(8), 3, 4)
    both = Product((Polytope(A, b), GaussianEntropy(2, 1.0)))
    x = interior_point(both)
    assert depth(A, b, x[0]) == pytest.approx(oracle(A, b), rel=1e-6) and both.h(x) < 0

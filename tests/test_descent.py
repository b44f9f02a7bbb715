"""`minimize`: feasible at every step, the optimum where it is known, and an honest status where it is not."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import inset
import inset.jax
import inset.torch
from cases import CASES, Case, convert
from inset import IGD, PGD, Radial, Status, SubGD
from inset._fields import map_point
from problems import Problems, balls, every_solver, matrices, polytopes, solve


def with_batch(case: Case, count: int = 3) -> tuple[Any, Any, Any]:
    """A case in torch with a batch of random linear objectives."""
    rng = np.random.default_rng(0)
    set, anchor = convert(case.set, "torch"), convert(case.anchor, "torch")
    return map_point(lambda v: torch.as_tensor(rng.normal(size=(count, *v.shape))), anchor), set, anchor


# -- every set ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=repr)
def test_radial_on_every_set(case: Case) -> None:
    """Feasible without tolerance, no worse than the anchor, above its lower bound, and with a verdict."""
    c, set, anchor = with_batch(case)
    result = inset.torch.minimize(c, set, anchor, steps=600)
    assert set.contains(result.x).all() and set.contains(result.average).all()
    assert (result.value <= result.history[:, 0]).all() and (result.lower <= result.value).all()
    verdict = (result.status == Status.CONVERGED) | (result.status == Status.UNBOUNDED)
    if case.name != "power-cone":  # at its apex the gradient of h is infinite: there it stalls, and says so
        assert verdict.all(), str(result)
    converged = result.status == Status.CONVERGED
    assert torch.isfinite(result.lower[converged]).all()


@pytest.mark.parametrize("method", ["paper", "chord", "ray"])
@pytest.mark.parametrize("case", [c for c in CASES if c.name != "product"], ids=repr)
def test_igd_on_every_set(case: Case, method: Any) -> None:
    c, set, anchor = with_batch(case, 2)
    result = inset.torch.minimize(c, set, anchor, IGD(0.02, method), steps=12)
    assert set.contains(result.x).all() and set.contains(result.average).all()
    assert (result.value < inset.torch.minimize(c, set, anchor, IGD(1e-12), steps=1).value).all()


# -- the paper's algorithm ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["polytope", "ball-2", "quadratic", "gaussian-kl-states", "sublevel", "equality"])
@pytest.mark.parametrize("method", ["paper", "chord", "ray"])
def test_igd_follows_the_gradient_of_f_after_g(name: str, method: Any) -> None:
    """One step from outside moves by beta / eta times the gradient of f(g(x)), found by automatic differentiation."""
    case = next(case for case in CASES if case.name == name)
    set, anchor = convert(case.set, "torch"), convert(case.anchor, "torch")

    def f(x: Any) -> torch.Tensor:
        leaves = x if isinstance(x, tuple) else (x,)
        return sum((torch.sin(leaf) + leaf).sum(-1) for leaf in leaves)  # type: ignore[return-value]

    from inset.descent._build import build
    from inset.descent.igd import IGDState

    solver = IGD(0.01, method)
    program = build(lambda fn: fn, f, set, anchor, ())
    rng = np.random.default_rng(3)
    z = torch.as_tensor(4 * case.spread * rng.normal(size=tuple(program.anchor.shape)), dtype=torch.float64)
    assert not set.contains(program.point(z)).any()
    state = solver.start(program)
    moved = solver.advance(program, IGDState(state.record, z)).z - z

    leaf = z.clone().requires_grad_(True)
    y, info = inset.project_with_info(set, program.point(leaf), anchor, method=method, strict=False)
    (slope,) = torch.autograd.grad(f(y).sum(), leaf)
    expected = -0.01 / info.eta.detach().reshape(-1, 1) * slope
    torch.testing.assert_close(moved, expected, rtol=1e-7, atol=1e-9)


def test_the_bound_of_the_theorem_holds() -> None:
    """f(average) - f* <= R L (1 + H R / |h(x0)|) / sqrt(K), where L, H and R are known; the average is feasible."""
    for problems in (balls(5, 4), polytopes(5, 4, 30)):
        exact = solve(problems, steps=400).x.numpy()
        for i, steps in itertools.product(range(5), (10, 100, 400)):
            c, anchor, fields = problems.c[i], problems.anchor[i], problems.set
            set: Any = fields if isinstance(fields, inset.Ball) else inset.Polytope(fields.A[i], fields.b[i])
            radius = float(np.linalg.norm(exact[i] - anchor)) + 1e-9
            solver = IGD.from_bounds(float(np.linalg.norm(c)), 1.0, radius, steps, depth=-float(set.h(anchor)))
            result = solve(Problems(c, set, anchor, problems.optimum[i]), solver, steps)
            assert convert(set, "torch").contains(result.average)
            error = float(c @ result.average.numpy()) - problems.optimum[i]
            assert -1e-9 <= error <= solver.bound()
            assert int(result.evaluations) == steps


def test_from_bounds_is_the_formula() -> None:
    solver = IGD.from_bounds(L=2.0, H=3.0, R=0.5, K=400, depth=0.5)
    assert solver.step == pytest.approx(0.5 / (2 * (1 + 6 * 0.5) * 20))
    assert solver.bound() == pytest.approx(0.5 * 2 * (1 + 6 * 0.5) / 20)
    with pytest.raises(ValueError, match="from_bounds"):
        IGD(0.1).bound()
    with pytest.raises(ValueError, match="R=-1"):
        IGD.from_bounds(1, 1, -1, 1)


def test_average_is_the_mean_of_the_projected_iterates() -> None:
    """Three steps by hand: x_0 is the anchor, g(x_k) = x_k / max(1, |x_k|) from the centre of a ball."""
    c = np.array([3.0, 4.0])
    result = solve(Problems(c, inset.Ball(np.zeros(2), 1.0), np.zeros(2), np.array(-5.0)), IGD(0.15), 3)
    # x_1 = -0.15 c has norm 0.75; x_2 = -0.3 c has norm 1.5 and goes to -c / 5
    np.testing.assert_allclose(result.average.numpy(), -(0 + 0.15 + 0.2) / 3 * c, rtol=1e-12)
    np.testing.assert_allclose(result.value.numpy(), -5, rtol=1e-12)
    np.testing.assert_allclose(result.history.numpy(), [0, -0.15 * 25, -5], rtol=1e-12)


def test_subgd_and_pgd_by_hand() -> None:
    c = np.array([3.0, 4.0])
    ball = Problems(c, inset.Ball(np.zeros(2), 1.0), 0.5 * c / 5, np.array(-5.0))
    # 0.5, 0.1, -0.3, -0.7, -1.1, -1.02, -0.94 along c/5: outside, SubGD goes back by the step, |grad h| being 1
    sub = solve(ball, SubGD(0.08), 7)
    np.testing.assert_allclose(sub.history.numpy(), [2.5, 0.5, -1.5, -3.5, -3.5, -3.5, -4.7], atol=1e-12)
    near = solve(ball, PGD(0.1), 4)
    np.testing.assert_allclose(near.history.numpy(), [0, -2.5, -5, -5], atol=1e-12)
    scaled = solve(ball, SubGD(0.2, rescale=True), 4)  # 0.5 -> -0.5 -> -1.5 -> -1.1: back by 0.2 / |h(x0)|
    assert float(scaled.value) == pytest.approx(-2.5)


# -- radial ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make, sizes",
    [(polytopes, (20, 10, 40)), (balls, (10, 30)), (matrices, (10, 6, 6)), (polytopes, (4, 30, 120))],
    ids=["polytopes", "balls", "matrices", "polytopes-30"],
)
def test_radial_reaches_the_optimum(make: Any, sizes: tuple[int, ...]) -> None:
    """Median gap 1e-10, worst 1e-6, within the default steps or 100 per coordinate; certified."""
    problems = make(*sizes)
    result = solve(problems, steps=max(1000, 100 * problems.c.shape[-1]))
    gap = problems.gap(result.value)
    assert np.median(gap) <= 1e-10 and gap.max() <= 1e-6
    assert (result.status == Status.CONVERGED).all(), str(result)
    bound = problems.gap(result.lower)
    assert (bound <= 1e-9).all() and (bound >= -1e-5).all()


@pytest.mark.parametrize("steps", [5, 20, 60, 200])
def test_the_lower_bound_is_one(steps: int) -> None:
    problems = polytopes(20, 10, 40)
    result = solve(problems, steps=steps)
    assert (problems.gap(result.lower) <= 1e-9).all()
    met = np.asarray(result.value - result.lower <= -1e-6 * result.lower) & np.isfinite(result.lower.numpy())
    assert (met == (np.asarray(result.status) == Status.CONVERGED)).all()


def shallow(problems: Problems, depth: float = 1e-6) -> Problems:
    """The same problems from an anchor this deep, relative to the old one."""
    rng = np.random.default_rng(1)
    away = rng.normal(size=problems.anchor.shape)
    away /= np.linalg.norm(away, axis=-1, keepdims=True)
    low, high = np.zeros(len(away)), np.full(len(away), 1e3)
    start = problems.set.h(problems.anchor)
    for _ in range(200):
        middle = (low + high) / 2
        inside = problems.set.h(problems.anchor + middle[:, None] * away) < depth * start
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    keep = high < 1e3
    fields = inset.LMI(problems.set.A[keep], problems.set.C[keep])
    anchor = (problems.anchor + low[:, None] * away)[keep]
    return Problems(problems.c[keep], fields, anchor, problems.optimum[keep])


def test_radial_leaves_a_shallow_anchor() -> None:
    problems = shallow(matrices(10, 6, 6))
    assert len(problems.c) >= 5
    result = solve(problems, steps=2000)
    assert problems.gap(result.value).max() <= 1e-8


def test_unbounded_problems_are_flagged() -> None:
    rng = np.random.default_rng(0)
    A, c = rng.normal(size=(10, 3, 6)), rng.normal(size=(10, 6))
    result = solve(Problems(c, inset.Polytope(A, np.ones((10, 3))), np.zeros((10, 6)), np.zeros(10)))
    assert (result.status == Status.UNBOUNDED).all() and (result.value < -1e6).all()
    assert torch.isneginf(result.lower).all()


def test_a_convex_objective_goes_through_its_epigraph() -> None:
    """Quadratics of condition 100 over a box, whose optimum is separable: clip the centre."""
    weights = torch.tensor([1.0, 10.0, 100.0], dtype=torch.float64)
    centre = torch.as_tensor(np.random.default_rng(0).normal(size=(8, 3)) * 2)
    box = inset.Box(-torch.ones(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    exact = (weights * (centre.clip(-1, 1) - centre) ** 2).sum(-1)

    def f(x: torch.Tensor) -> torch.Tensor:
        return (weights * (x - centre) ** 2).sum(-1)

    for steps in (20, 40, 80):
        early = inset.torch.minimize(f, box, 0.1 * torch.ones(3).double(), steps=steps)
        assert (early.lower <= exact + 1e-9).all() and (early.value >= exact - 1e-9).all()
    result = inset.torch.minimize(f, box, 0.1 * torch.ones(3).double())
    assert result.x.shape == (8, 3) and box.contains(result.x).all()
    torch.testing.assert_close(result.value, exact, rtol=1e-9, atol=1e-9)
    assert ((result.lower <= exact + 1e-9) & (exact - result.lower <= 1e-4)).all()


def test_igd_takes_any_objective() -> None:
    """A nonconvex one: descent goes down, and stays in the set."""
    ball = inset.Ball(torch.zeros(3, dtype=torch.float64), 1.0)

    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(3 * x).sum(-1)

    result = inset.torch.minimize(f, ball, torch.full((3,), 0.2, dtype=torch.float64), IGD(0.02), 400)
    assert ball.contains(result.x) and float(result.value) < -2.8


# -- equalities --------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", [Radial(), IGD(0.05)], ids=repr)
def test_equalities_are_eliminated(solver: Any) -> None:
    """A linear program with equations against scipy, a batch of right-hand sides."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(2)
    A, c = rng.normal(size=(2, 6)), rng.normal(size=6)
    inside = rng.uniform(0.2, 0.8, size=(4, 6))
    b = inside @ A.T
    result = solve(
        Problems(c, inset.Box(np.zeros(6), np.ones(6)) & inset.Equality(A, b), inside, np.zeros(4)),
        solver,
        1000 if isinstance(solver, Radial) else 300,
    )
    exact = [linprog(c, A_eq=A, b_eq=row, bounds=(0, 1)).fun for row in b]
    assert np.abs(result.x.numpy() @ A.T - b).max() < 1e-12
    assert (np.asarray(result.value) >= np.array(exact) - 1e-9).all()
    if isinstance(solver, Radial):
        np.testing.assert_allclose(result.value, exact, atol=1e-9)


def test_anchor_may_be_left_out() -> None:
    result = inset.torch.minimize(torch.tensor([1.0, 2.0, 0.5]).double(), inset.Simplex(3, 2.0) & _box())
    torch.testing.assert_close(result.x, torch.tensor([1.0, 0.0, 1.0]).double(), atol=1e-9, rtol=0)


def _box() -> inset.Box:
    return inset.Box(torch.full((3,), -1.0).double(), torch.ones(3).double())


# -- batches and frameworks --------------------------------------------------------------------------


@every_solver
def test_batch_equals_loop(solver: Any) -> None:
    """At steps at which rounding, which differs between processors, does not yet decide when a search has ended."""
    problems = polytopes(4, 5, 15)
    steps = 80 if isinstance(solver, Radial) else 60
    together = solve(problems, solver, steps)
    for i in range(4):
        alone = Problems(
            problems.c[i],
            inset.Polytope(problems.set.A[i], problems.set.b[i]),
            problems.anchor[i],
            problems.optimum[i],
        )
        result = solve(alone, solver, steps)
        assert result.value.shape == () and result.history.shape == (len(result.recorded),)
        np.testing.assert_allclose(result.value, together.value[i], rtol=1e-10)
        np.testing.assert_allclose(result.average, together.average[i], rtol=1e-9)
        np.testing.assert_allclose(result.history, together.history[i], rtol=1e-9)


@every_solver
def test_torch_equals_jax(solver: Any) -> None:
    problems = polytopes(4, 5, 15)
    steps = 400 if isinstance(solver, Radial) else 60
    mine = solve(problems, solver, steps)
    c, set, anchor = (convert(v, "jax") for v in (problems.c, problems.set, problems.anchor))
    theirs = inset.jax.minimize(c, set, anchor, solver, steps)
    assert isinstance(theirs.x, jax.Array) and set.contains(theirs.x).all()
    np.testing.assert_allclose(theirs.value, mine.value, rtol=1e-10)
    if not isinstance(solver, Radial):
        np.testing.assert_allclose(theirs.history, mine.history, rtol=1e-9)
    else:
        assert (np.asarray(theirs.status) == Status.CONVERGED).all()


def test_step_sizes_broadcast() -> None:
    """Step sizes as a batch dimension of their own: each row is the run with that number."""
    problems = polytopes(3, 4, 12)
    sizes = np.array([0.1, 0.01])
    both = solve(problems, IGD(sizes[:, None]), 50)
    assert both.value.shape == (2, 3)
    for k, size in enumerate(sizes):
        np.testing.assert_allclose(both.history[k], solve(problems, IGD(float(size)), 50).history, rtol=1e-12)


def test_jit_and_vmap() -> None:
    problems = polytopes(3, 4, 12)
    c, set, anchor = (convert(v, "jax") for v in (problems.c, problems.set, problems.anchor))
    inside = jax.jit(lambda c, set: inset.jax.minimize(c, set, anchor, steps=150).value)(c, set)
    np.testing.assert_allclose(inside, problems.optimum, rtol=1e-6)
    one = jax.vmap(lambda c, A: inset.jax.minimize(c, inset.Polytope(A, set.b[0]), jnp.zeros(4), IGD(0.05), 40).value)
    np.testing.assert_allclose(one(c, set.A), solve(problems, IGD(0.05), 40).value, rtol=1e-10)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_float32(framework: str) -> None:
    """Four digits, in float32 throughout, and feasible in it."""
    problems = polytopes(10, 6, 24)
    c, set, anchor = (convert(v, framework, "float32") for v in (problems.c, problems.set, problems.anchor))
    minimize = inset.torch.minimize if framework == "torch" else inset.jax.minimize
    result = minimize(c, set, anchor)
    assert str(result.x.dtype).endswith("float32") and str(result.value.dtype).endswith("float32")
    assert set.contains(result.x).all()
    assert problems.gap(np.asarray(result.value, dtype=float)).max() < 1e-4
    assert (np.asarray(result.status) == Status.CONVERGED).all()

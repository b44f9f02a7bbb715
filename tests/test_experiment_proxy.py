"""Optimisation proxies: the programs and their optima, the network in both frameworks, how answers are judged."""

from __future__ import annotations

import dataclasses
import sys
from types import SimpleNamespace
from typing import Any

import cvxpy
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from experiments.common import options
from experiments.common.store import Store, read_arrays
from experiments.proxy import optima, summary, tables
from experiments.proxy.config import VARIANTS, Config
from experiments.proxy.methods import METHODS, Method, Settings
from experiments.proxy.network import batches, first_weights, step_size
from experiments.proxy.pinet import JaxTrainee, pinet_layer
from experiments.proxy.problem import Problem, draw
from experiments.proxy.trainee import TorchTrainee, layer
from experiments.proxy.training import judge, train, trainee

import inset
import inset.jax

CPU = torch.device("cpu")
SMALL = Config(
    variables=20, equalities=6, inequalities=12, samples=1200, validation=64, test=64, width=32, epochs=30, batch=256
)
PLAIN = Settings(SMALL.rate, SMALL.batch)
PUBLISHED = (0.2946650026871097, 0.5397451964974905, 0.9545738351592995, -0.0920678261745979, 5.749452028572417)
PUBLISHED_X = (-0.7808882319130954, 0.6765175401671852)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return draw(SMALL)


@pytest.fixture(scope="module")
def benchmark() -> Problem:
    return draw(Config())


# -- the programs ----------------------------------------------------------------------------------------------------


def test_the_benchmark_is_the_published_one(benchmark: Problem) -> None:
    """Numbers of the data that DC3 and Pi-net publish: first and last entries, and the mean least values."""
    assert [len(getattr(benchmark, part)) for part in ("train", "validation", "test")] == [7952, 1024, 1024]
    found = (benchmark.Q[0], benchmark.p[-1], benchmark.A[0, 0], benchmark.G[-1, -1], benchmark.h[0])
    np.testing.assert_allclose(found, PUBLISHED, rtol=1e-12)
    np.testing.assert_allclose(benchmark.test[[0, -1], 0], PUBLISHED_X, rtol=1e-12)
    shipped = read_arrays(optima.SHIPPED)
    np.testing.assert_allclose(shipped["convex-test"].mean(), -15.0372121160476, rtol=1e-12)
    np.testing.assert_allclose(shipped["nonconvex-test"].mean(), -11.582457585083, rtol=1e-6)  # its solver's digits


def test_anchors_are_strictly_feasible_for_every_parameter(problem: Problem) -> None:
    """Also near the corners of the cube of parameters, where no sample is."""
    corners = 0.999 * np.sign(np.random.default_rng(0).standard_normal((200, SMALL.equalities)))
    for x in (problem.train, problem.test, corners):
        y = problem.anchors(x)
        assert (y @ problem.G.T < problem.h).all()
        np.testing.assert_allclose(y @ problem.A.T, x, atol=1e-12)


def test_the_problem_depends_on_its_seed_only(problem: Problem) -> None:
    again, other = draw(dataclasses.replace(SMALL, seeds=1)), draw(dataclasses.replace(SMALL, seed=18))
    assert all(np.array_equal(getattr(again, f.name), getattr(problem, f.name)) for f in dataclasses.fields(Problem))
    assert not np.allclose(other.A, problem.A)


def test_convex_optima_agree_with_another_solver(problem: Problem) -> None:
    y, x = cvxpy.Variable(SMALL.variables), cvxpy.Parameter(SMALL.equalities)
    goal = cvxpy.sum(cvxpy.multiply(problem.Q / 2, cvxpy.square(y))) + problem.p @ y
    program = cvxpy.Problem(cvxpy.Minimize(goal), [problem.G @ y <= problem.h, problem.A @ y == x])
    found = optima.solve(problem, problem.test[:4], "convex", CPU)
    for k in range(4):
        x.value = problem.test[k]
        program.solve(solver=cvxpy.CLARABEL)
        np.testing.assert_allclose(problem.value(found[k], "convex"), float(program.value), rtol=1e-7)  # type: ignore[arg-type]


@pytest.mark.parametrize("variant", VARIANTS)
def test_optima_are_feasible_and_satisfy_the_optimality_conditions(variant: str, problem: Problem) -> None:
    """-grad f is a combination of the rows of A and, with weights that are not negative, of the active rows of G."""
    x = problem.test[:8]
    y = optima.solve(problem, x, variant, CPU)
    assert (y @ problem.G.T <= problem.h).all() and np.abs(y @ problem.A.T - x).max() < 1e-12
    slopes = problem.Q * y + problem.p * (np.cos(y) if variant == "nonconvex" else 1)
    counts = []
    for point, slope in zip(y, slopes, strict=True):
        active = problem.h - problem.G @ point < 1e-7
        rows = np.concatenate([problem.A, problem.G[active]])
        weights, *_ = np.linalg.lstsq(rows.T, -slope, rcond=None)
        assert np.abs(rows.T @ weights + slope).max() < 1e-7 and (weights[SMALL.equalities :] > -1e-7).all()
        counts.append(active.sum())
    assert max(counts) >= 2, "optima are to lie on faces"


def test_shipped_optima_are_those_of_the_solver(benchmark: Problem) -> None:
    shipped = read_arrays(optima.SHIPPED)
    for variant in VARIANTS:
        found = benchmark.value(optima.solve(benchmark, benchmark.test[:8], variant, CPU), variant)
        np.testing.assert_allclose(shipped[f"{variant}-test"][:8], found, rtol=1e-10)


def test_other_problems_are_solved_anew(problem: Problem, benchmark: Problem) -> None:
    assert not np.array_equal(optima.fingerprint(problem), optima.fingerprint(benchmark))
    config = dataclasses.replace(SMALL, variants=("convex",))
    found = optima.least_values(problem, config, CPU)
    assert set(found) == {"convex-validation", "convex-test"} and len(found["convex-test"]) == SMALL.test
    shipped = optima.least_values(benchmark, Config(), CPU)
    np.testing.assert_array_equal(shipped["convex-test"], read_arrays(optima.SHIPPED)["convex-test"])


# -- the network -----------------------------------------------------------------------------------------------------


def test_batches_are_all_rows_once_in_a_new_order() -> None:
    epochs = batches(10, 4, seed=3)
    first, second = next(epochs), next(epochs)
    assert [len(piece) for piece in first] == [4, 4, 2]
    assert sorted(np.concatenate(first)) == sorted(np.concatenate(second)) == list(range(10))
    assert not np.array_equal(np.concatenate(first), np.concatenate(second))
    np.testing.assert_array_equal(np.concatenate(next(batches(10, 4, seed=3))), np.concatenate(first))


def test_first_weights_are_bounded_by_the_number_of_inputs() -> None:
    weights = first_weights(SMALL, 0)
    assert [W.shape for W, _ in weights] == [(6, 32), (32, 32), (32, 20)]
    for W, b in weights:
        bound = 1 / np.sqrt(len(W))
        assert 0.9 * bound < np.abs(W).max() <= bound and np.abs(b).max() <= bound
    assert not np.array_equal(weights[0][0], first_weights(SMALL, 1)[0][0])


def test_step_sizes() -> None:
    assert step_size(0.1, False, 0.7) == 0.1
    np.testing.assert_allclose([step_size(0.1, True, done) for done in (0, 0.5, 1)], [0.1, 0.05, 0], atol=1e-17)


@pytest.mark.parametrize(("variant", "pull"), [("convex", 0.0), ("nonconvex", 0.1)])
def test_both_frameworks_train_the_same_network(variant: str, pull: float, problem: Problem) -> None:
    """Ten updates with the chord behind it: weights, data, objective, pull, slopes and Adam agree."""

    def chord(problem: Problem, config: Config) -> Any:
        G, h, A, inverse = map(jnp.asarray, (problem.G, problem.h, problem.A, problem.inverse))

        def apply(raw: Any, x: Any) -> Any:
            feasible = inset.Polytope(G, h) & inset.Equality(A, x, inverse)
            return inset.jax.project(feasible, raw, x @ inverse.T)

        return apply

    settings = Settings(SMALL.rate, SMALL.batch, pull=pull)
    one = TorchTrainee(problem, SMALL, variant, Method("chord"), settings, 0, CPU)
    other = JaxTrainee(problem, SMALL, variant, settings, 0, chord)
    np.testing.assert_allclose(other.predict(problem.test), one.predict(problem.test), atol=1e-12)
    for rows, rate in zip(next(batches(len(problem.train), 100, 0)), (1e-2, 5e-3, *[1e-3] * 8), strict=False):
        one.update(rows, rate)
        other.update(rows, rate)
    np.testing.assert_allclose(other.predict(problem.test), one.predict(problem.test), atol=1e-9)
    assert np.abs(one.predict(problem.test) - problem.anchors(problem.test)).max() > 0.1


def test_pinet_is_called_with_its_settings(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that only remembers what it is given: the program, the parameters, and the tuned numbers."""
    seen: dict[str, Any] = {}

    def remember(name: str) -> Any:
        return lambda **given: seen.update({name: given}) or SimpleNamespace(**given)

    def call(y_raw: Any, **given: Any) -> Any:
        seen["call"] = given
        return SimpleNamespace(x=y_raw.x + y_raw.eq.b.sum()), None

    names = ("EqualityConstraint", "AffineInequalityConstraint", "EquilibrationParams", "ProjectionInstance")
    fake = {name: remember(name) for name in (*names, "EqualityConstraintsSpecification")}
    project = remember("Project")
    fake["Project"] = lambda **given: project(**given) and SimpleNamespace(call=call)
    monkeypatch.setitem(sys.modules, "pinet", SimpleNamespace(**fake))  # type: ignore[arg-type]
    apply = pinet_layer(problem, SMALL)
    raw, x = np.ones((2, SMALL.variables)), problem.test[:2]
    np.testing.assert_allclose(apply(raw, x), raw + x.sum())
    assert seen["call"] == {"sigma": SMALL.pinet_sigma, "omega": 1.7, "n_iter": 50, "n_iter_bwd": 25, "fpi": False}
    assert seen["EquilibrationParams"]["max_iter"] == 25 and seen["Project"]["unroll"] is False
    np.testing.assert_allclose(seen["EqualityConstraint"]["a_mat"][0], problem.A, rtol=1e-6)
    np.testing.assert_allclose(seen["AffineInequalityConstraint"]["c_mat"][0], problem.G, rtol=1e-6)
    np.testing.assert_allclose(seen["AffineInequalityConstraint"]["ub"][0, :, 0], problem.h, rtol=1e-6)
    assert np.isneginf(seen["AffineInequalityConstraint"]["lb"]).all()


# -- the layers ------------------------------------------------------------------------------------------------------


def test_layers_are_those_of_the_methods() -> None:
    assert layer(METHODS["penalty"]) is None
    for name in ("paper", "chord", "ray", "near"):
        found = layer(METHODS[name])
        assert found is not None and found.method == name and found.strict


def test_the_penalty_counts_violated_inequalities_only(problem: Problem) -> None:
    x = torch.as_tensor(problem.train[:5])
    free = TorchTrainee(problem, SMALL, "convex", Method("none"), PLAIN, 0, CPU)
    weighted = TorchTrainee(problem, SMALL, "convex", Method("none"), Settings(1e-2, 4, penalty=3.0), 0, CPU)
    y = free.answer(x).detach().numpy()
    excess = np.maximum(y @ problem.G.T - problem.h, 0)
    np.testing.assert_allclose((weighted.loss(x) - free.loss(x)).item(), 3 * (excess**2).sum(-1).mean(), atol=1e-12)
    np.testing.assert_allclose(y @ problem.A.T, problem.train[:5], atol=1e-12)


def test_near_beats_the_chord_and_both_are_feasible_to_the_last_bit(problem: Problem) -> None:
    """The claim of the experiment on a small problem, with what is stored for it."""
    least = problem.value(optima.solve(problem, problem.validation, "nonconvex", CPU), "nonconvex")
    ends = {}
    for method in ("chord", "near", "near_float32"):
        student = trainee(problem, SMALL, "nonconvex", method, PLAIN, 0, CPU)
        curve = train(student, problem, SMALL, "nonconvex", method, PLAIN, 0, least)
        assert curve["curve"].shape == (SMALL.epochs, 3) and (curve["seconds"] > 0).all()
        found = judge(problem, problem.validation, student.predict(problem.validation), "nonconvex", least)
        np.testing.assert_allclose(curve["curve"][-1, 0], found["mean"], rtol=1e-5)
        assert found["inequality"] == 0 and found["violated"] == 0
        ends[method] = found
    assert 3 * ends["near"]["mean"] < ends["chord"]["mean"] and ends["near"]["quantiles"][0] > -1e-9
    assert ends["near_float32"]["mean"] < 1.1 * ends["near"]["mean"]
    assert 1e-9 < ends["near_float32"]["equality"] < 1e-4 and ends["near"]["equality"] < 1e-12


def test_answers_are_judged_in_float64_against_the_set_their_layer_knew(problem: Problem) -> None:
    x = problem.test[:3]
    least = problem.value(optima.solve(problem, x, "convex", CPU), "convex")
    y = optima.solve(problem, x, "convex", CPU)
    found = judge(problem, x, y, "convex", least)
    np.testing.assert_allclose(found["quantiles"], 0, atol=1e-12)
    assert found["inequality"] == 0 and found["active"] >= 1
    moved = y + 1e-3 * problem.G[np.argmin(problem.h - y[0] @ problem.G.T)]
    worse = judge(problem, x, moved, "convex", least)
    assert worse["inequality"] == np.maximum(moved @ problem.G.T - problem.h, 0).max() > 0
    assert worse["equality"] > 1e-4 and 0 < worse["violated"] <= 1
    narrow = problem.anchors(x).astype(np.float32)
    rounded = judge(problem, x, narrow, "convex", least)
    gap = narrow.astype(np.float64) @ problem.A.astype(np.float32).astype(np.float64).T - x.astype(np.float32)
    np.testing.assert_allclose(rounded["equality"], np.abs(gap).max())
    np.testing.assert_allclose(rounded["mean"], ((problem.value(narrow, "convex") - least) / -least).mean(), rtol=1e-5)


def test_the_large_problem_has_a_command() -> None:
    command = options.command("proxy", Config.large())
    assert "--variables 1000 --equalities 500 --inequalities 500" in command and "--pinet-sigma 0.161" in command
    assert options.scale(Config.large()) == "custom"


def test_readme_has_the_large_run() -> None:
    store = Store.read(summary.LARGE)
    assert store.finished and store.config(Config) == Config.large()
    table, text = tables.large(store), (summary.LARGE.parent / "README.md").read_text()
    for line in (table.head, *table.rows):
        assert f"| {' | '.join(line)} |" in text, line
    assert store.manifest["command"].split("run ")[1] in text.replace(" \\\n ", "")
    assert tables.tables(Store.read(summary.LARGE.with_name("results")))[-1] == table


def test_good_after_so_many_seconds() -> None:
    curve = np.array([[5, 3, 1, 2], [5, 1, 1, 1], [1, 9, 9, 9.0]])[..., None]
    cell = {"curve": curve, "seconds": np.array([[1.0, 1, 1, 1], [2, 2, 2, 2], [9, 1, 1, 1]])}
    assert summary.reached(cell, 2.0) == 4.0  # of 3, 4 and 9
    assert summary.reached(cell, 1.0) is None

"""Appendix A: the generators and their optima, resumption, and that figures and claims say what was stored."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import cvxpy
import jax
import numpy as np
import pytest
from experiments.common import places
from experiments.common.store import Store
from experiments.convex import claims as said
from experiments.convex import curves as compared
from experiments.convex import figure as drawn
from experiments.convex import run as running
from experiments.convex.config import Config
from experiments.convex.generators import DRAW, Arrays, exponential, sample
from experiments.convex.optima import OMEGA, exp_optimum, soc_optimum, vertex
from experiments.convex.problems import Problems, problems
from experiments.convex.tables import tables

import inset
from inset.jax import minimize

SMALL = Config(instances=4)
TINY = Config(classes=("Norm",), instances=3, iterations=40, radial_iterations=20, norm_dimension=5, workers=1)


@pytest.fixture(scope="module")
def arrays() -> dict[str, Arrays]:
    return {name: sample(name, SMALL) for name in DRAW}


@pytest.fixture(scope="module")
def instances(arrays: dict[str, Arrays]) -> dict[str, Problems]:
    return {name: problems(name, a) for name, a in arrays.items()}


@pytest.fixture(scope="module")
def committed() -> Store:
    return Store.read(places.committed_folder("convex"))


# -- the generators --------------------------------------------------------------------------------------------------


def test_lambert_w() -> None:
    """W(1) exp(W(1)) = 1, hence the constraint of Exp is least at 0."""
    assert abs(OMEGA * np.exp(OMEGA) - 1) < 1e-15
    zero = np.zeros(2)
    steps = 1e-4 * np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0], [0.7, -0.7]])
    assert (exponential(zero + steps) > exponential(zero)).all() and exponential(zero) < 0


@pytest.mark.parametrize("name", DRAW)
def test_anchors_are_strictly_feasible_and_optima_feasible(name: str, instances: dict[str, Problems]) -> None:
    task = instances[name]
    assert (task.set.h(task.anchor) < 0).all()
    assert (task.set.h(task.optimum) < 1e-12).all() and (task.set.h(task.optimum) > -1e-11).all()
    assert (task.start > task.value).all()
    np.testing.assert_allclose(task.error(task.start), 1)
    np.testing.assert_allclose(task.error(task.value), 0, atol=1e-13)


def by_cvxpy(name: str, a: dict[str, np.ndarray]) -> float:
    """The optimal value of one instance, from the arrays alone."""
    x = cvxpy.Variable(len(a["c"]))
    if name in ("Lin", "LinB"):
        rules: list[Any] = [a["A"] @ x <= a["b"]]
    elif name == "SDP":
        rules = [sum(x[i] * a["A"][i] for i in range(len(a["c"]))) - a["C"] >> 0]
    elif name == "SOC":
        rules = [cvxpy.norm(A @ x + b) <= z @ x + d for A, b, z, d in zip(a["A"], a["b"], a["z"], a["d"], strict=True)]
    elif name == "Norm":
        rules = [cvxpy.norm(x) <= 1]
    else:
        rules = [cvxpy.sum_squares(x - OMEGA) / 2 + cvxpy.sum(cvxpy.exp(x - OMEGA)) <= len(a["c"])]
    problem = cvxpy.Problem(cvxpy.Minimize(a["c"] @ x), rules)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Solution may be inaccurate")  # eight digits, say, not nine
        problem.solve(solver=cvxpy.CLARABEL)
    assert problem.status in (cvxpy.OPTIMAL, cvxpy.OPTIMAL_INACCURATE)
    return float(problem.value)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", DRAW)
def test_optimal_values_agree_with_cvxpy(name: str, arrays: dict[str, Arrays], instances: dict[str, Problems]) -> None:
    for i in range(SMALL.instances):
        found = by_cvxpy(name, {key: value[i] for key, value in arrays[name].items()})
        assert abs(found - instances[name].value[i]) < 1e-6 * (1 + abs(found))


def test_optima_satisfy_the_optimality_conditions_to_rounding(arrays: dict[str, Arrays]) -> None:
    """-c is a combination of the active gradients with positive weights: no other solver is that precise."""
    a = arrays["SOC"]
    for i in range(SMALL.instances):
        x, A, b, z, d = (a[k][i] for k in ("optimum", "A", "b", "z", "d"))
        v = A @ x + b
        size = np.linalg.norm(v, axis=-1)
        active = abs(size - z @ x - d) < 1e-10
        slopes = ((v / size[:, None])[:, None] @ A)[:, 0] - z
        weights, *_ = np.linalg.lstsq(slopes[active].T, -a["c"][i], rcond=None)
        assert weights.min() > 0 and abs(slopes[active].T @ weights + a["c"][i]).max() < 1e-13
    c = arrays["Exp"]["c"]
    v = arrays["Exp"]["optimum"] - OMEGA
    slope = v + np.exp(v)
    parallel = slope / np.linalg.norm(slope, axis=-1, keepdims=True)
    np.testing.assert_allclose(parallel, -c, atol=1e-14)


def test_sdp_is_built_with_its_optimum(arrays: dict[str, Arrays], instances: dict[str, Problems]) -> None:
    """No feasible point is better: c.x - c.y = <X, S(x)> >= 0; and the anchor is as deep as was asked for."""
    task = instances["SDP"]
    assert (-task.set.h(task.anchor) >= SMALL.sdp_depth).all()
    noise = np.random.default_rng(0).normal(size=(200, *task.c.shape))
    points = inset.project(task.set, task.optimum + noise, task.anchor, method="ray")
    assert ((task.c * points).sum(-1) >= task.value - 1e-12).all()


def test_problems_without_a_usable_optimum_are_refused() -> None:
    up = np.array([1.0, 0.0])
    assert np.isnan(vertex(up, np.array([[0.0, 1.0], [0.0, -1.0]]), np.ones(2))).all(), "unbounded"
    square = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    assert np.isnan(vertex(up, square, np.ones(4))).all(), "a whole edge is optimal"
    np.testing.assert_allclose(vertex(np.array([1.0, 2.0]), square, np.ones(4)), [-1, -1])
    cone = (np.eye(2)[None], np.zeros((1, 2)), np.array([[0.0, 2.0]]), np.zeros(1))
    assert np.isnan(soc_optimum(np.array([0.0, -1.0]), *cone)).all(), "unbounded"


def test_exp_optimum_is_on_the_boundary_for_every_direction() -> None:
    angle = np.linspace(0, 2 * np.pi, 200)
    x = exp_optimum(np.stack([np.cos(angle), np.sin(angle)], axis=-1))
    assert abs(exponential(x)).max() < 4e-15


@pytest.mark.parametrize("name", DRAW)
def test_instances_depend_on_seed_and_number_only(name: str, arrays: dict[str, Arrays]) -> None:
    fewer = sample(name, dataclasses.replace(SMALL, instances=2))
    other = sample(name, dataclasses.replace(SMALL, seed=1))
    for key, value in arrays[name].items():
        np.testing.assert_array_equal(fewer[key], value[:2])
    assert not np.array_equal(other["c"], arrays[name]["c"])


# -- the run ---------------------------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, dict[str, np.ndarray]]:
    store = Store.read(folder)
    return {path.stem: store.load(path.stem) for path in sorted(folder.glob("*.npz"))}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny")
    running.run(TINY, out)
    return out


def test_run_stores_every_cell(tiny: Path) -> None:
    found = contents(tiny)
    assert set(found) == {running.cell(*job) for job in running.PLAN if job[0] in TINY.classes}
    assert Store.read(tiny).finished
    for name, cell in found.items():
        rows = 1 if name.endswith("radial") else len(TINY.steps)
        assert cell["quartiles"].shape == (rows, 3, len(cell["recorded"]))
        assert (np.diff(cell["quartiles"], axis=-1) <= 0).all(), "best so far"
        assert (np.diff(cell["quartiles"], axis=1) >= 0).all() and np.isfinite(cell["quartiles"]).all()
        np.testing.assert_allclose(cell["worst"][:, -1], cell["final"].max(-1))


def test_run_stores_what_minimize_finds(tiny: Path) -> None:
    """The batch over instances and step sizes, against one problem at a time."""
    task = problems("Norm", sample("Norm", TINY))
    final = Store.read(tiny).load("Norm-igd")["final"]
    with jax.enable_x64(True):
        for row, step in ((0, TINY.steps[0]), (2, TINY.steps[2])):
            for i in range(TINY.instances):
                ball = inset.Ball(np.zeros(TINY.norm_dimension), 1.0)
                result = minimize(task.c[i], ball, task.anchor[i], inset.IGD(step), TINY.iterations)
                error = (float(result.history[-1]) - task.value[i]) / (task.start[i] - task.value[i])
                np.testing.assert_allclose(final[row, i], error, rtol=1e-6)


def test_interrupted_run_goes_on(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after two cells, it computes only the others, and ends with the same numbers."""
    done: list[tuple[str, str]] = []
    solve = running.solve

    def watched(folder: Path, name: str, method: str, config: Config) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append((name, method))
        solve(folder, name, method, config)

    monkeypatch.setattr(running, "solve", watched)
    with pytest.raises(KeyboardInterrupt):
        running.run(TINY, tmp_path)
    first = {name: (tmp_path / f"{running.cell(*name)}.npz").stat().st_mtime_ns for name in done}
    assert len(first) == 2 and not Store.read(tmp_path).finished

    again: list[tuple[str, str]] = []
    monkeypatch.setattr(running, "solve", lambda *a: (again.append((a[1], a[2])), solve(*a)))
    running.run(TINY, tmp_path)
    assert Store.read(tmp_path).finished
    assert set(again).isdisjoint(done)
    assert set(again) | set(done) == {job for job in running.PLAN if job[0] in TINY.classes}
    assert all((tmp_path / f"{running.cell(*name)}.npz").stat().st_mtime_ns == t for name, t in first.items())
    resumed, whole = contents(tmp_path), contents(tiny)
    for name, cell in whole.items():
        for key in set(cell) - {"seconds"}:
            np.testing.assert_array_equal(resumed[name][key], cell[key], err_msg=f"{name} {key}")


def test_chord_is_igd_where_there_is_one_constraint() -> None:
    assert running.cell("SDP", "chord") == "SDP-igd" and running.cell("SOC", "chord") == "SOC-chord"


# -- what the results say --------------------------------------------------------------------------------------------


def fake(tmp_path: Path, **medians: list[float]) -> Store:
    """A store with one record of Norm per method and step size."""
    store = Store.create(tmp_path, "convex", dataclasses.replace(TINY, classes=("Norm",)))
    for method, values in medians.items():
        quartiles = np.repeat(np.array(values)[:, None, None], 3, axis=1)
        store.save(f"Norm-{method}", {"recorded": np.ones(1), "quartiles": quartiles, "worst": quartiles[:, 1]})
    return store


def test_ties_are_no_wins(tmp_path: Path) -> None:
    store = fake(tmp_path, igd=[0.1, 0.5, 0.5, 0.9], subgd=[0.2, 0.5, 0.5 + 1e-9, 0.8])
    assert list(compared.wins(store).values()) == [True, False, False, False]


def test_where_curves_part() -> None:
    target = np.array([1.0, 0.1, 0.01, 1e-3, -1e-17])
    assert compared.parts_at(np.array([1.0, 0.15, 0.02, 0.01, 0.01]), target) == 1e-3
    assert np.isnan(compared.parts_at(np.array([1.0, 0.1, 0.01, 1e-3, 1e-16]), target))


def test_claims_count_what_is_stored(committed: Store) -> None:
    """The count of the 20 pairs, by hand from the final errors of every instance."""
    count = 0
    for name in ("Lin", "SDP", "SOC", "Norm", "Exp"):
        igd, subgd = (np.median(committed.load(f"{name}-{m}")["final"], axis=-1) for m in ("igd", "subgd"))
        count += int((igd < subgd * (1 - 1e-6)).sum())
    found = {finding.claim: finding for finding in said.claims(committed)}
    assert found["igd_beats_subgd"].measured == count and found["igd_beats_subgd"].paper == 17
    assert found["igd_beats_subgd"].holds == (count >= 17)
    worst = max(float(committed.load(f"{n}-radial")["final"].max()) for n in Config().classes)
    np.testing.assert_allclose(found["radial_worst"].measured, worst, rtol=1e-6)
    assert found["radial_worst"].holds == (worst <= 1e-6)


def test_table_of_the_best_tuned(committed: Store) -> None:
    table = tables(committed)[0]
    assert [row[0] for row in table.rows] == list(Config().classes)
    final = committed.load("SDP-igd")["final"]
    best = np.median(final, axis=-1).argmin()
    row = next(row for row in table.rows if row[0] == "SDP")
    assert row[1:3] == (f"{np.median(final[best]):.1e}", f"{final[best].max():.1e}")


# -- the figures -----------------------------------------------------------------------------------------------------


def test_panels_show_the_medians(committed: Store) -> None:
    figure = drawn.figures(committed)["panels"]
    assert len(figure.axes) == 20
    assert [ax.get_title().split(",")[0] for ax in figure.axes[:5]] == ["Lin", "SDP", "SOC", "Norm", "Exp"]
    for index, ax in enumerate(figure.axes):
        row, name = index // 5, Config().classes[index % 5]
        methods = {str(line.get_label()): line for line in ax.lines}
        assert set(methods) == {"igd", "subgd", *(["pgd"] if name == "Norm" else [])}
        assert ax.get_xscale() == ax.get_yscale() == "log" and len(ax.collections) == len(methods)
        for method, line in methods.items():
            curve = compared.curves(committed, name, method)
            x, y = np.asarray(line.get_xydata()).T
            at = np.searchsorted(curve.recorded, x)
            np.testing.assert_array_equal(curve.recorded[at], x)
            np.testing.assert_array_equal(y, curve.median[row, at])
            assert x[-1] == curve.recorded[-1] or method == "pgd"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["IGD", "SubGD", "PGD"]
    assert [f"10^{{{-k}}}" in figure.axes[5 * (k - 1)].get_ylabel() for k in (1, 2, 3, 4)] == [True] * 4


def test_second_figure_adds_chord_radial_and_linb(committed: Store) -> None:
    figure = drawn.figures(committed)["more"]
    assert len(figure.axes) == 24 and figure.axes[5].get_title().startswith("LinB")
    for index, ax in enumerate(figure.axes):
        name = Config().classes[index % 6]
        methods = {str(line.get_label()): line for line in ax.lines}
        assert ("chord" in methods) == (name in running.CHORD) and "radial" in methods
        curve = compared.curves(committed, name, "radial")
        x, y = np.asarray(methods["radial"].get_xydata()).T
        at = np.searchsorted(curve.recorded, x)
        np.testing.assert_array_equal(y, np.maximum(curve.median[0, at], drawn.FLOOR))


def test_colours_are_the_same_in_all_figures(committed: Store) -> None:
    colours: dict[str, set[Any]] = {}
    for figure in drawn.figures(committed).values():
        for ax in figure.axes:
            for line in ax.lines:
                colours.setdefault(str(line.get_label()), set()).add(line.get_color())
    assert all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == len(colours)

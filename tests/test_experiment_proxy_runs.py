"""Optimisation proxies: runs and their resumption, choices by validation, and what claims, tables and figures say."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.common.store import Arrays, Store, StoreError, write_arrays
from experiments.proxy import choice, cost
from experiments.proxy import claims as said
from experiments.proxy import figure as drawn
from experiments.proxy import run as running
from experiments.proxy.config import Config, key
from experiments.proxy.methods import METHODS, Settings, missing
from experiments.proxy.summary import general, rows, seconds
from experiments.proxy.tables import tables

TINY = Config(
    variants=("convex",),
    methods=("penalty", "chord", "near_tuned"),
    seeds=2,
    variables=12,
    equalities=4,
    inequalities=6,
    samples=200,
    validation=16,
    test=16,
    width=8,
    epochs=2,
    batch=64,
    tuned_batches=(32,),
    tuned_pulls=(0.1, 0.2),
    penalties=(1.0, 10.0),
    cost_batch=16,
    cost_rounds=2,
    layers_batch=0,
    workers=1,
    device="cpu",
)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tiny")
    running.run(TINY, out)
    return out


# -- the run ---------------------------------------------------------------------------------------------------------


def test_run_stores_every_cell(tiny: Path) -> None:
    store = Store.read(tiny)
    rows = {key("convex", method) for method in TINY.methods}
    assert {p.stem for p in tiny.glob("*.npz")} == rows | {"choice-convex-penalty", "choice-convex-near_tuned", "cost"}
    assert store.finished
    for method in TINY.methods:
        cell = store.load(key("convex", method))
        assert cell["curve"].shape == (2, 2, 3) and cell["quantiles"].shape == (2, 21)
        assert (np.diff(cell["quantiles"], axis=-1) >= 0).all()
        assert (cell["quantiles"][:, 0] <= cell["mean"]).all() and (cell["mean"] <= cell["quantiles"][:, -1]).all()
        assert not np.array_equal(cell["curve"][0], cell["curve"][1]), "two seeds"
        assert METHODS[method].layer == "none" or (cell["inequality"] == 0).all()
    timed = store.load("cost")
    assert all(timed[method].shape == (2, 3) and (timed[method] > 0).all() for method in TINY.methods)


def test_interrupted_run_goes_on(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after three trainings it does only the others, and ends with the same numbers."""
    done: list[Path] = []
    learn = running.learn

    def watched(path: Path, *rest: Any) -> None:
        if len(done) == 3:
            raise KeyboardInterrupt
        learn(path, *rest)
        done.append(path)

    monkeypatch.setattr(running, "learn", watched)
    with pytest.raises(KeyboardInterrupt):
        running.run(TINY, tmp_path)
    first = {path: path.stat().st_mtime_ns for path in done}
    assert len(first) == 3 and not Store.read(tmp_path).finished

    again: list[Path] = []
    monkeypatch.setattr(running, "learn", lambda path, *rest: (again.append(path), learn(path, *rest)))
    running.run(TINY, tmp_path)
    assert Store.read(tmp_path).finished and not set(again) & set(first)
    assert all(path.stat().st_mtime_ns == t for path, t in first.items())
    for method in TINY.methods:
        one, other = (Store.read(folder).load(key("convex", method)) for folder in (tmp_path, tiny))
        for name in set(one) - {"seconds"}:
            np.testing.assert_array_equal(one[name], other[name], err_msg=f"{method} {name}")


def test_a_missing_package_leaves_the_run_unfinished(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What can be computed is; once the package is there the same command does the rest."""
    config = dataclasses.replace(TINY, methods=("chord", "near"), seeds=1)
    monkeypatch.setattr(running, "missing", lambda m, _: "it is not installed" if m == "near" else None)
    running.run(config, tmp_path)
    text = capsys.readouterr().err
    assert "near is left out: it is not installed" in text and "give the same command again" in text
    store = Store.read(tmp_path)
    assert not store.finished and store.has("convex-chord") and not store.has("cost")
    monkeypatch.setattr(running, "missing", lambda m, _: None)
    running.run(config, tmp_path)
    assert Store.read(tmp_path).finished and store.has("convex-near") and store.has("cost")


def test_pinet_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pinet-hcnn is not installed" in str(missing("pinet_tuned", "cpu")) and missing("near", "cuda") is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert missing("pinet", "cpu") is None
    monkeypatch.setattr("jax.default_backend", lambda: "cpu")
    assert "does not see the GPU" in str(missing("pinet", "cuda"))
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert missing("pinet", "cuda") is None


@pytest.mark.parametrize(
    "changed", [{"methods": ("nearest",)}, {"variants": ("linear",)}, {"samples": 32}, {"equalities": 12}]
)
def test_numbers_that_do_not_fit_are_refused(changed: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="expected"):
        running.run(dataclasses.replace(TINY, **changed), tmp_path)


def test_methods_are_timed_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, a first round uncounted."""
    order: list[str] = []
    times = iter(np.arange(1.0, 1000.0))
    monkeypatch.setattr(cost, "kinds", lambda problem, config, method, *rest: [lambda: order.append(method)])
    monkeypatch.setattr(cost, "seconds", lambda function, device: (function(), next(times))[1])
    cost.measure(tmp_path, {"chord": Settings(1e-2, 4), "near": Settings(1e-2, 4)}, TINY)
    assert order == ["chord", "near"] * 3
    with np.load(tmp_path / "cost.npz") as found:
        np.testing.assert_array_equal(found["chord"], [[3], [5]])
        np.testing.assert_array_equal(found["near"], [[4], [6]])


def test_general_solver_is_timed_per_sample() -> None:
    config = dataclasses.replace(TINY, layers_batch=2)
    forward, both, excess = cost.general_solver(cost.draw(config), config)
    assert 0 < forward < both < 60 and 0 <= excess < 1e-5


# -- choices ---------------------------------------------------------------------------------------------------------


def ended(suboptimality: float, inequality: float = 0.0) -> Arrays:
    """A training whose answers to the test programs are perfect: that must not count."""
    curve = np.asarray([[9.0, 9.0, 9.0], [suboptimality, inequality, 0.0]])
    return {"curve": curve, "mean": np.asarray(0.0)}


def test_choices_are_made_by_validation() -> None:
    found = choice.choose([ended(0.3), ended(0.1), ended(0.2), ended(0.4)], "near_tuned", TINY)
    assert int(found["best"]) == 1 and list(found["score"]) == [0.3, 0.1, 0.2, 0.4]
    assert list(found["pull"]) == [0.1, 0.2, 0.1, 0.2] and list(found["rate"]) == [1e-2, 1e-2, 5e-3, 5e-3]
    found = choice.choose([ended(-0.5, 0.3), ended(0.2, 0.1)], "penalty", TINY)
    np.testing.assert_allclose(found["score"], [0.8, 0.3])
    assert int(found["best"]) == 1 and list(found["penalty"]) == [1, 10]


def test_pinet_gets_what_near_chose(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "proxy", TINY)
    store.save(choice.cell("convex", "near_tuned"), choice.choose([ended(v) for v in (4, 3, 1, 2)], "near_tuned", TINY))
    tuned, peer = (choice.settings(store, "convex", method, TINY) for method in ("near_tuned", "pinet_tuned"))
    assert tuned == peer == Settings(5e-3, 32, pull=0.1)
    assert choice.settings(store, "convex", "near", TINY) == Settings(TINY.rate, TINY.batch)
    assert choice.choosing(dataclasses.replace(TINY, methods=("pinet_tuned",))) == ["near_tuned"]
    assert choice.choosing(dataclasses.replace(TINY, methods=("near", "pinet"))) == []


# -- what the results say --------------------------------------------------------------------------------------------

MEANS = {"chord": (2.0, 3.0), "near": (0.1, 0.2), "near_float32": (0.105, 0.21), "near_tuned": (0.04, 0.05)}
PEERS = {"pinet": (0.1, 0.21), "pinet_tuned": (0.04, 0.049)}


def fake(folder: Path, means: dict[str, tuple[float, float]], violations: dict[str, float], **seconds: float) -> Store:
    """A store with these mean suboptimalities in percent, violations and times of an epoch."""
    store = Store.create(folder, "proxy", dataclasses.replace(TINY, methods=tuple(means), layers_batch=4))
    for method, values in means.items():
        percent = np.asarray(values) / 100
        store.save(
            key("convex", method),
            {
                "mean": percent,
                "quantiles": percent[:, None] * np.linspace(0, 2, 21),
                "inequality": np.asarray([0.0, violations.get(method, 0.0)]),
                "equality": np.full(2, 1e-15),
                "active": np.full(2, 3.0),
                "curve": np.repeat(percent[:, None, None], 5, axis=1) * np.ones(3),
            },
        )
    times: Arrays = {m: np.full((3, 3), seconds.get(m, 1.0)) * [1, 0.1, 0.2] for m in means}
    write_arrays(folder / "cost.npz", {**times, "cvxpylayers": np.asarray([0.5, 1.0, 0.0]), "threads": np.asarray(1)})
    return store


def test_claims_measure_what_is_stored(tmp_path: Path) -> None:
    found = {f.claim: f for f in said.claims(fake(tmp_path, MEANS | PEERS, {"pinet": 1e-3}, pinet=6.0))}
    assert {claim: round(f.measured, 6) for claim, f in found.items()} == {
        "chord_over_near_convex": round(2.5 / 0.15, 6),
        "near_convex": 0.15,
        "pinet_convex": 0.155,
        "near_tuned_over_pinet_convex": round(0.045 / 0.155, 6),
        "near_tuned_over_pinet_tuned_convex": round(0.045 / 0.0445, 6),
        "worst_violation": 0,
        "float32_loss": 0.05,
        "epoch_ratio": 6,
    }
    assert all(f.holds for f in found.values())


def test_claims_can_fail(tmp_path: Path) -> None:
    """Each of them, by a little."""
    bad = {"chord": (0.7, 0.7), "near": (0.2, 0.2), "near_float32": (0.23, 0.23), "near_tuned": (0.11, 0.12)}
    peers = {"pinet": (0.19, 0.19), "pinet_tuned": (0.05, 0.06)}
    store = fake(tmp_path, bad | peers, {"near_float32": 1e-16}, pinet=4.9)
    found = {f.claim: f for f in said.claims(store)}
    assert len(found) == 8 and not any(f.holds for f in found.values())


@pytest.mark.parametrize(("near", "holds"), [((0.11, 0.51), True), ((0.31, 0.31), True), ((0.51, 0.51), False)])
def test_chance_is_what_seeds_make_of_the_peer(near: tuple[float, float], holds: bool, tmp_path: Path) -> None:
    """The mean of 0.1 and 0.5 has a standard error of 0.2."""
    found = {f.claim: f for f in said.claims(fake(tmp_path, {"near": near, "pinet": (0.10, 0.50)}, {}))}
    assert found["near_convex"].holds == holds


def test_without_peers_there_are_claims_still(tmp_path: Path) -> None:
    found = {f.claim for f in said.claims(fake(tmp_path, {m: MEANS[m] for m in ("chord", "near")}, {}))}
    assert found == {"chord_over_near_convex", "worst_violation"}


def test_tables_show_what_is_stored(tmp_path: Path) -> None:
    store = fake(tmp_path, MEANS | PEERS, {"pinet": 1e-3}, pinet=6.0)
    store.save(choice.cell("convex", "near_tuned"), choice.choose([ended(v) for v in (4, 3, 1, 2)], "near_tuned", TINY))
    quality, times, chosen = tables(store)
    lines = {row[0]: row[1:] for row in quality.rows}
    assert lines["near"] == ("0.15 ± 0.07", "0.15", "0.4", "0", "1e-15", "3.0")
    assert lines["Pi-net"][3] == "1e-03"
    lines = {row[0]: row[1:] for row in times.rows}
    assert lines["near"] == ("1e+03", "100", "200", "1.00") and lines["Pi-net"][-1] == "6.00"
    train = TINY.samples - TINY.validation - TINY.test
    assert general(store, "epoch") == train and lines["cvxpylayers"][-1] == f"{train:.3g}"
    assert [row[-1] for row in chosen.rows] == ["", "", "chosen", ""]


def test_figures_show_what_is_stored(tmp_path: Path) -> None:
    store = fake(tmp_path, MEANS | PEERS, {"pinet": 1e-3}, pinet=6.0)
    figures = drawn.figures(store)
    assert set(figures) == set(drawn.CAPTIONS)
    (ax,) = figures["cost"].axes
    assert ax.get_xscale() == ax.get_yscale() == "log"
    points = {str(line.get_label()): line for line in ax.lines if line.get_marker() == "o"}
    assert set(points) == set(MEANS | PEERS)
    for method, line in points.items():
        where = [[1e3 * seconds(store, "epoch")[method][0], rows_of(store, method)]]
        np.testing.assert_allclose(np.asarray(line.get_xydata()), where)
    assert points["pinet"].get_markerfacecolor() == "none" != points["near"].get_markerfacecolor()
    (ax,) = figures["learning"].axes
    curves = {str(line.get_label()): line for line in ax.lines}
    for method, line in curves.items():
        np.testing.assert_allclose(np.asarray(line.get_ydata()), rows_of(store, method))
        np.testing.assert_array_equal(np.asarray(line.get_xdata()), [1, 2, 3, 4, 5])
    assert len({line.get_color() for line in curves.values()}) == len(curves)


def rows_of(store: Store, method: str) -> float:
    return rows(store, "convex")[method].center

"""`python -m benchmarks solvers`: everyone reaches the accuracy asked for, and every cell is measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.__main__ import main
from benchmarks.solver_race import error, instances
from benchmarks.solvers import RADIAL, ratio, verdicts
from experiments.convex.problems import problems

ACCURACY = 1e-6
CLASSES = ("Lin", "Exp")
LABELS = {*RADIAL, "Clarabel, core", "Clarabel, CVXPY", "SCS, core", "SCS, CVXPY"}


def arguments(path: Path) -> list[str]:
    asked = ["--classes", ",".join(CLASSES), "--rounds", "2", "--accuracy", str(ACCURACY)]
    return ["solvers", "--quick", *asked, "--json", str(path)]


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("solvers") / "quick.json"
    assert main(arguments(path)) == 0
    return path


def read(path: Path) -> dict[str, dict[str, Any]]:
    return json.loads(path.read_text())["cells"]


def test_every_cell_is_there_and_within_the_accuracy(quick: Path) -> None:
    cells = read(quick)
    assert set(cells) == {f"{name}|5" for name in CLASSES}
    for cell in cells.values():
        assert set(cell["entries"]) == LABELS
        for entry in cell["entries"].values():
            assert len(entry["seconds"]) == 2 and entry["measured"] == entry["within"] == 5
            assert 0 <= entry["worst error"] <= ACCURACY


def test_ratios_are_finite_and_positive(quick: Path) -> None:
    for cell in read(quick).values():
        for reference in RADIAL:
            ratios = {label: ratio(cell, label, reference) for label in cell["entries"]}
            assert all(math.isfinite(value) and value > 0 for value in ratios.values())
            assert ratios[reference] == 1
        assert cell["first call"] > 5 * min(cell["entries"]["radial (jax)"]["seconds"])  # it compiles


def test_radial_descent_answers_with_points_of_the_set(quick: Path) -> None:
    for cell in read(quick).values():
        for label in RADIAL:
            assert cell["entries"][label]["worst h"] <= 1e-15  # h in NumPy, whose sums round in another order


def test_a_run_that_was_stopped_is_continued(quick: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, path = json.loads(quick.read_text()), tmp_path / "stopped.json"
    kept, lost = (f"{name}|5" for name in CLASSES)
    path.write_text(json.dumps(found | {"cells": {kept: found["cells"][kept]}}))
    assert main(arguments(path)) == 0
    assert f"{CLASSES[0]} is in {path} already" in capsys.readouterr().out
    assert set(read(path)) == {kept, lost} and read(path)[kept] == found["cells"][kept]
    assert set(read(path)[lost]["entries"]) == LABELS


@pytest.mark.parametrize(("seconds", "winner"), [(0.5, "Clarabel, core"), (8.0, "radial (jax)")])
def test_the_winner_is_named(seconds: float, winner: str) -> None:
    times = dict.fromkeys(LABELS, 100.0) | {"radial (torch)": 3.0, "radial (jax)": 2.0, "Clarabel, core": seconds}
    entries = {label: {"seconds": [time], "within": 5, "measured": 5} for label, time in times.items()}
    first, second = verdicts({"entries": entries, "accuracy": ACCURACY})
    assert f"{winner} wins, 4 times as fast as" in first
    assert "radial (jax) wins, 50 times as fast as" in second


def test_an_accuracy_that_was_missed_is_told() -> None:
    entries = {label: {"seconds": [1.0], "within": 5, "measured": 5} for label in LABELS}
    entries["SCS, core"]["within"] = 4
    assert "not within 1e-06 in every instance: SCS, core" in verdicts({"entries": entries, "accuracy": ACCURACY})[-1]


def test_the_error_is_one_at_the_anchor_and_none_without_an_answer() -> None:
    task = problems("Norm", instances("Norm", 4, seed=0))
    no_answer = np.full_like(task.anchor[:1], np.nan)
    np.testing.assert_allclose(error(task, np.concatenate([task.anchor[:1], task.optimum[1:2]])), [1, 0], atol=1e-15)
    np.testing.assert_allclose(error(task, 2 * task.optimum - task.anchor), 1)  # better than the optimum is no better
    assert np.isinf(error(task, no_answer)).all()


def test_an_unknown_class_is_refused() -> None:
    with pytest.raises(SystemExit, match="--classes Cone: expected some of Lin"):
        main(["solvers", "--classes", "Cone"])

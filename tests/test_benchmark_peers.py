"""`python -m benchmarks peers`: all layers get the same sets, and what a peer does wrong is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import peers_tables
from benchmarks.__main__ import main
from benchmarks.peers import hopeless
from benchmarks.peers_calls import TorchLayer
from benchmarks.peers_cell import Order, fulfil, judge, ratio
from benchmarks.peers_conic import nearest_point
from benchmarks.peers_figure import figure
from benchmarks.peers_layers import LINEAR, PEERS, Peer
from benchmarks.peers_process import isolated
from benchmarks.peers_sets import (
    SETS,
    Problem,
    as_point,
    as_set,
    cones,
    equality,
    kl,
    lmi,
    norm_form,
    polytope,
    quadratic,
)
from benchmarks.peers_transforms import TRANSFORMS, torch_attempts, verdict

import inset

SMALL = {
    "polytope": polytope(4, 6, 0),
    "equality": equality(5, 4, 2, 0),
    "quadratic": quadratic(3, 4, 0),
    "cones": cones(3, 4, 5, 0),
    "lmi": lmi(3, 4, 0),
    "kl": kl(3, 0),
}


def textbook(problem: Problem, point: tuple[np.ndarray, ...]) -> float:
    """The largest constraint of one point in the words of the arrays, each <= 0 inside."""
    a, x = problem.arrays, point[0]
    if problem.kind == "quadratic":
        return max(x @ P @ x / 2 + q @ x + r for P, q, r in zip(a["P"], a["q"], a["r"], strict=True))
    if problem.kind == "cones":
        terms = zip(a["A"], a["b"], a["z"], a["d"], strict=True)
        return max(np.linalg.norm(A @ x + b) - z @ x - d for A, b, z, d in terms)
    if problem.kind == "lmi":
        return -np.linalg.eigvalsh(np.tensordot(x, a["A"], 1) - a["C"])[0]
    if problem.kind == "kl":
        ratios, shift = point[1] / a["variance"], (x - a["mean"]) ** 2 / a["variance"]
        return (ratios - 1 - np.log(ratios) + shift).sum() / 2 - float(a["epsilon"])
    return (a["A"] @ x - a["b"]).max()


@pytest.mark.parametrize("problem", SMALL.values(), ids=SMALL)
def test_the_set_of_inset_is_the_one_of_the_arrays(problem: Problem) -> None:
    points = problem.points(200, 3)
    h = as_set(problem).h(as_point(points)).numpy()
    values = np.array([textbook(problem, point) for point in zip(*points, strict=True)])
    assert 0.1 < np.mean(values > 0) < 0.99
    np.testing.assert_array_equal(h > 0, values > 0)
    if problem.kind != "quadratic":  # there h is another function, with the same sign
        np.testing.assert_allclose(h, values, atol=1e-12)


def shell(problem: Problem, factor: float) -> list[tuple[np.ndarray, ...]]:
    """Points on the boundary, moved from the anchor by a factor."""
    set, anchor, x = as_set(problem), as_point(problem.anchor), as_point(problem.points(30, 5))
    on = inset.project(set, x, anchor, method="ray")
    reached = np.asarray(set.h(on) > -1e-6)
    leaves = on if isinstance(on, tuple) else (on,)
    moved = (a + factor * (np.asarray(y)[reached] - a) for a, y in zip(problem.anchor, leaves, strict=True))
    return list(zip(*moved, strict=True))


@pytest.mark.parametrize("problem", SMALL.values(), ids=SMALL)
def test_the_set_of_cvxpy_is_the_one_of_inset(problem: Problem) -> None:
    program, _, variables = nearest_point(problem)
    assert program.is_dpp()

    def inside(point: tuple[np.ndarray, ...]) -> bool:
        for variable, value in zip(variables, point, strict=True):
            variable.value = value
        return all(np.max(limit.violation()) <= 1e-9 for limit in program.constraints)

    assert all(inside(point) for point in shell(problem, 0.999))
    assert not any(inside(point) for point in shell(problem, 1.001))


def test_quadratics_as_norms_are_the_same_ellipsoids() -> None:
    problem = SMALL["quadratic"]
    (x,) = problem.points(50, 1)
    for (F, c, rho), P, q, r in zip(norm_form(problem), *(problem.arrays[k] for k in "Pqr"), strict=True):
        f = np.einsum("bi,ij,bj->b", x, P, x) / 2 + x @ q + r
        np.testing.assert_allclose((((x - c) @ F.T) ** 2).sum(-1) - rho**2, 2 * f, atol=1e-12)


@pytest.mark.parametrize("problem", SMALL.values(), ids=SMALL)
def test_anchors_are_strict(problem: Problem) -> None:
    assert textbook(problem, problem.anchor) < -0.01 and as_set(problem).contains(as_point(problem.anchor))
    if problem.kind == "equality":
        np.testing.assert_allclose(problem.arrays["E"] @ problem.anchor[0], problem.arrays["e"], atol=1e-12)


def stretched(problem: Problem, dtype: torch.dtype, device: str) -> TorchLayer:
    """A peer that puts every point 2 outside of the polytope's first face."""
    a, b = problem.arrays["A"][0], problem.arrays["b"][0]
    outside = torch.as_tensor(problem.anchor[0] + (b + 2 - a @ problem.anchor[0]) * a, dtype=dtype)
    return TorchLayer(lambda x: outside + 0 * x, dtype, device)


def broken(problem: Problem, dtype: torch.dtype, device: str) -> TorchLayer:
    raise RuntimeError("no solver\nwas found")


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PEERS, "stretched", Peer("stretched", stretched, LINEAR, (), ()))
    monkeypatch.setitem(PEERS, "broken", Peer("broken", broken, LINEAR, (), ()))
    monkeypatch.setitem(PEERS, "absent", Peer("absent", broken, LINEAR, ("no_such_module",), ()))


@pytest.mark.usefixtures("fakes")
def test_a_peer_that_violates_is_told_with_its_violation() -> None:
    cell = fulfil(Order("stretched", "polytope-10-20", 8, rounds=2))
    entry = cell["entries"]["stretched"]
    assert entry["share"] == 1 and entry["worst"] >= 2 - 1e-9
    assert min(entry["both ratio"].values()) > 0 and entry["forward ratio"] > 0
    lines = peers_tables.table("polytope-10-20", 8, {"polytope-10-20|8|stretched": cell}).splitlines()
    assert "stretched*" in lines[-1] and "100 %" in lines[-1]


def test_the_layers_of_inset_violate_nothing_and_are_judged_in_float32_too() -> None:
    entries = fulfil(Order("inset", "polytope-10-20", 64, rounds=2))["entries"]
    for label in ("chord, strict", "ray, strict"):
        entry = entries[label]
        assert entry["share"] == entry["worst"] == entry["float32"]["share"] == 0
    assert entries["chord"]["float32"]["share"] > 0  # without the margin some are outside
    assert entries["chord"]["displacement"] > 0 and torch.get_default_dtype() == torch.float32


@pytest.mark.usefixtures("fakes")
def test_a_peer_that_raises_is_told_with_its_error_in_one_line() -> None:
    assert fulfil(Order("broken", "polytope-10-20", 4, rounds=1)) == {"error": "RuntimeError: no solver was found"}
    assert "not installed: no_such_module" in hopeless(Order("absent", "polytope-10-20", 4), {})


def test_nan_is_a_violation() -> None:
    problem = SMALL["polytope"]
    (x,) = problem.points(4, 0)
    found = judge(problem, (x,), (np.where(np.arange(4)[:, None] == 1, np.nan, problem.anchor[0]),))
    assert found["share"] == 0.25 and found["worst"] == 0


def test_a_process_that_hangs_dies_or_eats_memory_is_told(tmp_path: Path) -> None:
    def result(code: str, timeout: float = 20.0, memory: float = 4.0) -> dict[str, Any]:
        return isolated([sys.executable, "-c", code], timeout, memory)

    assert result("import time; time.sleep(60)", timeout=0.2) == {"error": "no result within 0.2 s"}
    assert result("x = b'1' * 200_000_000\nwhile True: pass", memory=0.1) == {"error": "more than 0.1 GB of memory"}
    assert result("import os; os.abort()")["error"].startswith("ended by SIGABRT")
    assert result("raise ValueError('so')") == {"error": "exit status 1: ValueError: so"}
    assert result("import sys; open(sys.argv[1], 'w').write('{\"a\": 1}')") == {"a": 1}


def arguments(path: Path, *more: str) -> list[str]:
    chosen = ["--sets", "polytope-10-20", "--batches", "1,512", "--layers", "inset,rayen"]
    return ["peers", *chosen, "--json", str(path), *more]


def entry(both: float, share: float = 0.0) -> dict[str, Any]:
    ratios = dict.fromkeys(("chord, strict", "chord", "ray, strict"), both)
    numbers = {"forward": 1.0, "both": both, "memory": 1.0, "worst": share, "share": share, "displacement": 1.0}
    return numbers | {"rounds": 1, "forward ratio": both, "both ratio": ratios, "low": both, "high": both}


def test_a_run_that_was_stopped_is_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def measured(order: Order, args: Any) -> dict[str, Any]:
        asked.append(f"{order.layer} {order.batch}")
        if order.batch == 0:
            return {"transforms": {}}
        if order.layer == "rayen":
            return {"error": f"no result within {args.timeout:g} s"}
        return {"entries": {"chord, strict": entry(1.0)}}

    monkeypatch.setattr("benchmarks.peers.in_process", measured)
    monkeypatch.setattr("benchmarks.peers.missing", lambda layer: [])
    path = tmp_path / "peers.json"
    assert main(arguments(path, "--timeout", "5")) == 0
    assert asked == ["inset 1", "rayen 1", "inset 512", "inset 0", "rayen 0"]  # 512 points are not tried after that
    assert "no result within 5 s, at batch 1 already" in capsys.readouterr().out
    asked.clear()
    assert main(arguments(path, "--timeout", "5")) == 0 and asked == []
    assert main(arguments(path, "--timeout", "6")) == 0 and asked == ["rayen 1"]
    found = json.loads(path.read_text())
    path.write_text(json.dumps(found | {"settings": found["settings"] | {"seed": 1}}))
    with pytest.raises(SystemExit, match="seed: 1 there, 0 now"):
        main(arguments(path))


def test_bars_are_met_or_missed() -> None:
    cells = {
        "polytope-50-50|512|inset": {"entries": {"chord, strict": entry(1.0)}},
        "polytope-50-50|512|rayen": {"entries": {"rayen": entry(4.5, share=0.1)}},
        "polytope-50-50|512|qpth": {"entries": {"qpth": entry(4.5)}},
        "lmi-10|512|rayen": {"error": "too large"},
    }
    text = peers_tables.bars(cells)
    assert "polytope-50-50        4.5     MISSED" in text and "polytope-50-50        4.5     met" in text
    assert "lmi-10                not measured: too large" in text
    assert "polytope-50-50        met     peers without any: qpth*" in text


def test_the_figure_marks_what_was_measured_and_what_failed() -> None:
    cells = {
        "polytope-50-50|512|inset": {"entries": {"chord, strict": entry(1.0)}},
        "polytope-50-50|512|rayen": {"entries": {"rayen": entry(5.12, share=0.1)}},
        "lmi-10|512|qpth": {"error": "too large"},
    }
    left, right = figure(cells).axes
    assert [label.get_text() for label in left.get_yticklabels()] == [
        SETS[k].title for k in ("polytope-50-50", "lmi-10")
    ]
    marks, others = ([line for line in ax.lines if np.size(line.get_xdata()) == 1] for ax in (left, right))
    assert [line.get_marker() for line in marks] == ["o", "o", "x"] and len(others) == 2
    assert np.asarray(marks[1].get_xdata()).item() == pytest.approx(10)
    assert marks[1].get_markerfacecolor() == "white"


def test_ratios_are_taken_round_by_round() -> None:
    assert ratio([2.0, 8.0, 6.0], [1.0, 2.0, 3.0])[1] == 2
    assert ratio([9.0], [1.0, 2.0, 3.0]) == (4.5, 4.5, 4.5)


class Frozen(torch.autograd.Function):
    """cos(x), whose gradient is right and whose second derivative is not."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.slope = -x.sin()
        return x.cos()

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> torch.Tensor:
        return cotangents[0] * ctx.slope


@pytest.mark.parametrize(
    ("function", "vmap", "twice"),
    [(torch.cos, "yes", "yes"), (Frozen.apply, "no", "wrong"), (lambda x: x.cos() + x.mean(), "wrong", "yes")],
)
def test_transforms_are_tried_and_compared(function: Any, vmap: str, twice: str) -> None:
    tried = torch_attempts(TorchLayer(function, torch.float64, "cpu"), (np.linspace(0, 1, 6).reshape(2, 3),))
    assert set(tried) == set(TRANSFORMS)
    assert verdict(*tried["vmap"]) == vmap and verdict(*tried["double backward"]) == twice


@pytest.mark.parametrize("wrong", [("--sets", "cube"), ("--layers", "none")])
def test_unknown_names_are_refused(wrong: tuple[str, str]) -> None:
    with pytest.raises(SystemExit, match=f"{wrong[0]} {wrong[1]}: expected some of"):
        main(["peers", *wrong])


@pytest.mark.parametrize("option", [("--show",), ("--figure", "none.svg")])
def test_what_is_shown_has_to_be_there(option: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="want the results in --json FILE"):
        main(["peers", *option])


def test_results_are_shown_and_drawn_without_measuring(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, picture = tmp_path / "peers.json", tmp_path / "peers.svg"
    cells = {"kl-10|512|inset": {"entries": {"chord, strict": entry(1.25)}}}
    path.write_text(json.dumps({"settings": {"seed": 7}, "cells": cells}))
    assert main(["peers", "--show", "--figure", str(picture), "--json", str(path)]) == 0
    said = capsys.readouterr().out
    assert "seed:         7" in said and "Gaussian KL, 10 actions, batch 512" in said and "1.25" in said
    assert "Gaussian KL" in picture.read_text()


def test_sets_of_an_earlier_run_are_shown_beside(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And none of the sets that were measured again."""
    now, before = tmp_path / "now.json", tmp_path / "before.json"
    again = {"kl-10|512|inset": {"entries": {"chord, strict": entry(1.25)}}}
    old = {
        "kl-10|1|inset": {"entries": {"chord, strict": entry(3.75)}},
        "lmi-10|512|inset": {"entries": {"chord, strict": entry(4.5)}},
    }
    now.write_text(json.dumps({"settings": {"seed": 7}, "cells": again}))
    before.write_text(json.dumps({"settings": {"seed": 8}, "cells": old}))
    assert main(["peers", "--show", "--json", str(now), "--earlier", str(before)]) == 0
    said = capsys.readouterr().out
    assert "1.25" in said and "4.5" in said and "3.75" not in said
    assert "seed:         7\nsets:         kl-10" in said and "seed:         8\nsets:         lmi-10\n" in said
    with pytest.raises(SystemExit, match="want the results in --json FILE"):
        main(["peers", "--show", "--json", str(now), "--earlier", str(tmp_path / "none.json")])

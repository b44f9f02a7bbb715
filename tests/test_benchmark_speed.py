"""The benchmarks `limits`, `growth` and `agreement`: what they make of numbers, what they print, and stopped runs."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import agreement, dependent_sets, growth, growth_tables, limits, overhead
from benchmarks.__main__ import main
from benchmarks.growth_cells import Memory, step
from benchmarks.growth_lines import PASSES, Line

import inset

TINY = ["limits", "--device", "cpu", "--elements", "32768", "--dimensions", "4", "--rounds", "1"]


def test_limits_are_shares_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward is one copy, there and back are two; the median of the rounds counts."""
    times = {"copy": [1.0, 2.0, 9.0], "forward": [2.0, 4.0, 9.0], "both": [8.0, 16.0, 9.0]}
    monkeypatch.setattr(limits, "measured", lambda jobs, rounds, device: {name: times[name] for name in jobs})
    args = argparse.Namespace(device="cpu", elements=64, rounds=3, seed=0)
    cell = limits._vector_cell("ball", 4, torch.float32, args)
    assert (cell["forward"], cell["both"], cell["copy"]) == (0.5, 0.25, 2.0)
    times |= {"algebra": [1.0, 1.0, 9.0], "algebra and back": [4.0, 4.0, 9.0]}
    cell = limits._matrix_cell(limits.polytope, True, argparse.Namespace(device="cpu", elements=512, rounds=3, seed=0))
    assert (cell["forward"], cell["both"], cell["both / both"]) == (2.0, 8.0, 2.0)


def test_limits_print_every_set_and_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    file = tmp_path / "limits.json"
    assert main([*TINY, "--sets", "ball,simplex", "--json", str(file)]) == 0
    text = capsys.readouterr().out
    rows = [line.split()[:3] for line in text.splitlines() if line.startswith(("ball", "simplex"))]
    assert rows == [[name, "4", dtype] for name in ("ball", "simplex") for dtype in limits.DTYPES]
    assert all(f"{name}, strict" in text for name in limits.MATRICES)
    assert len(json.loads(file.read_text())["cells"]) == 4 + 2 * len(limits.MATRICES)
    for name in ("_vector_cell", "_matrix_cell"):
        monkeypatch.setattr(limits, name, lambda *a: pytest.fail("measured again"))
    assert main([*TINY, "--sets", "ball,simplex", "--json", str(file)]) == 0


def test_limits_say_what_is_wrong() -> None:
    with pytest.raises(SystemExit, match="--sets bal: expected some of ball"):
        main([*TINY, "--sets", "bal"])
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit, match="torch sees no GPU here"):
            main(["limits"])


@pytest.mark.parametrize("name", limits.SETS)
def test_points_of_limits_are_on_both_sides(name: str) -> None:
    """Else a copy would do."""
    torch.manual_seed(0)
    set, anchor, x = limits.SETS[name](16, 400, "cpu")
    outside = ~(set.h(x) <= 0)
    assert 20 < int(outside.sum()) < 380
    assert bool(set.contains(inset.project(set, x, anchor)).all())


@pytest.mark.parametrize("name", dependent_sets.SETS)
def test_sets_that_depend_on_the_input_are_timed(
    name: str, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside a formula by hand that gives the same."""
    monkeypatch.setattr(overhead, "BATCHES", (40,))
    monkeypatch.setattr(overhead, "ROUND", 1e-6)
    assert main(["overhead", "--parts", "dependent", "--sets", name, "--rounds", "1"]) == 0
    text = capsys.readouterr().out
    assert f"{name} for each, batch 40 " in text and text.count("Projection, strict") == 2
    torch.manual_seed(0)
    make, formula, fields = dependent_sets.SETS[name](40)
    x, anchor = 1.0 * torch.randn(40, dependent_sets.DIMENSION), torch.zeros(40, dependent_sets.DIMENSION)
    assert (make(*fields).h(x) > 0).any() and (make(*fields).h(formula(x, anchor, *fields)) < 1e-5).all()
    monkeypatch.setitem(
        dependent_sets.SETS, name, lambda batch: (make, lambda x, *rest: formula(x + 0.1, *rest), fields)
    )
    with pytest.raises(AssertionError):
        dependent_sets.steps(name, 40)


def test_slopes_and_steps() -> None:
    sizes = [1, 2, 4, 8, 16, 32, 64, 128]
    assert growth_tables.slope(sizes, [float(s) ** 2 for s in sizes]) == pytest.approx(2.0)
    assert growth_tables.slope(sizes, [1.0] * 3 + [float(s) for s in sizes[3:]]) == pytest.approx(1.0)  # of the tail
    assert math.isnan(growth_tables.slope([4], [1.0]))
    values = [float(s) for s in sizes[:5]] + [96.0, 192.0, 384.0]
    assert growth_tables.largest_step(sizes, values, 1.0) == (3.0, 32)


def test_growth_measures_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Times and memory of each size and pass, and the verdict."""
    line = Line("batch", "polytope", (2, 4, 8), 1, 0, 8, 16)
    for name, size in ((PASSES[0], 4), (PASSES[1], 8)):
        found: Any = step(line, size, name)()
        assert (found if name == PASSES[0] else found[0]).shape == (size, 8)
    monkeypatch.setattr(Memory, "__init__", lambda self, device, threads: None)
    monkeypatch.setattr(Memory, "peak", lambda self, line, size, name, **options: (size * 10**8, 0.0))
    cell = growth.measure(line, argparse.Namespace(device="cpu", rounds=1, seed=0), Memory("cpu", 1))
    assert all(t > 0 for name in PASSES for t in cell[name]["seconds"])
    made = {name: {"seconds": [1.0, 2.0, 16.0], "bytes": cell[name]["bytes"]} for name in PASSES}
    growth_tables.show([line], {line.name: cell | made})
    text = capsys.readouterr().out
    assert "a cliff: the largest step is 4.00 times the expected one (ms against batch, polytope" in text
    assert "MB against batch" in text and " 800 " in text


QUICK = ["agreement", "--points", "40", "--sets", "polytope,psd", "--dtypes", "float32"]


def test_agreement_shows_fast_paths_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set without one, like `psd`, has nothing to be compared."""
    file = tmp_path / "agreement.json"
    assert main([*QUICK, "--json", str(file)]) == 0
    text = capsys.readouterr().out
    rows = [line.split()[:4] for line in text.splitlines() if line.startswith(("polytope", "psd"))]
    assert rows == [["polytope", "float32", method, "eager"] for method in ("chord", "ray")]
    assert "2 fast paths, 0 that differ; 4 cells run by the formulas alone" in text
    monkeypatch.setattr(agreement, "measured", lambda *a: pytest.fail("measured again"))
    assert main([*QUICK, "--json", str(file)]) == 0


@pytest.mark.parametrize("what", ["points", "derivatives"])
def test_agreement_finds_what_is_off(
    what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    twice = agreement._twice

    def off(*call: Any) -> Any:
        y, dx = twice(*call)
        return (y * (1 + 1e-4), dx) if what == "points" else (y, dx * (1 + 1e-4))

    monkeypatch.setattr(agreement, "_twice", off)
    assert main(QUICK) == 1
    assert capsys.readouterr().out.count("differs") == 2

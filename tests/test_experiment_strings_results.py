"""The dynamics experiment: what claims, tables and the command line make of results."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments import __main__ as cli
from experiments.common import places
from experiments.common.claims import Finding
from experiments.common.store import MANIFEST, Store, discard
from experiments.strings import figure
from experiments.strings.claims import PAPER, claims
from experiments.strings.config import Config
from experiments.strings.evaluate import pack
from experiments.strings.figure import CAPTIONS
from experiments.strings.model import VARIANTS, Dynamics
from experiments.strings.objects import shape
from experiments.strings.tables import tables

from inset import Strings
from strings_runs import SMALL, cell, make


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make(tmp_path / "run", SMALL)


def by_name(store: Store) -> dict[str, Finding]:
    return {finding.claim: finding for finding in claims(store)}


# -- claims ----------------------------------------------------------------------------------------------------------


def test_errors_hold_up_to_the_numbers_of_the_paper(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, objects=("chain", "triangles", "star"))
    store = Store.create(tmp_path, "strings", config)
    for offset in (-0.01, 0.01):
        for (name, model), (mean, _) in PAPER.items():
            store.save(f"{name}-{model}", cell(config, model, mean + offset))
        found = by_name(store)
        for (name, model), (mean, _) in PAPER.items():
            finding = found[f"{name}_{model}"]
            assert finding.paper == mean and finding.measured == pytest.approx(mean + offset, abs=1e-12)
            assert finding.holds == (offset < 0)
    assert [f.paper for f in claims(store)[:6]] == [2.52, 2.89, 2.32, 2.19, 2.25, 2.18]


def test_meanings_say_what_was_run(store: Store, tmp_path: Path) -> None:
    found = by_name(store)
    assert "2 seeds" in found["chain_plain"].meaning and "up to 3 too long" in found["chain_plain"].meaning
    assert "too long" not in found["chain_strings"].meaning
    quick = by_name(make(tmp_path / "quick", Config.quick(), {"plain": 30.0, "strings": 30.0}))
    assert set(quick) == {"star_plain", "star_strings", "worst_violation", "worst_violation_plain"}
    updates, horizon = sum(Config.quick().updates), max(Config.quick().horizons)
    for finding in (quick["star_plain"], quick["star_strings"]):
        assert not finding.holds
        assert f"{updates} updates, which unroll up to {horizon} steps only" in finding.meaning
        assert "1 seed," in finding.meaning and "out of reach" in finding.meaning


def test_one_violation_is_enough(store: Store) -> None:
    found = by_name(store)
    assert (found["worst_violation"].measured, found["worst_violation"].holds) == (0, True)
    assert (found["worst_violation_plain"].measured, found["worst_violation_plain"].holds) == (3, True)
    changed = store.load("star-strings")
    changed["violation"][0, 1] = 1e-12
    store.save("star-strings", changed)
    assert by_name(store)["worst_violation"].measured == 1e-12 and not by_name(store)["worst_violation"].holds
    for name in SMALL.objects:
        store.save(f"{name}-plain", {**store.load(f"{name}-plain"), "violation": np.zeros((2, 4))})
    assert not by_name(store)["worst_violation_plain"].holds


def test_cost_is_the_median_of_ratios_and_prefers_the_accelerator(store: Store) -> None:
    assert not any("cost" in claim for claim in by_name(store))
    plain = np.array([1.0, 10.0, 100.0])  # a machine that slows down: the ratio of medians would be 0.13
    store.save("cost-cpu", {"plain": plain, "strings": plain * [1.3, 1.0, 1.1], "horizon": np.asarray(32)})
    found = by_name(store)
    assert found["cost"].measured == pytest.approx(1.1) and found["cost"].holds and "on cpu" in found["cost"].meaning
    assert "cost_cpu" not in found and "cost_nearest" not in found
    short = {"plain-short": plain, "nearest-short": plain * [9.0, 11.0, 12.0]}
    store.save("cost-cuda", {"plain": plain, "strings": plain * 1.3, "horizon": np.asarray(240), **short})
    found = by_name(store)
    assert found["cost"].measured == pytest.approx(1.3) and not found["cost"].holds
    assert found["cost_cpu"].measured == pytest.approx(1.1) and found["cost_cpu"].holds
    assert found["cost_nearest"].measured == pytest.approx(11) and found["cost_nearest"].holds
    short["nearest-short"] = plain * 9
    store.save("cost-cuda", {"horizon": np.asarray(240), **short})
    assert not by_name(store)["cost_nearest"].holds and "cost" not in by_name(store)


def test_variants_are_compared_object_by_object(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, models=("strings", "moving", "smooth"))
    store = make(tmp_path, config, {"strings": 2.0, "moving": 1.9, "smooth": 1.9})
    found = by_name(store)
    assert (found["moving_beats_previous"].measured, found["moving_beats_previous"].holds) == (2, True)
    assert (found["smooth_beats_kink"].measured, found["smooth_beats_kink"].holds) == (2, True)
    for model in ("moving", "smooth"):
        store.save(f"chain-{model}", cell(config, model, 2.1))
    found = by_name(store)
    assert (found["moving_beats_previous"].measured, found["moving_beats_previous"].holds) == (1, False)
    assert (found["smooth_beats_kink"].measured, found["smooth_beats_kink"].holds) == (1, False)
    assert "(star)" in found["smooth_beats_kink"].meaning


# -- tables ----------------------------------------------------------------------------------------------------------


def test_tables_have_the_numbers(tmp_path: Path) -> None:
    config = dataclasses.replace(SMALL, models=("plain", "strings", "smooth"))
    store = make(tmp_path, config, {"plain": 2.0, "strings": 3.0, "smooth": 1.5})
    times = {"plain": np.ones(4), "strings": np.array([1.0, 1.1, 1.2, 1.3])}
    store.save("cost-cpu", {**times, "horizon": np.asarray(32), "machine": np.asarray("an abacus")})
    errors, violations, cost, kink = tables(store)
    assert errors.head == ("model", "chain", "paper", "star", "paper")
    assert errors.rows[0][1:3] == ("2.00 ± 0.20 (1.90 to 2.10)", "2.52 ± 1.38")
    assert errors.rows[1][3:] == ("3.00 ± 0.20 (2.90 to 3.10)", "2.18 ± 0.96")
    assert errors.rows[2][:3] == ("smooth", "1.50 ± 0.20 (1.40 to 1.60)", "")
    assert violations.rows == (
        ("plain", *["3 (1.5 lengths)"] * 2),
        ("strings", "0", "0"),
        ("smooth", "0", "0"),
    )
    assert cost.rows == (("cpu", "plain", "1e+03", "", ""), ("cpu", "strings", "1.15e+03", "1.15", "1.08 to 1.23"))
    assert "an abacus, 32 steps" in cost.caption
    assert [row[:2] for row in kink.rows] == [
        ("plain", "2.00"),
        ("strings", "3.00 (+50.0%)"),
        ("smooth", "1.50 (-25.0%)"),
    ]
    assert "paper, chord and ray" in kink.caption


def test_tables_of_a_small_run_are_two(store: Store, tmp_path: Path) -> None:
    assert len(tables(store)) == 2
    (errors, _) = tables(make(tmp_path / "quick", Config.quick()))
    assert errors.head == ("model", "star", "paper") and errors.rows[0][1] == "1.00 ± 0.20"


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Falls with two snapshots, which are drawn sooner."""
    monkeypatch.setattr(figure, "SNAPSHOTS", 2)


@pytest.mark.usefixtures("sketch")
def test_figure_writes_animations_and_discard_removes_them(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["strings", "figure", "--out", str(store.folder)]) == 0
    written = {Path(line).name for line in capsys.readouterr().out.splitlines()}
    assert written == {"objects.svg", "rollouts.svg", "training.svg", "errors.svg", "chain.gif", "star.gif"}
    assert written <= {path.name for path in store.folder.iterdir()}
    assert not list(store.folder.glob("*.part"))
    discard(store.folder)
    assert not list(store.folder.iterdir())


@pytest.mark.usefixtures("sketch")
def test_one_animation_is_committed_and_in_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(places, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(places, "EXPERIMENTS", tmp_path / "experiments")
    make(places.run_folder("strings", "paper"), Config(), {"plain": 2.0, "strings": 2.0, "moving": 1.9})
    assert cli.main(["strings", "publish"]) == cli.main(["report"]) == cli.main(["claims", "--json"]) == 0
    committed = places.committed_folder("strings")
    assert [path.name for path in committed.glob("*.gif")] == ["chain.gif"] and (committed / MANIFEST).exists()
    text = (tmp_path / "runs" / "report.html").read_text()
    (embedded,) = re.findall(r'<img alt="strings, chain" src="data:image/gif;base64,([^"]+)">', text)
    assert base64.b64decode(embedded) == (committed / "chain.gif").read_bytes()
    assert text.count("<svg") == 4 and CAPTIONS["chain"] in text
    rows = json.loads(capsys.readouterr().out.partition("report.html\n")[2])
    assert {f"{n}_{m}" for n, m in PAPER} | {"worst_violation", "moving_beats_previous"} <= {r["claim"] for r in rows}


def test_evaluate_prints_a_table(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["strings", "evaluate", "--out", str(store.folder)]) == 1
    assert "no weights" in capsys.readouterr().err
    for model in SMALL.models:
        strings = Strings(torch.from_numpy(shape("star").links), SMALL.length + SMALL.slack)
        dynamics = Dynamics(VARIANTS[model], strings, torch.ones(3), SMALL.width, SMALL.depth)
        dynamics.initialise([torch.Generator().manual_seed(0)])
        store.save(f"star-{model}-weights", pack(dynamics))
    assert cli.main(["strings", "evaluate", "--out", str(store.folder)]) == 0
    head, *lines = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head[:4] == ["object", "weights", "layer", "error"]
    rows = [("plain", "none"), ("strings", "chord"), ("plain", "chord"), ("plain", "nearest")]
    assert [tuple(line[:3]) for line in lines] == [("star", *row) for row in rows]
    assert all(float(line[5]) == 0.9 for line in lines[:2]), "the mean of the seed that was kept"
    assert all(line[5] == "-" and float(line[-1]) == 0 for line in lines[2:]), "not trained so, and feasible"
    assert float(lines[1][-1]) == 0 and all(np.isfinite(float(word)) for line in lines for word in line[3:5])


def test_help_shows_evaluate_where_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    texts = {}
    for words in ((), ("strings",), ("convex",), ("strings", "evaluate")):
        with pytest.raises(SystemExit):
            cli.main([*words, "--help"])
        texts[words] = capsys.readouterr().out
    assert "python -m experiments strings evaluate" in texts[()]
    assert "evaluate" in texts[("strings",)] and "evaluate" not in texts[("convex",)]
    assert "--out DIR" in texts[("strings", "evaluate")]
    with pytest.raises(SystemExit):
        cli.main(["convex", "evaluate"])

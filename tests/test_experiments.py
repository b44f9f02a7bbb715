"""What the experiments share: the store and its resumption, options, claims, the command line and the report."""

from __future__ import annotations

import argparse
import dataclasses
import html
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments import __main__ as cli
from experiments import registry, report
from experiments.common import claims, drawing, options, places
from experiments.common.pool import Pool
from experiments.common.progress import Progress
from experiments.common.store import MANIFEST, Store, StoreError, discard, write_arrays, write_text
from experiments.stall.config import Config

ROOT = Path(__file__).parent.parent
KEYS = ["experiment", "claim", "paper", "measured", "scale", "holds", "command"]


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Runs and committed results in a folder of their own."""
    monkeypatch.setattr(places, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(places, "EXPERIMENTS", tmp_path / "experiments")
    return tmp_path


# -- the store -------------------------------------------------------------------------------------------------------


def test_store_gives_back_what_was_saved(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "a", "stall", Config(steps=3))
    assert not store.finished and not store.has("one")
    store.save("one", {"x": np.arange(3.0), "k": np.asarray(2)})
    store.finish()
    again = Store.read(tmp_path / "a")
    assert again.finished and again.config(Config) == Config(steps=3)
    np.testing.assert_array_equal(again.load("one")["x"], np.arange(3.0))
    manifest = again.manifest
    assert manifest["experiment"] == "stall" and manifest["scale"] == "custom"
    assert manifest["command"] == "python -m experiments stall run --steps 3"
    assert manifest["versions"]["numpy"] == np.__version__ and manifest["machine"]["cores"] >= 1
    assert manifest["seconds"] >= 0


def test_writing_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that fails half-way leaves the old file, and a killed run's leftovers are not taken for a cell."""
    path = tmp_path / "cell.npz"
    write_arrays(path, {"x": np.ones(2)})

    def fail(file: Any, **_: Any) -> None:
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        write_arrays(path, {"x": np.zeros(2)})
    with np.load(path) as file:
        np.testing.assert_array_equal(file["x"], np.ones(2))
    with pytest.raises(OSError, match="disk full"):
        write_arrays(tmp_path / "other.npz", {"x": np.zeros(2)})
    assert not (tmp_path / "other.npz").exists()


def test_store_never_unpickles(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "stall", Config())
    np.savez(store.path("bad"), x=np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        store.load("bad")


def test_store_refuses_another_configuration(tmp_path: Path) -> None:
    Store.create(tmp_path, "stall", Config())
    with pytest.raises(StoreError, match=r"steps: 100 there, 7 now(.|\n)*--fresh"):
        Store.create(tmp_path, "stall", Config(steps=7))
    with pytest.raises(StoreError, match="experiment"):
        Store.create(tmp_path, "convex", Config())


def test_time_of_interrupted_runs_adds_up(tmp_path: Path) -> None:
    Store.create(tmp_path, "stall", Config()).manifest["seconds"] = 0.0
    store = Store.read(tmp_path)
    store.manifest["seconds"] = 5.0
    store.write_manifest()
    again = Store.create(tmp_path, "stall", Config())
    again.finish()
    assert Store.read(tmp_path).manifest["seconds"] >= 5.0


def test_discard_removes_results_only(tmp_path: Path) -> None:
    write_text(tmp_path / "notes.txt", "mine")
    write_arrays(tmp_path / "mine.npz", {})
    discard(tmp_path)
    assert (tmp_path / "mine.npz").exists(), "a folder without manifest holds no results"
    Store.create(tmp_path, "stall", Config()).save("one", {"x": np.ones(1)})
    discard(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


# -- options, progress, workers --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Numbers:
    """A configuration."""

    count: int = 3
    """How many."""
    sizes: tuple[float, ...] = (0.5, 1.0)
    """How large, in 100% of cases."""
    workers: int = dataclasses.field(default=2, compare=False)
    """How fast."""

    @classmethod
    def quick(cls) -> Numbers:
        return cls(count=1)


def test_options_are_the_fields() -> None:
    parser = argparse.ArgumentParser()
    options.add_options(parser, Numbers)
    text = parser.format_help()
    assert "How many. (default: 3)" in text and "in 100% of cases" in text
    arguments = parser.parse_args(["--sizes", "2", "3.5"])
    assert options.read_options(arguments, Numbers, quick=False) == Numbers(sizes=(2.0, 3.5))
    assert options.read_options(arguments, Numbers, quick=True) == Numbers(count=1, sizes=(2.0, 3.5))


def test_scale_and_command() -> None:
    assert [options.scale(c) for c in (Numbers(), Numbers.quick(), Numbers(count=9))] == ["paper", "quick", "custom"]
    assert options.scale(Numbers(workers=8)) == "paper" and "workers" not in options.as_json(Numbers())
    assert options.command("x", Numbers()) == "python -m experiments x run"
    assert options.command("x", Numbers.quick()) == "python -m experiments x run --quick"
    assert options.command("x", Numbers(sizes=(1.0, 2.0))) == "python -m experiments x run --sizes 1.0 2.0"


@pytest.mark.parametrize("name", registry.EXPERIMENTS)
def test_every_field_of_a_configuration_is_documented(name: str) -> None:
    cls = registry.config(name)
    assert {f.name for f in dataclasses.fields(cls)} == set(options.field_docstrings(cls))
    assert options.scale(cls()) == "paper" and options.scale(cls.quick()) == "quick"


def test_progress_is_sparse_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("work", 50)
    for k in range(50):
        progress.advance(f"cell {k}")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["work: 50/50 after 0 s, last cell 49"]


def test_progress_is_a_bar_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    progress = Progress("work", 2)
    progress.advance("a")
    assert "\rwork [###############...............] 1/2" in capsys.readouterr().err


def test_workers_have_one_thread_and_report_errors() -> None:
    with Pool(2) as pool:
        assert {a for (a,) in pool.run(_expect_one_thread, [(1,), (2,)])} == {1, 2}
        with pytest.raises(ZeroDivisionError):
            list(pool.run(divmod, [(1, 0)]))


def _expect_one_thread(_: int) -> None:
    import os

    assert os.environ["OMP_NUM_THREADS"] == os.environ["NPROC"] == "1"


# -- claims ----------------------------------------------------------------------------------------------------------


def test_claims_schema_of_the_committed_results() -> None:
    """A list of objects with exactly the keys, numbers that are numbers, claims that fail included."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "experiments", "claims", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert {row["experiment"] for row in rows} == set(registry.EXPERIMENTS)
    for row in rows:
        assert list(row) == KEYS
        assert isinstance(row["measured"], int | float) and not isinstance(row["measured"], bool)
        assert row["paper"] is None or isinstance(row["paper"], int | float)
        assert row["scale"] in ("paper", "quick") and isinstance(row["holds"], bool)
        assert row["command"].startswith(f"python -m experiments {row['experiment']} run")
    names = [(row["experiment"], row["claim"], row["scale"]) for row in rows]
    assert len(names) == len(set(names))
    paper = {(e, c) for e, c, scale in names if scale == "paper"}
    assert {("convex", "igd_beats_subgd"), ("stall", "pgd_stalls"), ("stall", "composition_converges")} <= paper


def test_a_claim_that_fails_is_shown_as_such(tmp_path: Path) -> None:
    store = Store.create(tmp_path, "stall", Config())
    finding = claims.Finding("nothing_works", 17, 3, False, "It does not.")
    (row,) = claims.rows(store, [finding])
    assert "NO" in claims.to_text([row]) and json.loads(claims.to_json([row]))[0]["holds"] is False
    with pytest.raises(ValueError, match="finite"):
        claims.rows(store, [dataclasses.replace(finding, measured=float("nan"))])


# -- the command line ------------------------------------------------------------------------------------------------


def test_errors_help(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["stal", "run"])
    assert "choose from" in capsys.readouterr().err
    for arguments, hint in (
        (["stall", "figure"], "python -m experiments stall run"),
        (["stall", "figure", "--quick"], "python -m experiments stall run --quick"),
        (["convex", "figure", "--out", str(elsewhere / "no")], "no results here"),
        (["claims"], "python -m experiments all --quick"),
        (["stall", "publish"], "no results here"),
    ):
        assert cli.main(arguments) == 1
        assert hint in capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert all(word in text for word in (*registry.EXPERIMENTS, "all", "report", "claims", "publish", "--quick"))


def test_run_figure_publish_claims_report(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The whole way of the small experiment, at both scales."""
    assert cli.main(["stall", "run", "--quick"]) == cli.main(["stall", "run"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(elsewhere / "runs" / s / "stall") for s in ("quick", "paper")]
    assert cli.main(["stall", "figure", "--quick"]) == 0
    figure = Path(capsys.readouterr().out.strip())
    assert figure == elsewhere / "runs" / "quick" / "stall" / "stall.svg" and "<svg" in figure.read_text()

    assert cli.main(["stall", "publish", "--out", str(elsewhere / "runs" / "quick" / "stall")]) == 1
    assert "the run is quick" in capsys.readouterr().err
    assert cli.main(["stall", "publish"]) == 0
    committed = elsewhere / "experiments" / "stall" / "results"
    assert sorted(p.name for p in committed.iterdir()) == [MANIFEST, "paths.npz", "stall.svg"]
    capsys.readouterr()

    assert cli.main(["claims", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["scale"] for row in rows] == ["paper"] * 3 + ["quick"] * 3
    assert cli.main(["report"]) == 0
    path = Path(capsys.readouterr().out.splitlines()[-1])
    assert path.is_file() and "At paper scale" in path.read_text() and "Latest quick run" in path.read_text()


def test_a_finished_run_is_kept_unless_fresh(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stall", "run", "--quick"]) == 0
    cell = elsewhere / "runs" / "quick" / "stall" / "paths.npz"
    before = cell.stat().st_mtime_ns
    assert cli.main(["stall", "run", "--quick"]) == 0 and cell.stat().st_mtime_ns == before
    assert "--fresh" in capsys.readouterr().err
    assert cli.main(["stall", "run", "--quick", "--fresh"]) == 0 and cell.stat().st_mtime_ns > before


def test_other_numbers_go_to_a_folder_of_their_own(elsewhere: Path) -> None:
    """Neither claims nor the report take them for the paper's or the quick run."""
    assert cli.main(["stall", "run", "--quick", "--steps", "9"]) == 0
    assert (elsewhere / "runs" / "custom" / "stall" / MANIFEST).exists()
    assert places.reported("stall") == []


def test_an_unfinished_run_makes_no_claims(elsewhere: Path) -> None:
    Store.create(places.run_folder("stall", "quick"), "stall", Config.quick())
    assert places.reported("stall") == []
    with pytest.raises(StoreError, match="no complete quick results"):
        places.latest("stall", quick=True)


# -- the report ------------------------------------------------------------------------------------------------------


def test_report_of_the_committed_results_stands_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(places, "RUNS", tmp_path)
    text = report.write(tmp_path / "page.html").read_text()
    assert text.count("<svg") == text.count("</svg>") == 12
    assert not re.search(r"""(src|href)=["']?(?!#|data:)[\w./]""", text.replace("xmlns:xlink", "")), "another file"
    assert "url(http" not in text and "<script" not in text and "@import" not in text
    assert "prefers-color-scheme: dark" in text and drawing.INK not in text.split("</style>")[1]
    identifiers = re.findall(r'\bid="([^"]+)"', text)
    assert len(identifiers) == len(set(identifiers)), "parts of two figures have one name"
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= set(identifiers)
    for claim, meaning in registry.collect():
        assert f"{claim.claim}<small>" in text and html.escape(meaning) in text
        assert claim.command in text
    assert text.count("does not hold</td>") == sum(not claim.holds for claim, _ in registry.collect())
    assert re.search(r"jax \d", text) and "cores" in text


def test_report_without_results_says_what_to_run(elsewhere: Path) -> None:
    text = report.write(elsewhere / "page.html").read_text()
    assert "No results yet" in text and "python -m experiments convex run" in text


def test_committed_results_are_small_and_at_paper_scale() -> None:
    files = [path for path in (ROOT / "experiments").glob("*/results/*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 5_000_000
    for name in registry.EXPERIMENTS:
        store = Store.read(places.committed_folder(name))
        assert store.finished and store.config(registry.config(name)) == registry.config(name)()
        assert {path.suffix for path in store.folder.iterdir()} - {".gif"} == {".json", ".npz", ".svg"}


@pytest.mark.parametrize("name", registry.EXPERIMENTS)
def test_readme_of_each_experiment(name: str) -> None:
    """It names the command, and shows each claim of the paper with the committed number."""
    text = (ROOT / "experiments" / name / "README.md").read_text()
    assert f"python -m experiments {name} run" in text
    store = Store.read(places.committed_folder(name))
    for row in claims.rows(store, registry.findings(name, store)):
        assert f"| `{row.claim}` | {claims.show(row.paper)} | {claims.show(row.measured)} |" in text, row.claim

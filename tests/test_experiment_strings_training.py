"""Training of the dynamics models: what is updated, validated, kept, and found again after a kill."""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from experiments.common.store import Store, StoreError
from experiments.strings import cost, evaluate
from experiments.strings.config import Config
from experiments.strings.model import PAST, VARIANTS
from experiments.strings.run import run
from experiments.strings.simulator import FALL, simulate, split
from experiments.strings.trainee import REACH, Trainee, bounded, worth_compiling
from experiments.strings.training import Session, step_size

from strings_models import TINY, model

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    out = tmp_path_factory.mktemp("strings")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "ROUNDS", 3)
        run(TINY, out)
    return Store.read(out)


def test_layer_allows_no_violation_and_plain_models_violate(store: Store) -> None:
    assert store.load("chain-plain")["violation"].min() > 0
    for name in ("strings", "smooth"):
        assert store.load(f"chain-{name}")["violation"].max() == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"objects": ("chain", "rope")}, "rope: expected some of chain, triangles, star"),
        ({"models": ("plane",)}, "plane: expected some of plain, strings"),
        ({"updates": (1,)}, "2 horizons and 1 numbers of updates: expected one of each"),
        ({"horizons": (4, 38)}, "a horizon of 38 steps is too long for trajectories of 40 steps of which 3 are given"),
        ({"device": "gpu"}, "device gpu: expected cpu, auto"),
    ],
)
def test_numbers_that_do_not_fit_are_said(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        run(dataclasses.replace(TINY, **wrong), tmp_path)


def test_a_run_without_kept_models_has_no_falls_to_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost, "measure", lambda *_: None)
    run(dataclasses.replace(TINY, models=("smooth",), updates=(2, 2), seeds=1), tmp_path)
    found = Store.read(tmp_path)
    assert found.finished and found.has("chain-smooth") and not found.has("chain-paths")


def test_cells_hold_what_was_measured(store: Store) -> None:
    cell, truth = store.load("chain-strings"), split(simulate("chain", TINY), TINY)["test"]
    assert cell["test"].shape == cell["violation"].shape == (2, 5)
    assert cell["recorded"].tolist() == [3, 6, 9, 12, 14, 15, 17, 18]
    np.testing.assert_array_equal(cell["best"], cell["validation"].min(axis=0))
    assert int(cell["kept"]) == cell["best"].argmin()
    paths = store.load("chain-paths")
    plain = store.load("chain-plain")
    which = int(plain["violation"][int(plain["kept"])].argmax())
    assert int(paths["which"]) == which
    np.testing.assert_array_equal(paths["truth"], truth[which])
    error = np.linalg.norm(paths["strings"][PAST:] - paths["truth"][PAST:], axis=-1).mean()
    np.testing.assert_allclose(error, cell["test"][int(cell["kept"]), which], rtol=0.02)  # weights in half precision
    times = store.load("cost-cpu")
    assert (times["nearest-short"] > times["plain-short"]).all() and "strings" in times


def test_kept_weights_give_the_errors_again(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    evaluate.evaluate(store.folder)
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split() for line in lines[1:]]
    assert [row[1:3] for row in rows[:2]] == [["plain", "none"], ["strings", "chord"]]
    for row, name in zip(rows, ("plain", "strings"), strict=False):
        cell = store.load(f"chain-{name}")
        assert abs(float(row[3]) - cell["test"][int(cell["kept"])].mean()) < 0.05
    free, _, pulled, nearest = (float(row[3]) for row in rows)
    assert len({free, pulled, nearest}) == 3, "the layer behind the weights makes a difference"
    assert [float(row[-1]) > 0 for row in rows] == [True, False, False, False]


def test_training_lowers_the_error_and_depends_on_the_seed_alone() -> None:
    paths = simulate("chain", TINY)
    ends = []
    for _ in range(2):
        trainee = Trainee("chain", "plain", paths, TINY, torch.device("cpu"))
        trainee.rate.fill_(1e-2)
        windows = trainee.sample(1, 0)
        losses = torch.stack([trainee.update(windows[k % 2]).clone() for k in range(60)])  # two batches by heart
        assert (losses[-2:].mean(0) < 0.5 * losses[:2].mean(0)).all()
        ends.append([p.detach().clone() for p in trainee.parameters])
    for first, second in zip(*ends, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0)
        assert not torch.equal(first[0], first[1]), "every seed has weights of its own"


def test_batches_begin_at_the_start_often_and_differ_between_seeds() -> None:
    trainee = Trainee("chain", "plain", simulate("chain", TINY), TINY, torch.device("cpu"))
    windows = torch.cat([trainee.sample(0, k) for k in range(8)])
    assert windows.shape == (128, 2, 4, PAST + 4, 7, 2)
    starts = {path[0].numpy().tobytes() for path in trainee.paths}
    at_start = np.mean([w[0].numpy().tobytes() in starts for w in windows.flatten(0, 2)])
    assert 0.2 < at_start < 0.4
    assert not torch.equal(windows[:, 0], windows[:, 1])
    torch.testing.assert_close(trainee.sample(0, 3), windows[48:64], rtol=0, atol=0)


def test_gradients_are_clipped_for_each_seed() -> None:
    trainee = Trainee("chain", "plain", simulate("chain", TINY), TINY, torch.device("cpu"))
    with torch.no_grad():
        trainee.parameters[4][0].normal_(
            0, 1
        )  # the last weights, zero at first: large for one seed, small for the other
        trainee.parameters[4][1].normal_(0, 1e-4)
    trainee.update(trainee.sample(1, 0)[0])
    squares = [cast(torch.Tensor, p.grad).square().sum((-2, -1)) for p in trainee.parameters]
    first, second = torch.stack(squares).sum(0).sqrt().tolist()
    assert abs(first - 1) < 1e-5 and 1e-4 < second < 0.99


def test_the_gradient_of_each_window_is_limited_at_each_step() -> None:
    x = torch.ones(3, 2, 1, 2, requires_grad=True)
    incoming = torch.tensor([[[3.0, 4.0]], [[30.0, 40.0]]]) * torch.tensor([1.0, 1e4, math.inf])[:, None, None, None]
    (gradient,) = torch.autograd.grad(bounded(x, torch.tensor(6.0)), x, incoming)
    np.testing.assert_allclose(gradient[0], [[[3, 4]], [[3.6, 4.8]]], rtol=1e-6)
    np.testing.assert_allclose(gradient[1], [[[3.6, 4.8]], [[3.6, 4.8]]], rtol=1e-6)
    assert not gradient[2].any()


def test_the_limit_is_a_quarter_of_the_steps_over_the_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    trainee, seen = Trainee("chain", "strings", simulate("chain", TINY), TINY, torch.device("cpu")), []
    monkeypatch.setattr(trainee, "step", lambda leaves, past, limit: seen.append(limit) or trainee.call(leaves, past))
    trainee.update(trainee.sample(1, 0)[0])
    assert seen == [REACH * 8 / 4] * 8 and REACH == 0.25


def test_without_their_layer_models_with_the_same_inputs_are_one(store: Store) -> None:
    config = dataclasses.replace(TINY, models=("plain", "strings", "raw_plain", "raw_strings"))
    paths = simulate("chain", config)
    trainees = {f"chain-{m}": Trainee("chain", m, paths, config, torch.device("cpu")) for m in config.models}
    session = Session(trainees, config, store)
    assert list(session.leaders.values()) == ["chain-plain", "chain-plain", "chain-raw_plain", "chain-raw_plain"]
    session.save = lambda: None
    progress = cast(Any, type("Silent", (), {"advance": lambda *_: None})())
    session.train_stage(0, progress)
    for name, leader in session.leaders.items():
        ours, theirs = trainees[name].state(), trainees[leader].state()
        for kind in ("parameters", "average", "moments"):
            assert all(torch.equal(a, b) for a, b in zip(ours[kind], theirs[kind], strict=True)), (name, kind)
    done, loss, error = session.curve[-1]
    assert done == 12 and loss["chain-plain"] == loss["chain-strings"] != loss["chain-raw_plain"]
    assert error["chain-plain"] != error["chain-strings"]  # validation is with the layer
    session.train_stage(1, progress)
    assert not torch.equal(trainees["chain-plain"].average[0], trainees["chain-strings"].average[0])


def test_step_size_falls_to_zero_in_each_phase() -> None:
    rates = [step_size(k, TINY) for k in range(18)]
    np.testing.assert_allclose([rates[0], rates[6], rates[12], rates[15]], [1e-3, 5e-4, 2e-4, 1e-4])
    assert rates[11] < 0.03e-3 and rates[17] < 0.02e-3
    assert step_size(0, dataclasses.replace(TINY, layer_from=0)) == TINY.rate_with_layer


def test_what_is_validated_is_a_running_average() -> None:
    trainee = Trainee("chain", "plain", simulate("chain", TINY), TINY, torch.device("cpu"))
    trainee.rate.fill_(1e-2)
    before = [mean.clone() for mean in trainee.average]
    trainee.update(trainee.sample(0, 0)[0])
    for old, new, p in zip(before, trainee.average, trainee.parameters, strict=True):
        torch.testing.assert_close(new, 0.999 * old + 0.001 * p)
    assert not torch.equal(before[4], trainee.average[4])


def test_weights_are_kept_in_half_precision() -> None:
    made, paths = model(VARIANTS["strings"]), simulate("chain", TINY)
    kept = evaluate.pack(made)
    assert {str(array.dtype) for array in kept.values()} == {"float16"}
    again = evaluate.unpack("chain", "strings", kept, paths, dataclasses.replace(TINY, width=16))
    assert not again.training
    for first, second in zip(made.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(second, first.half().float(), rtol=0, atol=0)


def test_layer_joins_late_but_validation_is_always_with_it() -> None:
    trainee = Trainee("chain", "strings", simulate("chain", TINY), TINY, torch.device("cpu"))
    with torch.no_grad():
        trainee.average[4].normal_(0, 3)
    with_layer = []
    for stage in (0, 1):
        trainee.engage(stage)
        assert trainee.model.engaged == (stage == 1)
        with_layer.append(trainee.validate())
        assert trainee.model.engaged == (stage == 1) and trainee.model.training
    assert with_layer[0] == with_layer[1] == trainee_errors(trainee, training=False)
    assert with_layer[0] != trainee_errors(trainee, training=True)  # without the margin for rounding
    trainee.model.engaged = False
    assert with_layer[0] != trainee_errors(trainee, training=False)


def trainee_errors(trainee: Trainee, training: bool) -> list[float]:
    trainee.model.train(training)
    return trainee.errors().tolist()


def test_validation_keeps_the_best_average_of_each_seed() -> None:
    trainee = Trainee("chain", "plain", simulate("chain", TINY), TINY, torch.device("cpu"))
    before = trainee.validate()
    with torch.no_grad():
        trainee.average[4][0].normal_(0, 3)
        trainee.average[9][1, 0, 1::2] = FALL / (3 * trainee.model.scales[2])  # what the second seed has to learn first
    after = trainee.validate()
    assert after[0] > before[0] and after[1] < before[1]
    assert trainee.score.tolist() == [before[0], after[1]]
    assert not trainee.best[4][0].any() and trainee.best[9][1].any()


def test_compiling_is_for_long_runs() -> None:
    cpu = torch.device("cpu")
    assert worth_compiling(TINY, torch.device("cuda")) and not worth_compiling(Config.quick(), cpu)
    assert worth_compiling(Config(), cpu) == (shutil.which("g++") is not None)


def test_an_update_that_overflows_is_left_out() -> None:
    trainee = Trainee("chain", "plain", simulate("chain", TINY), TINY, torch.device("cpu"))
    trainee.rate.fill_(1e-3)
    windows = trainee.sample(0, 0)[0].clone()
    windows[1] *= 1e38
    before = [p.detach().clone() for p in trainee.parameters]
    trainee.update(windows)
    for old, new in zip(before, trainee.parameters, strict=True):
        assert new.isfinite().all()
        torch.testing.assert_close(new[1], old[1], rtol=0, atol=0)
    assert not torch.equal(before[-1][0], trainee.parameters[-1][0])


def test_a_killed_run_goes_on_where_it_was(store: Store, tmp_path: Path) -> None:
    """Killed during the second stage; the resumed run ends with the numbers of the run that was not."""
    out = tmp_path / "run"
    code = (
        "import sys, time; from pathlib import Path; from strings_models import TINY\n"
        "from experiments.strings import cost, run, training\n"
        "cost.measure = lambda *_: None\n"
        "before = training.Session.train_stage\n"
        "def slow(self, stage, progress):\n"
        "    if stage == 1 and not Path(sys.argv[1], 'resume').exists(): time.sleep(60)\n"
        "    before(self, stage, progress)\n"
        "training.Session.train_stage = slow\n"
        "run.run(TINY, Path(sys.argv[1]))\n"
    )
    command = [sys.executable, "-c", code, str(out)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 60
    while not (out / "checkpoint.pt").exists() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert (out / "checkpoint.pt").exists() and not Store.read(out).has("chain-plain")
    (out / "resume").touch()
    again = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert "going on with 12 of 18 updates already there" in again.stderr
    for name in ("chain-plain", "chain-strings", "chain-paths"):
        for key, value in store.load(name).items():
            np.testing.assert_array_equal(Store.read(out).load(name)[key], value, err_msg=f"{name} {key}")

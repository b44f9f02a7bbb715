"""Runs of natural gradient that make the problems: what is stored, what is solved, and runs that were killed."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from experiments.common.store import Store, StoreError, read_arrays
from experiments.trust_region import collect, cost
from experiments.trust_region.config import Config, key
from experiments.trust_region.natural import natural_gradient, search
from experiments.trust_region.policy import SPREAD
from experiments.trust_region.problem import pack, stack
from experiments.trust_region.run import count, run
from experiments.trust_region.solve import METHODS

CPU = torch.device("cpu")
EPSILON = 0.01
TINY = Config(
    runs=1,
    steps=300,
    batch=100,
    features=30,
    width=8,
    epochs=2,
    rates=(1e-3, 2e-3),
    minibatches=(50,),
    started_minibatch=40,
    started_epochs=3,
    other_conjugate=(2, 3),
    other_damping=(1e-2, 1e-1),
    other_every=(1, 5),
    every=2,
    workers=1,
    device="cpu",
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole run with both policies."""
    out = tmp_path_factory.mktemp("trust_region")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cost, "ROUNDS", 2)
        patch.setattr(cost, "STEPS", 2)
        run(TINY, out)
    return out


def test_cells_hold_what_was_measured(played: Path) -> None:
    store = Store.read(played)
    assert store.finished
    for policy in TINY.policies:
        files = collect.problem_files(played, policy, 0)
        cell, tried = store.load(key(policy, 0)), store.load(f"{policy}-grid")
        assert cell["states"].sum() >= 300 > cell["states"][:-1].sum() and (cell["states"] >= 100).all()
        stacked = stack([read_arrays(path) for path in files], CPU)
        natural = search(stacked, natural_gradient(stacked, EPSILON, 15, 1e-3), EPSILON, 0.9)
        np.testing.assert_allclose(cell["natural-gain"][0], stacked.gain(natural), rtol=1e-3, atol=1e-5)
        for method in ("natural", *METHODS):
            assert cell[f"{method}-gain"].shape == cell[f"{method}-kl"].shape == (2, len(files))
            assert (cell[f"{method}-kl"] <= EPSILON).all()
        some = (np.arange(len(files)) % 2 == 0).nonzero()[0]
        assert tried["update"].tolist() == some.tolist() and tried["paper"].shape == (1, 2, 2, len(some))
        # conjugate gradients: a roundoff in the data moves a gain by 1 %, and so do sums of another batch, on some
        # processors; the gains of two problems differ by half
        np.testing.assert_allclose(tried["natural"], cell["natural-gain"][:, some], rtol=0.03)
        spent = store.load(f"{policy}-cost")
        assert np.median(spent["cone"]) > 5 * np.median(spent["naive"])


def test_a_killed_run_goes_on_where_it_was(played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after a problem was stored and before the update was: the problem is played again, the same."""
    (tmp_path / "instances").mkdir()
    made = collect.Player.improve
    stops = iter([False, True])

    def improve(player: collect.Player, *arguments: Any) -> None:
        if next(stops, False):
            raise KeyboardInterrupt
        made(player, *arguments)

    monkeypatch.setattr(collect.Player, "improve", improve)
    with pytest.raises(KeyboardInterrupt):
        collect.collect("network", 0, TINY, tmp_path)
    assert count(tmp_path) == 2
    collect.collect("network", 0, TINY, tmp_path)
    ours, theirs = (collect.problem_files(folder, "network", 0) for folder in (tmp_path, played))
    assert [path.name for path in ours] == [path.name for path in theirs] and len(ours) > 1
    for a, b in zip(ours, theirs, strict=True):
        one, other = read_arrays(a), read_arrays(b)
        assert one.keys() == other.keys() and all(np.array_equal(one[name], other[name]) for name in one)
    assert not list(tmp_path.glob("**/*.part"))


def test_a_finished_run_plays_nothing_again(played: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError

    for name in ("collect", "solve_cell"):
        monkeypatch.setattr(f"experiments.trust_region.run.{name}", refuse)
    before = {path: path.stat().st_mtime for path in played.glob("*.npz")}
    run(TINY, played)
    assert before == {path: path.stat().st_mtime for path in played.glob("*.npz")}


def test_stored_problems_are_what_the_policy_did(played: Path) -> None:
    for policy in TINY.policies:
        stored = read_arrays(collect.problem_files(played, policy, 0)[1])
        assert abs(stored["advantages"].mean()) < 1e-5 and abs(stored["advantages"].std() - 1) < 1e-4
        stacked = stack([stored], CPU)
        noise = (stacked.actions - stacked.old_means) * torch.exp(-stacked.old[SPREAD])
        assert 0.8 < float(noise.std()) < 1.2 and abs(float(noise.mean())) < 0.2


@pytest.mark.parametrize("policy", TINY.policies)
def test_players_act_by_the_policy_that_is_stored(policy: str, tmp_path: Path) -> None:
    player = collect.Player(policy, 3, TINY, tmp_path / "none.pt")
    random = np.random.default_rng(0)
    player.parameters = {n: p + random.normal(size=p.shape).astype(np.float32) for n, p in player.parameters.items()}
    states = random.normal(size=(6, 24)).astype(np.float32)
    empty = np.zeros(6, np.float32)
    stacked = stack([pack(player.fixed, player.parameters, states, np.zeros((6, 4), np.float32), empty)], CPU)
    np.testing.assert_allclose(np.stack([player.act(s) for s in states]), stacked.old_means[0], rtol=1e-4, atol=1e-5)


def test_advantages_are_sums_of_discounted_errors(tmp_path: Path) -> None:
    player, random = collect.Player("network", 0, TINY, tmp_path / "none.pt"), np.random.default_rng(1)
    for last in (None, random.normal(size=24).astype(np.float32)):
        episode = collect.Episode()
        episode.states = list(random.normal(size=(5, 24)).astype(np.float32))
        episode.rewards, episode.last = list(random.normal(size=5)), last
        with torch.no_grad():
            values = [float(player.values(torch.from_numpy(s))) for s in episode.states]
            values.append(0.0 if last is None else float(player.values(torch.from_numpy(last))))
        errors = [r + 0.99 * values[k + 1] - values[k] for k, r in enumerate(episode.rewards)]
        expected = [sum((0.99 * 0.97) ** (j - k) * errors[j] for j in range(k, 5)) for k in range(5)]
        np.testing.assert_allclose(player.advantages(episode), expected, rtol=1e-5, atol=1e-6)


def test_a_missing_environment_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(StoreError, match=r"pip install 'gymnasium\[box2d\]'"):
        run(TINY, tmp_path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"policies": ("linear", "tree")}, "tree: expected some of linear, network"),
        ({"minibatches": (64, 200)}, r"mini-batches of \[200\] states: expected at most the 100 of a problem"),
        ({"factors": (0.9, 1.5)}, r"factors \[1.5\]: expected numbers between 0 and 1"),
        ({"device": "gpu"}, "device gpu: expected cpu, auto"),
    ],
)
def test_numbers_that_do_not_fit_are_said(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=message):
        run(dataclasses.replace(TINY, **wrong), tmp_path)

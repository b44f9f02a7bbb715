"""`examples/learning_curve`: the KL of its updates by torch.distributions, advantages, resuming, the figure."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from examples.learning_curve import __main__ as command
from examples.learning_curve import figure, train, trpo
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence
from torch.nn.utils import parameters_to_vector

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "examples" / "learning_curve" / "results"
PENDULUM = "Pendulum-v1"
SMALL = dataclasses.replace(train.SETTINGS[PENDULUM], horizon=205, critic_epochs=1)
"""An episode has 200 steps: one ends in each environment."""
both_updates = pytest.mark.parametrize("update", train.UPDATES)


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def beginning(settings: train.Settings) -> tuple[train.Policy, train.Batch]:
    """A policy, and transitions that it made."""
    policy, critic = train.Policy(3, 1), train.network(3, 1, 1.0)
    return policy, train.Sampler(PENDULUM, 0, settings).collect(policy, critic)


def independent_kl(new: nn.Module, old: nn.Module, states: torch.Tensor) -> float:
    """By torch.distributions, from the networks in float64."""

    def gaussian(policy: nn.Module) -> MultivariateNormal:
        mean, log_std = copy.deepcopy(policy).double()(states.double())
        return MultivariateNormal(mean, torch.diag(log_std.exp() ** 2))

    with torch.no_grad():
        return kl_divergence(gaussian(new), gaussian(old)).mean().item()


# -- updates --------------------------------------------------------------------------------------------


@both_updates
def test_kl_of_each_update(update: str) -> None:
    """Within epsilon, of which the network itself uses most; at a rate that would take it far outside."""
    settings = dataclasses.replace(SMALL, rate=3e-3, epochs=10, cg_damping=1e-3)
    policy, critic = train.Policy(3, 1), train.network(3, 1, 1.0)
    sampler = train.Sampler(PENDULUM, 0, settings)
    for _ in range(3):
        batch, old = sampler.collect(policy, critic), copy.deepcopy(policy)
        kl, gain = train.improve(policy, batch, settings, update)
        measured = independent_kl(policy, old, batch.states)
        assert 0.5 * settings.epsilon < measured <= settings.epsilon * (1 + 1e-5)  # the network ran in float32
        assert kl <= settings.epsilon and kl == pytest.approx(measured, rel=1e-4)
        assert gain > 0


def test_loss_sees_the_layer() -> None:
    """Far outside, the gradient is another one with the layer than without it."""
    ends = []
    for epsilon in (1e-4, 1e4):
        torch.manual_seed(0)
        settings = dataclasses.replace(SMALL, rate=3e-3, epsilon=epsilon)
        policy, batch = beginning(settings)
        mean, log_std = policy(batch.states)
        train.through_layer(policy, batch, (mean.detach(), log_std.detach().clone()), settings)
        ends.append(parameters_to_vector(policy.parameters()))
    assert (ends[0] - ends[1]).abs().max() > 1e-3


def test_natural_gradient_has_the_length_of_the_trust_region() -> None:
    """The KL is quadratic for a small epsilon, and then the step needs no shortening."""
    settings = dataclasses.replace(SMALL, epsilon=1e-5, cg_damping=1e-6, shrink=1e-4)
    policy, batch = beginning(settings)
    old = copy.deepcopy(policy)
    mean, log_std = (v.detach().clone() for v in policy(batch.states))
    train.natural_gradient(policy, batch, (mean, log_std), settings)
    assert independent_kl(policy, old, batch.states) == pytest.approx(1e-5, rel=0.05)


def test_step_that_does_not_gain_is_undone() -> None:
    """A wider policy, where the good actions are in the middle."""
    policy, batch = beginning(SMALL)
    start = parameters_to_vector(policy.parameters()).detach().clone()
    mean, log_std = (v.detach().clone() for v in policy(batch.states))
    good = torch.arange(len(mean)) % 2 == 0
    batch.actions = torch.where(good[:, None], mean, mean + 3 * log_std.exp())
    batch.advantages = torch.where(good, 1.0, -1.0)
    with torch.no_grad():
        policy.log_std.add_(0.01)
    assert train.shorten(policy, start, batch, (mean, log_std), SMALL) == (0.0, 0.0)
    assert torch.equal(parameters_to_vector(policy.parameters()), start)


# -- data -----------------------------------------------------------------------------------------------


def test_advantages() -> None:
    """Against the double sum of the definition."""
    random = np.random.default_rng(0)
    rewards, values, ends = random.normal(size=(9, 2)), random.normal(size=(10, 2)), np.zeros((9, 2), bool)
    ends[4, 0] = ends[8, 1] = True
    given = train.estimate_advantages(rewards, ends, values, SMALL)
    for env, start in itertools.product(range(2), range(9)):
        expected, weight = 0.0, 1.0
        for k in range(start, 9):
            follows = 0.0 if ends[k, env] else values[k + 1, env]
            expected += weight * (rewards[k, env] + SMALL.discount * follows - values[k, env])
            weight *= SMALL.discount * SMALL.trace
            if ends[k, env]:
                break
        assert given[start, env] == pytest.approx(expected)


class Constant(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.full((*states.shape[:-1], 1), self.value)


def test_time_limit_is_no_end() -> None:
    """Without a trace the target is r + discount V(s'), at the time limit as anywhere; a return is the sum of r."""
    settings, targets = dataclasses.replace(SMALL, trace=0.0), []
    for value in (0.0, 7.0):
        torch.manual_seed(0)
        batch = train.Sampler(PENDULUM, 0, settings).collect(train.Policy(3, 1), Constant(value))
        targets.append(batch.targets)
        rewards = targets[0].unflatten(0, (settings.horizon, 2))[:200]
        assert batch.returns == pytest.approx(rewards.sum(0).tolist(), rel=1e-5)
    torch.testing.assert_close(targets[1], targets[0] + settings.discount * 7)


def test_returns_are_those_of_the_environment() -> None:
    """Rewards that are divided for the critic are not divided in the curve; observations come out normalised."""
    torch.manual_seed(0)
    plain = beginning(SMALL)[1]
    torch.manual_seed(0)
    settings = dataclasses.replace(SMALL, normalize=True)
    policy, critic = train.Policy(3, 1), train.network(3, 1, 1.0)
    sampler = train.Sampler(PENDULUM, 0, settings)
    scaled = sampler.collect(policy, critic)  # the first observations are as they are
    assert scaled.returns == plain.returns
    assert scaled.targets.std() < 0.5 * plain.targets.std()
    shown = sampler.show(scaled.states.numpy())  # later ones have the mean and the deviation of all so far removed
    torch.testing.assert_close(shown.mean(0), torch.zeros(3), rtol=0.0, atol=1e-5)
    torch.testing.assert_close(shown.std(0, correction=0), torch.ones(3))


def test_running_statistics() -> None:
    rows = np.random.default_rng(0).normal(3.0, 2.0, size=(50, 2))
    running = train.Running((2,))
    for part in np.split(rows, [5, 30]):
        running.add(part)
    np.testing.assert_allclose(running.mean, rows.mean(0))
    np.testing.assert_allclose(running.variance, rows.var(0))


# -- runs -----------------------------------------------------------------------------------------------


def run(out: Path, *more: str) -> None:
    arguments = ["run", "--env", PENDULUM, "--method", "trust_region", "--steps", str(2 * SMALL.batch), "--seeds", "2"]
    command.main([*arguments, "--out", str(out), *more])


def test_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is there stays as it is; one that is missing comes out the same; other settings are refused."""
    monkeypatch.setitem(train.SETTINGS, PENDULUM, SMALL)
    run(tmp_path)
    names = [f"{PENDULUM}-trust_region-{seed}" for seed in (0, 1)]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"{n}{end}" for n in names for end in (".json", ".npz"))
    first = {name: dict(np.load(tmp_path / f"{name}.npz", allow_pickle=False)) for name in names}
    assert not np.array_equal(first[names[0]]["kl"], first[names[1]]["kl"])
    for columns in first.values():
        assert (columns["kl"] <= SMALL.epsilon).all() and columns["episodes"].tolist() == [2, 2]
        assert (columns["returns"] < 0).all() and (columns["gain"] >= 0).all()

    (tmp_path / f"{names[1]}.json").unlink()  # as if it had been stopped
    untouched = (tmp_path / f"{names[0]}.npz").stat().st_mtime_ns
    run(tmp_path)
    assert (tmp_path / f"{names[0]}.npz").stat().st_mtime_ns == untouched
    with np.load(tmp_path / f"{names[1]}.npz", allow_pickle=False) as again:
        for column, values in first[names[1]].items():
            np.testing.assert_array_equal(again[column], values)

    monkeypatch.setitem(train.SETTINGS, PENDULUM, dataclasses.replace(SMALL, epsilon=0.02))
    with pytest.raises(SystemExit, match=r"Pendulum-v1-trust_region-0.json is a run with other settings: remove it"):
        run(tmp_path)


def test_without_stable_baselines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with pytest.raises(SystemExit, match=r"--method trpo is the one of sb3-contrib: pip install -e '.\[examples\]'"):
        run(tmp_path, "--method", "trust_region", "trpo")
    assert not list(tmp_path.iterdir())  # it says so before the first run


def test_same_sizes_for_the_reference() -> None:
    """What the zoo says and what our own updates use."""
    for name, own in train.SETTINGS.items():
        other = trpo.settings(name)
        assert own.batch == trpo.BATCH and other["n_envs"] == own.environments
        pairs = {
            "gamma": own.discount,
            "gae_lambda": own.trace,
            "target_kl": own.epsilon,
            "n_critic_updates": own.critic_epochs,
            "batch_size": own.critic_batch,
            "learning_rate": own.critic_rate,
            "cg_damping": own.cg_damping,
            "normalize": own.normalize,
        }
        assert {key: other[key] for key in pairs} == pairs


@pytest.mark.parametrize("option", ("--steps", "--seeds"))
def test_wrong_numbers(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["run", option, "0"])
    assert f"{option} 0: expected a positive number" in capsys.readouterr().err


# -- the figure -----------------------------------------------------------------------------------------


def test_smoothing() -> None:
    """The mean over episodes, not over updates; nothing before the first episode ends."""
    given = figure.smooth(np.array([0.0, 30.0, 5.0, 0.0, 7.0]), np.array([0, 3, 1, 0, 1]), 2)
    np.testing.assert_allclose(given, [np.nan, 10.0, 35 / 4, 5.0, 7.0])


def test_no_runs(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"has no runs: python -m examples.learning_curve run"):
        command.main(["figure", "--out", str(tmp_path)])


def test_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is committed was made with these settings, kept the bound, and gives the numbers of the README."""
    files = sorted(RESULTS.glob("*.json"))
    for found in (json.loads(file.read_text()) for file in files):
        steps = found["updates"] * found["batch"]
        wanted = command.plan(found["environment"], found["method"], found["seed"], steps)
        assert command.is_done(RESULTS, wanted)
        with np.load(RESULTS / f"{command.stem(found)}.npz", allow_pickle=False) as columns:
            assert len(columns["kl"]) == found["updates"] and (columns["kl"] <= 0.01).all()
    command.main(["figure", "--out", str(RESULTS), "--figure", str(tmp_path / "figure.svg")])
    drawn = (tmp_path / "figure.svg").read_text()
    assert all(text in drawn for text in (*figure.LABEL.values(), *train.SETTINGS, "thousand steps of the environment"))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:-1]]
    assert [row[:2] for row in rows] == [[name, method] for name in train.SETTINGS for method in figure.LABEL]
    readme = (ROOT / "README.md").read_text()
    for name, method, seeds, steps, mean, _, error, over_mean, _, over_error in rows:
        for head, text in (
            (f"{seeds} seeds, over {int(steps):,} steps", f"{over_mean} ± {over_error}"),
            ("the last 20,000", f"{mean} ± {error}"),
        ):
            shown = re.search(rf"^\| `{name}`, {head} \|(.*)\|$", readme, re.MULTILINE)
            assert shown, f"the README has no row for {name}, {head}"
            assert shown[1].split("|")[list(figure.LABEL).index(method)].strip() == text, (name, method)

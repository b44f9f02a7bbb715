"""Bodies linked by strings: the simulator, the models, and what may be done with a trained model."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import cast

import numpy as np
import onnxruntime
import pytest
import torch
from experiments.strings import objects
from experiments.strings.config import RATE, Config
from experiments.strings.model import VARIANTS, distance, rollout, smooth
from experiments.strings.simulator import FALL, simulate, split, trajectory
from experiments.strings.trainee import turned

from inset import project
from strings_models import TINY, model, start, strings

# -- objects and simulator -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "links", "symmetries"), [("chain", 6, 4), ("triangles", 9, 2), ("star", 12, 12)])
def test_objects_are_the_papers(name: str, links: int, symmetries: int) -> None:
    shape = objects.shape(name)
    assert len(shape.positions) == 7 and len(shape.links) == links
    ends = shape.positions[shape.links]
    np.testing.assert_allclose(np.linalg.norm(ends[:, 0] - ends[:, 1], axis=-1), 1, atol=1e-12)
    found = shape.symmetries()
    assert len(found) == symmetries
    linked = {frozenset(pair) for pair in shape.links.tolist()}
    for order, matrix in found:
        np.testing.assert_allclose(shape.positions[order] @ matrix.T, shape.positions, atol=1e-12)
        assert {frozenset(order[list(pair)].tolist()) for pair in linked} == linked


def test_unknown_object_is_named() -> None:
    with pytest.raises(ValueError, match="'rope': expected one of chain, triangles, star"):
        objects.shape("rope")


@pytest.mark.parametrize("name", objects.NAMES)
def test_simulation_obeys_mechanics(name: str) -> None:
    """Strings hold, the mean falls freely, and energy around the mean is lost, never gained, after the kick."""
    config = dataclasses.replace(TINY, steps=485)
    shape, path = objects.shape(name), trajectory(name, 2, 1.1, config).astype(np.float64)
    spans = path[:, shape.links[:, 0]] - path[:, shape.links[:, 1]]
    assert np.linalg.norm(spans, axis=-1).max() < config.length + config.slack
    mean = path.mean(axis=1)
    impulse = config.force / RATE**2 / (7 * np.pi / 4) * np.array([np.cos(1.1), np.sin(1.1)])  # in one step, by mass
    np.testing.assert_allclose(np.diff(mean, axis=0)[0], impulse + np.array([0, 2 * FALL]), atol=2e-4)
    np.testing.assert_allclose(np.diff(mean, 2, axis=0), np.tile([0, FALL], (483, 1)), atol=4e-5)
    speeds = np.diff(path - mean[:, None], axis=0)
    energy = (speeds**2).sum((-2, -1))
    windows = energy[: 480 // 20 * 20].reshape(-1, 20).mean(axis=1)  # spinning discs give and take a little
    assert (np.diff(windows) < 0.02 * windows[0]).all() and 0 < windows[-1] < windows[0]


def test_slack_is_what_strings_stretch_by() -> None:
    """And not much more, or the layer would fight the data, or allow what does not happen."""
    paths, (first, second) = simulate("triangles", Config()).astype(np.float64), objects.shape("triangles").links.T
    stretch = np.linalg.norm(paths[:, :, first] - paths[:, :, second], axis=-1).max() - Config().length
    assert 0.9 * Config().slack < stretch < Config().slack


def test_kicks_point_upwards_and_depend_on_the_seed_alone() -> None:
    paths = simulate("chain", TINY)
    assert paths.shape == (15, 40, 7, 2) and paths.dtype == np.float32
    first = paths[:, 0].mean(axis=1) - [0, TINY.height + FALL]
    assert (first[:, 1] > -1e-4).all() and (first[:, 0] < 0).any() and (first[:, 0] > 0).any()
    np.testing.assert_array_equal(paths, simulate("chain", TINY))
    assert not np.array_equal(paths, simulate("chain", dataclasses.replace(TINY, seed=1)))


def test_parts_are_disjoint() -> None:
    paths = simulate("star", TINY)
    parts = split(paths, TINY)
    assert [len(parts[name]) for name in ("train", "validation", "test")] == [6, 4, 5]
    np.testing.assert_array_equal(np.concatenate(list(parts.values())), paths)
    assert len({path.tobytes() for path in paths}) == len(paths)


@pytest.mark.parametrize("name", objects.NAMES)
def test_turned_trajectories_are_those_of_a_turned_kick(name: str) -> None:
    """Up to the order in which Box2D's solver sees the strings."""
    angle = 0.7
    path = trajectory(name, 1, angle, TINY)
    for (order, matrix), image in zip(objects.shape(name).symmetries(), turned(name, path[None], TINY), strict=True):
        body = int(np.flatnonzero(order == 1)[0])
        x, y = matrix @ [np.cos(angle), np.sin(angle)]
        again = trajectory(name, body, float(np.arctan2(y, x)), TINY)
        np.testing.assert_allclose(image[0], again[0], atol=2e-3)
        np.testing.assert_allclose(image, again, atol=0.15)  # the kicked body has moved by several units


# -- models ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "variant"),
    [*itertools.product(objects.NAMES, ("strings", "moving", "smooth", "raw_strings")), ("chain", "nearest")],
)
def test_no_string_is_too_long_along_a_rollout(name: str, variant: str) -> None:
    """In float32, 400 units from the origin, for a model that would tear all strings."""
    free = model(dataclasses.replace(VARIANTS[variant], layer="none"), name).eval()
    held = model(VARIANTS[variant], name).eval()
    with torch.no_grad():
        torn, path = (rollout(m, start(name), 30 if variant == "nearest" else 100) for m in (free, held))
    assert (strings(name).h(torn).amax(-1) > 1).all()
    assert path.dtype == torch.float32 and strings(name).contains(path).all()
    assert strings(name).contains(path.double()).all()


def test_paper_chord_and_ray_are_one_map_here() -> None:
    """From a point where all bodies are, every string grows linearly along the ray."""
    x = torch.randn(200, 7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    anchor = strings().anchor(torch.randn(200, 7, 2, dtype=torch.float64))
    paper, chord, ray = (project(strings(), x, anchor, method=m, strict=False) for m in ("paper", "chord", "ray"))
    torch.testing.assert_close(paper, ray, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(chord, ray, rtol=1e-12, atol=1e-12)


def test_smooth_layer_has_no_kink_and_leaves_slack_strings_alone() -> None:
    """Along a ray, the derivative of the length of the longest string is continuous, and that length below 1."""
    x, anchor = objects.shape("chain").positions * 2.005, torch.zeros(7, 2, dtype=torch.float64)
    r = torch.linspace(0.95, 1.05, 1001, dtype=torch.float64)
    y = smooth(strings(), r[:, None, None] * torch.from_numpy(x), anchor)
    longest = (y[:, 1:] - y[:, :-1]).norm(dim=-1).amax(-1) / 2.005
    torch.testing.assert_close(longest[r < 0.9899], r[r < 0.9899])
    assert (longest < 1).all() and (longest.diff() > 0).all()
    assert longest.diff(n=2).abs().max() < 2e-6  # a kink would show as 1e-4


def test_moving_layer_leaves_the_mean_alone_and_the_papers_pulls_it_back() -> None:
    previous = torch.from_numpy(objects.shape("chain").positions)
    y = 3 * previous + torch.tensor([0.0, -1.0])  # strings three times as long as they may be, and a fall
    for variant, mean in (("moving", -1.0), ("strings", -1.0 * 2.005 / 3), ("raw_strings", -1.0 * 2.005 / 3)):
        held = model(VARIANTS[variant]).double().constrain(y, previous)
        torch.testing.assert_close(held.mean(0), torch.tensor([0.0, mean], dtype=torch.float64), rtol=1e-6, atol=1e-9)


def test_raw_model_sees_positions_and_relative_model_does_not_see_where() -> None:
    shift = torch.tensor([100.0, -50.0])
    past = start().double()
    relative, raw = model(VARIANTS["plain"]).double(), model(VARIANTS["raw_plain"]).double()
    torch.testing.assert_close(relative(past + shift), relative(past) + shift, rtol=0, atol=1e-9)
    assert (raw(past + shift) - raw(past) - shift).abs().max() > 1
    with torch.no_grad():
        relative.weights[-1].zero_()
    torch.testing.assert_close(relative(past), 2 * past[:, -1] - past[:, -2])


@pytest.mark.parametrize("variant", ["plain", "strings", "smooth"])
def test_models_side_by_side_are_the_models_alone(variant: str) -> None:
    both, past = model(VARIANTS[variant], members=2).eval(), start()
    together = rollout(both, past.expand(2, *past.shape), 5)
    for k in range(2):
        torch.testing.assert_close(rollout(both.member(k), past, 5), together[k], rtol=1e-5, atol=1e-3)
    assert not torch.equal(together[0], together[1])


@pytest.mark.parametrize(
    ("variant", "steps"), [("plain", 50), ("strings", 50), ("moving", 50), ("smooth", 50), ("nearest", 8)]
)
def test_gradient_through_many_steps(variant: str, steps: int) -> None:
    """The derivative of the error along the unrolled steps in a random direction of all weights."""
    made = model(VARIANTS[variant], size=0.02).double().train()
    past = start(count=2).double()
    truth = past[:, -1:].expand(-1, steps, -1, -1)
    names, values = zip(*made.named_parameters(), strict=True)
    random = torch.Generator().manual_seed(1)
    along = [torch.randn(v.shape, dtype=v.dtype, generator=random) * v.detach().abs().mean() for v in values]

    def error(t: torch.Tensor) -> torch.Tensor:
        moved = {name: v + t * d for name, v, d in zip(names, values, along, strict=True)}
        path = rollout(lambda p: torch.func.functional_call(made, moved, (p,)), past, steps)
        return distance(path, truth).mean()

    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(error(t), t)
    step = 1e-7
    with torch.no_grad():
        quotient = (error(t + step) - error(t - step)) / (2 * step)
    torch.testing.assert_close(slope, quotient, rtol=1e-4, atol=1e-6)
    if variant != "plain":
        with torch.no_grad():
            made.engaged = False
            assert (strings().h(rollout(made, past, steps)) > 0).any(), "the layer has nothing to do"


# -- a trained model elsewhere ---------------------------------------------------------------------------------------


def test_exported_model_keeps_the_strings(tmp_path: Path) -> None:
    """A hundred steps of `torch.export`'s program, and of the same in ONNX."""
    made = model(VARIANTS["strings"]).eval()
    past = start()
    program = torch.export.export(made, (past,))
    torch.onnx.export(program, (past,), tmp_path / "model.onnx", dynamo=True, verbose=False, input_names=["past"])
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")

    def run_onnx(past: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(session.run(None, {"past": past.numpy()})[0])

    with torch.no_grad():
        first = rollout(made, past, 5)
        for step in (cast(torch.nn.Module, program.module()), run_onnx):
            path = rollout(step, past, 100)
            assert strings().contains(path).all() and strings().contains(path.double()).all()
            torch.testing.assert_close(path[:, :5], first, rtol=1e-5, atol=1e-3)

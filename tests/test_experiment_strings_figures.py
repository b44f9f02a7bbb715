"""The dynamics experiment: what its figures and animations show."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
from experiments.common.drawing import COLOR, NAME, RED
from experiments.common.store import Store
from experiments.strings.animation import DRIFT, EVERY, SHOWN
from experiments.strings.claims import PAPER
from experiments.strings.figure import CAPTIONS, SNAPSHOTS, animations, draw_objects, draw_rollouts, figures, snapshots
from experiments.strings.objects import shape
from experiments.strings.simulator import RATE
from matplotlib.axes import Axes
from matplotlib.collections import EllipseCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image, ImageSequence

from strings_runs import SMALL, STEPS, fall, make


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, dict[str, Figure]]:
    """A run that no test changes, and its figures; one rollout has overflowed."""
    store = make(tmp_path_factory.mktemp("drawn"), SMALL)
    broken = store.load("chain-plain")
    broken["test"][0, 0] = np.inf
    store.save("chain-plain", broken)
    return store, figures(store)


# -- figures ---------------------------------------------------------------------------------------------------------


def red_strings(ax: Axes) -> int:
    """How many strings of a picture are red; there is a gap behind each."""
    return gaps(ax, red=True)


def grey_strings(ax: Axes) -> int:
    """How many other strings there are."""
    return gaps(ax, red=False)


def gaps(ax: Axes, red: bool) -> int:
    lines = [np.asarray(line.get_xdata(), float) for line in ax.lines if (line.get_color() == RED) == red]
    return sum(int(np.isnan(line).sum()) for line in lines)


def pictures(figure: Figure) -> np.ndarray:
    """The axes of the falls, (objects, models, times)."""
    return np.array(figure.axes).reshape(-1, len(SHOWN), SNAPSHOTS)


def test_a_string_that_is_too_long_is_red(drawn: tuple[Store, dict[str, Figure]]) -> None:
    store, figures = drawn
    for name, rows in zip(SMALL.objects, pictures(figures["rollouts"]), strict=True):
        links = len(shape(name).links)
        for model, row in zip(SHOWN, rows, strict=True):
            expected = [2 if model == "plain" and k > 0 else 0 for k in snapshots(store.load(f"{name}-paths"))]
            assert [red_strings(ax) for ax in row] == expected, (name, model)
            assert [red_strings(ax) + grey_strings(ax) for ax in row] == [links] * len(row)
            assert {to_hex(np.asarray(discs(ax).get_facecolor())[0]) for ax in row} == {COLOR[model].lower()}


def test_a_string_within_the_slack_is_not_red() -> None:
    paths = fall("chain", SMALL)
    paths["strings"][:, -1, 0] += 0.0045  # of 0.005
    paths["truth"][:, -1, 0] += 0.0055
    ((truth, strings, _),) = pictures(draw_rollouts({"chain": paths}, SMALL))
    assert {red_strings(ax) for ax in truth} == {1} and {red_strings(ax) for ax in strings} == {0}


def test_pictures_go_with_the_truth_and_with_who_is_lost() -> None:
    paths = fall("star", SMALL)
    paths["plain"] = paths["truth"] + np.array([30.0, 40.0], np.float32)
    for model, row in zip(SHOWN, pictures(draw_rollouts({"star": paths}, SMALL))[0], strict=True):
        for ax in row:
            mean = np.asarray(discs(ax).get_offsets()).mean(axis=0)
            wanted = {"truth": (0.0, 0.0), "strings": (0.5, 0.5), "plain": (0.6 * DRIFT, 0.8 * DRIFT)}[model]
            np.testing.assert_allclose(mean, wanted, atol=1e-4)
            assert [t.get_text() for t in ax.texts if "away" in t.get_text()] == ["50 away"] * (model == "plain")


def discs(ax: Axes) -> EllipseCollection:
    (artist,) = (a for a in ax.collections if isinstance(a, EllipseCollection))
    return artist


def test_objects_have_the_strings_of_the_paper() -> None:
    axes = draw_objects(SMALL).axes
    assert [grey_strings(ax) for ax in axes] == [6, 9, 12] and not any(red_strings(ax) for ax in axes)
    assert [ax.get_title() for ax in axes] == ["chain, 6 strings", "triangles, 9 strings", "star, 12 strings"]
    assert {len(np.asarray(discs(ax).get_offsets())) for ax in axes} == {7}


def test_training_shows_every_seed_and_the_paper(drawn: tuple[Store, dict[str, Figure]]) -> None:
    store, figures = drawn
    for name, ax in zip(SMALL.objects, figures["training"].axes, strict=True):
        for model in SMALL.models:
            cell = store.load(f"{name}-{model}")
            lines = [line.get_xydata() for line in ax.lines if line.get_label() == model]
            np.testing.assert_array_equal(lines, [np.stack([cell["recorded"], v], 1) for v in cell["validation"].T])
            dotted = [line for line in ax.lines if line.get_linestyle() == ":" and line.get_color() == COLOR[model]]
            assert [np.asarray(line.get_ydata())[0] for line in dotted] == [PAPER[name, model][0]]
        assert [t.get_text() for t in ax.texts] == [str(h) for h in SMALL.horizons]


def test_errors_show_our_mean_and_the_papers(drawn: tuple[Store, dict[str, Figure]]) -> None:
    store, figures = drawn
    assert not np.isfinite(store.load("chain-plain")["test"]).all(), "what has overflowed is left out"
    for name, ax in zip(SMALL.objects, figures["errors"].axes, strict=True):
        for model in SMALL.models:
            test = store.load(f"{name}-{model}")["test"]
            (mean,) = (line.get_xdata() for line in ax.lines if line.get_label() == model)
            np.testing.assert_allclose(np.asarray(mean), test[np.isfinite(test)].mean())
        papers = [float(np.asarray(line.get_xdata())[0]) for line in ax.lines if line.get_label() == "paper"]
        assert papers == [PAPER[name, model][0] for model in SMALL.models]
    labels = figures["errors"].axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == [NAME[model] for model in SMALL.models]


def test_figures_without_falls(tmp_path: Path) -> None:
    store = make(tmp_path, dataclasses.replace(SMALL, objects=("triangles",), models=("moving",)))
    assert set(figures(store)) == {"objects", "training", "errors"} and list(animations(store)) == []
    assert set(CAPTIONS) == {"objects", "rollouts", "training", "errors", "chain", "triangles", "star"}


# -- animations ------------------------------------------------------------------------------------------------------


def test_animation_shows_the_truth_and_what_tears(drawn: tuple[Store, dict[str, Figure]]) -> None:
    found = dict(animations(drawn[0]))
    assert list(found) == list(SMALL.objects)
    gif = Image.open(io.BytesIO(found["chain"]))
    frames = [np.asarray(frame.convert("RGB"), int) for frame in ImageSequence.Iterator(gif)]
    assert gif.format == "GIF" and len(frames) == -(-STEPS // EVERY)
    red = np.array([frame @ [1, -1, 0] > 120 for frame in frames])  # nothing else is as red: orange has more green
    truth, strings, plain = np.array_split(red, 3, axis=2)
    assert not truth.any() and not strings.any()
    assert not plain[0].any() and plain[1:].any(axis=(1, 2)).all()
    left, right = frames[1][:, : frames[1].shape[1] // 3], frames[1][:, -(frames[1].shape[1] // 3) :]
    assert (left != right).any()
    durations = [frame.info["duration"] for frame in ImageSequence.Iterator(gif)]
    assert sum(durations) == 10 * round(100 * len(frames) * EVERY / RATE), "it takes as long as the fall"

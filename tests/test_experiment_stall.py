"""Fig. 1: what the paths do, and that the figure shows them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from experiments.common.drawing import COLOR
from experiments.common.store import Store
from experiments.stall.claims import claims, distance
from experiments.stall.config import CELL, Config
from experiments.stall.figure import SHOWN, figures, stall
from experiments.stall.run import run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    out = tmp_path_factory.mktemp("stall")
    run(Config(), out)
    return Store.read(out)


def test_interpolation_in_place_of_a_projection_stalls(store: Store) -> None:
    paths, config = store.load(CELL), Config()
    end, anchor = paths["pgd"][-1], np.asarray(config.anchor)
    assert distance(paths, "pgd")[-1] > 1
    np.testing.assert_allclose(paths["pgd"][10:], np.broadcast_to(end, paths["pgd"][10:].shape), atol=1e-14)
    t = -(config.offset - np.dot(config.normal, anchor)) / np.dot(config.normal, anchor)
    np.testing.assert_allclose(end, anchor * (1 - t), atol=1e-12)  # where the line to 0 meets the boundary


def test_descent_on_the_composition_converges(store: Store) -> None:
    paths, config = store.load(CELL), Config()
    assert distance(paths, "composition_projected")[-1] < 1e-12
    assert (paths["composition_projected"] @ np.asarray(config.normal) <= config.offset + 1e-12).all()


def test_optimum_is_the_nearest_feasible_point(store: Store) -> None:
    config, optimum = Config(), store.load(CELL)["optimum"]
    assert abs(optimum @ np.asarray(config.normal) - config.offset) < 1e-14
    points = np.random.default_rng(0).uniform(-3, 3, (20_000, 2))
    inside = points[points @ np.asarray(config.normal) <= config.offset]
    assert (inside**2).sum(-1).min() >= optimum @ optimum


def test_claims_hold_and_would_not_for_another_path(store: Store, tmp_path: Path) -> None:
    assert all(finding.holds for finding in claims(store))
    paths = store.load(CELL)
    swapped = Store.create(tmp_path, "stall", Config())
    swapped.save(CELL, {**paths, "pgd": paths["composition_projected"], "composition_projected": paths["pgd"]})
    assert not any(f.holds for f in claims(swapped) if f.claim != "pgd_stays_on_its_first_line")


def test_figure_shows_the_paths(store: Store) -> None:
    (figure,) = figures(store).values()
    left, right = figure.axes
    paths = store.load(CELL)
    lines = {line.get_label(): line.get_xydata() for line in right.lines}
    np.testing.assert_array_equal(lines["inside"], paths["composition_projected"][: SHOWN + 1])
    outside = np.asarray(lines["outside"])
    assert len(outside) and (outside @ np.asarray(Config().normal) > Config().offset).all()
    lines = {line.get_label(): line.get_xydata() for line in left.lines}
    stalled = stall(paths["pgd"])
    np.testing.assert_array_equal(lines["inside"], paths["pgd"][: stalled + 4])
    assert "stalls" in left.get_title() and "converges" in right.get_title()
    for ax in figure.axes:
        stars = [line.get_xydata() for line in ax.lines if line.get_marker() == "*"]
        np.testing.assert_array_equal(stars, [[paths["optimum"]]])
        assert any(line.get_color() in COLOR.values() for line in ax.lines)

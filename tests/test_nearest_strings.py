"""The nearest point of `Strings`: the conditions of optimality at every scale, and where they degenerate."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import nnls

import inset
from cases import convert

ROW, ANGLES = np.arange(7), np.arange(6) * np.pi / 3
PAIRS = {
    "chain": [(i, i + 1) for i in range(6)],
    "triangles": [(i, j) for k in (0, 2, 4) for i, j in ((k, k + 1), (k + 1, k + 2), (k, k + 2))],
    "star": [(0, i) for i in range(1, 7)] + [(i, i % 6 + 1) for i in range(1, 7)],  # a hexagon and its spokes
}
TAUT = {  # positions in which all strings of length 1 are taut
    "chain": np.stack([ROW, 0.0 * ROW], 1),
    "triangles": np.stack([ROW / 2, np.sqrt(0.75) * (ROW % 2)], 1),
    "star": np.concatenate([np.zeros((1, 2)), np.stack([np.cos(ANGLES), np.sin(ANGLES)], 1)]),
}
each = pytest.mark.parametrize("name", PAIRS)


def strings(name: str) -> inset.Strings:
    return inset.Strings(np.array(PAIRS[name]), 1.0)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def miss(s: inset.Strings, x: np.ndarray, y: np.ndarray) -> float:
    """How far x - y is from the cone of the gradients of the taut constraints: 0 exactly at the nearest point."""
    i, j = np.asarray(s.links).T
    spans = (y[i] - y[j]) / (np.asarray(s.lengths) + np.zeros(len(i)))[:, None]
    taut = np.flatnonzero(np.linalg.norm(spans, axis=-1) > 1 - 1e-9)
    gradients = np.zeros((len(taut), *x.shape))
    gradients[np.arange(len(taut)), i[taut]] += spans[taut]
    gradients[np.arange(len(taut)), j[taut]] -= spans[taut]
    if len(taut) == 0:
        return float(abs(x - y).max())
    return nnls(gradients.reshape(len(taut), x.size).T, (x - y).ravel())[1]


def check(s: inset.Strings, x: np.ndarray, some: int = 20) -> None:
    """The conditions of optimality, which are sufficient."""
    y = s.nearest(x)
    scale = 1 + abs(x).max((-2, -1))
    assert (s.h(y) <= 1e-15 * scale).all()
    assert all(miss(s, x[n], y[n]) <= 3e-15 * scale[n] ** 2 for n in range(min(some, len(x))))


@each
@pytest.mark.parametrize("violation", [1e-9, 1e-6, 1e-3, 1.0, 1e3])
def test_optimal_at_every_scale(name: str, violation: float) -> None:
    check(strings(name), TAUT[name] + violation * noise(100, 7, 2))


@each
def test_optimal_with_bodies_of_mixed_scales_and_lengths(name: str) -> None:
    check(strings(name), TAUT[name] + 10 ** np.random.default_rng(1).uniform(-4, 3, (300, 7, 1)) * noise(300, 7, 2))
    lengths = np.random.default_rng(2).uniform(0.1, 3, len(PAIRS[name]))
    check(inset.Strings(np.array(PAIRS[name]), lengths), TAUT[name] + 3 * noise(100, 7, 2))


@each
def test_degenerate_positions(name: str) -> None:
    """All strings taut, some of them needlessly; bodies in one place; in a row; and two strings for one pair."""
    s, row = strings(name), noise(20, 7, 1) * np.array([3.0, 0.0])
    two_places = np.where(ROW[:, None] < 3, noise(20, 1, 2), 5 * noise(20, 1, 2, seed=1))
    for x in (TAUT[name][None] * np.array([1 + 1e-6, 2.0, 1e3])[:, None, None], two_places, row):
        check(s, x)
        for dtype in ("float64", "float32"):
            v = convert(x, "torch", dtype).requires_grad_()
            y = inset.Strings(torch.tensor(PAIRS[name]), 1.0).nearest(v)
            (grad,) = torch.autograd.grad(y.square().sum(), v)
            assert grad.isfinite().all()
    check(s, (1 + 1e-6) * TAUT[name] + 1e-9 * noise(100, 7, 2), some=100)
    check(inset.Strings(np.array(PAIRS[name] + PAIRS[name][:3]), 1.0), TAUT[name] + noise(20, 7, 2))


def test_bodies_that_nothing_holds_stay() -> None:
    x = noise(50, 7, 2)
    x[:, 5:] *= 1e9
    y = inset.Strings(np.array([[0, 1], [1, 2], [3, 4]]), 0.5).nearest(x)
    assert (y[:, 5:] == x[:, 5:]).all()
    np.testing.assert_allclose(y[:, 3:5].mean(1), x[:, 3:5].mean(1), rtol=1e-14, atol=1e-14)
    alone = inset.Strings(np.array([[0, 1], [1, 2], [3, 4]]), 0.5).nearest(x[:, :5])
    np.testing.assert_allclose(y[:, :5], alone, rtol=1e-13, atol=1e-13)


@each
@pytest.mark.parametrize("violation", [1e-6, 1.0, 1e3, 1e6])
def test_float32_to_its_rounding(name: str, violation: float) -> None:
    x = torch.tensor(TAUT[name] + violation * noise(100, 7, 2), dtype=torch.float32)
    s = inset.Strings(torch.tensor(PAIRS[name]), 1.0)
    y, scale = s.nearest(x).double(), 1 + x.double().abs().amax((-2, -1))
    assert (s.h(y) <= 2e-7 * scale).all()
    assert ((y - s.nearest(x.double())).abs().amax((-2, -1)) <= 1e-6 * scale).all()


@each
def test_derivatives(name: str) -> None:
    s = convert(strings(name), "torch")
    x = torch.tensor(TAUT[name] + 0.5 * noise(1, 7, 2), requires_grad=True)
    assert torch.autograd.gradcheck(s.nearest, x, fast_mode=True)
    assert torch.autograd.gradgradcheck(s.nearest, x, fast_mode=True)


def test_derivatives_far_away() -> None:
    """Beyond the distance from which on points are taken as less far: dy/dx falls off as 1 / |x|."""
    s = convert(strings("star"), "torch")
    x = torch.tensor(1e4 * noise(7, 2))
    near, far = (torch.autograd.functional.jacobian(lambda v: s.nearest(v) - v.mean(0), x * size) for size in (1, 1e8))
    assert isinstance(near, torch.Tensor) and isinstance(far, torch.Tensor)
    torch.testing.assert_close(far * 1e8, near, rtol=1e-3, atol=1e-3 * float(near.abs().max()))


def test_one_bad_point_leaves_the_others_alone() -> None:
    s, x = strings("star"), 3 * noise(4, 7, 2)
    bad = x.copy()
    bad[0, 0], bad[1, 3] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        y = s.nearest(bad)
    assert not np.isfinite(y[:2]).all((-2, -1)).any()
    np.testing.assert_allclose(y[2:], s.nearest(x)[2:], rtol=1e-14, atol=1e-14)


def test_vmap_and_batches_of_lengths_agree() -> None:
    x, lengths = torch.tensor(3 * noise(5, 7, 2)), torch.tensor(np.random.default_rng(3).uniform(0.5, 2, (5, 12)))
    links = torch.tensor(PAIRS["star"])
    together = inset.Strings(links, lengths).nearest(x)
    mapped = torch.vmap(lambda x, lengths: inset.Strings(links, lengths).nearest(x))(x, lengths)
    alone = torch.stack([inset.Strings(links, lengths[n]).nearest(x[n]) for n in range(5)])
    many = inset.Strings(links, lengths).nearest(x[0])
    for other in (mapped, alone):
        torch.testing.assert_close(other, together, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(many[0], together[0], rtol=1e-13, atol=1e-13)

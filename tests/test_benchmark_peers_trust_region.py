"""The published formulas of trust-region-layers, a peer of `python -m benchmarks peers`: in the ball, and nearest."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks import peers_tables
from benchmarks.peers_cell import Order, fulfil
from benchmarks.peers_layers import PEERS
from benchmarks.peers_sets import as_set, kl, tensor
from benchmarks.peers_trust_region import layer, nearest_variance
from torch import Tensor

NAME = "trust-region-layers"
PROBLEM = kl(3, 0)
HALF = float(PROBLEM.arrays["epsilon"]) / 2


def new(batch: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """New policies, the means and the variances of half of them near enough, in all four combinations."""
    (mean, variance), draw = PROBLEM.anchor, np.random.default_rng(7)
    near = np.arange(batch)[:, None] // np.array([[[1]], [[2]]]) % 2 == 0
    far = np.where(near, 0.1, 1.0) * np.sign(draw.standard_normal((2, batch, 3))) * draw.uniform(0.5, 2, (2, batch, 1))
    return tensor(mean + far[0] * np.sqrt(variance), dtype), tensor(variance * np.exp(far[1]), dtype)


def parts(m: Tensor, S: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """What means and variances add to the KL, in float64."""
    mean, variance = PROBLEM.anchor
    ratio = S.double().numpy() / variance
    shift = (m.double().numpy() - mean) ** 2 / variance
    return shift.sum(-1) / 2, (ratio - 1 - np.log(ratio)).sum(-1) / 2


@pytest.mark.parametrize(("dtype", "close"), [(torch.float64, 1e-14), (torch.float32, 1e-6)])
def test_each_part_is_within_its_half_and_no_further_in(dtype: torch.dtype, close: float) -> None:
    x = new(200, dtype)
    y = layer(PROBLEM, dtype, "cpu").function(*x)
    assert as_set(PROBLEM).h(tuple(leaf.double() for leaf in y)).max() <= 2 * close
    for before, after, leaf, moved in zip(parts(*x), parts(*y), x, y, strict=True):
        outside = before > HALF
        assert 50 < outside.sum() < 150
        np.testing.assert_allclose(after[outside], HALF, atol=close)
        np.testing.assert_array_equal(moved.numpy()[~outside], leaf.numpy()[~outside])
    out = [before > HALF for before in parts(*x)]
    assert {*zip(*out, strict=True)} == {(a, b) for a in (False, True) for b in (False, True)}


def test_means_and_variances_are_nearest_by_kl() -> None:
    """Two convex problems of CVXPY for one policy, in the words of the arrays."""
    cp: Any = importlib.import_module("cvxpy")
    (mean, variance), x = PROBLEM.anchor, tuple(leaf[3].numpy() for leaf in new(4))

    def divergence(S: Any, other: np.ndarray) -> Any:
        """KL(N(., S) | N(., other))."""
        return cp.sum(S / other - 1 - cp.log(S)) / 2 + np.log(other).sum() / 2

    def distance(m: Any, other: np.ndarray) -> Any:
        """KL(N(m, Sq) | N(other, Sq))."""
        return cp.sum_squares((m - other) / np.sqrt(variance)) / 2

    y = layer(PROBLEM, torch.float64, "cpu").function(*(torch.as_tensor(leaf) for leaf in x))
    for found, measure, point, old in zip(y, (distance, divergence), x, (mean, variance), strict=True):
        leaf = cp.Variable(3)
        program = cp.Problem(cp.Minimize(measure(leaf, point)), [measure(leaf, old) <= HALF])
        # tight, since the argument is off by the root of the objective
        program.solve("CLARABEL", **dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-10))
        assert measure(point, old).value > HALF
        np.testing.assert_allclose(found, leaf.value, atol=1e-5)


def test_variances_are_on_the_line_between_precisions() -> None:
    """1 / S' = (1 / S + v / Sq) / (1 + v) with one v >= 0 for all coordinates; so for the means."""
    m, S = new(200)
    mean, variance = (tensor(leaf) for leaf in PROBLEM.anchor)
    y = layer(PROBLEM, torch.float64, "cpu").function(m, S)
    for after, before, old in ((y[0], m, mean), (1 / y[1], 1 / S, 1 / variance)):
        share = (after - old) / (before - old)
        torch.testing.assert_close(share, share[:, :1].expand(-1, 3), atol=1e-12, rtol=1e-10)
        assert 0 < share.min() < 0.2 and share.max() <= 1 + 1e-12


@pytest.mark.parametrize("size", [1e-6, 1e-2, 1.0, 4.0])
@pytest.mark.parametrize("bound", [1e-3, 0.05, 2.0])
def test_the_root_is_found_far_away_and_for_every_bound(size: float, bound: float) -> None:
    draw = torch.Generator().manual_seed(1)
    S = (size * torch.randn(500, 10, generator=draw, dtype=torch.float64)).exp()
    ratio = nearest_variance(S, torch.ones(10, dtype=torch.float64), bound)
    before, after = ((r - 1 - r.log()).sum(-1) / 2 for r in (S, ratio))
    torch.testing.assert_close(after, before.clamp(max=bound), atol=1e-13, rtol=1e-12)


def test_derivatives_are_those_of_difference_quotients() -> None:
    function = layer(PROBLEM, torch.float64, "cpu").function
    x = tuple(leaf.requires_grad_() for leaf in new(4))  # one of each combination
    assert torch.autograd.gradcheck(function, x)
    assert torch.autograd.gradgradcheck(function, x)


def test_the_old_policy_stays_and_has_the_derivative_of_the_identity() -> None:
    x = tuple(tensor(leaf).requires_grad_() for leaf in PROBLEM.anchor)
    y = layer(PROBLEM, torch.float64, "cpu").function(*x)
    for after, before, slope in zip(y, x, torch.autograd.grad([leaf.sum() for leaf in y], x), strict=True):
        np.testing.assert_array_equal(after.detach(), before.detach())
        np.testing.assert_array_equal(slope, np.ones(3))


def test_it_is_measured_without_their_package_and_told_with_a_star() -> None:
    cell = fulfil(Order(NAME, "kl-10", 64, rounds=1))
    entry = cell["entries"][NAME]
    assert entry["worst"] < 1e-14 and 0 <= entry["float32"]["worst"] < 1e-6
    told = peers_tables.table("kl-10", 64, {f"kl-10|64|{NAME}": cell}).splitlines()
    assert told[-1].startswith("  trust-region-layers, formulas* ") and len(told[-1]) == len(told[-2])
    assert not PEERS[NAME].modules and PEERS[NAME].nearest

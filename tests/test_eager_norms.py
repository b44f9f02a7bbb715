"""Balls and ellipsoids in few operations of torch, of every size and shape: the formulas are the reference."""

from __future__ import annotations

import math

import pytest
import torch
from benchmarks.points import to_float64
from torch import Tensor

import inset
from eager_sets import NORMS, D, formulas, fused, made, over_dtypes, over_methods, what_is_known
from inset import Ball, Box, Ellipsoid, Simplex
from inset._eager import lines as eager
from inset._strict import Margin


def stretched(dtype: torch.dtype) -> tuple[Ellipsoid, Tensor, Tensor]:
    """An ellipsoid that is a thousand times as long as wide, an anchor off its centre, and points around."""
    random = torch.Generator().manual_seed(7)
    turn = torch.linalg.qr(torch.randn(D, D, generator=random, dtype=torch.float64)).Q
    L = (turn * torch.logspace(0, -3, D, dtype=torch.float64)).to(dtype)
    anchor = torch.randn(D, generator=random, dtype=dtype) * 0.05
    x = torch.randn(1000, D, generator=random, dtype=torch.float64) * torch.logspace(0, 3, D, dtype=torch.float64)
    return Ellipsoid(torch.zeros(D, dtype=dtype), L), anchor, (3 * x @ turn.T).to(dtype)


@over_methods
@over_dtypes
def test_the_margin_of_a_long_ellipsoid(dtype: torch.dtype, method: str) -> None:
    """It grows with the distance from the centre, and points that rounding may hide are moved."""
    set, anchor, x = stretched(dtype)
    known = what_is_known(set, anchor, method)
    out, length, *_ = known.out(x, True, False)
    eta = 1 / (1 + out.clamp(min=0))
    margin, y = Margin((set,), anchor, [set.constraints(anchor)], 0.0, dtype), torch.lerp(anchor, x, eta)
    theirs = (margin.fixed + margin._bounds(y, margin._displacement(y), 2)) / (margin.depth - margin.at_anchor)
    assert (known.more(eta, length) - 1 >= 0.99 * theirs - torch.finfo(dtype).eps).all()
    edge = fused(set, x, anchor, "ray", strict=False)
    near = torch.linspace(0, 300, 31, dtype=dtype)[:, None, None]
    edge = anchor + (edge - anchor) * (1 - torch.finfo(dtype).eps * near)
    moved = (formulas(set, edge, anchor, method) != edge).any(-1)
    assert moved.any() and (fused(set, edge, anchor, method) != edge).any(-1)[moved].all()
    y = fused(set, edge, anchor, method)
    assert set.contains(y).all() and (to_float64(set).h(y.double()) <= 0).all()


@over_methods
@pytest.mark.parametrize("kind", NORMS)
def test_derivative_at_the_centre(kind: str, method: str) -> None:
    """The norm has none there, and the projection is the identity."""
    set, _, _ = made(kind, torch.float64)
    assert isinstance(set, (Ball, Ellipsoid))
    x = set.center.clone()[None].requires_grad_()
    (slope,) = torch.autograd.grad(fused(set, x, set.center, method).sum(), x)
    assert torch.equal(slope, torch.ones_like(x))


@over_methods
@over_dtypes
def test_tiny_and_huge_sets(dtype: torch.dtype, method: str) -> None:
    """Where squares leave the range of numbers the formulas take over."""
    random = torch.Generator().manual_seed(0)
    info = torch.finfo(dtype)
    for size in (30 * info.smallest_normal, 1e10 * info.smallest_normal, 1e-13, 1e-11, 1e11, 1e13, 1e17):
        x = size * torch.randn(500, D, generator=random, dtype=dtype)
        zero, axes = torch.zeros(D, dtype=dtype), torch.linspace(1, 2, D, dtype=dtype) / size
        sets = (
            Ball(zero, size),
            Simplex(D, size),
            Ball(zero, size) & Box(-size / 2, size / 3),
            Ellipsoid(zero, axes, diagonal=True),
            Ellipsoid(zero, torch.diag(axes)),
        )
        for set in sets:
            anchor = torch.full_like(zero, size / D) if isinstance(set, Simplex) else zero + size / 50
            leaf = x.clone().requires_grad_()
            y = inset.project(set, leaf, anchor, method=method)  # type: ignore[arg-type]
            assert set.contains(y).all() and (to_float64(set).h(y.double()) <= 0).all()
            assert size < 1e-20 or (y.detach() - anchor).abs().amax(-1).median() > 0.1 * size / D
            if 1e-12 < size < 1e12:
                assert eager.fused(set, x, anchor, method, True) is not None


@over_methods
@pytest.mark.parametrize("diagonal", [False, True])
def test_axes_of_very_different_lengths(diagonal: bool, method: str) -> None:
    """The margin is that of the direction, and what is short is not 0."""
    random = torch.Generator().manual_seed(0)
    for least in (1e-4, 1e-10, 1e-21):
        L, zero = torch.logspace(0, math.log10(least), D), torch.zeros(D)
        set = Ellipsoid(zero, L if diagonal else torch.diag(L), diagonal=diagonal)
        x = 3 * torch.randn(200, D, generator=random) / L
        x[::3, :-1] = 0  # along the longest axis
        y, theirs = fused(set, x, zero, method), formulas(set, x, zero, method)
        assert set.contains(y).all() and (to_float64(set).h(y.double()) <= 0).all()
        assert ((y - theirs).norm(dim=-1) < 1e-4 * theirs.norm(dim=-1)).all()
    tiny = Ellipsoid(zero, torch.full((D,), 1e-23), diagonal=True)
    assert tiny.contains(inset.project(tiny, 1e25 * x.sign(), zero, method=method)).all()  # type: ignore[arg-type]


@over_methods
@over_dtypes
def test_anchors_near_the_boundary_are_certain_where_they_are_by_the_formulas(dtype: torch.dtype, method: str) -> None:
    lost, tried = 0, 0
    for seed in range(20):
        random = torch.Generator().manual_seed(seed)
        turn = torch.linalg.qr(torch.randn(60, 60, generator=random, dtype=torch.float64)).Q
        set = Ellipsoid(torch.zeros(60, dtype=dtype), (turn * torch.logspace(0, 1, 60)).to(dtype))
        x, zero = torch.randn(10, 60, generator=random, dtype=dtype), torch.zeros(60, dtype=dtype)
        for depth in (3e-4, 1e-3, 3e-3):
            anchor = (1 - depth) * formulas(set, x[0], zero, "ray")
            if not formulas(set, x, anchor, method).isnan().any():
                tried, lost = tried + 1, lost + int(fused(set, x, anchor, method).isnan().any())
    assert tried > 20 and lost == 0

"""Intersections and equalities in few operations of torch: the formulas of the sets are the reference."""

from __future__ import annotations

import pytest
import torch

from eager_sets import PLANAR, D, formulas, fused, made, over_dtypes, over_methods
from inset import Ball, Box, Equality, Polytope
from inset._eager import lines as eager
from inset.affine import onto


@over_methods
@pytest.mark.parametrize("kind", PLANAR)
@over_dtypes
def test_points_of_a_plane_stay_bit_for_bit(dtype: torch.dtype, kind: str, method: str) -> None:
    """If they are inside, and there up to rounding; others are moved onto it, and equalities hold."""
    set, anchor, x = made(kind, dtype)
    there = onto(set, x)
    inside = set.h(there) <= -1e-3
    y = fused(set, there, anchor, method)
    assert inside.sum() > 3 and torch.equal(y[inside], there[inside]) and not torch.equal(y, there)
    moved = fused(set, there[inside] + 0.3, anchor, method)
    away = moved - fused(set, there[inside] - 0.1, anchor, method)
    assert kind != "simplex" or away.abs().max() < 100 * torch.finfo(dtype).eps  # both are right above the same point
    assert set.contains(moved).all() and not set.contains(there[inside] + 0.3).any()


@over_methods
def test_a_part_that_does_not_count_may_have_no_derivative(method: str) -> None:
    """As a ball at its centre has none, where the polytope is violated."""
    center = torch.tensor([2.0, 0.0])
    set = Polytope(torch.tensor([[1.0, 0.0]]), torch.tensor([1.0])) & Ball(center, 3.0)
    x = center[None].clone().requires_grad_()
    y = fused(set, x, torch.zeros(2), method, strict=False)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y, torch.tensor([[1.0, 0.0]]))
    torch.testing.assert_close(slope, torch.tensor([[0.0, 0.5]]))


def test_settings_of_products_are_heeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets with matrices are left to the formulas where float32 products are short."""
    set, anchor, x = made("two", torch.float32)
    assert eager.fused(set, x, anchor, "chord", True) is not None
    monkeypatch.setattr(eager, "reduced_products", lambda x: True)
    assert eager.fused(set, x, anchor, "chord", True) is None


@over_methods
@pytest.mark.parametrize("kind", PLANAR)
def test_an_anchor_beside_the_plane_is_moved(kind: str, method: str) -> None:
    set, anchor, x = made(kind, torch.float64)
    found = []
    for apply in (fused, formulas):
        leaf = x.clone().requires_grad_()
        y = apply(set, leaf, anchor + 0.01, method)
        found.append((y.detach(), *torch.autograd.grad(y.sin().sum(), leaf)))
    assert not set.contains(anchor + 0.01) and set.contains(found[0][0]).all()
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


@over_dtypes
def test_equalities_hold_that_are_almost_the_same(dtype: torch.dtype) -> None:
    """Where one step onto the plane leaves a residual that is more than rounding."""
    random = torch.Generator().manual_seed(0)
    A = torch.randn(1, D, generator=random, dtype=dtype).repeat(2, 1)
    A[1] += 3e3 * torch.finfo(dtype).eps ** 0.75 * torch.randn(D, generator=random, dtype=dtype)
    set = Box(-1e6, 1e6) & Equality(A, torch.zeros(2, dtype=dtype))
    x = 1e4 * torch.randn(200, D, generator=random, dtype=dtype)
    assert set.contains(fused(set, x, torch.zeros(D, dtype=dtype), "chord")).all()

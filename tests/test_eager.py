"""Polytopes, boxes and balls in few operations of torch: the formulas of the sets are the reference."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import inset.torch
from eager_sets import unasked
from inset import Ball, Box, ConvexSet, Ellipsoid, Polytope
from inset._eager import lines as eager
from inset._project import interpolated

N, M, D = 64, 30, 8
DTYPES = (torch.float64, torch.float32)


KINDS = ("polytope", "box", "box of numbers", "ball", "ball of a number")


def drawn(dtype: torch.dtype, seed: int = 0) -> tuple[Polytope, Tensor, Tensor]:
    """A polytope, of which one row never binds, an anchor, and points from deep inside to far outside."""
    set, anchor, x = made("polytope", dtype, seed)
    assert isinstance(set, Polytope)
    return set, anchor, x


def made(kind: str, dtype: torch.dtype, seed: int = 0) -> tuple[ConvexSet, Tensor, Tensor]:
    """The same for each kind of set."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=dtype)

    def uniform(*shape: int) -> Tensor:
        return 0.5 + torch.rand(*shape, generator=random, dtype=dtype)

    A, b, upper, center = normal(M, D), uniform(M), uniform(D), 0.3 * normal(D)
    b[3], upper[2] = math.inf, math.inf
    sets: dict[str, ConvexSet] = {
        "polytope": Polytope(A, b),
        "box": Box(-upper.roll(1), upper),
        "box of numbers": Box(-0.3, 0.1),
        "ball": Ball(center, torch.tensor(1.3, dtype=dtype)),
        "ball of a number": Ball(center, 1),
    }
    anchor = 0.02 * normal(D) + (center if "ball" in kind else 0)
    sizes = torch.tensor([0.02, 1.0, 30.0, 1e4], dtype=dtype).repeat(N // 4)[:, None]
    return sets[kind], anchor, anchor + sizes * normal(N, D)


def doubled(set: ConvexSet) -> ConvexSet:
    """The set in float64."""
    return type(set)(*(v.double() if isinstance(v, Tensor) else v for v in list(vars(set).values())[:2]))


def fused(set: ConvexSet, x: Tensor, anchor: Tensor, strict: bool = True) -> Tensor:
    y = eager.fused(set, x, anchor, "chord", strict)
    assert y is not None
    return y


def formulas(set: ConvexSet, x: Tensor, anchor: Tensor, strict: bool = True) -> Tensor:
    return interpolated(set, x, anchor, "chord", strict)[0]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_is_the_formula(dtype: torch.dtype, kind: str, strict: bool) -> None:
    """Values and derivatives to rounding; points inside are the same, bit for bit."""
    set, anchor, x = made(kind, dtype)
    found = []
    for apply in (fused, formulas):
        leaf = x.clone().requires_grad_()
        y = apply(set, leaf, anchor, strict)
        g = torch.linspace(-1, 1, y.numel(), dtype=dtype).reshape(y.shape)
        found.append((y.detach(), *torch.autograd.grad(y, leaf, g)))
    eps = torch.finfo(dtype).eps
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=60 * eps, atol=60 * eps)
    inside = (set.h(x) <= 0).nonzero()[:, 0]
    assert 0 < len(inside) < N and torch.equal(found[0][0][inside], x[inside])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("far", [0.0, 400.0])
def test_strict_holds(dtype: torch.dtype, far: float) -> None:
    """In its dtype, in float64 and row by row, with anchors that are near a facet and far from the origin."""
    set, anchor, x = drawn(dtype, 1)
    step = (set.b - set.A @ anchor) / (set.A @ set.A[0]).clamp(min=1e-9)  # to each facet in the direction of one
    anchor = anchor + (0.5 if far else 0.999) * step.min() * set.A[0]
    assert set.h(anchor) < 0
    shift = torch.full((D,), far, dtype=dtype)
    moved = Polytope(set.A, (set.b.double() + set.A.double() @ shift.double()).to(dtype))
    anchor, x = anchor + shift, x + shift
    y, loose = (fused(moved, x, anchor, strict) for strict in (True, False))
    wide = Polytope(moved.A.double(), moved.b.double())
    assert moved.contains(y).all() and (wide.h(y.double()) <= 0).all()
    assert all(moved.contains(row) for row in y)
    assert not (wide.h(loose.double()) <= 0).all()  # it is the margin that does it
    again = fused(moved, loose, anchor)  # points that may seem to be inside
    assert (wide.h(again.double()) <= 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_strict_holds_for_each_kind(dtype: torch.dtype, kind: str) -> None:
    """In its dtype and in float64, also for points that may seem to be inside; without the margin it does not."""
    set, anchor, x = made(kind, dtype, 2)
    anchor = set.center.clone() if isinstance(set, Ball) else anchor  # from there the chord reaches the boundary
    x = anchor + (x - anchor).repeat(8, 1) * torch.linspace(0.5, 1.5, 8, dtype=dtype).repeat_interleave(N)[:, None]
    y, loose = (fused(set, x, anchor, strict) for strict in (True, False))
    again = fused(set, loose, anchor)
    for result in (y, again):
        assert set.contains(result).all() and (doubled(set).h(result.double()) <= 0).all()
    assert dtype == torch.float64 or not (doubled(set).h(loose.double()) <= 0).all()


@pytest.mark.parametrize("kind", ["ball", "box", "wedge"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_strict_holds_where_numbers_are_large(dtype: torch.dtype, kind: str) -> None:
    """Far from the origin, and far along an unbounded set: rounding grows with the position."""
    random = torch.Generator().manual_seed(3)
    center = 400 * torch.randn(2, generator=random, dtype=dtype)
    A, b = torch.tensor([[1, -1], [-1, 0.5]], dtype=dtype), torch.tensor([0.7, 0.9], dtype=dtype)
    sets = {"ball": Ball(center, 0.7), "box": Box(center - 0.7, center + 0.3), "wedge": Polytope(A, b)}
    set, anchor = sets[kind], torch.zeros(2, dtype=dtype) if kind == "wedge" else center.clone()
    x = 3 * torch.randn(500, 2, generator=random, dtype=dtype)
    x = x + 1e6 * torch.rand(500, 1, generator=random, dtype=dtype) if kind == "wedge" else anchor + x
    y, loose = (fused(set, x, anchor, strict) for strict in (True, False))
    assert set.contains(y).all() and (doubled(set).h(y.double()) <= 0).all()
    assert kind == "box" or not (doubled(set).h(loose.double()) <= 0).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_extreme(dtype: torch.dtype, kind: str) -> None:
    """NaN and infinity stay with their sample, huge points come back finite, a bad anchor is loud."""
    set, anchor, x = made(kind, dtype)
    x[0, 0], x[1, 1], x[2], x[3] = math.nan, math.inf, torch.finfo(dtype).max * x[2].sign(), 0
    x[4] *= 1e25
    y = fused(set, x, anchor)
    assert y[:2].isnan().all() and set.contains(y[2:]).all()
    torch.testing.assert_close(y[2:], formulas(set, x[2:], anchor), rtol=1e-5, atol=1e-5)
    for strict in (True, False):
        outside = unasked(set, x[2:], anchor + 50, "chord", strict)
        assert outside.isnan().all(-1).sum() >= len(outside) - (0 if strict else N // 4)
    assert unasked(set, x[5:], anchor + 50, "chord").isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_anchor_that_is_not_certainly_inside_is_loud(dtype: torch.dtype) -> None:
    """Also for points that are inside."""
    set, anchor, x = drawn(dtype)
    set.b[0] = set.A[0] @ anchor + 4 * torch.finfo(dtype).eps
    assert set.h(anchor) < 0 and (set.h(x) <= 0).any()
    assert unasked(set, x, anchor, "chord").isnan().all() and formulas(set, x, anchor).isnan().all()
    assert unasked(set, x, anchor, "chord", strict=False).isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_gradient_of_a_huge_point(kind: str) -> None:
    """In float32 it is that of float64."""
    set, anchor, x = made(kind, torch.float32)
    wide = doubled(set)
    for size in (1e5, 1e20, 1e25):
        leaf = (size * x[1:4]).requires_grad_()
        (ours,) = torch.autograd.grad(fused(set, leaf, anchor).sin().sum(), leaf)
        leaf = leaf.detach().double().requires_grad_()
        (theirs,) = torch.autograd.grad(formulas(wide, leaf, anchor.double()).sin().sum(), leaf)
        assert ((ours - theirs).abs().amax(-1) <= 1e-3 * theirs.norm(dim=-1)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_second_derivatives_are_the_formulas(kind: str) -> None:
    set, anchor, x = made(kind, torch.float64)
    found = []
    for apply in (fused, formulas):
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(apply(set, leaf, anchor).sin().sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(first.cos().sum(), leaf)[0])
    assert found[0].abs().max() > 1e-3
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


def test_gradients_come_in_batches() -> None:
    set, anchor, x = drawn(torch.float64)
    leaf = x[:4].clone().requires_grad_()
    y = fused(set, leaf, anchor)
    g = torch.randn(3, *y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(0))
    (together,) = torch.autograd.grad(y, leaf, g, retain_graph=True, is_grads_batched=True)
    each = [torch.autograd.grad(y, leaf, one, retain_graph=True)[0] for one in g]
    torch.testing.assert_close(together, torch.stack(each))


def test_what_was_computed_is_forgotten_when_the_set_changes() -> None:
    set, anchor, x = drawn(torch.float64)
    for change in (lambda: set.A.mul_(1.5), lambda: set.b.add_(0.3), lambda: anchor.mul_(0.5), lambda: None):
        torch.testing.assert_close(fused(set, x, anchor), formulas(set, x, anchor), rtol=1e-12, atol=1e-12)
        change()
    for other in (Ball(anchor, 1.0), Box(anchor - 1, 1.0), Box(anchor - 1, 2.0), Ball(anchor, 2.0)):
        torch.testing.assert_close(fused(other, x, anchor), formulas(other, x, anchor), rtol=1e-12, atol=1e-12)
    low = anchor - 1  # fields that look alike
    for other in (Ball(low, 3.0), Box(low, 3.0)):
        torch.testing.assert_close(fused(other, x, anchor), formulas(other, x, anchor), rtol=1e-12, atol=1e-12)
    other = Polytope(set.A, set.b + 1)
    torch.testing.assert_close(fused(other, x, anchor), formulas(other, x, anchor), rtol=1e-12, atol=1e-12)
    with torch.inference_mode():
        copy, point = Polytope(set.A.clone(), set.b.clone()), anchor.clone()
        before = fused(copy, x, point)
        copy.b.add_(0.5)
        assert not torch.equal(fused(copy, x, point), before)


def test_shapes() -> None:
    """One point, and several leading dimensions."""
    set, anchor, x = drawn(torch.float64)
    y = fused(set, x, anchor)
    torch.testing.assert_close(fused(set, x[5], anchor), y[5])
    torch.testing.assert_close(fused(set, x.reshape(4, 2, 8, D), anchor), y.reshape(4, 2, 8, D))


def test_where_it_does_not_apply() -> None:
    """Learned fields, per-sample sets and anchors, mixed and half dtypes, other methods and transforms."""
    set, anchor, x = drawn(torch.float32)
    refused: list[tuple[Any, ...]] = [
        (Polytope(nn.Parameter(set.A), set.b), x, anchor, "chord"),
        (Polytope(set.A[None], set.b), x, anchor, "chord"),
        (set, x, anchor.expand(N, D), "chord"),
        (set, x, anchor.clone().requires_grad_(), "chord"),
        (set, x.half(), anchor, "chord"),
        (set, x.double(), anchor, "chord"),
        (set, x, anchor, "paper"),
        (Box(-1.0, 1.0), x, anchor, "paper"),
        (Ball(0.0, 1.0), x, anchor, "chord"),
        (Ball(anchor, 1.0, 1), x, anchor, "chord"),
        (Ellipsoid(anchor, torch.eye(D).expand(N, D, D)), x, anchor, "chord"),
    ]
    for which, points, point, method in refused:
        assert eager.fused(which, points, point, method, True) is None
    assert eager.fused(set, x, anchor, "ray", True) is not None
    tried: list[Any] = []

    def attempt(x: Tensor) -> Tensor:
        tried.append(eager.fused(set, x, anchor, "chord", True))
        return x

    torch.func.vmap(attempt)(x)
    with torch.autograd.forward_ad.dual_level():
        attempt(torch.autograd.forward_ad.make_dual(x, x))
    assert tried == [None, None]


def test_the_layer_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    set, anchor, x = drawn(torch.float32)
    calls: list[int] = []
    monkeypatch.setattr(eager._Line, "apply", lambda *a: calls.append(1) or a[0])
    assert inset.torch.Projection(set, anchor)(x) is not None and calls == [1]


@pytest.mark.parametrize("kind", KINDS)
def test_autocast_changes_nothing(kind: str) -> None:
    """Also on the way back, where a product in bfloat16 would be far off."""
    set, anchor, x = made(kind, torch.float32)
    found = []
    for cast in (False, True):
        leaf = x.clone().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
            y = fused(set, leaf, anchor)
            found.append((y.detach(), *torch.autograd.grad(y.square().sum(), leaf)))
    for plain, same in zip(*found, strict=True):
        assert torch.equal(plain, same)

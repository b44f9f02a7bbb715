"""Curved sets, intersections and equalities in few operations of torch: the formulas of the sets are the reference."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import pytest
import torch
from benchmarks.points import throw, to_float64
from torch import Tensor, nn

import inset.torch
from eager_sets import (
    CURVED,
    JOINT,
    METHODS,
    NORMS,
    PLANAR,
    D,
    N,
    formulas,
    fused,
    made,
    over_dtypes,
    over_methods,
    unasked,
    what_is_known,
)
from inset import LMI, Ball, Equality, Quadratic, SecondOrderCone, Simplex
from inset._combine import parts
from inset._eager import lines as eager
from inset._eager import quadratics
from inset._eager.curved import Margin as Curve
from inset._strict import Margin
from inset.affine import onto

KINDS = (*CURVED, *NORMS, *JOINT, *PLANAR)
over_kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three quadratics two are multiplied at once."""
    monkeypatch.setattr(quadratics, "WIDE", 2 * D + 1)


@pytest.mark.parametrize("strict", [False, True])
@over_methods
@over_kinds
@over_dtypes
def test_is_the_formula(dtype: torch.dtype, kind: str, method: str, strict: bool) -> None:
    """Values and derivatives to rounding, with `strict` to its margin; points inside are the same, bit for bit."""
    set, anchor, x = made(kind, dtype)
    found = []
    for apply in (fused, formulas):
        leaf = x.clone().requires_grad_()
        y = apply(set, leaf, anchor, method, strict)
        g = torch.linspace(-1, 1, y.numel(), dtype=dtype).reshape(y.shape)
        found.append((y.detach(), *torch.autograd.grad(y, leaf, g)))
    near = (2000 if strict else 100) * torch.finfo(dtype).eps
    # one tenth of the points is so far out on an unbounded set that rounding decides where they go
    spread = ((found[0][0] - found[1][0]).norm(dim=-1) / found[1][0].norm(dim=-1)).quantile(0.9)
    steep = ((found[0][1] - found[1][1]).norm(dim=-1) / g.norm(dim=-1)).quantile(0.9)
    assert spread < near and steep < 10 * near
    inside = (set.h(onto(set, x)) <= -1e-3).nonzero()[:, 0]
    assert 0 < len(inside) < N
    assert kind in ("flat", *PLANAR) or torch.equal(found[0][0][inside], x[inside])
    nothing = fused(set, x, anchor, method, strict)  # without derivatives
    torch.testing.assert_close(nothing, found[0][0], rtol=near, atol=near)


@pytest.mark.parametrize("far", [0.0, 15.0])
@over_methods
@over_kinds
@over_dtypes
def test_strict_holds(dtype: torch.dtype, kind: str, method: str, far: float) -> None:
    """In its dtype and in float64, for points of every size and on the boundary, also far from the origin."""
    set, anchor, x = made(kind, dtype, 1, far)
    x = torch.cat([x, throw(set, anchor, 1000, 2.0, torch.Generator().manual_seed(2))])
    for points in (x, fused(set, x, anchor, "ray", strict=False)):
        y = fused(set, points, anchor, method)
        assert set.contains(y).all() and all(set.contains(row) for row in y[:50])
        assert (to_float64(set).h(y.double()) <= 0).all()


@over_methods
@pytest.mark.parametrize("kind", ["cone", "cones", "lmi", "singular lmi"])
@over_dtypes
def test_strict_holds_where_numbers_are_large(dtype: torch.dtype, kind: str, method: str) -> None:
    """Rounding grows with the position, wherever the points are thrown."""
    set, anchor, x = made(kind, dtype, 1, 400.0)
    y = fused(set, anchor + (x - anchor) * 1e3, anchor, method)
    assert set.contains(y).all() and (to_float64(set).h(y.double()) <= 0).all()


@over_dtypes
def test_strict_holds_where_matrices_are_not_quite_symmetric(dtype: torch.dtype) -> None:
    set, anchor, x = made("lmi", dtype)
    assert isinstance(set, LMI)
    change = 1e-5 * torch.randn(set.A.shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    set = LMI(set.A + change - change.mT, set.C)
    anchor = anchor + 0.8 * (fused(set, x[1], anchor) - anchor)  # where S is no multiple of the identity
    for method in METHODS:
        assert (to_float64(set).h(fused(set, x, anchor, method).double()) <= 0).all()


@over_methods
@pytest.mark.parametrize("kind", ["cone", "cones", "lmi", "singular lmi", *NORMS, "two", "simplex", "plane"])
@over_dtypes
def test_the_margin_is_that_of_the_formulas_or_more(dtype: torch.dtype, kind: str, method: str) -> None:
    """Anywhere on the way from the anchor to the boundary."""
    set, anchor, x = made(kind, dtype, 4, 3.0)
    x = onto(set, x)
    known = what_is_known(set, anchor, method)
    out, length, *_ = known.out(x, True, False)
    eta = torch.linspace(0, 1, N, dtype=dtype)[:, None] / (1 + out.clamp(min=0))
    sets = tuple([part for part in parts(set) if not isinstance(part, Equality)])
    margin = Margin(sets, anchor, [part.constraints(anchor) for part in sets], 0.0, dtype)
    y = torch.lerp(anchor, x, eta)
    error = margin.fixed + margin._bounds(y, margin._displacement(y), 2)
    theirs = (error / (margin.depth - margin.at_anchor)).clamp(min=0)
    if kind == "simplex":  # far from a bound there is room enough without a margin
        theirs = theirs.where(y < 0.01 * anchor, 0.0)
    ours = known.more(eta, length).double() - 1
    assert (ours >= 0.99 * theirs.amax(-1, keepdim=True) - torch.finfo(dtype).eps).all()


@pytest.mark.parametrize("square", [False, True])
def test_the_margin_is_the_polynomial(square: bool) -> None:
    """1 + p + q |y| + c |y|^2 at |y| = |x0| + eta |x - x0|, and a few roundings more."""
    left, size = torch.tensor([0.5, 2.0]).double(), torch.tensor(30.0).double()
    errors = [torch.tensor(v).double() for v in ([0.1, 0.2], [0.03, 0.01], [0.02, 0.08])][: 3 if square else 2]
    eta, length = torch.tensor([[0.1], [0.7]]), torch.tensor([[50.0], [0.0]])
    p, q, c = 0.2, 0.06, 0.04 * square
    y = 30 + eta.double() * length.double()
    exact = 1 + p + y * (q + y * c)
    found = Curve.of(left, size, torch.float32, *errors).more(eta, length).double()
    assert (found >= exact).all() and (found <= exact * (1 + 1e-5)).all()


@over_dtypes
@pytest.mark.parametrize("size", [1e-20, 1e-31, 1e-100, 1e15])
def test_the_unit_of_h_does_not_matter(dtype: torch.dtype, size: float) -> None:
    """Of a quadratic and of a cone, as far as their numbers are normal and their sets are those of size 1."""
    size = max(size, 1.0 * torch.finfo(dtype).tiny ** 0.5)  # h has squares
    wide: Any = {"dtype": dtype}
    zero, x = torch.zeros(2, **wide), torch.tensor([[3.0, 4.0], [1e3, -2.0], [0.1, 0.2]], **wide)
    unit = torch.eye(2, **wide)[None], torch.zeros(1, 2, **wide), torch.zeros(1, 2, **wide), torch.ones(1, **wide)
    for strict in (False, True):
        for s in (1.0, size):
            ball = Quadratic(s * unit[0][0], zero, torch.tensor(-s / 2, **wide))
            cone = SecondOrderCone(*[s * v for v in unit])
            for set in (ball, cone):
                leaf = x.clone().requires_grad_()
                y = fused(set, leaf, zero, "chord", strict)
                assert not strict or (set.contains(y).all() and (to_float64(set).h(y.double()) <= 0).all())
                norm = leaf.norm(dim=-1, keepdim=True).clamp(min=1)
                expected = leaf / norm
                near = 3e-5 if dtype == torch.float32 else 1e-12
                torch.testing.assert_close(y, expected, rtol=near, atol=near)
                g = torch.tensor([[1.0, 2.0]], **wide).expand(3, 2)
                ours, theirs = (torch.autograd.grad(v, leaf, g, retain_graph=True)[0] for v in (y, expected))
                torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=near)


def test_points_far_out_in_an_unbounded_set() -> None:
    """What is |x| times as small as it counts is not nothing."""
    x = torch.tensor([[2.0, 1e35]]).double().requires_grad_()
    slab = Quadratic(torch.diag(torch.tensor([1.0, 0.0])).double(), torch.zeros(2).double(), -1.0)
    y = fused(slab, x, torch.zeros(2).double(), "chord", False)
    torch.testing.assert_close(y, x * 2**-0.5, rtol=1e-12, atol=0)
    one = torch.tensor([[[1.0, 0.0]]]).double()
    cone = SecondOrderCone(one, one[:, 0, :1] * 0, one[:, 0] * 0, one[0, :, 0])
    y = fused(cone, x, torch.zeros(2).double(), "chord", False)
    torch.testing.assert_close(y, x / 2, rtol=1e-12, atol=0)
    (slope,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(slope, torch.tensor([[-2.5e34, 0.5]]).double(), rtol=1e-9, atol=0)


@over_dtypes
def test_derivatives_at_the_origin(dtype: torch.dtype) -> None:
    """Where no energy and no gap is left of a quadratic, and nothing of a cone."""
    n = 4
    wide: Any = {"dtype": dtype}
    ball = Quadratic(torch.eye(n, **wide), torch.zeros(n, **wide), -1.0)
    cones = SecondOrderCone(torch.eye(n, **wide)[None], torch.zeros(1, n, **wide), torch.zeros(1, n, **wide),
                            torch.ones(1, **wide))  # fmt: skip
    for set in (ball, cones, ball & Quadratic(2 * torch.eye(n, **wide), torch.zeros(n, **wide), -3.0)):
        for method in METHODS[:2] if set is not ball else METHODS:
            x = torch.zeros(2, n, **wide).requires_grad_()
            g = torch.linspace(-1, 1, 2 * n, **wide).reshape(2, n)
            y = fused(set, x, torch.zeros(n, **wide), method, True)
            assert torch.equal(torch.autograd.grad(y, x, g)[0], g)


def test_the_margin_of_quadratics_grows_with_the_square() -> None:
    set, anchor, _ = made("quadratic", torch.float32)
    assert isinstance(set, Quadratic)
    for method in METHODS:
        known = what_is_known(set, anchor, method)
        far = torch.tensor([1e3, 1e4])
        least = 2**-24 * (2 * D + 8) * set.P.norm() * far**2 / -(anchor @ (set.P @ anchor / 2 + set.q) + set.r)
        assert (known.margin.more(torch.ones(2), far) > 1 + least).all()


@over_methods
@pytest.mark.parametrize("kind", ["cone", "cones", "lmi", "singular lmi", "ball", "axes", "ellipsoid"])
@over_dtypes
def test_what_the_formulas_move_is_moved(dtype: torch.dtype, kind: str, method: str) -> None:
    """Points so near the boundary that rounding may hide that they are outside."""
    set, anchor, x = made(kind, dtype, 5, 15.0)
    edge = fused(set, x, anchor, "ray", strict=False)
    edge = anchor + (edge - anchor) * (
        1 - torch.finfo(dtype).eps * torch.linspace(0, 30, 31, dtype=dtype)[:, None, None]
    )
    moved = (formulas(set, edge, anchor, method) != edge).any(-1)
    assert moved.any() and (fused(set, edge, anchor, method) != edge).any(-1)[moved].all()


@over_kinds
def test_ray_across_the_set(kind: str) -> None:
    """From near the boundary to the other side, where the terms of the gauge cancel: float32 against float64."""
    set, anchor, x = made(kind, torch.float32)
    wide = to_float64(set)
    edge = anchor + 0.999 * (fused(set, x[1], anchor) - anchor)
    across = (anchor + 5 * (anchor - edge) + 0.1 * x[4:8]).float()
    y, theirs = fused(set, across, edge, strict=False), formulas(wide, across.double(), edge.double(), strict=False)
    assert ((y - theirs).norm(dim=-1) < 2e-5 * theirs.norm(dim=-1)).all()


@over_kinds
@over_dtypes
def test_it_is_the_margin_that_does_it(dtype: torch.dtype, kind: str) -> None:
    set, anchor, x = made(kind, dtype, 3)
    x = anchor + (x - anchor) * torch.linspace(0.5, 1.5, 8, dtype=dtype)[:, None, None]
    loose, y = (fused(set, x, anchor, "ray", strict) for strict in (False, True))
    assert set.contains(y).all() and not set.contains(loose).all()
    assert (y - loose).norm(dim=-1).median() < 2000 * torch.finfo(dtype).eps  # and it is small


@over_methods
@over_kinds
@over_dtypes
def test_what_is_extreme(dtype: torch.dtype, kind: str, method: str) -> None:
    """NaN and infinity stay with their sample, huge points come back finite, the anchor stays, a bad one is loud."""
    set, anchor, x = made(kind, dtype)
    x[0, 0], x[1, 1], x[2], x[3] = math.nan, math.inf, torch.finfo(dtype).max * x[2].sign(), anchor
    x[4] *= 1e25
    for strict in (False, True):
        leaf = x.clone().requires_grad_()
        y = fused(set, leaf, anchor, method, strict)
        assert y[:2].isnan().all() and y[2:].isfinite().all() and torch.equal(y[3], anchor)
        (slope,) = torch.autograd.grad(y.sum(), leaf)
        assert slope[2:].isfinite().all()
        assert torch.equal(slope[3], torch.ones_like(anchor)) or kind in PLANAR
    assert set.contains(y[2:]).all()
    outside = anchor + 1e3 * (x[6] - anchor)
    outside = outside if set.h(outside) > 0 else anchor - 1e3 * (x[6] - anchor)
    for strict in (False, True):
        assert unasked(set, x, outside, method, strict).isnan().all()
        assert inset.project(set, x, outside, method=method, strict=strict).isnan().all()  # type: ignore[arg-type]


@pytest.mark.parametrize("strict", [False, True])
@over_methods
def test_an_anchor_outside_of_one_of_many_is_loud(method: str, strict: bool) -> None:
    set, anchor, x = made("quadratics", torch.float64)
    set.parts[2].r.fill_(1.0)  # type: ignore[attr-defined]
    assert set.parts[0].h(anchor) < 0 and set.parts[2].h(anchor) > 0  # type: ignore[attr-defined]
    for leaf in (x, x.clone().requires_grad_()):
        assert unasked(set, leaf, anchor, method, strict).isnan().all()


@over_methods
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("simplex", "planes")])  # x >= 0 is certain
@over_dtypes
def test_an_anchor_that_is_not_certainly_inside_is_loud(dtype: torch.dtype, kind: str, method: str) -> None:
    """Also for points that are inside."""
    set, anchor, x = made(kind, dtype)
    edge = fused(set, x, anchor, "ray", strict=False)
    edge = edge[(set.h(edge) < 0) & (set.h(edge) > -20 * torch.finfo(dtype).eps) & (edge.norm(dim=-1) < 10)]
    assert len(edge) > 0
    assert unasked(set, x, edge[0], method).isnan().all() and formulas(set, x, edge[0], method).isnan().all()


@over_methods
@over_kinds
def test_gradient_of_a_huge_point(kind: str, method: str) -> None:
    """In float32 it is that of float64, without the margin."""
    set, anchor, x = made(kind, torch.float32)
    wide = to_float64(set)
    for size in (1e5, 1e20, 1e25):
        leaf = (size * x[1:6]).requires_grad_()
        (ours,) = torch.autograd.grad(fused(set, leaf, anchor, method, False).sin().sum(), leaf)
        leaf = leaf.detach().double().requires_grad_()
        y = formulas(wide, leaf, anchor.double(), method, False)
        (theirs,) = torch.autograd.grad(y.sin().sum(), leaf)
        bounded = y.norm(dim=-1) < 100
        assert bounded.any()
        assert ((ours - theirs).norm(dim=-1) <= 1e-2 * theirs.norm(dim=-1) + 1e-30)[bounded].all()


@over_methods
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "skew"])
def test_second_derivatives_are_the_formulas(kind: str, method: str) -> None:
    set, anchor, x = made(kind, torch.float64)
    x, found = x[:8], []
    for apply in (fused, formulas):
        leaf = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(apply(set, leaf, anchor, method).sin().sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(first.cos().sum(), leaf)[0])
    assert found[0].abs().max() > 1e-3
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@over_methods
@over_kinds
def test_gradients_come_in_batches(kind: str, method: str) -> None:
    set, anchor, x = made(kind, torch.float64)
    leaf = x[:4].clone().requires_grad_()
    y = fused(set, leaf, anchor, method)
    g = torch.randn(3, *y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(0))
    (together,) = torch.autograd.grad(y, leaf, g, retain_graph=True, is_grads_batched=True)
    each = [torch.autograd.grad(y, leaf, one, retain_graph=True)[0] for one in g]
    torch.testing.assert_close(together, torch.stack(each))


@over_kinds
def test_what_was_computed_is_forgotten_when_the_set_changes(kind: str) -> None:
    """For both methods, which share an anchor."""
    set, anchor, x = made(kind, torch.float64)
    parts = getattr(set, "parts", (set,))
    tensors = [v for v in vars(parts[-1]).values() if isinstance(v, Tensor)]
    changes = [lambda v=v: v.mul_(1.1) for v in tensors] + [lambda: anchor.mul_(0.5), lambda: None]
    for change in changes:
        for method in METHODS:
            ours, theirs = (apply(set, x, anchor, method) for apply in (fused, formulas))
            assert ((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)).quantile(0.9) < 1e-11
        change()


def test_what_was_computed_goes_with_its_anchor() -> None:
    for kind in ("quadratic", "cone", "lmi", "ellipsoid", "two", "simplex", "plane"):
        for method in METHODS:
            set, anchor, x = made(kind, torch.float64)
            fused(set, x, anchor, method)
            gone = weakref.ref(anchor)
            del anchor
            gc.collect()
            assert gone() is None


@pytest.mark.parametrize("sloped", [False, True])
@over_methods
def test_there_is_one_eigendecomposition(method: str, sloped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward; and no vectors where no derivative is asked for."""
    set, anchor, x = made("lmi", torch.float64)
    fused(set, x, anchor, method)
    calls: list[str] = []
    for name in ("eigh", "eigvalsh"):
        plain = getattr(torch.linalg, name)
        monkeypatch.setattr(torch.linalg, name, lambda S, name=name, plain=plain: calls.append(name) or plain(S))
    y = fused(set, x.requires_grad_(sloped), anchor, method)
    if sloped:
        y.sum().backward()
    assert calls == ["eigh" if sloped else "eigvalsh"]


@over_kinds
def test_large_batches_go_in_chunks(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set, anchor, x = made(kind, torch.float64)
    found = []
    for largest in (eager.LARGEST, 1500):
        monkeypatch.setattr(eager, "LARGEST", largest)
        leaf = x.reshape(4, -1, D).clone().requires_grad_()
        y = fused(set, leaf, anchor)
        found.append((y, *torch.autograd.grad(y.sin().sum(), leaf)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)
    monkeypatch.setattr(eager, "LARGEST", 1)
    assert eager.fused(set, x, anchor, "ray", True) is None


def test_where_it_does_not_apply() -> None:
    """Learned fields, per-sample sets and anchors, the paper's method, other sets in an intersection, transforms."""
    one, anchor, x = made("quadratic", torch.float32)
    cones, inner, _ = made("cones", torch.float32)
    lmi, middle, _ = made("lmi", torch.float32)
    both, _, _ = made("quadratics", torch.float32)
    assert isinstance(one, Quadratic) and isinstance(cones, SecondOrderCone) and isinstance(lmi, LMI)
    refused: list[tuple[Any, ...]] = [
        (Quadratic(nn.Parameter(one.P), one.q, one.r), anchor, "ray"),
        (Quadratic(one.P, one.q, one.r.expand(N)), anchor, "ray"),  # type: ignore[union-attr]
        (SecondOrderCone(cones.A[None], cones.b, cones.z, cones.d), inner, "ray"),
        (LMI(lmi.A, lmi.C.expand(N, 4, 4)), middle, "chord"),
        (LMI(lmi.A.double(), lmi.C), middle, "chord"),
        (one, anchor.expand(N, D), "ray"),
        (cones, inner, "paper"),
        (both, anchor, "paper"),
        (one & Ball(anchor, 1.0), anchor, "paper"),
        (one & Ball(anchor, 1.0, 1), anchor, "ray"),
        (Equality(torch.ones(1, D), torch.ones(1)), anchor, "chord"),
        (Equality(torch.ones(N, 1, D), torch.ones(1)) & one, anchor, "chord"),
        (Simplex(D, torch.ones(N)), anchor, "chord"),
        (Simplex(D), anchor, "paper"),
        (one, anchor, "near"),
        (one, anchor, inset.Near(steps=3)),
    ]
    for set, point, method in refused:
        assert eager.fused(set, x, point, method, True) is None
    for set, point in ((one, anchor), (lmi, middle), (made("cone", torch.float32)[0], anchor)):
        assert torch.equal(fused(set, x, point, "paper"), fused(set, x, point, "chord"))
    tried: list[Any] = []
    torch.func.vmap(lambda x: tried.append(eager.fused(one, x, anchor, "ray", True)) or x)(x)
    assert tried == [None]


@pytest.mark.parametrize("kind", ["quadratics", "cones", "lmi", *NORMS, "two", *PLANAR])
def test_transforms_run_the_formulas(kind: str) -> None:
    set, anchor, x = made(kind, torch.float64)
    layer = inset.torch.Projection(set, anchor, method="ray")
    y = layer(x)
    others = [torch.func.vmap(layer)(x)]
    if kind == "cones":  # to compile takes long
        others.append(torch.compile(layer, fullgraph=True, backend="eager")(x))
    for other in others:
        torch.testing.assert_close(other, y, rtol=1e-11, atol=1e-11)


def test_the_layer_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in ("quadratics", "cones", "lmi", "ellipsoid", "two", "plane", "simplex"):
        set, anchor, x = made(kind, torch.float32)
        calls: list[int] = []
        monkeypatch.setattr(eager._Line, "apply", lambda *a, calls=calls: calls.append(1) or a[0])
        assert inset.torch.Projection(set, anchor, method="ray")(x) is not None and calls == [1]


@over_methods
def test_strict_holds_for_quadratics_around_a_small_anchor(method: str) -> None:
    """In float64 x0.Px0 is no difference of numbers that are much larger."""
    random = torch.Generator().manual_seed(0)
    for n in (1, 6):
        set = Quadratic(torch.eye(n).double(), torch.zeros(n).double(), -1.0)
        x = 100 * torch.randn(200, n, generator=random, dtype=torch.float64)
        for size in (1e-9, 1e-8, 1e-7, 1e-6):
            anchor = size * torch.randn(n, generator=random, dtype=torch.float64)
            assert set.contains(fused(set, x, anchor, method)).all()

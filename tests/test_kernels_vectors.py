"""The kernels for sets of vectors, in Triton's interpreter on the CPU: the formulas of the sets are the reference."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor

import inset.torch  # noqa: F401  the kernels are part of this front-end
from inset import Ball, Box, ConvexSet, Ellipsoid, Simplex
from inset._kernels import _launch, projected
from inset._project import interpolated

pytestmark = pytest.mark.usefixtures("one_program")
N, D = 12, 5
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def sets(dtype: torch.dtype) -> dict[str, tuple[ConvexSet, Tensor]]:
    """Sets with an anchor: fields and anchors for all samples, and for each."""
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=wide(dtype))

    def uniform(*shape: int) -> Tensor:
        return 0.5 + torch.rand(*shape, generator=random, dtype=wide(dtype))

    center, each = 0.3 * normal(D), 0.3 * normal(N, D)
    upper = uniform(D)
    upper[2] = math.inf
    return {
        "ball": (Ball(center, 1.3), center + 0.1 * normal(D)),
        "balls": (Ball(each, uniform(N)), each + 0.05 * normal(N, D)),
        "ball of all, an anchor each": (Ball(center, 1.5), center + 0.1 * normal(N, D)),
        "ellipsoid": (Ellipsoid(center, uniform(D) * torch.tensor([1, -1, 1, 1, -1]), diagonal=True), center + 0.02),
        "box": (Box(-upper.roll(1), upper), 0.1 * normal(D)),
        "boxes": (Box(-uniform(N, D), uniform(N, D)), 0.1 * normal(N, D)),
        "box of numbers": (Box(-0.7, 0.9), 0.1 * normal(D)),
        "simplex": (Simplex(D, 2.0), torch.tensor([0.4, 0.3, 0.5, 0.45, 0.35], dtype=wide(dtype))),
        "simplices": (Simplex(D, uniform(N)), 0.05 + 0.05 * uniform(N, D)),
    }


def points(dtype: torch.dtype, anchor: Tensor) -> Tensor:
    """Around the anchor: deep inside, about the boundary, far outside."""
    random = torch.Generator().manual_seed(1)
    sizes = torch.tensor([0.02, 1.0, 100.0]).repeat(N // 3)[:, None]
    return (anchor + sizes * torch.randn(N, D, generator=random, dtype=torch.float64)).to(dtype)


def fused(set: ConvexSet, x: Tensor, anchor: Tensor, strict: bool, method: str = "chord") -> Tensor:
    y = projected(set, x, anchor, method, strict)
    assert y is not None
    return y


def both(set: ConvexSet, x: Tensor, anchor: Tensor, strict: bool) -> tuple[list[Tensor], list[Tensor]]:
    """y and its derivatives by x and by the anchor: of the kernels, and of the formulas."""
    found = []
    for apply in (fused, lambda s, x, a, strict: interpolated(s, x, a, "chord", strict)[0]):
        leaves = x.clone().requires_grad_(), anchor.clone().requires_grad_()
        y = apply(set, *leaves, strict)
        g = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape).to(y.dtype)
        found.append([y.detach(), *torch.autograd.grad(y, leaves, g)])
    return found[0], found[1]


def doubled(set: ConvexSet) -> ConvexSet:
    """The set in float64."""
    fields = {f.name: getattr(set, f.name) for f in dataclasses.fields(cast(Any, set))}
    return type(set)(**{k: v.double() if isinstance(v, Tensor) else v for k, v in fields.items()})


@pytest.mark.parametrize("name", sets(torch.float64))
@pytest.mark.parametrize("dtype", [torch.float64])
def test_kernel_is_the_formula(dtype: torch.dtype, name: str) -> None:
    """Values and derivatives to rounding, without the margin."""
    set, anchor = sets(dtype)[name]
    ours, reference = both(set, points(dtype, anchor), anchor, strict=False)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=60 * torch.finfo(dtype).eps, atol=60 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("name", sets(torch.float64))
@pytest.mark.parametrize("dtype", DTYPES)
def test_strict_holds_and_costs_little(dtype: torch.dtype, name: str) -> None:
    """The numbers are in the set in their own dtype and in float64, and as near to its boundary as the formula's."""
    set, anchor = sets(dtype)[name]
    x = points(dtype, anchor)
    (y, *ours), (other, *reference) = both(set, x, anchor, strict=True)
    assert set.contains(y).all()
    assert (doubled(set).h(y.double()) <= 0).all()
    outside = ~(set.h(x) <= 0)
    assert 0 < outside.sum() < N
    if not isinstance(set, Simplex):  # whose points are moved onto a plane first
        assert torch.equal(y[~outside], x[~outside])
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(y, other, rtol=30 * eps, atol=30 * eps)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=200 * eps, atol=200 * eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("kind", ["ball", "ellipsoid", "box"])
def test_strict_holds_far_from_the_origin(kind: str, dtype: torch.dtype) -> None:
    """Rounding grows with the position, and so does the margin; without it points are outside."""
    random, size = torch.Generator().manual_seed(2), 1.0 if dtype == torch.float32 else 100.0
    c = 400 * torch.randn(D, generator=random)
    made: dict[str, ConvexSet] = {
        "ball": Ball(c, size),
        "ellipsoid": Ellipsoid(c, (0.5 + torch.rand(D, generator=random)) / size, diagonal=True),
        "box": Box(
            c - size * (0.5 + torch.rand(D, generator=random)), c + size * (0.5 + torch.rand(D, generator=random))
        ),
    }
    x = (c + 5 * size * torch.randn(200, D, generator=random)).to(dtype)
    anchor = c + 0.1 * size * torch.randn(D, generator=random) if kind == "box" else c
    y, loose = (fused(made[kind], x, anchor, strict) for strict in (True, False))
    assert made[kind].contains(y).all() and (doubled(made[kind]).h(y.double()) <= 0).all()
    if kind != "box" or dtype == torch.float16:  # in float32 a coordinate is rounded to its bound itself
        assert not (doubled(made[kind]).h(loose.double()) <= 0).all()


@pytest.mark.parametrize("name", ["ball", "box", "simplex", "ellipsoid"])
def test_what_is_extreme(name: str) -> None:
    """NaN and infinity stay with their sample, huge points come back finite, a bad anchor is loud."""
    set, anchor = sets(torch.float32)[name]
    x = points(torch.float32, anchor)
    x[0, 1], x[1, 2], x[2], x[3], x[4] = math.nan, math.inf, 2.0e38 * x[2].sign(), 1e-30, 3e30 * x[4]
    with np.errstate(all="ignore"):  # a GPU does not warn
        y, reference = fused(set, x, anchor, True), interpolated(set, x, anchor, "chord", True)[0]
    assert y[:2].isnan().all() and y[2:].isfinite().all() and set.contains(y[2:]).all()
    torch.testing.assert_close(y[2:], reference[2:], rtol=1e-5, atol=1e-5)
    leaf = x[2:].clone().requires_grad_()
    with np.errstate(all="ignore"):
        (ours,) = torch.autograd.grad(fused(set, leaf, anchor, True).sin().sum(), leaf)
    leaf = leaf.detach().double().requires_grad_()  # in float32 the formulas lose a part of theirs
    y = interpolated(doubled(set), leaf, anchor.double(), "chord", True)[0]
    (theirs,) = torch.autograd.grad(y.sin().sum(), leaf)
    assert ours[0].abs().max() > 0
    apart = (ours - theirs).abs().amax(-1)
    assert (apart <= 1e-4 * theirs.norm(dim=-1) + 1e-6 * (theirs.norm(dim=-1) == 0)).all()
    outside = anchor.clone()
    outside[0] -= 50
    for strict in (True, False):
        assert fused(set, x[5:], outside, strict).isnan().all()


@pytest.mark.parametrize("name", ["balls", "ellipsoid", "boxes", "simplices"])
def test_anchors_of_huge_points(name: str) -> None:
    """These are pulled back towards the anchor, which moves with it."""
    set, anchor = sets(torch.float32)[name]
    x = 1e33 * points(torch.float32, anchor)
    found = []
    for dtype in (torch.float32, torch.float64):
        leaf = anchor.expand(N, D).to(dtype, copy=True).requires_grad_()
        y = fused(set, x, leaf, False) if not found else interpolated(doubled(set), x.double(), leaf, "chord", False)[0]
        found.append(torch.autograd.grad(y.sin().sum(), leaf)[0].double())
    assert found[1].abs().max() > 0.1
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-4)


def test_one_of_two_bounds_that_are_met_at_once_decides() -> None:
    """The first one: as if it were a little nearer."""
    set, x = Box(-torch.ones(D), torch.ones(D)), torch.tensor([[0.5, 2.0, -2.0, 2.0, 0.1]])
    ours, _ = both(set, x, torch.zeros(1, D), strict=False)
    _, reference = both(set, x + torch.tensor([0.0, 1e-6, 0.0, 0.0, 0.0]), torch.zeros(1, D), strict=False)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_points_far_from_the_plane_come_onto_it() -> None:
    """What is lost where a large part of all coordinates is taken off is made up for."""
    x = 4096 + torch.rand(N, 64, generator=torch.Generator().manual_seed(4)) / 32
    y = fused(Simplex(64), x, torch.full((64,), 1 / 64), strict=False)
    assert ((y.double().sum(-1) - 1).abs() <= 4 * torch.finfo(torch.float32).eps).all()


@pytest.mark.parametrize(
    ("low", "high", "x"), [(1.00000005, 3.0, 1.0), (-5.0, -1.00000005, -1.0), (0.50000002, 3.0, 0.5)]
)
def test_python_numbers_that_rounding_moved_out_of_the_box(low: float, high: float, x: float) -> None:
    """What they lost is not lost again beside a power of two."""
    set, anchor = Box(low, high), torch.full((2,), (low + high) / 2)
    y = fused(set, torch.full((1, 2), x), anchor, strict=True)
    assert ((low <= y.double()) & (y.double() <= high)).all()


def test_derivatives_follow_the_decision_of_the_way_there() -> None:
    """Just outside, where the gauge is rounded to 1."""
    set, x = Box(torch.zeros(2), torch.ones(2)), torch.tensor([[-1e-30, 0.25]])
    (_, ours, _), (_, reference, _) = both(set, x, torch.full((1, 2), 0.5), strict=False)
    torch.testing.assert_close(ours, reference)


def test_weights_below_the_smallest_normal_number() -> None:
    set, x = Ball(torch.zeros(2), 1e-12), torch.tensor([[7e28, 2.1e28]])
    assert (doubled(set).h(fused(set, x, torch.zeros(2), strict=True).double()) <= 0).all()


def test_neighbours_change_nothing() -> None:
    """A tile with a sample that is not finite looks again at all of them."""
    set = Ellipsoid(torch.zeros(2), torch.full((2,), 1e-29), diagonal=True)
    x = torch.tensor([[9e28, 0.0], [math.nan, 0.0]])
    alone, beside = (fused(set, v, torch.zeros(2), strict=True)[0] for v in (x[:1], x))
    assert torch.equal(alone, beside)


@pytest.mark.parametrize("radius", [1e-42, 1e-40, 3e-40, 1e-38])
def test_strict_holds_of_numbers_that_are_hardly_any(radius: float) -> None:
    """Below the smallest normal number rounding does not become any less."""
    set = Ball(torch.zeros(12), torch.tensor(radius))
    x = 1e3 * radius * torch.randn(200, 12, generator=torch.Generator().manual_seed(0))
    with np.errstate(all="ignore"):
        y = projected(set, x, torch.zeros(12), "chord", True)
    assert y is not None and not (set.h(y) > 0).any()
    assert not (Ball(torch.zeros(12).double(), torch.tensor(radius).double()).h(y.double()) > 0).any()


def test_balls_of_any_size() -> None:
    """A sample without a constraint has the derivative 1, beside one that is outside."""
    x, anchor = torch.tensor([[3.0, 4.0], [3.0, 4.0]]), torch.zeros(2, 2)
    ours, reference = both(Ball(anchor, torch.tensor([math.inf, 1.0])), x, anchor, strict=False)
    assert torch.equal(ours[1][0], torch.tensor([-1.0, -1 / 3]))  # the incoming one
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b)


def test_gauges_that_overflow() -> None:
    y = fused(Box(-1e-25, 1e-25), torch.tensor([[1e20, 0, 0, 0, -1e20]]), torch.zeros(D), strict=True)
    assert torch.equal(y, torch.zeros(1, D))


@pytest.mark.parametrize("name", ["balls", "ellipsoid", "boxes", "simplices"])
def test_second_derivatives_are_the_formulas(name: str) -> None:
    set, anchor = sets(torch.float64)[name]
    x = points(torch.float64, anchor)
    found = []
    for apply in (fused, lambda s, x, a, strict: interpolated(s, x, a, "chord", strict)[0]):
        leaves = x.clone().requires_grad_(), anchor.clone().requires_grad_()
        first = torch.autograd.grad(apply(set, *leaves, False).sin().sum(), leaves, create_graph=True)
        found.append((*first, *torch.autograd.grad(sum(g.cos().sum() for g in first), leaves)))  # type: ignore[arg-type]
    assert all(v.abs().max() > 1e-3 for v in found[0])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["ball", "box", "simplex"])
def test_programs_take_turns(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few programs do what many do, with several samples at a time and a last tile that is not full."""
    set, anchor = sets(torch.float32)[name]
    x = points(torch.float32, anchor)[:11]
    monkeypatch.setattr(_launch, "PROGRAMS", 16)
    many, _ = both(set, x, anchor, True)
    monkeypatch.setattr(_launch, "PROGRAMS", 2)
    monkeypatch.setattr(_launch, "HELD", 16)
    few, _ = both(set, x, anchor, True)
    for a, b in zip(many, few, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["ball", "ellipsoid", "box", "simplex"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_long_rows_are_read_in_pieces(name: str, dtype: torch.dtype) -> None:
    """All lanes together read fewer numbers than a row has, and the last piece is not full."""
    random, d = torch.Generator().manual_seed(3), 700
    x, axes = torch.randn(4, d, generator=random), 0.5 + torch.rand(d, generator=random)
    made: dict[str, tuple[ConvexSet, Tensor]] = {
        "ball": (Ball(torch.zeros(d), 20.0), 0.01 * axes),
        "ellipsoid": (Ellipsoid(torch.zeros(d), axes / 20, diagonal=True), 0.01 * axes),
        "box": (Box(-3 * axes, 3 * axes), 0.01 * axes),
        "simplex": (Simplex(d), axes / axes.sum()),
    }
    set, anchor = made[name]
    x = (anchor + torch.tensor([1e-4, 0.5, 2.0, 100.0])[:, None] * x).to(dtype)
    ours, reference = both(set, x, anchor.expand(4, d), strict=True)
    eps = torch.finfo(dtype).eps
    assert set.contains(ours[0]).all()
    for a, b in zip(ours, reference, strict=True):
        assert ((a - b).double().norm(dim=-1) <= 30 * eps * b.double().norm(dim=-1) + 1e-30).all()


@pytest.mark.parametrize("name", ["ball", "ellipsoid", "boxes", "simplex"])
@pytest.mark.parametrize("d", [2, 4])
def test_short_rows_are_read_several_at_once(name: str, d: int) -> None:
    """A lane reads several samples, of which the last ones are not there."""
    random, n, dtype = torch.Generator().manual_seed(3), 11, torch.bfloat16
    x, axes = torch.randn(n, d, generator=random), 0.5 + torch.rand(d, generator=random)
    sides = 0.5 + torch.rand(n, d, generator=random)
    made: dict[str, tuple[ConvexSet, Tensor]] = {
        "ball": (Ball(torch.zeros(d), 1.0), 0.01 * axes),
        "ellipsoid": (Ellipsoid(torch.zeros(d), axes, diagonal=True), 0.01 * axes),
        "boxes": (Box(-sides, sides), 0.01 * axes),
        "simplex": (Simplex(d), axes / axes.sum()),
    }
    set, anchor = made[name]
    x = (anchor + torch.logspace(-2, 2, n)[:, None] * x).to(dtype)
    ours, reference = both(set, x, anchor.expand(n, d), strict=True)
    assert set.contains(ours[0]).all()
    for a, b in zip(ours, reference, strict=True):
        assert ((a - b).double().norm(dim=-1) <= 0.25 * b.double().norm(dim=-1) + 0.1 * torch.finfo(dtype).eps).all()


def test_batches_broadcast() -> None:
    """Points, anchors and fields may have different batches."""
    set, anchor = sets(torch.float64)["balls"]
    x = points(torch.float64, anchor)
    few = Ball(set.center[:3], set.radius[:3])  # type: ignore[attr-defined]
    y = fused(few, x[:4, None], anchor[:3], True)
    each = [[fused(Ball(few.center[k], few.radius[k]), p, anchor[k], True) for k in range(3)] for p in x[:4]]  # type: ignore[index]
    assert y.shape == (4, 3, D)
    torch.testing.assert_close(y, torch.stack([torch.stack(row) for row in each]), rtol=0, atol=0)


def test_where_kernels_do_not_apply() -> None:
    """Learned fields, other norms, matrices, other methods and other dtypes are for the formulas."""
    x, c = torch.randn(3, D), torch.zeros(D)
    learned = c.clone().requires_grad_()
    refused: list[tuple[Any, ...]] = [
        (Ball(learned, 1.0), "chord"),
        (Ball(c, 1.0, 1), "chord"),
        (Ball(c, 1.0), "ray"),
        (Ball(c.double(), 1.0), "chord"),
        (Ellipsoid(c, torch.eye(D)), "chord"),
        (Ellipsoid(c, torch.ones(D), diagonal=True), "ray"),
        (Box(learned - 1, 1.0), "chord"),
        (Box(-1.0, 1.0), "paper"),
        (Simplex(D), "paper"),
    ]
    for set, method in refused:
        assert projected(set, x, c, method, True) is None, (set, method)
    assert projected(Box(-1.0, 1.0), x, c, "ray", True) is not None
    assert projected(Ball(c, 1.0), x, c, "paper", True) is not None


@pytest.mark.parametrize("kind", ["ball", "ellipsoid", "box"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_strict_holds_where_the_anchor_is_exact(kind: str, dtype: torch.dtype) -> None:
    """The result is rounded even if the anchor, at 0, is not."""
    random, zero = torch.Generator().manual_seed(4), torch.zeros(D)
    upper = 0.5 + torch.rand(D, generator=random)
    made: dict[str, ConvexSet] = {
        "ball": Ball(zero, 1.0),
        "ellipsoid": Ellipsoid(zero, upper, diagonal=True),
        "box": Box(-upper, upper),
    }
    x = (3 * torch.randn(300, D, generator=random)).to(dtype)
    y, loose = (fused(made[kind], x, zero, strict) for strict in (True, False))
    assert made[kind].contains(y).all() and (doubled(made[kind]).h(y.double()) <= 0).all()
    assert not (doubled(made[kind]).h(loose.double()) <= 0).all()


def test_numbers_as_bounds_are_exact() -> None:
    """0.1 and 0.3 are not floats of 32 bits: their neighbours are outside."""
    x = torch.tensor([[0.1, -0.3], [0.1, 0.0], [0.0, -0.3], [0.05, -0.1]])
    assert (x.double()[:3] > 0.1).any(-1).sum() == 2
    y = fused(Box(-0.3, 0.1), x, torch.zeros(2), True)
    assert (y.double() <= 0.1).all() and (y.double() >= -0.3).all()
    assert torch.equal(y[3], x[3])
    torch.testing.assert_close(y, x, rtol=1e-5, atol=0)


def test_what_is_on_the_simplex_stays() -> None:
    """Bit for bit, although the sum of its coordinates is rounded."""
    x = torch.rand(64, 7, generator=torch.Generator().manual_seed(5))
    x = x / x.sum(-1, keepdim=True)
    assert (x.sum(-1) != 1).any()
    assert torch.equal(fused(Simplex(7), x, torch.full((7,), 1 / 7), True), x)


def test_derivative_by_the_anchor_alone() -> None:
    set, x = Ball(torch.zeros(3), 1.0), torch.tensor([[3.0, 4.0, 0.0], [0.1, 0.0, 0.0]])
    found = []
    for apply in (projected, lambda *a: interpolated(*a)[0]):
        anchor = torch.tensor([0.1, -0.2, 0.0], requires_grad=True)
        found.append(torch.autograd.grad(apply(set, x, anchor, "chord", False).sin().sum(), anchor)[0])
    assert bool((found[1] != 0).any())
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("by", ["x", "anchor"])
def test_second_derivative_where_the_rest_is_constant(by: str) -> None:
    points = torch.tensor([[3.0, 4.0, 0.0], [0.1, 0.3, 0.2]])
    for set in (Ball(torch.zeros(3), 1.0), Box(-torch.ones(3), torch.ones(3)), Simplex(3)):
        found = []
        for apply in (projected, lambda *a: interpolated(*a)[0]):
            x, anchor = points.clone(), torch.tensor([0.3, 0.4, 0.3])
            leaf = (x if by == "x" else anchor).requires_grad_()
            y = apply(set, x, anchor, "chord", False)
            (first,) = torch.autograd.grad(y.sin().sum(), leaf, create_graph=True)
            found.append(torch.autograd.grad(first.square().sum(), leaf)[0])
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


def test_an_anchor_of_another_width_is_not_for_kernels() -> None:
    """They would read beyond its end; the formulas tell what is wrong."""
    assert projected(Box(-1.0, 1.0), torch.ones(2, 4), torch.zeros(3), "chord", True) is None

"""Polytopes, boxes and balls that depend on the input or are learned: few operations are what the formulas are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad

import inset
from inset import Ball, Box, Polytope
from inset._eager import dependent, dependent_kinds
from inset._project import interpolated
from inset.torch import Projection

DTYPES = (torch.float64, torch.float32)
N, D, M = 12, 3, 7
Shape = tuple[int, ...]


def drawn(seed: int, dtype: torch.dtype) -> Callable[..., Tensor]:
    random = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=random, dtype=torch.float64).to(dtype)


def polytope(normal: Callable[..., Tensor], first: Shape, second: Shape) -> Polytope:
    return Polytope(normal(*first, M, D), 0.5 + normal(*second, M).abs())


def box(normal: Callable[..., Tensor], first: Shape, second: Shape) -> Box:
    return Box(-0.3 - normal(*first, D).abs(), 0.3 + normal(*second, D).abs())


def half_box(normal: Callable[..., Tensor], first: Shape, second: Shape) -> Box:
    return Box(-0.7, 0.3 + normal(*second, D).abs())


def ball(normal: Callable[..., Tensor], first: Shape, second: Shape) -> Ball:
    return Ball(0.05 * normal(*first, D), 0.5 + normal(*second).abs())


def unit_ball(normal: Callable[..., Tensor], first: Shape, second: Shape) -> Ball:
    return Ball(0.05 * normal(*first, D), 0.7)


def ball_around_a_number(normal: Callable[..., Tensor], first: Shape, second: Shape) -> Ball:
    return Ball(0.05, 0.5 + normal(*second).abs())  # type: ignore[arg-type]


MADE = (polytope, box, half_box, ball, unit_ball, ball_around_a_number)
LAYOUTS: tuple[tuple[Shape, Shape, Shape, Shape], ...] = (
    # batches of x, of the fields, of the anchor
    ((N,), (N,), (N,), (N,)),
    ((N,), (), (), ()),
    ((N,), (N,), (), (1,)),
    ((N,), (), (N,), ()),
    ((N,), (1,), (N,), (N,)),
    ((4, N), (4, 1), (N,), (1, N)),
    ((), (), (), ()),
    ((1, 1), (1, 1), (1,), (1, 1)),
)


def case(make: Any, layout: Any, dtype: torch.dtype, seed: int = 0) -> tuple[Any, Tensor, Tensor, list[Tensor]]:
    """A set, points from inside to far outside, an anchor, and all tensors that ask for a gradient."""
    normal, (batch, first, second, third) = drawn(seed, dtype), layout
    set, x, anchor = make(normal, first, second), normal(*batch, D), 0.03 * normal(*third, D)
    if batch:
        x = x * torch.logspace(-2, 6, batch[-1], dtype=dtype)[:, None]
    asking = [v.requires_grad_() for v in (x, anchor, *vars(set).values()) if isinstance(v, Tensor)]
    return set, x, anchor, asking


def pulled(y: Tensor, asking: list[Tensor], twice: bool = False) -> tuple[Tensor, ...]:
    weights = torch.linspace(0.5, 2, y.numel(), dtype=y.dtype).reshape(y.shape)
    return grad((y * weights).sum(), asking, create_graph=twice)


@pytest.mark.parametrize("strict", (False, True))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("make", MADE)
def test_is_the_formula(make: Any, layout: Any, dtype: torch.dtype, strict: bool) -> None:
    set, x, anchor, asking = case(make, layout, dtype)
    y = dependent.fused(set, x, anchor, "chord", strict)
    if make is polytope and layout[1] == (4, 1):  # some samples share a matrix, which would be copied
        assert y is None
        return
    assert y is not None and "_Line" in y.grad_fn.name()  # type: ignore[union-attr]
    expected, _ = interpolated(set, x, anchor, "chord", strict)
    close = 1e-11 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(y, expected, rtol=close, atol=close)
    for ours, theirs in zip(pulled(y, asking), pulled(expected, asking), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=10 * close, atol=10 * close)


@pytest.mark.parametrize("make", MADE)
def test_points_inside_stay_bit_for_bit(make: Any) -> None:
    set, x, anchor, _ = case(make, LAYOUTS[0], torch.float32)
    x = (0.1 * x).detach()
    inside = set.h(x) < -1e-4
    y = dependent.fused(set, x, anchor, "chord", True)
    assert y is not None and 0 < inside.sum() < N
    assert torch.equal(y[inside], x[inside]) and not (y[~inside] == x[~inside]).all(-1).any()


@pytest.mark.parametrize("far", (0.0, 100.0))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", MADE)
def test_strict_holds(make: Any, dtype: torch.dtype, far: float) -> None:
    """In its dtype and in float64, also with an anchor far from 0; without the margin it does not."""
    broken = held = 0
    for seed in range(200):
        normal = drawn(seed, dtype)
        set, batch = make(normal, (64,), (64,)), (64,)
        scale = float(10 ** (4 * torch.rand((), generator=torch.Generator().manual_seed(seed)) - 2))
        fixed = make in (half_box, ball_around_a_number)
        move = torch.zeros(64, D, dtype=dtype) if fixed else far * normal(64, D)
        if isinstance(set, Polytope):
            set = Polytope(scale * set.A, scale * (set.b + (set.A @ move[..., None])[..., 0]))
        elif isinstance(set, Box):
            set = Box(set.lower if isinstance(set.lower, float) else set.lower + move, set.upper + move)
        else:
            set = Ball(set.center + move, set.radius)
        x, anchor = 3 * normal(*batch, D) + move, 0.01 * normal(*batch, D) + move
        if isinstance(set, Ball) and seed % 2:  # where the chord ends on the boundary
            anchor = set.center
        loose, y = (dependent.fused(set, x, anchor, "chord", strict) for strict in (False, True))
        assert loose is not None
        wide = changed(set, Tensor.double)
        broken += int((wide.h(loose.double()) > 0).sum())
        if y is None:  # where rounding takes more than a part of the depth
            continue
        held += 1
        assert (set.h(y) <= 0).all() and (wide.h(y.double()) <= 0).all()
        assert all([changed(set, lambda v, k=k: v[k]).h(y[k]) <= 0 for k in range(4)])
        again = dependent.fused(set, loose, anchor, "chord", True)
        assert again is None or (wide.h(again.double()) <= 0).all()
    assert broken > 20 and held > 100


def changed(set: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The set with other arrays."""
    return type(set)(*[change(v) if isinstance(v, Tensor) else v for v in list(vars(set).values())[:2]])


@pytest.mark.parametrize("far", (0.0, 30.0, 1000.0))
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("make", MADE)
def test_the_margin_is_that_of_the_formulas_or_more(make: Any, dtype: torch.dtype, far: float) -> None:
    """For each point, wherever anchors are, and however large bounds are."""
    u, compared = torch.finfo(dtype).eps / 2, 0
    for seed in range(30):
        normal = drawn(seed, dtype)
        set, move = make(normal, (N,), (N,)), far * normal(N, D)
        if make is polytope:  # bounds as large as the anchor is far, or rows
            set = Polytope(set.A, set.b + (set.A @ move[..., None])[..., 0] * (seed % 2) + far * (1 - seed % 2))
            move = move * (seed % 2)
        elif make is half_box:
            set, move = Box(-0.7 - far, set.upper + far), 0 * move
        elif make is box:
            set = Box(set.lower + move, set.upper + move)
        elif make is ball_around_a_number:
            set, move = Ball(far, set.radius), 0 * move + far  # type: ignore[arg-type]
        else:
            set = Ball(set.center + move, set.radius + (far if make is ball and seed % 2 else 0))
        size = 3 * (1 + far)
        x, anchor = size * normal(N, D) + move, 0.01 * normal(N, D) + move
        kind = dependent_kinds.KINDS[type(set)]
        fields = [v if isinstance(v, Tensor) else float(v) for v in kind.fields(set)]
        solved, (_, info) = kind.solve(x, anchor, *fields, True), interpolated(set, x, anchor, "chord", True, True)
        if solved is None:  # where rounding takes more than a part of the depth
            continue
        compared += 1
        eta, outside = solved.eta[:, 0], solved.eta[:, 0] < 1
        assert (eta[outside] <= info.eta[outside] * (1 + 2 * u)).all() and info.eta.min() > 0
        assert (info.eta[~outside] == 1).all()
    assert compared > 10 or (dtype == torch.float32 and far == 1000)


@pytest.mark.parametrize("make", MADE)
def test_little_is_lost(make: Any) -> None:
    """A few roundings in units of the depth of the anchor."""
    set, x, anchor, _ = case(make, LAYOUTS[0], torch.float32)
    loose, y = (dependent.fused(set, x, anchor, "chord", strict) for strict in (False, True))
    assert loose is not None and y is not None
    assert (y - loose).norm(dim=-1).max() <= 300 * 2**-24 * (1 + loose.norm(dim=-1).max())


@pytest.mark.parametrize("make", MADE)
def test_is_left_to_the_formulas(make: Any) -> None:
    """What is not finite, huge, or no anchor; other dtypes, methods and transforms."""
    set, x, anchor, _ = case(make, LAYOUTS[0], torch.float32)
    for bad in (math.nan, math.inf, 1e30):
        wrong = x.detach().clone()
        wrong[3, 1] = bad
        assert dependent.fused(set, wrong, anchor, "chord", True) is None
    assert dependent.fused(set, x, anchor.detach() + 50, "chord", False) is None
    assert dependent.fused(set, x.double(), anchor, "chord", True) is None
    assert dependent.fused(set, x, anchor, "near", True) is None
    assert dependent.fused(set, x[:5], anchor, "chord", True) is None
    assert dependent.fused(set, x[:0], anchor, "chord", True) is None
    assert dependent.fused(inset.Simplex(D), x, anchor, "chord", True) is None
    assert dependent.fused(changed(set, Tensor.half), x.half(), anchor.half(), "chord", True) is None
    mapped = torch.func.vmap(lambda x: inset.project(set, x, anchor))(torch.stack([x, x]))
    torch.testing.assert_close(mapped[0], inset.project(set, x, anchor), rtol=1e-4, atol=1e-4)


def test_more_is_left_to_the_formulas() -> None:
    x, anchor = torch.ones(4, D), torch.zeros(4, D)
    assert dependent.fused(Ball(torch.zeros(4, D), 1.0, p=1), x, anchor, "chord", True) is None
    assert dependent.fused(Ball(torch.zeros(4, D), 1.0), x, anchor, "ray", True) is None
    assert dependent.fused(Polytope(torch.ones(4, M, D), torch.ones(M)), x, anchor, "paper", True) is None
    for shallow in (1e-9, 1e-30):
        assert dependent.fused(Ball(torch.zeros(4, D), shallow), x, anchor, "chord", True) is None
    upper = torch.full((4, D), math.inf)
    assert dependent.fused(Box(-torch.ones(4, D), upper), x, anchor, "chord", True) is None
    assert inset.project(Box(-torch.ones(4, D), upper), x, anchor).equal(x)
    far = torch.full((4, D), 1e5)
    assert dependent.fused(Ball(far, 1.0), far + 2, far, "chord", True) is None  # where rounding leaves too little
    narrow = Polytope(torch.full((4, M, D), 1e38), torch.full((4, M), 1e-3))  # coordinates are no normal numbers there
    assert dependent.fused(narrow, 1e-40 * x, anchor, "chord", True) is None
    set = Polytope(torch.ones(4, M, D), torch.ones(4, M))
    assert dependent.fused(set, x, anchor, "ray", True) is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dependent, "LARGEST", 4 * 2 * M - 1)
        assert dependent.fused(set, x, anchor, "ray", True) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dependent, "reduced_products", lambda x: True)
        assert dependent.fused(set, x, anchor, "ray", True) is None


@pytest.mark.parametrize("strict", (False, True))
@pytest.mark.parametrize("make", MADE)
def test_derivatives_of_derivatives_and_in_batches(make: Any, strict: bool) -> None:
    set, x, anchor, asking = case(make, LAYOUTS[0], torch.float64)
    found = []
    for apply in (dependent.fused, lambda *call: interpolated(*call)[0]):
        first = pulled(apply(set, x, anchor, "chord", strict), asking, twice=True)  # type: ignore[arg-type]
        second = grad(torch.stack([v.square().sum() for v in first]).sum(), asking)
        y = apply(set, x, anchor, "chord", strict)
        assert y is not None
        g = torch.stack([torch.ones_like(y), torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)])
        found.append((*first, *second, *grad(y, asking, g, is_grads_batched=True)))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


def test_points_at_the_centre_and_anchors_there() -> None:
    """Where a length has no derivative."""
    found = []
    for apply in (dependent.fused, lambda *call: interpolated(*call)[0]):
        center, x = torch.full((N, D), 0.5), torch.full((N, D), 0.5)
        x[1:] += drawn(0, torch.float32)(N - 1, D)
        asking = [v.requires_grad_() for v in (x, center.clone(), center)]
        y = apply(Ball(center, 0.5), x, asking[1], "chord", True)  # type: ignore[arg-type]
        assert y is not None
        found.append(pulled(y, asking))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", MADE)
def test_only_what_asks_gets_a_gradient(make: Any) -> None:
    """Each input alone, as with all of them."""
    _, _, _, asking = case(make, LAYOUTS[0], torch.float64)
    set, x, anchor, asking = case(make, LAYOUTS[0], torch.float64)
    y = dependent.fused(set, x, anchor, "chord", True)
    assert y is not None
    together = pulled(y, asking)
    for k, v in enumerate(asking):
        for w in asking:
            w.requires_grad_(w is v)
        y = dependent.fused(set, x, anchor, "chord", True)
        assert y is not None
        torch.testing.assert_close(pulled(y, [v])[0], together[k], rtol=0, atol=0)


def test_layers_go_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a set in the call, and with one that is learned."""
    seen: list[Any] = []
    solve = dependent_kinds._OfBall.solve

    def watched(*call: Any) -> Any:
        seen.append(call)
        return solve(*call)

    monkeypatch.setattr(dependent_kinds._OfBall, "solve", staticmethod(watched))
    x = torch.full((5, D), 2.0)
    Projection()(x, set=Ball(torch.zeros(5, D), 1 + torch.rand(5)), anchor=torch.zeros(D))
    assert len(seen) == 1
    learned = nn.Parameter(torch.tensor(1.0))
    Projection(Ball(torch.zeros(D), learned), torch.zeros(D))(x).sum().backward()
    assert len(seen) == 2 and learned.grad is not None
    torch.testing.assert_close(learned.grad, torch.tensor(5 * math.sqrt(D)))


def test_a_matrix_for_all_samples_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it has leading dimensions of one."""
    normal, seen, solve = drawn(0, torch.float32), [], dependent_kinds._OfPolytope.solve

    def watched(x: Tensor, x0: Tensor, A: Tensor, b: Tensor, strict: bool) -> Any:
        seen.append(A.shape)
        return solve(x, x0, A, b, strict)

    monkeypatch.setattr(dependent_kinds._OfPolytope, "solve", staticmethod(watched))
    for lead in ((), (1,), (1, 1)):
        set = Polytope(normal(*lead, M, D).requires_grad_(), 1 + normal(N, M).abs())
        y = dependent.fused(set, normal(4, N, D), torch.zeros(D), "chord", True)
        assert y is not None and grad(y.sum(), set.A)[0].shape == set.A.shape
    assert seen == [(M, D)] * 3


def test_bounds_may_be_those_of_the_next_step_on_the_way_back() -> None:
    """As in a rollout with one buffer; a second derivative would need those of before, and says so."""
    x, size = torch.full((6, D), 5.0).requires_grad_(), torch.ones(6, D)
    for twice in (False, True):
        size.fill_(1.0)
        y = dependent.fused(Box(-size, size), x, torch.zeros(D), "chord", True)
        expected = grad(
            interpolated(Box(-torch.ones(6, D), torch.ones(6, D)), x, torch.zeros(D), "chord", True)[0].sum(), x
        )
        assert y is not None
        kept = size.clone()
        z = dependent.fused(Box(-kept, size), x, torch.zeros(D), "chord", True)
        assert z is not None
        size.mul_(2)
        torch.testing.assert_close(grad(y.sum(), x)[0], expected[0])
        if twice:
            with pytest.raises(RuntimeError, match="a field of Box was changed in place"):
                grad(z.sum(), x, create_graph=True)


def test_fields_of_inference_mode() -> None:
    with torch.inference_mode():
        size = torch.ones(6, D)
    x = torch.full((6, D), 5.0).requires_grad_()
    sets = (Box(-torch.ones(6, D), size), Ball(torch.zeros(D), size[:, 0]), Polytope(torch.eye(D)[None], size))
    for set in sets:
        y = dependent.fused(set, x, torch.zeros(D), "chord", True)
        assert y is not None and grad(y.sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("p", (1, 2, math.inf))
@pytest.mark.parametrize("shared", (False, True))
def test_strict_holds_around_a_number_that_is_rounded(shared: bool, p: float) -> None:
    """11.1 is another number in float32 than in float64."""
    set = Ball(11.1, 0.08, p)  # type: ignore[arg-type]
    x = torch.linspace(11.179, 11.181, 20_001)[:, None]
    anchor = torch.full((1,), 11.1) if shared else torch.full_like(x, 11.1)
    for method in ("chord", "ray"):
        y = inset.project(set, x, anchor, method=method)
        assert (set.h(y.double()) <= 0).all() and (y - 11.1).median() > 0.0799

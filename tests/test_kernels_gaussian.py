"""The kernels for trust regions, in Triton's interpreter on the CPU: the formulas of the set are the reference."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import inset.torch  # noqa: F401  the kernels are part of this front-end
from inset import GaussianKL
from inset._gaussian import PARAMETERIZATIONS
from inset._kernels import _launch, _policies, regions
from inset._kernels.regions import fused
from inset._project import interpolated

pytestmark = pytest.mark.usefixtures("one_program")
N, K, D = 8, 3, 3
Policies = Any


def region(
    kind: Any, dtype: torch.dtype, average: bool = False, each: bool = False, epsilon: float = 0.05
) -> tuple[GaussianKL, Policies, Policies]:
    """A trust region, an anchor beside the old policy, and new policies from deep inside to far outside."""
    random = torch.Generator().manual_seed(0)
    event = (K, D) if average else (D,)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    batch = (N,) if each else ()
    mean, scale = normal(*batch, *event), 0.5 * normal(*batch, D)
    unit = torch.ones(D) if kind == "log_std" else (scale := scale.exp())
    anchor = mean + 0.02 * normal(*event), scale + 0.01 * unit * normal(D)
    size = torch.tensor([1e-3, 0.1, 1.0, 30.0]).repeat(N // 4)
    x = mean + size.reshape(N, *(1 for _ in event)) * normal(N, *event), scale + size[:, None] * unit * normal(N, D)
    bound: Any = epsilon + 0.01 * torch.rand(N, generator=random) if each else epsilon
    return (
        GaussianKL(mean, scale, bound, average, parameterization=kind),
        (anchor[0], anchor[1]),
        (x[0].to(dtype), x[1].to(dtype)),
    )


def both(set: GaussianKL, x: Policies, anchor: Policies, method: Any, strict: bool) -> list[list[Tensor]]:
    """Means and scales and the derivatives by them: of the kernels, and of the formulas."""
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        leaves: Any = tuple(v.clone().requires_grad_() for v in x)
        with np.errstate(all="ignore"):  # a GPU does not warn
            y = apply(set, leaves, anchor, method, strict)
            assert y is not None
            g = [torch.linspace(-1, 1, v.numel()).reshape(v.shape).to(v.dtype) for v in y]
            found.append([*(v.detach() for v in y), *torch.autograd.grad(y, leaves, g)])
    return found


def doubled(set: GaussianKL) -> GaussianKL:
    epsilon = set.epsilon.double() if isinstance(set.epsilon, Tensor) else set.epsilon
    return GaussianKL(
        set.mean.double(), set.covariance.double(), epsilon, set.average, parameterization=set.parameterization
    )


CASES = list(itertools.product(PARAMETERIZATIONS, ("chord", "ray"), (False, True), (False, True)))


@pytest.mark.parametrize(("kind", "method", "average", "each"), CASES)
def test_kernel_is_the_formula(kind: str, method: str, average: bool, each: bool) -> None:
    """Values and derivatives to rounding, without the margin."""
    set, anchor, x = region(kind, torch.float32, average, each)
    ours, reference = both(set, x, anchor, method, strict=False)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("kind", PARAMETERIZATIONS)
def test_derivatives_far_from_the_origin(kind: Any) -> None:
    """There rounding of the means is large beside the way from the old policy, which the derivative is to follow."""
    random = torch.Generator().manual_seed(0)
    mean, scale = 400 * torch.randn(D, generator=random), torch.ones(D) * (kind != "log_std")
    region = GaussianKL(mean, scale, 0.05, False, parameterization=kind)
    x = mean + torch.randn(N, D, generator=random), scale + 0.1 * torch.randn(N, D, generator=random)
    _, _, *ours = both(region, x, (mean, scale), "ray", False)[0]
    leaves = tuple(v.double().requires_grad_() for v in x)
    y, _ = interpolated(doubled(region), leaves, (mean.double(), scale.double()), "ray", False)
    g = [torch.linspace(-1, 1, v.numel()).reshape(v.shape).double() for v in y]
    exact = torch.autograd.grad(y, leaves, g)
    for a, b in zip(ours, exact, strict=True):
        assert ((a - b).norm(dim=-1) <= 8 * torch.finfo(torch.float32).eps * b.norm(dim=-1)).all()


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("kind", "method", "average", "each"), [case for case in CASES if case[1] == "chord"])
def test_weights_found_again_are_those_of_the_way_there(
    monkeypatch: pytest.MonkeyPatch, kind: str, method: str, average: bool, each: bool, strict: bool
) -> None:
    set, anchor, x = region(kind, torch.float32, average, each)
    found = []
    for again in (0, 100):
        monkeypatch.setattr(regions, "AGAIN", again)
        found.append(both(set, x, anchor, method, strict)[0])
    for a, b in zip(*found, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("kind", PARAMETERIZATIONS)
@pytest.mark.parametrize("actions", [1, 2])
def test_few_actions(monkeypatch: pytest.MonkeyPatch, kind: Any, actions: int) -> None:
    """Whose policies a lane reads several at once, and whose weights are found again; the last ones are not there."""
    monkeypatch.setattr(_launch, "HELD", 128)
    random, n = torch.Generator().manual_seed(2), 11
    scale = torch.zeros(actions) if kind == "log_std" else torch.ones(actions)
    size = torch.logspace(-3, 1, n)[:, None]
    x = tuple(v + size * torch.randn(n, actions, generator=random) for v in (torch.zeros(actions), scale))
    set = GaussianKL(torch.zeros(actions), scale, 0.05, False, parameterization=kind)
    assert regions._layout(n, False, *x, *x, *x, torch.zeros(()))["AGAIN"]
    for dtype, off in ((torch.float32, 1e-3), (torch.bfloat16, 0.2)):
        ours, reference = both(set, tuple(v.to(dtype) for v in x), (set.mean, set.covariance), "chord", strict=True)
        assert set.contains((ours[0], ours[1])).all()
        for a, b in zip(ours, reference, strict=True):
            assert ((a - b).float().abs() <= off * (1 + b.float().abs())).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("kind", "method", "average", "each"), CASES[::3])
def test_strict_holds_and_costs_little(dtype: torch.dtype, kind: str, method: str, average: bool, each: bool) -> None:
    """The numbers are in the set in their own dtype and in float64, and about where the formula's are."""
    set, anchor, x = region(kind, dtype, average, each)
    ours, reference = both(set, x, anchor, method, strict=True)
    y = (ours[0], ours[1])
    assert set.contains(y).all()
    assert (doubled(set).h((y[0].double(), y[1].double())) <= 0).all()
    outside = ~(set.h(x) <= 0)
    assert 0 < outside.sum() < N
    for a, b in zip(y, x, strict=True):
        assert torch.equal(a[~outside], b[~outside])
    size = {torch.float32: 3e-4, torch.bfloat16: 0.2, torch.float16: 0.03}[dtype]
    for a, b in zip(ours[:2], reference[:2], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=size)


@pytest.mark.parametrize("kind", PARAMETERIZATIONS)
@pytest.mark.parametrize("far", [3.0, 30.0, 300.0])
def test_means_that_rounding_takes_out_of_the_region(kind: Any, far: float) -> None:
    """In bfloat16 those far from 0 have no neighbours as near as epsilon asks for: that is NaN, by formulas as well."""
    random = torch.Generator().manual_seed(0)
    mean, scale = far * (1 + 0.3 * torch.rand(D, generator=random)), torch.ones(D) * (kind != "log_std")
    region = GaussianKL(mean, scale, 0.02, False, parameterization=kind)
    x = (mean + torch.randn(N, D, generator=random)).bfloat16(), (scale + 0.1).expand(N, D).bfloat16()
    y, other = fused(region, x, (mean, scale), "chord", True), interpolated(region, x, (mean, scale), "chord", True)[0]
    assert y is not None
    for policy in (y, other):
        h = doubled(region).h((policy[0].double(), policy[1].double()))
        assert (h <= 0 if far == 3 else h.isnan()).all()


@pytest.mark.parametrize("kind", PARAMETERIZATIONS)
@pytest.mark.parametrize(("offset", "size"), [(0.0, 0.0), (40.0, 0.0), (0.0, 3.0)], ids=["near 0", "mean", "scale"])
def test_policies_on_the_boundary(kind: Any, offset: float, size: float) -> None:
    """Where rounding decides: policies that are there, and those that `ray` brings there; far from 0 it is larger."""
    random, count = torch.Generator().manual_seed(0), 200
    mean, log_std = offset + torch.rand(D, generator=random), size + torch.rand(D, generator=random)
    scale = {"log_std": log_std, "cholesky": log_std.exp(), "covariance": (2 * log_std).exp()}[kind]
    region = GaussianKL(mean, scale, 0.01, False, parameterization=kind)
    exact, old = doubled(region), (mean.double(), scale.double())
    unit = 1.0 if kind == "log_std" else old[1]
    way = (torch.randn(count, D, generator=random).double() for _ in range(2))
    step = 0.1 * next(way) * log_std.double().exp(), 0.02 * next(way) * unit
    low, high = torch.zeros(count, 1).double(), torch.full((count, 1), 20.0).double()
    for _ in range(60):  # to the boundary
        t = (low + high) / 2
        out = ~(exact.h(tuple(v + t * w for v, w in zip(old, step, strict=True))) <= 0).reshape(-1, 1)
        low, high = torch.where(out, low, t), torch.where(out, t, high)
    for reach, method in ((1.0, "chord"), (1.5, "ray")):
        x = tuple((v + reach * low * w).float() for v, w in zip(old, step, strict=True))
        y = fused(region, (x[0], x[1]), (mean, scale), method, True)
        assert y is not None and (exact.h(tuple(v.double() for v in y)) <= 0).all()
        assert exact.h(tuple(v.double() for v in y)).mean() > -0.002


@pytest.mark.parametrize("kind", PARAMETERIZATIONS)
def test_small_regions_hold_as_the_set_evaluates_them(kind: Any) -> None:
    """Its formulas lose more to rounding than the series of the kernel do."""
    scale = torch.zeros(1) if kind == "log_std" else torch.ones(1)
    region = GaussianKL(torch.zeros(1), scale, 1e-6, False, parameterization=kind)
    low, high = 0.0, 1.0
    for _ in range(60):  # to the boundary
        middle = (low + high) / 2
        inside = doubled(region).h((torch.zeros(1).double(), scale.double() + middle)).item() <= 0
        low, high = (middle, high) if inside else (low, middle)
    x = torch.zeros(400, 1), (scale.double() + low * torch.linspace(1 - 1e-3, 1, 400).double()[:, None]).float()
    y = fused(region, x, (region.mean, scale), "chord", True)
    assert y is not None and (region.h(y) <= 0).all()


def test_neighbours_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mean over many states may be small where one of them is far."""
    monkeypatch.setattr(_launch, "HELD", 512)  # both in one tile
    region = GaussianKL(torch.zeros(8, 2), torch.zeros(2), 0.05, True, parameterization="log_std")
    means, scales = torch.zeros(2, 8, 2), torch.zeros(2, 2)
    means[0, 0, 0], scales[1] = 1.1e8, 2.0
    anchor = (region.mean, region.covariance)
    alone, beside = (
        fused(region, (means[:1], scales[:1]), anchor, "chord", True),
        fused(region, (means, scales), anchor, "chord", True),
    )
    assert alone is not None and beside is not None and torch.equal(alone[0][0], beside[0][0])


@pytest.mark.parametrize("kind", PARAMETERIZATIONS)
def test_ray_reaches_the_boundary(kind: str) -> None:
    """And chord stops before it."""
    set, _, x = region(kind, torch.float32)
    x = (x[0][3:4], x[1][3:4])
    anchor = (set.mean, set.covariance)
    ray, chord = (fused(set, x, anchor, method, True) or () for method in ("ray", "chord"))
    assert -1e-3 < doubled(set).h(tuple(v.double() for v in ray)).item() / 0.05 <= 0
    assert doubled(set).h(tuple(v.double() for v in chord)).item() / 0.05 < -0.5


@pytest.mark.parametrize("kind", PARAMETERIZATIONS)
@pytest.mark.parametrize("method", ["chord", "ray"])
def test_what_is_extreme(kind: str, method: str) -> None:
    """NaN and infinity stay with their sample, huge policies come back finite, a bad anchor is loud."""
    set, anchor, x = region(kind, torch.float32)
    x[0][0, 1], x[1][1, 2], x[0][2, 0], x[1][3, 0], x[1][4] = math.nan, math.inf, 3e38, -1e30, 1e12
    with np.errstate(all="ignore"):
        y = fused(set, x, anchor, method, True)
        lost = fused(set, x, (anchor[0] + 5, anchor[1]), method, True)
    assert y is not None and lost is not None
    assert all(v[:2].isnan().all() and v[2:].isfinite().all() for v in y)
    assert set.contains((y[0][2:], y[1][2:])).all()
    assert method == "chord" or (y[0][2] - anchor[0]).abs().max() > 0.1
    assert all(v.isnan().all() for v in lost)


@pytest.mark.parametrize("kind", ["cholesky", "covariance"])
def test_scales_that_are_no_normal_numbers(kind: Any) -> None:
    """An old policy that is not known well enough is no anchor."""
    for scale in (5e-39, 1e-40, 1e-44):
        old = torch.zeros(2, D), torch.tensor([[1e-30], [scale]]).expand(2, D).clone()
        x = old[0], 1.01 * old[1]
        with np.errstate(all="ignore"):
            y = fused(GaussianKL(*old, 0.05, False, parameterization=kind), x, old, "ray", True)
        assert y is not None and y[1][0].isfinite().all() and y[1][1].isnan().all()


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("method", ["chord", "ray"])
def test_second_derivative_is_that_of_the_formulas(method: Any, average: bool) -> None:
    set, anchor, x = region("log_std", torch.float32, average)
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        leaves: Any = tuple(v.clone().requires_grad_() for v in x)
        y = apply(set, leaves, anchor, method, False)
        assert y is not None
        first = torch.autograd.grad(torch.stack([v.sin().sum() for v in y]).sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(torch.stack([v.square().sum() for v in first]).sum(), leaves))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_where_it_does_not_apply() -> None:
    set, anchor, x = region("log_std", torch.float32)
    learned = GaussianKL(set.mean.clone().requires_grad_(), set.covariance, 0.05, False, parameterization="log_std")
    moving = (anchor[0].clone().requires_grad_(), anchor[1])
    full = GaussianKL(set.mean, torch.eye(D), 0.05, False, False)
    assert fused(learned, x, anchor, "chord", True) is None
    assert fused(set, x, moving, "chord", True) is None
    assert fused(full, x, anchor, "chord", True) is None
    assert fused(set, (x[0].double(), x[1].double()), anchor, "chord", True) is None
    assert fused(set, x, anchor, "near", True) is None


def test_one_output_alone_can_be_used() -> None:
    set, anchor, x = region("log_std", torch.float32)
    grads = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        leaves: Any = tuple(v.clone().requires_grad_() for v in x)
        y = apply(set, leaves, anchor, "chord", False)
        assert y is not None
        grads.append(torch.autograd.grad(y[0].sum(), leaves))
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_farthest_is_that_of_the_set() -> None:
    """Beyond it the set pulls points back as well."""
    set, anchor, _ = region("covariance", torch.float32)
    far = (set.mean + 10 * float(_policies.FARTHEST.value), set.covariance)
    assert 0 < set.domain(anchor, far).item() < 1


def test_policies_that_share_more_or_less() -> None:
    """One spread for a batch of means, and a bound for each of many regions around the same policies."""
    random = torch.Generator().manual_seed(1)
    means, spread = torch.randn(N, K, D, generator=random), torch.zeros(D)
    cases: list[tuple[Policies, Any, Policies]] = [
        ((torch.zeros(N, K, D), spread), 0.05, means),
        ((means[0], spread), torch.tensor([0.01, 0.05]), means[1]),
        ((means, spread), torch.full((2, 1), 0.05), means + 1),
    ]
    for old, epsilon, new in cases:
        set = GaussianKL(old[0], old[1], epsilon, parameterization="log_std")
        ours, reference = both(set, (new, spread + 0.3), old, "ray", strict=False)
        for a, b in zip(ours, reference, strict=True):
            torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-5)


def test_second_derivative_by_the_means_alone() -> None:
    set, anchor, x = region("log_std", torch.float32)
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        means = x[0].clone().requires_grad_()
        y = apply(set, (means, x[1]), anchor, "chord", False)
        assert y is not None
        (first,) = torch.autograd.grad(y[0].sin().sum(), means, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), means)[0])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", PARAMETERIZATIONS)
def test_the_margin_of_many_actions_is_small(kind: Any) -> None:
    """It is that of all the set, whose terms may all be rounded, but each of them a few times only."""
    random = torch.Generator().manual_seed(2)
    scale = 0.3 * torch.randn(1024, generator=random)
    mean, scale = torch.randn(1024, generator=random), scale if kind == "log_std" else scale.exp()
    set = GaussianKL(mean, scale, 0.05, False, parameterization=kind)
    unit = torch.ones(1024) if kind == "log_std" else scale
    noise = torch.randn(3, 1024, generator=random)
    x = mean + 0.5 * noise, scale + 0.1 * unit * noise.abs()
    with np.errstate(all="ignore"):
        far, most = (fused(set, x, (mean, scale), "chord", strict) for strict in (True, False))
    assert far is not None and most is not None
    assert set.contains(far).all()
    assert ((far[0] - mean).norm(dim=-1) > 0.995 * (most[0] - mean).norm(dim=-1)).all()

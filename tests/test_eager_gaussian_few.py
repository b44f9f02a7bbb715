"""One Gaussian of few actions, by numbers of Python: in the set at any size, or left to the formulas."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from inset import GaussianKL
from inset._eager import gaussian as eager
from inset._eager import gaussian_few as few
from inset._trust_region import Layout
from inset.torch import TrustRegion

KINDS = ("covariance", "cholesky", "log_std")
Pair = tuple[Tensor, Tensor]


def written(log_std: Tensor, kind: str) -> Tensor:
    return log_std if kind == "log_std" else torch.exp((2 if kind == "covariance" else 1) * log_std)


def drawn(random: torch.Generator, kind: str, epsilon: float, states: int, d: int) -> tuple[Pair, Pair]:
    """A new policy near the boundary or far outside, and an old one, in float64."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    far, size = (
        float(10 ** (low + (high - low) * torch.rand((), generator=random))) for low, high in ((-1, 3), (-1, 2))
    )
    log_std, mean = 2 * normal(d), far * normal(states, d)
    size *= math.sqrt(2 * epsilon)
    means = mean + size * torch.exp(log_std) * normal(states, d)
    return (means, written(log_std + min(size, 3.0) * normal(d), kind)), (mean, written(log_std, kind))


def cast(pair: Pair, dtype: torch.dtype) -> Pair:
    return pair[0].to(dtype), pair[1].to(dtype)


@pytest.mark.parametrize("method", ["chord", "ray"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_strict_holds(dtype: torch.dtype, kind: Any, method: str) -> None:
    """In float64 and in its dtype, and with `ray` little of epsilon is lost; without the margin it does not hold."""
    random, broken, lost, layout = torch.Generator().manual_seed(0), 0, [], Layout(True, True, kind)
    for k in range(300):
        epsilon, states, d = (1e-4, 0.01, 0.3)[k % 3], (1, 5, 64)[k // 3 % 3], (1, 4, 24)[k // 9 % 3]
        x, old = (cast(pair, dtype) for pair in drawn(random, kind, epsilon, states, d))
        wide = GaussianKL(old[0].double(), old[1].double(), epsilon, *layout)
        y, loose = (eager.region(x, old, epsilon, layout, method, strict) for strict in (True, False))
        if y is None or loose is None:  # where rounding leaves nothing of epsilon
            continue
        h, off = (float(wide.h((v[0].double(), v[1].double()))) for v in (y, loose))
        assert h <= 0 and GaussianKL(*old, epsilon, *layout).h(y) <= 0
        broken += off > 0
        lost.append(-h / epsilon)
    assert len(lost) > 200 and (broken > 0 or method == "chord")
    assert method == "chord" or torch.tensor(lost).median() < 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_strict_holds_on_the_boundary(kind: Any) -> None:
    """As h is evaluated in float32, for points that seem to be inside in float64."""
    random, broken, layout = torch.Generator().manual_seed(0), [0, 0], Layout(True, True, kind)
    for k in range(400):
        wide, around = drawn(random, kind, 0.01, (64, 5)[k % 2], (1, 24)[k // 2 % 2])
        if k // 4 % 2:  # of the means or of the scales alone
            wide = (wide[0], around[1])
        elif k % 2:
            wide, around = (0 * wide[0], wide[1]), (0 * around[0], around[1])
        x, old = (cast(pair, torch.float32) for pair in (wide, around))
        set = GaussianKL(*old, 0.01, *layout)
        edge = eager.region(x, old, 0.01, layout, "ray", False)
        if edge is None:
            continue
        y = eager.region(edge, old, 0.01, layout, "chord", True)
        assert y is None or set.h(y) <= 0
        broken[k // 4 % 2] += int(set.h(edge) > 0)
    assert min(broken) > 10


@pytest.mark.parametrize("kind", KINDS)
def test_tiny_and_extreme_scales(kind: Any) -> None:
    """Of which no square, and no exponential, is a number: the formulas tell what they are worth."""
    layout = Layout(True, True, kind)
    for scale in (1e-30, 1e-26, 0.0, -1.0, math.nan) if kind != "log_std" else (-60.0, -28.0, -1e4, math.nan):
        old = torch.zeros(3, 2), torch.full((2,), scale)
        x = torch.full((3, 2), 1e-20), old[1].clone()
        assert eager.region(x, old, 0.01, layout, "ray", True) is None
    old = torch.zeros(3, 2), written(torch.tensor([-13.0, 5.0]), kind)
    x = 100 * torch.exp(torch.tensor([-13.0, 5.0])).expand(3, 2), old[1]
    y = eager.region(x, old, 0.01, layout, "ray", True)
    assert y is not None
    wide = GaussianKL(old[0].double(), old[1].double(), 0.01, *layout)
    assert -1e-4 < wide.h((y[0].double(), y[1].double())) <= 0
    for bad in (math.nan, math.inf, -math.inf, 1e30):
        means, scales = x[0].clone(), x[1].clone()
        means[1, 0] = scales[1] = bad
        assert eager.region((means, x[1]), old, 0.01, layout, "ray", True) is None
        assert eager.region((x[0], scales), old, 0.01, layout, "ray", False) is None


def test_what_a_layer_gives_is_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a policy update; a policy of many actions, or one constraint for each state, has arrays."""
    seen: list[int] = []
    solved = few._solved

    def watched(*given: Any) -> Any:
        seen.append(len(given[0].old))
        return solved(*given)

    monkeypatch.setattr(few, "_solved", watched)
    for average in (True, False):
        for d in (4, 30):
            TrustRegion(average=average)((torch.ones(6, d), torch.zeros(d)), (torch.zeros(6, d), torch.zeros(d)))
    assert seen == [4]


def test_gradients_beyond_the_largest_number() -> None:
    """Are infinite, as by the formulas; torch takes no such number for a factor."""
    old = torch.zeros(1, 2), torch.zeros(2)
    means = torch.full((1, 2), 0.0035, requires_grad=True)
    y = eager.region((means, torch.zeros(2)), old, 1e-5, Layout(True, True, "log_std"), "chord", True)
    assert y is not None
    for size, sign in ((1e36, -1), (-1e36, 1), (math.nan, 0)):
        (slope,) = torch.autograd.grad(y[0], means, torch.full_like(means, size), retain_graph=True)
        assert bool((slope == sign * math.inf).all() if sign else slope.isnan().all())

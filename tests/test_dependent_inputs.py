"""Derivatives where one input of a layer is made of another, as the mean of positions is, or scales of a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import grad

from inset import Strings
from inset._eager import small
from inset.torch import Projection, TrustRegion

LINKS = torch.tensor([[0, 1], [1, 2], [2, 3]])


@pytest.fixture(params=["numpy", "torch"], autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What computes: small arrays or large ones."""
    monkeypatch.setattr(small, "SMALL", 0 if request.param == "torch" else 2**14)


def mean(x: Tensor) -> Tensor:
    return x.mean(-2, keepdim=True).expand(x.shape)


def near_mean(x: Tensor) -> Tensor:
    return mean(x) + 0.01 * x


def strings(anchor: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Positions, anchored at what is made of them."""
    layer = Projection(Strings(LINKS, 0.7))
    return lambda x: layer(x, anchor=anchor(x))


def own(x: Tensor) -> Tensor:
    """Positions, anchored as the set has it."""
    return Projection(Strings(LINKS, 0.7))(x)


def policy(batch: tuple[int, ...], average: bool) -> Callable[[Tensor], Tensor]:
    """A policy whose scales are made of its means."""
    region = TrustRegion(0.01, average=average)
    old = torch.full((*batch, 4, 2), 0.1, dtype=torch.float64), torch.full((*batch, 2), 0.2, dtype=torch.float64)
    old = old if average else (old[0], old[1][..., None, :].expand(old[0].shape))

    def apply(x: Tensor) -> Tensor:
        scales = x.mean(-2) if average else x.sin()
        mean, log_std = region((x, scales), old)
        return torch.cat([mean.flatten(), log_std.flatten()])

    return apply


CASES: dict[str, Any] = {
    "mean": strings(mean),
    "near the mean": strings(near_mean),
    "its own": own,
    "one policy": policy((), True),
    "policies": policy((3,), True),
    "states": policy((3,), False),
}


def points() -> Tensor:
    """Outside of every set here."""
    random = torch.Generator().manual_seed(0)
    return (2 * torch.randn(3, 4, 2, dtype=torch.float64, generator=random)).requires_grad_()


def applied(case: str, x: Tensor) -> Tensor:
    return CASES[case](x[0] if case == "one policy" else x)


@pytest.mark.parametrize("case", CASES)
def test_derivatives_that_may_be_differentiated_are_the_same(case: str) -> None:
    """By a graph of their own, and in batches."""
    x = points()
    y = applied(case, x)
    g = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).reshape(y.shape)
    plain, again = (grad(applied(case, x), x, g, create_graph=twice)[0] for twice in (False, True))
    (batched,) = grad(applied(case, x), x, torch.stack([g, -2 * g]), is_grads_batched=True)
    assert plain.abs().max() > 0.01
    torch.testing.assert_close(again, plain, rtol=1e-4, atol=1e-6)  # the margins of few operations are others
    torch.testing.assert_close(batched, torch.stack([plain, -2 * plain]), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_second_derivatives_are_those_of_the_first(case: str) -> None:
    """By differences; also where all bodies of the anchor are at one place, so that spans have no length there."""
    x, step = points(), 1e-6
    v = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(1))

    def first(x: Tensor, twice: bool = False) -> Tensor:
        return grad(applied(case, x).square().sum(), x, create_graph=twice)[0]

    (second,) = grad((first(x, True) * v).sum(), x)
    ahead, behind = (first((x + k * step * v).detach().requires_grad_()) for k in (1, -1))
    torch.testing.assert_close(second, (ahead - behind) / (2 * step), rtol=1e-3, atol=1e-4)

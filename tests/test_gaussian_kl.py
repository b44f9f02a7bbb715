"""The ray of `GaussianKL` with diagonal covariances: Newton's method on the line, instead of the general search."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from inset import GaussianKL, project

WAYS: list[Any] = ["covariance", "cholesky", "log_std"]


def far_away(
    way: Any, average: bool, epsilon: Any, n: int = 300, d: int = 4
) -> tuple[GaussianKL, tuple[Tensor, Tensor]]:
    """Points from near the old policy to 1e8 standard deviations away, in mean, in covariance, or in both."""
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    def scales(low: float, high: float) -> Tensor:
        size = 10 ** (low + (high - low) * torch.rand(n, generator=random, dtype=torch.float64))
        return size * (torch.rand(n, generator=random) > 0.2)

    states = (n, 16, d) if average else (n, d)
    mean, log_std = normal(*states), normal(n, d)
    old = log_std if way == "log_std" else torch.exp(log_std)
    means = mean + normal(*states) * scales(-4, 8).reshape(n, *[1] * (len(states) - 1))
    change = normal(n, d) * scales(-4, 4)[:, None]
    region = GaussianKL(mean, old, epsilon, average=average, parameterization=way)
    return region, (means, old + change if way == "log_std" else old * (1 + change))


@pytest.mark.parametrize("epsilon", [1e-4, 1e-2, 1.0, 5.0])
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_ray_ends_on_the_boundary(way: Any, average: bool, epsilon: float) -> None:
    region, x = far_away(way, average, epsilon)
    outside = region.h(x) > 0
    y = project(region, x, method="ray", strict=False)
    assert (region.h(y)[outside].abs() <= 1e-8 * epsilon).all() and int(outside.sum()) > 150
    inside = ~outside
    assert all(torch.equal(a[inside], b[inside]) for a, b in zip(y, x, strict=True))
    assert (region.h(project(region, x, method="ray")) <= 0).all()


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_ray_equals_the_general_search(way: Any, average: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with an epsilon for each sample and from another anchor than the old policy; derivatives too."""
    epsilon = torch.linspace(0.005, 0.5, 300, dtype=torch.float64)
    region, (means, covariance) = far_away(way, average, epsilon)
    means = region.mean + (means - region.mean).clamp(-3, 3)
    change = (covariance - region.covariance) / (1 if way == "log_std" else region.covariance)
    covariance = region.covariance + change.clamp(-0.9, 3) * (1 if way == "log_std" else region.covariance)
    std = {"covariance": torch.sqrt, "cholesky": torch.clone, "log_std": torch.exp}[way](region.covariance)
    anchor = (region.mean + 0.04 * (std[:, None] if average else std), region.covariance)
    assert (region.h(anchor) < 0).all()
    found = []
    for search in (False, True):
        if search:
            monkeypatch.setattr(GaussianKL, "gauge", lambda *_: None)
        x = means.clone().requires_grad_(), covariance.clone().requires_grad_()
        y = project(region, x, anchor, method="ray", strict=False)
        total = torch.stack([(v - v.detach().mean()).square().sum() for v in y]).sum()
        found.append([*y, *torch.autograd.grad(total, x)])
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)


def test_ray_takes_a_fraction_of_the_operations() -> None:
    class Count(TorchDispatchMode):
        operations = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.operations += 1
            return func(*args, **(kwargs or {}))

    region, x = far_away("covariance", True, 0.01)
    with Count() as count:
        project(region, x, method="ray", strict=False)
    assert count.operations < 1000  # 3842 with the general search


def test_ray_of_something_that_is_not_a_number_is_not_a_number() -> None:
    region, (means, covariance) = far_away("covariance", True, 0.01)
    means[0, 0, 0], covariance[1, 0] = float("nan"), float("nan")
    y = project(region, (means, covariance), method="ray", strict=False)
    assert y[0][0].isnan().all() and y[0][1].isnan().all() and not y[0][2:].isnan().any()

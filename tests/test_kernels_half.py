"""Kernels for layers in half precision: sets whose arrays are bfloat16 or float16, in Triton's interpreter."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import inset._kernels as kernels
from inset import Ball, Box, ConvexSet, Ellipsoid, GaussianKL, Polytope, Simplex, Strings, _fast
from inset._fields import leaves, map_point
from inset._kernels import projected
from inset.torch import Projection

pytestmark = pytest.mark.usefixtures("one_program")
N, D = 9, 4
over_dtypes = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])


def sets(dtype: torch.dtype) -> dict[str, tuple[ConvexSet, Any]]:
    """Sets with an anchor, in this dtype."""
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random).to(dtype)

    def uniform(*shape: int) -> Tensor:
        return (0.5 + torch.rand(shape, generator=random)).to(dtype)

    zero, old = torch.zeros(D, dtype=dtype), (normal(D), uniform(D))
    links = torch.tensor([[0, 1], [1, 2], [0, 3]])
    return {
        "ball": (Ball(zero + 0.1, uniform()), zero),
        "balls": (Ball(0.1 * normal(N, D), uniform(N)), zero),
        "ellipsoid": (Ellipsoid(zero, uniform(D), diagonal=True), zero),
        "box": (Box(-uniform(D), uniform(D)), zero),
        "boxes": (Box(-uniform(N, D), uniform(N, D)), zero),
        "simplices": (Simplex(D, uniform(N)), zero + 0.1),
        "polytope": (Polytope(normal(7, D), torch.cat([uniform(6), torch.full((1,), torch.inf)]).to(dtype)), zero),
        "strings": (Strings(links, uniform(3)), 0.05 * normal(D, 2)),
        "strings, together": (Strings(links, uniform(3)), zero[:2].expand(D, 2)),
        "policies": (GaussianKL(old[0], old[1], 0.2, average=False), old),
        "policy of some states": (GaussianKL(normal(3, D), old[1].log(), 0.2, parameterization="log_std"), None),
    }


def made(name: str, dtype: torch.dtype) -> tuple[ConvexSet, Any, Any]:
    """The set, its anchor, and points from inside to far outside."""
    set, anchor = sets(dtype)[name]
    anchor = (set.mean, set.covariance) if anchor is None else anchor  # type: ignore[attr-defined]
    random, size = torch.Generator().manual_seed(1), torch.tensor([0.1, 1.0, 20.0]).repeat(N // 3)

    def around(leaf: Tensor) -> Tensor:
        step = torch.randn(N, *leaf.shape, generator=random)
        return (leaf + size.reshape(N, *(1,) * leaf.ndim) * step).to(dtype)

    return set, anchor, map_point(around, anchor)


def widened(set: ConvexSet) -> Any:
    """The same set in float32: every number of half precision is one of these."""
    new = copy.copy(set)
    for field in dataclasses.fields(cast(Any, set)):
        value = getattr(set, field.name)
        if isinstance(value, Tensor) and value.is_floating_point():
            object.__setattr__(new, field.name, value.float())
    return new


def found(set: ConvexSet, x: Any, anchor: Any, method: str) -> list[Tensor]:
    """g(x) by the kernels, and its derivative."""
    live = map_point(lambda leaf: leaf.clone().requires_grad_(), x)
    y = projected(set, live, anchor, method, True)
    assert y is not None
    g = [torch.linspace(-1, 1, leaf.numel()).reshape(leaf.shape).to(leaf.dtype) for leaf in leaves(y)]
    return [*map(Tensor.detach, leaves(y)), *torch.autograd.grad(leaves(y), leaves(live), g)]


@pytest.mark.parametrize("name", sets(torch.float16))
@over_dtypes
def test_is_that_of_the_same_set_in_float32(dtype: torch.dtype, name: str) -> None:
    """Bit for bit: a kernel computes in float32 whatever the set is stored as."""
    set, anchor, x = made(name, dtype)
    method = "ray" if isinstance(set, GaussianKL) else "chord"
    ours = found(set, x, anchor, method)
    theirs = found(widened(set), x, map_point(Tensor.float, anchor), method)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == dtype and a.isfinite().all() and torch.equal(a, b)
    y = ours[0] if isinstance(x, Tensor) else tuple(ours[:2])
    assert set.contains(y).all() and (widened(set).h(map_point(Tensor.double, y)) <= 0).all()
    outside = ~set.contains(x)
    assert 0 < outside.sum() < N or isinstance(set, Simplex)  # no point is on the plane


def test_a_layer_in_half_precision_has_its_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """`layer.bfloat16()` goes straight to the kernel, as it does in float32; and back."""
    monkeypatch.setattr(kernels, "_on_gpu", lambda x: True)
    monkeypatch.setattr(_fast, "PREPARED", [kernels.prepared])
    monkeypatch.setattr(_fast, "FUSED", [])
    set, _, x = made("polytope", torch.bfloat16)
    layer = Projection(widened(set), torch.zeros(D))
    for dtype in (torch.bfloat16, torch.float32):
        y = layer.to(dtype)(x.to(dtype))
        assert layer._quick is not None and y.dtype == dtype and layer.set is not None and layer.set.contains(y).all()

"""The kernels for second-order cones, in Triton's interpreter on the CPU: the formulas of the set are the reference."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from triton.runtime import interpreter

import inset.torch  # noqa: F401  the kernels are part of this front-end
from inset import SecondOrderCone
from inset._kernels import projected as fused
from inset._kernels.second_order_cones import _constants, cone
from inset._project import interpolated

pytestmark = pytest.mark.usefixtures("one_program")
N = 70


def drawn(m: int = 20, k: int = 3, n: int = 5, shift: float = 0.0) -> tuple[SecondOrderCone, Tensor, Tensor]:
    """Cones, an anchor off their axes, and points from deep inside to far outside."""
    random = torch.Generator().manual_seed(0)
    A, z = torch.randn(m, k, n, generator=random), 0.3 * torch.randn(m, n, generator=random)
    b, anchor = 0.2 * torch.randn(m, k, generator=random), 0.05 * torch.randn(n, generator=random) + shift
    d = (A @ anchor + b).norm(dim=-1) - z @ anchor + 1 + torch.rand(m, generator=random)
    size = torch.tensor([1e-3, 0.3, 1.0, 30.0, 1e3, 1e20, 1.0]).repeat(N // 7)[:, None]
    return SecondOrderCone(A, b, z, d), anchor, anchor + size * torch.randn(N, n, generator=random)


def both(set: SecondOrderCone, x: Tensor, anchor: Tensor, strict: bool) -> list[list[Tensor]]:
    """y and its derivative: of the kernels, and of the formulas."""
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        leaf = x.clone().requires_grad_()
        with np.errstate(all="ignore"):  # a GPU does not warn
            y = apply(set, leaf, anchor, "chord", strict)
            assert y is not None
            g = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
            found.append([y.detach(), *torch.autograd.grad(y, leaf, g)])
    return found


def doubled(set: SecondOrderCone) -> SecondOrderCone:
    return SecondOrderCone(set.A.double(), set.b.double(), set.z.double(), set.d.double())


@pytest.mark.parametrize(("m", "k", "n"), [(20, 3, 5), (1, 1, 1), (16, 4, 16), (70, 2, 33)])
def test_kernel_is_the_formula(m: int, k: int, n: int) -> None:
    """Values and derivatives to rounding, without the margin; also where blocks are not full."""
    set, anchor, x = drawn(m, k, n)
    for a, b in zip(*both(set, x, anchor, strict=False), strict=True):
        torch.testing.assert_close(a, b, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_strict_holds_and_costs_little(shift: float) -> None:
    """The numbers are in the set in float32 and in float64, and about where the formula's are."""
    set, anchor, x = drawn(shift=shift)
    (y, dx), (other, reference) = both(set, x, anchor, strict=True)
    assert set.contains(y).all() and (doubled(set).h(y.double()) <= 0).all()
    outside = ~(set.h(x) <= 0)
    assert 0 < outside.sum() < N
    assert torch.equal(y[~outside], x[~outside])
    torch.testing.assert_close(y, other, rtol=0, atol=1e-4 * (1 + shift))
    torch.testing.assert_close(dx, reference, rtol=0, atol=1e-3 * (1 + shift))


def test_margin_is_needed_and_enough() -> None:
    """Points just outside: there a chord ends at the boundary."""
    set, anchor, x = drawn()
    near = interpolated(set, x, anchor, "ray", False)[0]
    near = anchor + (1 + 3e-6) * (near - anchor)
    loose, y = (fused(set, near, anchor, "chord", strict) for strict in (False, True))
    assert loose is not None and y is not None
    assert not (doubled(set).h(loose.double()) <= 0).all()
    assert (doubled(set).h(y.double()) <= 0).all()


def test_margin_covers_the_products_of_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """If every product is off by as much as theirs may be, s is an upper bound still, and eta is less."""
    set, anchor, x = drawn()
    x = x[x.abs().amax(-1) < 100]
    dot = interpreter.InterpreterBuilder.create_dot

    def off(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        found = dot(self, a, b, d, *rest)
        size = np.abs(a.data) @ np.abs(b.data)
        last = next(calls) % 3 == 2  # of the three products for a row, that of the large numbers
        return interpreter.TensorHandle((found.data - last * 2.0**-21 * size).astype(np.float32), found.dtype)

    calls = itertools.count()
    fields = (set.A, set.b, set.z, set.d)
    constants = _constants(*fields, strict=True, anchor=anchor)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", off)
    _, (eta, raw, cone_) = cone(x, *fields, anchor, *constants, True)
    wide, outside = doubled(set), raw > 0
    depth = -wide.constraints(anchor.double())
    exact = (wide.constraints(x.double()) / depth).amax(-1)
    assert outside.any() and (1 / raw[outside].double() - 1 > exact[outside]).all()
    assert (eta[outside] < (1 - 1e-7) * raw[outside]).all() and len(cone_) == len(x)


def test_what_is_extreme() -> None:
    """NaN and infinity stay with their sample, huge points come back finite, a bad anchor is loud."""
    set, anchor, x = drawn()
    x[0, 1], x[1, 2], x[2], x[3] = math.nan, math.inf, 3e38 * x[2].sign(), 1e-30
    with np.errstate(all="ignore"):
        y, lost = (fused(set, x, a, "chord", True) for a in (anchor, anchor + 100))
    assert y is not None and lost is not None
    assert y[:2].isnan().all() and y[2:].isfinite().all() and set.contains(y[2:]).all()
    assert lost.isnan().all()


def test_second_derivative_is_that_of_the_formulas() -> None:
    set, anchor, x = drawn()
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        leaf = x[:4].clone().requires_grad_()
        y = apply(set, leaf, anchor, "chord", False)
        assert y is not None
        (first,) = torch.autograd.grad(y.sin().sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), leaf)[0])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


def test_where_it_does_not_apply() -> None:
    set, anchor, x = drawn()
    learned = SecondOrderCone(set.A.clone().requires_grad_(), set.b, set.z, set.d)
    assert fused(learned, x, anchor, "chord", True) is None
    assert fused(set, x, anchor.expand(N, 5), "chord", True) is None
    assert fused(set, x, anchor, "ray", True) is None
    assert fused(set, x, anchor, "paper", True) is None
    assert fused(doubled(set), x.double(), anchor.double(), "chord", True) is None

"""The kernels for LMIs, in Triton's interpreter on the CPU: the formulas of the set are the reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import inset.torch  # noqa: F401  the kernels are part of this front-end
from inset import LMI
from inset._kernels import lmis
from inset._kernels.lmis import fused
from inset._project import interpolated

pytestmark = pytest.mark.usefixtures("one_program")
N = 14
METHODS = ("chord", "ray")


def drawn(n: int = 4, k: int = 3) -> tuple[LMI, Tensor, Tensor]:
    """A set, an anchor, and points from deep inside to far outside."""
    random = torch.Generator().manual_seed(0)
    A = torch.randn(n, k, k, generator=random)
    A, anchor = A + A.mT, 0.1 * torch.randn(n, generator=random)
    C = -torch.eye(k) * k - torch.diag(torch.rand(k, generator=random))
    size = torch.tensor([1e-3, 0.2, 1.0, 30.0, 1e3, 1e20, 1.0]).repeat(N // 7)[:, None]
    return LMI(A, C), anchor, anchor + size * torch.randn(N, n, generator=random)


def both(set: LMI, x: Tensor, anchor: Tensor, method: Any, strict: bool) -> list[list[Tensor]]:
    """y and its derivative: of the kernels, and of the formulas."""
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        leaf = x.clone().requires_grad_()
        with np.errstate(all="ignore"):  # a GPU does not warn
            y = apply(set, leaf, anchor, method, strict)
            assert y is not None
            g = torch.linspace(-1, 1, y.numel()).reshape(y.shape)
            found.append([y.detach(), *torch.autograd.grad(y, leaf, g)])
    return found


def doubled(set: LMI) -> LMI:
    return LMI(set.A.double(), set.C.double())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "k"), [(4, 3), (1, 1), (5, 8), (3, 12)])
def test_kernel_is_the_formula(n: int, k: int, method: str) -> None:
    """Values and derivatives to rounding, without the margin; also where blocks are not full."""
    set, anchor, x = drawn(n, k)
    for a, b in zip(*both(set, x, anchor, method, strict=False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("method", METHODS)
def test_strict_holds_and_costs_little(method: str) -> None:
    """The numbers are in the set in float32 and in float64, and about where the formula's are."""
    set, anchor, x = drawn()
    (y, dx), (other, reference) = both(set, x, anchor, method, strict=True)
    assert set.contains(y).all() and (doubled(set).h(y.double()) <= 0).all()
    outside = ~(set.h(x) <= 0)
    assert 0 < outside.sum() < N
    assert torch.equal(y[~outside], x[~outside])
    torch.testing.assert_close(y, other, rtol=0, atol=3e-4)
    torch.testing.assert_close(dx, reference, rtol=0, atol=3e-3)


def test_margin_is_needed_and_enough() -> None:
    """Points on the boundary and a little beyond."""
    set, anchor, x = drawn()
    x = anchor + torch.linspace(0, 3, 200)[:, None] * (x[2] - anchor)
    loose, y = (fused(set, x, anchor, "ray", strict) for strict in (False, True))
    assert loose is not None and y is not None
    assert not (doubled(set).h(loose.double()) <= 0).all()
    assert (doubled(set).h(y.double()) <= 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_margin_covers_the_solver(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the eigenvalues are off by some units of the matrix, s is an upper bound still, and eta is less."""
    set, anchor, x = drawn()
    x = x[x.abs().amax(-1) < 100]

    def off(S: Tensor) -> tuple[Tensor, Tensor]:
        values, V = torch.linalg.eigh(S)
        return values + 4 * 2.0**-24, V

    stack, constants = lmis.KINDS[method].known(set.A, set.C, anchor=anchor)
    monkeypatch.setattr(lmis, "symmetric_eigen", off)
    _, eta, raw, _ = lmis.lmi(x, set.A, set.C, anchor, stack, constants, method, True)
    w = (x - anchor).double()
    total = (w @ stack[:-1].double() + stack[-1].double()).reshape(len(x), 3, 3)
    exact, outside = -torch.linalg.eigvalsh(total)[:, 0] * constants[0].double(), raw > 0
    assert outside.any() and (1 / raw[outside].double() - 1 > exact[outside]).all()
    assert (eta[outside] < (1 - 1e-7) * raw[outside]).all()


@pytest.mark.parametrize("method", METHODS)
def test_what_is_extreme(method: str) -> None:
    """NaN and infinity stay with their sample, huge points come back finite, a bad anchor is loud."""
    set, anchor, x = drawn()
    x[0, 1], x[1, 2], x[2], x[3] = math.nan, math.inf, 3e38 * x[2].sign(), 1e-30
    with np.errstate(all="ignore"):
        y, lost = (fused(set, x, a, method, True) for a in (anchor, anchor + 100))
    assert y is not None and lost is not None
    assert y[:2].isnan().all() and y[2:].isfinite().all() and set.contains(y[2:]).all()
    assert lost.isnan().all()


def test_second_derivative_is_that_of_the_formulas() -> None:
    set, anchor, x = drawn()
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        leaf = x[:4].clone().requires_grad_()
        y = apply(set, leaf, anchor, "ray", False)
        assert y is not None
        (first,) = torch.autograd.grad(y.sin().sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), leaf)[0])
    torch.testing.assert_close(*found, rtol=2e-3, atol=1e-3)


def test_where_it_does_not_apply() -> None:
    set, anchor, x = drawn()
    assert fused(LMI(set.A.clone().requires_grad_(), set.C), x, anchor, "chord", True) is None
    assert fused(set, x, anchor.expand(N, 4), "chord", True) is None
    assert fused(set, x, anchor, "near", True) is None
    assert fused(doubled(set), x.double(), anchor.double(), "chord", True) is None

"""The kernels for polytopes, in Triton's interpreter on the CPU: the formulas of the set are the reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from triton.runtime import interpreter

import inset.torch  # noqa: F401  the kernels are part of this front-end
from inset import Polytope
from inset._kernels import projected as fused
from inset._kernels.polytopes import _constants, polytope
from inset._project import interpolated

pytestmark = pytest.mark.usefixtures("one_program")
N, M, D = 70, 90, 5


def drawn(dtype: torch.dtype, rows: int = M, n: int = D, shift: float = 0.0) -> tuple[Polytope, Tensor, Tensor]:
    """A polytope with a row that never binds, its anchor, and points from deep inside to far outside."""
    random = torch.Generator().manual_seed(0)
    A, anchor = torch.randn(rows, n, generator=random), 0.05 * torch.randn(n, generator=random) + shift
    b = A @ anchor + 0.5 + torch.rand(rows, generator=random)
    b[2] = math.inf
    size = torch.tensor([1e-3, 0.3, 1.0, 30.0, 1e3, 1e20, 1.0]).repeat(N // 7)[:, None]
    return Polytope(A, b), anchor, (anchor + size * torch.randn(N, n, generator=random)).to(dtype)


def both(set: Polytope, x: Tensor, anchor: Tensor, strict: bool) -> list[list[Tensor]]:
    """y and its derivative: of the kernels, and of the formulas."""
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        leaf = x.clone().requires_grad_()
        with np.errstate(all="ignore"):  # a GPU does not warn
            y = apply(set, leaf, anchor, "chord", strict)
            assert y is not None
            g = torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(y.dtype)
            found.append([y.detach(), *torch.autograd.grad(y, leaf, g)])
    return found


def doubled(set: Polytope) -> Polytope:
    return Polytope(set.A.double(), set.b.double())


@pytest.mark.parametrize(("rows", "n"), [(M, D), (3, 1), (64, 16), (65, 33), (130, 130)])
def test_kernel_is_the_formula(rows: int, n: int) -> None:
    """Values and derivatives to rounding, without the margin; also where blocks are not full."""
    set, anchor, x = drawn(torch.float32, rows, n)
    for a, b in zip(*both(set, x, anchor, strict=False), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_strict_holds_and_costs_little(dtype: torch.dtype, shift: float) -> None:
    """The numbers are in the set in their own dtype and in float64, and about where the formula's are."""
    set, anchor, x = drawn(dtype, shift=shift if dtype == torch.float32 else shift / 100)
    (y, dx), (other, reference) = both(set, x, anchor, strict=True)
    finite = x.isfinite().all(-1)
    assert set.contains(y[finite]).all() and (doubled(set).h(y[finite].double()) <= 0).all()
    outside = ~(set.h(x) <= 0)
    assert 0 < outside.sum() < N
    assert torch.equal(y[~outside], x[~outside])
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(y, other, rtol=0, atol=200 * (1 + shift) * eps, equal_nan=True)
    torch.testing.assert_close(dx[finite], reference[finite], rtol=0, atol=3000 * (1 + shift) * eps)


def test_the_margin_covers_the_products_of_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """They cut off factors after 11 bits, and sums of eight products after 24; with the numbers still in the set."""
    set, anchor, x = drawn(torch.float32)

    def short(v: Any) -> Any:
        return (v.data.view(np.int32) & np.int32(-0x2000)).view(np.float32).astype(np.float64)

    def dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
        value = short(a) @ short(b) + d.data
        size = np.abs(short(a)) @ np.abs(short(b)) + np.abs(d.data)
        return interpreter.TensorHandle((value - 2.0**-23 * size).astype(np.float32), d.dtype.scalar)

    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
    x = x[x.abs().amax(-1) < 100]
    _, (_, raw, _) = polytope(x, set.A, set.b, anchor, *_constants(set.A, set.b, x.dtype, True, anchor), True)
    wide, outside = doubled(set), raw > 0
    exact = (wide.constraints(x.double()) / (wide.b - wide.A @ anchor.double()))[:, 3:].amax(-1)
    assert outside.any() and (1 / raw[outside].double() - 1 > exact[outside]).all()  # an upper bound, whatever is lost
    loose, y = (fused(set, x, anchor, "chord", strict) for strict in (False, True))
    assert loose is not None and y is not None
    assert not (doubled(set).h(loose.double()) <= 0).all()
    assert (doubled(set).h(y.double()) <= 0).all()
    torch.testing.assert_close(loose, interpolated(set, x, anchor, "chord", False)[0], rtol=1e-5, atol=1e-5)


def test_what_is_extreme() -> None:
    """NaN and infinity stay with their sample, huge points come back finite, a bad anchor is loud."""
    set, anchor, x = drawn(torch.float32)
    x[0, 1], x[1, 2], x[2], x[3] = math.nan, math.inf, 3e38 * x[2].sign(), 1e-30
    with np.errstate(all="ignore"):
        y, lost = (fused(set, x, a, "chord", True) for a in (anchor, anchor + 100))
    assert y is not None and lost is not None
    assert y[:2].isnan().all() and y[2:].isfinite().all() and set.contains(y[2:]).all()
    assert lost.isnan().all()


def test_second_derivative_is_that_of_the_formulas() -> None:
    set, anchor, x = drawn(torch.float32)
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        leaf = x[:4].clone().requires_grad_()
        y = apply(set, leaf, anchor, "chord", False)
        assert y is not None
        (first,) = torch.autograd.grad(y.sin().sum(), leaf, create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), leaf)[0])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)


def test_a_change_of_the_set_is_noticed() -> None:
    """What is known of a set and its anchor is kept from call to call."""
    set, anchor, x = drawn(torch.float32)
    before = fused(set, x, anchor, "chord", True)
    set.b.mul_(0.5)
    after = fused(set, x, anchor, "chord", True)
    assert before is not None and after is not None
    assert not torch.equal(before, after) and set.contains(after[x.isfinite().all(-1)]).all()


def test_where_it_does_not_apply() -> None:
    set, anchor, x = drawn(torch.float32)
    assert fused(Polytope(set.A.clone().requires_grad_(), set.b), x, anchor, "chord", True) is None
    assert fused(set, x, anchor.expand(N, D), "chord", True) is None
    assert fused(set, x, anchor, "paper", True) is None
    assert fused(doubled(set), x.double(), anchor.double(), "chord", True) is None
    assert fused(Polytope(set.A.expand(N, M, D), set.b), x, anchor, "chord", True) is None


def test_margin_of_the_evaluation_at_y() -> None:
    """For each row: what the set may lose when it looks at the result, and not much more."""
    set, anchor, x = drawn(torch.float32, shift=30.0)
    there = set.b.isfinite()
    _, _, _, p, q = _constants(set.A, set.b, x.dtype, True, anchor)[0].double()[:, there]
    A, b, x0, u = set.A[there].double(), set.b[there].double(), anchor.double(), torch.finfo(torch.float32).eps / 2
    depth, rows = b - A @ x0, torch.linalg.vector_norm(A, dim=-1)
    lost = u * (D + 2) * (b.abs() + rows * torch.linalg.vector_norm(x0))
    assert (p * depth > 4 * lost).all() and (p * depth < 20 * lost).all()
    lost = u * (D + 2) * rows
    assert (q * depth > 2 * lost).all() and (q * depth < 10 * lost).all()

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
from inset._kernels import lmis, matrices
from inset._kernels import projected as fused
from inset._project import interpolated

pytestmark = pytest.mark.usefixtures("one_program")
N = 14
METHODS = ("chord", "ray")
U = 2.0**-24


@pytest.fixture(autouse=True)
def few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """For which the interpreter takes its time; there are two for N samples, and one is not full."""
    monkeypatch.setattr(lmis, "MATRICES", 8)


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
@pytest.mark.parametrize(("n", "k"), [(4, 3), (1, 1), (5, 8), (3, 12), (2, 17), (33, 32)])
def test_kernel_is_the_formula(n: int, k: int, method: str) -> None:
    """Values and derivatives to rounding, without the margin; also where blocks are not full."""
    set, anchor, x = drawn(n, k)
    for a, b in zip(*both(set, x, anchor, method, strict=False), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=3e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "k"), [(4, 3), (6, 17)])
def test_strict_holds_and_costs_little(n: int, k: int, method: str) -> None:
    """The numbers are in the set in float32 and in float64, and about where the formula's are."""
    set, anchor, x = drawn(n, k)
    (y, dx), (other, reference) = both(set, x, anchor, method, strict=True)
    assert set.contains(y).all() and (doubled(set).h(y.double()) <= 0).all()
    outside = ~(set.h(x) <= 0)
    assert 0 < outside.sum() < N
    assert torch.equal(y[~outside], x[~outside])
    torch.testing.assert_close(y, other, rtol=0, atol=3e-4)
    torch.testing.assert_close(dx, reference, rtol=0, atol=3e-3)


def test_margin_is_needed_and_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points on the boundary and a little beyond."""
    monkeypatch.setattr(lmis, "MATRICES", 128)
    set, anchor, x = drawn()
    x = anchor + torch.linspace(0, 3, 200)[:, None] * (x[2] - anchor)
    loose, y = (fused(set, x, anchor, "ray", strict) for strict in (False, True))
    assert loose is not None and y is not None
    assert not (doubled(set).h(loose.double()) <= 0).all()
    assert (doubled(set).h(y.double()) <= 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_margin_covers_the_squarings(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the eigenvalues are off by as much as rounding may add, s is an upper bound still, and eta is less."""
    (set, anchor, x), k = drawn(2, 24), 24
    x = x[x.abs().amax(-1) < 100]
    found: Any = matrices.lowest

    def off(*inputs: Any) -> tuple[Any, ...]:
        value, vector, spread = found(*inputs)
        return value + (k + 4) ** 2 * U * spread, vector, spread

    stack, constants = lmis.KINDS[method].known(set.A, set.C, anchor=anchor)
    monkeypatch.setattr(matrices, "lowest", off)
    _, eta, raw, _ = lmis.lmi(x, set.A, set.C, anchor, stack, constants, method, True)
    w = (x - anchor).double()
    total = (w @ stack[:-1].double() + stack[-1].double()).reshape(len(x), k, k)
    exact, outside = -torch.linalg.eigvalsh(total)[:, 0] * constants[0].double(), raw > 0
    assert outside.any() and (1 / raw[outside].double() - 1 > exact[outside]).all()
    assert (eta[outside] < (1 - 1e-7) * raw[outside]).all()


def nasty(k: int) -> Tensor:
    """Symmetric float32 matrices on which eigensolvers fail, if they do."""
    random = torch.Generator().manual_seed(k)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    def valued(values: Tensor) -> Tensor:
        return (Q * values) @ Q.mT

    (Q, _), one, i = torch.linalg.qr(normal(k, k)), torch.eye(k, dtype=torch.float64), torch.arange(k)
    rough, v, down = normal(k, k), normal(k), 10.0 ** (-0.2 * i)
    rough, pair = rough + rough.mT, 1.0 * (i == k - 1) - 1.0 * (i == k - 2)
    found = [rough, one, -one, one + 1e-7 * rough, 1e-3 * rough - one, torch.diag(v), torch.diag(v) + 1e-6 * rough]
    found += [torch.outer(v, v), -torch.outer(v, v), torch.ones(k, k) - 0.7 * one, valued((2 * i < k) * 2.0 - 1)]
    found += [valued(2.0 * (i == k - 1) - 1 + gap * (i > 0)) for gap in (1e-3, 1e-5, 1e-6, 5e-7, 2.5e-7, 1e-7, 1e-9)]
    found += [valued(down**2), valued(v.sign() * down**3), rough * torch.outer(down, down), -torch.outer(pair, pair)]
    found = [S / S.abs().max() for S in found] + [0.3 * one, 0 * one, 1e-30 * rough, 1e20 * rough]
    return torch.stack([(S + S.mT).float() / 2 for S in found])


@pytest.mark.parametrize("k", [1, 2, 10, 17, 32])
def test_pair_is_the_smallest(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where eigenvalues are close or the same, and for multiples of I: any vector of theirs is right."""
    monkeypatch.setattr(lmis, "MATRICES", 32)
    S = nasty(k)
    exact, x, stack = S.double(), torch.eye(len(S)), torch.cat([S, 0 * S[:1]]).flatten(1)
    least, size = torch.linalg.eigvalsh(exact)[:, 0], torch.linalg.matrix_norm(exact)
    spread = torch.linalg.matrix_norm(exact - exact.diagonal(dim1=1, dim2=2).mean(-1)[:, None, None] * torch.eye(k))
    for sign in (1.0, -1.0):  # s is seen where it is positive
        constants = torch.tensor([sign, 0, 0, 0, 0, 0])
        _, _, raw, vector = lmis.lmi(x, S, S[0], 0 * x[0], stack, constants, "chord", False)
        seen, outside = torch.where(raw > 0, sign - sign / raw.double(), 0.0), raw > 0
        assert ((seen - least)[outside].abs() <= 4 * U * (1 + seen.abs() + size)[outside]).all()
        assert (sign * least >= -4 * U * size)[~outside].all()
    v = vector.double()
    image, square = (exact @ v[..., None])[..., 0], v.square().sum(-1)
    torch.testing.assert_close(square, torch.ones_like(square), rtol=0, atol=8 * U)
    assert ((image * v).sum(-1) - least * square <= 4 * U * spread).all()
    assert ((image - least[:, None] * v).norm(dim=-1) <= 2 * U * (k + 6) * spread)[:-4].all()


def test_one_launch_and_no_eigensolver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of torch wait for the device."""
    set, anchor, x = drawn()
    known, seen, launched = lmis.KINDS["ray"].known(set.A, set.C, anchor=anchor), [], lmis.launched

    def launch(kernel: Any, *rest: Any, **options: Any) -> None:
        seen.append(kernel)
        launched(kernel, *rest, **options)

    monkeypatch.setattr(lmis, "launched", launch)
    for name in ("eigh", "eigvalsh", "svd", "cholesky_ex"):
        monkeypatch.delattr(torch.linalg, name)
    y, *_ = lmis.lmi(x, set.A, set.C, anchor, *known, "ray", True)
    assert y.isfinite().all() and seen == [matrices.forward]


def test_lower_triangles_count() -> None:
    """A may be a little off symmetry, and eigensolvers read these."""
    set, anchor, x = drawn()
    stack, constants = lmis.KINDS["chord"].known(set.A, set.C, anchor=anchor)
    lower = stack.unflatten(-1, (3, 3)).tril().flatten(1)
    found = [lmis.lmi(x, set.A, set.C, anchor, T, constants, "chord", True)[0] for T in (stack, lower)]
    assert torch.equal(*found)


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


def test_matrix_that_overflows_is_loud() -> None:
    """Where the point is finite."""
    set, anchor, _ = drawn()
    with np.errstate(all="ignore"):
        inputs = torch.ones(2, 4), set.A, set.C, 0 * anchor, torch.full((5, 9), 3e38), torch.ones(6)
        y, eta, _, vector = lmis.lmi(*inputs, "chord", True)
    assert y.isnan().all() and eta.isnan().all() and vector.isfinite().all()


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

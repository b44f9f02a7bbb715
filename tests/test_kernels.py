"""The kernels, in Triton's interpreter on the CPU: the formulas of the sets are the reference."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

import inset.torch  # noqa: F401  the kernels are part of this front-end
from inset import Ball, Strings
from inset._kernels import _launch, links, strings
from inset._kernels import fused as dispatched
from inset._kernels.strings import fused
from inset._project import interpolated

pytestmark = pytest.mark.usefixtures("one_program")
SAMPLES, BODIES, D = 6, 5, 3
LINKS = torch.tensor([[0, 1], [1, 2], [2, 3], [0, 3], [3, 4]])
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


def drawn(dtype: torch.dtype, anchors: str, lengths: str, seed: int = 0) -> tuple[Strings, Tensor, Tensor]:
    """A set, points from deep inside to far outside, and anchors."""
    random, wide = torch.Generator().manual_seed(seed), torch.float64 if dtype == torch.float64 else torch.float32

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=wide)

    x = normal(SAMPLES, BODIES, D) * torch.tensor([0.05, 1.0, 1e3], dtype=wide).repeat(SAMPLES // 3)[:, None, None]
    middle = normal(SAMPLES, 1, D)
    x = x + middle
    anchor = {
        "together": middle.expand(-1, BODIES, -1),
        "apart": middle + 0.05 * normal(SAMPLES, BODIES, D),
        "one": 0.05 * normal(BODIES, D),
    }[anchors]
    length = {
        "number": 1.5,
        "one each": torch.tensor([1.0, 0.8, 1.2, 1.5, 0.9], dtype=wide),
        "by sample": 0.8 + torch.rand(SAMPLES, len(LINKS), generator=random, dtype=wide),
    }[lengths]
    return Strings(LINKS, length), x.to(dtype), anchor.to(dtype) if anchors != "together" else spread(middle.to(dtype))


def spread(middle: Tensor) -> Tensor:
    """All bodies at one place, as a view."""
    return middle.expand(-1, BODIES, -1)


def both(set: Strings, x: Tensor, anchor: Tensor, strict: bool) -> tuple[list[Tensor], list[Tensor]]:
    """y and its derivatives by x and by the anchor: of the kernels, and of the formulas."""
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        place = anchor[..., :1, :] if anchor.stride(-2) == 0 else anchor  # a clone would lie apart
        leaves = x.clone().requires_grad_(), place.clone().requires_grad_()
        y = apply(set, leaves[0], leaves[1].expand(anchor.shape), "chord", strict)
        assert y is not None
        g = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape).to(y.dtype)
        found.append([y.detach(), *torch.autograd.grad(y, leaves, g)])
    return found[0], found[1]


@pytest.mark.parametrize("lengths", ["number", "one each", "by sample"])
@pytest.mark.parametrize("anchors", ["together", "apart", "one"])
@pytest.mark.parametrize("dtype", [torch.float64])
def test_kernel_is_the_formula(dtype: torch.dtype, anchors: str, lengths: str) -> None:
    """Values and derivatives to rounding, without the margin."""
    ours, reference = both(*drawn(dtype, anchors, lengths), strict=False)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=40 * torch.finfo(dtype).eps, atol=40 * torch.finfo(dtype).eps)


def chain(dtype: torch.dtype) -> tuple[Strings, Tensor, Tensor]:
    """Eight bodies in the plane, near and far, all at 0 at the anchor; an even number of coordinates."""
    random = torch.Generator().manual_seed(2)
    x = torch.randn(20, 8, 2, generator=random) * torch.logspace(-1, 1, 20)[:, None, None]
    links = torch.stack([torch.arange(7), torch.arange(1, 8)], -1)
    return Strings(links, 1.5), x.to(dtype), torch.zeros(1, 2, dtype=dtype).expand(8, 2)


@pytest.mark.parametrize("again", [0, 32])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_two_numbers_of_16_bits_are_read_as_one(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, again: int
) -> None:
    """Also where they begin between two of 32 bits, which would be an error of the GPU."""
    monkeypatch.setattr(strings, "AGAIN", again)
    set, x, anchor = chain(dtype)
    found = []
    odd = torch.cat([x.new_zeros(1), x.reshape(-1)])[1:].reshape(x.shape)
    for points in (x, odd, x.float()):
        leaf = points.detach().requires_grad_()
        y = fused(set, leaf, anchor.to(points.dtype)[:1].expand(8, 2), "chord", False)
        assert y is not None
        g = torch.linspace(-1, 1, y.numel()).reshape(y.shape).to(dtype).to(points.dtype)
        found.append((y.detach(), *torch.autograd.grad(y, leaf, g)))
    for a, b, c in zip(*found, strict=True):
        assert torch.equal(a, b) and torch.equal(a, c.to(dtype))  # computed in float32 and rounded once
    assert odd.data_ptr() % 4 == 2 and strings._paired(x) and not strings._paired(odd) and not strings._paired(x, odd)
    assert not strings._paired(x[:, :7, :1])  # seven for each sample
    with FakeTensorMode():  # as in a program, which may be given others
        assert not strings._paired(torch.empty(20, 8, 2, dtype=dtype))


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("again", [0, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_nan_is_one_whatever_its_sign(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, again: int, sign: int
) -> None:
    """An x86 processor makes those that are negative."""
    monkeypatch.setattr(strings, "AGAIN", again)
    set, x, anchor = chain(dtype)
    x[1, 2, 0] = torch.tensor(math.nan).copysign(torch.tensor(sign))
    leaf = x.clone().requires_grad_()
    y = fused(set, leaf, anchor, "chord", True)
    assert y is not None
    (dx,) = torch.autograd.grad(y.sum(), leaf)
    assert y[1].isnan().all() and dx[1].isnan().all() and y.isnan().sum() == dx.isnan().sum() == 16


@pytest.mark.parametrize("held", [32, 512])
@pytest.mark.parametrize("again", [0, 32])
def test_of_strings_that_are_as_bad_the_first_counts(monkeypatch: pytest.MonkeyPatch, again: int, held: int) -> None:
    """As by the formulas; lanes have one link of a sample, or several."""
    monkeypatch.setattr(strings, "AGAIN", again)
    monkeypatch.setattr(_launch, "HELD", held)
    monkeypatch.setattr(_launch, "FEW", 0)  # one warp
    set, _, anchor = chain(torch.float32)
    across = torch.tensor([0.0, 3.0]).repeat(4)
    x = torch.stack([torch.stack([across, 0 * across], -1), torch.stack([0 * across, across + 1], -1)]).repeat(8, 1, 1)
    for strict in (False, True):
        (y, dx, _), (other, reference, _) = both(set, x, anchor.expand(16, 8, 2), strict)
        torch.testing.assert_close(y, other, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(dx, reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("again", [0, 32])
@pytest.mark.parametrize(
    "x, anchor, links, lengths",
    [
        ([0.0, 1e13], [0.0, 0.5], [[0, 1]], 1.0),  # with a span of the anchor that is short beside it
        ([0.0, 3.0, 1e13], [0.0, 0.1, 0.2], [[0, 1], [1, 2]], torch.tensor([1.0, 1e14])),  # and of the point
        ([0.0, 1e-25, 1.0], [0.0, 0.0, 0.0], [[0, 1]], 1e-26),  # or one that is short among ordinary ones
        ([0.0, 5.0, 6.0], [0.0, 1e-25, 0.3], [[0, 1], [1, 2]], 1.0),  # or short at the anchor alone
    ],
)
def test_derivative_by_a_span_of_another_size(
    monkeypatch: pytest.MonkeyPatch, again: int, x: list[float], anchor: list[float], links: Any, lengths: Any
) -> None:
    """A square of one that overflows, or is 0, says nothing of the other."""
    monkeypatch.setattr(strings, "AGAIN", again)
    wide = lengths.double() if isinstance(lengths, Tensor) else lengths
    found = []
    for apply, length, dtype in (
        (fused, lengths, torch.float32),
        (lambda *a: interpolated(*a)[0], wide, torch.float64),
    ):
        point, place = (torch.tensor([v], dtype=dtype)[..., None].requires_grad_() for v in (x, anchor))
        y = apply(Strings(torch.tensor(links), length), point, place, "chord", False)
        assert y is not None
        g = torch.arange(1.0, 1 + len(x), dtype=dtype).reshape(y.shape)
        found.append([y.detach(), *torch.autograd.grad(y, (point, place), g)])
    for a, b in zip(*found, strict=True):
        size = float(b.abs().max())
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5 * size)


@pytest.mark.parametrize("again", [0, 32])
@pytest.mark.parametrize("extreme", [1e25, 1e-25, math.inf, math.nan])
def test_an_extreme_sample_is_nothing_to_the_others(
    monkeypatch: pytest.MonkeyPatch, extreme: float, again: int
) -> None:
    """Tiles are gone through once more for it, which gives all others the same bits."""
    monkeypatch.setattr(strings, "AGAIN", again)
    set, x, anchor = chain(torch.float32)
    found = []
    for first in (1.0, extreme):
        leaf = x.clone()
        leaf[0] = first * torch.linspace(1, 2, 16).reshape(8, 2)
        leaf.requires_grad_()
        y = fused(set, leaf, anchor, "chord", True)
        assert y is not None
        found.append((y.detach(), *torch.autograd.grad(y, leaf, torch.ones_like(y))))
    for a, b in zip(*found, strict=True):
        assert torch.equal(a[1:], b[1:])
    assert bool(found[1][0][0].isfinite().all()) == math.isfinite(extreme)
    assert not math.isfinite(extreme) or set.contains(found[1][0].double())[0]


@pytest.mark.parametrize("again", [0, 32])
@pytest.mark.parametrize("first, passes", [(0.0, 1), (1e-25, 1), (1e25, 2)])
def test_samples_of_zeros_are_not_extreme(
    monkeypatch: pytest.MonkeyPatch, first: float, passes: int, again: int
) -> None:
    """Many are no reason to go through tiles once more: fillings of a batch, or what a network begins with."""
    monkeypatch.setattr(strings, "AGAIN", again)
    seen: list[bool] = []

    def spy(*arguments: Any) -> Any:
        seen.append(bool(arguments[-1]))
        return back(*arguments)

    back = links._back
    monkeypatch.setattr(links, "_back", spy)
    set, x, anchor = chain(torch.float32)
    x[0] = first * torch.linspace(0, 1, 16).reshape(8, 2)
    x.requires_grad_()
    y = fused(set, x, anchor, "chord", True)
    assert y is not None
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert dx.isfinite().all() and (first > 1 or bool((dx[0] == 1).all()))
    assert seen == [False] * (len(seen) // passes) + [True] * (len(seen) - len(seen) // passes)


@pytest.mark.parametrize("anchors", ["together", "apart"])
@pytest.mark.parametrize("again", [0, 32])
def test_weights_are_stored_or_found_again(monkeypatch: pytest.MonkeyPatch, again: int, anchors: str) -> None:
    """Bodies in the plane, more links than bodies, each on its own scale."""
    monkeypatch.setattr(strings, "AGAIN", again)
    random = torch.Generator().manual_seed(1)
    x = torch.randn(6, 8, 2, generator=random) * torch.logspace(-1, 2, 6)[:, None, None]
    links, lengths = torch.combinations(torch.arange(8)), 0.5 + torch.rand(28, generator=random)
    middle = x.mean(-2, keepdim=True)
    anchor = middle.expand(6, 8, 2) if anchors == "together" else middle + 0.01 * torch.randn(6, 8, 2, generator=random)
    for strict in (False, True):
        ours, reference = both(Strings(links, lengths), x, anchor, strict)
        for a, b in zip(ours, reference, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("anchors", ["together", "apart"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_strict_holds_and_costs_little(dtype: torch.dtype, anchors: str) -> None:
    """The numbers are in the set in their own dtype and in float64, and as near to its boundary as the formula's."""
    set, x, anchor = drawn(dtype, anchors, "one each")
    (y, *ours), (other, *reference) = both(set, x, anchor, strict=True)
    assert set.contains(y).all()
    assert Strings(LINKS, torch.as_tensor(set.lengths).double()).contains(y.double()).all()
    outside = ~set.contains(x)
    assert 0 < outside.sum() < SAMPLES
    assert torch.equal(y[~outside], x[~outside])
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(y, other, rtol=30 * eps, atol=30 * eps)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=100 * eps, atol=100 * eps)


def test_strict_holds_far_from_the_origin() -> None:
    """Rounding grows with the positions, and so does the margin."""
    random = torch.Generator().manual_seed(3)
    far = 400 * torch.randn(24, 1, D, generator=random)
    x = far + 3 * torch.randn(24, BODIES, D, generator=random)
    set = Strings(LINKS, 0.01)
    y = fused(set, x, spread(far), "chord", True)
    assert y is not None and set.contains(y).all() and set.contains(y.double()).all()
    loose = fused(set, x, spread(far), "chord", False)
    assert not set.contains(loose).all()  # it is the margin that does it


@pytest.mark.parametrize("anchors", ["together", "apart"])
@pytest.mark.parametrize("length", [1e-42, 3e-40])
def test_strict_holds_of_numbers_that_are_hardly_any(length: float, anchors: str) -> None:
    """Below the smallest normal number rounding does not become any less."""
    random = torch.Generator().manual_seed(0)
    x = 1e3 * length * torch.randn(24, BODIES, D, generator=random)
    anchor = spread(torch.zeros(24, 1, D)) if anchors == "together" else torch.zeros(24, BODIES, D)
    set = Strings(LINKS, length)
    with np.errstate(all="ignore"):
        y = fused(set, x, anchor, "chord", True)
    assert y is not None and not (set.h(y) > 0).any()
    assert not (Strings(LINKS, torch.tensor(length).double().item()).h(y.double()) > 0).any()


def test_strict_holds_where_the_anchor_is_exact() -> None:
    """The result is rounded to its dtype even if the anchor, at 0, is not."""
    dtype = torch.float16  # the interpreter rounds to bfloat16 towards zero, a GPU does not
    x = (3 * torch.randn(48, BODIES, D, generator=torch.Generator().manual_seed(4))).to(dtype)
    set, anchor = Strings(LINKS, 1.0), torch.zeros(1, 1, D, dtype=dtype).expand(48, BODIES, D)
    y, loose = (fused(set, x, anchor, "chord", strict) for strict in (True, False))
    assert y is not None and loose is not None
    assert set.contains(y).all() and set.contains(y.double()).all() and not set.contains(loose).all()


def test_what_is_not_finite() -> None:
    """NaN stays with its sample, huge points come back finite, a bad anchor or link is loud."""
    set, x, anchor = drawn(torch.float32, "together", "number")
    x[0, 1, 1], x[1], anchor = math.nan, 2.0e38 * x[1].sign(), anchor.contiguous()
    anchor[2, 0] += 5.0
    leaf = x.clone().requires_grad_()
    with np.errstate(all="ignore"):  # a GPU does not warn
        y = fused(set, leaf, anchor, "chord", True)
    assert y is not None
    assert y[0].isnan().all() and y[2].isnan().all() and y[[1, 3, 4, 5]].isfinite().all()
    assert set.contains(y[[1, 3, 4, 5]]).all()
    (g,) = torch.autograd.grad(y[1].sin().sum(), leaf)
    wide = x.double().requires_grad_()  # in float32 the formulas lose the part along the string
    expected = interpolated(set, wide, anchor.double(), "chord", False)[0][1]
    (reference,) = torch.autograd.grad(expected, wide, y[1].detach().cos().double())
    assert g[1].abs().max() > 0
    torch.testing.assert_close(g[1].double(), reference[1], rtol=1e-3, atol=0)
    for link in ([0, BODIES], [BODIES, 0]):
        with np.errstate(all="ignore"):
            beyond = fused(Strings(torch.tensor([link]), 1.0), x, spread(anchor[:, :1].contiguous()), "chord", True)
        assert beyond is not None and beyond.isnan().all()


def test_second_derivatives_are_the_formulas() -> None:
    set, x, anchor = drawn(torch.float64, "apart", "by sample")
    found = []
    for apply in (fused, lambda *a: interpolated(*a)[0]):
        leaves = x.clone().requires_grad_(), anchor.clone().requires_grad_()
        first = torch.autograd.grad(apply(set, *leaves, "chord", False).sin().sum(), leaves, create_graph=True)  # type: ignore[union-attr]
        found.append((*first, *torch.autograd.grad(sum(g.cos().sum() for g in first), leaves)))  # type: ignore[arg-type]
    assert all(v.abs().max() > 1e-3 for v in found[0])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


def test_batches_broadcast() -> None:
    """Points, anchors and lengths may have different batches."""
    set, x, anchor = drawn(torch.float64, "apart", "one each")
    x, anchor = x[1:3], anchor[:2]
    wide = fused(set, x[:, None], anchor[None], "chord", True)
    each = [[fused(set, p, a, "chord", True) for a in anchor] for p in x]
    assert wide is not None and wide.shape == (2, 2, BODIES, D)
    torch.testing.assert_close(wide, torch.stack([torch.stack(row) for row in each]), rtol=0, atol=0)  # type: ignore[arg-type]


def test_where_there_is_no_kernel() -> None:
    """Another method, a learned length, another dtype, another set, another device: the formulas."""
    set, x, anchor = drawn(torch.float32, "together", "one each")
    assert fused(set, x, anchor, "paper", True) is None
    assert fused(Strings(LINKS, torch.ones(5, requires_grad=True)), x, anchor, "chord", True) is None
    assert fused(Strings(LINKS, torch.ones(5, dtype=torch.float64)), x, anchor, "chord", True) is None
    assert fused(set, x[:0], anchor[:0], "chord", True) is None
    assert fused(set, x, anchor[:, 1:], "chord", True) is None  # an anchor of fewer bodies
    assert dispatched(set, x, anchor, "chord", True) is None
    assert dispatched(Ball(torch.zeros(2), 1.0), x[..., 0, :2], x[..., 0, :2], "chord", True) is None


def test_one_length_for_all_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not copied for each link in each call, which would be a kernel."""
    set, x, anchor = drawn(torch.float32, "together", "number")
    given: list[Tensor] = []

    def spy(x: Tensor, anchor: Tensor, links: Tensor, lengths: Tensor, strict: bool) -> tuple[Tensor, Tensor, Tensor]:
        given.append(lengths)
        return x, x, x

    monkeypatch.setattr(strings, "strings", spy)
    for _ in range(2):
        fused(set, x, anchor, "chord", True)
    assert given[0] is given[1] and given[0].tolist() == [1.5] * len(LINKS)


def test_strings_too_short_to_have_an_inverse() -> None:
    """Inside, where a derivative is the incoming one."""
    x = torch.tensor([[[1e-40, 0.0], [0.0, 0.0]]])
    for anchor in (torch.zeros(1, 1, 2).expand(1, 2, 2), torch.zeros(1, 2, 2)):
        (_, *ours), _ = both(Strings(torch.tensor([[0, 1]]), 1.0), x, anchor, strict=True)
        assert torch.equal(ours[0], torch.tensor([[[-1.0, -1 / 3], [1 / 3, 1.0]]]))


def test_bodies_without_strings_may_be_anywhere() -> None:
    """Even nowhere: others go where they would go."""
    x = torch.zeros(1, 4, 4)
    x[0, 0, 0], anchor = 3.0, torch.zeros(1, 4).expand(4, 4)
    found = []
    for nowhere in (0.0, math.nan):
        x[0, 2] = nowhere
        found.append(fused(Strings(torch.tensor([[0, 1]]), 1.0), x, anchor, "chord", True))
    assert torch.equal(found[0][0, :2], found[1][0, :2])


def test_strings_as_long_as_they_may_be() -> None:
    """Rounding may show them as no longer, and so they are shortened by as much."""
    angle = torch.linspace(0, 6.28, 500, dtype=torch.float64)
    x = torch.zeros(500, 2, 2)
    x[:, 1] = torch.stack([angle.cos(), angle.sin()], -1).float()
    set = Strings(torch.tensor([[0, 1]]), 1.0)
    assert ((set.h(x).reshape(-1) <= 0) & (x[:, 1].double().norm(dim=-1) > 1)).any()
    y = fused(set, x, torch.zeros(1, 2).expand(2, 2), "chord", True)
    assert y is not None and (y[:, 1].double().norm(dim=-1) <= 1).all()


@pytest.mark.parametrize("anchors", ["together", "apart"])
@pytest.mark.parametrize("size", [1e-28, 1e24])
def test_derivatives_do_not_depend_on_the_unit(anchors: str, size: float) -> None:
    """Also where squares of lengths are not numbers of float32."""
    set, x, anchor = drawn(torch.float32, anchors, "one each")
    assert isinstance(set.lengths, Tensor)
    (_, *expected), _ = both(set, x, anchor, strict=False)
    scaled = spread(size * anchor[:, :1]) if anchors == "together" else size * anchor
    (_, *found), _ = both(Strings(LINKS, size * set.lengths), size * x, scaled, strict=False)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_huge_points_on_short_strings() -> None:
    """The weights of both steps back are not multiplied: their product need not be a normal number."""
    for ends, length in (((3e38, 0.0), 1e-5), ((1e10, -1e10), 1e-10)):
        x = torch.tensor([[[ends[0], 0.0], [ends[1], 0.0]]])
        y = fused(Strings(torch.tensor([[0, 1]]), length), x, torch.zeros(1, 2).expand(2, 2), "chord", True)
        assert y is not None
        long = (y[0, 0].double() - y[0, 1].double()).norm() / length
        assert 0.99 < long <= 1


def test_derivatives_of_a_point_at_the_origin() -> None:
    leaf, anchor = torch.zeros(1, 2, 2, requires_grad=True), torch.tensor([[0.0, 0.0], [0.5, 0.0]])
    y = fused(Strings(torch.tensor([[0, 1]]), 1.0), leaf, anchor, "chord", True)
    assert y is not None
    (g,) = torch.autograd.grad(y.sum(), leaf)
    assert torch.equal(g, torch.ones(1, 2, 2))


def test_a_string_of_any_length() -> None:
    """The link whose weight is not asked for does not make a derivative of nothing."""
    set = Strings(torch.tensor([[0, 1], [1, 2]]), torch.tensor([math.inf, 1.0]))
    x = torch.tensor([[[0.0, 0.0], [9.0, 0.0], [9.5, 0.0]], [[0.0, 0.0], [9.0, 0.0], [19.0, 0.0]]])
    with np.errstate(all="ignore"):
        ours, reference = both(set, x, torch.zeros(2, 1, 2).expand(2, 3, 2), strict=False)
    for a, b in zip(ours, reference, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert torch.equal(ours[0][0], x[0]) and not torch.equal(ours[0][1], x[1])

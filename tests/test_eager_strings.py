"""Strings in few operations: the formulas of `Strings` are the reference."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad

import inset
from inset import Strings, _fast
from inset._eager import strings as eager
from inset._project import interpolated
from inset.torch import Projection

DTYPES = (torch.float64, torch.float32)
ANCHORS = ("one place", "written out", "apart")
BODIES = 6  # of which the last is held by no string


@pytest.fixture
def hooked() -> Iterator[None]:
    """`project` asks the fast path."""
    before = list(_fast.FUSED)
    _fast.FUSED.insert(0, eager.fused)
    yield
    _fast.FUSED[:] = before


def strings(lengths: str, dtype: torch.dtype) -> Strings:
    links = torch.tensor([[0, 1], [2, 0], [0, 3], [3, 4], [1, 2]])
    return Strings(links, 0.7 if lengths == "a number" else torch.linspace(0.4, 1.5, 5, dtype=dtype))


def made(
    anchor: str, dtype: torch.dtype, batch: tuple[int, ...] = (24,), seed: int = 0, d: int = 2, far: float = 3.0
) -> tuple[Tensor, Tensor]:
    """Positions from together to far apart, and what an anchor is made of."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    size = torch.logspace(-2, 3, math.prod(batch)).reshape(*batch, 1, 1)
    middle = far + normal(*batch, 1, d)
    x = middle + size * normal(*batch, BODIES, d)
    return x.to(dtype), (middle + (0.03 * normal(*batch, BODIES, d) if anchor == "apart" else 0)).to(dtype)


def placed(anchor: str, middle: Tensor, x: Tensor) -> Tensor:
    return middle.expand(x.shape) if anchor == "one place" else middle + torch.zeros_like(x)


def fused(set: Strings, x: Tensor, anchor: Tensor, method: str = "chord", strict: bool = True) -> Tensor:
    y = eager.fused(set, x, anchor, method, strict)
    assert y is not None
    return y


def formulas(set: Strings, x: Tensor, anchor: Tensor, method: Any = "chord", strict: bool = True) -> Tensor:
    return interpolated(set, x, anchor, method, strict)[0]


def excess(set: Strings, y: Tensor) -> Tensor:
    """h in float64."""
    lengths = set.lengths
    return Strings(set.links, lengths.double() if isinstance(lengths, Tensor) else lengths).h(y.double())


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("lengths", ["a number", "a tensor"])
@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_is_the_formula(dtype: torch.dtype, anchor: str, lengths: str, strict: bool) -> None:
    """Values and derivatives by x and by the anchor to 32 ulps, and with `strict` to the difference of the margins."""
    ulps = torch.finfo(dtype).eps * (1500 if strict else 32)
    set = strings(lengths, dtype)
    for batch, d in (((), 2), ((24,), 2), ((4, 3), 3)):
        x, middle = made(anchor, dtype, batch, d=d)
        found = []
        for apply in (fused, formulas):
            leaves = (x.clone().requires_grad_(), middle.clone().requires_grad_())
            y = apply(set, leaves[0], placed(anchor, leaves[1], x), "chord", strict)
            g = torch.linspace(-1, 1, y.numel(), dtype=dtype).reshape(y.shape)
            found.append([y.detach(), *grad(y, leaves, g)])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=ulps, atol=ulps)
        inside = set.h(x) < -1e-5
        assert batch == () or 0 < inside.sum() < inside.numel()
        assert torch.equal(found[0][0][inside], x[inside])


@pytest.mark.parametrize("method", ["ray", "paper"])
def test_methods(method: str) -> None:
    """With all bodies of the anchor in one place and one length for all strings, they are the same."""
    set = strings("a number", torch.float64)
    x, middle = made("one place", torch.float64)
    anchor = middle.expand(x.shape)
    expected = formulas(set, x, anchor, method, False)
    torch.testing.assert_close(fused(set, x, anchor, method, False), expected, rtol=1e-14, atol=1e-14)
    assert eager.fused(set, x, anchor.clone(), method, False) is None
    several = strings("a tensor", torch.float64)
    assert (eager.fused(several, x, anchor, method, False) is None) == (method == "paper")


@pytest.mark.parametrize("lengths", ["a number", "a tensor"])
@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_strict_holds(dtype: torch.dtype, anchor: str, lengths: str) -> None:
    """In its dtype and in float64, far from the origin and on the boundary; without the margin it does not."""
    set, broken = strings(lengths, dtype), 0
    for seed, far in ((1, 0.0), (2, 3.0), (3, 400.0)):
        x, middle = made(anchor, dtype, (400,), seed, far=far)
        x0 = placed(anchor, middle, x)
        y, loose = (fused(set, x, x0, strict=strict) for strict in (True, False))
        results = [y, fused(set, loose, x0)]
        for k in range(-6, 7):
            results.append(fused(set, loose + k * torch.finfo(dtype).eps * (loose - x0), x0))
        for result in results:
            assert (set.h(result) <= 0).all() and (excess(set, result) <= 0).all()
        assert anchor == "apart" or (excess(set, y) > -2e4 * torch.finfo(dtype).eps).any()  # no more than is needed
        broken += int((excess(set, loose) > 0).sum())
    assert broken > 0 or anchor == "apart"  # from there a chord ends before the boundary


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.usefixtures("hooked")
def test_bad_samples_are_alone(anchor: str) -> None:
    """NaN gives NaN, and the others are in the set; infinite and huge points, and anchors that are not inside."""
    set = strings("a tensor", torch.float32)
    x, middle = made(anchor, torch.float32)
    x0, fine = placed(anchor, middle, x), torch.arange(len(x)) != 3
    for body, bad in ((1, math.nan), (5, math.nan), (1, math.inf), (1, 1e30), (1, 1e20), (5, 1e20)):
        points = x.clone()
        points[3, body, 1] = bad
        y = inset.project(set, points, x0)
        assert (excess(set, y[fine]) <= 0).all()
        assert bool(y[3].isnan().any()) == (not math.isfinite(bad))
        assert not math.isfinite(bad) or excess(set, y[3]) <= 0
        for strict in (True, False):
            left = strict or body == 1 or math.isnan(bad)
            assert (eager.fused(set, points, x0, "chord", strict) is None) == left
    wrong = x0.clone()
    wrong[3, 0] += 5.0
    for strict in (True, False):
        assert eager.fused(set, x, wrong, "chord", strict) is None
        y = inset.project(set, x, wrong, strict=strict)
        assert y[3].isnan().all() and y[fine].isfinite().all()


@pytest.mark.parametrize("anchor", ANCHORS)
def test_second_derivatives(anchor: str) -> None:
    """Are those of the formulas, by the anchor too, also where a span of it is 0 and those have none."""
    set = strings("a tensor", torch.float64)
    x, middle = made(anchor, torch.float64)
    found = []
    for apply in (fused, formulas):
        leaves = (x.clone().requires_grad_(), middle.clone().requires_grad_())
        y = apply(set, leaves[0], placed(anchor, leaves[1], x), "chord", False)
        first = grad((y**3).sum(), leaves, create_graph=True)
        found.append(grad(first[0].square().sum() + first[1].sum(), leaves))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10, equal_nan=True)
    assert found[0][0].isfinite().all()


@pytest.mark.parametrize("anchor", ANCHORS)
def test_gradients_come_in_batches(anchor: str) -> None:
    """Both ways that torch has of it."""
    set = strings("a tensor", torch.float64)
    x, middle = made(anchor, torch.float64)
    leaves = (x.clone().requires_grad_(), middle.clone().requires_grad_())
    y = fused(set, leaves[0], placed(anchor, leaves[1], x), "chord", False)
    g = torch.linspace(-1, 1, 3 * y.numel(), dtype=y.dtype).reshape(3, *y.shape)

    def pulled(g: Tensor) -> Any:
        return grad(y, leaves, g, retain_graph=True)

    expected = [torch.stack(column) for column in zip(*map(pulled, g), strict=True)]
    for found in (grad(y, leaves, g, retain_graph=True, is_grads_batched=True), torch.func.vmap(pulled)(g)):
        torch.testing.assert_close(list(found), expected, rtol=1e-9, atol=1e-9)


def test_changes_are_noticed() -> None:
    """Of links, lengths and x: before a call they count, between it and the backward pass they are an error."""
    set = strings("a tensor", torch.float64)
    assert isinstance(set.lengths, Tensor)
    x, middle = made("one place", torch.float64)
    anchor = middle.expand(x.shape)
    for changed in (set.links, set.lengths):
        before = fused(set, x, anchor)
        if changed is set.links:
            changed[0, 1] = 5
        else:
            changed.mul_(2.0)
        after = fused(set, x, anchor)
        assert not torch.equal(before, after)
        torch.testing.assert_close(after, formulas(set, x, anchor), rtol=1e-12, atol=1e-12)
        y = fused(set, x.clone().requires_grad_(), anchor)
        changed.add_(0)
        with pytest.raises(RuntimeError, match="inplace"):
            y.sum().backward()


def test_only_the_anchor_is_learned() -> None:
    """Then x gets no derivative; and a batch of anchors for one x."""
    set = strings("a number", torch.float64)
    x, middle = made("one place", torch.float64)
    leaf = middle.clone().requires_grad_()
    found = [grad(apply(set, x, leaf.expand(x.shape)).square().sum(), leaf) for apply in (fused, formulas)]
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-11)
    anchors = middle.expand(x.shape)
    torch.testing.assert_close(fused(set, x[-1], anchors), formulas(set, x[-1], anchors), rtol=1e-11, atol=1e-11)
    with torch.inference_mode():
        torch.testing.assert_close(fused(set, x, anchors), formulas(set, x, anchors), rtol=1e-11, atol=1e-11)


def test_is_none_elsewhere() -> None:
    """Where the formulas have to do it, or to refuse."""
    set = strings("a tensor", torch.float32)
    assert isinstance(set.lengths, Tensor)
    x, middle = made("one place", torch.float32)
    anchor = middle.expand(x.shape)

    def ask(set: Any, x: Any = x, anchor: Any = anchor, method: Any = "chord") -> Any:
        return eager.fused(set, x, anchor, method, True)

    assert ask(set) is not None
    assert ask(Strings(set.links, nn.Parameter(set.lengths))) is None
    assert ask(Strings(set.links, set.lengths.expand(24, 5))) is None
    assert ask(Strings(set.links, set.lengths.double())) is None
    assert ask(Strings(set.links.numpy(), 0.7)) is None
    assert ask(Strings(set.links, set.lengths.numpy())) is None
    assert ask(Strings(set.links[:0], 0.7)) is None
    assert ask(Strings(set.links, 1e-20)) is None
    assert ask(Strings(set.links, 1e-6 * set.lengths)) is None  # less than what rounding does
    assert ask(Strings(set.links - 1, 0.7)) is None
    assert ask(Strings(set.links + 3, 0.7)) is None
    assert ask(set, method="near") is None
    assert ask(set, x.half(), anchor.half()) is None
    assert ask(inset.Ball(torch.zeros(2), 1.0)) is None
    seen = []

    def mapped(x: Tensor) -> Tensor:
        seen.append(ask(set, x, anchor[0]))
        return x

    torch.func.vmap(mapped)(x)
    assert seen == [None]


@pytest.mark.parametrize("anchor", ANCHORS)
def test_autocast_changes_nothing(anchor: str) -> None:
    """On the way back neither: lengths in bfloat16 would leave the set."""
    set, (x, middle) = strings("a number", torch.float32), made(anchor, torch.float32, (3000,))
    found = []
    for cast in (False, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=cast):
            leaves = (x.clone().requires_grad_(), middle.clone().requires_grad_())
            y = fused(set, leaves[0], placed(anchor, leaves[1], x))
            found.append([y.detach(), *grad(y.square().mean(), leaves)])
    for plain, same in zip(*found, strict=True):
        assert torch.equal(plain, same)
    assert (excess(set, found[1][0]) <= 0).all()


def test_another_default_device() -> None:
    set, (x, middle) = strings("a number", torch.float64), made("apart", torch.float64)
    found = []
    for device in ("cpu", "meta"):
        eager._read.cache_clear()
        with torch.device(device):
            leaf = x.clone().requires_grad_()
            found.append(grad(fused(set, leaf, middle).sum(), leaf)[0])
    assert torch.equal(*found)


def test_many_links_need_no_matrix() -> None:
    """That of links and bodies would take gigabytes."""
    for n, needed in ((40, True), (100, False), (40_000, False)):
        links = torch.stack([torch.arange(n - 1), torch.arange(1, n)], -1)
        ends = eager._ends(links, n, 2, torch.float64)
        assert ends is not None and (ends.matrix is not None) == needed


@pytest.mark.parametrize("lengths", ["a number", "a tensor"])
@pytest.mark.parametrize("anchor", ANCHORS)
def test_bodies_without_a_matrix(anchor: str, lengths: str, monkeypatch: pytest.MonkeyPatch) -> None:
    set, (x, middle) = strings(lengths, torch.float64), made(anchor, torch.float64, d=3)
    found = []
    for most in (eager.DENSE, 0):
        monkeypatch.setattr(eager, "DENSE", most)
        eager._read.cache_clear()
        leaves = x.clone().requires_grad_(), middle.clone().requires_grad_()
        y = fused(set, leaves[0], placed(anchor, leaves[1], x))
        found.append([y.detach(), *grad(y.square().sum(), leaves)])
    eager._read.cache_clear()
    for dense, gathered in zip(*found, strict=True):
        torch.testing.assert_close(gathered, dense, rtol=1e-13, atol=1e-13)


def test_a_chain_of_many_bodies() -> None:
    n = 40_000
    set = Strings(torch.stack([torch.arange(n - 1), torch.arange(1, n)], -1), 0.1)
    x = torch.randn(1, n, 2, generator=torch.Generator().manual_seed(0))
    assert set.contains(fused(set, x, set.anchor(x))).all()


@pytest.mark.usefixtures("hooked")
def test_numbers_that_are_stored_as_their_negatives() -> None:
    set, x = strings("a number", torch.float32), made("apart", torch.float32)[0]
    layer = Projection(set)
    expected, flipped = layer(x), torch.complex(x, -x).conj().imag
    assert flipped.is_neg() and torch.equal(flipped, x)
    torch.testing.assert_close(layer(flipped), expected)
    anchor = set.anchor(x)
    turned = torch.complex(anchor, -anchor).conj().imag
    for _ in range(2):
        torch.testing.assert_close(layer(x, anchor=turned), layer(x, anchor=anchor))


def test_anchors_of_one_body_are_those_of_all() -> None:
    """Broadcast over the bodies by every method; other numbers of bodies are none."""
    set, (x, _) = strings("a number", torch.float64), made("apart", torch.float64)
    layer, middle = Projection(set), x.mean(-2, keepdim=True)
    for method in ("chord", "ray", "near", "paper"):
        expected = inset.project(set, x, middle.expand(x.shape), method=method)
        torch.testing.assert_close(inset.project(set, x, middle, method=method), expected)
        layer.method = method
        for _ in range(2):
            torch.testing.assert_close(layer(x, anchor=middle), expected)
    for wrong in (x[:, :2], x[:0]):
        for apply in (layer, lambda x, anchor: inset.project(set, x, anchor)):
            with pytest.raises(inset.PointShapeError):
                apply(x, anchor=wrong)


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.usefixtures("hooked")
def test_strict_where_squares_overflow(anchor: str) -> None:
    """Those of spans may where those of positions do not: 1.25e19 is half of 2.5e19."""
    for links, bodies in ((strings("a number", torch.float32).links, BODIES), (torch.tensor([[0, 1]]), 2)):
        set, (x, middle) = Strings(links, 0.7), made(anchor, torch.float32, (4,), far=0.0)
        x, middle = x[:, :bodies], middle[:, :bodies]
        x = x - x[:, :1] - (x[:, 1:2] - x[:, :1]) / 2
        for size in (1e12, 1e16, 1e19, 1.25e19, 1e25, 1e38):
            leaves = (x / x.abs().amax((1, 2), keepdim=True) * size).requires_grad_(), middle.requires_grad_()
            y = inset.project(set, leaves[0], placed(anchor, leaves[1], x))
            assert y.isfinite().all() and (excess(set, y.detach()) <= 0).all()
            assert all(v.isfinite().all() for v in grad(y.sum(), leaves))

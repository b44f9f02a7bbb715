"""`Projection` after its first call, on a CPU: it goes on with what it has prepared, while nothing has changed."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import pytest
import torch
from torch import Tensor

import inset
from inset import Ball, Box, Polytope, _fast
from inset._eager import lines
from inset.torch import Projection

A = torch.tensor([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
b = torch.tensor([1.0, 0.5, 0.5])


@pytest.mark.parametrize("set", [Polytope(A, b), Ball(torch.zeros(2), 1.0), Box(-torch.ones(2), 1.0)])
def test_a_second_call_is_prepared(set: inset.ConvexSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives what the first one did, to any batch, and notices what has changed."""
    layer, x = Projection(set, torch.zeros(2)), torch.tensor([[3.0, 4.0], [0.1, 0.2]])
    first = layer(x)
    monkeypatch.setattr(_fast, "PREPARED", [])
    monkeypatch.setattr(inset.torch, "project_checked", None)
    assert torch.equal(layer(x), first) and torch.equal(layer(x[0]), first[0])
    assert torch.equal(layer(x.expand(3, 2, 2)), first.expand(3, 2, 2))
    leaf = x.clone().requires_grad_()
    assert torch.equal(torch.autograd.grad(layer(leaf).sum(), leaf)[0][1], torch.ones(2))
    with pytest.raises(inset.PointShapeError):
        layer(torch.ones(3))
    monkeypatch.undo()
    assert layer.anchor_point is not None
    layer.anchor_point.get_buffer("0").add_(0.1)
    torch.testing.assert_close(layer(x), inset.project(set, x, torch.full((2,), 0.1)))


def test_a_prepared_call_notices_new_options_and_parts() -> None:
    """They may be set at any time."""
    x, ball = torch.tensor([[3.0, 4.0]]), Ball(torch.zeros(2), 1.0)
    layer, other = Projection(ball, torch.zeros(2)), Projection(Ball(torch.zeros(2), 2.0), torch.full((2,), 0.5))
    strict = layer(x)
    layer.strict = False
    assert bool((layer(x) > strict).all())
    layer.nonfinite = "anchor"
    assert torch.equal(layer(torch.tensor([[torch.nan, 0.0]])), torch.zeros(1, 2))
    layer.nonfinite = "propagate"
    layer(x)
    layer.fields = other.fields
    torch.testing.assert_close(layer(x), 2 * x / 5)
    layer.strict = True
    layer(x)
    layer.anchor_point = other.anchor_point
    assert torch.equal(layer(x), other(x))
    polytope = Projection(Polytope(A, b), torch.zeros(2))
    polytope(x)
    polytope.method = "paper"
    torch.testing.assert_close(polytope(x), inset.project(Polytope(A, b), x, torch.zeros(2), method="paper"))


def test_what_is_set_on_a_layer_later_is_checked() -> None:
    layer, x = Projection(Ball(torch.zeros(2), 2.0), torch.zeros(2)), torch.ones(3, 2)
    layer(x)
    for anchor, error in ((torch.zeros(1), inset.PointShapeError), (torch.zeros(2, dtype=torch.int64), TypeError)):
        with pytest.raises(error):
            torch.func.functional_call(layer, {"anchor_point.0": anchor}, (x,))
    layer.method = "Ray"  # type: ignore[assignment]
    with pytest.raises(ValueError, match="'Ray'"):
        layer(x)


def test_a_layer_that_moves_leaves_nothing_behind() -> None:
    layer = Projection(Polytope(A.clone(), b.clone()), torch.zeros(2))
    layer(torch.ones(2))
    assert layer.fields is not None
    old = weakref.ref(layer.fields.A)
    layer.double()
    gc.collect()
    assert old() is None


def test_only_a_cpu_is_prepared_for() -> None:
    """Elsewhere torch may be told between two calls to round products."""
    zero, x = torch.zeros(2, device="meta"), torch.ones(3, 2, device="meta")
    assert lines.prepared(Ball(torch.zeros(2), 1.0), x.new_ones(3, 2, device="cpu"), torch.zeros(2), "chord", True)
    assert lines.prepared(Ball(zero, 1.0), x, zero, "chord", True) is None


def policies(samples: int = 5) -> tuple[Tensor, Tensor]:
    """Means and log-stds far from those of a standard normal."""
    random = torch.Generator().manual_seed(samples)
    return torch.randn(samples, 3, generator=random), 0.5 * torch.randn(samples, 3, generator=random)


def kl(mean: Tensor, epsilon: float | Tensor = 0.05) -> inset.GaussianKL:
    return inset.GaussianKL(mean, torch.zeros(3), epsilon, average=False, parameterization="log_std")


@pytest.mark.parametrize("epsilon", [0.05, torch.tensor(0.05)])
def test_a_second_call_for_policies_is_prepared(epsilon: float | Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives what `project` does, with derivatives."""
    set = kl(torch.zeros(3), epsilon)
    layer = Projection(set, (torch.zeros(3), torch.zeros(3)))
    layer(policies())
    monkeypatch.setattr(_fast, "PREPARED", [])
    monkeypatch.setattr(inset.torch, "project_checked", None)
    for samples in (5, 8):
        found = []
        for apply in (layer, partial(inset.project, set)):
            x = tuple([v.requires_grad_() for v in policies(samples)])
            y = apply(x)
            found.append([*y, *torch.autograd.grad(y[0].square().sum() + y[1].sum(), x)])
        for ours, theirs in zip(*found, strict=True):
            assert torch.equal(ours, theirs)
    monkeypatch.undo()
    for wrong in (policies()[0], policies()[:1], (torch.ones(5, 4), torch.ones(5, 4))):
        with pytest.raises(inset.PointShapeError):
            layer(wrong)
    assert layer((torch.ones(0, 3), torch.ones(0, 3)))[0].shape == (0, 3)
    far = (torch.full((5, 3), 1e30), torch.ones(5, 3))  # for the formulas
    assert torch.equal(layer(far)[0], inset.project(set, far)[0])


@pytest.mark.parametrize("changed", ["mean", "anchor 0", "anchor 1"])
def test_a_layer_for_policies_notices_changes(changed: str) -> None:
    mean, anchor = torch.zeros(3), (torch.zeros(3), torch.zeros(3))
    layer = Projection(kl(mean), anchor)
    before = layer(policies())
    {"mean": mean, "anchor 0": anchor[0], "anchor 1": anchor[1]}[changed].add_(0.01)
    after = layer(policies())
    assert not torch.equal(after[0], before[0])
    for ours, theirs in zip(after, inset.project(kl(mean), policies(), anchor), strict=True):
        assert torch.equal(ours, theirs)


# -- anchors that are given in each call -------------------------------------------------------------------------

LINKS = torch.tensor([[0, 1], [1, 2]])


def flight(seed: int = 0, samples: int = 4) -> tuple[Tensor, Tensor]:
    """Three bodies far apart, and where they were before."""
    x = 3 * torch.randn(samples, 3, 2, generator=torch.Generator().manual_seed(seed))
    return x, x.roll(1, 0).mean(-2, keepdim=True).expand(x.shape)


def test_a_second_call_with_an_anchor_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives what `project` does, with derivatives, for each anchor, and checks shapes and dtypes as before."""
    set, layer, (x, anchor) = inset.Strings(LINKS, 1.0), Projection(inset.Strings(LINKS, 1.0)), flight()
    layer(x, anchor=anchor)
    for asked in ("project_checked", "_quickest"):
        monkeypatch.setattr(inset.torch, asked, None)
    for seed, samples in ((1, 4), (2, 7)):
        (x, anchor), leaves = flight(seed, samples), []
        for apply in (layer, partial(inset.project, set)):
            mine = x.clone().requires_grad_(), anchor[:, :1].clone().requires_grad_()
            y = apply(mine[0], anchor=mine[1].expand(x.shape))
            leaves.append((y.detach(), *torch.autograd.grad(y.square().sum(), mine)))
        for ours, theirs in zip(*leaves, strict=True):
            assert torch.equal(ours, theirs)
    monkeypatch.undo()
    for wrong, error in ((anchor[0, 0], inset.PointShapeError), (anchor.long(), TypeError)):
        with pytest.raises(error):
            layer(x, anchor=wrong)
    torch.testing.assert_close(layer(x, anchor=anchor.double()), layer(x, anchor=anchor))
    assert not torch.equal(layer(x), layer(x, anchor=anchor))  # by its own, the mean of x


def test_a_call_with_an_anchor_notices_what_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    lengths = torch.ones(2)
    layer, (x, anchor) = Projection(inset.Strings(LINKS.clone(), lengths)), flight()
    layer(x, anchor=anchor)
    lengths.mul_(0.5)
    shorter = inset.Strings(LINKS, 0.5)
    assert shorter.contains(layer(x, anchor=anchor)).all()
    assert layer.fields is not None and isinstance(layer.fields.links, Tensor)
    layer.fields.links[1] = torch.tensor([0, 2])
    assert inset.Strings(torch.tensor([[0, 1], [0, 2]]), 0.5).contains(layer(x, anchor=anchor)).all()
    layer.strict = False
    loose = layer(x, anchor=anchor)
    layer.method = "near"
    assert not torch.equal(layer(x, anchor=anchor), loose)
    layer.method = "chord"
    layer.double()
    assert layer(x.double(), anchor=anchor.double()).dtype == torch.float64
    y = torch.func.vmap(lambda x, x0: layer(x, anchor=x0))(x.double(), anchor.double())
    torch.testing.assert_close(y, layer(x.double(), anchor=anchor.double()))


@pytest.mark.parametrize("fixed", [False, True])
def test_a_second_call_without_an_anchor_is_prepared(monkeypatch: pytest.MonkeyPatch, fixed: bool) -> None:
    """By the anchor of the layer, or by one that is made of the points of this call."""
    set, place = inset.Strings(LINKS, 1.0), torch.tensor([[0.1, 0.2]]).expand(3, 2)
    layer = Projection(set, place if fixed else None)
    layer(flight()[0])
    for asked in ("project_checked", "_quickest", "project"):
        monkeypatch.setattr(inset.torch, asked, None)
    for seed, samples in ((1, 4), (2, 7)):
        x, found = flight(seed, samples)[0], []
        for apply in (layer, partial(inset.project, set, anchor=place if fixed else None)):
            leaf = x.clone().requires_grad_()
            y = apply(leaf)
            found.append((y.detach(), *torch.autograd.grad(y.square().sum(), leaf)))
        for ours, theirs in zip(*found, strict=True):
            torch.testing.assert_close(ours, theirs)
        assert set.contains(found[0][0]).all()
    monkeypatch.undo()
    x = flight()[0]
    if not fixed:
        layer.anchor_point = inset._layer.FixedPoint(place)
        torch.testing.assert_close(layer(x), inset.project(set, x, place))
        layer.anchor_point = None
    else:
        assert isinstance(layer.anchor, Tensor)
        before = layer(x)
        layer.anchor[:1].copy_(torch.ones(2))  # of which the others are views
        assert not torch.equal(layer(x), before)
        torch.testing.assert_close(layer(x), inset.project(set, x, torch.ones(3, 2)))
    torch.testing.assert_close(layer(1e30 * x), inset.project(set, 1e30 * x, layer.anchor), equal_nan=True)
    with pytest.raises(inset.PointShapeError):
        layer(x[0, 0])


def test_sets_without_few_operations_take_anchors_too() -> None:
    """Also those that are handed back to the formulas, point by point."""
    x, anchor = 3 * torch.randn(5, 2, generator=torch.Generator().manual_seed(0)), 0.1 * torch.ones(5, 2)
    for set in (Polytope(A, b), Ball(torch.zeros(2), 1.0)):
        layer = Projection(set, torch.zeros(2))
        for _ in range(2):
            torch.testing.assert_close(layer(x, anchor=anchor), inset.project(set, x, anchor))
            torch.testing.assert_close(layer(x), inset.project(set, x, torch.zeros(2)))
    layer, (x, anchor) = Projection(inset.Strings(LINKS, 1.0)), flight()
    for size in (1.0, 1e30, 1.0):
        torch.testing.assert_close(
            layer(size * x, anchor=anchor), inset.project(inset.Strings(LINKS, 1.0), size * x, anchor)
        )


def test_anchors_given_under_transforms() -> None:
    """Of a layer whose arrays are those of a transform, and of one whose code a compiler reads."""
    (x, anchor), lengths = flight(), torch.tensor([[0.5, 1.0]] * 4)
    layer = Projection(inset.Strings(LINKS, torch.ones(2)))

    def call(lengths: Tensor, x: Tensor, anchor: Tensor) -> Tensor:
        return torch.func.functional_call(layer, {"fields.lengths": lengths}, (x,), {"anchor": anchor})

    y = torch.func.vmap(call)(lengths, x, anchor)
    torch.testing.assert_close(y, inset.project(inset.Strings(LINKS, lengths), x, anchor))
    slope = torch.func.jacrev(call)(lengths[0], x, anchor)
    assert slope.isfinite().all() and slope.abs().max() > 0.1
    ball = Projection(inset.Ball(torch.zeros(2), 1.0), torch.zeros(2), method=inset.Near(steps=5))
    points, inside = 3 * torch.ones(5, 2), torch.full((5, 2), 0.1)
    program = torch.compile(ball, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(program(points, anchor=inside), ball(points, anchor=inside))

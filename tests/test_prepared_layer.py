"""`Projection` after its first call, on a CPU: it goes on with what it has prepared, while nothing has changed."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import inset
from inset import Ball, Box, Polytope
from inset._eager import lines
from inset.torch import Projection

A = torch.tensor([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
b = torch.tensor([1.0, 0.5, 0.5])


@pytest.mark.parametrize("set", [Polytope(A, b), Ball(torch.zeros(2), 1.0), Box(-torch.ones(2), 1.0)])
def test_a_second_call_is_prepared(set: inset.ConvexSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gives what the first one did, to any batch, and notices what has changed."""
    layer, x = Projection(set, torch.zeros(2)), torch.tensor([[3.0, 4.0], [0.1, 0.2]])
    first = layer(x)
    monkeypatch.setattr(inset.torch, "PREPARED", [])
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

"""The layers under `torch.compile`: one node that AOT autograd looks into, few guards, and nothing that goes stale."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo import compiled_autograd

import inset
from inset import Ball, Box, PointShapeError, Polytope, Product, Strings, Sublevel
from inset import _layer as parts_of_a_layer
from inset.torch import Projection, TrustRegion

A = torch.tensor([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
b = torch.tensor([1.0, 0.5, 0.5], dtype=torch.float64)
zero = torch.zeros(2, dtype=torch.float64)
far = torch.tensor([[3.0, 4.0], [-2.0, 0.3], [0.1, 0.0]], dtype=torch.float64)


@pytest.fixture(autouse=True)
def start_afresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def compiled(layer: Any, **options: Any) -> Any:
    return torch.compile(layer, fullgraph=True, backend="aot_eager", **options)


def assert_equal_to_eager(function: Any, layer: Any, *x: Tensor) -> None:
    """Values, and gradients by the points and the parameters."""
    results = []
    for g in (function, layer):
        z = [v.clone().requires_grad_() for v in x]
        y = g(tuple(z) if len(z) > 1 else z[0])
        y = y if isinstance(y, tuple) else (y,)
        loss = torch.stack([torch.sin(1 + v).sum() for v in y]).sum()
        results.append((*y, *torch.autograd.grad(loss, [*z, *layer.parameters()])))
    for given, expected in zip(*results, strict=True):
        torch.testing.assert_close(given, expected, rtol=1e-9, atol=1e-9)


LAYERS: tuple[tuple[Callable[[], Any], Any], ...] = (
    (lambda: Projection(Polytope(A, b) & Ball(zero, 1.0)), far),
    (lambda: Projection(Ball(zero, 1.0), method="ray"), far),
    (lambda: Projection(Strings(torch.tensor([[0, 1]]), torch.ones(1))), torch.randn(3, 2, 2)),
    (lambda: Projection(Product((Ball(zero, 1.0), Box(-1.0, 1.0))), (zero, zero)), (far, far)),
    (lambda: TrustRegion(), ((torch.randn(5, 2), torch.ones(2)), (torch.randn(5, 2), torch.ones(2)))),
    (lambda: TrustRegion(kappa=0.5), ((torch.randn(5, 2), torch.ones(2)), (torch.randn(5, 2), torch.ones(2)))),
)


@pytest.mark.parametrize("build, x", LAYERS)
def test_few_guards(build: Callable[[], Any], x: Any) -> None:
    """25 without a layer; when Dynamo reads the code of `project`, 330 to 520."""
    counts: list[int] = []

    def count(guards: Any) -> list[bool]:
        counts.append(len(guards))
        return [True] * len(guards)

    layer = build()
    function = torch.compile(layer, fullgraph=True, backend="eager", options={"guard_filter_fn": count})
    function(*x) if isinstance(layer, TrustRegion) else function(x)
    assert len(counts) == 1 and counts[0] < 120


def test_a_field_that_changes() -> None:
    """In place, replaced, loaded, in another dtype."""
    layer = Projection(Polytope(A.clone(), b.clone()), zero.clone())
    function = compiled(layer)
    assert_equal_to_eager(function, layer, far)
    assert layer.fields is not None
    before = function(far)
    layer.get_buffer("fields.b").mul_(0.5)
    assert_equal_to_eager(function, layer, far)
    assert not torch.equal(function(far), before)
    layer.fields.b = 2 * b
    assert_equal_to_eager(function, layer, far)
    layer.load_state_dict(Projection(Polytope(2 * A, b), zero + 0.01).state_dict())
    assert_equal_to_eager(function, layer, far)
    assert function(far.float()).dtype == torch.float32
    layer.float()
    torch.testing.assert_close(function(far.float()), layer(far.float()))


def test_fields_that_learn() -> None:
    layer = Projection(Ball(nn.Parameter(zero.clone()), nn.Parameter(torch.tensor(1.0).double())))
    assert layer.anchor is None
    assert_equal_to_eager(compiled(layer), layer, far)
    polytope = Projection(Polytope(nn.Parameter(A.clone()), nn.Parameter(b.clone())), zero)
    assert_equal_to_eager(compiled(polytope), polytope, far)


def test_options_that_change() -> None:
    layer = Projection(Polytope(A, b), zero)
    function = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for name, value in (("strict", False), ("nonfinite", "anchor")):
        setattr(layer, name, value)
        assert_equal_to_eager(function, layer, far)
    assert torch.equal(function(torch.full((1, 2), torch.nan).double())[0], zero)
    region, old = TrustRegion(0.01), (zero.float()[None], zero.float())
    update = torch.compile(region, fullgraph=True, backend="aot_eager")
    for epsilon in (0.01, 0.02):  # a number that has changed before is a symbol
        region.epsilon = epsilon
        new = far.float()[:1], far.float()[1]
        torch.testing.assert_close(update(new, old), region(new, old))


def test_batches_of_any_size() -> None:
    layer = Projection(Polytope(A, b), zero)
    function = compiled(layer, dynamic=True)
    for count in (2, 3, 5):
        assert_equal_to_eager(function, layer, 3 * torch.randn(count, 2, dtype=torch.float64))


def test_anchor_per_call_and_tuples() -> None:
    layer = Projection(Polytope(A, b), zero)
    function = compiled(lambda x: layer(x, anchor=zero + 0.1))
    torch.testing.assert_close(function(far), layer(far, anchor=zero + 0.1))
    pair = Projection(Product((Ball(zero, 1.0), Box(-1.0, 1.0))), (zero, zero))
    assert_equal_to_eager(compiled(pair), pair, far, -far)


def test_layers_of_one_kind_share_a_program() -> None:
    programs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        programs.append(graph)
        return graph.forward

    for k in range(3):
        layer = Projection(Polytope(A, b + k), zero)
        torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend=backend)(far), layer(far))
    assert len(programs) == 1


def test_after_pickling() -> None:
    """In a new process the sets of the library have not been met before."""
    layer = Projection(Ball(zero, 1.25), zero)
    text = pickle.dumps(layer)
    parts_of_a_layer._TEMPLATES.clear()
    twin = pickle.loads(text)
    assert_equal_to_eager(compiled(twin), layer, far)


def test_code_of_the_users_is_read() -> None:
    """What it looks up may change, and Dynamo has to notice."""

    @inset.convex_set
    class Disc(inset.ConvexSet):
        radius: Any
        event_ndim = 1
        shapes = {"radius": "", "x": "n"}

        def constraints(self, x: Any) -> Any:
            return (x.square().sum(-1) - self.radius)[..., None]

    for set in (Disc(torch.tensor(1.0)), Sublevel(lambda x: x.square().sum(-1) - 1, finite=True)):
        layer = Projection(set & Ball(torch.zeros(2), 3.0), torch.zeros(2))
        assert layer.fields is not None and layer.fields.kind is None
        torch.testing.assert_close(compiled(layer)(far.float()), layer(far.float()))


WRONG: tuple[tuple[Callable[[], Any], Any], ...] = (
    (lambda: Projection(Ball(zero, 1.0)), torch.randn(2, 3)),
    (lambda: Projection(Ball(zero, 1.0)), torch.ones(2, 2, dtype=torch.int64)),
    (lambda: Projection(Ball(zero, 1.0)), (far, far)),
    (lambda: Projection(Product((Ball(zero, 1.0), Box(-1.0, 1.0))), (zero, zero)), far),
    (lambda: Projection(Polytope(A, b) & Box(-1.0, 1.0)), torch.tensor(1.0)),
)


@pytest.mark.parametrize("build, x", WRONG)
def test_errors_are_those_of_eager(build: Callable[[], Any], x: Any) -> None:
    layer = build()
    with pytest.raises((PointShapeError, TypeError)) as expected:
        layer(x)
    with pytest.raises(expected.type) as received:
        torch.compile(layer, backend="eager")(x)
    assert str(received.value) == str(expected.value)


def test_errors_found_within() -> None:
    """A field of another shape, put in by hand: Dynamo reports it, in the words of the set."""
    layer = Projection(Polytope(A, b), zero)
    assert layer.fields is not None
    layer.fields.b = torch.ones(1).double()
    with pytest.raises(RuntimeError, match="m is 3 in A but 1 in b"):
        torch.compile(layer, backend="eager")(far)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # at which torch looks itself
@pytest.mark.parametrize("shape", [(4, 3), (5, 4, 3), (5000, 4, 3)])
def test_compiled_autograd(shape: tuple[int, ...]) -> None:
    """Of a forward pass that was not compiled: one Gaussian, a batch by NumPy, a large one by torch."""
    random = torch.Generator().manual_seed(0)
    wide = (*shape[:-2], shape[-1])
    x = tuple([torch.randn(*size, generator=random).requires_grad_() for size in (shape, wide)])
    mean, log_std = TrustRegion()(x, (torch.zeros(shape), torch.zeros(wide)))  # type: ignore[arg-type]
    loss = mean.square().sum() + log_std.sum()
    expected = torch.autograd.grad(loss, x, retain_graph=True)
    with compiled_autograd._enable(torch.compile(backend="eager")):
        loss.backward()
    for v, slope in zip(x, expected, strict=True):
        assert v.grad is not None
        torch.testing.assert_close(v.grad, slope)

"""What calls remember: it is for the same numbers as now, and goes with the tensors that it was made of."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, distributed, nn
from torch._C._distributed_c10d import HashStore

from inset import Ball, Box, Polytope, Strings
from inset._eager import calls
from inset.torch import Projection, TrustRegion, project

CORNERS = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("write", ["data", "numpy", "in place"])
def test_an_old_policy_may_be_written_over(write: str, count: int) -> None:
    """As a rollout buffer is, also unseen by torch."""
    shape = (count, 8, 2) if count > 1 else (8, 2)
    memory = np.zeros(shape), np.zeros((*shape[:-2], 2))
    old = tuple([torch.from_numpy(v) if write == "numpy" else torch.from_numpy(v).clone() for v in memory])
    region, new = TrustRegion(0.01), (torch.ones(shape).double(), torch.ones(*shape[:-2], 2).double())
    before = region(new, old)  # type: ignore[arg-type]
    for k in (0, 1):  # the means alone, and then the scales
        if write == "numpy":
            memory[k][:] = 0.5
        elif write == "data":
            old[k].data.fill_(0.5)
        else:
            old[k].fill_(0.5)
        after, fresh = region(new, old), region(new, (old[0].clone(), old[1].clone()))  # type: ignore[arg-type]
        assert not torch.allclose(after[k], before[k])
        for a, b in zip(after, fresh, strict=True):
            assert torch.equal(a, b)


def test_arrays_of_numpy_are_copied_into_a_layer() -> None:
    """Otherwise a change of them would be noticed by some calls and not by others."""
    b, low, anchor = np.ones(4), -np.ones(2), np.zeros(2)
    polytope = Projection(Polytope(torch.from_numpy(CORNERS), torch.from_numpy(b)), torch.from_numpy(anchor))
    box, x = Projection(Box(low, 1.0), torch.from_numpy(anchor)), torch.full((1, 2), -5.0, dtype=torch.float64)
    before = polytope(x), box(x)
    b[:], low[:], anchor[:] = 0.1, -0.1, 0.05
    assert torch.equal(polytope(x), before[0]) and torch.equal(box(x), before[1])
    owned = torch.ones(4, dtype=torch.float64)
    layer = Projection(Polytope(torch.from_numpy(CORNERS), owned), torch.zeros(2, dtype=torch.float64))
    layer(x)
    assert layer.fields is not None and layer.fields.b is owned


@pytest.mark.parametrize("shared", ["numpy", "processes"])
def test_memory_that_others_write_to_is_read_at_each_call(shared: str) -> None:
    """They do so without a sign of it."""
    memory, anchor = np.ones(4), torch.zeros(2, dtype=torch.float64)
    b = torch.from_numpy(memory) if shared == "numpy" else torch.ones(4, dtype=torch.float64).share_memory_()
    set, x = Polytope(torch.from_numpy(CORNERS), b), torch.full((1, 2), 5.0, dtype=torch.float64)
    layer = Projection(set, anchor)
    for size in (1.0, 0.5, 0.25):
        b.data.fill_(size)
        assert size - 1e-12 < project(set, x, anchor).max() <= size
        if shared == "processes":  # which a layer is to see too
            assert size - 1e-12 < layer(x).max() <= size


@pytest.fixture
def process_group() -> Iterator[None]:
    distributed.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_what_collectives_write_is_read_at_each_call(process_group: None) -> None:
    """They do so without a sign of it, as through `.data`."""
    radius, anchor, x = torch.tensor(1.0), torch.zeros(2), torch.full((1, 2), 5.0)
    layer = Projection(Ball(anchor, radius), anchor)
    for size in (1.0, 0.5, 0.25):
        radius.data.fill_(size)
        for y in (layer(x), project(Ball(anchor, radius), x, anchor)):
            assert size - 1e-5 < y.norm() <= size


def ball(field: Tensor) -> tuple[Any, Tensor]:
    return Ball(field, 1.0), field


def box(field: Tensor) -> tuple[Any, Tensor]:
    return Box(-1.0, field + 1), field


def crossed(field: Tensor) -> tuple[Any, Tensor]:
    """Two sets, each anchored at what the other is made of."""
    other = torch.full((2,), 0.1)
    project(Ball(field, 1.0), torch.ones(2), other)
    return Ball(other, 1.0), field


@pytest.mark.parametrize("made", [ball, box, crossed])
def test_what_is_remembered_goes_with_the_anchor(made: Callable[[Tensor], tuple[Any, Tensor]]) -> None:
    """Also where the anchor is a field of the set."""
    gc.collect()
    before = len(calls._MEMORY)
    field = torch.zeros(2)
    set, anchor = made(field)
    project(set, torch.ones(3, 2), anchor)
    assert len(calls._MEMORY) > before  # something is remembered
    gone = weakref.ref(field)
    del set, anchor, field
    gc.collect()
    assert gone() is None and len(calls._MEMORY) == before


def test_it_is_not_for_another_field_in_the_same_place() -> None:
    """A tensor that is gone may leave its address to the next one."""
    anchor, x = torch.zeros(2), torch.full((2,), 9.0)
    for size in (1.0, 2.0, 3.0):
        for _ in range(20):
            y = project(Polytope(torch.from_numpy(CORNERS).float(), torch.full((4,), size)), x, anchor)
            assert size - 1e-4 < y.max() <= size


def test_parameters_get_other_numbers_without_a_sign() -> None:
    """Frozen ones too, of conversions and of what sets all of them."""
    layer = Projection(Ball(nn.Parameter(torch.full((3,), 0.3)), nn.Parameter(torch.tensor(2.1)))).requires_grad_(False)
    set, x = layer.set, 20 * torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    assert set is not None and set.contains(layer(x)).all()
    layer.bfloat16().float()
    assert layer.set is not None and layer.set.contains(layer(x)).all()
    nn.utils.vector_to_parameters(torch.tensor([0.0, 0.0, 0.0, 1.0]), layer.parameters())
    y = layer(x)
    assert layer.set.contains(y).all() and y.norm(dim=-1).median() > 0.99


def test_strings_notice_links_that_change() -> None:
    links, x = torch.tensor([[0, 1], [1, 2]]), torch.tensor([[0.0, 0.0], [3.0, 0.0], [9.0, 0.0]])
    set = Strings(links, 1.0)
    project(set, x)
    links.data.copy_(torch.tensor([[0, 1], [0, 1]]))
    assert (project(set, x)[0] - project(set, x)[2]).norm() > 2  # which nothing holds together now


def test_memory_that_numpy_is_told_of_later() -> None:
    """What was remembered before is forgotten."""
    eye, x, anchor = torch.eye(3), torch.full((2, 3), 9.0), torch.zeros(3)
    b = torch.ones(3)
    set, layer = Polytope(eye, b), Projection(Polytope(eye, b.clone()), anchor)
    for _ in range(3):
        assert project(set, x, anchor).max() > 0.9 and layer(x).max() > 0.9
    b.numpy()[:] = 0.1
    layer.get_buffer("fields.b").numpy()[:] = 0.1
    assert set.contains(project(set, x, anchor)).all()
    assert project(set, x, anchor).max() <= 0.1 and layer(x).max() <= 0.1


def test_layers_leave_tensors_where_they_are() -> None:
    """With another default device too, to which torch moves what it makes of others."""
    center, anchor = torch.zeros(2), torch.full((2,), 0.1)
    with torch.device("meta"):
        layer = Projection(Ball(center, 1.0), anchor)
    assert [v.device.type for v in layer.buffers()] == ["cpu"] * 2
    assert torch.equal(layer(anchor), anchor)


def test_learned_memory_of_numpy_is_learned() -> None:
    """A copy would be what the user's tensor gets no gradient through, and could not be copied itself."""
    center = torch.from_numpy(np.zeros(2)).requires_grad_()
    with torch.no_grad():
        layer = Projection(Ball(center, 1.0), torch.full((2,), 0.1, dtype=torch.float64))
    layer(torch.full((3, 2), 5.0, dtype=torch.float64)).sum().backward()
    assert center.grad is not None and bool((center.grad != 0).all())
    x = torch.ones(2, dtype=torch.float64)
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


@pytest.mark.parametrize("kind", ["strings", "few", "many"])
def test_what_the_way_back_needs_is_saved(kind: str) -> None:
    """Where checkpoints and other hooks of torch see it, and where it goes with the graph: not beside it."""
    if kind == "strings":
        x = torch.linspace(-3, 3, 40 * 5 * 2).reshape(40, 5, 2).requires_grad_()
        links = torch.tensor([[0, 1], [1, 2], [3, 4]])

        def made() -> Tensor:
            return Projection(Strings(links, torch.ones(3)))(x)
    else:
        d = 3 if kind == "few" else 200
        x = torch.linspace(-3, 3, 100 * d).reshape(100, d).requires_grad_()
        old = torch.zeros(100, d), torch.zeros(d)

        def made() -> Tensor:
            return TrustRegion(0.01)((x, torch.zeros(d)), old)[0]

    y, seen = made(), []
    node: Any = y.grad_fn
    assert not [v for v in _flat(vars(node)) if isinstance(v, Tensor)]
    (plain,) = torch.autograd.grad(y.square().sum(), x)

    def pack(v: Tensor) -> Tensor:
        seen.append(v)
        return v.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda v: v):
        y = made()
    (hooked,) = torch.autograd.grad(y.square().sum(), x)
    assert torch.equal(hooked, plain) and len(seen) >= 4


def _flat(v: Any) -> list[Any]:
    if isinstance(v, dict):
        return _flat(list(v.values()))
    return [u for w in v for u in _flat(w)] if isinstance(v, (tuple, list)) else [v]

"""Matrix products that torch is told to shorten: the promise of `strict` holds all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import Tensor

import inset
from inset import LMI, Polytope, Quadratic, SecondOrderCone, Strings
from inset._eager import strings
from inset._namespace import reduced_products
from inset.torch import Projection

N = 40
BACKENDS: Any = torch.backends


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def polytope() -> inset.ConvexSet:
    return Polytope(normal(3 * N, N), torch.ones(3 * N))


def quadratic() -> inset.ConvexSet:
    root = normal(N, N)
    return Quadratic(root @ root.mT, 0.1 * normal(N), -1.0)


def cones() -> inset.ConvexSet:
    return SecondOrderCone(normal(4, 8, N), 0.1 * normal(4, 8), 0.1 * normal(4, N), torch.ones(4))


def lmi() -> inset.ConvexSet:
    A = normal(N, 6, 6)
    return LMI(A + A.mT, -torch.eye(6))


def bodies() -> inset.ConvexSet:
    return Strings(torch.tensor([[0, 1], [1, 2], [2, 3]]), 1.0)


SETS: list[Callable[[], inset.ConvexSet]] = [polytope, quadratic, cones, lmi, bodies]


@pytest.fixture
def full() -> Iterator[None]:
    """The settings are those of torch afterwards."""
    yield
    lengthen()


def shorten(how: str) -> None:
    if how == "mkldnn":
        BACKENDS.mkldnn.matmul.fp32_precision = "bf16"
    else:
        torch.set_float32_matmul_precision(how)


def lengthen() -> None:
    torch.set_float32_matmul_precision("highest")
    BACKENDS.mkldnn.matmul.fp32_precision = "none"


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("how", ["high", "medium", "mkldnn"])
def test_settings_are_seen(how: str) -> None:
    """Which of them count depends on the processor: bfloat16 is for some alone."""
    x = torch.zeros(2)
    assert not reduced_products(x)
    shorten(how)
    assert reduced_products(x)


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("made", SETS)
@pytest.mark.parametrize("how", ["medium", "mkldnn"])
def test_strict_holds_with_short_products(how: str, made: Callable[[], Any]) -> None:
    """Also for a layer that was called before, and in compiled programs."""
    set, x = made(), 3 * normal(500, 4, 2) if made is bodies else 3 * normal(500, N)
    anchor = set.anchor(x) if made is bodies else torch.zeros(N)
    layer: Any = Projection(set) if made is bodies else Projection(set, anchor)
    before = layer(x)
    shorten(how)
    torch._dynamo.reset()  # which counts the programs of a line of code
    program = torch.compile(lambda x: inset.project(set, x, anchor), fullgraph=True, backend="aot_eager")
    found = [layer(x), inset.project(set, x, anchor), program(x)]
    lengthen()
    wide: Any = layer.double().set
    for y in found:
        assert wide.h(y.double()).max() <= 0
        torch.testing.assert_close(y, before, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("full")
def test_layers_do_not_go_on_with_what_they_have_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """On any processor, whether it shortens products or not."""
    set, x = polytope(), 3 * normal(50, N)
    layer = Projection(set, torch.zeros(N))
    layer(x)
    assert layer._quick is not None and layer._quick.applies(x, None, layer._options())
    shorten("medium")
    assert not layer._quick.applies(x, None, layer._options())
    assert strings.fused(bodies(), normal(5, 4, 2), torch.zeros(5, 4, 2), "chord", True) is None

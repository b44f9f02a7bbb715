"""Samples in chunks: the same results and derivatives as all at once, in bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import inset
import inset._chunks
import inset.jax  # sets become arguments of jit
from cases import CASES, Case, convert, to_float64
from inset._chunks import _count
from inset._fields import leaves
from inset.torch import Projection

BY_NAME = {case.name: case for case in CASES}
#: Sets with fields that are the same for all samples, of every kind of formula.
CUT = ("polytope", "ball-2", "ellipsoid", "quadratic", "second-order-cone", "lmi", "strings", "intersection")
#: For XLA: these functions run once.
QUICK: Any = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


@pytest.fixture
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A call after which samples go in chunks, of a set with m constraints in about n of them."""
    return lambda: monkeypatch.setattr(inset._chunks, "AT_ONCE", 1)


def prepared(case: Case, framework: str, *batch: int, dtype: str = "float64") -> tuple[Any, Any, Any]:
    """The set, points and the anchor of the case; few of the points are inside."""
    x = case.points(np.random.default_rng(3), *batch)
    set, x, anchor = (convert(value, framework, dtype) for value in (case.set, x, case.anchor))
    return set, x, anchor


def assert_close(given: Any, expected: Any, rtol: float = 1e-12) -> None:
    for a, b in zip(leaves(given), leaves(expected), strict=True):
        a, b = (np.asarray(v.detach() if isinstance(v, torch.Tensor) else v) for v in (a, b))
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", (*CUT, "equality"))
@pytest.mark.parametrize("framework", ("numpy", "torch"))
def test_chunks_equal_the_whole(name: str, framework: str, few_at_once: Any) -> None:
    """Points and `Info` of a batch of two dimensions, whose size no number of chunks divides."""
    set, x, anchor = prepared(BY_NAME[name], framework, 7, 11)
    assert _count(set, x, anchor) == 1
    whole = inset.project_with_info(set, x, anchor)
    few_at_once()
    assert _count(set, x, anchor) > 1
    chunks = inset.project_with_info(set, x, anchor)
    assert isinstance(chunks[1], inset.Info)
    assert_close(chunks, whole)
    assert_close(inset.project(set, x, anchor), whole[0])


@pytest.mark.parametrize("method", ("paper", "ray", inset.Near(steps=3)), ids=str)
def test_every_method(method: Any, few_at_once: Any) -> None:
    set, x, anchor = prepared(BY_NAME["intersection"], "torch", 40)
    whole = inset.project_with_info(set, x, anchor, method=method)
    few_at_once()
    assert _count(set, x, anchor) > 1
    assert_close(inset.project_with_info(set, x, anchor, method=method), whole)


def test_an_anchor_of_each_sample_is_cut_along(few_at_once: Any) -> None:
    set, x, anchor = prepared(BY_NAME["polytope"], "torch", 5, 8)
    anchors = anchor + 0.1 * torch.rand(8, 4, generator=torch.Generator().manual_seed(0)).double()
    whole = inset.project_with_info(set, x, anchors)
    few_at_once()
    assert _count(set, x, anchors) > 1
    assert_close(inset.project_with_info(set, x, anchors), whole)


@inset.convex_set
class Rechecked(inset.ConvexSet):
    """A set of a user, without rounding bounds: the result is checked again, in the batch that the user sees."""

    A: Any

    event_ndim = 1
    shapes = {"A": "m n", "x": "n"}

    def constraints(self, x: Any) -> Any:
        assert x.shape[0] == 40  # every call has all samples
        return x @ self.A.T - 1


def varying() -> dict[str, tuple[Any, Any, Any]]:
    """Sets that may be another one for each sample, or see all of them, and a point that has not the whole batch."""
    polytope, x, anchor = prepared(BY_NAME["polytope"], "torch", 40)
    shift = 0.01 * torch.arange(40).double()[:, None]

    def centred(x: torch.Tensor) -> torch.Tensor:
        assert x.shape[0] == 40
        return (x - x.mean(0)).square().sum(-1) - 1

    return {
        "A": (inset.Polytope(polytope.A + shift[..., None], polytope.b), x, anchor),
        "b": (inset.Polytope(polytope.A, polytope.b + shift), x, anchor),
        "equality": (polytope & inset.Equality(torch.ones(1, 4).double(), shift), x, shift.expand(40, 4) / 4),
        "rechecked": (Rechecked(polytope.A), x, anchor),
        "function": (inset.Sublevel(centred), x, x.mean(0).expand(40, 4)),
        "point": (polytope, x[:8], anchor.expand(5, 8, 4)),
    }


@pytest.mark.parametrize("name", ("A", "b", "equality", "rechecked", "function", "point"))
def test_what_differs_between_samples_is_not_cut(name: str, few_at_once: Any) -> None:
    set, x, anchor = varying()[name]
    whole = inset.project_with_info(set, x, anchor)
    few_at_once()
    assert_close(inset.project_with_info(set, x, anchor), whole, 0.0)
    assert _count(set, x, anchor) == 1


# -- derivatives and transforms -------------------------------------------------------------------------


def torch_derivatives(A: Any, b: Any, x: Any, anchor: Any) -> tuple[Any, ...]:
    """g(x) and its `Info`; derivatives of a function of g(x) by all inputs; how those change with x, in a direction."""
    inputs = [v.clone().requires_grad_() for v in (A, b, x, anchor)]
    y, info = inset.project_with_info(inset.Polytope(*inputs[:2]), *inputs[2:])
    first = torch.autograd.grad(torch.sin(1 + y).sum(), inputs, create_graph=True)
    slope = torch.stack([(torch.cos(v) * v).sum() for v in first]).sum()
    return y, info, first, torch.autograd.grad(slope, inputs)


def jax_derivatives(*inputs: Any) -> tuple[Any, ...]:
    """The same by JAX, under jit, but for the direction."""

    def value(A: Any, b: Any, x: Any, anchor: Any) -> Any:
        y, info = inset.project_with_info(inset.Polytope(A, b), x, anchor)
        return jnp.sin(1 + y).sum(), (y, info)

    def derivatives(x: Any) -> Any:
        return jax.grad(value, (0, 1, 2, 3), has_aux=True)(*inputs[:2], x, inputs[3])

    def everything(x: Any) -> Any:
        first, second, (y, info) = jax.jvp(derivatives, (x,), (jnp.cos(x),), has_aux=True)
        return y, info, first, second

    return jax.jit(everything, compiler_options=QUICK)(inputs[2])


@pytest.mark.parametrize("framework", ("torch", "jax"))
def test_derivatives(framework: str, few_at_once: Any) -> None:
    """First and second, by the points, and by the fields and the anchor, which the chunks share.

    In chunks of four, three of the 43 samples are left.
    """
    set, x, anchor = prepared(BY_NAME["polytope"], framework, 43)
    derivatives = torch_derivatives if framework == "torch" else jax_derivatives
    whole = derivatives(set.A, set.b, x, anchor)
    assert all(np.any(np.asarray(v.detach() if framework == "torch" else v)) for v in leaves(whole))
    few_at_once()
    assert _count(set, x, anchor) == 11
    assert_close(derivatives(set.A, set.b, x, anchor), whole, 1e-9)


def test_compile_equals_the_whole(few_at_once: Any) -> None:
    set, x, anchor = prepared(BY_NAME["polytope"], "torch", 7)
    layer = Projection(set, anchor)
    results = []
    for cut in (False, True):
        if cut:
            few_at_once()
            assert _count(set, x, anchor) > 1
            torch.compiler.reset()
        function = torch.compile(layer, fullgraph=True, backend="eager") if cut else layer
        z = x.clone().requires_grad_()
        y = function(z)
        results.append((y, torch.autograd.grad(torch.sin(1 + y).sum(), z)[0]))
    assert_close(results[1], results[0])


def test_vmap_equals_the_whole(few_at_once: Any) -> None:
    """Over a leading dimension, with a batch inside."""
    set, x, anchor = prepared(BY_NAME["polytope"], "torch", 3, 20)
    whole = inset.project(set, x, anchor)
    few_at_once()
    assert _count(set, x[0], anchor) > 1
    assert_close(torch.func.vmap(lambda x: inset.project(set, x, anchor))(x), whole)


def test_an_exported_batch_stays_of_any_size(few_at_once: Any) -> None:
    set, x, anchor = prepared(BY_NAME["polytope"], "torch", 40)
    layer = Projection(set, anchor)
    few_at_once()
    assert _count(set, x, anchor) > 1
    shapes = {"x": {0: torch.export.Dim("batch")}}
    program = torch.export.export(layer, (), {"x": x}, dynamic_shapes=shapes, strict=True).module()
    assert_close(program(x=x[:9]), layer(x[:9]))


# -- promises -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize("name", ("polytope", "intersection"))
def test_strict_holds_in_chunks(name: str, dtype: str, few_at_once: Any) -> None:
    set, x, anchor = prepared(BY_NAME[name], "torch", 500, dtype=dtype)
    few_at_once()
    assert _count(set, x, anchor) > 1
    y = inset.project(set, x, anchor)
    assert y.dtype == x.dtype
    assert set.contains(y).all() and to_float64(set).contains(y.double()).all()


def many_constraints(m: int, n: int, batch: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    return inset.Polytope(rng.normal(size=(m, n)), rng.uniform(1, 2, size=m)), rng.normal(size=(batch, n)), np.zeros(n)


def test_memory_of_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """All values at once are 16 MB, in several arrays; chunks of 2^18 numbers are 2 MB."""
    monkeypatch.setattr(inset._chunks, "AT_ONCE", 2**18)
    set, x, anchor = many_constraints(4000, 8, 512)
    tracemalloc.start()
    try:
        inset.project(set, x, anchor)
        assert tracemalloc.get_traced_memory()[1] < 16e6
    finally:
        tracemalloc.stop()


def test_memory_of_jit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forward and backward, as XLA plans it: less than one array of all values, which has 82 MB."""
    monkeypatch.setattr(inset._chunks, "AT_ONCE", 2**20)
    set, x, anchor = (convert(part, "jax") for part in many_constraints(20_000, 8, 512))
    function = jax.jit(jax.grad(lambda x, set: (inset.project(set, x, anchor) ** 2).sum()))
    plan: Any = function.lower(x, set).compile(QUICK).memory_analysis()
    assert plan.temp_size_in_bytes < 60e6


MEASURE = """
import sys, torch, inset, inset._chunks, inset._eager.lines
from inset._project import interpolated
torch.set_num_threads(1)
inset._chunks.AT_ONCE = inset._eager.lines.LARGEST = 2**20
apply = inset.project if sys.argv[1] == "project" else lambda set, x, x0: interpolated(set, x, x0, "chord", True)[0]

def peak():
    with open("/proc/self/status") as status:  # of this process alone: ru_maxrss counts that of its parent
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1e3

torch.manual_seed(0)
A, b = torch.randn(20_000, 8).double(), 1 + torch.rand(20_000).double()
x = torch.randn(1024, 8).double().requires_grad_()
set, anchor = inset.Polytope(A, b), torch.zeros(8).double()
apply(set, x[:4], anchor).sum().backward()
before = peak()
apply(set, x, anchor).square().sum().backward()
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("way", ["project", "formulas"])
def test_memory_of_torch(way: str) -> None:
    """Forward and backward, in few operations and by the formulas: all values at once are 164 MB, in several arrays."""
    # freed arrays go back at once, so that peaks are of what is in use
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "1000000"}
    command = [sys.executable, "-c", MEASURE, way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 100

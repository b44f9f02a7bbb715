"""Torch's transforms of a projection equal the eager one: compile, vmap and its relatives, export, autocast."""

from __future__ import annotations

import gc
import multiprocessing
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import inset
import inset._project
import inset._ray
from cases import CASES, Case, convert, repeats_the_chord
from inset._fields import leaves, map_point
from inset.torch import Projection
from test_onnx import RUN as EXPORTED_TO_ONNX

every_case = pytest.mark.parametrize("case", CASES, ids=repr)
both_methods = pytest.mark.parametrize("method", ("chord", "ray"))
BY_NAME = {case.name: case for case in CASES}

#: Compiling takes seconds. The chord of all sets but for variants of another one; the ray of each kind of search.
VARIANTS = ("box-numbers", "paraboloid", "gaussian-entropy-cholesky", "gaussian-kl-states", "gaussian-kl-cholesky")
RAYS = ("polytope", "ball-1", "ball-2", "quadratic", "psd", "spectral-ball", "exponential-cone", "gaussian-kl-log-std")
RAYS = (*RAYS, "strings", "sublevel-domain", "intersection", "equality")
COMPILED = [
    *((case, "chord") for case in CASES if case.name not in VARIANTS),
    *((BY_NAME[name], "ray") for name in RAYS),
]
#: AOT autograd traces forward and backward once more: one set of each kind of derivative, and of each way of joining.
AOT = (("polytope", "chord"), ("ball-1", "chord"), ("ball-2", "ray"), ("psd", "ray"), ("spectral-ball", "chord"))
AOT = (*AOT, ("exponential-cone", "ray"), ("gaussian-entropy-full", "chord"), ("gaussian-kl-log-std", "chord"))
AOT = (*AOT, ("strings", "chord"), ("sublevel-domain", "chord"), ("equality", "ray"), ("product", "chord"))
#: What `test_onnx.py` exports is compared there.
EXPORTED = [
    (case, method)
    for case in CASES
    for method in ("chord", "ray")
    if not repeats_the_chord(case, method) and (case.name, method) not in EXPORTED_TO_ONNX
]


def prepared(case: Case, count: int = 5, dtype: str = "float64") -> tuple[Any, Any, Any]:
    """The set, the anchor and a few points, most of them outside, in torch."""
    x = case.points(np.random.default_rng(1), count)
    return convert(case.set, "torch", dtype), convert(case.anchor, "torch", dtype), convert(x, "torch", dtype)


def rebuild(x: Any, arrays: tuple[Any, ...]) -> Any:
    """A point of the structure of x from its arrays in order."""
    rest = iter(arrays)
    return map_point(lambda _: next(rest), x)


def sample(x: Any, k: int) -> Any:
    return map_point(lambda leaf: leaf[k], x)


def loss(y: Any) -> torch.Tensor:
    """A number that depends on every coordinate of the result."""
    return sum((torch.sin(1 + leaf).sum() for leaf in leaves(y)), start=torch.zeros((), dtype=leaves(y)[0].dtype))


def assert_close(given: Any, expected: Any, rtol: float = 1e-9) -> None:
    for a, b in zip(leaves(given), leaves(expected), strict=True):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=rtol, atol=rtol * (1 + float(b.detach().abs().max())))


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short search on the ray: the graph of each step is the same, and tracing all sixteen takes minutes."""
    monkeypatch.setattr(inset._ray, "STEPS", 2)


# -- compile --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case, method", COMPILED, ids=repr)
def test_compile_equals_eager(case: Case, method: Any) -> None:
    """One graph without a break, and its values and gradients.

    Dynamo captures every pair, and autograd differentiates the graph; those of `AOT` go through AOT autograd as well,
    which takes as long again. That each forward pass can be traced functionally, its export shows.
    """
    set, anchor, x = prepared(case)
    layer = Projection(set, anchor, method=method)
    torch.compiler.reset()
    backend = "aot_eager" if (case.name, method) in AOT else "eager"
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    results = []
    for function in (compiled, layer):
        z = map_point(lambda leaf: leaf.clone().requires_grad_(), x)
        y = function(z)
        results.append((y, torch.autograd.grad(loss(y), leaves(z))))
    assert_close(*(y for y, _ in results))
    assert_close(*(grads for _, grads in results))


def test_compile_does_not_look_at_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """`check()` runs when the layer is built, and not when it is traced or called."""
    calls = []
    monkeypatch.setattr(inset.Ball, "check", lambda self: calls.append(self))
    layer = Projection(inset.Ball(torch.zeros(2), 1.0))
    assert len(calls) == 1
    torch.compiler.reset()
    torch.compile(layer, fullgraph=True, backend="eager")(torch.ones(3, 2))
    layer(torch.ones(3, 2))
    assert len(calls) == 1


# -- torch.func -----------------------------------------------------------------------------------------


@every_case
@both_methods
def test_vmap_equals_batch(case: Case, method: Any) -> None:
    set, anchor, x = prepared(case)

    def g(x: Any) -> Any:
        return inset.project(set, x, anchor, method=method)

    assert_close(torch.func.vmap(g)(x), g(x))


@every_case
@both_methods
def test_func_grad_equals_backward(case: Case, method: Any) -> None:
    set, anchor, x = prepared(case, 3)

    def value(*arrays: Any) -> Any:
        return loss(inset.project(set, rebuild(x, arrays), anchor, method=method))

    z = tuple(leaf.clone().requires_grad_() for leaf in leaves(x))
    expected = torch.autograd.grad(value(*z), z)
    wanted = tuple(range(len(z)))
    assert_close(torch.func.grad(value, wanted)(*leaves(x)), expected)
    assert_close(torch.func.vmap(torch.func.grad(value, wanted))(*leaves(x)), expected)


@every_case
def test_jacrev_and_hessian_are_finite_and_batch(case: Case) -> None:
    """Under vmap they equal those of each sample alone; the Hessian is symmetric."""
    set, anchor, x = prepared(case, 3)
    parts = leaves(x)
    which = len(parts) - 1  # the last array of a point: the variance of a Gaussian

    def g(z: torch.Tensor, *others: torch.Tensor) -> Any:
        return leaves(inset.project(set, rebuild(x, (*others, z)), anchor))[which]

    def value(z: torch.Tensor, *others: torch.Tensor) -> Any:
        return torch.sin(1 + g(z, *others)).sum()

    arguments = (parts[-1], *parts[:-1])
    jacobians = torch.func.vmap(torch.func.jacrev(g))(*arguments)
    hessians = torch.func.vmap(torch.func.hessian(value))(*arguments)
    assert torch.isfinite(jacobians).all() and torch.isfinite(hessians).all()
    one = tuple(leaf[0] for leaf in arguments)
    assert_close(jacobians[0], torch.func.jacrev(g)(*one))
    assert_close(hessians[0], torch.func.hessian(value)(*one), 1e-7)
    n = one[0].numel()
    square = hessians.reshape(-1, n, n)
    assert_close(square, square.mT, 1e-5)  # at the edge of a domain the terms are large and cancel


# -- export ---------------------------------------------------------------------------------------------


def export_error(name: str, method: str) -> float:
    """The largest difference between the exported program and the layer. Runs in a process of its own."""
    gc.set_threshold(50_000, 20, 20)  # as in `conftest.py`
    torch.set_num_threads(1)
    inset._ray.STEPS = 2
    inset._fast.FUSED.clear()  # what is exported are the formulas
    inset._fast.PREPARED.clear()
    set, anchor, x = prepared(BY_NAME[name])
    layer = Projection(set, anchor, method=method).eval()  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".torch.jit.script", DeprecationWarning)
        program = torch.export.export(layer, (x,))
    given, expected = leaves(program.module()(x)), leaves(layer(x))
    return max(float((a - b).detach().abs().max()) for a, b in zip(given, expected, strict=True))


class Elsewhere:
    """A worker process that is replaced after an error: a failed export leaves torch's transforms half open."""

    def __init__(self) -> None:
        self.pool: ProcessPoolExecutor | None = None

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            return self.pool.submit(function, *args).result()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self.pool is not None:
            self.pool.shutdown()
        self.pool = None


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    worker = Elsewhere()
    yield worker
    worker.close()


@pytest.mark.parametrize("case, method", EXPORTED, ids=repr)
def test_export_round_trip(case: Case, method: Any, elsewhere: Elsewhere) -> None:
    assert elsewhere.run(export_error, case.name, method) == 0.0


# -- autocast -------------------------------------------------------------------------------------------


@every_case
@both_methods
def test_autocast_network(case: Case, method: Any) -> None:
    """A bfloat16 network in front: the result is bfloat16, and in the set as it is stored, in float32."""
    set, anchor, x = prepared(case, 64, "float32")
    layer = Projection(set, anchor, method=method)
    torch.manual_seed(0)
    heads = [torch.nn.Linear(leaf[0].numel(), leaf[0].numel()) for leaf in leaves(x)]

    def net(leaf: torch.Tensor, head: torch.nn.Linear) -> torch.Tensor:
        return head(leaf.flatten(1)).reshape(leaf.shape)

    with torch.autocast("cpu", torch.bfloat16):
        raw = rebuild(x, tuple(net(leaf, head) for leaf, head in zip(leaves(x), heads, strict=True)))
        if not case.name.startswith("gaussian"):  # else most variances are negative
            raw = map_point(lambda a, b: a.to(torch.bfloat16) + 0.3 * b, x, raw)
        assert all(leaf.dtype == torch.bfloat16 for leaf in leaves(raw))
        y = layer(raw)
    assert all(leaf.dtype == torch.bfloat16 for leaf in leaves(y))
    assert set.contains(y).all()


@every_case
def test_autocast_does_not_reach_the_set(case: Case) -> None:
    """float32 points: the same numbers with and without autocast, of `project`, `h` and `contains`."""
    set, anchor, x = prepared(case, 64, "float32")
    expected, h = inset.project(set, x, anchor), set.h(x)
    with torch.autocast("cpu", torch.bfloat16):
        given, h_given, inside = inset.project(set, x, anchor), set.h(x), set.contains(expected)
    for a, b in zip((*leaves(given), h_given), (*leaves(expected), h), strict=True):
        assert a.dtype == torch.float32 and torch.equal(a.nan_to_num(), b.nan_to_num())
    assert inside.all()

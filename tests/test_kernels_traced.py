"""The kernels where torch traces: each is one operator of the graph, with the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

import inset.torch  # noqa: F401  the kernels are part of this front-end
from inset import LMI, Ball, GaussianKL, Polytope, SecondOrderCone, Strings
from inset._kernels import _launch, lmis, polytopes, projected, regions, second_order_cones, strings, vectors

ZERO = torch.zeros(3)
RANDOM = torch.Generator().manual_seed(0)
X = torch.randn(5, 3, generator=RANDOM)
CASES: dict[str, Any] = {
    "ball": (Ball(ZERO, 1.0), X, ZERO, "chord"),
    "polytope": (Polytope(torch.randn(4, 3, generator=RANDOM), torch.ones(4)), X, ZERO, "chord"),
    "cone": (
        SecondOrderCone(torch.eye(3)[None], torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(1)),
        X,
        ZERO,
        "chord",
    ),
    "lmi": (LMI(torch.stack([torch.eye(2)] * 3), -torch.eye(2)), X, ZERO, "ray"),
    "strings": (Strings(torch.tensor([[0, 1], [1, 2]]), 1.0), 3 * X[..., None], ZERO[:1, None].expand(3, 1), "chord"),
    "trust region": (GaussianKL(ZERO, ZERO, 0.05, False, parameterization="log_std"), (X, X), (ZERO, ZERO), "ray"),
}


@pytest.fixture(autouse=True)
def tracers_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is on a GPU; the interpreter would read numbers that tracers have not."""
    launched = _launch.launched

    def launch(kernel: Any, turns: bool, x: Any, *rest: Any, **options: Any) -> None:
        if not isinstance(x, FakeTensor):
            launched(kernel, turns, x, *rest, **options)

    for module in (lmis, polytopes, regions, second_order_cones, strings, vectors):
        monkeypatch.setattr(module, "launched", launch)
    monkeypatch.setattr(_launch, "PROGRAMS", 1)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_is_one_operator_of_the_graph(name: str) -> None:
    set, x, anchor, method = CASES[name]
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def project(x: Any) -> Any:
        return projected(set, x, anchor, method, True)

    torch._dynamo.reset()
    traced, plain = torch.compile(project, fullgraph=True, backend=backend)(x), project(x)
    ours = [node for node in graphs[0].graph.nodes if str(node.target).startswith("inset.")]
    # what is known of a set and its anchor is found by operations of torch, or by one of ours
    assert len(graphs) == 1 and len(ours) == 1 + (name == "polytope")
    leaves = traced if isinstance(traced, tuple) else (traced,)
    for a, b in zip(leaves, plain if isinstance(plain, tuple) else (plain,), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_a_mode_of_torch_sees_the_operator() -> None:
    """Profilers and counters watch operations this way; nobody else pays for it."""
    set, x, anchor, method = CASES["ball"]
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(str(function))
            return function(*args, **(kwargs or {}))

    plain = projected(set, x, anchor, method, True)
    with Watch():
        watched = projected(set, x, anchor, method, True)
    assert "inset.vectors.default" in seen and torch.equal(plain, watched)

"""`method="near"` with gradients, and in every framework: against differences, CVXPY and each other."""

from __future__ import annotations

import warnings
from typing import Any

import cvxpy as cp
import jax
import numpy as np
import pytest
import torch

import inset.jax
from cases import convert
from inset import Ball, Equality, Near, Polytope, project
from inset.torch import Projection
from test_near import MATRICES, SETS, B, G, points


@pytest.mark.parametrize("steps", [20, 1])
@pytest.mark.parametrize("name", ["ball-box", "per-sample-rows", "cone", "simplex", "psd"])
def test_derivatives_of_the_steps(name: str, steps: int) -> None:
    """First and second, with respect to points."""
    set, anchor, x = (convert(v, "torch") for v in (*SETS[name], points(name)))

    def g(x: torch.Tensor) -> torch.Tensor:
        return project(set, x, anchor, method=Near(steps))

    assert torch.autograd.gradcheck(g, x.requires_grad_(), fast_mode=True)
    assert torch.autograd.gradgradcheck(g, x, fast_mode=True, atol=1e-4)


def test_derivatives_at_convergence_are_those_of_cvxpylayers() -> None:
    """With respect to the point, the rows and both right-hand sides."""
    from cvxpylayers.torch.cvxpylayer import CvxpyLayer

    y, *parameters = cp.Variable(4), cp.Parameter(4), cp.Parameter((7, 4)), cp.Parameter(7), cp.Parameter(1)
    x, A, b, total = parameters
    parts = [A @ y <= b, cp.sum(y) == total, cp.norm(y - 0.1) <= 1]
    layer = CvxpyLayer(cp.Problem(cp.Minimize(cp.sum_squares(y - x)), parts), parameters, [y])
    given = [torch.tensor(v, requires_grad=True) for v in (points("equality")[0], G, B, np.array([0.2]))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (theirs,) = layer(*given, solver_args={"eps": 1e-10, "max_iters": 50_000})
    point, rows, right, sum_ = given
    set = Polytope(rows, right) & Ball(torch.full((4,), 0.1).double(), 1.0) & Equality(torch.ones(1, 4).double(), sum_)
    ours = project(set, point, torch.full((4,), 0.05).double(), method=Near(2000))
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    weight = torch.arange(1.0, 5.0).double()
    for a, c in zip(*(torch.autograd.grad((weight * v).sum(), given) for v in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, c, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("set", MATRICES, ids=repr)
def test_tied_eigenvalues_have_derivatives(set: Any) -> None:
    """The derivatives of eigenvectors do not exist there, those of the nearest matrix do."""
    x = torch.diag(torch.tensor([3.0, 3.0, -1.0])).double().requires_grad_()
    set = convert(set, "torch")
    assert torch.autograd.gradcheck(lambda x: set.nearest((x + x.mT) / 2), x)
    assert torch.autograd.gradgradcheck(lambda x: set.nearest((x + x.mT) / 2), x)


@pytest.mark.parametrize("name,method", [("ball-box", Near(2)), ("per-sample", Near(2, tol=0.05))])
def test_compile_and_export(name: str, method: Near) -> None:
    """Few steps: the graph of each is the same, and tracing them takes its time."""
    set, anchor, x = (convert(v, "torch") for v in (*SETS[name], points(name)))
    layer = Projection(set, anchor, method=method)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
    for y in (compiled, torch.export.export(layer, (x,)).module()(x)):
        torch.testing.assert_close(y, layer(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name,method", [("ball-box", "near"), ("per-sample", Near(7, tol=0.05))])
def test_frameworks_agree(name: str, method: Any) -> None:
    wanted = project(SETS[name][0], points(name), SETS[name][1], method=method)
    set, anchor, x = (convert(v, "torch") for v in (*SETS[name], points(name)))

    def g(x: torch.Tensor) -> torch.Tensor:
        return project(set, x, anchor, method=method)

    np.testing.assert_allclose(g(x), wanted, atol=1e-10)
    if name != "per-sample":
        np.testing.assert_allclose(torch.vmap(g)(x), wanted, atol=1e-10)
    slope = torch.func.grad(lambda x: torch.sin(g(x)).sum())(x)

    def loss(set: Any, x: Any) -> Any:
        y = inset.jax.project(set, x, convert(SETS[name][1], "jax"), method=method)
        return jax.numpy.sin(y).sum(), y

    set, x = (convert(v, "jax") for v in (SETS[name][0], points(name)))
    (_, y), theirs = jax.jit(jax.value_and_grad(loss, argnums=1, has_aux=True))(set, x)
    np.testing.assert_allclose(y, wanted, atol=1e-10)
    np.testing.assert_allclose(slope.numpy(), theirs, atol=1e-8)

"""Derivatives of `nearest`: first and second order, at tied eigenvalues, with respect to fields; and single sets."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import torch

import inset
from cases import Case, convert
from inset._fields import leaves
from test_nearest import OFFERING, points

CURVED = ("ellipsoid", "exponential", "power", "gaussian", "quadratic", "paraboloid", "strings")  # found by a search
SLOW = ("gaussian-kl-full", "gaussian-kl-full-states")  # their second derivatives are checked at ties


def entries(case: Case, count: int, seed: int) -> tuple[Any, list[torch.Tensor]]:
    """`nearest` as a function of the arrays of a point, and such arrays."""
    s, x = convert(case.set, "torch"), points(case, count, seed)

    def nearest(*arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return leaves(s.nearest(arrays if isinstance(x, tuple) else arrays[0]))

    return nearest, [torch.tensor(leaf, requires_grad=True) for leaf in leaves(x)]


@pytest.mark.parametrize("case", OFFERING, ids=repr)
def test_first_derivatives(case: Case) -> None:
    assert torch.autograd.gradcheck(*entries(case, 3, seed=4), fast_mode=True, check_undefined_grad=False)


@pytest.mark.parametrize("case", [c for c in OFFERING if c.name.startswith(CURVED) and c.name not in SLOW], ids=repr)
def test_second_derivatives_of_roots(case: Case) -> None:
    assert torch.autograd.gradgradcheck(*entries(case, 2, seed=5), fast_mode=True, check_undefined_grad=False)


@pytest.mark.parametrize("name", ["exponential-cone", "gaussian-kl-states"])
def test_jax_gradients_equal_torch(name: str) -> None:
    case = next(c for c in OFFERING if c.name == name)
    x = points(case, 3, seed=6)
    s, ours = convert(case.set, "torch"), [torch.tensor(leaf, requires_grad=True) for leaf in leaves(x)]
    y = leaves(s.nearest(tuple(ours) if isinstance(x, tuple) else ours[0]))
    torch.stack([(leaf**2).sum() for leaf in y]).sum().backward()
    s = convert(case.set, "jax")
    theirs = jax.jit(jax.grad(lambda v: sum([(y**2).sum() for y in leaves(s.nearest(v))])))(convert(x, "jax"))
    for a, b in zip(ours, leaves(theirs), strict=True):
        assert a.grad is not None
        np.testing.assert_allclose(a.grad.numpy(), np.asarray(b), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["kl", "entropy"])
def test_tied_eigenvalues_have_derivatives(kind: str) -> None:
    """At covariance = c I, where those of the eigenvectors do not exist; the field may be tied as well."""
    eye = torch.eye(3, dtype=torch.float64)
    inputs = [(eye[0] + 0.3).requires_grad_(), (0.2 * eye).requires_grad_()]
    if kind == "kl":
        inputs.append((1.5 * eye).requires_grad_())

    def nearest(mean: torch.Tensor, S: torch.Tensor, *old: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if not old:
            return inset.GaussianEntropy(3, 2.0, diagonal=False).nearest((mean, S))
        Sq = (old[0] + old[0].mT) / 2
        return inset.GaussianKL(0 * eye[0], Sq, 0.1, average=False, diagonal=False).nearest((mean, S))

    assert torch.autograd.gradcheck(nearest, inputs, fast_mode=True, check_undefined_grad=False)
    assert torch.autograd.gradgradcheck(
        nearest, inputs[:2] + [v.detach() for v in inputs[2:]], fast_mode=True, check_undefined_grad=False
    )


@pytest.mark.parametrize("kind", ["kl", "power", "entropy", "strings"])
def test_gradients_with_respect_to_the_set(kind: str) -> None:
    rng = np.random.default_rng(8)

    def project(field: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if kind == "kl":
            mean, S = torch.zeros(2, 2, dtype=torch.float64), torch.tensor([0.5, 2.0], dtype=torch.float64)
            return inset.GaussianKL(mean, S, field).nearest((mean + x[0], S + 0.5))
        if kind == "power":
            return (inset.PowerCone(field).nearest(x),)
        if kind == "strings":
            return (inset.Strings(torch.tensor([[0, 1], [1, 2], [0, 2]]), field).nearest(x),)
        return inset.GaussianEntropy(3, field, diagonal=False).nearest((x[0], 0.1 * x.T @ x))

    x = torch.tensor(rng.normal(size=(3, 3)) if kind != "kl" else rng.normal(size=(3, 2)))
    field = {"kl": 0.1, "power": [0.3, 0.5, 0.7], "entropy": 3.0, "strings": [0.5, 0.3, 0.6]}[kind]
    assert torch.autograd.gradcheck(project, torch.tensor(field, dtype=torch.float64, requires_grad=True))


@pytest.mark.parametrize("name", ["exponential-cone", "power-cone", "gaussian-entropy-full", "gaussian-kl", "strings"])
def test_gradients_are_finite_everywhere(name: str) -> None:
    """In the cone, on its faces, at the anchor, and far away in float32."""
    case = next(c for c in OFFERING if c.name == name)
    for spread in (0.0, 1e-6, 1.0, 1e6):
        x = case.points(np.random.default_rng(12), 50, spread=spread)
        inputs = [v.requires_grad_() for v in leaves(convert(x, "torch", "float32"))]
        y = convert(case.set, "torch", "float32").nearest(tuple(inputs) if isinstance(x, tuple) else inputs[0])
        torch.stack([leaf.sum() for leaf in leaves(y)]).sum().backward()
        for v, leaf in zip(inputs, leaves(y), strict=True):
            assert leaf.isfinite().all()
            assert v.grad is None or v.grad.isfinite().all()


# -- single sets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-6, 0.05, 5.0])
@pytest.mark.parametrize(("average", "diagonal"), [(True, True), (False, True), (True, False), (False, False)])
def test_divergence_reaches_its_bound(epsilon: float, average: bool, diagonal: bool) -> None:
    rng = np.random.default_rng(9)
    Sq = np.array([0.5, 2.0]) if diagonal else np.array([[0.5, 0.3], [0.3, 2.0]])
    mean = rng.normal(size=(4, 2) if average else 2)
    s = inset.GaussianKL(mean, Sq, epsilon, average=average, diagonal=diagonal)
    x = s.onto((mean + 5 * rng.normal(size=(50, *mean.shape)), Sq + 5 * rng.normal(size=(50, *Sq.shape))))
    excess = s.h(s.nearest(x)) / epsilon
    assert (excess <= 1e-9).all()
    assert (excess >= -1e-9)[s.h(x) > 0].all()


CONE_POINTS = {
    "in the cone": ((0.0, 1.0, 2.0), (0.0, 1.0, 2.0)),
    "polar": ((1.0, 0.0, -3.0), (0.0, 0.0, 0.0)),
    "polar, its edge": ((0.0, -1.0, -1.0), (0.0, 0.0, 0.0)),
    "face": ((-2.0, -1.0, 3.0), (-2.0, 0.0, 3.0)),
    "face, below": ((-2.0, -1.0, -3.0), (-2.0, 0.0, 0.0)),
    "the origin": ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0)),
    "near the face": ((-300.0, 1.0, -1.0), (-300.0, 1.0, 0.0)),
    "near the z axis": ((1.0, -300.0, 2.0), (0.0, 0.0, 2.0)),
    "huge": ((0.0, 1e200, 2e200), (0.0, 1e200, 2e200)),
}


@pytest.mark.parametrize(("point", "expected"), CONE_POINTS.values(), ids=CONE_POINTS)
def test_special_cases_of_the_exponential_cone(point: tuple[float, ...], expected: tuple[float, ...]) -> None:
    x = torch.tensor(point, dtype=torch.float64, requires_grad=True)
    y = inset.ExponentialCone().nearest(x)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-14, atol=1e-14)
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_exponential_cone_decomposes_into_itself_and_its_polar() -> None:
    """Moreau: x = Px + Qx, orthogonal, with -Qx in the dual cone {-u exp(v/u) <= e w, u < 0}, over 20 decades."""
    rng = np.random.default_rng(10)
    x = (
        rng.normal(size=(20_000, 3))
        * 10 ** rng.uniform(-6, 6, size=(20_000, 3))
        * 10 ** rng.uniform(-4, 4, (20_000, 1))
    )
    y = inset.ExponentialCone().nearest(x)
    scale = abs(x).max(-1)
    assert (inset.ExponentialCone().h(y) <= 1e-13 * scale).all()
    assert (abs((y * (x - y)).sum(-1)) <= 1e-13 * scale**2).all()
    u, v, w = ((y - x) / scale[:, None]).T
    assert (u <= 1e-13).all()
    assert (w >= -1e-13).all()
    # the dual cone with each entry moved by rounding: -u exp(v/u - 1) <= w, as u log(-u/w) - u + v >= 0
    u, w = np.minimum(u, 0) - 1e-30, np.maximum(w, 0) + 1e-13
    assert (u * np.log(-u / w) - u + v + 1e-13 >= -1e-13 * abs(np.log(-u / w))).all()


@pytest.mark.parametrize("alpha", [0.01, 0.5, 0.9])
def test_power_cone_decomposes_into_itself_and_its_polar(alpha: float) -> None:
    rng = np.random.default_rng(11)
    x = rng.normal(size=(5_000, 3)) * 10 ** rng.uniform(-3, 3, size=(5_000, 3))
    x[:3] = [[-1.0, -1.0, 1e-3], [-1.0, 2.0, 0.0], [0.0, 0.0, 0.0]]
    y = inset.PowerCone(alpha).nearest(x)
    np.testing.assert_array_equal(y[:3], [[0, 0, 0], [0, 2, 0], [0, 0, 0]])
    scale = abs(x).max(-1)
    assert (inset.PowerCone(alpha).h(y) <= 1e-13 * scale).all()
    assert (abs((y * (x - y)).sum(-1)) <= 1e-13 * scale**2).all()
    u, v, w = ((y - x) / np.where(scale > 0, scale, 1)[:, None]).T  # the dual cone: (u/a)^a (v/(1-a))^(1-a) >= |w|
    u, v = np.maximum(u, 0) + 1e-13, np.maximum(v, 0) + 1e-13
    assert ((u / alpha) ** alpha * (v / (1 - alpha)) ** (1 - alpha) >= abs(w) * (1 - 1e-9) - 1e-13).all()

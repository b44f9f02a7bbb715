"""The sets that are measured: every certified one of the library, at the sizes of applications, near and far away."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import inset
from inset.torch import Projection

from .points import Point

# Share of the points, about the inverse of the cost of one.
CHEAP, MEDIUM, SEARCH, EIGEN = 1.0, 0.3, 0.1, 0.03


@dataclass(frozen=True)
class Case:
    """A set in float64, a strictly feasible anchor, the size of the set, and its share of the points."""

    name: str
    set: inset.ConvexSet
    anchor: Point
    spread: float
    weight: float

    def at(self, dtype: torch.dtype, device: str = "cpu") -> tuple[inset.ConvexSet, Point]:
        """Set and anchor in this dtype; raises `AnchorError` if it has no room for this anchor."""
        layer = Projection(self.set, self.anchor).to(device=device, dtype=dtype)
        assert layer.set is not None
        return layer.set, layer.anchor


def cases(dtype: torch.dtype) -> list[Case]:
    """All cases for this dtype: those around size 400 are larger where numbers of that size are 0.25 or 2 apart."""
    radius = 1.0 if torch.finfo(dtype).bits >= 32 else 100.0
    draw = _Draw(7)
    return [*_flat(draw), *_round(draw), *_matrices(draw), *_gaussians(draw), *_far(draw, radius)]


class _Draw:
    """Random data in float64 from a fixed seed."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def rows(self, m: int, n: int) -> Tensor:
        """m random rows of length 1."""
        A = self.normal(m, n)
        return A / A.norm(dim=-1, keepdim=True)

    def symmetric(self, *shape: int) -> Tensor:
        X = self.normal(*shape, shape[-1])
        return (X + X.mT) / 2

    def definite(self, n: int) -> Tensor:
        X = self.normal(n, n)
        return X @ X.mT / n + 0.3 * _eye(n)


def _eye(n: int) -> Tensor:
    return torch.eye(n, dtype=torch.float64)


def _full(value: float, *shape: int) -> Tensor:
    return torch.full(shape, value, dtype=torch.float64)


def _chain(bodies: int) -> Tensor:
    """A closed chain of links with a chord across every fourth body."""
    first = torch.arange(bodies)
    ring = torch.stack([first, (first + 1) % bodies], dim=-1)
    return torch.cat([ring, torch.stack([first[::4], (first[::4] + bodies // 2) % bodies], dim=-1)])


def _flat(draw: _Draw) -> Iterator[Case]:
    """Affine constraints, alone and joined."""
    n = 50
    A, b, zero = draw.normal(100, n), draw.uniform(0.5, 1.5, 100), _full(0.0, n)
    polytope, ball = inset.Polytope(A, b), inset.Ball(zero + 0.01, 1.0)
    upper = draw.uniform(0.5, 2.0, n)
    upper[::5] = math.inf
    E = draw.normal(10, n)
    inner = 0.005 * draw.normal(n)
    yield Case("polytope", polytope, zero, 1.0, CHEAP)
    yield Case("box", inset.Box(-upper[torch.randperm(n, generator=draw.generator)], upper), zero + 0.1, 3.0, CHEAP)
    yield Case("box-numbers", inset.Box(-0.7, 0.9), zero + 0.1, 3.0, CHEAP)
    yield Case("simplex", inset.Simplex(20, 2.0), _full(0.1, 20), 1.0, CHEAP)
    yield Case("intersection", polytope & ball & inset.Box(zero - 0.2, zero + 0.3), zero, 1.0, MEDIUM)
    yield Case("equality", polytope & inset.Equality(E, E @ inner), inner, 1.0, MEDIUM)
    blocks = (inset.Ball(_full(0.0, 20), 1.0), inset.Box(-1.0, 2.0), inset.PSD(4))
    yield Case("product", inset.Product(blocks), (_full(0.1, 20), _full(0.1, 20), _eye(4)), 3.0, EIGEN)


def _round(draw: _Draw) -> Iterator[Case]:
    """Norms, quadratics, cones and strings."""
    n = 32
    center, anchor = 0.2 * draw.normal(n), 0.1 * draw.normal(n)
    for name, p, radius in (("ball-1", 1, 20.0), ("ball-2", 2, 3.3), ("ball-inf", math.inf, 1.3)):
        yield Case(name, inset.Ball(center, radius, p), anchor, 3.0, CHEAP)
    yield Case("ellipsoid", inset.Ellipsoid(anchor, draw.normal(n, n) + _eye(n)), anchor, 1.0, CHEAP)
    bowl = inset.Quadratic(draw.definite(n), 0.3 * draw.normal(n), torch.tensor(-4.0).double())
    yield Case("quadratic", bowl, _full(0.0, n), 3.0, CHEAP)
    axis = _eye(n)[-1]
    yield Case("paraboloid", inset.Quadratic(2 * (_eye(n) - torch.diag(axis)), -axis, 0.0), axis, 3.0, CHEAP)
    A, b, z, d = draw.normal(8, 4, n), 0.3 * draw.normal(8, 4), 0.3 * draw.normal(8, n), draw.uniform(1.0, 2.0, 8)
    yield Case("second-order-cone", inset.SecondOrderCone(A, b, z, d), _full(0.0, n), 1.0, CHEAP)
    chain = _chain(16)
    strings = inset.Strings(chain, draw.uniform(0.8, 1.5, len(chain)))
    yield Case("strings", strings, 0.1 * draw.normal(16, 3), 2.0, CHEAP)
    point = torch.tensor([-1.0, 1.0, 1.2], dtype=torch.float64)
    yield Case("exponential-cone", inset.ExponentialCone(), point, 3.0, SEARCH)
    point = torch.tensor([1.0, 1.2, 0.1], dtype=torch.float64)
    yield Case("power-cone", inset.PowerCone(0.3), point, 3.0, SEARCH)
    yield Case("categorical-entropy", inset.CategoricalEntropy(10, kappa=1.8), _full(0.1, 10), 0.3, SEARCH)


def _matrices(draw: _Draw) -> Iterator[Case]:
    """Eigenvalues and singular values."""
    yield Case("psd", inset.PSD(8, floor=0.1), _eye(8) + 0.1 * draw.symmetric(8), 3.0, EIGEN)
    yield Case("lmi", inset.LMI(draw.symmetric(10, 6), -5 * _eye(6)), _full(0.0, 10), 3.0, EIGEN)
    ball = inset.SpectralBall(0.1 * draw.normal(8, 5), 2.0)
    yield Case("spectral-ball", ball, _full(0.0, 8, 5), 2.0, EIGEN)


def _gaussians(draw: _Draw) -> Iterator[Case]:
    """Entropy and trust regions of policies with six actions, in every parameterisation."""
    d, K = 6, 16
    mean, variance, S = draw.normal(K, d), draw.uniform(0.3, 2.0, d), draw.definite(d)
    L, zero, entropy = torch.linalg.cholesky(S), _full(0.0, d), inset.GaussianEntropy
    yield Case("entropy", entropy(d, 6.0), (zero, _full(1.0, d)), 3.0, SEARCH)
    yield Case("entropy-log-std", entropy(d, 6.0, parameterization="log_std"), (zero, zero), 3.0, CHEAP)
    matrices: dict[str, Any] = {"diagonal": False}
    yield Case("entropy-full", entropy(d, 6.0, **matrices), (zero, _eye(d)), 3.0, EIGEN)
    factors: dict[str, Any] = matrices | {"parameterization": "cholesky"}
    yield Case("entropy-cholesky", entropy(d, 6.0, **factors), (zero, _eye(d)), 3.0, SEARCH)
    regions: tuple[tuple[str, Tensor, dict[str, Any], float], ...] = (
        ("kl", variance, {}, SEARCH),
        ("kl-std", variance, {"parameterization": "cholesky"}, SEARCH),
        ("kl-log-std", variance.log(), {"parameterization": "log_std"}, SEARCH),
        ("kl-full", S, matrices, EIGEN),
        ("kl-cholesky", L, factors, EIGEN),
    )
    for name, covariance, options, weight in regions:
        region = inset.GaussianKL(mean, covariance, 0.05, **options)
        yield Case(name, region, (mean, covariance), 0.3, weight)
    states = inset.GaussianKL(mean[0], variance, 0.05, average=False)
    yield Case("kl-states", states, (mean[0], variance), 0.3, SEARCH)


def _far(draw: _Draw, r: float) -> Iterator[Case]:
    """Sets of radius about r whose anchor has size 400."""
    n = 32
    c = 400 * draw.rows(1, n)[0]
    A = draw.rows(2 * n, n)
    yield Case("far polytope", inset.Polytope(A, A @ c + r), c, 3 * r, CHEAP)
    yield Case("far box", inset.Box(c - r, c + r), c, 3 * r, CHEAP)
    for name, p in (("far ball-1", 1), ("far ball-2", 2), ("far ball-inf", math.inf)):
        yield Case(name, inset.Ball(c, r * (4 if p == 1 else 1), p), c, r, CHEAP)
    yield Case("far ellipsoid", inset.Ellipsoid(c, (A[:n].T + _eye(n)) / r), c, r, CHEAP)
    P = A.T @ A / r**2
    bowl = inset.Quadratic(P, -P @ c, c @ P @ c / 2 - 100 / r**0.5)  # r is large, so is its rounding
    yield Case("far quadratic", bowl, c, 3 * r, CHEAP)
    B, z = A[:24].reshape(8, 3, n), 0.1 * A[24:32]
    yield Case("far second-order-cone", inset.SecondOrderCone(B, -B @ c, z, r - z @ c), c, 3 * r, CHEAP)
    chain, bodies = _chain(8), c[:3].expand(8, 3) * 3 + 0.0
    yield Case("far strings", inset.Strings(chain, _full(r, len(chain))), bodies, 2 * r, CHEAP)
    yield Case("far simplex", inset.Simplex(4, 800.0), _full(200.0, 4), 400.0, CHEAP)
    e = A[:2]
    yield Case("far equality", inset.Box(c - r, c + r) & inset.Equality(e, e @ c), c, 3 * r, MEDIUM)
    yield from _far_searches(draw, r)


def _far_searches(draw: _Draw, r: float) -> Iterator[Case]:
    """The costlier ones among them."""
    c, C = 400 * draw.rows(1, 6)[0], 400 * draw.rows(1, 15).reshape(5, 3)
    point = torch.tensor([-300.0, 200.0, 200.0], dtype=torch.float64)
    yield Case("far exponential-cone", inset.ExponentialCone(), point, 300.0, SEARCH)
    point = torch.tensor([280.0, 280.0, 10.0], dtype=torch.float64)
    yield Case("far power-cone", inset.PowerCone(0.3), point, 300.0, SEARCH)
    variance = _full(r**2, 6)
    yield Case("far kl", inset.GaussianKL(c[None], variance, 0.05), (c[None], variance), 0.3 * r, SEARCH)
    full = inset.GaussianKL(c[None], torch.diag(variance), 0.05, diagonal=False)
    yield Case("far kl-full", full, (c[None], torch.diag(variance)), 0.3 * r, EIGEN)
    yield Case("far entropy", inset.GaussianEntropy(6, 6.0), (c, _full(1.0, 6)), 3.0, SEARCH)
    yield Case("far psd", inset.PSD(4, floor=200.0 - r), 200 * _eye(4), 3 * r, EIGEN)
    yield Case("far spectral-ball", inset.SpectralBall(C, r), C, r, EIGEN)
    S = draw.symmetric(6, 4) / 4
    lmi = inset.LMI(S, torch.einsum("i,ijk->jk", c, S) - r * _eye(4))
    yield Case("far lmi", lmi, c, 3 * r, EIGEN)

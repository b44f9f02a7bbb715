"""Sets for the tests of few operations: curved ones, intersections, and sets on a plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from inset import LMI, Ball, Box, ConvexSet, Ellipsoid, Equality, Polytope, Quadratic, SecondOrderCone, Simplex
from inset._eager import lines as eager
from inset._project import interpolated
from inset.affine import onto

N, D = 64, 6
CURVED = ("quadratic", "skew", "paraboloid", "flat", "quadratics", "cone", "cones", "lmi", "singular lmi")
NORMS = ("ball", "axes", "ellipsoid")
JOINT = ("two", "many")
PLANAR = ("simplex", "plane", "planes")
DTYPES = (torch.float64, torch.float32)
METHODS = ("chord", "ray")
over_methods = pytest.mark.parametrize("method", METHODS)
over_dtypes = pytest.mark.parametrize("dtype", DTYPES)


class Draw:
    """Sets around a point of size `far`."""

    def __init__(self, kind: str, dtype: torch.dtype, seed: int, far: float) -> None:
        self.dtype, self.size, self.random = dtype, max(1.0, far), torch.Generator().manual_seed(seed)
        self.center = far * self.normal(D)
        if kind in ("simplex", "planes"):
            self.center = torch.full((D,), self.size, dtype=torch.float64)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.random, dtype=torch.float64)

    def quadratic(self, rank: int, q: Tensor, r: float) -> Quadratic:
        factor = self.normal(D, rank)
        P = (factor @ factor.mT / D).to(self.dtype).double()
        P = (P + P.mT) / 2
        q, r = q - P @ self.center, r - float(q @ self.center) + float(self.center @ P @ self.center) / 2
        return Quadratic(P.to(self.dtype), q.to(self.dtype), torch.tensor(r, dtype=self.dtype))

    def cones(self, m: int, k: int) -> SecondOrderCone:
        A, b, z, d = self.normal(m, k, D), 0.3 * self.normal(m, k), 0.7 * self.normal(m, D), 1 + self.normal(m).abs()
        return SecondOrderCone(*(v.to(self.dtype) for v in (A, b - A @ self.center, z, d - z @ self.center)))

    def lmi(self, k: int, zeros: int) -> LMI:
        A, C = self.normal(D, k, k), -2 * torch.eye(k, dtype=torch.float64)
        A[:, :zeros], A[:, :, :zeros] = 0, 0
        A = A + A.mT
        return LMI(A.to(self.dtype), (C + torch.einsum("nij,n->ij", A, self.center)).to(self.dtype))

    def polytope(self, m: int) -> Polytope:
        A, b = self.normal(m, D), 0.5 + self.normal(m).abs()
        return Polytope(A.to(self.dtype), (b + A @ self.center).to(self.dtype))

    def ellipsoid(self) -> Ellipsoid:
        return Ellipsoid(
            (self.center + 0.2 * self.normal(D)).to(self.dtype),
            (0.5 * self.normal(D, D) / D**0.5 + torch.eye(D)).to(self.dtype),
        )

    def ball(self, radius: float) -> Ball:
        return Ball((self.center + 0.3 * self.normal(D)).to(self.dtype), torch.tensor(radius, dtype=self.dtype))

    def equality(self, k: int) -> Equality:
        A = self.normal(k, D)
        return Equality(A.to(self.dtype), (A @ self.center).to(self.dtype))

    def box(self, size: float) -> Box:
        return Box((self.center - size).to(self.dtype), (self.center + 1.3 * size).to(self.dtype))

    def skew(self) -> Quadratic:
        """With a matrix that is not quite symmetric."""
        whole = self.quadratic(D, 0.3 * self.normal(D), -1.5)
        change = torch.randn(D, D, generator=self.random, dtype=self.dtype).mul(1e-4)
        return Quadratic(whole.P + change - change.mT, whole.q, -1)

    def set(self, kind: str) -> ConvexSet:
        sets: dict[str, Callable[[], ConvexSet]] = {
            "ball": lambda: self.ball(1.7),
            "axes": lambda: Ellipsoid(
                (self.center + 0.2 * self.normal(D)).to(self.dtype),
                (0.3 + self.normal(D).abs()).to(self.dtype),
                diagonal=True,
            ),
            "ellipsoid": self.ellipsoid,
            "two": lambda: self.polytope(9) & self.ball(1.5),
            "many": lambda: (
                self.quadratic(D, 0.3 * self.normal(D), -1.5)
                & self.box(1.0)
                & self.cones(3, 4)
                & self.quadratic(D - 2, self.normal(D), -0.9)
                & self.ellipsoid()
                & self.lmi(3, 0)
                & self.polytope(5)
            ),
            "simplex": lambda: Simplex(D, D * self.size),
            "plane": lambda: self.equality(2) & self.polytope(7),
            "planes": lambda: (
                Simplex(D, torch.tensor(D * self.size, dtype=self.dtype))
                & self.ball(2.0 * self.size)
                & self.equality(1)
            ),
            "skew": self.skew,
            "quadratic": lambda: self.quadratic(D, 0.3 * self.normal(D), -1.5),
            "paraboloid": lambda: self.quadratic(D - 2, self.normal(D), -1.0),
            "flat": lambda: self.quadratic(1, torch.zeros(D, dtype=torch.float64), -1.0),
            "quadratics": lambda: (
                self.quadratic(D, 0.3 * self.normal(D), -1.5)
                & self.quadratic(D - 2, self.normal(D), -0.9)
                & self.quadratic(D, -0.2 * self.normal(D), -1.2)
            ),
            "cone": lambda: self.cones(1, 4),
            "cones": lambda: self.cones(5, 3),
            "lmi": lambda: self.lmi(4, 0),
            "singular lmi": lambda: self.lmi(5, 2),
        }
        return sets[kind]()


def made(kind: str, dtype: torch.dtype, seed: int = 0, far: float = 0.0) -> tuple[ConvexSet, Tensor, Tensor]:
    """A set around a point of size `far`, an anchor off its centre, and points from deep inside to far outside."""
    draw = Draw(kind, dtype, seed, far)
    set = draw.set(kind)
    anchor = onto(set, (draw.center + 0.02 * draw.normal(D)).to(dtype))
    sizes = torch.tensor([0.02, 1.0, 30.0, 1e4], dtype=dtype).repeat(N // 4)[:, None]
    return set, anchor, anchor + sizes * draw.normal(N, D).to(dtype)


def fused(set: ConvexSet, x: Tensor, anchor: Tensor, method: str = "ray", strict: bool = True) -> Tensor:
    y = eager.fused(set, x, anchor, method, strict)
    assert y is not None
    return y


def formulas(set: ConvexSet, x: Tensor, anchor: Tensor, method: Any = "ray", strict: bool = True) -> Tensor:
    if isinstance(set, Quadratic):  # the form does not know of what is not symmetric, its gradient P x would
        set = Quadratic((set.P + set.P.mT) / 2, set.q, set.r)
    return interpolated(set, x, anchor, method, strict)[0]


def what_is_known(set: ConvexSet, anchor: Tensor, method: str) -> Any:
    found = eager.known_kind(set, method)
    assert found is not None
    return eager.remembered(*found, anchor)


def unasked(set: ConvexSet, x: Tensor, anchor: Tensor, method: str, strict: bool = True) -> Tensor:
    """As on a GPU, where nobody looks whether the anchor is certain; on a CPU the formulas tell if it is not."""
    found = eager.known_kind(set, method)
    assert found is not None and eager.fused(set, x, anchor, method, strict) is None
    return eager.Lines(anchor, eager.remembered(*found, anchor), method, strict, found[1], 10**6)(x)

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


def made(kind: str, dtype: torch.dtype, seed: int = 0, far: float = 0.0) -> tuple[ConvexSet, Tensor, Tensor]:
    """A set around a point of size `far`, an anchor off its centre, and points from deep inside to far outside."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    center = far * normal(D)
    if kind in ("simplex", "planes"):
        center = torch.full((D,), max(1.0, far), dtype=torch.float64)

    def quadratic(rank: int, q: Tensor, r: float) -> Quadratic:
        factor = normal(D, rank)
        P = (factor @ factor.mT / D).to(dtype).double()
        P = (P + P.mT) / 2
        q, r = q - P @ center, r - float(q @ center) + float(center @ P @ center) / 2
        return Quadratic(P.to(dtype), q.to(dtype), torch.tensor(r, dtype=dtype))

    def cones(m: int, k: int) -> SecondOrderCone:
        A, b, z, d = normal(m, k, D), 0.3 * normal(m, k), 0.7 * normal(m, D), 1 + normal(m).abs()
        return SecondOrderCone(*(v.to(dtype) for v in (A, b - A @ center, z, d - z @ center)))

    def lmi(k: int, zeros: int) -> LMI:
        A, C = normal(D, k, k), -2 * torch.eye(k, dtype=torch.float64)
        A[:, :zeros], A[:, :, :zeros] = 0, 0
        A = A + A.mT
        return LMI(A.to(dtype), (C + torch.einsum("nij,n->ij", A, center)).to(dtype))

    def polytope(m: int) -> Polytope:
        A, b = normal(m, D), 0.5 + normal(m).abs()
        return Polytope(A.to(dtype), (b + A @ center).to(dtype))

    def ellipsoid() -> Ellipsoid:
        return Ellipsoid((center + 0.2 * normal(D)).to(dtype), (0.5 * normal(D, D) / D**0.5 + torch.eye(D)).to(dtype))

    def ball(radius: float) -> Ball:
        return Ball((center + 0.3 * normal(D)).to(dtype), torch.tensor(radius, dtype=dtype))

    def equality(k: int) -> Equality:
        A = normal(k, D)
        return Equality(A.to(dtype), (A @ center).to(dtype))

    def box(size: float) -> Box:
        return Box((center - size).to(dtype), (center + 1.3 * size).to(dtype))

    total = D * max(1.0, far)
    sets: dict[str, Callable[[], ConvexSet]] = {
        "ball": lambda: ball(1.7),
        "axes": lambda: Ellipsoid(
            (center + 0.2 * normal(D)).to(dtype), (0.3 + normal(D).abs()).to(dtype), diagonal=True
        ),
        "ellipsoid": ellipsoid,
        "two": lambda: polytope(9) & ball(1.5),
        "many": lambda: (
            quadratic(D, 0.3 * normal(D), -1.5)
            & box(1.0)
            & cones(3, 4)
            & quadratic(D - 2, normal(D), -0.9)
            & ellipsoid()
            & lmi(3, 0)
            & polytope(5)
        ),
        "simplex": lambda: Simplex(D, total),
        "plane": lambda: equality(2) & polytope(7),
        "planes": lambda: Simplex(D, torch.tensor(total, dtype=dtype)) & ball(2.0 * max(1.0, far)) & equality(1),
        "quadratic": lambda: quadratic(D, 0.3 * normal(D), -1.5),
        "paraboloid": lambda: quadratic(D - 2, normal(D), -1.0),
        "flat": lambda: quadratic(1, torch.zeros(D, dtype=torch.float64), -1.0),
        "quadratics": lambda: (
            quadratic(D, 0.3 * normal(D), -1.5)
            & quadratic(D - 2, normal(D), -0.9)
            & quadratic(D, -0.2 * normal(D), -1.2)
        ),
        "cone": lambda: cones(1, 4),
        "cones": lambda: cones(5, 3),
        "lmi": lambda: lmi(4, 0),
        "singular lmi": lambda: lmi(5, 2),
    }
    if kind == "skew":
        whole = quadratic(D, 0.3 * normal(D), -1.5)
        change = torch.randn(D, D, generator=random, dtype=dtype).mul(1e-4)
        set: ConvexSet = Quadratic(whole.P + change - change.mT, whole.q, -1)
    else:
        set = sets[kind]()
    anchor = onto(set, (center + 0.02 * normal(D)).to(dtype))
    sizes = torch.tensor([0.02, 1.0, 30.0, 1e4], dtype=dtype).repeat(N // 4)[:, None]
    return set, anchor, anchor + sizes * normal(N, D).to(dtype)


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

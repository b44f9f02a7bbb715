"""Formulas that a user would write by hand who knows the set and needs nothing else: no check, no margin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import inset

from . import by_hand_curved
from .points import Point, map_point

Formula = Callable[[Any], Any]
# A set, its anchor, and formulas, of which the first is the reference.
Handmade = tuple[inset.ConvexSet, Point, dict[str, Formula]]


def polytope(n: int = 50, m: int = 50) -> Handmade:
    A, b, x0 = torch.randn(m, n).double(), 0.5 + torch.rand(m).double(), torch.zeros(n).double()
    h0 = A @ x0 - b  # once: a user's anchor does not move

    def formula(x: Tensor) -> Tensor:
        h = x @ A.T - b
        eta = (h0 / (h0 - h.clamp(min=0))).min(-1, keepdim=True).values
        return torch.where(eta < 1, x0 + eta * (x - x0), x)

    return inset.Polytope(A, b), x0, {"by hand": formula, "by hand, rows scaled": _scaled(A, b, x0)}


def _scaled(A: Tensor, b: Tensor, x0: Tensor) -> Formula:
    """The same with every row divided by its depth at the anchor beforehand: the fastest we know in plain torch."""
    depth = b - A @ x0
    rows, bounds = (A / depth[:, None]).T.contiguous(), b / depth

    def formula(x: Tensor) -> Tensor:
        s = (x @ rows - bounds).max(-1, keepdim=True).values
        outside = s > 0
        return torch.where(outside, x0 + (x - x0) / (1 + torch.where(outside, s, 0.0)), x)

    return formula


def ball(n: int = 50) -> Handmade:
    c, radius = torch.randn(n).double(), 3.0

    def formula(x: Tensor) -> Tensor:
        v = x - c
        size = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
        outside = size > radius
        return torch.where(outside, c + radius / torch.where(outside, size, 1.0) * v, x)

    return inset.Ball(c, radius), c, {"by hand": formula}


def box(n: int = 50) -> Handmade:
    lower, upper = -0.5 - torch.rand(n).double(), 0.5 + torch.rand(n).double()
    x0 = (lower + upper) / 2
    half = upper - x0

    def formula(x: Tensor) -> Tensor:
        v = x - x0
        gauge = (v.abs() / half).amax(-1, keepdim=True)
        outside = gauge > 1
        return torch.where(outside, x0 + v / torch.where(outside, gauge, 1.0), x)

    return inset.Box(lower, upper), x0, {"by hand": formula}


def ellipsoid(n: int = 50) -> Handmade:
    c, L = torch.randn(n).double(), (torch.eye(n) + 0.5 * torch.randn(n, n) / n**0.5).double()

    def formula(x: Tensor) -> Tensor:
        v = x - c
        size = torch.linalg.vector_norm(v @ L, dim=-1, keepdim=True)
        outside = size > 1
        return torch.where(outside, c + v / torch.where(outside, size, 1.0), x)

    return inset.Ellipsoid(c, L), c, {"by hand": formula}


def simplex(n: int = 50) -> Handmade:
    x0 = torch.full((n,), 1 / n).double()

    def formula(x: Tensor) -> Tensor:
        x = x - (x.sum(-1, keepdim=True) - 1) / n
        eta = (x0 / (x0 + (-x).clamp(min=0))).amin(-1, keepdim=True)
        return torch.where(eta < 1, x0 + eta * (x - x0), x)

    return inset.Simplex(n), x0, {"by hand": formula}


def polytope_and_ball(n: int = 50, m: int = 50) -> Handmade:
    A, b, x0 = torch.randn(m, n).double(), 0.5 + torch.rand(m).double(), torch.zeros(n).double()
    c, radius = 0.1 * torch.randn(n).double(), 1.5
    h0 = torch.cat([A @ x0 - b, (x0 - c).norm()[None] - radius])

    def formula(x: Tensor) -> Tensor:
        ball = torch.linalg.vector_norm(x - c, dim=-1, keepdim=True) - radius
        h = torch.cat([x @ A.T - b, ball], -1)
        eta = (h0 / (h0 - h.clamp(min=0))).amin(-1, keepdim=True)
        return torch.where(eta < 1, x0 + eta * (x - x0), x)

    return inset.Polytope(A, b) & inset.Ball(c, radius), x0, {"by hand": formula}


def polytope_and_equalities(n: int = 50, m: int = 50, k: int = 20) -> Handmade:
    A, b, E = torch.randn(m, n).double(), 0.5 + torch.rand(m).double(), torch.randn(k, n).double()
    x0, e, inverse = torch.zeros(n).double(), torch.zeros(k).double(), torch.linalg.pinv(E)
    h0 = A @ x0 - b

    def formula(x: Tensor) -> Tensor:
        x = x - (x @ E.T - e) @ inverse.T
        eta = (h0 / (h0 - (x @ A.T - b).clamp(min=0))).amin(-1, keepdim=True)
        return torch.where(eta < 1, x0 + eta * (x - x0), x)

    return inset.Polytope(A, b) & inset.Equality(E, e), x0, {"by hand": formula}


SETS: dict[str, Callable[[], Handmade]] = {
    "polytope": polytope,
    "ball": ball,
    "box": box,
    "ellipsoid": ellipsoid,
    "simplex": simplex,
    "polytope-ball": polytope_and_ball,
    "polytope-equalities": polytope_and_equalities,
    "quadratic": by_hand_curved.quadratic,
    "cones": by_hand_curved.cones,
    "lmi": by_hand_curved.lmi,
    "strings": by_hand_curved.strings,
    "policies": by_hand_curved.policies,
}
VECTORS = tuple(name for name in SETS if name not in ("strings", "policies"))
"""Sets of points that a network may end in."""


def drawn(anchor: Point, batch: int) -> Point:
    """Points inside and outside."""
    size = torch.randn(batch).double().exp()
    # h of policies is another one, and finite, where log-stds rise by 3
    size = size.clamp(max=0.5) if isinstance(anchor, tuple) else size

    def leaf(a: Tensor) -> Tensor:
        return (a + size.reshape(batch, *(1,) * a.ndim) * torch.randn(batch, *a.shape).double()).requires_grad_()

    return map_point(leaf, anchor)

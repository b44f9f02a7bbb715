"""The functions that stand for cones in `inset.cvxpy`, and the way from CVXPY's data to them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import inset
from inset.cvxpy._certificate import Pool, certify
from inset.cvxpy._cones import Blocks, Exponential, HalfLines, Power, SecondOrder, Semidefinite
from inset.cvxpy._presolve import reduce
from inset.cvxpy._program import Program, feasible

ALPHA = [0.02, 0.3, 0.5, 0.9]
KINDS = {
    "half-lines": HalfLines(torch.arange(4)[:, None]),
    "second-order": SecondOrder(torch.arange(16).reshape(4, 4)),
    "semidefinite": Semidefinite(torch.arange(24).reshape(4, 6)),
    "exponential": Exponential(torch.arange(12).reshape(4, 3)),
    "power": Power(torch.arange(12).reshape(4, 3), torch.tensor(ALPHA, dtype=torch.float64)),
}


def height(block: Blocks, s: torch.Tensor) -> torch.Tensor:
    return -(block.normals(s) * s).sum(-1)


def inside(name: str, block: Blocks, s: torch.Tensor) -> torch.Tensor:
    """Whether each s is in its cone, by the sets of inset."""
    if name == "half-lines":
        return s[..., 0] >= 0
    if name == "second-order":
        return torch.linalg.vector_norm(s[..., 1:], dim=-1) <= s[..., 0]
    if isinstance(block, Semidefinite):
        return inset.PSD(3).contains(block.matrix(s))
    if name == "exponential":
        return inset.ExponentialCone().contains(s)
    return torch.stack([inset.PowerCone(a).contains(s[..., i, :]) for i, a in enumerate(ALPHA)], dim=-1)


def samples(block: Blocks) -> torch.Tensor:
    """Points of all sizes, many of them near edges."""
    generator = torch.Generator().manual_seed(0)
    shape = (4000, *block.rows.shape)
    s = torch.randn(shape, generator=generator, dtype=torch.float64)
    return s * 10 ** torch.randint(-3, 4, (4000, 1, shape[-1]), generator=generator).to(torch.float64)


@pytest.mark.parametrize("name", KINDS)
def test_height_is_the_way_into_the_cone(name: str) -> None:
    """h(s) = min {t : s + t e in K}, and its n is a point of the dual cone with n.e = 1."""
    block = KINDS[name]
    s = samples(block)
    h, n, size = height(block, s), block.normals(s), s.abs().sum(-1)
    e = block.interior
    np.testing.assert_allclose((n * e).sum(-1), 1, atol=1e-12)
    assert inside(name, block, s + (h + 1e-9 * size)[..., None] * e).all()
    assert not inside(name, block, s + (h - 1e-9 * size)[..., None] * e).any()
    other = s[torch.randperm(len(s), generator=torch.Generator().manual_seed(1))]
    member = other + (height(block, other) + 1e-9)[..., None] * e
    assert ((n * member).sum(-1) >= -1e-9 * member.abs().sum(-1) * n.abs().sum(-1)).all(), "n is not in the dual cone"


@pytest.mark.parametrize("name", KINDS)
def test_height_is_convex_and_its_gradient_is_minus_n(name: str) -> None:
    block = KINDS[name]
    a, b = samples(block)[:500], samples(block)[500:1000]
    middle = height(block, (a + b) / 2)
    assert (middle <= (height(block, a) + height(block, b)) / 2 + 1e-9 * (a.abs() + b.abs()).sum(-1)).all()
    assert (
        height(block, b) >= height(block, a) - (block.normals(a) * (b - a)).sum(-1) - 1e-9 * (a - b).abs().sum(-1)
    ).all()


@pytest.mark.parametrize("name", ["exponential", "power"])
def test_edges(name: str) -> None:
    """At corners and at the origin h is finite and right."""
    block = KINDS[name]
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 0.0, 1e-300, 1.0, 1e8], dtype=torch.float64)] * 3)
    s = corners[:, None, :].expand(-1, 4, 3)
    h = height(block, s)
    assert torch.isfinite(block.normals(s)).all() and torch.isfinite(h).all()
    assert inside(name, block, s + (h + 1e-9 * (1 + s.abs().sum(-1)))[..., None] * block.interior).all()


@pytest.mark.parametrize("name", KINDS)
def test_barriers(name: str) -> None:
    """Finite inside, convex, and without bound towards the boundary."""
    block = KINDS[name]
    s = samples(block)[:200]
    base = height(block, s)[..., None]
    deep, near = s + (base + 1) * block.interior, s + (base + 1e-6) * block.interior
    assert torch.isfinite(block.barrier(deep)).all()
    assert (block.barrier(near) > block.barrier(deep) + 5).all()
    between = block.barrier((deep + deep.flip(0)) / 2)
    ends = block.barrier(deep)
    assert (between <= (ends + ends.flip(0)) / 2 + 1e-8 * (1 + ends.abs())).all()


def dims(zero: int = 0, nonneg: int = 0, soc: list[int] | None = None) -> SimpleNamespace:
    return SimpleNamespace(zero=zero, nonneg=nonneg, soc=soc or [], psd=[], exp=0, p3d=[])


def test_reduce() -> None:
    """x + y + z = 3, w in no row, x <= 5, 0 <= 1: two variables, one row are left, and the way back is right."""
    A = np.array([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, -2.0, 0.0]])
    b = np.array([3.0, 5.0, 1.0, 0.0])
    reduced = reduce(np.array([1.0, 0.0, 2.0, 0.0]), A, b, dims(1, 3), np.zeros(0, dtype=int))
    assert reduced.program.G.shape == (2, 2) and reduced.rows.tolist() == [1, 3]
    assert reduced.contradiction is None and reduced.free is None
    x = reduced.origin + reduced.F @ np.array([0.3, -0.7])
    point = torch.tensor([0.3, -0.7], dtype=torch.float64)
    assert A[0] @ x == pytest.approx(3)
    assert reduced.program.value(point) == pytest.approx(x[0] + 2 * x[2])
    np.testing.assert_allclose(reduced.program.slack(point), reduced.scale * (b - A @ x)[reduced.rows], atol=1e-12)
    assert torch.linalg.vector_norm(reduced.program.G, dim=-1).max() == pytest.approx(1)
    assert reduce(np.array([0.0, 0.0, 0.0, 1.0]), A, b, dims(1, 3), np.zeros(0, dtype=int)).free is not None
    b[2] = -1.0
    assert "constants" in str(reduce(np.ones(4), A, b, dims(1, 3), np.zeros(0, dtype=int)).contradiction)


def test_blocks_of_one_size_are_evaluated_at_once() -> None:
    A = np.random.default_rng(0).normal(size=(17, 3))
    reduced = reduce(np.ones(3), A, np.ones(17), dims(0, 2, [3, 4, 3, 5]), np.zeros(0, dtype=int))
    assert [tuple(block.rows.shape) for block in reduced.program.blocks] == [(2, 1), (2, 3), (1, 4), (1, 5)]
    assert sorted(reduced.rows.tolist()) == list(range(17))
    assert reduced.rows[reduced.program.blocks[1].rows].tolist() == [[2, 3, 4], [9, 10, 11]]
    set = feasible(reduced.program)
    points = torch.randn(5, 7, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert set.constraints(points).shape == (5, 7, 6)
    torch.testing.assert_close(set.constraints(points)[2, 3], set.constraints(points[2, 3]))


def test_a_certificate_is_a_dual_point() -> None:
    """min -x - y on the disc: from a point that is not optimal the cuts find one, and the y that proves it."""
    G = torch.tensor([[0.0, 0.0], [-1.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
    h = torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64)
    program = Program(-torch.ones(2, dtype=torch.float64), G, h, (SecondOrder(torch.arange(3)[None]),))
    proof = certify(program, torch.tensor([0.9, 0.1], dtype=torch.float64), tol=1e-10, patience=8)
    assert proof.within(1e-10) and proof.y is not None
    assert proof.value == pytest.approx(-np.sqrt(2), abs=1e-9) and feasible(program).contains(proof.x)
    torch.testing.assert_close(G.T @ proof.y, -program.c, atol=1e-10, rtol=0)
    assert torch.linalg.vector_norm(proof.y[1:]) <= proof.y[0] + 1e-12
    assert proof.lower <= -float(proof.y @ h) + 1e-12


def test_a_combination_of_cuts_that_is_not_the_objective_bounds_nothing() -> None:
    """x >= 0 alone says nothing about x + y; with y >= 0 the bound is 0."""
    both = HalfLines(torch.arange(2)[:, None])
    c, h = torch.ones(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    pool = Pool(Program(c, -torch.eye(2, dtype=torch.float64), h, (both,)))
    assert pool.bound(torch.tensor([1.0, 0.0], dtype=torch.float64), 1.0) == (-float("inf"), None)
    lower, y = pool.bound(torch.tensor([0.9, 1.1], dtype=torch.float64), 1.0)
    assert lower == pytest.approx(0, abs=1e-12) and y is not None and y.tolist() == pytest.approx([1, 1])

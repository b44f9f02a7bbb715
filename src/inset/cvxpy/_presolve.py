"""From CVXPY's conic data to a `Program` in the fewest variables, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..affine import eliminate
from ._cones import Blocks, Exponential, HalfLines, Power, SecondOrder, Semidefinite
from ._program import Program

TINY = 1e-12
"""Entries and residuals of this relative size count as rounding."""


@dataclass(frozen=True, eq=False)
class Reduced:
    """A program without equalities, constant rows and directions in which nothing changes, and the way back."""

    program: Program
    F: np.ndarray
    """The given variables are `origin + F x`."""
    origin: np.ndarray
    rows: np.ndarray
    """The given rows that are left, in their order."""
    scale: np.ndarray
    """What each of them was multiplied by."""
    contradiction: str | None = None
    """Why the equalities or the constant rows alone are infeasible."""
    free: np.ndarray | None = None
    """A direction of the given variables that changes c.x and no row: the program is unbounded if it is feasible."""


def reduce(c: np.ndarray, A: np.ndarray, b: np.ndarray, dims: Any, implied: np.ndarray) -> Reduced:
    """The program min c.x s.t. A x + s = b, s in the cones of `dims` in CVXPY's order, in the fewest variables.

    `implied` are rows of half-lines that are known to hold with equality.
    """
    zero = dims.zero
    equal = np.concatenate([np.arange(zero), implied])
    F, origin, contradiction = _solve_equalities(A[equal], b[equal], len(c))
    G, h = A[zero:] @ F, b[zero:] - A[zero:] @ origin
    size = np.abs(A[zero:]).max(axis=1, initial=0.0)
    moves = np.abs(G).max(axis=1, initial=0.0) > TINY * np.where(size > 0, size, 1.0)
    blocks, constant = _moving(_cones(dims), torch.as_tensor(moves & np.isfinite(h)))
    contradiction = contradiction or _violated(constant, torch.as_tensor(h), torch.as_tensor(np.abs(b[zero:])))
    rows = np.concatenate([np.zeros(0, dtype=int), *(block.rows.numpy().reshape(-1) for block in blocks)])
    scale = np.concatenate([np.zeros(0), *(_block_scale(block, G) for block in blocks)])
    G, h = G[rows] * scale[:, None], h[rows] * scale
    V, N = _row_space(G)
    cost = F.T @ c
    free = N @ (N.T @ cost)
    flat = np.linalg.norm(free) <= 1e-10 * max(np.linalg.norm(cost), np.linalg.norm(c) * TINY)
    reduced_c, G, h = (torch.as_tensor(v) for v in (V.T @ cost, G @ V, h))
    program = Program(reduced_c, G, h, _renumbered(blocks), float(c @ origin))
    return Reduced(program, F @ V, origin, rows + zero, scale, contradiction, None if flat else -F @ free)


def _solve_equalities(A: np.ndarray, b: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, str | None]:
    """`(F, x0, None)` with {A x = b} = {F z + x0}, or a reason why there is no such x."""
    size = np.abs(A).max(axis=1, initial=0.0)
    if not np.all(np.isfinite(b)) or np.any(np.abs(b[size == 0]) > 0):
        return np.eye(n), np.zeros(n), "an equality 0 = b with b != 0"
    A, b = A[size > 0] / size[size > 0, None], b[size > 0] / size[size > 0]
    if len(A) == 0:
        return np.eye(n), np.zeros(n), None
    F, x = eliminate(A, b)
    x = x - np.linalg.lstsq(A, A @ x - b, rcond=None)[0]
    worst = np.max(np.abs(A @ x - b) / (np.abs(A) @ np.abs(x) + np.abs(b) + 1))
    return F, x, f"the equalities contradict each other by {worst:.2g}" if worst > 1e-9 else None


def _cones(dims: Any) -> list[Blocks]:
    """One `Blocks` per kind and size, in CVXPY's order: half-lines, second-order, semidefinite, exponential, power."""
    blocks: list[Blocks] = []
    at = 0

    def take(kind: Any, sizes: list[int], *more: Any) -> None:
        nonlocal at
        starts = at + np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(int)
        for size in sorted({*sizes}):
            chosen = starts[np.asarray(sizes) == size]
            blocks.append(kind(torch.as_tensor(chosen[:, None] + np.arange(size)), *more))
        at += int(sum(sizes))

    take(HalfLines, [1] * dims.nonneg)
    take(SecondOrder, [int(k) for k in dims.soc])
    take(Semidefinite, [n * (n + 1) // 2 for n in dims.psd])
    take(Exponential, [3] * dims.exp)
    take(Power, [3] * len(dims.p3d), torch.as_tensor(np.asarray(dims.p3d, dtype=float)))
    return blocks


def _moving(blocks: list[Blocks], moves: Tensor) -> tuple[list[Blocks], list[Blocks]]:
    """The blocks of which some row moves, and those of constants."""
    chosen: tuple[list[Blocks], list[Blocks]] = [], []
    for block in blocks:
        any_moves = moves[block.rows].any(-1)
        for kept, which in zip(chosen, (any_moves, ~any_moves), strict=True):
            if which.any():
                exponents = {"a": block.a[which]} if isinstance(block, Power) else {}
                kept.append(replace(block, rows=block.rows[which], **exponents))
    return chosen


def _violated(constant: list[Blocks], h: Tensor, size: Tensor) -> str | None:
    """Which constant block is outside of its cone, by more than rounding."""
    for block in constant:
        s = torch.nan_to_num(h[block.rows], posinf=1e300, neginf=-1e300)
        out = -(block.normals(s) * s).sum(-1)
        if bool((out > 1e-9 * (1 + torch.nan_to_num(size[block.rows], posinf=0.0).amax(-1))).any()):
            return f"a constraint on constants is violated by {float(out.max()):.2g}"
    return None


def _block_scale(block: Blocks, G: np.ndarray) -> np.ndarray:
    """One number per row, the same within a block: 1 over the length of the longest row."""
    lengths = np.linalg.norm(G[block.rows.numpy()], axis=-1).max(axis=-1, keepdims=True)
    return np.broadcast_to(1 / lengths, block.rows.shape).reshape(-1)


def _renumbered(blocks: list[Blocks]) -> tuple[Blocks, ...]:
    """The same blocks with the rows 0, 1, 2, ..."""
    at, result = 0, []
    for block in blocks:
        count = block.rows.numel()
        result.append(replace(block, rows=torch.arange(at, at + count).reshape(block.rows.shape)))
        at += count
    return tuple(result)


def _row_space(G: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal columns that span the rows of G, the identity if these span all, and those of their complement."""
    n = G.shape[1]
    if len(G) == 0:
        return np.zeros((n, 0)), np.eye(n)
    _, values, Vh = np.linalg.svd(G, full_matrices=True)
    rank = int(np.sum(values > TINY * max(G.shape) * values[0]))
    return (np.eye(n), np.zeros((n, 0))) if rank == n else (Vh[:rank].T, Vh[rank:].T)

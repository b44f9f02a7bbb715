"""What proves a point optimal: a point y of the dual cone, put together from cuts by a linear program.

Every n of the dual cone is a cut: n.(h - G x) >= 0 for each feasible x. A combination y of cuts with G^T y = -c bounds
the optimum from below, c.x = y.(h - G x) - y.h >= -y.h. Cuts that touch the cones at, and near, the best point known
suffice: where the point is optimal up to d, their best bound is short of it by the order of d^2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog
from torch import Tensor

from .._project import project
from ._cones import HalfLines
from ._program import Program, feasible

SCALES = 10.0 ** -torch.arange(9, dtype=torch.float64)
"""Distances at which cuts are made around the best point, relative to the size of its slack."""
HALVES = 0.5 ** torch.arange(40, dtype=torch.float64)
ROUNDS = 30
ROUNDING = 1e-11
"""How far G^T y may be from -c, relative to c."""
BOX = 1e4
"""The corner of the cuts is looked for within this distance, in coordinates in which the anchor is about 1 deep."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """A feasible point and a lower bound of the optimum."""

    x: Tensor
    """Feasible, and at least as good as the point given."""
    value: float
    lower: float
    """No feasible point has a smaller objective; -inf if no combination of cuts says so."""
    y: Tensor | None
    """The point of the dual cone that proves it: G^T y = -c up to rounding, lower = offset - y.h."""
    rounds: int

    @property
    def gap(self) -> float:
        return self.value - self.lower

    @property
    def sound(self) -> bool:
        """Whether the point is not below the bound: there rounding has won."""
        return self.gap >= -1e-9 * max(1.0, abs(self.value))

    def within(self, tol: float) -> bool:
        """Whether the point is optimal up to tol max(1, |value|)."""
        return self.sound and self.gap <= tol * max(1.0, abs(self.value))


def certify(program: Program, x: Tensor, tol: float, patience: int, rounds: int = ROUNDS) -> Certificate:
    """Bounds of the optimum from cuts around x, in coordinates whose origin is strictly feasible.

    A round makes cuts, solves the linear program they leave, and pulls its corner into the set along the ray from the
    origin; if that point is the better one, the next round's cuts are made around it. It ends when value - lower is
    at most tol max(1, |value|), or was not halved in so many rounds as one has patience for.
    """
    set, origin = feasible(program), torch.zeros_like(x)
    best = Certificate(x, program.value(x), -float("inf"), None, 0)
    pool = Pool(program)
    pool.add_around(program.slack(x))
    gaps: list[float] = []
    while best.rounds < rounds:
        found = pool.corner(best.x, BOX * max(1.0, float(best.x.abs().max())))
        if found is None:
            break
        corner, weights, bounded = found
        lower, y = pool.bound(weights, 1 + float(corner.abs().max())) if bounded else (-float("inf"), None)
        best = replace(best, rounds=best.rounds + 1)
        if lower > best.lower:
            best = replace(best, lower=lower, y=y)
        gaps.append(best.gap)
        if best.within(tol) or (len(gaps) > patience and not gaps[-1] < 0.5 * gaps[-1 - patience]):
            break
        end = project(set, corner, origin, method="ray")
        if program.value(end) < best.value:
            best = replace(best, x=end, value=program.value(end))
            pool.add_around(program.slack(end))
        pool.add_violated(program.slack(best.x + HALVES[:, None] * (corner - best.x)))
    return best if best.sound else replace(best, lower=-float("inf"), y=None)


def recession(program: Program, hint: Tensor, rounds: int = 30) -> Tensor | None:
    """A direction d with c.d < 0 and -G d in K up to rounding: the set goes on along it, and the objective falls."""
    cone = replace(program, h=torch.zeros_like(program.h), offset=0.0)
    pool, d = Pool(cone), hint / hint.abs().max().clamp(min=1e-300)
    for _ in range(rounds):
        falls = -float(cone.c @ d) / float(cone.c.abs().sum())
        if falls > 1e-9 and float(cone.heights(cone.slack(d)).max()) <= 1e-9 * falls:
            return d
        pool.add_violated(cone.slack(d)[None])
        found = pool.corner(torch.zeros_like(d), 1.0) if pool.cuts else None
        if found is None or float(cone.c @ found[0]) > -1e-9 * float(cone.c.abs().sum()):
            return None
        d = found[0]
    return None


class Cut(NamedTuple):
    """Cuts of one kind: points of the dual cones of some blocks, their rows in the program, and n.G."""

    n: Tensor
    rows: Tensor
    a: Tensor


class Pool:
    """Cuts n.(h - G x) >= 0: of the half-lines from the beginning, of the other cones as they are made."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.curved = [block for block in program.blocks if not isinstance(block, HalfLines)]
        self.cuts: list[Cut] = []
        for block in program.blocks:
            if isinstance(block, HalfLines):
                self._append(block.rows, torch.ones(block.rows.shape, dtype=torch.float64))

    def add_around(self, s: Tensor) -> None:
        """Cuts at the slack s, `(m,)`, and at points around it at all scales."""
        for block in self.curved:
            at = s[block.rows]
            step = torch.eye(at.shape[-1], dtype=at.dtype)
            step = torch.cat([step, -step])[:, None, :] * at.abs().amax(-1, keepdim=True).clamp(min=1e-12)
            points = torch.cat([at[None], at + (SCALES[:, None, None, None] * step).flatten(0, 1)])
            self._append(block.rows.expand(points.shape), block.normals(points))

    def add_violated(self, s: Tensor) -> None:
        """The cuts that keep the slacks s, `(points, m)`, out."""
        for block in self.curved:
            at = s[:, block.rows]
            n = block.normals(at)
            violated = (n * at).sum(-1) < 0
            self._append(block.rows.expand(n.shape)[violated], n[violated])

    def corner(self, near: Tensor, radius: float) -> tuple[Tensor, Tensor, bool] | None:
        """The minimiser of c.x over the cuts in a box around a point, their weights, and whether the box is idle."""
        c = self.program.c / torch.linalg.vector_norm(self.program.c)
        s = self.program.slack(near)
        A, b = torch.cat([cut.a for cut in self.cuts]), torch.cat([(n * s[rows]).sum(-1) for n, rows, _ in self.cuts])
        size = torch.linalg.vector_norm(A, dim=-1).clamp(min=1e-300)
        found = linprog(
            c.numpy(),
            A_ub=(A / size[:, None]).numpy(),
            b_ub=(b / size).numpy(),
            bounds=(-radius, radius),
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.x is None:
            return None
        weights = torch.as_tensor(-found.ineqlin.marginals) / size * torch.linalg.vector_norm(self.program.c)
        at_box = float(np.abs(found.lower.marginals).max() + np.abs(found.upper.marginals).max())
        return near + torch.as_tensor(found.x), weights, at_box <= 1e-9

    def bound(self, weights: Tensor, reach: float) -> tuple[float, Tensor | None]:
        """offset - y.h for the combination y of cuts with these weights, and y; -inf unless G^T y = -c up to rounding.

        What rounding leaves of G^T y + c is charged for points within reach.
        """
        program, A = self.program, torch.cat([cut.a for cut in self.cuts])
        used = weights > 0
        exact = torch.linalg.lstsq(A[used].T, -program.c, driver="gelsd").solution
        weights = weights.clamp(min=0)
        if bool((exact >= -1e-12 * exact.abs().max()).all()):
            weights[used] = exact.clamp(min=0)  # without the tolerances of the linear program
        y, at = torch.zeros_like(program.h), 0
        for n, rows, _ in self.cuts:
            y.index_put_((rows,), weights[at : at + len(n), None] * n, accumulate=True)
            at += len(n)
        rest = (program.G.T @ y + program.c).abs()
        if float(rest.max()) > ROUNDING * float(program.c.abs().max()):
            return -float("inf"), None
        return program.offset - float(y @ program.h) - reach * float(rest.sum()), y

    def _append(self, rows: Tensor, n: Tensor) -> None:
        n, rows = n.reshape(-1, n.shape[-1]), rows.reshape(-1, n.shape[-1])
        a = (n[..., None] * self.program.G[rows]).sum(-2)
        kept = torch.linalg.vector_norm(a, dim=-1) > 1e-14
        self.cuts.append(Cut(n[kept], rows[kept], a[kept]))

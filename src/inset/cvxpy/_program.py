"""`Program`: minimise c.x over G x + s = h, s in K; and its set, for the descent methods."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .._set import ConvexSet, convex_set, static
from ._cones import Blocks, HalfLines


@dataclass(frozen=True, eq=False)
class Program:
    """Minimise offset + c.x subject to h - G x in K."""

    c: Tensor
    """`(n,)`."""
    G: Tensor
    """`(m, n)`."""
    h: Tensor
    """`(m,)`."""
    blocks: tuple[Blocks, ...]
    """The cones whose product is K; together they hold each row once."""
    offset: float = 0.0

    def value(self, x: Tensor) -> float:
        """offset + c.x."""
        return self.offset + float(self.c @ x)

    @property
    def size(self) -> float:
        """1 + the largest distance of a row from the origin, rows being of length about 1."""
        return 1 + float(self.h.abs().max())

    def slack(self, x: Tensor) -> Tensor:
        """s = h - G x, `(*batch, m)`."""
        return self.h - x @ self.G.T

    def heights(self, s: Tensor) -> Tensor:
        """h of each block at s, see `_cones`, `(*batch, number of blocks)`."""
        parts = [s[..., block.rows] for block in self.blocks]
        values = [
            -(block.normals(part.detach()) * part).sum(-1) for block, part in zip(self.blocks, parts, strict=True)
        ]
        return torch.cat(values, dim=-1)

    def barrier(self, x: Tensor) -> Tensor:
        """The sum of the barriers of the blocks."""
        s = self.slack(x)
        return torch.stack([block.barrier(s[..., block.rows]).sum(-1) for block in self.blocks]).sum(0)

    def interior(self) -> Tensor:
        """e of all blocks, `(m,)`."""
        e = torch.zeros_like(self.h)
        for block in self.blocks:
            e[block.rows] = block.interior.expand(block.rows.shape)
        return e

    def moved(self, origin: Tensor, T: Tensor) -> Program:
        """The same program in the coordinates w of x = origin + T w."""
        return replace(self, c=T.T @ self.c, G=self.G @ T, h=self.slack(origin), offset=self.value(origin))

    def relaxed(self, radius: float) -> Program:
        """Minimise t subject to h - G x + t e in K, t >= -1 and |x_i| <= radius, in the variables (x, t).

        Its optimum is negative if the set has an interior in that box.
        """
        n, m = self.c.shape[0], self.h.shape[0]
        G = torch.zeros(m + 1 + 2 * n, n + 1, dtype=self.G.dtype)
        G[:m, :n], G[:m, n], G[m, n] = self.G, -self.interior(), -1.0
        G[m + 1 :, :n] = torch.cat([torch.eye(n), -torch.eye(n)])
        h = torch.cat([self.h, self.h.new_ones(1), self.h.new_full((2 * n,), radius)])
        c = torch.zeros(n + 1, dtype=self.c.dtype)
        c[n] = 1.0
        return Program(c, G, h, (*self.blocks, HalfLines(torch.arange(m, len(h))[:, None])))


@convex_set
class Feasible(ConvexSet):
    """{x : top - G x in K}.   One constraint per block of K, min {t : top - G x + t e in K}."""

    G: Tensor
    top: Tensor
    program: Any = static()

    event_ndim = 1
    shapes = {"G": "m n", "top": "m", "x": "n"}

    def constraints(self, x: Tensor) -> Tensor:
        return self.program.heights(self.top - x @ self.G.T)


def feasible(program: Program) -> Feasible:
    """The set of a program."""
    return Feasible(program.G, program.h, program)

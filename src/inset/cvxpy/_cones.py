"""The cones of a conic program, each as one convex function, with all blocks of a kind evaluated at once.

A cone K with a point e inside is {s : h(s) <= 0} with h(s) = min {t : s + t e in K}. That h is convex, finite
everywhere and norm-like, h(a s) = a h(s); it is the largest -n.s over the n of the dual cone with n.e = 1. Here:

    kind          e            h
    half-line     1            -s
    second-order  (1, 0)       |v| - t                  s = (t, v)
    semidefinite  I            -lambda_min
    exponential   (-1, 1, 1)   a root on a line         y exp(x/y) <= z
    power         (1, 1, 0)    a root on a line         |z| <= x^a y^(1-a)

`normals(s)` is the n of that maximum, so h(s) = -n.s, and -n is the gradient. Each n is also a cut: n.s >= 0 on K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from .._linalg import eigh
from ._roots import log_ratio_above, log_ratio_below, smaller_over_larger


@dataclass(frozen=True, eq=False)
class Blocks:
    """All blocks of one kind and size: K = K_1 x ... x K_m, each of dimension k."""

    rows: Tensor
    """Which rows of the program they are, `(m, k)`."""

    @property
    def interior(self) -> Tensor:
        """e, `(k,)`."""
        raise NotImplementedError

    def normals(self, s: Tensor) -> Tensor:
        """The n of largest -n.s, with n.e = 1, for s of shape `(*batch, m, k)`. Without gradients."""
        raise NotImplementedError

    def barrier(self, s: Tensor) -> Tensor:
        """A self-concordant barrier of each block, `(*batch, m)`."""
        raise NotImplementedError


class HalfLines(Blocks):
    """s >= 0."""

    @property
    def interior(self) -> Tensor:
        return torch.ones(1, dtype=torch.float64)

    def normals(self, s: Tensor) -> Tensor:
        return torch.ones_like(s)

    def barrier(self, s: Tensor) -> Tensor:
        return -torch.log(s[..., 0])


class SecondOrder(Blocks):
    """|v| <= t for s = (t, v)."""

    @property
    def interior(self) -> Tensor:
        return torch.eye(self.rows.shape[-1], dtype=torch.float64)[0]

    def normals(self, s: Tensor) -> Tensor:
        v = s[..., 1:]
        length = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
        return torch.cat([torch.ones_like(length), -v / torch.where(length > 0, length, 1.0)], dim=-1)

    def barrier(self, s: Tensor) -> Tensor:
        return -torch.log(s[..., 0] ** 2 - torch.sum(s[..., 1:] ** 2, dim=-1))


class Semidefinite(Blocks):
    """Matrices without negative eigenvalue, as their upper triangle by columns, times sqrt 2 off the diagonal."""

    @property
    def order(self) -> int:
        return math.isqrt(2 * self.rows.shape[-1])

    @property
    def interior(self) -> Tensor:
        return self.vector(torch.eye(self.order, dtype=torch.float64))

    def normals(self, s: Tensor) -> Tensor:
        v = eigh(self.matrix(s))[1][..., :, 0]
        return self.vector(v[..., :, None] * v[..., None, :])

    def barrier(self, s: Tensor) -> Tensor:
        return -torch.logdet(self.matrix(s))

    def matrix(self, s: Tensor) -> Tensor:
        """`(*batch, m, k)` to `(*batch, m, order, order)`."""
        _, _, position, root = _triangle(self.order)
        return s[..., position] / root[position]

    def vector(self, S: Tensor) -> Tensor:
        """The inverse of `matrix`."""
        i, j, _, root = _triangle(self.order)
        return S[..., i, j] * root


@cache
def _triangle(n: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Row and column of each entry of the vector, the entry at each row and column, and the factors of the entries."""
    j, i = torch.tril_indices(n, n)  # row by row below the diagonal is column by column above it
    position = torch.zeros(n, n, dtype=torch.long)
    position[i, j] = position[j, i] = torch.arange(len(i))
    return i, j, position, torch.where(i == j, 1.0, 2.0).to(torch.float64).sqrt()


class Exponential(Blocks):
    """y exp(x/y) <= z for s = (x, y, z), y > 0, and its closure."""

    @property
    def interior(self) -> Tensor:
        return torch.tensor([-1.0, 1.0, 1.0], dtype=torch.float64)

    def normals(self, s: Tensor) -> Tensor:
        """n = (-1, -1 - r, exp r) / (exp r - r) with r = log(y'/z') at the point s' = s + h e of the boundary."""
        x, y, z = np.moveaxis(s.numpy(), -1, 0)
        with np.errstate(all="ignore"):
            r = np.where(y <= z, -log_ratio_below(x + y, z - y), log_ratio_above(x + z, y - z))
            up = np.exp(-np.abs(r))
            size = np.where(r > 0, 1 - r * up, up - r)
            first, last = np.where(r > 0, up, 1.0), np.where(r > 0, 1.0, up)
            curved = np.stack([-first, -(1 + r) * first, last], axis=-1) / size[..., None]
        flat = (y <= z) & (x + y <= 0)
        return torch.from_numpy(np.where(flat[..., None], [0.0, 1.0, 0.0], curved))

    def barrier(self, s: Tensor) -> Tensor:
        x, y, z = s.unbind(-1)
        return -torch.log(y * torch.log(z / y) - x) - torch.log(y) - torch.log(z)


@dataclass(frozen=True, eq=False)
class Power(Blocks):
    """|z| <= x^a y^(1-a) for s = (x, y, z), x, y >= 0."""

    a: Tensor
    """The exponents, `(m,)`."""

    @property
    def interior(self) -> Tensor:
        return torch.tensor([1.0, 1.0, 0.0], dtype=torch.float64)

    def normals(self, s: Tensor) -> Tensor:
        """n ~ (a/x', (1-a)/y', -sign(z)/|z|) at the point s' = s + h e of the boundary."""
        x, y, z = np.moveaxis(s.numpy(), -1, 0)
        a = np.where(x <= y, self.a.numpy(), 1 - self.a.numpy())  # of the smaller of the two
        with np.errstate(all="ignore"):
            ratio = smaller_over_larger(np.abs(z), np.abs(x - y), a)
        small, large = a, (1 - a) * ratio
        height = -np.sign(z) * ratio ** (1 - a)
        first, second = np.where(x <= y, small, large), np.where(x <= y, large, small)
        return torch.from_numpy(np.stack([first, second, height], axis=-1) / (small + large)[..., None])

    def barrier(self, s: Tensor) -> Tensor:
        x, y, z = s.unbind(-1)
        a = self.a
        mean = torch.exp(2 * a * torch.log(x) + 2 * (1 - a) * torch.log(y))
        return -torch.log(mean - z**2) - (1 - a) * torch.log(x) - a * torch.log(y)

"""`LMI` for `lines.py`, with one eigendecomposition and none on the way back; see `curved.py`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._linalg import eigh
from .._set import ConvexSet
from ..sets.lmi import LMI
from .curved import Curved, Margin
from .kinds import norm, positive, roundoff


@dataclass(frozen=True)
class _Matrices(Curved, ABC):
    """S(x) = M (sum_i w_i T_i + T_0 / M), w = (x - x0) / M, M = max(1, |x - x0|): s is -lambda_min(S(x)) / d."""

    stack: Tensor
    """T_1, ..., T_n, T_0 as rows."""
    offset: Tensor
    slope: Tensor
    """What rounding may add to s: constant, and per unit of |x - x0|."""

    dims, kept = (3, 2), 1

    @staticmethod
    def fields(set: LMI, method: Any) -> tuple[Any, ...] | None:
        return set.A, set.C

    @staticmethod
    def count(fields: tuple[Any, ...], x: Tensor) -> int:
        return 4 * fields[1].numel()

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        v = points - self.anchor
        length = norm(v, keepdim=True)
        M = length.clamp(min=1)
        w = torch.where(length < torch.inf, torch.cat([v, torch.ones_like(M)], -1) / M, 0.0)
        k = self.set.C.shape[-1]  # type: ignore[attr-defined]
        value, vector = lowest((w @ self.stack).unflatten(-1, (k, k)), sloped)
        out = -value * M * self.inverse  # NaN where the length is
        if strict:
            out = out + self.offset + length * self.slope
        return out, length, *vector

    def less(self, v: Tensor, t: Tensor, points: Tensor, q: Tensor) -> Tensor:
        squares = (t * self.inverse * q)[:, :, None] * q[:, None]
        return torch.addmm(v, squares.reshape(len(v), -1), self.stack[:-1].mT)  # ds_i = -q.T_i q / d

    @classmethod
    @torch.no_grad()
    def known(cls, *fields: Tensor, anchor: Tensor) -> _Matrices:
        (A, C), x0, u = [v.double() for v in fields], anchor.double(), roundoff(anchor)
        n, k, _ = A.shape
        c, size = u * (n + 4 * k + 8), norm(x0)
        steep, offset = norm(A.flatten()), norm(C.flatten())
        S = (x0 @ A.flatten(1)).unflatten(-1, (k, k)) - C
        depth = positive(eigh(S)[0][0])
        fixed = 4 * c * (steep * size + offset) + 8 * u * steep * size
        left = positive(depth - 2 * fixed)
        evaluation = c * (steep * size + offset), c * steep
        T, inverse, sizes, lost = cls._transformed(A, S, depth, left, c, evaluation, anchor.dtype)
        constant, linear = fixed + 2 * c * offset + 4 * u * steep * size + lost[0], (2 * c + 4 * u) * steep + lost[1]
        margin = Margin.of(left, size, anchor.dtype, constant, linear)
        constants = [v.to(anchor.dtype) for v in (inverse, T.nan_to_num(), *sizes)]
        return cls(LMI(*fields), anchor.clone(), margin, *constants)

    @staticmethod
    @abstractmethod
    def _transformed(*terms: Any) -> tuple[Any, ...]:
        """T, 1 / d, the bounds of the rounding of s, and by how much h of y may be more than s says, per |y| too."""


@dataclass(frozen=True)
class _MatricesChord(_Matrices):
    """T_i = A_i."""

    @staticmethod
    def _transformed(*terms: Any) -> tuple[Any, ...]:
        A, S, depth, _, _, evaluation, _ = terms
        T = torch.cat([A.flatten(1), S.flatten()[None]])
        return T, 1 / depth, [2 * v / depth for v in evaluation], (0.0, 0.0)  # here, and where x is evaluated again


@dataclass(frozen=True)
class _MatricesRay(_Matrices):
    """T_i = L^-1 A_i L^-T with S(x0) = L L^T: T_0 = I, d = 1."""

    @staticmethod
    def _transformed(*terms: Any) -> tuple[Any, ...]:
        A, S, depth, left, c, evaluation, dtype = terms
        k = len(S)
        L, failed = torch.linalg.cholesky_ex(S)
        L = torch.where((failed > 0) | depth.isnan(), torch.eye(k, dtype=S.dtype, device=S.device), L)
        half = torch.linalg.solve_triangular(L, A, upper=False)
        G = torch.linalg.solve_triangular(L, half.mT, upper=False)
        G = ((G + G.mT) / 2).to(dtype).double()
        one = torch.eye(k, dtype=S.dtype, device=S.device).flatten()[None]
        # S(x) = L (I + sum_i v_i G_i) L^T but for what was lost, and for rounding of that
        off, size = 2 * (k + 2) * roundoff(S), L.abs()
        lost = (
            norm((S - L @ L.mT).flatten()) + off * norm((size @ size.mT).flatten()),
            norm((A - L @ G @ L.mT).flatten()) + off * norm((size @ G.abs() @ size.mT).flatten()),
        )
        constant, linear = [(a + b) / left for a, b in zip(evaluation, lost, strict=True)]
        own = c * k**0.5, c * norm(G.flatten())
        return torch.cat([G.flatten(1), one]), depth / depth, (constant + own[0], linear + own[1]), lost


def lowest(S: Tensor, sloped: bool) -> tuple[Tensor, list[Tensor]]:
    """The smallest eigenvalues, `(batch, 1)`, and their vectors if they are asked for; S is overwritten."""
    if not S.is_cpu:
        values, V = eigh(S)
        return values[:, :1], [V[..., 0]]
    infinite = ~(S.abs().amax((-2, -1)) < torch.inf)[:, None]
    S.masked_fill_(infinite[..., None], 0.0)  # LAPACK would refuse it
    values, *V = torch.linalg.eigh(S) if sloped else (torch.linalg.eigvalsh(S),)
    return values[:, :1].masked_fill(infinite, torch.nan), [v[..., 0] for v in V]


KNOWN: dict[type[ConvexSet], dict[str, Any]] = {
    LMI: {"paper": _MatricesChord, "chord": _MatricesChord, "ray": _MatricesRay}
}

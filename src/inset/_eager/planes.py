"""Equalities A x = b beside what `lines.py` knows, and `Simplex`, which has one.

A point is moved onto the plane, x - A^+ (A x - b), twice, since the residual of the first is not yet rounding, and then
projected as if it had been given there; so is the anchor, once. A point that is there up to rounding stays as it is.
The derivative is multiplied by 1 - A^+ A.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._combine import Intersection
from .._set import ConvexSet
from ..affine import Equality
from ..sets.simplex import Simplex
from .joint import Found, dimensions, split
from .kinds import certainty, positive, roundoff

SOURCES: dict[type[ConvexSet], tuple[int, ...]] = {Equality: (2, 1, 2), Simplex: (0,)}
"""Sets with equalities, and how many dimensions the fields have that say which."""


def fields(set: Any) -> tuple[Any, ...]:
    """Those that say which equalities there are."""
    if type(set) is Equality:
        return set.A, set.b, set.inverse
    return (float(set.total) if isinstance(set.total, int) else set.total,)


LEAST = 1e-30
"""Of the coordinates of an anchor in a simplex, for which rounding is relative."""


@dataclass(frozen=True)
class OnPlane:
    """The kind of a set with equalities, made of the kind of its inequalities."""

    sources: tuple[type[ConvexSet], ...]
    inner: Any
    dims: tuple[int | None, ...]

    @classmethod
    def of(cls, sets: list[ConvexSet], found: Found) -> Found:
        """The kind, and the fields of the equalities and of the rest."""
        inner, own = found
        sources = tuple([type(set) for set in sets])
        dims = [*[k for source in sources for k in SOURCES[source]], *dimensions(found)]
        return cls(sources, inner, tuple(dims)), (*[v for set in sets for v in fields(set)], *own)

    def _apart(self, given: tuple[Any, ...]) -> list[Any]:
        """The fields of each source, and those of the inequalities."""
        sizes = [len(SOURCES[source]) for source in self.sources]
        return split(given, (*sizes, len(given) - sum(sizes)))

    def count(self, given: tuple[Any, ...], x: Tensor) -> int:
        *_, own = self._apart(given)
        return max(x.shape[-1], self.inner.count(own, x))

    @torch.no_grad()
    def known(self, *given: Any, anchor: Tensor) -> KnownOnPlane:
        *sources, own = self._apart(given)
        systems, sets = [], []
        for source, values in zip(self.sources, sources, strict=True):
            systems.append(values if source is Equality else _of_simplex(values[0], anchor))
            sets.append(Equality(*values) if source is Equality else Simplex(anchor.shape[0], values[0]))
        plane = Plane.of(systems)
        start = plane.onto(anchor[None])[0]
        inner = self.inner.known(*own, anchor=start)
        rest = [v for v in getattr(inner.set, "parts", (inner.set,)) if type(v) is not Simplex]
        parts = (*sets, *rest)
        return KnownOnPlane(parts[0] if len(parts) == 1 else Intersection(parts), plane, start, inner)


def _of_simplex(total: Any, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A, b and A^+ of the sum of the coordinates."""
    ones, n = torch.ones_like(like), like.shape[0]
    b = total if isinstance(total, Tensor) else torch.full_like(like[0], total)
    return ones[None], b[None], ones[:, None] / n


@dataclass(frozen=True)
class Plane:
    """{x : A x = b}."""

    across: Tensor
    """A^T."""
    bare: Tensor
    """-b."""
    inward: Tensor
    """The transpose of A^+."""
    sizes: Tensor
    """2 n eps |A|^T, and 2 n eps |b| below: a residual up to which x is there."""
    allowed: Tensor

    @classmethod
    def of(cls, systems: list[Any]) -> Plane:
        """Of several systems `(A, b, A^+)`."""
        A, b, inverse = systems[0]
        if len(systems) > 1:
            A, b = torch.cat([v[0] for v in systems]), torch.cat([v[1] for v in systems])
            inverse = torch.linalg.pinv(A)
        k = 4 * roundoff(A) * A.shape[1]
        return cls(A.mT, -b, inverse.mT.contiguous(), k * A.abs().mT, k * b.abs())

    def onto(self, points: Tensor) -> Tensor:
        residual = torch.addmm(self.bare, points, self.across)
        there = residual.abs() <= torch.addmm(self.allowed, points.abs(), self.sizes)
        moved = torch.addmm(points, residual, self.inward, alpha=-1)
        moved = torch.addmm(moved, torch.addmm(self.bare, moved, self.across), self.inward, alpha=-1)
        return torch.where(there.all(-1, keepdim=True), points, moved)

    def along(self, v: Tensor) -> Tensor:
        """(1 - A^+ A) v."""
        return torch.addmm(v, v @ self.inward.mT, self.across.mT, alpha=-1)


@dataclass(frozen=True)
class KnownOnPlane:
    """What is known of the equalities, and of the inequalities around the anchor on their plane."""

    set: ConvexSet
    plane: Plane
    start: Tensor
    """The anchor, moved."""
    inner: Any

    @property
    def certain(self) -> Tensor:
        return self.inner.certain

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        return self.inner.out(points, strict, sloped)

    def more(self, eta: Tensor, length: Any) -> Tensor:
        return self.inner.more(eta, length)

    def less(self, v: Tensor, t: Tensor, points: Tensor, *kept: Tensor) -> Tensor:
        return self.plane.along(self.inner.less(v, t, points, *kept))


@dataclass(frozen=True)
class _OfSimplex:
    """x >= 0."""

    set: ConvexSet
    scale: Tensor
    """-1 / d."""
    certain: Tensor
    base: Tensor
    """1 + p, the error at y."""

    dims, kept = (), 1

    @staticmethod
    def fields(set: Simplex, method: Any) -> tuple[Any, ...] | None:
        return ()

    @staticmethod
    def count(fields: tuple[Any, ...], x: Tensor) -> int:
        return x.shape[-1]

    @classmethod
    @torch.no_grad()
    def known(cls, *, anchor: Tensor) -> _OfSimplex:
        u = roundoff(anchor)
        # rounding grows more slowly than the distance from a bound: it is enough to know it there
        fixed = 16 * u * anchor.abs() + 64 * torch.finfo(anchor.dtype).smallest_normal
        p = ((1.5 * fixed) / positive(anchor - 2 * fixed)).max()
        certain = torch.where(anchor.min() >= LEAST, certainty(p), torch.nan)
        return cls(Simplex(anchor.shape[0]), -1 / positive(anchor), certain, (1 + p) * (1 + 4 * u))

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        out, i = (points * self.scale).max(-1, keepdim=True)
        return (out, None, i) if sloped else (out, None)

    def more(self, eta: Tensor, length: None) -> Tensor:
        return self.base

    def less(self, v: Tensor, t: Tensor, points: Tensor, i: Tensor) -> Tensor:
        return v.scatter_add(-1, i, -t * self.scale.take(i))


KNOWN: dict[type[ConvexSet], dict[str, Any]] = {Simplex: {"chord": _OfSimplex, "ray": _OfSimplex}}

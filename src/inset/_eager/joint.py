"""Intersections of sets that `lines.py` knows: the farthest out of all parts counts, and its derivative.

Each part has its own margin, for the y that they share, and the largest is enough. See `kinds.py` for what a kind is.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, cycle, pairwise
from typing import Any

import torch
from torch import Tensor

from .._combine import Intersection
from .._set import ConvexSet

Found = tuple[Any, tuple[Any, ...]]
"""A kind, and the fields of a set."""


def dimensions(found: Found) -> list[int | None]:
    """How many each field has for one sample; None where the kind has looked."""
    kind, fields = found
    return [k for k, _ in zip(cycle(kind.dims), fields, strict=False)]


def split(values: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Consecutive pieces of these sizes."""
    return [values[a:b] for a, b in pairwise(accumulate(sizes, initial=0))]


@dataclass(frozen=True)
class Joint:
    """The kind of an intersection."""

    kinds: tuple[Any, ...]
    sizes: tuple[int, ...]
    """How many fields each of them has."""
    dims: tuple[int | None, ...]

    @classmethod
    def of(cls, found: list[Found]) -> Found:
        """The kind, and the fields of all parts."""
        kinds, fields = zip(*found, strict=True)
        dims = [k for one in found for k in dimensions(one)]
        return cls(kinds, tuple(map(len, fields)), tuple(dims)), tuple([v for own in fields for v in own])

    def count(self, fields: tuple[Any, ...], x: Tensor) -> int:
        pairs = zip(self.kinds, split(fields, self.sizes), strict=True)
        return sum([kind.count(own, x) for kind, own in pairs])

    def known(self, *fields: Any, anchor: Tensor) -> KnownJoint:
        pairs = zip(self.kinds, split(fields, self.sizes), strict=True)
        parts = tuple([kind.known(*own, anchor=anchor) for kind, own in pairs])
        sets = [inner for part in parts for inner in getattr(part.set, "parts", (part.set,))]
        certain = torch.stack([part.certain for part in parts]).amin()  # NaN where one is
        return KnownJoint(Intersection(tuple(sets)), parts, certain)


@dataclass(frozen=True)
class KnownJoint:
    """What is known of an intersection and an anchor."""

    set: ConvexSet
    parts: tuple[Any, ...]
    certain: Tensor

    def out(self, points: Tensor, strict: bool, sloped: bool) -> tuple[Any, ...]:
        found = [part.out(points, strict, sloped) for part in self.parts]
        out, which = torch.cat([v[0] for v in found], -1).max(-1, keepdim=True)  # NaN is the largest
        lengths = tuple([v[1] for v in found])
        return (out, lengths, which, *[w for v in found for w in v[2:]]) if sloped else (out, lengths)

    def more(self, eta: Tensor, length: tuple[Any, ...]) -> Tensor:
        first, *rest = [part.more(eta, own) for part, own in zip(self.parts, length, strict=True)]
        for other in rest:
            first = torch.maximum(first, other)
        return first

    def less(self, v: Tensor, t: Tensor, points: Tensor, which: Tensor, *kept: Tensor) -> Tensor:
        own = split(kept, tuple([part.kept for part in self.parts]))
        pieces = [part.less(v, t, points, *tensors) for part, tensors in zip(self.parts, own, strict=True)]
        result = pieces[0]
        for k, piece in enumerate(pieces[1:], 1):  # of a part that does not count the derivative may be no number
            result = torch.where(which == k, piece, result)
        return result

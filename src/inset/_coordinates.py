"""`Coordinates`: the points of a set, or of its part where equalities hold, as flat vectors."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from ._fields import leaves, map_point
from ._linalg import apply
from ._namespace import Array, Point, namespace


@dataclasses.dataclass(frozen=True, eq=False)
class Coordinates:
    """x = F z + base: coordinates z `(*more, N, k)` of points whose N = prod(batch) samples lie in one flat batch."""

    base: Array
    """The point of z = 0, flat, `(N, n)`."""
    F: Array | None
    """Orthonormal columns that span the directions left free, `(n, k)` or `(N, n, k)`; None: all of them, k = n."""
    batch: tuple[int, ...]
    """Batch shape of the points."""
    shapes: tuple[tuple[int, ...], ...]
    """Event shape of each array of a point."""
    event_ndim: Any
    """That of the set: its structure is the structure of a point."""

    @property
    def size(self) -> int:
        """The number k of free coordinates."""
        return self.base.shape[-1] if self.F is None else self.F.shape[-1]

    def point(self, z: Array) -> Point:
        """The point of coordinates `(*more, N, k)`, with arrays of shape `(*more, *batch, *event)`."""
        x = self.base + (z if self.F is None else apply(self.F, z))
        xp, entries, at = namespace(x), [], 0
        for shape in self.shapes:
            stop = at + math.prod(shape)
            entries.append(xp.reshape(x[..., at:stop], (*x.shape[:-2], *self.batch, *shape)))
            at = stop
        remaining = iter(entries)
        return map_point(lambda _: next(remaining), self.event_ndim)

    def of(self, point: Point) -> Array:
        """The coordinates `(N, k)` of a point, of its nearest one if equalities do not hold there."""
        difference = flattened(point, self.batch, self.shapes) - self.base
        return difference if self.F is None else apply(namespace(self.F).matrix_transpose(self.F), difference)

    def flat(self, v: Array) -> Array:
        """A batch-shaped array `(*batch,)` as `(N,)`."""
        xp = namespace(v)
        return xp.reshape(xp.broadcast_to(v, self.batch), (math.prod(self.batch),))


def flattened(point: Point, batch: tuple[int, ...], shapes: tuple[tuple[int, ...], ...]) -> Array:
    """The arrays of a point, broadcast to the batch, side by side as `(N, n)`."""
    xp = namespace(leaves(point)[0])
    full = [
        xp.reshape(xp.broadcast_to(v, (*batch, *shape)), (math.prod(batch), math.prod(shape)))
        for v, shape in zip(leaves(point), shapes, strict=True)
    ]
    return full[0] if len(full) == 1 else xp.concat(full, axis=-1)

"""`Pool`: the cuts that a radial descent remembers, each once."""

from __future__ import annotations

from typing import NamedTuple

from .._linalg import apply
from .._namespace import Array, arange_like, namespace, put


class Pool(NamedTuple):
    """Cuts u, with u.(z - origin) <= 1 on the set, for N problems. `add` writes into the arrays of torch in place."""

    cuts: Array
    """`(N, M, k)`."""
    keys: Array
    """One number for each cut, by which a cut that is there already is found, `(N, M)`."""
    oldest: Array
    """The place that the next new cut takes, `(N,)`."""

    def add(self, u: Array, where: Array) -> Pool:
        """With the cuts u of the problems named: in the place of an equal one if there is one, else of the oldest."""
        xp = namespace(u)
        key = _keys(u[:, None, :])
        near = float(xp.finfo(u.dtype).eps) ** 0.6
        same = abs(self.keys - key) <= near * abs(key)
        known = xp.any(same, axis=-1)
        place = xp.where(known, xp.argmax(xp.astype(same, xp.int32), axis=-1), self.oldest)
        following = xp.where(where & ~known, (self.oldest + 1) % self.keys.shape[1], self.oldest)
        return Pool(put(self.cuts, place, u, where), put(self.keys, place, key[:, 0], where), following)

    def shifted(self, shift: Array, where: Array) -> tuple[Pool, Array]:
        """The cuts seen from an origin that has moved by the shift; and whether it is inside of all of them."""
        xp = namespace(shift)
        room = 1 - apply(self.cuts, shift)
        inside = xp.all(room > 0, axis=-1)
        cuts = self.cuts / xp.where((where & inside)[:, None], room, xp.ones_like(room))[..., None]
        return Pool(cuts, _keys(cuts), self.oldest), inside


def start(u: Array, count: int) -> Pool:
    """A pool of this size that holds one cut, many times."""
    xp = namespace(u)
    cuts = xp.concat([u[:, None, :]] * count, axis=1)
    return Pool(cuts, _keys(cuts), xp.argmax(xp.zeros_like(u), axis=-1))


def _keys(cuts: Array) -> Array:
    """A fixed combination of the coordinates, which two different cuts hardly share."""
    xp = namespace(cuts)
    weights = xp.cos(1 + 12.9898 * xp.astype(arange_like(cuts.shape[-1], cuts), cuts.dtype))
    return xp.sum(cuts * weights, axis=-1)

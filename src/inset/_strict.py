"""What `strict` adds: a margin for rounding, so that the numbers returned are in the set.

Write u for the roundoff of the working dtype and u_out for that of the result if it is narrower, else 0. Computing
y = x0 + eta (x - x0) and rounding it displaces its coordinates by at most

    size = 4 u (|y| + |x0|) + u_out |y|,

with the smallest normal number beside |x0| and |y|, below which rounding does not become any less.
`ConvexSet.rounding(y, size, u)` bounds what that and the evaluation of constraint i, in any order, can add to it. With
the error of the values from which eta was computed, a computed h_i(y) exceeds 0 by at most

    E_i(y) = rounding_i(y, size(y), 2u) + rounding_i(x0, size(x0), 4u),    E_i(x0) <= 2 rounding_i(x0, size(x0), 4u).

Shrinking eta by the factor 1 - delta lowers h_i by delta |h_i(x0)| at least (convexity), while E_i goes from E_i(y)
towards E_i(x0); so

    delta = max_i E_i(y) / (|h_i(x0)| - E_i(x0) + E_i(y))

is enough, and it is below 1 whenever the anchor itself is inside by more than rounding.
"""

from __future__ import annotations

from typing import Any

from ._fields import leaves, map_point
from ._namespace import Array, Point, keep, namespace
from ._ray import between
from ._set import ConvexSet, offers
from ._shapes import largest, side_by_side

# Shrinkage, in units of eps, tried in turn where only a re-check can tell (user functions).
RECHECKS = (8.0, 256.0, 8192.0)


def roundoff(x: Point) -> float:
    leaf = leaves(x)[0]
    return float(namespace(leaf).finfo(leaf.dtype).eps) / 2


def smallest_normal(x: Point) -> float:
    leaf = leaves(x)[0]
    return float(namespace(leaf).finfo(leaf.dtype).smallest_normal)


def upper(parts: tuple[ConvexSet, ...], x: Point, anchor: Point, values: list[Array], narrow: float) -> list[Array]:
    """Upper bounds of the exact constraints at x, given computed ones; `narrow`: roundoff if x will be rounded."""
    u, lifted = roundoff(x), []
    size = map_point(lambda a, b: narrow * abs(b) if narrow else 0.0 * a, anchor, x)  # no displacement: a small 0
    for part, value in zip(parts, values, strict=True):
        lifted.append(value + part.rounding(x, size, u) if offers(part, "rounding") else value)
    return lifted


class Margin:
    """The bounds at the anchor, and how much they and the bounds at y ask eta to shrink."""

    def __init__(self, parts: tuple[ConvexSet, ...], anchor: Point, values0: list[Array], narrow: float, dtypes: Any):
        """`narrow`: roundoff of the result's dtypes if they are narrower than the working one, else 0."""
        self.anchor, self.narrow, self.dtypes, self.u = anchor, narrow, dtypes, roundoff(anchor)
        self.normal = smallest_normal(anchor)
        self.known = tuple([part for part in parts if offers(part, "rounding")])
        self.unknown = tuple([part for part in parts if not offers(part, "rounding")])
        self.unbounded = [v for p, v in zip(parts, values0, strict=True) if not offers(p, "rounding")]
        if self.known:
            self.depth = -side_by_side([v for p, v in zip(parts, values0, strict=True) if offers(p, "rounding")])
            self.fixed = self._bounds(anchor, self._displacement(anchor), 4)
            self.at_anchor = 2 * self.fixed

    def anchor_is_certified(self) -> Array:
        """Whether the anchor is inside, by more than rounding where its bound is known, `(*batch,)`."""
        sound = largest(side_by_side(self.unbounded)) < 0 if self.unbounded else None
        if not self.known:
            return sound
        xp = namespace(self.depth)
        certified = xp.all(self.depth > self.at_anchor, axis=-1)
        return certified if sound is None else certified & sound

    def shrink(self, set: ConvexSet, x: Point, eta: Array) -> Array:
        """A weight below eta at which the rounded result is in the set."""
        if self.known:
            y = between(set, self.anchor, eta, x)
            error = self.fixed + self._bounds(y, self._displacement(y), 2)
            # delta = max error / (room + error), written so that an infinite error asks for the anchor
            room = (self.depth - self.at_anchor) / error
            eta = eta * (1 - 1 / (1 + namespace(eta).min(room, axis=-1)))
            # below the smallest normal number a weight may be off by a large part of itself
            eta = keep(~(eta < self.normal), eta, 0.0)
        for part in self.unknown:
            eta = self._recheck(part, x, eta)
        return eta

    def _bounds(self, x: Point, size: Point, factor: int) -> Array:
        """Rounding bounds of the parts that know them, side by side."""
        return side_by_side([part.rounding(x, size, factor * self.u) for part in self.known])

    def _displacement(self, y: Point) -> Point:
        """By how much the coordinates of a computed and rounded y may be off."""
        return map_point(self._leaf_displacement, y, self.anchor, self.dtypes)

    def _leaf_displacement(self, y: Array, anchor: Array, dtype: Any) -> Array:
        # below the smallest normal number, which this is for, a number is off by as much however small it is
        size = 4 * self.u * (abs(y) + (abs(anchor) + self.normal))
        if self.narrow:
            # numbers below the smallest normal one are rounded absolutely, which matters in float16
            smallest = float(namespace(y).finfo(dtype).smallest_normal)
            size = size + 1.01 * self.narrow * (abs(y) + smallest)
        return size

    def _recheck(self, part: ConvexSet, x: Point, eta: Array) -> Array:
        """The largest weight tried at which h <= 0, as evaluated here at the rounded result; else 0, the anchor."""
        xp = namespace(eta)
        best = xp.zeros_like(eta)
        for shrink in reversed(RECHECKS):
            attempt = eta * (1 - min(shrink * 2 * max(self.u, self.narrow), 0.5))
            y = map_point(self._rounded, between(part, self.anchor, attempt, x), self.dtypes)
            best = xp.where(largest(part.constraints(y)) <= 0, attempt, best)
        return best

    def _rounded(self, leaf: Array, dtype: Any) -> Array:
        xp = namespace(leaf)
        return leaf if leaf.dtype == dtype else xp.astype(xp.astype(leaf, dtype), leaf.dtype)

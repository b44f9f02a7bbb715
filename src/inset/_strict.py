"""What `strict` adds: a margin for rounding, so that the numbers returned are in the set.

Write u for the roundoff of the working dtype and u_out for that of the result if it is narrower, else 0. Computing
y = x0 + eta (x - x0) and rounding it displaces its coordinates by at most

    size = 4 u (|y| + |x0|) + u_out |y|,

and `ConvexSet.rounding` bounds what that does to constraint i (movement_i) and the error of evaluating it, in any
order, (u evaluation_i). A computed h_i(y) therefore exceeds the exact value for the exact eta by at most

    E_i(y) = u (2 evaluation_i(y) + 4 evaluation_i(x0)) + movement_i(y, size).

Shrinking eta by the factor 1 - delta lowers h_i by delta |h_i(x0)| at least (convexity), while E_i goes from E_i(y)
towards E_i(x0); so

    delta = max_i E_i(y) / (|h_i(x0)| + E_i(y) - E_i(x0))

is enough, and it is below 1 whenever the anchor itself is inside by more than rounding.
"""

from __future__ import annotations

from typing import Any

from ._namespace import Array, Point, namespace
from ._ray import along
from ._fields import leaves, map_point
from ._set import ConvexSet, offers
from ._shapes import largest, side_by_side

# Shrinkage, in units of eps, tried in turn where only a re-check can tell (user functions).
RECHECKS = (8.0, 256.0, 8192.0)


def roundoff(x: Point) -> float:
    leaf = leaves(x)[0]
    return float(namespace(leaf).finfo(leaf.dtype).eps) / 2


def upper(parts: tuple[ConvexSet, ...], x: Point, values: list[Array], narrow: float) -> list[Array]:
    """Upper bounds of the exact constraints, given computed ones; `narrow`: roundoff if x itself will be rounded."""
    u, lifted = roundoff(x), []
    size = map_point(lambda leaf: narrow * abs(leaf), x)
    for part, value in zip(parts, values, strict=True):
        if offers(part, "rounding"):
            evaluation, movement = part.rounding(x, size)
            value = value + u * evaluation + (movement if narrow else 0.0)
        lifted.append(value)
    return lifted


class Margin:
    """The bounds at the anchor, and how much they and the bounds at y ask eta to shrink."""

    def __init__(self, parts: tuple[ConvexSet, ...], anchor: Point, values0: list[Array], narrow: float, dtypes: Any):
        """`narrow`: roundoff of the result's dtypes if they are narrower than the working one, else 0."""
        self.anchor, self.narrow, self.dtypes, self.u = anchor, narrow, dtypes, roundoff(anchor)
        self.known = tuple([part for part in parts if offers(part, "rounding")])
        self.unknown = tuple([part for part in parts if not offers(part, "rounding")])
        if self.known:
            self.depth = -side_by_side([v for p, v in zip(parts, values0, strict=True) if offers(p, "rounding")])
            evaluation, movement = self._bounds(anchor)
            self.fixed = 4 * self.u * evaluation
            self.at_anchor = self.fixed + 2 * self.u * evaluation + movement

    def anchor_is_certified(self) -> Array:
        """Whether the anchor is inside by more than rounding, `(*batch,)`."""
        if not self.known:
            return namespace(leaves(self.anchor)[0]).asarray(True)
        return namespace(self.depth).all(self.depth > self.at_anchor, axis=-1)

    def shrink(self, set: ConvexSet, direction: Point, eta: Array) -> Array:
        """A weight below eta at which the rounded result is in the set."""
        xp = namespace(eta)
        if self.known:
            evaluation, movement = self._bounds(along(set, self.anchor, eta, direction))
            error = self.fixed + 2 * self.u * evaluation + movement
            # an infinite error asks for the anchor
            blurred = error == float("inf")
            room = self.depth + xp.where(blurred, 0 * self.depth, error) - self.at_anchor
            eta = eta * (1 - largest(xp.where(blurred, xp.ones_like(room), error / room)))
        for part in self.unknown:
            eta = self._recheck(part, direction, eta)
        return eta

    def _bounds(self, y: Point) -> tuple[Array, Array]:
        """Evaluation and movement bounds at y of the parts that know them, side by side."""
        size = map_point(self._displacement, y, self.anchor, self.dtypes)
        pairs = [part.rounding(y, size) for part in self.known]
        return side_by_side([e for e, _ in pairs]), side_by_side([m for _, m in pairs])

    def _displacement(self, y: Array, anchor: Array, dtype: Any) -> Array:
        size = 4 * self.u * (abs(y) + abs(anchor))
        if self.narrow:
            # numbers below the smallest normal one are rounded absolutely, which matters in float16
            smallest = float(namespace(y).finfo(dtype).smallest_normal)
            size = size + 1.01 * self.narrow * (abs(y) + smallest)
        return size

    def _recheck(self, part: ConvexSet, direction: Point, eta: Array) -> Array:
        """The largest weight tried at which h <= 0, as evaluated here at the rounded result; else 0, the anchor."""
        xp = namespace(eta)
        best = xp.zeros_like(eta)
        for shrink in reversed(RECHECKS):
            attempt = eta * (1 - min(shrink * 2 * max(self.u, self.narrow), 0.5))
            y = map_point(self._rounded, along(part, self.anchor, attempt, direction), self.dtypes)
            best = xp.where(largest(part.constraints(y)) <= 0, attempt, best)
        return best

    def _rounded(self, leaf: Array, dtype: Any) -> Array:
        xp = namespace(leaf)
        return leaf if leaf.dtype == dtype else xp.astype(xp.astype(leaf, dtype), leaf.dtype)

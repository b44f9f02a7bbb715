"""`Box`: bounds on each coordinate."""

from __future__ import annotations

from .._linalg import pick
from .._namespace import Array, Point, eye_like, is_array, like, namespace, positive
from .._set import ConvexSet, Split, convex_set
from .._shapes import side_by_side
from .._values import require


@convex_set
class Box(ConvexSet):
    """{x : lower <= x <= upper}.   h(x) = (lower - x, x - upper), 2n constraints.

    Each bound is `(..., n)` or a number and may be infinite. The chord is exact.

    >>> import numpy as np
    >>> Box(np.zeros(2), np.array([1.0, np.inf])).anchor()
    array([0.5, 1. ])
    """

    lower: Array | float
    upper: Array | float

    event_ndim = 1
    affine = True
    shapes = {"lower": "n", "upper": "n", "x": "n"}

    def constraints(self, x: Array) -> Array:
        return side_by_side([self.lower - x, x - self.upper])

    def row(self, x: Array, i: Array) -> Array:
        n = x.shape[-1]
        xp = namespace(x)
        j, above = i % n, i >= n
        coordinate = pick(x, j, 0)
        lower, upper = pick(self.lower, j, 0), pick(self.upper, j, 0)
        return xp.where(above, coordinate - upper, lower - coordinate)

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        # the sign of a difference of two floats is exact; only a Python number is rounded first
        move = 2 * size
        return side_by_side([move if is_array(b) else move + u * _size(b, x) for b in (self.lower, self.upper)])

    def anchor(self, x: Array | None = None) -> Array:
        """The middle; one inside a lone bound, 0 without bounds."""
        like_x = x if x is not None else self.lower if is_array(self.lower) else self.upper
        if not is_array(like_x):
            return super().anchor(x)
        xp = namespace(like_x)
        lower, upper = (b if is_array(b) else like(b, like_x) for b in (self.lower, self.upper))
        low, high = xp.isfinite(lower), xp.isfinite(upper)
        lo, hi = xp.where(low, lower, xp.zeros_like(lower)), xp.where(high, upper, xp.zeros_like(upper))
        alone = xp.where(low, lo + 1, xp.where(high, hi - 1, xp.zeros_like(lo + hi)))
        middle = xp.where(low & high, lo + (hi - lo) / 2, alone)
        return middle if middle.ndim else middle + xp.zeros_like(like_x)  # two numbers know no dimension

    def nearest(self, x: Array) -> Array:
        xp = namespace(x)
        x = xp.where(x < self.lower, self.lower + 0 * x, x)
        return xp.where(x > self.upper, self.upper + 0 * x, x)

    def split(self, x: Array) -> Split:
        """x itself in the box, each coordinate with a weight of its own."""
        return Split(eye_like(x.shape[-1], x), lambda z: positive(z - self.upper) - positive(self.lower - z), 1)

    def check(self) -> None:
        require(self, "upper", "greater than lower", lambda xp, upper: upper > self.lower)
        require(self, "lower", "less than upper", lambda xp, lower: lower < self.upper)


def _size(bound: Array | float, x: Point) -> Array:
    """|bound|, 0 where it is infinite."""
    xp = namespace(x)
    bound = abs(bound) + 0 * x
    return xp.where(xp.isfinite(bound), bound, xp.zeros_like(bound))

"""`Ball`: a p-norm ball, p = 1, 2 or infinity."""

from __future__ import annotations

import math

from .._errors import AnchorError
from .._linalg import ball_gauge, norm, sign
from .._namespace import Array, is_array, length, namespace, running_sum, stop_gradient
from .._set import ConvexSet, convex_set, static
from .._values import require


@convex_set
class Ball(ConvexSet):
    """{x : |x - c|_p <= radius}.   h(x) = |x - c|_p - radius; for p = inf one constraint per coordinate.

    `center` is `(..., n)`, `radius` a number or `(...)`; p is 1, 2 or `math.inf`.

    >>> import numpy as np
    >>> Ball(np.zeros(2), 1.0).h(np.array([3.0, 4.0]))
    np.float64(4.0)
    """

    center: Array
    radius: Array | float
    p: float = static(default=2)

    event_ndim = 1
    shapes = {"center": "n", "radius": "", "x": "n"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.p not in (1, 2, math.inf):
            raise ValueError(f"Ball(p={self.p!r}): expected 1, 2 or math.inf")

    def constraints(self, x: Array) -> Array:
        v = x - self.center
        if self.p == 2:
            return (norm(v) - self.radius)[..., None]
        if self.p == 1:
            return (namespace(x).sum(abs(v), axis=-1) - self.radius)[..., None]
        return abs(v) - self._radius()

    def gauge(self, anchor: Array, direction: Array) -> Array:
        p = anchor - self.center
        if self.p == 2:
            return ball_gauge(p, direction, self.radius)[..., None]
        xp = namespace(direction)
        if self.p == 1:
            return _cross_gauge(p, direction, self.radius)[..., None]
        radius = self._radius()
        return xp.where(direction > 0, direction / (radius - p), -direction / (radius + p))

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        v, n = x - self.center, x.shape[-1]
        if not is_array(self.center):
            size = size + u * abs(self.center)  # a number is rounded to the dtype of x
        if self.p == 2:
            return (u * (n / 2 + 4) * (length(v) + self.radius) + length(size))[..., None]
        if self.p == 1:
            xp = namespace(x)
            return (u * (n + 2) * (xp.sum(abs(v), axis=-1) + self.radius) + xp.sum(size, axis=-1))[..., None]
        return 2 * u * (abs(v) + self._radius()) + size

    def anchor(self, x: Array | None = None) -> Array:
        """The centre."""
        if not is_array(self.center):
            raise AnchorError("Ball(center=number) has no dimension; pass an array as centre, or an anchor")
        return self.center

    def nearest(self, x: Array) -> Array:
        v = x - self.center
        xp = namespace(x)
        if self.p == 2:
            size = norm(v)
            outside = size > self.radius
            factor = xp.where(outside, self.radius / xp.where(outside, size, xp.ones_like(size)), xp.ones_like(size))
            return xp.where(outside[..., None], self.center + factor[..., None] * v, x)
        if self.p == 1:
            return xp.where(self.constraints(x) <= 0, x, self.center + _onto_cross(v, self.radius))
        radius = self._radius() + 0 * v
        v = xp.where(v > radius, radius, v)
        return xp.where(abs(x - self.center) <= radius, x, self.center + xp.where(v < -radius, -radius, v))

    def check(self) -> None:
        require(self, "radius", "positive", lambda xp, radius: radius > 0)
        require(self, "center", "finite", lambda xp, center: xp.isfinite(center))

    def _radius(self) -> Array | float:
        return self.radius[..., None] if is_array(self.radius) else self.radius


def _cross_gauge(p: Array, d: Array, radius: Array | float) -> Array:
    """1/t for the largest t with |p + t d|_1 <= radius: the root of the convex F(s) = |s p + d|_1 - radius s.

    F is linear between the breakpoints s_j = -d_j/p_j. Walking along them in order gives F at each; the signs of
    s p + d on the piece that holds the root turn it into one linear equation.
    """
    xp = namespace(d)
    moving = p * d < 0
    breaks = xp.where(moving, -stop_gradient(d) / xp.where(moving, stop_gradient(p), xp.ones_like(p)), 0 * d)
    order = xp.argsort(breaks, axis=-1)
    s = xp.take_along_axis(breaks, order, axis=-1)
    kink = xp.take_along_axis(xp.where(moving, 2 * abs(stop_gradient(p)), 0 * p), order, axis=-1)
    wide = radius[..., None] if is_array(radius) else radius
    start = xp.sum(xp.where(d == 0, abs(p), sign(d) * p), axis=-1, keepdims=True) - wide
    slopes = start + running_sum(kink) - kink  # on the way to breakpoint k
    gaps = s - xp.concat([0 * s[..., :1], s[..., :-1]], axis=-1)
    F = xp.sum(abs(d), axis=-1, keepdims=True) + running_sum(stop_gradient(slopes) * gaps)
    last = xp.max(xp.where(F >= 0, s, 0 * s), axis=-1, keepdims=True)
    flipped = (moving & (breaks <= last)) | (d == 0)
    side = xp.where(flipped, sign(p), sign(d))
    return xp.sum(side * d, axis=-1) / (radius - xp.sum(side * p, axis=-1))


def _onto_cross(v: Array, radius: Array | float) -> Array:
    """The nearest point of the 1-norm ball: soft-threshold at the level that makes the norm equal the radius."""
    xp = namespace(v)
    size = abs(v)
    ordered = -xp.sort(-size, axis=-1)
    count = running_sum(xp.ones_like(ordered))
    wide = radius[..., None] if is_array(radius) else radius
    level = xp.max((running_sum(ordered) - wide) / count, axis=-1, keepdims=True)
    shrunk = xp.where(size > level, size - level, xp.zeros_like(size))
    return xp.where(level > 0, sign(v) * shrunk, v)

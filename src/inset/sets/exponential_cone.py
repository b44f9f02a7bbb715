"""`ExponentialCone`: the closure of {y exp(x/y) <= z, y > 0}."""

from __future__ import annotations

import math

from .._linalg import FLOOR, orthant_domain, raised
from .._namespace import Array, namespace, stop_gradient
from .._root import root_between
from .._set import ConvexSet, convex_set
from .._shapes import side_by_side


@convex_set
class ExponentialCone(ConvexSet):
    """The closure of {(x, y, z) : y exp(x/y) <= z, y > 0}.   h = (-y, -z, x + y log(y/z)).

    The last is the same inequality after a logarithm: it does not overflow, is convex, and grows linearly. The
    logarithms are cut off at 1e-30, so that h is finite at the edges of y, z >= 0 and does not magnify rounding there.
    It is large at z = 0, so `chord` puts a point with z < 0 near the anchor: prefer `ray`.

    >>> import numpy as np
    >>> ExponentialCone().contains(np.array([[0.0, 1.0, 1.1], [0.0, 1.0, 0.9]]))
    array([ True, False])
    """

    event_ndim = 1
    shapes = {"x": "3"}

    def constraints(self, x: Array) -> Array:
        xp = namespace(x)
        a, y, z = x[..., 0], x[..., 1], x[..., 2]
        return xp.stack([-y, -z, a + y * self._log_ratio(y, z)], axis=-1)

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        xp = namespace(x)
        a, y, z = abs(x[..., 0]), abs(x[..., 1]), abs(x[..., 2])
        steep = abs(self._log_ratio(y, z)) + 2
        # the logarithm of z changes by dz/(z - dz), and by no more than it has left to fall
        small = z <= 2 * size[..., 2]
        fall = xp.log(raised(z)) - math.log(FLOOR) + 1
        change = xp.where(small, fall, size[..., 2] / xp.where(small, xp.ones_like(z), z - size[..., 2]))
        movement = size[..., 0] + steep * size[..., 1] + (y + size[..., 1]) * xp.where(change < fall, change, fall)
        return side_by_side([2 * size[..., 1:], (u * (4 * a + 8 * y * steep) + movement)[..., None]])

    def domain(self, anchor: Array, x: Array) -> Array:
        return orthant_domain(anchor[..., 1:], x[..., 1:])

    def anchor(self, x: Array | None = None) -> Array:
        """(-1, 1, 1)."""
        if x is None:
            import numpy as np

            return np.array([-1.0, 1.0, 1.0])
        xp = namespace(x)
        one = xp.ones_like(x[..., :1])
        return xp.concat([-one, one, one], axis=-1)

    def nearest(self, x: Array) -> Array:
        """The nearest point of the ray y (r, 1, exp r), y >= 0, for the r of Moreau's decomposition of x = (a, b, c),

            (a, b, c) = y (r, 1, exp r) + m (1, 1 - r, -exp -r),   y, m >= 0,

        whose second part lies in the polar cone. See `_ratio`. Where a, b <= 0 it is (a, 0, max(c, 0)) instead.
        """
        xp = namespace(x)
        size = xp.max(abs(stop_gradient(x)), axis=-1)[..., None]
        v = x / xp.where(size > 0, size, xp.ones_like(size))
        a, b, c = v[..., 0], v[..., 1], v[..., 2]
        inside, face = xp.all(self.constraints(x) <= 0, axis=-1), (a <= 0) & (b <= 0)
        low = (a > 0) & (c < 0)
        one = xp.ones_like(a)
        log_ratio = xp.log(xp.where(low, a, one)) - xp.log(xp.where(low, -c, one))
        polar = low & (a * (log_ratio - 1) + b <= 0)
        plain = ~(inside | face | polar)
        r = _ratio(xp.where(plain, a, one), xp.where(plain, b, 0 * b), xp.where(plain, c, 0 * c))
        flat = stop_gradient(xp.where(r > 0, r, 0 * r))  # the ray scaled by exp(-flat) does not overflow
        low = xp.exp(-flat)
        ray = xp.stack([r * low, low, xp.exp(r - flat)], axis=-1)
        y = xp.sum(x * ray, axis=-1) / xp.sum(ray * ray, axis=-1)
        on_ray = xp.where(y > 0, y, 0 * y)[..., None] * ray
        on_face = xp.stack([x[..., 0], 0 * a, xp.where(c > 0, x[..., 2], 0 * c)], axis=-1)
        outside = xp.where(face[..., None], on_face, xp.where(polar[..., None], 0 * on_ray, on_ray))
        return xp.where(inside[..., None], x, outside)

    def _log_ratio(self, y: Array, z: Array) -> Array:
        xp = namespace(y)
        return xp.log(raised(y)) - xp.log(raised(z))


def _ratio(a: Array, b: Array, c: Array) -> Array:
    """r = x/y of the point nearest to (a, b, c), which is in neither cone; at most 1 in size, and a or b positive.

    The first two equations of the decomposition give y and m, each over r^2 - r + 1; the third is what is solved:

        exp(r) (b + (r - 1) a) - exp(-r) (a - r b) = c (r^2 - r + 1).

    It has one root between the zeros 1 - b/a of y and a/b of m. Beyond |r| = 100 one of the exponentials is nothing.
    """
    xp = namespace(a)
    low = xp.where(a > 0, 1 - b / xp.where(a > 1e-15, a, 1e-15 + 0 * a), -100 + 0 * a)
    high = xp.where(b > 0, a / xp.where(b > 1e-15, b, 1e-15 + 0 * b), 100 + 0 * b)
    floor, ceiling = xp.where(high < -100, high, -100 + 0 * high), xp.where(low > 100, low, 100 + 0 * low)

    def excess(r: Array) -> Array:
        size = abs(stop_gradient(r))
        y, m = b + (r - 1) * a, a - r * b
        total = m * xp.exp(-r - size) + c * (r * r - r + 1) * xp.exp(-size) - y * xp.exp(r - size)
        return total / (1 + size * size)

    return root_between(excess, xp.where(low > floor, low, floor), xp.where(high < ceiling, high, ceiling))

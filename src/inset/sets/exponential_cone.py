"""`ExponentialCone`: the closure of {y exp(x/y) <= z, y > 0}."""

from __future__ import annotations

import math

from .._linalg import FLOOR, orthant_domain
from .._namespace import Array, namespace
from .._set import ConvexSet, convex_set


@convex_set
class ExponentialCone(ConvexSet):
    """The closure of {(x, y, z) : y exp(x/y) <= z, y > 0}.   h = (-y, -z, x + y log(y/z)).

    The last is the same inequality after a logarithm: it does not overflow, is convex, and grows linearly. Below
    z = 1e-30 the logarithm goes on along its tangent, so that h is finite on z >= 0.

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

    def rounding(self, x: Array, size: Array) -> tuple[Array, Array]:
        xp = namespace(x)
        a, y, z = abs(x[..., 0]), abs(x[..., 1]), abs(x[..., 2])
        steep = abs(self._log_ratio(y, z)) + 2
        # the logarithm of z changes by dz/(z - dz), and by no more than it has left to fall
        small = z <= 2 * size[..., 2]
        fall = xp.log(z + FLOOR) - math.log(FLOOR) + 1
        change = xp.where(small, fall, size[..., 2] / xp.where(small, xp.ones_like(z), z - size[..., 2]))
        movement = size[..., 0] + steep * size[..., 1] + y * xp.where(change < fall, change, fall)
        return (
            xp.stack([0 * y, 0 * z, 4 * a + 8 * y * steep], axis=-1),
            xp.stack([2 * size[..., 1], 2 * size[..., 2], movement], axis=-1),
        )

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

    def _log_ratio(self, y: Array, z: Array) -> Array:
        xp = namespace(y)
        low = z < FLOOR
        log_z = xp.log(xp.where(low, FLOOR + 0 * z, z)) + xp.where(low, z / FLOOR - 1, 0 * z)
        return xp.log(xp.where(y < FLOOR, FLOOR + 0 * y, y)) - log_z

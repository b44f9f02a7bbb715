"""`PowerCone`: {x^alpha y^(1-alpha) >= |z|}."""

from __future__ import annotations

from .._linalg import FLOOR, orthant_domain
from .._namespace import Array, namespace
from .._set import ConvexSet, convex_set
from .._values import require


@convex_set
class PowerCone(ConvexSet):
    """{(x, y, z) : x^alpha y^(1-alpha) >= |z|, x, y >= 0}.   h = (-x, -y, |z| - x^alpha y^(1-alpha)).

    `alpha` in (0, 1) is a number or `(...)`. Below 1e-30 each power is replaced by its chord to 0, which makes its
    derivative finite and the set smaller, never larger.

    >>> import numpy as np
    >>> PowerCone(0.5).h(np.array([4.0, 1.0, 3.0]))
    np.float64(1.0)
    """

    alpha: Array | float

    event_ndim = 1
    shapes = {"alpha": "", "x": "3"}

    def constraints(self, x: Array) -> Array:
        a, b, z = x[..., 0], x[..., 1], x[..., 2]
        return namespace(x).stack([-a, -b, abs(z) - self._mean(a, b)], axis=-1)

    def rounding(self, x: Array, size: Array) -> tuple[Array, Array]:
        xp = namespace(x)
        a, b, z = abs(x[..., 0]), abs(x[..., 1]), abs(x[..., 2])
        logs = abs(xp.log(a + FLOOR)) + abs(xp.log(b + FLOOR))
        mean = self._mean(a, b)
        # concave in each argument: the change is largest towards 0, where all of the mean may go
        da, db, dz = size[..., 0], size[..., 1], size[..., 2]
        share = 2 * (self.alpha * da / (a + FLOOR) + (1 - self.alpha) * db / (b + FLOOR))
        share = xp.where(share < 1, share, xp.ones_like(share))
        return (
            xp.stack([0 * a, 0 * b, 2 * z + (8 + 4 * logs) * mean], axis=-1),
            xp.stack([2 * da, 2 * db, dz + share * mean], axis=-1),
        )

    def domain(self, anchor: Array, x: Array) -> Array:
        return orthant_domain(anchor[..., :2], x[..., :2])

    def anchor(self, x: Array | None = None) -> Array:
        """(1, 1, 0)."""
        if x is None:
            import numpy as np

            return np.array([1.0, 1.0, 0.0])
        xp = namespace(x)
        one = xp.ones_like(x[..., :1])
        return xp.concat([one, one, 0 * one], axis=-1)

    def check(self) -> None:
        require(self, "alpha", "between 0 and 1", lambda xp, alpha: (alpha > 0) & (alpha < 1))

    def _mean(self, a: Array, b: Array) -> Array:
        """a^alpha b^(1-alpha), 0 for negative a or b."""
        return self._power(a, self.alpha) * self._power(b, 1 - self.alpha)

    def _power(self, a: Array, alpha: Array | float) -> Array:
        xp = namespace(a)
        low = a < FLOOR
        power = xp.exp(alpha * xp.log(xp.where(low, FLOOR + 0 * a, a)))
        positive = xp.where(a > 0, a, 0 * a)
        return xp.where(low, power * xp.where(low, positive, 0 * a) / FLOOR, power)


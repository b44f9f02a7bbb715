"""`PowerCone`: {x^alpha y^(1-alpha) >= |z|}."""

from __future__ import annotations

from .._linalg import FLOOR, orthant_domain, raised
from .._namespace import Array, is_array, namespace, stop_gradient
from .._root import lifted, root_between
from .._set import ConvexSet, convex_set
from .._shapes import side_by_side
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
        return side_by_side([-x[..., :2], (abs(z) - self._mean(a, b))[..., None]])

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        xp = namespace(x)
        a, b, z = abs(x[..., 0]), abs(x[..., 1]), abs(x[..., 2])
        logs = abs(xp.log(raised(a))) + abs(xp.log(raised(b)))
        da, db, dz = size[..., 0], size[..., 1], size[..., 2]
        mean = self._mean(a + da, b + db)
        # concave in each argument: the change is largest towards 0, where all of the mean may go
        ra, rb = da / raised(a), db / raised(b)
        share = 2 * (self.alpha * ra + (1 - self.alpha) * rb)
        share = xp.where((ra < 0.5) & (rb < 0.5) & (share < 1), share, xp.ones_like(share))
        return side_by_side([2 * size[..., :2], (u * (2 * z + (8 + 4 * logs) * mean) + dz + share * mean)[..., None]])

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

    def nearest(self, x: Array) -> Array:
        """(a(r), b(r), +-r) with |z| split into r and s = |z| - r, and a(r) - x = alpha r s / a(r), b likewise.

        These solve the optimality conditions but for a^alpha b^(1-alpha) = r, of which one root is left to find:
        a/r and b/r decrease in r.
        """
        xp = namespace(x)
        x = x + 0 * self._wide_alpha(x)
        size = xp.max(abs(stop_gradient(x)), axis=-1)
        size = xp.where(size > 1, size, xp.ones_like(size))
        a, b, z = x[..., 0] / size, x[..., 1] / size, abs(x[..., 2]) / size
        inside, flat = xp.all(self.constraints(x) <= 0, axis=-1), z <= FLOOR
        polar = (a <= 0) & (b <= 0) & (self._mean(-a / self.alpha, -b / (1 - self.alpha)) >= z)
        plain = ~(inside | flat | polar)
        a, b, z = xp.where(plain, a, 0 * a), xp.where(plain, b, 0 * b), xp.where(plain, z, xp.ones_like(z))

        def at(s: Array) -> tuple[Array, Array, Array]:
            r, rest = z / (1 + xp.exp(-s)), z / (1 + xp.exp(s))
            pair = lifted(a, self.alpha * r * rest), lifted(b, (1 - self.alpha) * r * rest)
            return *(raised(v) for v in pair), r

        def excess(s: Array) -> Array:
            u, v, r = at(s)
            return self.alpha * xp.log(u) + (1 - self.alpha) * xp.log(v) - xp.log(r)

        u, v, r = at(root_between(excess, -70 + 0 * z, 70 + 0 * z))
        curved = xp.stack([size * u, size * v, size * r * xp.where(x[..., 2] < 0, -1 + 0 * r, 1 + 0 * r)], axis=-1)
        corner = xp.stack([xp.where(v > 0, v, 0 * v) for v in (x[..., 0], x[..., 1])] + [0 * z], axis=-1)
        outside = xp.where(flat[..., None], corner, xp.where(polar[..., None], 0 * x, curved))
        return xp.where(inside[..., None], x, outside)

    def check(self) -> None:
        require(self, "alpha", "between 0 and 1", lambda xp, alpha: (alpha > 0) & (alpha < 1))

    def _mean(self, a: Array, b: Array) -> Array:
        """a^alpha b^(1-alpha), 0 for negative a or b."""
        return self._power(a, self.alpha) * self._power(b, 1 - self.alpha)

    def _wide_alpha(self, x: Array) -> Array | float:
        return self.alpha[..., None] if is_array(self.alpha) else self.alpha

    def _power(self, a: Array, alpha: Array | float) -> Array:
        xp = namespace(a)
        low = a < FLOOR
        power = xp.exp(alpha * xp.log(raised(a)))
        positive = xp.where(a > 0, a, 0 * a)
        return xp.where(low, power * xp.where(low, positive, 0 * a) / FLOOR, power)

"""`Simplex`: non-negative vectors with a given sum."""

from __future__ import annotations

from .._linalg import pick
from .._namespace import Array, arange_like, eye_like, is_array, namespace, positive, running_sum
from .._set import ConvexSet, Split, convex_set, static
from .._values import require


@convex_set
class Simplex(ConvexSet):
    """{x in R^n : x >= 0, sum_i x_i = total}.   h_i(x) = -x_i, on the plane of the equality.

    `total` is a number or `(...)`. `project` first moves x along the diagonal onto the plane.

    >>> import numpy as np
    >>> Simplex(3).nearest(np.array([2.0, 0.0, 0.0]))
    array([1., 0., 0.])
    """

    n: int = static()
    total: Array | float = 1.0

    event_ndim = 1
    affine = True
    shapes = {"total": "", "x": "n"}

    def constraints(self, x: Array) -> Array:
        return -x

    def row(self, x: Array, i: Array) -> Array:
        return -pick(x, i, 0)

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        return 2 * size

    def equalities(self, x: Array) -> tuple[Array, Array, Array]:
        ones = namespace(x).astype(arange_like(self.n, x)[None, :] >= 0, x.dtype)
        return ones, self._total() + 0 * ones[:, 0], ones.T / self.n

    def onto(self, x: Array) -> Array:
        xp = namespace(x)
        for _ in range(2):
            x = x - (xp.sum(x, axis=-1, keepdims=True) - self._total()) / self.n
        return x

    def anchor(self, x: Array | None = None) -> Array:
        """The uniform vector total / n."""
        if x is not None:
            return namespace(x).zeros_like(x) + self._total() / self.n
        if is_array(self.total):
            return self.total[..., None] / self.n * namespace(self.total).ones((self.n,), dtype=self.total.dtype)
        import numpy as np

        return np.full(self.n, self.total / self.n)

    def nearest(self, x: Array) -> Array:
        xp = namespace(x)
        ordered = -xp.sort(-x, axis=-1)
        count = running_sum(xp.ones_like(x))
        level = xp.max((running_sum(ordered) - self._total()) / count, axis=-1, keepdims=True)
        return xp.where(x > level, x - level, xp.zeros_like(x))

    def split(self, x: Array) -> Split:
        """x >= 0, on the plane of the equality."""
        return Split(eye_like(self.n, x), lambda z: -positive(-z), 1)

    def check(self) -> None:
        require(self, "total", "positive", lambda xp, total: total > 0)

    def _total(self) -> Array | float:
        return self.total[..., None] if is_array(self.total) else self.total

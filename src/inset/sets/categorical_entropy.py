"""`CategoricalEntropy`: distributions of at least a given entropy."""

from __future__ import annotations

import math

from .._linalg import orthant_domain, raised
from .._namespace import Array, arange_like, namespace
from .._set import ConvexSet, convex_set, static
from .._shapes import side_by_side
from .._values import require


@convex_set
class CategoricalEntropy(ConvexSet):
    """{p in R^n : p >= 0, sum_i p_i = 1, -sum_i p_i log p_i >= kappa}.   h = (-p, kappa + sum_i p_i log p_i).

    `kappa` in [0, log n) is a number or `(...)`, in nats. The anchor is the uniform distribution.

    >>> import numpy as np
    >>> CategoricalEntropy(4, kappa=1.0).contains(np.array([[0.25, 0.25, 0.25, 0.25], [0.97, 0.01, 0.01, 0.01]]))
    array([ True, False])
    """

    n: int = static()
    kappa: Array | float

    event_ndim = 1
    shapes = {"kappa": "", "x": "n"}

    def constraints(self, x: Array) -> Array:
        return side_by_side([-x, (namespace(x).sum(_x_log_x(x), axis=-1) + self.kappa)[..., None]])

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        xp = namespace(x)
        p = abs(x)
        evaluation = (self.n + 6) * (xp.sum(p + abs(_x_log_x(p)), axis=-1) + abs(self.kappa))
        # the slope log p + 1 where p has moved inward, away from 0
        steep = 2 + abs(xp.log(raised(p + size)))
        return side_by_side([2 * size, (u * evaluation + xp.sum(steep * size, axis=-1))[..., None]])

    def domain(self, anchor: Array, x: Array) -> Array:
        return orthant_domain(anchor, x)

    def equalities(self, x: Array) -> tuple[Array, Array, Array]:
        ones = namespace(x).astype(arange_like(self.n, x)[None, :] >= 0, x.dtype)
        return ones, 1.0 + 0 * ones[:, 0], ones.T / self.n

    def onto(self, x: Array) -> Array:
        xp = namespace(x)
        for _ in range(2):
            x = x - (xp.sum(x, axis=-1, keepdims=True) - 1) / self.n
        return x

    def anchor(self, x: Array | None = None) -> Array:
        """The uniform distribution."""
        if x is not None:
            return namespace(x).zeros_like(x) + 1 / self.n
        import numpy as np

        return np.full(self.n, 1 / self.n)

    def check(self) -> None:
        limit = math.log(self.n)
        require(self, "kappa", f"in [0, log n) = [0, {limit:.6g})", lambda xp, kappa: (kappa >= 0) & (kappa < limit))


def _x_log_x(x: Array) -> Array:
    """x log x, continued linearly below 1e-30."""
    xp = namespace(x)
    return x * xp.log(raised(x))

"""`PSD`: positive semidefinite matrices."""

from __future__ import annotations

from .._linalg import frobenius, positive_part, semidefinite_gauge, smallest_eigenvalue, symmetric
from .._namespace import Array, eye_like, is_array, like, namespace
from .._set import ConvexSet, convex_set, static
from .._values import require


@convex_set
class PSD(ConvexSet):
    """{X symmetric n x n : X - floor I positive semidefinite}.   h(X) = floor - lambda_min(X).

    `floor` is the smallest eigenvalue allowed, a number or `(...)`. An asymmetric X is replaced by (X + X^T)/2,
    by `project` as well as by `h` and `contains`.

    >>> import numpy as np
    >>> PSD(2, floor=0.1).h(np.diag([1.0, -2.0]))
    np.float64(2.1)
    """

    n: int = static()
    floor: Array | float = 0.0

    event_ndim = 2
    shapes = {"floor": "", "x": "n n"}

    def constraints(self, x: Array) -> Array:
        return (self.floor - smallest_eigenvalue(symmetric(x)))[..., None]

    def gauge(self, anchor: Array, direction: Array) -> Array:
        floor = self.floor[..., None, None] if is_array(self.floor) else self.floor
        return semidefinite_gauge(symmetric(anchor) - floor * eye_like(self.n, anchor), symmetric(direction))[..., None]

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        return (u * ((4 * self.n + 8) * frobenius(x) + abs(self.floor)) + frobenius(size))[..., None]

    def onto(self, x: Array) -> Array:
        return symmetric(x)

    def anchor(self, x: Array | None = None) -> Array:
        """(floor + 1) I."""
        import numpy as np

        like_x = x if x is not None else self.floor
        eye = eye_like(self.n, like_x) if is_array(like_x) else np.eye(self.n)
        floor = like(self.floor, eye) if is_array(self.floor) and x is not None else self.floor
        return ((floor + 1)[..., None, None] if is_array(floor) else floor + 1) * eye

    def nearest(self, x: Array) -> Array:
        xp = namespace(x)
        x = symmetric(x)
        floor = (self.floor[..., None, None] if is_array(self.floor) else self.floor) * eye_like(self.n, x)
        return xp.where((self.constraints(x) <= 0)[..., None], x, floor + positive_part(x - floor))

    def check(self) -> None:
        require(self, "floor", "finite", lambda xp, floor: xp.isfinite(floor))

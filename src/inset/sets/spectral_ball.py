"""`SpectralBall`: matrices of bounded operator norm."""

from __future__ import annotations

from .._linalg import frobenius, positive_part, root, semidefinite_gauge, smallest_eigenvalue
from .._namespace import Array, eye_like, is_array, namespace, stop_gradient
from .._set import ConvexSet, convex_set
from .._values import require


@convex_set
class SpectralBall(ConvexSet):
    """{X : sigma_max(X - center) <= radius}.   h(X) = sigma_max(X - center) - radius.

    `center` is `(..., p, q)`, `radius` a number or `(...)`.

    >>> import numpy as np
    >>> SpectralBall(np.zeros((2, 3)), 1.0).h(np.array([[3.0, 0.0, 0.0], [0.0, 1.0, 0.0]])).round(9)
    np.float64(2.0)
    """

    center: Array
    radius: Array | float

    event_ndim = 2
    shapes = {"center": "p q", "radius": "", "x": "p q"}

    def constraints(self, x: Array) -> Array:
        xp = namespace(x)
        X = x - self.center
        if X.shape[-1] > X.shape[-2]:
            X = xp.matrix_transpose(X)
        size = xp.max(abs(stop_gradient(X)), axis=(-2, -1))
        size = xp.where(size > 0, size, xp.ones_like(size))
        X = X / size[..., None, None]
        square = -smallest_eigenvalue(-(xp.matrix_transpose(X) @ X))
        return (size * root(square) - self.radius)[..., None]

    def gauge(self, anchor: Array, direction: Array) -> Array:
        """sigma_max(X) <= radius is [[radius I, X], [X^T, radius I]] positive semidefinite."""
        p, q = self.center.shape[-2:]
        r = self.radius[..., None, None] if is_array(self.radius) else self.radius
        corner = _bordered(anchor - self.center)
        return semidefinite_gauge(corner + r * eye_like(p + q, anchor), _bordered(direction))[..., None]

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        p, q = self.center.shape[-2:]
        evaluation = (4 * (p + q) + 8) * (frobenius(x - self.center) + self.radius)
        return (u * evaluation + frobenius(size))[..., None]

    def anchor(self, x: Array | None = None) -> Array:
        """The centre."""
        return self.center

    def nearest(self, x: Array) -> Array:
        """Singular values cut off at the radius: 2 (S - radius I)_+ holds what is cut off, S = [[0, X], [X^T, 0]]."""
        xp = namespace(x)
        p, q = self.center.shape[-2:]
        r = self.radius[..., None, None] if is_array(self.radius) else self.radius
        X = x - self.center
        excess = 2 * positive_part(_bordered(X) - r * eye_like(p + q, x))[..., :p, p:]
        return xp.where((self.constraints(x) <= 0)[..., None], x, x - excess)

    def check(self) -> None:
        require(self, "radius", "positive", lambda xp, radius: radius > 0)


def _bordered(X: Array) -> Array:
    """[[0, X], [X^T, 0]]."""
    xp = namespace(X)
    Xt = xp.matrix_transpose(X)
    top = xp.concat([xp.zeros_like(X @ Xt), X], axis=-1)
    bottom = xp.concat([Xt, xp.zeros_like(Xt @ X)], axis=-1)
    return xp.concat([top, bottom], axis=-2)

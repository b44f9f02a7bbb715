"""`Ellipsoid`: the ball under a linear map."""

from __future__ import annotations

from .._linalg import apply, ball_gauge, eigh, norm, onto_ball
from .._namespace import Array, eye_like, is_traced, length, namespace
from .._root import decreasing_root
from .._set import ConvexSet, Split, convex_set, static
from .._values import require


@convex_set
class Ellipsoid(ConvexSet):
    """{x : |(x - c) L| <= 1}.   h(x) = |(x - c) L| - 1.

    `center` is `(..., n)`, `L` is `(..., n, k)`; L L^T is the inverse of the usual shape matrix. With `diagonal=True`
    L is the vector `(..., n)` of a diagonal matrix, the inverse of the half-axes.

    >>> import numpy as np
    >>> Ellipsoid(np.zeros(2), np.diag([1.0, 0.5])).contains(np.array([[0.0, 1.9], [1.1, 0.0]]))
    array([ True, False])
    >>> Ellipsoid(np.zeros(2), np.array([1.0, 0.5]), diagonal=True).h(np.array([0.0, 3.0]))
    np.float64(0.5)
    """

    center: Array
    L: Array
    diagonal: bool = static(default=False)

    event_ndim = 1

    @property
    def shapes(self) -> dict[str, str]:  # type: ignore[override]
        return {"center": "n", "L": "n" if self.diagonal else "n k", "x": "n"}

    def constraints(self, x: Array) -> Array:
        return norm(self._image(x - self.center))[..., None] - 1

    def gauge(self, anchor: Array, direction: Array) -> Array:
        return ball_gauge(self._image(anchor - self.center), self._image(direction), 1.0)[..., None]

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        if self.diagonal:
            image = length(self._image(x - self.center))
            return (u * (x.shape[-1] / 2 + 6) * (image + 1) + length(abs(self.L) * size))[..., None]
        n, k = self.L.shape[-2:]
        shape = namespace(x).matrix_transpose(abs(self.L))
        image = length(apply(shape, abs(x - self.center)))
        return (u * (n + k / 2 + 4) * (image + 1) + length(apply(shape, size)))[..., None]

    def anchor(self, x: Array | None = None) -> Array:
        """The centre."""
        return self.center

    def nearest(self, x: Array) -> Array:
        """y = c + (I + t L L^T)^-1 (x - c) with t >= 0 the root of |(y - c) L| = 1."""
        xp = namespace(x)
        weights, v, V = self.L * self.L, x - self.center, None
        if not self.diagonal:
            weights, V = eigh(self.L @ xp.matrix_transpose(self.L))
            v = apply(xp.matrix_transpose(V), v)
        outside = self.constraints(x) > 0

        def excess(t: Array) -> Array:
            return xp.sum(weights * (v / (1 + t[..., None] * weights)) ** 2, axis=-1) - 1

        t = decreasing_root(excess, 0 * v[..., 0])
        moved = v / (1 + t[..., None] * weights)
        return xp.where(outside, self.center + (moved if V is None else apply(V, moved)), x)

    def split(self, x: Array) -> Split:
        """x L in the unit ball around c L."""
        center = self._image(self.center)
        xp = namespace(x)
        K = eye_like(self.L.shape[-1], x) * self.L[..., None] if self.diagonal else xp.matrix_transpose(self.L)

        def excess(z: Array) -> Array:
            return z - center - onto_ball(z - center, 1.0)

        return Split(K, excess, self.L.shape[-1])

    def check(self) -> None:
        if is_traced(self.L):
            return
        if self.diagonal:
            require(self, "L", "different from 0 and finite", lambda xp, L: (L != 0) & xp.isfinite(L))
            return
        xp = namespace(self.L)
        values = eigh(self.L @ xp.matrix_transpose(self.L))[0]
        limit = self.L.shape[-2] * float(xp.finfo(values.dtype).eps) * xp.max(values, axis=-1)
        if bool((xp.min(values, axis=-1) <= limit).any()):
            raise ValueError(
                f"Ellipsoid(L=...) must have n = {self.L.shape[-2]} independent rows; received a singular L. "
                "For an unbounded set use Quadratic, or Equality for a flat one"
            )

    def _image(self, v: Array) -> Array:
        if self.diagonal:
            return v * self.L
        return v @ self.L if self.L.ndim == 2 else apply(namespace(v).matrix_transpose(self.L), v)

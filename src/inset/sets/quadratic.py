"""`Quadratic`: a convex quadratic inequality."""

from __future__ import annotations

from .._linalg import apply, eigh, onto_cone, raised, root, squared_norm
from .._namespace import Array, is_traced, length, namespace, stop_gradient
from .._root import decreasing_root
from .._set import ConvexSet, Split, convex_set
from .._shapes import side_by_side


@convex_set
class Quadratic(ConvexSet):
    """{x : f(x) <= 0} with f(x) = x.Px/2 + q.x + r, P positive semidefinite and possibly singular.

    f itself folds (it grows like |x|^2), so h is the norm-like form of the same set: with E = x.Px/2,
    t = -(q.x + r) and s = |r| (1 where r = 0), E <= t is |(2 sqrt(s E), t - s)| <= t + s, and

        h(x) = sqrt(4 s E + (t - s)^2) - (t + s) = 4 s f(x) / (sqrt(4 s E + (t - s)^2) + t + s).

    For q = 0 this is a multiple of sqrt(x.Px) - sqrt(-2r).  `P` is `(..., n, n)`, `q` is `(..., n)`, `r` is `(...)`.

    >>> import numpy as np
    >>> Quadratic(np.eye(2), np.zeros(2), -0.5).h(np.array([3.0, 4.0]))
    np.float64(4.0)
    """

    P: Array
    q: Array
    r: Array | float

    event_ndim = 1
    shapes = {"P": "n n", "q": "n", "r": "", "x": "n"}

    def constraints(self, x: Array) -> Array:
        xp = namespace(x)
        M, energy, t, s, size = self._terms(x)
        total = t + s / M
        straight = total > 0
        ratio = 4 * (s / xp.where(straight, size + total, xp.ones_like(size))) * (M * energy - t)
        return xp.where(straight, ratio, M * (size - total))[..., None]

    def gauge(self, anchor: Array, direction: Array) -> Array:
        """The positive root s of |f(x0)| s^2 - (Px0 + q).d s - d.Pd/2 = 0."""
        xp = namespace(direction)
        scale = xp.max(abs(stop_gradient(direction)), axis=-1)
        scale = xp.where(scale > 0, scale, xp.ones_like(scale))
        d = direction / scale[..., None]
        gradient = apply(self.P, anchor) + self.q
        depth = -xp.sum(anchor * (gradient + self.q), axis=-1) / 2 - self.r
        slope = xp.sum(gradient * d, axis=-1)
        bend = xp.sum(d * apply(self.P, d), axis=-1) / 2
        disc = root(slope * slope + 4 * depth * bend)
        out = slope > 0
        inward = 2 * bend / xp.where(out | (disc == slope), xp.ones_like(disc), disc - slope)
        return (scale * xp.where(out, (disc + slope) / (2 * depth), inward))[..., None]

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        xp = namespace(x)
        n = x.shape[-1]
        M, _, t, s, root_size = self._terms(x)
        stretch = 4 * s / raised(root_size + abs(t + s / M))
        P, q = length(xp.reshape(self.P, (*self.P.shape[:-2], n * n))), length(self.q)
        unit = length(x) / M
        evaluation = (2 * n + 8) * (stretch * (M * P * unit * unit / 2 + q * unit + abs(self.r) / M) + M * root_size)
        wide = M[..., None]
        slope = apply(abs(self.P), (abs(x) + size) / wide) + abs(self.q) / wide
        return (u * evaluation + 2 * stretch * xp.sum(slope * size, axis=-1))[..., None]

    def anchor(self, x: Array | None = None) -> Array:
        """The minimiser -P^+ q; where f is not negative there but falls for ever, the point with f = -1."""
        xp = namespace(self.P)
        lowest = -apply(xp.linalg.pinv(self.P), self.q)
        gradient = apply(self.P, lowest) + self.q  # 0 but for rounding, unless f is unbounded below
        square = squared_norm(gradient)
        value = xp.sum(lowest * (gradient + self.q), axis=-1) / 2 + self.r
        falls = (value >= 0) & (square > 1e-6 * squared_norm(self.q))
        step = xp.where(falls, value + 1, xp.zeros_like(value)) / xp.where(falls, square, xp.ones_like(value))
        return lowest - step[..., None] * gradient

    def nearest(self, x: Array) -> Array:
        """y = (I + t P)^-1 (x - t q) with t >= 0 the root of f(y) = 0."""
        xp = namespace(x)
        weights, V = eigh(self.P)
        weights = xp.where(weights > 0, weights, xp.zeros_like(weights))
        v, q = (apply(xp.matrix_transpose(V), z) for z in (x, self.q))

        def at(t: Array) -> Array:
            return (v - t[..., None] * q) / (1 + t[..., None] * weights)

        def f(t: Array) -> Array:
            y = at(t)
            return xp.sum(y * (weights * y / 2 + q), axis=-1) + self.r

        t = decreasing_root(f, 0 * v[..., 0])
        return xp.where((t > 0)[..., None], apply(V, at(t)), x)

    def split(self, x: Array) -> Split:
        """(sqrt(2 s) P^(1/2) x, -q.x, -q.x) in the cone |(p, a - r - s)| <= c - r + s, in which h is written too."""
        xp = namespace(x)
        n = x.shape[-1]
        weights, V = eigh(self.P)
        r = self.r + 0 * (weights[..., 0] + xp.sum(self.q, axis=-1))
        s = xp.where(r == 0, xp.ones_like(r), abs(r))
        half = root(2 * s[..., None] * weights)[..., :, None] * xp.matrix_transpose(V)
        slope = xp.broadcast_to(-self.q[..., None, :], (*r.shape, 2, n))
        apex = xp.stack([-r - s, s - r], axis=-1)

        def excess(v: Array) -> Array:
            moved = side_by_side([v[..., :n], v[..., n:] + apex])
            return moved - onto_cone(moved)

        return Split(xp.concat([xp.broadcast_to(half, (*r.shape, n, n)), slope], axis=-2), excess, n + 2)

    def check(self) -> None:
        if is_traced(self.P):
            return
        xp = namespace(self.P)
        size = float(xp.max(abs(self.P)))
        skew = float(xp.max(abs(self.P - xp.matrix_transpose(self.P))))
        if skew > 1e-6 * size:
            raise ValueError(
                f"Quadratic(P=...) must be symmetric; received |P - P^T| up to {skew:.6g}, pass (P + P^T) / 2"
            )
        lowest = float(xp.min(eigh(self.P)[0]))
        if lowest < -self.P.shape[-1] * float(xp.finfo(self.P.dtype).eps) * size:
            raise ValueError(
                f"Quadratic(P=...) must be positive semidefinite; received smallest eigenvalue {lowest:.6g}, "
                "so the set is not convex"
            )

    def _terms(self, x: Array) -> tuple[Array, Array, Array, Array, Array]:
        """M = max(1, |x|_inf), and E/M^2, t/M, s, sqrt(4sE + (t-s)^2)/M: huge x do not overflow."""
        xp = namespace(x)
        M = xp.max(abs(stop_gradient(x)), axis=-1)
        M = xp.where(M > 1, M, xp.ones_like(M))
        z = x / M[..., None]
        r = self.r + 0 * M
        energy = xp.sum(z * apply(self.P, z), axis=-1) / 2
        t = -(xp.sum(self.q * z, axis=-1) + r / M)
        s = xp.where(r == 0, xp.ones_like(r), abs(r))
        return M, energy, t, s, root(4 * s * energy + (t - s / M) ** 2)

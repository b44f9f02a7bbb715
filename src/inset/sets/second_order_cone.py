"""`SecondOrderCone`: norms bounded by affine functions."""

from __future__ import annotations

from .._linalg import apply, norm, onto_cone, root
from .._namespace import Array, length, namespace, stop_gradient
from .._set import ConvexSet, Split, convex_set
from .._shapes import broadcast_shapes, side_by_side
from .._values import require


@convex_set
class SecondOrderCone(ConvexSet):
    """{x : |A_i x + b_i| <= z_i.x + d_i for all i}.   h_i(x) = |A_i x + b_i| - (z_i.x + d_i).

    `A` is `(..., m, k, n)`, `b` is `(..., m, k)`, `z` is `(..., m, n)`, `d` is `(..., m)`.

    >>> import numpy as np
    >>> cone = SecondOrderCone(np.eye(3)[None, :2], np.zeros((1, 2)), np.eye(3)[2:], np.zeros(1))  # |(x, y)| <= z
    >>> cone.h(np.array([3.0, 4.0, 1.0]))
    np.float64(4.0)
    """

    A: Array
    b: Array
    z: Array
    d: Array

    event_ndim = 1
    shapes = {"A": "m k n", "b": "m k", "z": "m n", "d": "m", "x": "n"}

    def constraints(self, x: Array) -> Array:
        return norm(self._image(x) + self.b) - (apply(self.z, x) + self.d)

    def gauge(self, anchor: Array, direction: Array) -> Array:
        """The larger root s of |s p + q| = s a + c, with p, a at the anchor and q, c of the direction.

        Squared: (a^2 - |p|^2) s^2 - 2 (p.q - a c) s - (|q|^2 - c^2) = 0, whose discriminant is never negative.
        """
        xp = namespace(direction)
        p, q = self._image(anchor) + self.b, self._image(direction)
        a, c = apply(self.z, anchor) + self.d, apply(self.z, direction)
        size = xp.maximum(xp.max(abs(stop_gradient(q)), axis=-1), abs(stop_gradient(c)))
        size = xp.where(size > 0, size, xp.ones_like(size))
        q, c = q / size[..., None], c / size
        inner, outer = norm(p), norm(q)
        lead = (a - inner) * (a + inner)
        last = (outer - c) * (outer + c)
        half = xp.sum(p * q, axis=-1) - a * c
        disc = root(half * half + lead * last)
        out = half > 0
        inward = last / xp.where(out | (disc == half), xp.ones_like(disc), disc - half)
        return size * xp.where(out, (disc + half) / lead, inward)

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        k, n = self.A.shape[-2:]
        return self._slope(u * (n + k / 2 + 4) * abs(x) + size) + u * (n + k / 2 + 4) * (length(self.b) + abs(self.d))

    def split(self, x: Array) -> Split:
        """(A_i x, z_i.x) in the cone {(p, a) : |p + b_i| <= a + d_i}, k + 1 rows for each i."""
        xp = namespace(x)
        m, k, n = self.A.shape[-3:]
        batch = broadcast_shapes(tuple(self.A.shape[:-3]), tuple(self.z.shape[:-2]))
        A, z = xp.broadcast_to(self.A, (*batch, m, k, n)), xp.broadcast_to(self.z, (*batch, m, n))
        K = xp.reshape(xp.concat([A, z[..., None, :]], axis=-2), (*batch, m * (k + 1), n))
        apex = side_by_side([self.b, self.d[..., None]])

        def excess(v: Array) -> Array:
            rows = xp.reshape(v, (*v.shape[:-1], m, k + 1)) + apex
            return xp.reshape(rows - onto_cone(rows), (*rows.shape[:-2], m * (k + 1)))

        return Split(K, excess, k + 1)

    def check(self) -> None:
        for name in ("A", "b", "z", "d"):
            require(self, name, "finite", lambda xp, value: xp.isfinite(value))

    def _slope(self, size: Array) -> Array:
        """| |A_i| size | + |z_i|.size: by how much h_i changes at most when each coordinate moves by its size."""
        return length(self._image(size, abs(self.A))) + apply(abs(self.z), size)

    def _image(self, x: Array, A: Array | None = None) -> Array:
        """A_i x for every i, `(*batch, m, k)`."""
        matrices = self.A if A is None else A
        *batch, m, k, n = matrices.shape
        xp = namespace(x)
        flat = apply(xp.reshape(matrices, (*batch, m * k, n)), x)
        return xp.reshape(flat, (*flat.shape[:-1], m, k))

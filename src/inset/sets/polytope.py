"""`Polytope`: finitely many half-spaces."""

from __future__ import annotations

from .._linalg import apply, pick
from .._namespace import Array, length, muladd, namespace, positive
from .._set import ConvexSet, Split, convex_set
from .._values import require


@convex_set
class Polytope(ConvexSet):
    """{x : A x <= b}.   h_i(x) = a_i.x - b_i.

    `A` is `(..., m, n)`, `b` is `(..., m)`. Chord and ray agree. `inset.interior_point` finds the Chebyshev centre.

    >>> import numpy as np
    >>> triangle = Polytope(np.array([[-1.0, 0.0], [0.0, -1.0], [1.0, 1.0]]), np.array([0.0, 0.0, 1.0]))
    >>> triangle.contains(np.array([[0.2, 0.2], [0.9, 0.9]]))
    array([ True, False])
    """

    A: Array
    b: Array

    event_ndim = 1
    affine = True
    shapes = {"A": "m n", "b": "m", "x": "n"}

    def constraints(self, x: Array) -> Array:
        return apply(self.A, x) - self.b

    def row(self, x: Array, i: Array) -> Array:
        return namespace(x).sum(pick(self.A, i, 1) * x, axis=-1) - pick(self.b, i, 0)

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        k = u * (x.shape[-1] + 2)
        # finite also for a row that never binds
        offset = k * namespace(x).clip(abs(self.b), 0.0, 1e30)
        return muladd(offset, length(self.A), (k * length(x) + length(size))[..., None])

    def split(self, x: Array) -> Split:
        """A x in {z : z <= b}."""
        return Split(self.A, lambda z: positive(z - self.b), 1)

    def check(self) -> None:
        require(self, "A", "finite", lambda xp, A: xp.isfinite(A))
        require(self, "b", "numbers (+inf for a row that never binds)", lambda xp, b: b == b)

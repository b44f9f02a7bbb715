"""`LMI`: a linear matrix inequality."""

from __future__ import annotations

from .._linalg import frobenius, positive_part, semidefinite_gauge, smallest_eigenvalue, symmetric
from .._namespace import Array, is_traced, length, namespace
from .._set import ConvexSet, Split, convex_set


@convex_set
class LMI(ConvexSet):
    """{x : S(x) = sum_i x_i A_i - C positive semidefinite}.   h(x) = -lambda_min(S(x)), with gradient -(v.A_i v)_i.

    `A` is `(..., n, k, k)` and `C` is `(..., k, k)`, all symmetric.

    >>> import numpy as np
    >>> A = np.stack([np.eye(2), np.diag([1.0, -1.0])])
    >>> LMI(A, np.zeros((2, 2))).h(np.array([1.0, 3.0]))   # eigenvalues 4 and -2
    np.float64(2.0)
    """

    A: Array
    C: Array

    event_ndim = 1
    shapes = {"A": "n k k", "C": "k k", "x": "n"}

    def constraints(self, x: Array) -> Array:
        return -smallest_eigenvalue(self._image(x) - self.C)[..., None]

    def gauge(self, anchor: Array, direction: Array) -> Array:
        return semidefinite_gauge(self._image(anchor) - self.C, self._image(direction))[..., None]

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        n, k = self.A.shape[-3:-1]
        steep = length(frobenius(self.A))
        return (u * (n + 4 * k + 8) * (steep * length(x) + frobenius(self.C)) + steep * length(size))[..., None]

    def split(self, x: Array) -> Split:
        """S(x) + C in the matrices that are at least C, as vectors of k^2 entries."""
        xp = namespace(x)
        *batch, n, k, _ = self.A.shape
        K = xp.matrix_transpose(xp.reshape(self.A, (*batch, n, k * k)))

        def excess(z: Array) -> Array:
            Z = xp.reshape(z, (*z.shape[:-1], k, k)) - self.C
            Z = Z - positive_part(symmetric(Z))
            return xp.reshape(Z, (*Z.shape[:-2], k * k))

        return Split(K, excess, k * k)

    def check(self) -> None:
        for name, value in (("A", self.A), ("C", self.C)):
            if is_traced(value):
                continue
            xp = namespace(value)
            skew = float(xp.max(abs(value - xp.matrix_transpose(value))))
            if skew > 1e-6 * float(xp.max(abs(value))):
                raise ValueError(
                    f"LMI({name}=...) must be symmetric; received |{name} - {name}^T| up to {skew:.6g}, "
                    f"pass ({name} + {name}^T) / 2"
                )

    def _image(self, x: Array) -> Array:
        """sum_i x_i A_i, `(*batch, k, k)`."""
        *batch, n, k, _ = self.A.shape
        xp = namespace(x)
        flat = xp.reshape(self.A, (*batch, n, k * k))
        image = x @ flat if not batch else (x[..., None, :] @ flat)[..., 0, :]
        return xp.reshape(image, (*image.shape[:-1], k, k))

"""`GaussianEntropy`: Gaussians of at least a given entropy."""

from __future__ import annotations

import math

from .. import _gaussian as gaussian
from .._linalg import (
    eigh,
    frobenius,
    orthant_domain,
    raised,
    semidefinite_gauge,
    smallest_eigenvalue,
    spectral_sum,
    symmetric,
)
from .._namespace import Array, eye_like, is_array, keep, namespace, stop_gradient
from .._root import decreasing_root, lifted, lifted_matrix
from .._set import ConvexSet, convex_set, static
from .._shapes import side_by_side
from .._values import require


@convex_set
class GaussianEntropy(ConvexSet):
    """{(means, S) : log det(2 pi e S) / 2 >= kappa}, S the covariance of a d-dimensional Gaussian.

    In the norm-like form det(S)^(1/d) >= rho = exp(2 kappa / d) / (2 pi e), with the domain as further constraints:

    - "covariance": h = (-S_i or -lambda_min(S), rho - det(S)^(1/d));
    - "cholesky": h = (-L_ii, sqrt(rho) - prod_i L_ii^(1/d));
    - "log_std": h = log(rho)/2 - mean(log_std), affine.

    A point is `(means, covariance)`, laid out as for `GaussianKL`, so that the two join by `&`; the means are free.

    >>> import numpy as np
    >>> round(float(GaussianEntropy(1, kappa=0.0).h((np.zeros(1), np.ones(1)))), 4)   # 1/(2 pi e) - 1
    -0.9415
    """

    d: int = static()
    kappa: Array | float
    average: bool = static(default=False)
    diagonal: bool = static(default=True)
    parameterization: gaussian.Parameterization = static(default="covariance")

    def __post_init__(self) -> None:
        gaussian.check_layout("GaussianEntropy", self.parameterization, self.diagonal)
        super().__post_init__()

    @property
    def event_ndim(self) -> tuple[int, int]:  # type: ignore[override]
        return gaussian.event_ndim(self.average, self.diagonal)

    @property
    def shapes(self) -> dict[str, str | tuple[str, ...]]:  # type: ignore[override]
        return {"kappa": "", "x": ("K d" if self.average else "d", "d" if self.diagonal else "d d")}

    def constraints(self, x: tuple[Array, Array]) -> Array:
        covariance = x[1]
        xp = namespace(covariance)
        if self.parameterization == "log_std":
            return (self._log_rho() / 2 - xp.mean(covariance, axis=-1))[..., None]
        if self.diagonal or self.parameterization == "cholesky":
            scales = covariance if self.diagonal else gaussian.diagonal_of(covariance)
            mean = xp.exp(xp.mean(_log(scales), axis=-1))
            mean = xp.where(xp.all(scales > 0, axis=-1), mean, 0 * mean)
            return side_by_side([-scales, (self._rho(covariance) - mean)[..., None]])
        covariance = symmetric(covariance)  # frameworks differ in which triangle they read
        low = smallest_eigenvalue(covariance)
        log_det = spectral_sum(covariance, _log, _slope, _bend)
        mean = xp.where(low > 0, xp.exp(log_det / self.d), 0 * low)
        return side_by_side([-low[..., None], (self._rho(covariance) - mean)[..., None]])

    def rounding(self, x: tuple[Array, Array], size: tuple[Array, Array], u: float) -> Array:
        covariance, moved = x[1], size[1]
        xp = namespace(covariance)
        if self.parameterization == "log_std":
            evaluation = (self.d + 4) * (abs(self._log_rho()) + xp.mean(abs(covariance), axis=-1))
            return (u * evaluation + xp.mean(moved, axis=-1))[..., None]
        rho = abs(self._rho(covariance))
        if self.diagonal or self.parameterization == "cholesky":
            scales, moved = (v if self.diagonal else gaussian.diagonal_of(v) for v in (abs(covariance), moved))
            logs = _log(scales + moved)
            mean = xp.exp(xp.mean(logs, axis=-1))
            share = _share(scales, moved)
            evaluation = 4 * rho + (self.d + 8 + 4 * xp.mean(abs(logs), axis=-1)) * mean
            return side_by_side([2 * moved, (u * evaluation + share * mean)[..., None]])
        # each eigenvalue is off by `blur` as computed, and changes by |moved| at most
        blur, change = u * (4 * self.d + 8) * frobenius(covariance), frobenius(moved)
        values = abs(eigh(covariance)[0])
        logs = _log(values + (blur + change)[..., None])
        mean = xp.exp(xp.mean(logs, axis=-1))
        evaluation = 4 * rho + (self.d + 8 + 4 * xp.mean(abs(logs), axis=-1)) * mean
        share = _share(values, blur[..., None]) + _share(values, change[..., None])
        return side_by_side([(blur + change)[..., None], (u * evaluation + share * mean)[..., None]])

    def domain(self, anchor: tuple[Array, Array], x: tuple[Array, Array]) -> Array:
        """Non-negative variances, or a positive semidefinite covariance."""
        xp = namespace(x[1])
        if self.parameterization == "log_std":
            return xp.ones_like(x[1][..., 0])
        if self.diagonal:
            return orthant_domain(anchor[1], x[1])
        if self.parameterization == "cholesky":
            return orthant_domain(gaussian.diagonal_of(anchor[1]), gaussian.diagonal_of(x[1]))
        gauge = semidefinite_gauge(anchor[1], x[1] - anchor[1])
        return 1 / xp.where(gauge > 1, gauge, xp.ones_like(gauge))

    def onto(self, x: tuple[Array, Array]) -> tuple[Array, Array]:
        return gaussian.onto(x, self.parameterization, self.diagonal)

    def anchor(self, x: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """Mean 0 (or the means of x), and the isotropic covariance with 1 nat per dimension to spare."""
        import numpy as np

        log_std = self._log_rho() / 2 + 1
        if x is None:
            if is_array(log_std):
                xp, zero = namespace(log_std), 0 * log_std[..., None]
                zero = zero + xp.zeros((self.d,), dtype=zero.dtype)
            else:
                zero = np.zeros(self.d)
            means = zero[..., None, :] if self.average else zero
        else:
            means, zero = x[0], 0 * (x[1] if self.diagonal else x[1][..., 0])
        xp = namespace(zero)
        level = log_std[..., None] if is_array(log_std) else log_std
        scales = zero + level
        if self.parameterization != "log_std":
            scales = xp.exp(scales * (2 if self.parameterization == "covariance" else 1))
        if self.diagonal:
            return means, scales
        k = np.eye(self.d)
        from .._namespace import like

        return means, scales[..., None] * like(k, scales)

    def nearest(self, x: tuple[Array, Array]) -> tuple[Array, Array]:
        """The means as they are; variances v_i - c_i = t / v_i, or S - covariance = t S^-1, of determinant rho^d.

        v is larger than c for t > 0, and t the root of sum_i log v_i = d log rho. Standard deviations likewise, and
        of a Cholesky factor the diagonal alone. A log_std is shifted by what its mean lacks.
        """
        means, covariance = self.onto(x)
        xp = namespace(covariance)
        values = self.constraints((means, covariance))
        outside = xp.any(values > 0, axis=-1)
        if self.parameterization == "log_std":
            return means, covariance + xp.where(values > 0, values, 0 * values)
        rho = self._rho(covariance)
        if self.diagonal:
            return means, _lift(covariance, rho, outside)
        if self.parameterization == "cholesky":
            diagonal = _lift(gaussian.diagonal_of(covariance), rho, outside)
            return means, xp.where(eye_like(self.d, covariance) > 0, diagonal[..., None], covariance)
        C = covariance / rho[..., None, None]
        values = eigh(stop_gradient(C))[0]
        t = decreasing_root(
            lambda t: -spectral_sum(lifted_matrix(C, t), _log, _slope, _bend),
            xp.zeros_like(rho + values[..., 0]),
            outside,
            search=lambda t: -_log_product(values, t),
        )
        t = xp.where(outside, t, xp.ones_like(t))
        return means, xp.where(outside[..., None, None], rho[..., None, None] * lifted_matrix(C, t), covariance)

    def check(self) -> None:
        require(self, "kappa", "finite", lambda xp, kappa: xp.isfinite(kappa))

    def _log_rho(self) -> Array | float:
        return 2 * self.kappa / self.d - math.log(2 * math.pi * math.e)

    def _rho(self, covariance: Array) -> Array:
        """det(S)^(1/d) at the bound, or its square root for standard deviations."""
        xp = namespace(covariance)
        half = 0.5 if self.parameterization == "cholesky" else 1.0
        zero = 0 * covariance[..., 0] if self.diagonal else 0 * covariance[..., 0, 0]
        return xp.exp(zero + half * self._log_rho())


def _share(scales: Array, moved: Array) -> Array:
    """By which part of itself the geometric mean changes at most when each scale moves that much."""
    xp = namespace(scales)
    ratio = moved / raised(scales)
    share = xp.mean(2 * ratio, axis=-1)
    return xp.where((xp.max(ratio, axis=-1) < 0.5) & (share < 1), share, xp.ones_like(share))


def _lift(scales: Array, rho: Array, wanted: Array) -> Array:
    """The nearest scales of geometric mean rho where wanted, else the scales themselves."""
    xp = namespace(scales)
    c = scales / rho[..., None]
    t = decreasing_root(lambda t: -_log_product(c, t), xp.zeros_like(c[..., 0]), wanted)
    t = xp.where(wanted, t, xp.ones_like(t))
    return xp.where(wanted[..., None], rho[..., None] * lifted(c, t[..., None]), scales)


def _log_product(c: Array, t: Array) -> Array:
    """sum_i log v_i for v_i - c_i = t / v_i."""
    return namespace(c).sum(_log(lifted(c, t[..., None])), axis=-1)


def _slope(v: Array) -> Array:
    return 1 / raised(v)


def _bend(v: Array) -> Array:
    return -1 / keep(~(v < 1e-15), v, 1e-15) ** 2  # its square is finite in float32


def _log(v: Array) -> Array:
    """log v, its value at 1e-30 below that."""
    return namespace(v).log(raised(v))

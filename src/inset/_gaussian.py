"""What `GaussianKL` and `GaussianEntropy` share: points (means, covariance) and how the covariance is written."""

from __future__ import annotations

from typing import Literal

from ._linalg import symmetric
from ._namespace import Array, arange_like, namespace

Parameterization = Literal["covariance", "cholesky", "log_std"]
PARAMETERIZATIONS = ("covariance", "cholesky", "log_std")


def check_layout(name: str, parameterization: str, diagonal: bool) -> None:
    """Raise unless the covariance is written in a known way."""
    if parameterization not in PARAMETERIZATIONS:
        raise ValueError(f"{name}(parameterization={parameterization!r}): expected {', '.join(PARAMETERIZATIONS)}")
    if parameterization == "log_std" and not diagonal:
        raise ValueError(f"{name}(parameterization='log_std') is for diagonal covariances; expected diagonal=True")


def event_ndim(average: bool, diagonal: bool) -> tuple[int, int]:
    return (2 if average else 1, 1 if diagonal else 2)


def onto(point: tuple[Array, Array], parameterization: str, diagonal: bool) -> tuple[Array, Array]:
    """The covariance made symmetric, the Cholesky factor lower triangular."""
    mean, covariance = point
    if diagonal:
        return point
    return mean, symmetric(covariance) if parameterization == "covariance" else lower(covariance)


def lower(L: Array) -> Array:
    """The lower triangle."""
    xp = namespace(L)
    k = arange_like(L.shape[-1], L)
    return xp.where(k[:, None] >= k[None, :], L, xp.zeros_like(L))


def diagonal_of(M: Array) -> Array:
    """The diagonal of square matrices, `(..., d)`."""
    xp = namespace(M)
    k = arange_like(M.shape[-1], M)
    return xp.sum(xp.where(k[:, None] == k[None, :], M, xp.zeros_like(M)), axis=-1)


# phi and phi' of the relative change e, with phi(0) = phi'(0) = 0.
CURVES = {
    "covariance": (lambda xp, e: e - xp.log1p(e), lambda xp, e: e / (1 + e)),
    "cholesky": (lambda xp, e: e * (2 + e) - 2 * xp.log1p(e), lambda xp, e: 2 * e * (2 + e) / (1 + e)),
    "log_std": (lambda xp, t: xp.expm1(2 * t) - 2 * t, lambda xp, t: 2 * xp.expm1(2 * t)),
}


def limits(parameterization: Parameterization, epsilon: Array | float) -> tuple[Array | float, Array | float]:
    """Relative changes below and above which phi > 2 epsilon, by quadratic bounds of phi from below."""
    if parameterization == "covariance":  # phi >= e^2 / 2 below 0, e^2 / 2(1 + e) above
        return -2 * epsilon**0.5, 2 * epsilon + 2 * (epsilon * (epsilon + 1)) ** 0.5
    if parameterization == "cholesky":  # 2 e^2, e^2
        return -(epsilon**0.5), (2 * epsilon) ** 0.5
    return -(epsilon + (epsilon * (epsilon + 4)) ** 0.5) / 2, epsilon**0.5  # 2 e^2 / (1 - e), 2 e^2

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

"""The set and the anchor of `inset.torch.TrustRegion`: a Gaussian near the old one, of enough entropy."""

from __future__ import annotations

import math
from typing import NamedTuple

from . import _gaussian as gaussian
from ._errors import PointShapeError
from ._fields import map_point, working
from ._linalg import symmetric
from ._namespace import (
    Array,
    Point,
    cholesky,
    exact_arithmetic,
    eye_like,
    is_array,
    is_floating,
    is_torch,
    is_traced,
    keep,
    namespace,
    stop_gradient,
)
from ._ray import over_event
from ._set import ConvexSet
from .sets.gaussian_entropy import GaussianEntropy
from .sets.gaussian_kl import GaussianKL

MOST = 60.0  # largest log c, finite in float32; a policy still below the floor then is stopped by it


class Layout(NamedTuple):
    """How a Gaussian is written, see `GaussianKL`."""

    average: bool
    diagonal: bool
    parameterization: gaussian.Parameterization


def check_options(epsilon: float, kappa: float | None, diagonal: bool, parameterization: str) -> None:
    """Raise a `ValueError` unless the numbers make sense and the covariance is written in a known way."""
    gaussian.check_layout("TrustRegion", parameterization, diagonal)
    if not 0 < epsilon < math.inf:
        raise ValueError(f"TrustRegion(epsilon={epsilon!r}): expected a positive number")
    if kappa is not None and not math.isfinite(kappa):
        raise ValueError(f"TrustRegion(kappa={kappa!r}): expected a finite number, or None for no entropy floor")


def trust_region(
    new: Point, old: Point, epsilon: float, kappa: float | None, layout: Layout
) -> tuple[ConvexSet, Point, Point]:
    """The set around the old policy, the point to project and the anchor.

    With an entropy floor both ends of the line are moved above it, by a factor c of the covariance. The new policy, or
    else the floor would stop its mean as well. And the old one, since on the floor it is no anchor: the KL of
    N(m, c S) to N(m, S) is d/2 (c - 1 - log c), at most a quarter of epsilon up to c = 1 + sqrt(epsilon / d), and the
    entropy grows by d/2 log c. It is given that much above the floor, if it has not got it already.
    """
    old = map_point(stop_gradient, old)
    region = GaussianKL(old[0], old[1], epsilon, *layout)
    if kappa is None:
        return region, new, old
    (mean, covariance), d = new, new[0].shape[-1]
    with exact_arithmetic(mean):
        _, (_, wide), (old_mean, old_covariance) = working(region, new, old)
        xp = namespace(wide)
        log_c = _needed(wide, kappa, layout)
        log_c = keep(log_c > 0, keep(log_c < MOST, log_c, MOST), 0.0)
        covariance = xp.astype(_scaled(wide, log_c, layout), covariance.dtype)
        log_c, most = _needed(old_covariance, kappa, layout), math.log1p(math.sqrt(epsilon / d))
        _require_reachable(log_c - most, d, epsilon, kappa)
        anchor = (old_mean, _scaled(old_covariance, xp.clip(log_c + most, 0.0, most), layout))
    return region & GaussianEntropy(d, kappa, *layout), (mean, covariance), anchor


def _needed(covariance: Array, kappa: float, layout: Layout) -> Array:
    """log c of the factor c with which the entropy log det(2 pi e S) / 2 is kappa; NaN if S is no covariance."""
    xp = namespace(covariance)
    d = covariance.shape[-1]
    log_std, valid = covariance, True
    if layout.parameterization != "log_std":
        scales = covariance
        if not layout.diagonal and layout.parameterization == "covariance":
            S = symmetric(covariance)
            definite = xp.all(xp.isfinite(cholesky(stop_gradient(S))), axis=(-2, -1), keepdims=True)
            scales = keep(definite, cholesky(xp.where(definite, S, eye_like(d, S))), 0.0)
        scales = scales if layout.diagonal else gaussian.diagonal_of(scales)
        valid = xp.all(scales > 0, axis=-1)
        log_std = xp.log(keep(scales > 0, scales, 1.0))
        log_std = log_std / 2 if layout.diagonal and layout.parameterization == "covariance" else log_std
    log_c = 2 * kappa / d - math.log(2 * math.pi * math.e) - 2 * xp.mean(log_std, axis=-1)
    return log_c if valid is True else keep(valid, log_c, math.nan)


def _scaled(covariance: Array, log_c: Array, layout: Layout) -> Array:
    """The covariance times c, as it is written."""
    log_c = over_event(log_c, 1 if layout.diagonal else 2)
    if layout.parameterization == "log_std":
        return covariance + log_c / 2
    return covariance * namespace(log_c).exp(log_c if layout.parameterization == "covariance" else log_c / 2)


def _require_reachable(log_c: Array, d: int, epsilon: float, kappa: float) -> None:
    """Raise if the anchor still needs a factor c >= 1 to reach the floor. Not under tracing: NaN comes out there."""
    if is_traced(log_c) or not bool((log_c >= 0).any()):
        return
    lowest = kappa - d / 2 * float(log_c[log_c >= 0].max())
    raise ValueError(
        f"TrustRegion(kappa={kappa:g}): the old policy, widened by a quarter of epsilon={epsilon:g}, has entropy "
        f"{lowest:.6g}; expected more than kappa. Lower kappa, raise epsilon, or start from a policy of more entropy"
    )


def check_policies(new: Point, old: Point, layout: Layout) -> None:
    """Raise unless these are two policies, and all that is given broadcasts to the batch of the new mean."""
    average, diagonal, parameterization = layout
    if _alike(new, old, 2 if average else 1, 1 if diagonal else 2):
        return
    states = "K, " if average else ""
    names = ("mean", parameterization)
    for which, point in (("new", new), ("old", old)):
        if not isinstance(point, tuple) or len(point) != 2:
            got = f"a tuple of {len(point)}" if isinstance(point, tuple) else type(point).__name__
            raise PointShapeError(f"TrustRegion expects {which}=(mean, {parameterization}); received {got}")
        for name, leaf in zip(names, point, strict=True):
            if not is_array(leaf) or not is_floating(leaf):
                got = leaf.dtype if is_array(leaf) else type(leaf).__name__
                raise TypeError(f"TrustRegion expects arrays of floating dtype; received {got} as the {which} {name}")
    shape = tuple(new[0].shape)
    ndim = gaussian.event_ndim(average, diagonal)
    if len(shape) < ndim[0]:
        raise PointShapeError(
            f"TrustRegion(average={average}) expects a new mean of shape (..., {states}d); received {shape}"
        )
    batch, d = shape[: len(shape) - ndim[0]], shape[-1]
    events = (shape[len(shape) - ndim[0] :], (d,) if diagonal else (d, d))
    for which, name, leaf, event in (
        ("new", names[1], new[1], events[1]),
        ("old", names[0], old[0], events[0]),
        ("old", names[1], old[1], events[1]),
    ):
        if not _broadcasts(tuple(leaf.shape), batch, event):
            hint = ""
            if average and name != "mean":
                hint = f". One {name} serves all states: pass {name}[0] if it was repeated for each of them, or build "
                hint += "TrustRegion(average=False) for one constraint per state"
            raise PointShapeError(
                f"TrustRegion(average={average}, diagonal={diagonal}): the new mean has shape {shape}, so the {which} "
                f"{name} must have shape {event}{f' or {(*batch, *event)}' if batch else ''}; "
                f"received {tuple(leaf.shape)}{hint}"
            )


def _alike(new: Point, old: Point, mean: int, covariance: int) -> bool:
    """Whether they are policies of the same shapes, found out quickly; False also where it takes more to tell."""
    if type(new) is not tuple or type(old) is not tuple or len(new) != 2 or len(old) != 2:
        return False
    if not all([is_torch(v) and v.dtype.is_floating_point for v in (*new, *old)]):
        return False
    shape, wide = new[0].shape, new[1].shape
    if len(shape) < mean or old[0].shape != shape or old[1].shape != wide:
        return False
    return tuple(wide) == (*shape[: len(shape) - mean], *(shape[-1],) * covariance)


def _broadcasts(shape: tuple[int, ...], batch: tuple[int, ...], event: tuple[int, ...]) -> bool:
    lead = len(shape) - len(event)
    if not 0 <= lead <= len(batch) or shape[lead:] != event:
        return False
    return all([size in (1, wide) for size, wide in zip(shape[:lead], batch[len(batch) - lead :], strict=True)])

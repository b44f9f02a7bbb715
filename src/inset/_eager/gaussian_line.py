"""The covariance term sum_i phi(e_i) of `GaussianKL` on the line to the old policy, and what rounding does to it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from torch import Tensor

from .. import _gaussian as gaussian
from .._project import interpolated
from .._trust_region import Layout
from ..sets.gaussian_kl import GaussianKL
from .small import at_least, at_most, largest, most, product, smallest, total

NEWTONS = 12
"""At most; three or four do."""
SLACK = 1.1
"""Times epsilon: more than the KL at y, whatever is rounded."""
MOST_LOST = 0.09
"""Of epsilon, to rounding."""
FARTHEST = 1e8
"""Standard deviations up to which squares do not overflow."""
EXTREME = {"covariance": (1e-24, 1e24), "cholesky": (1e-12, 1e12), "log_std": (-27.0, 27.0)}
"""Old scales between which no square that counts, and no inverse, leaves the range of float32."""
Kind = gaussian.Parameterization
Pair = tuple[Tensor, Tensor]


def formulas(old: Pair, epsilon: float, layout: Layout, method: Any, strict: bool) -> Callable[..., Pair]:
    """g(x) of means and scales, as the set has it."""
    set = GaussianKL(*old, epsilon, *layout)
    return lambda *x: interpolated(set, x, old, method, strict)[0]


def highest(states: int) -> float:
    """Up to which h is trusted."""
    return FARTHEST * FARTHEST / 2 / states


def spread(xp: Any, e: Any, kind: Kind, epsilon: float) -> tuple[Any, Any]:
    """sum phi(e) and the slopes phi'(e), beyond the cut along the tangent; see `_gaussian.CURVES`."""
    end = cut(kind, epsilon)
    if kind == "log_std":
        inner = e if largest(e) <= end else at_most(e, end)
        twice = inner + inner
        growth = xp.expm1(twice)
        phi, slopes = growth - twice, growth + growth
    else:
        inner = e if smallest(e) >= end else at_least(e, end)
        slopes = inner / (inner + 1)
        phi = inner - xp.log1p(inner)
        if kind == "cholesky":
            phi, slopes = inner * inner + (phi + phi), slopes * (inner + 2) * 2
    return total(phi if inner is e else phi + slopes * (e - inner)), slopes


@lru_cache
def cut(kind: Kind, epsilon: float) -> float:
    """See `GaussianKL._cut`."""
    if kind == "log_std":
        return max(math.log(4 * epsilon + 1.4) / 2, 3.0)
    if kind == "covariance":
        return min(math.exp(-1 - 2 * epsilon), 1e-3) - 1
    return min(math.exp(-0.5 - epsilon), 0.03) - 1


def first(kind: Kind, epsilon: float, q: Any, square: Any) -> Any:
    """The t with t^2 q + sum phi(t e) = 2 epsilon for small changes, whose squares sum up to `square`."""
    return (2 * epsilon / (q + (0.5 if kind == "covariance" else 2.0) * square + 1e-300)) ** 0.5


@lru_cache
def enough(epsilon: float, u: float, d: int) -> float:
    """What Newton steps may leave."""
    return epsilon * u / 2 + 2e-15 * math.sqrt(epsilon * d)


def root(xp: Any, q: Any, e: Any, outside: Any, kind: Kind, epsilon: float, u: float) -> tuple[Any, ...]:
    """t <= 1 with t^2 q + sum phi(t e) = 2 epsilon, -dt / d(t^2 q) t and the same for sum phi, and the slopes at t e.

    The first Newton step, from the t of small changes, ends beyond the boundary and the others come back to it; the
    chord from what they leave ends before it. In float64, or what they leave would be rounding.
    """
    kept, q, e = e.dtype, _double(q), _double(e)
    t = at_most(first(kind, epsilon, q, product(e, e, 1)), 1.0)
    k = 0
    while True:
        phi, slopes = spread(xp, t * e, kind, epsilon)
        over = t * t * q + phi - 2 * epsilon
        steep = 2 * t * q + product(slopes, e, 1) + 1e-300
        if k == NEWTONS or (k and largest(over) <= enough(epsilon, u, e.shape[-1])):
            break
        t, k = at_most(t - over / steep, 1.0), k + 1
    t = t * (2 * epsilon / (2 * epsilon + at_least(over, 0.0)))
    turn = t / -steep * (outside & (t < 1))
    return tuple([_cast(v, kept) for v in (t, 2 * t * turn, turn, slopes)])


def _double(v: Any) -> Any:
    return v.double() if isinstance(v, Tensor) else v.astype("float64")


def _cast(v: Any, dtype: Any) -> Any:
    return v.to(dtype) if isinstance(v, Tensor) else v.astype(dtype)


def error(e: Any, slopes: Any, kind: Kind, u: float, far: float) -> tuple[Any, Any]:
    """What rounding may have taken from sum phi(e) / 2 at x, see `GaussianKL.rounding`; and sum |e|.

    `far` is the largest old logarithm.
    """
    sizes, d = abs(e), e.shape[-1]
    size, widest = total(sizes), most(sizes)
    k = u * (d + 10)
    if kind == "log_std":
        off = 2.01 * u * widest + 4.01 * u * far
        # e^2e + 1 = slope / 2 + 2
        return (most(slopes) * 0.51 + 2.1) * (k * size + (size + d * off) * off * 2.01), size
    square = 2.01 if kind == "covariance" else widest + 4.01
    # beyond the cut a slope counts as often as e
    return k * (square * size + (widest + 1.01) * total(abs(slopes))), size


@lru_cache
def margin(kind: Kind, epsilon: float, count: int, d: int, u: float, far: float) -> tuple[float, float, float, float]:
    """What rounding may add to h at the anchor; there and at y; per unit of sum |e| at y, and of the means in std.

    `count` numbers are summed in the mean term. At y all of q + sum phi(e) <= 2 epsilon, so that no e is beyond
    `limits`; see `GaussianKL.rounding`.
    """
    bound = SLACK * epsilon
    low, high = (float(v) for v in gaussian.limits(kind, bound))
    widest, k = max(-low, high), 2 * u * (d + 8)
    if kind == "log_std":
        off, off0 = 8 * u * (2 * far + widest), 24 * u * far
        growth, growth0 = (math.exp(2 * min(v, 3.0)) + 1 for v in (high + off, off0))
        bend, loose = growth * (k + 2 * off), growth * 2 * d * off * off
        fixed = d * 2 * growth0 * off0 * off0
    else:
        off, off0, shape, shape0 = 4 * u * (2 + widest), 8 * u, 0.0, 0.0
        left = max(1 + low, math.exp(-1 - 2 * bound)) - off
        if kind == "cholesky":
            left, shape, shape0 = max(1 + low, math.exp(-0.5 - bound)) - off, 2 + widest + off, 2 + off0
        steep = (1 + 2 * shape) / left * off
        bend, loose = k * (2 + shape + 1 / left) + steep, d * off * steep
        fixed = d * off0 * off0 / (1 - off0) * (1 + 2 * shape0)
    fixed += 8 * u * epsilon
    mean = 2 * u * (count + 8) * 2 * bound + 8 * u * epsilon + 8 * u * bound
    # a quarter more for the square of that: where the result is used, it is below 9% of epsilon
    return fixed, 1.01 * (fixed + loose + mean), 1.01 * bend, 1.25 * 8 * u * math.sqrt(2 * bound)

"""The mathematics of `gaussians.py`: h of a diagonal `GaussianKL`, and its root on a line."""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import divided, quotient, root
from ._rows import moved, number, row

VARIANCE, SCALE, LOGARITHM = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""How the covariance is written: variances, standard deviations, or their logarithms."""
FARTHEST, HIGHEST = tl.constexpr(1e8), tl.constexpr(1e15)
"""Standard deviations up to which squares do not overflow, and an h that is not reached near them."""
NEWTON = tl.constexpr(12)
"""Steps to the root of h. What they leave is on the safe side."""


@triton.jit
def _exp(v):
    """e^v: what a GPU has is exact to a few units for small numbers only."""
    v = tl.minimum(tl.maximum(v, -100.0), 100.0)
    turns = tl.floor(v * 1.4426950408889634 + 0.5)
    rest = tl.fma(turns, -0.693359375, v)
    rest = tl.fma(turns, 2.12194440e-4, rest)
    return tl.exp(rest) * tl.exp2(turns)


@triton.jit
def small(size, KIND: tl.constexpr):
    """Whether relative changes of such a size are those of the series."""
    return size <= (1.0 if KIND == LOGARITHM else 0.5)


@triton.jit
def _series(e, KIND: tl.constexpr):
    """phi and its slope at small relative changes, without cancellation: each is exact to 20 roundings or so."""
    if KIND == LOGARITHM:  # e^s - 1 - s
        s = 2 * e
        series = 1 / 87178291200.0
        series = tl.fma(series, s, 1 / 6227020800.0)
        series = tl.fma(series, s, 1 / 479001600.0)
        series = tl.fma(series, s, 1 / 39916800.0)
        series = tl.fma(series, s, 1 / 3628800.0)
        series = tl.fma(series, s, 1 / 362880.0)
        series = tl.fma(series, s, 1 / 40320.0)
        series = tl.fma(series, s, 1 / 5040.0)
        series = tl.fma(series, s, 1 / 720.0)
        series = tl.fma(series, s, 1 / 120.0)
        series = tl.fma(series, s, 1 / 24.0)
        series = tl.fma(series, s, 1 / 6.0)
        series = tl.fma(series, s, 0.5)
        value = series * s * s
        return value, 2 * (value + s)
    else:  # e - log(1 + e), and log(1 + e) = 2 artanh w with w = e / (2 + e)
        w = quotient(e, 2 + e)
        square = w * w
        series = 1 / 17.0
        series = tl.fma(series, square, 1 / 15.0)
        series = tl.fma(series, square, 1 / 13.0)
        series = tl.fma(series, square, 1 / 11.0)
        series = tl.fma(series, square, 1 / 9.0)
        series = tl.fma(series, square, 1 / 7.0)
        series = tl.fma(series, square, 1 / 5.0)
        series = tl.fma(series, square, 1 / 3.0)
        return _both(w * (e - 2 * square * series), e, KIND)


@triton.jit
def _both(value, e, KIND: tl.constexpr):
    """phi and its slope, given e - log(1 + e)."""
    slope = divided(e, 1 + e)
    if KIND == SCALE:
        return e * e + 2 * value, 2 * slope * (2 + e)
    else:
        return value, slope


@triton.jit
def curve(e, cut, KIND: tl.constexpr, SERIES: tl.constexpr):
    """phi and its slope at each relative change, by SERIES if all are small; beyond `cut` along the tangent."""
    value, slope = _series(e, KIND)  # type: ignore[misc]
    if not SERIES:
        if KIND == LOGARITHM:
            inner = tl.minimum(e, cut)
            large = _exp(2 * inner) - 1 - 2 * inner
            steep = 2 * (large + 2 * inner)
        else:
            inner = tl.maximum(e, cut)
            large, steep = _both(inner - tl.log(1 + inner), inner, KIND)  # type: ignore[misc]
        by_series = small(tl.abs(e), KIND)
        value = tl.where(by_series, value, large + steep * (e - inner))
        slope = tl.where(by_series, slope, steep)
    return value, slope


@triton.jit
def _tangent_point(epsilon, KIND: tl.constexpr):
    """Where h is continued along its tangent; see `GaussianKL._cut`."""
    if KIND == LOGARITHM:
        return tl.maximum(tl.log(4 * epsilon + 1.4) / 2, 3.0)
    elif KIND == SCALE:
        return tl.minimum(tl.exp(-0.5 - epsilon), 0.03) - 1
    else:
        return tl.minimum(tl.exp(-1 - 2 * epsilon), 1e-3) - 1


@triton.jit
def _repeated(
    v, n, N, ROW: tl.constexpr, D: tl.constexpr, ALL: tl.constexpr, WIDE: tl.constexpr, F: tl.constexpr, other
):  # fmt: skip
    """Vectors of D numbers, one after another, as often as ALL asks for."""
    e = tl.arange(0, WIDE)
    if ROW == 0:
        return tl.load(v + e % D, e < ALL, other=other).to(F)[None, :]
    else:
        there = (n < N)[:, None] & (e < ALL)[None, :]
        return tl.load(v + n[:, None] * ROW + (e % D)[None, :], there, other=other).to(F)


@triton.jit
def _deviation(old, KIND: tl.constexpr):
    """1 / std."""
    if KIND == LOGARITHM:
        return _exp(-old)
    elif KIND == SCALE:
        return divided(1.0 + 0 * old, old)
    else:
        return divided(1.0 + 0 * old, root(old))


@triton.jit
def loaded(
    m0, s0, mq, sq, epsilon, n, N,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, ROWM: tl.constexpr, ROWS: tl.constexpr,
    ROWQ: tl.constexpr, ROWC: tl.constexpr, ROWE: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The anchor, the old policy, 1 / std for each mean, 1 / the scale to which changes are relative, and epsilon;

    where h goes on along its tangent, and h at the anchor.
    """
    ALL: tl.constexpr = D * STATES
    F: tl.constexpr = tl.float32  # type: ignore[assignment]
    other: tl.constexpr = 0.0 if KIND == LOGARITHM else 1.0  # type: ignore[assignment]
    mean, spread = row(m0, n, N, WIDE, ALL, ROWM, F), row(s0, n, N, WIDTH, D, ROWS, F)
    center, old = row(mq, n, N, WIDE, ALL, ROWQ, F), row(sq, n, N, WIDTH, D, ROWC, F, other)
    inverse = _deviation(old if ALL == D else _repeated(sq, n, N, ROWC, D, ALL, WIDE, F, other), KIND)
    scale = 1.0 + 0 * old if KIND == LOGARITHM else divided(1.0 + 0 * old, old)
    if WIDTH > D:
        spread = tl.where((tl.arange(0, WIDTH) < D)[None, :], spread, old)  # what is not there has not changed
    most = number(epsilon, n, N, ROWE, F)
    cut = _tangent_point(most, KIND)
    z, e = changes(mean, spread, center, old, inverse, scale, KIND)  # type: ignore[misc]
    a, _slope = evaluated(z, e, most, cut, KIND, STATES, False)  # type: ignore[misc]
    return mean, spread, center, old, inverse, scale, most, cut, a


@triton.jit
def filled(v, there, other, D: tl.constexpr):
    """v as float32; what is not there has not changed."""
    if v.shape[1] > D:
        return tl.where(there, v.to(tl.float32), other)
    else:
        return v.to(tl.float32)


@triton.jit
def changes(mean, spread, center, old, inverse, scale, KIND: tl.constexpr):
    """z and e."""
    return (mean - center) * inverse, spread - old if KIND == LOGARITHM else (spread - old) * scale


@triton.jit
def evaluated(z, e, epsilon, cut, KIND: tl.constexpr, STATES: tl.constexpr, SERIES: tl.constexpr):
    """h, and the slopes of phi."""
    phi, slope = curve(e, cut[:, None], KIND, SERIES)  # type: ignore[misc]
    return (tl.sum(z * z, axis=1) / STATES + tl.sum(phi, axis=1)) / 2 - epsilon, slope


@triton.jit
def plain(b, e, KIND: tl.constexpr, STATES: tl.constexpr):
    """Where h is not huge, and all relative changes are small."""
    return (b < HIGHEST / STATES) & small(tl.max(tl.abs(e), axis=1), KIND)


@triton.jit
def within(mean, spread, fine, mean0, spread0, center, old, inverse, scale, KIND: tl.constexpr, HUGE: tl.constexpr):
    """The point, unless it is fine, pulled back to where h is finite (`GaussianKL.domain`), by what factor, z and e."""
    size = tl.maximum(tl.max(tl.abs(mean), axis=1), tl.max(tl.abs(spread), axis=1))
    t = tl.where(~fine & (size > HUGE), HUGE / tl.where(size > HUGE, size, HUGE), 1.0)
    mean, spread = moved(mean0, mean, t), moved(spread0, spread, t)
    z, e = changes(mean, spread, center, old, inverse, scale, KIND)  # type: ignore[misc]
    far = tl.max(tl.abs(z), axis=1)
    if KIND == SCALE:
        far = tl.maximum(far, tl.max(tl.abs(e), axis=1))
    back = tl.where(~fine & (far > FARTHEST), FARTHEST / tl.where(far > FARTHEST, far, FARTHEST), 1.0)
    mean, spread, t = moved(mean0, mean, back), moved(spread0, spread, back), t * back
    z, e = changes(mean, spread, center, old, inverse, scale, KIND)
    return mean, spread, t, z, e


@triton.jit
def limits(epsilon, KIND: tl.constexpr):
    """The changes at which one term of h alone is epsilon, or beyond them; see `GaussianKL._end`."""
    if KIND == LOGARITHM:
        return -(epsilon + root(epsilon * (epsilon + 4))) / 2, root(epsilon)
    elif KIND == SCALE:
        return -root(epsilon), root(2 * epsilon)
    else:
        return -2 * root(epsilon), 2 * epsilon + 2 * root(epsilon * (epsilon + 1))


@triton.jit
def _end(e0, e, q0, q1, q2, epsilon, cut, KIND: tl.constexpr, U: tl.constexpr):
    """A t <= 1 at which one term of h alone is epsilon, see `GaussianKL._end`: not before the root."""
    low, high = limits(epsilon, KIND)  # type: ignore[misc]
    if KIND == LOGARITHM:
        high = tl.minimum(high, cut)
    else:
        low = tl.maximum(tl.maximum(low, cut), -1 + 16 * U)
    ends = (tl.where(e > 0, high[:, None], low[:, None]) - e0) / tl.where(e == 0, 1.0, e)
    first = tl.min(tl.where((e == 0) | ~(ends < 1), 1.0, ends), axis=1)
    shift = (root(q1 * q1 + q2 * (2 * epsilon - q0)) - q1) / tl.where(q2 > 0, q2, 1.0)
    return tl.minimum(first, tl.where((q2 > 0) & (shift < 1), shift, 1.0))


@triton.jit
def crossing(z0, e0, z1, e1, epsilon, cut, KIND: tl.constexpr, STATES: tl.constexpr, U: tl.constexpr):
    """About the t at which h is 0 on the line from the anchor, at 0, to the point, at 1, which is outside."""
    z, e = z1 - z0, e1 - e0
    q0, q1 = tl.sum(z0 * z0 + 0 * z, axis=1) / STATES, tl.sum(z0 * z, axis=1) / STATES
    q2 = tl.sum(z * z, axis=1) / STATES
    end = _end(e0, e, q0, q1, q2, epsilon, cut, KIND, U)
    t = end
    for _ in range(NEWTON):
        phi, slope = curve(e0 + t[:, None] * e, cut[:, None], KIND, False)
        value = (q0 + t * (2 * q1 + t * q2) + tl.sum(phi, axis=1)) / 2 - epsilon
        steep = q1 + t * q2 + tl.sum(slope * e, axis=1) / 2
        t = tl.minimum(tl.maximum(t - value / tl.where(steep > 0, steep, float("inf")), 0.0), end)
    return t

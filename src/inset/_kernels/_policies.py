"""The mathematics of `gaussians.py`: h of a diagonal `GaussianKL`, what rounding adds to it, its root on a line."""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import divided, root
from ._rows import moved, number, row

VARIANCE, SCALE, LOGARITHM = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
"""How the covariance is written: variances, standard deviations, or their logarithms."""
FARTHEST = tl.constexpr(1e8)
"""Standard deviations up to which squares do not overflow."""
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
def _of_logarithm(s):
    """e^s - 1 - s, without cancellation."""
    series = 1 / 3628800.0
    series = tl.fma(series, s, 1 / 362880.0)
    series = tl.fma(series, s, 1 / 40320.0)
    series = tl.fma(series, s, 1 / 5040.0)
    series = tl.fma(series, s, 1 / 720.0)
    series = tl.fma(series, s, 1 / 120.0)
    series = tl.fma(series, s, 1 / 24.0)
    series = tl.fma(series, s, 1 / 6.0)
    series = tl.fma(series, s, 0.5)
    return tl.where(tl.abs(s) < 1, series * s * s, _exp(s) - 1 - s)


@triton.jit
def _of_variance(e):
    """e - log(1 + e), without cancellation: log(1 + e) = 2 artanh w with w = e / (2 + e)."""
    w = divided(e, 2 + e)
    square = w * w
    series = 1 / 17.0
    series = tl.fma(series, square, 1 / 15.0)
    series = tl.fma(series, square, 1 / 13.0)
    series = tl.fma(series, square, 1 / 11.0)
    series = tl.fma(series, square, 1 / 9.0)
    series = tl.fma(series, square, 1 / 7.0)
    series = tl.fma(series, square, 1 / 5.0)
    series = tl.fma(series, square, 1 / 3.0)
    return tl.where(tl.abs(e) < 0.5, w * (e - 2 * square * series), e - tl.log(1 + e))


@triton.jit
def _curve(e, cut, KIND: tl.constexpr):
    """phi and its slope at each relative change; beyond `cut` along the tangent."""
    if KIND == LOGARITHM:
        inner = tl.minimum(e, cut)
        value = _of_logarithm(2 * inner)
        slope = 2 * (value + 2 * inner)
    else:
        inner = tl.maximum(e, cut)
        value = _of_variance(inner)
        slope = divided(inner, 1 + inner)
        if KIND == SCALE:
            value = inner * inner + 2 * value
            slope = 2 * slope * (2 + inner)
    return value + slope * (e - inner), slope


@triton.jit
def tangent_point(epsilon, KIND: tl.constexpr):
    """Where h is continued along its tangent; see `GaussianKL._cut`."""
    if KIND == LOGARITHM:
        return tl.maximum(tl.log(4 * epsilon + 1.4) / 2, 3.0)
    elif KIND == SCALE:
        return tl.minimum(tl.exp(-0.5 - epsilon), 0.03) - 1
    else:
        return tl.minimum(tl.exp(-1 - 2 * epsilon), 1e-3) - 1


@triton.jit
def _repeated(v, n, N, ROW: tl.constexpr, D: tl.constexpr, ALL: tl.constexpr, WIDE: tl.constexpr, other):
    """Vectors of D numbers, one after another, as often as ALL asks for."""
    e = tl.arange(0, WIDE)
    if ROW == 0:
        return tl.load(v + e % D, e < ALL, other=other)[None, :]
    else:
        there = (n < N)[:, None] & (e < ALL)[None, :]
        return tl.load(v + n[:, None] * ROW + (e % D)[None, :], there, other=other)


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
    KIND: tl.constexpr, D: tl.constexpr, ALL: tl.constexpr, ROWM: tl.constexpr, ROWS: tl.constexpr, ROWQ: tl.constexpr,
    ROWC: tl.constexpr, ROWE: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """The anchor, the old policy, 1 / std for each mean, 1 / the scale to which changes are relative, and epsilon."""
    F: tl.constexpr = tl.float32  # type: ignore[assignment]
    other: tl.constexpr = 0.0 if KIND == LOGARITHM else 1.0  # type: ignore[assignment]
    mean, spread = row(m0, n, N, WIDE, ALL, ROWM, F), row(s0, n, N, WIDTH, D, ROWS, F)
    center, old = row(mq, n, N, WIDE, ALL, ROWQ, F), row(sq, n, N, WIDTH, D, ROWC, F, other)
    inverse = _deviation(old if ALL == D else _repeated(sq, n, N, ROWC, D, ALL, WIDE, other), KIND)
    scale = 1.0 + 0 * old if KIND == LOGARITHM else divided(1.0 + 0 * old, old)
    if WIDTH > D:
        spread = tl.where((tl.arange(0, WIDTH) < D)[None, :], spread, old)  # what is not there has not changed
    return mean, spread, center, old, inverse, scale, number(epsilon, n, N, ROWE, F)


@triton.jit
def _blur(e, off, KIND: tl.constexpr, K: tl.constexpr):
    """What rounding may add to phi(e), if e is off by as much; see `GaussianKL._spread_rounding`."""
    size = tl.abs(e)
    if KIND == LOGARITHM:
        growth = tl.exp(2 * tl.minimum(tl.maximum(e + off, -3.0), 3.0)) * 1.001 + 1
        return growth * (K * size + 2 * (size + off) * off)
    else:
        left = 1 / tl.maximum(1 + e - off, 1e-3) * 1.001
        square = 2 + size + off if KIND == SCALE else 0.0
        return K * size * (2 + square + left) + (size + off) * left * (1 + 2 * square) * off


@triton.jit
def _off(spread, old, scale, size, KIND: tl.constexpr, U: tl.constexpr):
    """How far a relative change is off, if the number it is made of is off by `size`."""
    return size + 2 * U * (tl.abs(spread) + tl.abs(old)) if KIND == LOGARITHM else size * scale


@triton.jit
def changes(mean, spread, center, old, inverse, scale, KIND: tl.constexpr):
    """z and e."""
    return (mean - center) * inverse, spread - old if KIND == LOGARITHM else (spread - old) * scale


@triton.jit
def evaluated(z, e, epsilon, cut, KIND: tl.constexpr, STATES: tl.constexpr):
    """h, and the slopes of phi."""
    phi, slope = _curve(e, cut[:, None], KIND)  # type: ignore[misc]
    return (tl.sum(z * z, axis=1) / STATES + tl.sum(phi, axis=1)) / 2 - epsilon, slope


@triton.jit
def height(mean, spread, center, old, inverse, scale, epsilon, cut, KIND: tl.constexpr, STATES: tl.constexpr):
    """h alone."""
    z, e = changes(mean, spread, center, old, inverse, scale, KIND)  # type: ignore[misc]
    value, _slope = evaluated(z, e, epsilon, cut, KIND, STATES)
    return value


@triton.jit
def bound(
    mean, spread, mean0, spread0, center, old, inverse, scale, epsilon,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, TIMES: tl.constexpr, U: tl.constexpr,
    NARROW: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """What the rounding of a point, and TIMES that of h there, may add to h."""
    z, e = changes(mean, spread, center, old, inverse, scale, KIND)  # type: ignore[misc]
    slip = 4 * U * (tl.abs(mean) + tl.abs(mean0)) + 1.01 * NARROW * (tl.abs(mean) + SMALLEST)
    slid = 4 * U * (tl.abs(spread) + tl.abs(spread0)) + 1.01 * NARROW * (tl.abs(spread) + SMALLEST)
    shift = TIMES * U * (D * STATES + 12) * z * z + tl.abs(z) * slip * inverse
    spare = _blur(e, _off(spread, old, scale, slid, KIND, TIMES * U), KIND, TIMES * U * (D + 12))
    if mean.shape[1] > D * STATES:
        shift = tl.where((tl.arange(0, mean.shape[1]) < D * STATES)[None, :], shift, 0.0)
    if spread.shape[1] > D:
        spare = tl.where((tl.arange(0, spread.shape[1]) < D)[None, :], spare, 0.0)
    return tl.sum(shift, axis=1) / STATES + tl.sum(spare, axis=1) + 2 * TIMES * U * epsilon


@triton.jit
def above(
    z, e, spread, old, scale, epsilon, cut,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, U: tl.constexpr,
):  # fmt: skip
    """An upper bound of h, given what was computed."""
    value, _slope = evaluated(z, e, epsilon, cut, KIND, STATES)  # type: ignore[misc]
    spare = _blur(e, _off(spread, old, scale, 0.0 * spread, KIND, U), KIND, U * (D + 24))
    shift = U * (D * STATES + 24) * z * z
    return value + tl.sum(shift, axis=1) / STATES + tl.sum(spare, axis=1) + 2 * U * epsilon


@triton.jit
def within(mean, spread, mean0, spread0, center, old, inverse, scale, KIND: tl.constexpr, HUGE: tl.constexpr):
    """The point pulled back to where h is finite, by what factor, and its z and e."""
    z, e = changes(mean, spread, center, old, inverse, scale, KIND)  # type: ignore[misc]
    t = tl.full((mean.shape[0],), 1.0, tl.float32)
    far = tl.maximum(tl.max(tl.abs(z), axis=1), tl.max(tl.abs(e), axis=1))
    size = tl.maximum(tl.max(tl.abs(mean), axis=1), tl.max(tl.abs(spread), axis=1))
    if ~(tl.max(tl.maximum(far / FARTHEST, size / HUGE), axis=0) <= 1):
        t = tl.where(size > HUGE, HUGE / tl.where(size > HUGE, size, HUGE), 1.0)
        mean, spread = moved(mean0, mean, t), moved(spread0, spread, t)
        z, e = changes(mean, spread, center, old, inverse, scale, KIND)
        far = tl.max(tl.abs(z), axis=1)
        if KIND == SCALE:
            far = tl.maximum(far, tl.max(tl.abs(e), axis=1))
        back = tl.where(far > FARTHEST, FARTHEST / tl.where(far > FARTHEST, far, FARTHEST), 1.0)
        mean, spread, t = moved(mean0, mean, back), moved(spread0, spread, back), t * back
        z, e = changes(mean, spread, center, old, inverse, scale, KIND)
    return mean, spread, t, z, e


@triton.jit
def _end(e0, e, q0, q1, q2, epsilon, cut, KIND: tl.constexpr, U: tl.constexpr):
    """A t <= 1 at which one term of h alone is epsilon, see `GaussianKL._end`: not before the root."""
    wide = epsilon[:, None]
    if KIND == LOGARITHM:
        low, high = -(wide + root(wide * (wide + 4))) / 2, tl.minimum(root(wide), cut[:, None])
    else:
        high = root(2 * wide) if KIND == SCALE else 2 * wide + 2 * root(wide * (wide + 1))
        low = tl.maximum(tl.maximum(-root(wide) * (1 if KIND == SCALE else 2), cut[:, None]), -1 + 16 * U)
    ends = tl.where(e > 0, high - e0, low - e0) / tl.where(e == 0, 1.0, e)
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
        phi, slope = _curve(e0 + t[:, None] * e, cut[:, None], KIND)
        value = (q0 + t * (2 * q1 + t * q2) + tl.sum(phi, axis=1)) / 2 - epsilon
        steep = q1 + t * q2 + tl.sum(slope * e, axis=1) / 2
        t = tl.minimum(tl.maximum(t - value / tl.where(steep > 0, steep, float("inf")), 0.0), end)
    return t

"""What rounding may add to h of a diagonal `GaussianKL`, for the margin of `gaussians.py`; see `_strict.py`."""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import root
from ._policies import LOGARITHM, SCALE, changes, curve, limits, small


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
def above(
    z, e, spread, old, scale, epsilon, cut, far,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, U: tl.constexpr, SERIES: tl.constexpr,
):  # fmt: skip
    """An upper bound of h, given what was computed; `far` is the largest old logarithm.

    For small changes `_blur`, which is about a term that is evaluated in any way, is at most c K |e| with c = 4.01 for
    variances, 6.52 for scales, and K (2 |e| + 1.5 phi) for logarithms, whose differences may be off as well. The sum of
    |e| is at most the root of D times that of e^2, and phi is at least e^2 / 3, e^2 and e^2. The sum of terms that are
    not negative is off by D roundings of itself.
    """
    phi, _slope = curve(e, cut[:, None], KIND, SERIES)  # type: ignore[misc]
    square, bend = tl.sum(z * z, axis=1) / STATES, tl.sum(phi, axis=1)
    K: tl.constexpr = 24 * U  # of one term
    summing = U * (D + 60) * bend
    if KIND == LOGARITHM:
        off = 2 * U * (2 * far + 1)
        spare = 1.5 * K * bend + (2.01 * K + 17 * off) * tl.sqrt(1.01 * D * bend) + 17 * D * off * off
    elif KIND == SCALE:
        spare = 6.6 * K * tl.sqrt(1.01 * D * bend)
    else:
        spare = 4.1 * K * tl.sqrt(3.01 * D * bend)
    if not SERIES:
        large = tl.sum(_blur(e, _off(spread, old, scale, 0.0 * spread, KIND, U), KIND, K), axis=1)
        spare = tl.where(small(tl.max(tl.abs(e), axis=1), KIND), spare, large)
    return (square + bend) / 2 - epsilon + U * (D * STATES + 24) * square + spare + summing + 2 * U * epsilon


@triton.jit
def bound(
    mean, spread, center, old, inverse, scale, epsilon,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
    SMALLEST: tl.constexpr,
):  # fmt: skip
    """What the rounding of an anchor, and four times that of h there, may add to h."""
    z, e = changes(mean, spread, center, old, inverse, scale, KIND)  # type: ignore[misc]
    slip = (8 * U * tl.abs(mean) + 1.01 * NARROW * (tl.abs(mean) + SMALLEST)) * inverse
    slid = 8 * U * tl.abs(spread) + 1.01 * NARROW * (tl.abs(spread) + SMALLEST)
    shift = 4 * U * (D * STATES + 12) * z * z + (tl.abs(z) + slip) * slip
    spare = _blur(e, _off(spread, old, scale, slid, KIND, 4 * U), KIND, 4 * U * (D + 12))
    shift, spare = _there(shift, D * STATES), _there(spare, D)
    return tl.sum(shift, axis=1) / STATES + tl.sum(spare, axis=1) + 8 * U * epsilon


@triton.jit
def _there(v, D: tl.constexpr):
    """v, 0 beyond D."""
    if v.shape[1] > D:
        return tl.where((tl.arange(0, v.shape[1]) < D)[None, :], v, 0.0)
    else:
        return v


@triton.jit
def everywhere(
    mean0, spread0, center, old, inverse, scale, epsilon, fixed,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
    SMALLEST: tl.constexpr,
):  # fmt: skip
    """What the rounding of a point of the set, and twice that of h there, may add to h; see `_eager/gaussian_line.py`.

    All of |z|^2 + sum phi(e) <= 2 epsilon there, but for what is `fixed`: that bounds |z|, |e| and each of its numbers.
    Sums of products are at most the product of the lengths.
    """
    most = 1.01 * epsilon + fixed
    low, high = limits(most, KIND)  # type: ignore[misc]
    Z: tl.constexpr = 4 * U + 1.01 * NARROW
    v = _there((Z * tl.abs(center) + 4 * U * tl.abs(mean0) + 1.01 * NARROW * SMALLEST) * inverse, D * STATES)
    w = Z * tl.abs(old) + 4 * U * tl.abs(spread0) + 1.01 * NARROW * SMALLEST
    w = _there(w + 8 * U * tl.abs(old) if KIND == LOGARITHM else w * scale, D)
    long = root(2 * most)
    slip = root(tl.sum(v * v, axis=1) / STATES) + Z * long
    wide = root(tl.sum(w * w, axis=1))
    K: tl.constexpr = 24 * U * D**0.5  # of one term, as above, times the root
    if KIND == LOGARITHM:
        length = root(most * (1 - low))
        off = wide + (Z + 4 * U) * length
        spare = (tl.exp(2 * tl.minimum(high + off, 3.0)) * 1.001 + 1) * (K * length + 2 * (length + off) * off)
    else:
        length = root(2 * most) if KIND == SCALE else root(4 * most * (1 + high))
        off = wide + Z * length
        least = tl.exp(-0.5 - most) if KIND == SCALE else tl.exp(-1 - 2 * most)
        left = 1.001 / tl.maximum(tl.maximum(1 + low, least) - off, 1e-3)
        square = 2 + length + off if KIND == SCALE else 0.0 * off
        spare = K * length * (2 + square + left) + (length + off) * left * (1 + 2 * square) * off
    summing = 2 * U * (D * STATES + D + 60) * 2 * most  # of both sums, each at most 2 epsilon
    return 1.01 * (summing + (long + slip) * slip + spare + 4 * U * epsilon)

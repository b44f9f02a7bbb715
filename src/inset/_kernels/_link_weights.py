"""The weight of `chord` for `Strings`, and the link that sets it.

The margin of `strict` is that of `_strict.py`; the displacement of a body is bounded by the largest in the sample.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import between, divided, quotient, root
from ._bodies import apart, farthest, ordered, read, wide
from ._tiles import each, greatest


@triton.jit
def _ends(x, row, i, j, D: tl.constexpr, F: tl.constexpr, PAIRED: tl.constexpr):
    """p_i and p_j of links `(K, 1, RUN)` in the samples at `row`, `(1, B, 1)`."""
    if PAIRED and D % 2 == 0:
        first, second = _read(x.to(tl.pointer_type(tl.int32), bitcast=True), row // 2, i, j, D // 2)  # type: ignore[misc]
        return apart(first, x, F), apart(second, x, F)
    else:
        first, second = _read(x, row, i, j, D)  # type: ignore[misc]
        return first.to(F), second.to(F)


@triton.jit
def _read(x, row, i, j, D: tl.constexpr):
    """Both ends of links, of D numbers each."""
    SIDE: tl.constexpr = triton.next_power_of_2(D)
    c = tl.arange(0, SIDE)[None, None, None, :]
    at = row[:, :, :, None] + (i[:, :, :, None] * D + c)
    to = row[:, :, :, None] + (j[:, :, :, None] * D + c)
    there = at * 0 + c < D
    return read(x, at, there, D), read(x, to, there, D)


@triton.jit
def _square(x, row, i, j, D: tl.constexpr, F: tl.constexpr, PAIRED: tl.constexpr):
    """|p_i - p_j|^2; it may overflow."""
    first, second = _ends(x, row, i, j, D, F, PAIRED)  # type: ignore[misc]
    return tl.sum((first - second) * (first - second), axis=3)


@triton.jit
def _first(chosen):
    """The first of the links `(K, B, RUN)` that is chosen in each sample: numbers along K are known to a compiler."""
    K: tl.constexpr = chosen.shape[0]
    RUN: tl.constexpr = chosen.shape[2]
    k = tl.min(tl.where(chosen, tl.arange(0, K)[:, None, None], K), axis=0)
    return tl.min(k * RUN + tl.arange(0, RUN)[None, :], axis=1)


@triton.jit
def _top(ratio, link, CHOOSE: tl.constexpr):
    """The greatest of numbers that are not negative, `(K, B, RUN)`, NaN if one is, and the first link that has it.

    If somebody will CHOOSE that link, lanes agree on both at once.
    """
    order = ordered(ratio)
    mine = tl.max(order, axis=0)
    if CHOOSE and ratio.dtype == tl.float32 and ratio.shape[2] < 32:  # a whole warp has one instruction for each
        LAST: tl.constexpr = 0x7FFFFFFF  # type: ignore[assignment]
        own = tl.min(tl.where(order == mine[None, :, :], link, LAST), axis=0)
        found = tl.max((mine.to(tl.uint64) << 32) | (LAST - own).to(tl.uint64), axis=1)
        return (found >> 32).to(tl.uint32).to(tl.float32, bitcast=True), LAST - found.to(tl.int32)
    else:
        top = tl.max(mine, axis=1)
        return top.to(ratio.dtype, bitcast=True), _first(order == each(top))


@triton.jit
def _length(span):
    """The lengths of vectors, scaled by their largest coordinate, so that no square overflows."""
    size = tl.max(tl.abs(span), axis=3)
    size = tl.where(size > 0, size, 1.0)
    part = divided(span, size[:, :, :, None] + 0 * span)
    return tl.where(size < float("inf"), size, float("nan")) * root(tl.sum(part * part, axis=3))


@triton.jit
def _lengths(x, row, x0, row0, i, j, t, TOGETHER: tl.constexpr, D: tl.constexpr, F: tl.constexpr):
    """|p_i - p_j| at the point, pulled back by t, and at the anchor, where with all bodies TOGETHER it is 0."""
    first, second = _ends(x, row, i, j, D, F, False)  # type: ignore[misc]
    if TOGETHER:
        middle, _middle = _ends(x0, row0, 0 * i, 0 * i, D, F, False)  # type: ignore[misc]
        first0, second0 = middle, middle
    else:
        first0, second0 = _ends(x0, row0, i, j, D, F, False)  # type: ignore[misc]
    wide = each(t)[:, :, :, None]
    return _length(between(first0, first, wide) - between(second0, second, wide)), _length(first0 - second0)


@triton.jit
def _worst(
    long, long0, most, inverse, link,
    M: tl.constexpr, TOGETHER: tl.constexpr, STRICT: tl.constexpr, D: tl.constexpr, U: tl.constexpr,
):  # fmt: skip
    """The greatest of h_l(x) / -h_l(x0), 0 if no string is too long; that link; and whether all strings are sound."""
    h, h0 = long - most, long0 - most
    if STRICT:
        h += U * (D / 2 + 6) * (long + most)
    over = (link < M) & (h > 0)
    ratio = tl.where(over, h * inverse if TOGETHER else h / tl.where(over, -h0, 1.0), 0.0)
    s = greatest(ratio)
    return s, _first(ratio == each(s)), greatest(tl.where((link < M) & ((h != h) | ~(h0 < 0)), 1, 0)) == 0


@triton.jit
def _slipped(
    far0, ENDS: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr, NORMAL: tl.constexpr
):
    """By how much both ends of a string may be off: at the anchor; at y for all points, and per eta (|x| + |x0|).

    Every coordinate of both may be off by as much as the largest; ENDS = 2 sqrt(d).
    """
    start = ENDS * (8 * U * (far0 + NORMAL) + 1.01 * NARROW * (far0 + SMALLEST))
    end = ENDS * (4 * U * (2 * far0 + NORMAL) + 1.01 * NARROW * (far0 + SMALLEST))
    return start, end, ENDS * (4 * U + 1.01 * NARROW)


@triton.jit
def _shrunk(
    s, far, far0, least, most, long0, link,
    M: tl.constexpr, TOGETHER: tl.constexpr, D: tl.constexpr, ENDS: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
    SMALLEST: tl.constexpr, NORMAL: tl.constexpr,
):  # fmt: skip
    """1 / (1 + s) times the factor depth / (depth + error) by which it shrinks; whether the anchor is certainly inside.

    A string at y is not longer than it may be, but for what that covers. With all bodies TOGETHER the shortest string
    decides; as the error is E0 + E1 / (1 + s), one division does for both.
    """
    K: tl.constexpr = U * (D / 2 + 4)
    start, end, steep = _slipped(far0, ENDS, U, NARROW, SMALLEST, NORMAL)  # type: ignore[misc]
    if TOGETHER:
        fixed = 4 * K * least + start
        depth = least - 2 * fixed
        depth_and_error = depth + fixed + (4.04 * K + 2 * U) * least + end
        return quotient(depth, tl.fma(depth_and_error, 1 + s, steep * (far + far0))), depth > 0
    else:
        eta = quotient(tl.full(s.shape, 1.0, s.dtype), 1 + s)
        fixed = 4 * K * (long0 + most) + each(start)
        error = fixed + 4.04 * K * most + each(end + steep * eta * (far + far0))
        depth = most - long0 - 2 * fixed
        room = greatest(tl.where(link < M, -depth / error, -float("inf")))
        return eta * (1 - 1 / (1 - room)), greatest(tl.where((link < M) & ~(depth > 0), 1, 0)) == 0


@triton.jit
def weighed(
    x, row, x0, row0, point, anchor, far0, alive, link, i, j, whole, most, inverse, least,
    CHOOSE: tl.constexpr, M: tl.constexpr, TOGETHER: tl.constexpr, STRICT: tl.constexpr, D: tl.constexpr,
    ENDS: tl.constexpr, PAIRED: tl.constexpr, F: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
    SMALLEST: tl.constexpr, NORMAL: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr, EXTREME: tl.constexpr,
):  # fmt: skip
    """eta, the link that sets it, or -1, the point, pulled back before if it is huge, and which samples are plain.

    Without EXTREME the others are wrong.
    """
    FAST: tl.constexpr = SHIFT**0.5 / 64  # coordinates below it have squares
    K: tl.constexpr = U * (D / 2 + 10) if STRICT else 0.0  # type: ignore[assignment]
    far, square = farthest(point), _square(x, row, i, j, D, F, PAIRED)
    t = tl.full(far.shape, 1.0, F)
    if TOGETHER:
        long0 = tl.zeros_like(square)
        top, which = _top(square * (inverse * inverse), link, CHOOSE)  # type: ignore[misc]
        s = (tl.sqrt(top) if STRICT else root(top)) * (1 + K) - (1 - K)  # h_l / most_l, with the lengths rounded up
        sound = top < float("inf")
    else:
        long0 = root(_square(x0, row0, i, j, D, F, False))
        s, which, sound = _worst(  # type: ignore[misc]
            root(square), long0, most, inverse, link, M, TOGETHER, STRICT, D, U
        )
    plain = (far < FAST) & (far0 < FAST) & (least > 1 / FAST) & (s < float("inf"))
    if EXTREME:
        t = tl.where(far > HUGE, HUGE / tl.where(far > HUGE, far, HUGE), 1.0)
        long, long0 = _lengths(x, row, x0, row0, i, j, t, TOGETHER, D, F)  # type: ignore[misc]
        other, worst, good = _worst(  # type: ignore[misc]
            long, long0, most, inverse, link, M, TOGETHER, STRICT, D, U
        )
        s, which, sound = tl.where(plain, s, other), tl.where(plain, which, worst), tl.where(plain, sound, good)
        point = tl.where(wide(t) < 1, tl.fma(wide(t), point, wide(1 - t) * anchor), point)
    outside = s > 0
    over = tl.where(outside, s, 0.0)
    if STRICT:
        eta, certain = _shrunk(
            over, tl.minimum(far, HUGE), far0, least, most, long0, link, M, TOGETHER, D, ENDS, U, NARROW, SMALLEST,
            NORMAL,
        )  # fmt: skip
        eta = tl.where(certain, tl.where(outside | (t < 1), eta, 1.0), float("nan"))
    else:
        eta = quotient(tl.full(far.shape, 1.0, F), 1 + over)
    eta = tl.where(eta < NORMAL, 0.0, eta)  # below that a weight is not exact
    return tl.where(whole & sound, eta, float("nan")), tl.where(outside, which, -1), point, plain | ~alive

"""|(x - c) s| <= r: `Ball` with p = 2, and the diagonal `Ellipsoid`; y = x0 + eta (x - x0) and its derivative.

With a = h(x0) and b = h(x), eta = a / (a - b); <g, x - x0> = s for an incoming g:

    dx = eta g + s a / (a - b)^2 dh(x),    dx0 = (1 - eta) g - s b / (a - b)^2 dh(x0).

The margin of `strict` is that of `_strict.py`, with |y| <= |c| + |y - c|, so that it is the same for all samples.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import quotient, reciprocal, root
from ._rows import number
from ._tiles import each, moved, near, norm, read, row, summed, tile, write


@triton.jit
def _fields(
    x0, p, q, r, k, N,
    D: tl.constexpr, ROW0: tl.constexpr, ROWP: tl.constexpr, ROWQ: tl.constexpr, ROWR: tl.constexpr,
    SCALED: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr, F: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    """The anchor, c, s, r and |(x0 - c) s|."""
    anchor, center = row(x0, k, N, B, WIDTH, D, ROW0, SPAN, F), row(p, k, N, B, WIDTH, D, ROWP, SPAN, F)
    scale = row(q, k, N, B, WIDTH, D, ROWQ, SPAN, F) if SCALED else 1.0
    return anchor, center, scale, number(r, k * B + tl.arange(0, B), N, ROWR, F), norm((anchor - center) * scale, SHIFT)


@triton.jit
def _margin(
    anchor, center, scale, radius, long0,
    K: tl.constexpr, SCALED: tl.constexpr, ROOT: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
    SMALLEST: tl.constexpr, NORMAL: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """The factor by which eta shrinks, and whether the anchor is certainly inside."""
    ones = norm(scale, SHIFT) if SCALED else ROOT
    middle, size = norm(center * scale, SHIFT), norm(anchor * scale, SHIFT) + NORMAL * ones
    tiny = SMALLEST * ones
    fixed = 4 * K * (long0 + radius) + 8 * U * size + 1.01 * NARROW * (size + tiny)
    most = middle + 1.01 * radius  # |y s|
    error = fixed + 2 * K * 2.02 * radius + 4 * U * (most + size) + 1.01 * NARROW * (most + tiny)
    depth = radius - long0
    return 1 - 1 / (1 + (depth - 2 * fixed) / error), depth > 2 * fixed


@triton.jit
def _length(point, anchor, center, scale, radius, HUGE: tl.constexpr, SHIFT: tl.constexpr):
    """(x - c) s, its length, the point and by what factor it was pulled back; the extremes are looked at again."""
    v, t = (point - center) * scale, tl.full((point.shape[1],), 1.0, point.dtype)
    square = summed(v * v)
    long = root(square)
    SHORT: tl.constexpr = 1024 / SHIFT**0.5
    plain = (square < SHIFT) & ((square > 1 / SHIFT) | (radius > SHORT))  # what is that short is inside
    if tl.min(tl.where(plain, 1, 0), axis=0) == 0:
        pulled, back = near(point, anchor, HUGE)
        point, t = tl.where(each(plain), point, pulled), tl.where(plain, t, back)
        v = (point - center) * scale
        long = norm(v, SHIFT)
    return v, long, point, t


@triton.jit
def _weighed(long0, long, radius, t, kept, sound, K: tl.constexpr, STRICT: tl.constexpr, NORMAL: tl.constexpr):
    """a, b and eta."""
    a, b = long0 - radius, long - radius
    if STRICT:
        b += K * (long + radius)
    outside = b > 0
    b = tl.where(outside, b, 0.0)
    eta = quotient(tl.zeros_like(b) - a, b - a)
    if STRICT:
        eta = tl.where(outside | (t < 1), eta * kept, 1.0)
        eta = tl.where(eta < NORMAL, 0.0, eta)  # below that a weight is not exact
        eta = tl.where(sound & (long == long), eta, float("nan"))
    else:
        eta = tl.where((a < 0) & (long == long), tl.where(outside, eta, 1.0), float("nan"))
    return a, b, eta


@triton.jit
def forward(
    x, x0, p, q, r, y, N,
    D: tl.constexpr, ROW0: tl.constexpr, ROWP: tl.constexpr, ROWQ: tl.constexpr, ROWR: tl.constexpr,
    SHARED: tl.constexpr, SCALED: tl.constexpr, STRICT: tl.constexpr, ROOT: tl.constexpr, B: tl.constexpr,
    STAGES: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr, F: tl.constexpr, U: tl.constexpr,
    NARROW: tl.constexpr, SMALLEST: tl.constexpr, NORMAL: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """y; p is c, q is s, and ROOT is sqrt(D)."""
    K: tl.constexpr = U * (D / 2 + (6 if SCALED else 4))
    if SHARED:
        anchor, center, scale, radius, long0 = _fields(  # type: ignore[misc]
            x0, p, q, r, 0, N, D, ROW0, ROWP, ROWQ, ROWR, SCALED, B, WIDTH, SPAN, F, SHIFT
        )
        kept, sound = _margin(anchor, center, scale, radius, long0, K, SCALED, ROOT, U, NARROW, SMALLEST, NORMAL, SHIFT)
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        _n, _alive, at, mask = tile(k, N, B, WIDTH, D, SPAN)
        if not SHARED:
            anchor, center, scale, radius, long0 = _fields(
                x0, p, q, r, k, N, D, ROW0, ROWP, ROWQ, ROWR, SCALED, B, WIDTH, SPAN, F, SHIFT
            )
            kept, sound = _margin(
                anchor, center, scale, radius, long0, K, SCALED, ROOT, U, NARROW, SMALLEST, NORMAL, SHIFT
            )
        point = read(x, at, mask, B, F)
        _v, long, point, t = _length(point, anchor, center, scale, radius, HUGE, SHIFT)  # type: ignore[misc]
        _a, _b, eta = _weighed(long0, long, radius, t, kept, sound, K, STRICT, NORMAL)  # type: ignore[misc]
        write(y, at, moved(anchor, point, eta), mask)


@triton.jit
def backward(
    g, x, x0, p, q, r, dx, dx0, N,
    D: tl.constexpr, ROW0: tl.constexpr, ROWP: tl.constexpr, ROWQ: tl.constexpr, ROWR: tl.constexpr,
    SHARED: tl.constexpr, SCALED: tl.constexpr, STRICT: tl.constexpr, ROOT: tl.constexpr, ANCHORED: tl.constexpr,
    B: tl.constexpr, STAGES: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr, F: tl.constexpr, U: tl.constexpr,
    NARROW: tl.constexpr, SMALLEST: tl.constexpr, NORMAL: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """The derivatives by x and, if ANCHORED, by the anchor."""
    K: tl.constexpr = U * (D / 2 + (6 if SCALED else 4))
    if SHARED:
        anchor, center, scale, radius, long0 = _fields(  # type: ignore[misc]
            x0, p, q, r, 0, N, D, ROW0, ROWP, ROWQ, ROWR, SCALED, B, WIDTH, SPAN, F, SHIFT
        )
        kept, sound = _margin(anchor, center, scale, radius, long0, K, SCALED, ROOT, U, NARROW, SMALLEST, NORMAL, SHIFT)
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        _n, _alive, at, mask = tile(k, N, B, WIDTH, D, SPAN)
        if not SHARED:
            anchor, center, scale, radius, long0 = _fields(
                x0, p, q, r, k, N, D, ROW0, ROWP, ROWQ, ROWR, SCALED, B, WIDTH, SPAN, F, SHIFT
            )
            kept, sound = _margin(
                anchor, center, scale, radius, long0, K, SCALED, ROOT, U, NARROW, SMALLEST, NORMAL, SHIFT
            )
        point, incoming = read(x, at, mask, B, F), read(g, at, mask, B, F)
        v, long, point, t = _length(point, anchor, center, scale, radius, HUGE, SHIFT)  # type: ignore[misc]
        a, b, eta = _weighed(long0, long, radius, t, kept, sound, K, STRICT, NORMAL)  # type: ignore[misc]
        # small times large, one after another: (b - a)^2 may overflow, its inverse vanish
        part = reciprocal(b - a)
        over = tl.where(b > 0, summed(incoming * (point - anchor)) * part, 0.0)
        unit = v * each(reciprocal(tl.where(long > 0, long, 1.0))) * scale
        pull = tl.where(b > 0, over * (a * part), 0.0)  # also where any radius will do
        write(dx, at, each(t * eta) * incoming + each(t * pull) * unit, mask)
        if ANCHORED:
            push = -over * (b * part) / tl.where(long0 > 0, long0, 1.0)
            outer = each(1 - t * eta) * incoming + each((1 - t) * pull) * unit
            write(dx0, at, outer + each(push) * ((anchor - center) * scale * scale), mask)

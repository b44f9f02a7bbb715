"""Bounds on coordinates: `Box`, lower <= x <= upper, and `Simplex`, x >= 0 on the plane sum x = total.

The gauge m of x - x0 is its greatest coordinate in units of the depth of the anchor on that side; eta = 1 / max(1, m).
With j the coordinate that sets it, k = 1 / depth with the sign of the side, and s = <g, x - x0> for an incoming g:

    dx = eta g - s k / m^2 e_j,    dx0 = (1 - eta) g - s k (m - 1) / m^2 e_j,

followed on the simplex by the derivative of the way onto the plane. The margin of `strict` is that of `_strict.py`:
as rounding grows more slowly than the distance from a bound, it is enough to know it at the bound, for all samples.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import quotient, reciprocal
from ._rows import number
from ._tiles import each, first, greatest, moved, near, places, read, row, summed, tile, write


@triton.jit
def _onto(x, total, D: tl.constexpr, EPS: tl.constexpr):
    """x moved along the diagonal onto sum x = total, x itself if it is there up to rounding; and the sum of its |x|."""
    off, size = summed(x) - total, summed(tl.abs(x))
    there = tl.abs(off) <= 2 * D * EPS * (size + tl.abs(total))
    once = _lowered(x, tl.where(there, 0.0, off), D)
    return _lowered(once, tl.where(there, 0.0, summed(once) - total), D), size


@triton.jit
def _lowered(x, off, D: tl.constexpr):
    """x less its share of off in each coordinate."""
    share = each(off * (1 / D))
    if x.shape[0] * x.shape[2] == D:
        return x - share
    else:
        return x - tl.where(places(x.shape[0] * x.shape[2], x.shape[2]) < D, share, 0.0)


@triton.jit
def _finite(b):
    """|b|, 0 where it is infinite."""
    return tl.where(tl.abs(b) < float("inf"), tl.abs(b), 0.0)


@triton.jit
def _sides(
    p, q, k, N,
    PLANE: tl.constexpr, D: tl.constexpr, ROWP: tl.constexpr, ROWQ: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr,
    SPAN: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """The bounds; coordinates beyond D have none."""
    if PLANE:
        e = places(WIDTH, SPAN) + each(tl.zeros((B,), tl.int32))
        return tl.where(e < D, 0.0, -float("inf")).to(F), tl.full(e.shape, float("inf"), F)
    else:
        low = row(p, k, N, B, WIDTH, D, ROWP, SPAN, F, -float("inf"))
        return low, row(q, k, N, B, WIDTH, D, ROWQ, SPAN, F, float("inf"))


@triton.jit
def _fields(
    x0, p, q, r, k, N,
    PLANE: tl.constexpr, LOOSE: tl.constexpr, STRICT: tl.constexpr, D: tl.constexpr, ROW0: tl.constexpr,
    ROWP: tl.constexpr, ROWQ: tl.constexpr, ROWR: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr,
    SPAN: tl.constexpr, F: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr,
):  # fmt: skip
    """The anchor, the total, and 1 / the depth of the anchor on both sides, with their signs; and of the margin

    the factor by which eta shrinks, and whether the anchor is certainly inside.
    """
    anchor, total = row(x0, k, N, B, WIDTH, D, ROW0, SPAN, F), tl.full((1,), 1.0, F)
    if PLANE:
        total = number(r, k * B + tl.arange(0, B), N, ROWR, F)
        anchor, _size = _onto(anchor, total, D, 2 * U)  # type: ignore[misc]
    low, high = _sides(p, q, k, N, PLANE, D, ROWP, ROWQ, B, WIDTH, SPAN, F)  # type: ignore[misc]
    down, up = -1 / (anchor - low), 1 / (high - anchor)
    room, sound = _room(anchor - low, low, anchor, LOOSE, U, NARROW, SMALLEST, STRICT)  # type: ignore[misc]
    if not PLANE:
        other, also = _room(high - anchor, high, anchor, LOOSE, U, NARROW, SMALLEST, STRICT)
        room, sound = tl.minimum(room, other), sound & also
    kept = 1 - 1 / (1 - greatest(-room))
    return anchor, total, down, up, kept, greatest(tl.where(sound, 0, 1)) == 0


@triton.jit
def _room(
    depth, bound, anchor,
    LOOSE: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr, STRICT: tl.constexpr,
):  # fmt: skip
    """The depth of the anchor over the error at the bound, for each coordinate, and whether the depth is certain."""
    size = _finite(bound)
    rounded = U * size if LOOSE else 0.0 * size
    fixed = 2 * (8 * U * tl.abs(anchor) + 1.01 * NARROW * (tl.abs(anchor) + SMALLEST)) + 4 * rounded
    off = 4 * U * (size + tl.abs(anchor)) + 1.02 * NARROW * (size + SMALLEST)
    error = fixed + 2 * off + 2 * rounded
    return (depth - 2 * fixed) / tl.where(error > 0, error, 1.0), depth > (2 * fixed if STRICT else 0.0)


@triton.jit
def _gauged(given, anchor, total, down, up, PLANE: tl.constexpr, D: tl.constexpr, EPS: tl.constexpr):
    """The point on the plane, if there is one, x - x0, its gauges, and a size of the point, NaN if it is not finite."""
    if PLANE:
        point, size = _onto(given, total, D, EPS)  # type: ignore[misc]
        away = point - anchor
        return point, away, away * down, size
    else:
        away = given - anchor
        return given, away, tl.maximum(away * down, away * up), summed(tl.abs(away))


@triton.jit
def _excess(
    point, p, q, k, N,
    PLANE: tl.constexpr, LOOSE: tl.constexpr, D: tl.constexpr, ROWP: tl.constexpr, ROWQ: tl.constexpr,
    B: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr, F: tl.constexpr, U: tl.constexpr,
):  # fmt: skip
    """By how much the point is beyond the bounds, with what Python numbers have lost if they are LOOSE."""
    low, high = _sides(p, q, k, N, PLANE, D, ROWP, ROWQ, B, WIDTH, SPAN, F)  # type: ignore[misc]
    below, above = low - point, point - high
    if LOOSE:  # added to the differences, which are exact there: to the bounds it would be lost in rounding
        below, above = below + U * _finite(low), above + U * _finite(high)
    return greatest(tl.maximum(below, above))


@triton.jit
def _weighed(
    given, alive, anchor, total, down, up, kept, sound, p, q, k, N,
    PLANE: tl.constexpr, LOOSE: tl.constexpr, STRICT: tl.constexpr, D: tl.constexpr, ROWP: tl.constexpr,
    ROWQ: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr, F: tl.constexpr, U: tl.constexpr,
    EPS: tl.constexpr, NORMAL: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """The point on the plane, if there is one, by what factor it was pulled back, x - x0, its gauges, m, eta, and

    whether it is outside.
    """
    t = tl.full((B,), 1.0, F)
    point, away, gauge, size = _gauged(given, anchor, total, down, up, PLANE, D, EPS)  # type: ignore[misc]
    m = greatest(gauge)
    outside = m > 1
    plain = (size <= HUGE) & (tl.abs(m - 1) > 8 * U)  # nearer to a bound it is compared with that itself
    if tl.min(tl.where(plain | ~alive, 1, 0), axis=0) == 0:
        point, t = near(given, anchor, HUGE)
        point, away, gauge, size = _gauged(point, anchor, total, down, up, PLANE, D, EPS)
        m = greatest(gauge)
        outside = _excess(point, p, q, k, N, PLANE, LOOSE, D, ROWP, ROWQ, B, WIDTH, SPAN, F, U) > 0
    eta = tl.where(outside, quotient(tl.full(m.shape, 1.0, F), tl.where(m > 1, m, 1.0)), 1.0)
    if STRICT:
        eta = tl.where(outside | (t < 1), eta * kept, 1.0)
    eta = tl.where(eta < NORMAL, 0.0, eta)  # below that a weight is not exact
    return point, t, away, gauge, m, tl.where(sound & (0 * size == 0), eta, float("nan")), outside


@triton.jit
def forward(
    x, x0, p, q, r, y, N,
    PLANE: tl.constexpr, LOOSE: tl.constexpr, D: tl.constexpr, ROW0: tl.constexpr, ROWP: tl.constexpr,
    ROWQ: tl.constexpr, ROWR: tl.constexpr, SHARED: tl.constexpr, STRICT: tl.constexpr, B: tl.constexpr,
    STAGES: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr, F: tl.constexpr, U: tl.constexpr, EPS: tl.constexpr,
    NARROW: tl.constexpr, SMALLEST: tl.constexpr, NORMAL: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """y; p and q are the bounds, r is the total."""
    if SHARED:
        anchor, total, down, up, kept, sound = _fields(  # type: ignore[misc]
            x0, p, q, r, 0, N, PLANE, LOOSE, STRICT, D, ROW0, ROWP, ROWQ, ROWR, B, WIDTH, SPAN, F, U, NARROW, SMALLEST
        )
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        _n, alive, at, mask = tile(k, N, B, WIDTH, D, SPAN)
        if not SHARED:
            anchor, total, down, up, kept, sound = _fields(
                x0, p, q, r, k, N, PLANE, LOOSE, STRICT, D, ROW0, ROWP, ROWQ, ROWR, B, WIDTH, SPAN, F, U, NARROW,
                SMALLEST,
            )  # fmt: skip
        given = read(x, at, mask, B, F)
        point, _t, _away, _gauge, _m, eta, _outside = _weighed(  # type: ignore[misc]
            given, alive, anchor, total, down, up, kept, sound, p, q, k, N,
            PLANE, LOOSE, STRICT, D, ROWP, ROWQ, B, WIDTH, SPAN, F, U, EPS, NORMAL, HUGE,
        )  # fmt: skip
        write(y, at, moved(anchor, point, eta), mask)


@triton.jit
def backward(
    g, x, x0, p, q, r, dx, dx0, N,
    PLANE: tl.constexpr, LOOSE: tl.constexpr, D: tl.constexpr, ROW0: tl.constexpr, ROWP: tl.constexpr,
    ROWQ: tl.constexpr, ROWR: tl.constexpr, SHARED: tl.constexpr, STRICT: tl.constexpr, ANCHORED: tl.constexpr,
    B: tl.constexpr, STAGES: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr, F: tl.constexpr, U: tl.constexpr,
    EPS: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr, NORMAL: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """The derivatives by x and, if ANCHORED, by the anchor."""
    e = places(WIDTH, SPAN)
    if SHARED:
        anchor, total, down, up, kept, sound = _fields(  # type: ignore[misc]
            x0, p, q, r, 0, N, PLANE, LOOSE, STRICT, D, ROW0, ROWP, ROWQ, ROWR, B, WIDTH, SPAN, F, U, NARROW, SMALLEST
        )
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        _n, alive, at, mask = tile(k, N, B, WIDTH, D, SPAN)
        if not SHARED:
            anchor, total, down, up, kept, sound = _fields(
                x0, p, q, r, k, N, PLANE, LOOSE, STRICT, D, ROW0, ROWP, ROWQ, ROWR, B, WIDTH, SPAN, F, U, NARROW,
                SMALLEST,
            )  # fmt: skip
        given, incoming = read(x, at, mask, B, F), read(g, at, mask, B, F)
        _point, t, away, gauge, m, eta, outside = _weighed(  # type: ignore[misc]
            given, alive, anchor, total, down, up, kept, sound, p, q, k, N,
            PLANE, LOOSE, STRICT, D, ROWP, ROWQ, B, WIDTH, SPAN, F, U, EPS, NORMAL, HUGE,
        )  # fmt: skip
        which, m = first(gauge == each(m), e), tl.where(m > 1, m, 1.0)
        part = reciprocal(m)
        back = tl.where(outside, summed(incoming * away) * part * part, 0.0)
        side = down if PLANE else tl.where(away > 0, up, down)
        chosen = tl.where(e == each(which), side, 0.0)
        inner = each(t * eta) * incoming - each(t * back) * chosen
        write(dx, at, _lowered(inner, summed(inner), D) if PLANE else inner, mask)
        if ANCHORED:
            outer = each(1 - t * eta) * incoming - each(back * (m - t)) * chosen
            write(dx0, at, _lowered(outer, summed(outer), D) if PLANE else outer, mask)

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

from ._arithmetic import divided
from ._rows import near, number, row, tile


@triton.jit
def _onto(x, total, D: tl.constexpr, EPS: tl.constexpr):
    """x moved along the diagonal onto sum x = total, x itself if it is there up to rounding; and how far it was off."""
    off = tl.sum(x, axis=1) - total
    there = tl.abs(off) <= 2 * D * EPS * (tl.sum(tl.abs(x), axis=1) + tl.abs(total))
    result = _lowered(x, off, D)
    return tl.where(there[:, None], x, _lowered(result, tl.sum(result, axis=1) - total, D)), off


@triton.jit
def _lowered(x, off, D: tl.constexpr):
    """x less its share of off in each coordinate."""
    share = divided(off, 0 * off + D)[:, None]
    if x.shape[1] == D:
        return x - share
    else:
        return x - tl.where((tl.arange(0, x.shape[1]) < D)[None, :], share, 0.0)


@triton.jit
def _finite(b):
    """|b|, 0 where it is infinite."""
    return tl.where(tl.abs(b) < float("inf"), tl.abs(b), 0.0)


@triton.jit
def _fields(
    x0, p, q, r, n, N,
    PLANE: tl.constexpr, D: tl.constexpr, ROW0: tl.constexpr, ROWP: tl.constexpr, ROWQ: tl.constexpr,
    ROWR: tl.constexpr, WIDTH: tl.constexpr, F: tl.constexpr, U: tl.constexpr,
):  # fmt: skip
    """The anchor, the bounds and the total; coordinates beyond D have no bounds."""
    anchor, total = row(x0, n, N, WIDTH, D, ROW0, F), 1.0
    if PLANE:
        total = number(r, n, N, ROWR, F)
        anchor, _off = _onto(anchor, total, D, 2 * U)  # type: ignore[misc]
        low = tl.where((tl.arange(0, WIDTH) < D)[None, :], 0.0 * anchor, -float("inf"))
        high = tl.zeros_like(low) + float("inf")
    else:
        low = row(p, n, N, WIDTH, D, ROWP, F, -float("inf"))
        high = row(q, n, N, WIDTH, D, ROWQ, F, float("inf"))
    return anchor, low, high, total


@triton.jit
def _margin(
    anchor, low, high,
    PLANE: tl.constexpr, LOOSE: tl.constexpr, STRICT: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
    SMALLEST: tl.constexpr,
):  # fmt: skip
    """The factor by which eta shrinks, and whether the anchor is certainly inside."""
    room, sound = _room(anchor - low, low, anchor, LOOSE, U, NARROW, SMALLEST, STRICT)  # type: ignore[misc]
    if not PLANE:
        other, also = _room(high - anchor, high, anchor, LOOSE, U, NARROW, SMALLEST, STRICT)
        room, sound = tl.minimum(room, other), sound & also
    return 1 - 1 / (1 + tl.min(room, axis=1)), tl.min(tl.where(sound, 1, 0), axis=1) > 0


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
def _gauge(
    point, anchor, down, up, total,
    PLANE: tl.constexpr, D: tl.constexpr, EPS: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """The point on the plane, if there is one, by what factor it was pulled back, x - x0, its gauges, and a check.

    The latter is 0 for points that are finite.
    """
    given, t = point, tl.full((point.shape[0],), 1.0, point.dtype)
    check = t
    if PLANE:
        point, check = _onto(given, total, D, EPS)  # type: ignore[misc]
    away = point - anchor
    gauge = away * down if PLANE else tl.maximum(away * down, away * up)
    far = tl.max(tl.abs(given), axis=1) if PLANE else tl.max(gauge, axis=1)
    if tl.max(far, axis=0) > HUGE:
        point, t = near(given, anchor, HUGE)
        if PLANE:
            point, check = _onto(point, total, D, EPS)  # type: ignore[misc]
        away = point - anchor
        gauge = away * down if PLANE else tl.maximum(away * down, away * up)
    return point, t, away, gauge, 0 * check if PLANE else tl.sum(0 * away, axis=1)


@triton.jit
def forward(
    x, x0, p, q, r, y, weight, N,
    PLANE: tl.constexpr, LOOSE: tl.constexpr, D: tl.constexpr, ROW0: tl.constexpr, ROWP: tl.constexpr,
    ROWQ: tl.constexpr, ROWR: tl.constexpr, SHARED: tl.constexpr, STRICT: tl.constexpr, B: tl.constexpr,
    STAGES: tl.constexpr, WIDTH: tl.constexpr, F: tl.constexpr, U: tl.constexpr, EPS: tl.constexpr,
    NARROW: tl.constexpr, SMALLEST: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """y and eta; p and q are the bounds, r is the total."""
    if SHARED:
        anchor, low, high, total = _fields(  # type: ignore[misc]
            x0, p, q, r, 0, N, PLANE, D, ROW0, ROWP, ROWQ, ROWR, WIDTH, F, U
        )
        kept, sound = _margin(anchor, low, high, PLANE, LOOSE, STRICT, U, NARROW, SMALLEST)
        down, up = -1 / (anchor - low), 1 / (high - anchor)
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        n, alive, at, mask = tile(k, N, B, WIDTH, D)
        if not SHARED:
            anchor, low, high, total = _fields(x0, p, q, r, n, N, PLANE, D, ROW0, ROWP, ROWQ, ROWR, WIDTH, F, U)
            kept, sound = _margin(anchor, low, high, PLANE, LOOSE, STRICT, U, NARROW, SMALLEST)
            down, up = -1 / (anchor - low), 1 / (high - anchor)
        point = tl.load(x + at, mask, other=0.0).to(F)
        point, t, away, gauge, check = _gauge(point, anchor, down, up, total, PLANE, D, EPS, HUGE)
        excess = low - point
        if STRICT and LOOSE:  # Python numbers were rounded
            excess = tl.maximum(excess + U * _finite(low), point - high + U * _finite(high))
        elif not PLANE:
            excess = tl.maximum(excess, point - high)
        m = tl.max(gauge, axis=1)
        outside = tl.max(excess, axis=1) > 0
        eta = tl.where(outside, divided(1.0 + 0 * m, tl.where(m > 1, m, 1.0)), 1.0)
        if STRICT:
            eta = tl.where(outside | (t < 1), eta * kept, 1.0)
        eta = tl.where(sound & (check == 0), eta, float("nan"))
        tl.store(y + at, tl.where(eta[:, None] == 1, point, anchor + eta[:, None] * away), mask)
        tl.store(weight + n, eta, alive)


@triton.jit
def backward(
    g, x, x0, p, q, r, weight, dx, dx0, N,
    PLANE: tl.constexpr, D: tl.constexpr, ROW0: tl.constexpr, ROWP: tl.constexpr, ROWQ: tl.constexpr,
    ROWR: tl.constexpr, SHARED: tl.constexpr, ANCHORED: tl.constexpr, B: tl.constexpr, STAGES: tl.constexpr,
    WIDTH: tl.constexpr, F: tl.constexpr, U: tl.constexpr, EPS: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """The derivatives by x and, if ANCHORED, by the anchor."""
    e = tl.arange(0, WIDTH)[None, :]
    if SHARED:
        anchor, low, high, total = _fields(  # type: ignore[misc]
            x0, p, q, r, 0, N, PLANE, D, ROW0, ROWP, ROWQ, ROWR, WIDTH, F, U
        )
        down, up = -1 / (anchor - low), 1 / (high - anchor)
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        n, alive, at, mask = tile(k, N, B, WIDTH, D)
        if not SHARED:
            anchor, low, high, total = _fields(x0, p, q, r, n, N, PLANE, D, ROW0, ROWP, ROWQ, ROWR, WIDTH, F, U)
            down, up = -1 / (anchor - low), 1 / (high - anchor)
        point, incoming = tl.load(x + at, mask, other=0.0).to(F), tl.load(g + at, mask, other=0.0).to(F)
        eta = tl.load(weight + n, alive, other=1.0)
        point, t, away, gauge, _check = _gauge(point, anchor, down, up, total, PLANE, D, EPS, HUGE)
        m, which = tl.max(gauge, axis=1, return_indices=True)
        outside = m > 1
        m = tl.where(outside, m, 1.0)
        back = tl.where(outside, tl.sum(incoming * away, axis=1) / m / m, 0.0)
        side = down if PLANE else tl.where(away > 0, up, down)
        chosen = tl.where(e == which[:, None], side, 0.0)
        inner = eta[:, None] * incoming - back[:, None] * chosen
        if PLANE:
            inner = _lowered(inner, tl.sum(tl.where(mask, inner, 0.0), axis=1), D)
        tl.store(dx + at, t[:, None] * inner, mask)
        if ANCHORED:
            outer = (1 - eta[:, None]) * incoming - (back * (m - 1))[:, None] * chosen
            if PLANE:
                outer = _lowered(outer, tl.sum(tl.where(mask, outer, 0.0), axis=1), D)
            tl.store(dx0 + at, outer + (1 - t[:, None]) * inner, mask)

"""Kernels for `Strings`: y = x0 + eta (x - x0) with the weight of `chord`, and its derivative.

With a = h_l(x0) and b = h_l(x) of the link l that sets it, eta = a / (a - b); s = <g, x - x0> for an incoming g, and n
the derivative of a length by the positions:

    dx = eta g + s a / (a - b)^2 n_l(x),    dx0 = (1 - eta) g - s b / (a - b)^2 n_l(x0).

The margin of `strict` is that of `_strict.py`; the displacement of a body is bounded by the largest in the sample.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import between, divided, root
from ._rows import moved


@triton.jit
def _ends(x, row, i, j, c, mask, BODIES: tl.constexpr, D: tl.constexpr, F: tl.constexpr):
    """Coordinate c of p_i and of p_j; NaN for a body that there is not."""
    first = tl.load(x + row + i * D + c, mask & (i < BODIES), other=float("nan")).to(F)
    second = tl.load(x + row + j * D + c, mask & (j < BODIES), other=float("nan")).to(F)
    return first, second


@triton.jit
def _spanned(
    x, row, x0, row0, i, j, c, t, mask,
    TOGETHER: tl.constexpr, BODIES: tl.constexpr, D: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """Coordinate c of p_i - p_j, at the point and at the anchor; with all bodies TOGETHER it is 0 at the anchor."""
    first, second = _ends(x, row, i, j, c, mask, BODIES, D, F)  # type: ignore[misc]
    if TOGETHER:
        middle = tl.load(x0 + row0 + c + 0 * i, mask, other=0.0).to(F)
        first0, second0 = middle, middle
    else:
        first0, second0 = _ends(x0, row0, i, j, c, mask, BODIES, D, F)
    return between(first0, first, t) - between(second0, second, t), first0 - second0


@triton.jit
def _lengths(
    x, row, x0, row0, i, j, t, mask,
    TOGETHER: tl.constexpr, BODIES: tl.constexpr, D: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """|p_i - p_j| at the point and at the anchor; scaled by their largest coordinate, so that no square overflows."""
    size, size0 = tl.zeros_like(t * (i + 0.0)), tl.zeros_like(t * (i + 0.0))
    for c in tl.static_range(D):
        span, span0 = _spanned(x, row, x0, row0, i, j, c, t, mask, TOGETHER, BODIES, D, F)
        size, size0 = tl.maximum(size, tl.abs(span)), tl.maximum(size0, tl.abs(span0))
    size, size0 = tl.where(size > 0, size, 1.0), tl.where(size0 > 0, size0, 1.0)
    square, square0 = tl.zeros_like(size), tl.zeros_like(size)
    for c in tl.static_range(D):
        span, span0 = _spanned(x, row, x0, row0, i, j, c, t, mask, TOGETHER, BODIES, D, F)
        part, part0 = divided(span, size), divided(span0, size0)
        square, square0 = square + part * part, square0 + part0 * part0
    return size * root(square), size0 * root(square0)


@triton.jit
def _tile(x, k, N, B: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """The numbers of tile k, asked for before they are needed."""
    n, e = (k * B + tl.arange(0, B)).to(tl.int64), tl.arange(0, WIDTH)
    return tl.load(x + n[:, None] * SIZE + e[None, :], (n < N)[:, None] & (e < SIZE)[None, :], other=0.0)


@triton.jit
def _spans(point, sign, c, up, D: tl.constexpr):
    """|p_i - p_j| from all coordinates and the signs of both ends, with numbers scaled by `up` on the way."""
    square = tl.zeros_like(up)
    for q in tl.static_range(D):  # type: ignore[misc]
        span = tl.sum(tl.where(c == q, sign * point, 0.0), axis=1) * up
        square += span * span
    return root(square) / up


@triton.jit
def _quickly(x, row, i, j, mask, D: tl.constexpr, F: tl.constexpr, EXACT: tl.constexpr):
    """|p_i - p_j|, if its square does not overflow; up to 2 units in the last place unless EXACT."""
    first, second = tl.load(x + row + i * D, mask, other=0.0), tl.load(x + row + j * D, mask, other=0.0)
    span = first.to(F) - second.to(F)
    square = span * span
    for c in tl.static_range(1, D):  # type: ignore[misc]
        first, second = tl.load(x + row + i * D + c, mask, other=0.0), tl.load(x + row + j * D + c, mask, other=0.0)
        span = first.to(F) - second.to(F)
        square += span * span
    return root(square) if EXACT else tl.sqrt(square)


@triton.jit
def _kept(
    eta, far, far0, least, most, long0, mask,
    TOGETHER: tl.constexpr, D: tl.constexpr, ENDS: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
    SMALLEST: tl.constexpr,
):  # fmt: skip
    """The factor by which eta shrinks, and whether the anchor is certainly inside.

    Every coordinate of both ends of a string may be off by as much as the largest; ENDS = 2 sqrt(d). A string at y is
    not longer than it may be, but for what that covers. With all bodies TOGETHER the shortest string decides.
    """
    K: tl.constexpr = U * (D / 2 + 4)
    size = far0 + eta * (far + far0)
    slip = ENDS * (4 * U * (size + far0) + 1.01 * NARROW * (size + SMALLEST))
    slip0 = ENDS * (8 * U * far0 + 1.01 * NARROW * (far0 + SMALLEST))
    if TOGETHER:
        fixed = 4 * K * least + slip0
        error = fixed + 4.04 * K * least + slip
        return 1 - 1 / (1 + (least - 2 * fixed) / error), least > 2 * fixed
    else:
        fixed = 4 * K * (long0 + most) + slip0[:, None]
        error = fixed + 4.04 * K * most + slip[:, None]
        room = tl.min(tl.where(mask, (most - long0 - 2 * fixed) / error, float("inf")), axis=1)
        sound = tl.min(tl.where(mask & ~(most - long0 > 2 * fixed), 0, 1), axis=1) > 0
        return 1 - 1 / (1 + room), sound


@triton.jit
def forward(
    x, x0, links, lengths, y, weight, active, N,
    BODIES: tl.constexpr, D: tl.constexpr, M: tl.constexpr, TOGETHER: tl.constexpr, ROW0: tl.constexpr,
    ROWL: tl.constexpr, STRICT: tl.constexpr, ENDS: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr,
    LINKS: tl.constexpr, F: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr,
    HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = BODIES * D
    FAST: tl.constexpr = SHIFT**0.5 / 64  # coordinates below it have squares
    e, link = tl.arange(0, WIDTH), tl.arange(0, LINKS)
    there = (link < M)[None, :]
    i = tl.load(links + 2 * link, link < M, other=0).to(tl.int32)[None, :]
    j = tl.load(links + 2 * link + 1, link < M, other=0).to(tl.int32)[None, :]
    whole = tl.max(tl.maximum(i, j), axis=1) < BODIES
    place = (e % D if TOGETHER else e)[None, :]
    if ROWL == 0:
        most = tl.load(lengths + link, link < M, other=1e30).to(F)[None, :]
        inverse, least = 1 / most, tl.min(most, axis=1)
    if ROW0 == 0:
        anchor = tl.load(x0 + place, (e < SIZE)[None, :], other=0.0).to(F)
        far0 = tl.max(tl.abs(anchor), axis=1)
    ahead = _tile(x, tl.program_id(0), N, B, SIZE, WIDTH)
    for k in range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0)):
        n = (k * B + tl.arange(0, B)).to(tl.int64)
        alive = n < N
        within = alive[:, None] & (e < SIZE)[None, :]
        at = n[:, None] * SIZE + e[None, :]
        point = ahead.to(F)
        ahead = _tile(x, k + tl.num_programs(0), N, B, SIZE, WIDTH)
        if ROWL != 0:
            most = tl.load(lengths + n[:, None] * ROWL + link[None, :], alive[:, None] & there, other=float("inf")).to(
                F
            )
            inverse, least = 1 / most, tl.min(most, axis=1)
        if ROW0 != 0:
            anchor = tl.load(x0 + n[:, None] * ROW0 + place, within, other=0.0).to(F)
            far0 = tl.max(tl.abs(anchor), axis=1)
        far, t = tl.max(tl.abs(point), axis=1), tl.full((B,), 1.0, F)
        row, row0 = n[:, None] * SIZE, n[:, None] * ROW0
        mask = alive[:, None] & (whole[:, None] & there)
        long = _quickly(x, row, i, j, mask, D, F, not STRICT)
        long0 = tl.zeros_like(long) if TOGETHER else _quickly(x0, row0, i, j, mask, D, F, not STRICT)
        plain = (far < FAST) & (far0 < FAST) & (least > 1 / FAST)
        if tl.min(tl.where(plain | ~alive, 1, 0), axis=0) == 0:
            t = tl.where(far > HUGE, HUGE / tl.where(far > HUGE, far, HUGE), 1.0)
            long, long0 = _lengths(x, row, x0, row0, i, j, t[:, None], mask, TOGETHER, BODIES, D, F)
            point = tl.where(t[:, None] == 1, point, between(anchor, point, t[:, None]))
        h, h0 = long - most, long0 - most
        if STRICT:
            h += U * (D / 2 + 6) * (long + most)
        over = there & (h > 0)
        ratio = h * inverse if TOGETHER else h / tl.where(over, -h0, 1.0)
        s, which = tl.max(tl.where(over, ratio, 0.0), axis=1, return_indices=True)
        bad = there & ((h != h) | ~(h0 < 0))
        outside = s > 0
        eta = divided(tl.full((B,), 1.0, F), 1 + s)
        if STRICT:
            kept, sound = _kept(
                eta, tl.minimum(far, HUGE), far0, least, most, long0, mask, TOGETHER, D, ENDS, U, NARROW, SMALLEST
            )
            eta = tl.where(sound, tl.where(outside | (t < 1), eta * kept, 1.0), float("nan"))
        eta = tl.where(whole & (tl.max(tl.where(bad, 1, 0), axis=1) == 0), eta, float("nan"))
        tl.store(y + at, moved(anchor, point, eta), within)
        tl.store(weight + n, eta, alive)
        tl.store(active + n, tl.where(outside, which, -1), alive)


@triton.jit
def backward(
    g, x, x0, links, lengths, weight, active, dx, dx0, N,
    BODIES: tl.constexpr, D: tl.constexpr, TOGETHER: tl.constexpr, ROW0: tl.constexpr, ROWL: tl.constexpr,
    STRICT: tl.constexpr, ANCHORED: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr, F: tl.constexpr,
    U: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = BODIES * D
    FAST: tl.constexpr = SHIFT**0.5 / 64
    e = tl.arange(0, WIDTH)[None, :]
    body, c = e // D, e % D
    if ROW0 == 0:
        anchor = tl.load(x0 + (c if TOGETHER else e), e < SIZE, other=0.0).to(F)
    ahead, coming = _tile(x, tl.program_id(0), N, B, SIZE, WIDTH), _tile(g, tl.program_id(0), N, B, SIZE, WIDTH)
    for k in range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0)):
        n = (k * B + tl.arange(0, B)).to(tl.int64)
        alive = n < N
        at, within = n[:, None] * SIZE + e, alive[:, None] & (e < SIZE)
        point, incoming = ahead.to(F), coming.to(F)
        ahead, coming = (
            _tile(x, k + tl.num_programs(0), N, B, SIZE, WIDTH),
            _tile(g, k + tl.num_programs(0), N, B, SIZE, WIDTH),
        )
        if ROW0 != 0:
            anchor = tl.load(x0 + n[:, None] * ROW0 + (c if TOGETHER else e), within, other=0.0).to(F)
        eta, which = tl.load(weight + n, alive, other=1.0), tl.load(active + n, alive, other=-1)
        outside = which >= 0
        link = tl.where(outside, which, 0)
        i = tl.load(links + 2 * link, alive, other=0).to(tl.int32)
        j = tl.load(links + 2 * link + 1, alive, other=0).to(tl.int32)
        most = tl.load(lengths + n * ROWL + link, alive, other=1.0).to(F)
        far = tl.max(tl.abs(point), axis=1)
        t = tl.where(far > HUGE, HUGE / tl.where(far > HUGE, far, HUGE), 1.0)
        point = tl.where(t[:, None] == 1, point, between(anchor, point, t[:, None]))
        sign = tl.where(body == i[:, None], 1.0, 0.0) - tl.where(body == j[:, None], 1.0, 0.0)
        up = tl.where(far > FAST, 1 / SHIFT, tl.where(far < 1 / FAST, SHIFT, 1.0)).to(F)
        long = _spans(point, sign, c, up, D)
        long0 = tl.zeros_like(long) if TOGETHER else _spans(anchor, sign, c, up, D)
        a, b = long0 - most, long - most
        if STRICT:
            b += U * (D / 2 + 6) * (long + most)
        b = tl.where(outside, b, 0.0)
        along = tl.sum(incoming * (point - anchor), axis=1)
        # the quotients one after another: (a - b)^2 may overflow
        pull = tl.where(outside, along / (a - b) * (a / (a - b)) / tl.where(long > 0, long, 1.0), 0.0)
        push = tl.where(outside, -along / (a - b) * (b / (a - b)) / tl.where(long0 > 0, long0, 1.0), 0.0)
        inner, outer = eta[:, None] * incoming, (1 - eta[:, None]) * incoming
        for q in tl.static_range(D):
            span = pull * tl.sum(tl.where(c == q, sign * point, 0.0), axis=1)
            inner += tl.where(c == q, span[:, None] * sign, 0.0)
            if ANCHORED and not TOGETHER:
                span = push * tl.sum(tl.where(c == q, sign * anchor, 0.0), axis=1)
                outer += tl.where(c == q, span[:, None] * sign, 0.0)
        tl.store(dx + at, t[:, None] * inner, within)
        if ANCHORED:
            outer += (1 - t[:, None]) * inner
            if TOGETHER:
                for q in tl.static_range(D):
                    total = tl.sum(tl.where(within & (c == q), outer, 0.0), axis=1)
                    tl.store(dx0 + n * D + q, total, alive)
            else:
                tl.store(dx0 + at, outer, within)

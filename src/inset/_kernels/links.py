"""Kernels for `Strings`: y = x0 + eta (x - x0) with the weight of `chord`, and its derivative.

With a = h_l(x0) and b = h_l(x) of the link l that sets it, eta = a / (a - b); s = <g, x - x0> for an incoming g, and n
the derivative of a length by the positions:

    dx = eta g + s a / (a - b)^2 n_l(x),    dx0 = (1 - eta) g - s b / (a - b)^2 n_l(x0).
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import between, reciprocal
from ._bodies import anchors, apart, checked, farthest, inverses, joined, limits, places, tile, total, wide, write
from ._link_weights import weighed
from ._tiles import each


@triton.jit
def forward(
    x, x0, links, lengths, y, weight, active, N,
    BODIES: tl.constexpr, D: tl.constexpr, M: tl.constexpr, TOGETHER: tl.constexpr, ROW0: tl.constexpr,
    ROWL: tl.constexpr, STRICT: tl.constexpr, AGAIN: tl.constexpr, ENDS: tl.constexpr, B: tl.constexpr,
    WIDTH: tl.constexpr, LINKS: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr, PAIRED: tl.constexpr,
    F: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr, NORMAL: tl.constexpr,
    HUGE: tl.constexpr, SHIFT: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """y and, unless they are found AGAIN, eta and the link that set it or -1; M of the LINKS are there.

    One tile of points is on its way while another is at work, or two of them in turns: to hand on one that is on its
    way would be to wait for it.
    """
    SIZE: tl.constexpr = BODIES * D
    e = places(B, WIDTH, LANES, EACH)
    step, count = tl.num_programs(0), tl.cdiv(N, B)
    # everything is asked for before anything is waited for
    ahead = tile(x, tl.program_id(0), N, B, SIZE, WIDTH, LANES, EACH, PAIRED)
    if TILES == 2:
        later = tile(x, tl.program_id(0) + step, N, B, SIZE, WIDTH, LANES, EACH, PAIRED)
    link, i, j = joined(links, M, LINKS, B, LANES)  # type: ignore[misc]
    most = limits(lengths, 0, link, M, ROWL, F)  # those of the first sample, if each has its own
    anchor = anchors(x0, tl.zeros((B,), tl.int64), N, e, SIZE, TOGETHER, D, ROW0, F)
    i, j, whole = checked(i, j, BODIES)  # type: ignore[misc]
    inverse, least = inverses(most)  # type: ignore[misc]
    far0 = farthest(anchor)
    plain = tl.full((B,), True, tl.int1)
    for k in range(tl.program_id(0), count, TILES * step):
        point, ahead = apart(ahead, x, F), tile(x, k + TILES * step, N, B, SIZE, WIDTH, LANES, EACH, PAIRED)
        plain &= _forth(
            k, x, x0, lengths, y, weight, active, N, e, point, anchor, far0, link, i, j, whole, most, inverse, least,
            SIZE, D, M, TOGETHER, ROW0, ROWL, STRICT, AGAIN, ENDS, B, PAIRED, F, U, NARROW, SMALLEST, NORMAL, HUGE,
            SHIFT, False,
        )  # fmt: skip
        if TILES == 2:  # beyond the last tile there are no samples
            point, later = apart(later, x, F), tile(x, k + 3 * step, N, B, SIZE, WIDTH, LANES, EACH, PAIRED)
            plain &= _forth(
                tl.minimum(k + step, count), x, x0, lengths, y, weight, active, N, e, point, anchor, far0, link, i, j,
                whole, most, inverse, least, SIZE, D, M, TOGETHER, ROW0, ROWL, STRICT, AGAIN, ENDS, B, PAIRED, F, U,
                NARROW, SMALLEST, NORMAL, HUGE, SHIFT, False,
            )  # fmt: skip
    if tl.min(tl.where(plain, 1, 0), axis=0) == 0:  # once more with what only extreme numbers need
        for k in range(tl.program_id(0), count, step):
            point = apart(tile(x, k, N, B, SIZE, WIDTH, LANES, EACH, PAIRED), x, F)
            _forth(
                k, x, x0, lengths, y, weight, active, N, e, point, anchor, far0, link, i, j, whole, most, inverse,
                least, SIZE, D, M, TOGETHER, ROW0, ROWL, STRICT, AGAIN, ENDS, B, PAIRED, F, U, NARROW, SMALLEST, NORMAL,
                HUGE, SHIFT, True
            )  # fmt: skip


@triton.jit
def _forth(
    k, x, x0, lengths, y, weight, active, N, e, point, anchor, far0, link, i, j, whole, most, inverse, least,
    SIZE: tl.constexpr, D: tl.constexpr, M: tl.constexpr, TOGETHER: tl.constexpr, ROW0: tl.constexpr,
    ROWL: tl.constexpr, STRICT: tl.constexpr, AGAIN: tl.constexpr, ENDS: tl.constexpr, B: tl.constexpr,
    PAIRED: tl.constexpr, F: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr,
    NORMAL: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr, EXTREME: tl.constexpr,
):  # fmt: skip
    """Write what `forward` does of tile k; which samples are plain, as those need be that are not EXTREME."""
    n = (k * B + tl.arange(0, B)).to(tl.int64)
    alive, known = n < N, each(tl.minimum(n, N - 1))  # samples that there are
    if ROWL != 0:
        most = limits(lengths, known, link, M, ROWL, F)
        inverse, least = inverses(most)  # type: ignore[misc]
    if ROW0 != 0:
        anchor = anchors(x0, n, N, e, SIZE, TOGETHER, D, ROW0, F)
        far0 = farthest(anchor)
    eta, which, point, plain = weighed(  # type: ignore[misc]
        x, known * SIZE, x0, known * ROW0, point, anchor, far0, alive, link, i, j, whole, most, inverse, least,
        not AGAIN, M, TOGETHER, STRICT, D, ENDS, PAIRED, F, U, NARROW, SMALLEST, NORMAL, HUGE, SHIFT, EXTREME,
    )  # fmt: skip
    result = tl.fma(wide(eta), point, wide(1 - eta) * anchor)  # as a sum it is the point itself at 1
    write(y, wide(n) * SIZE + e, result, wide(alive) & (e < SIZE), SIZE)
    if not AGAIN:
        tl.store(weight + n, eta, alive)
        tl.store(active + n, which, alive)
    return plain


@triton.jit
def _coordinate(x, row, i, j, q, D: tl.constexpr, F: tl.constexpr):
    """Coordinate q of p_i and of p_j, a link for each sample."""
    return tl.load(x + row + (i * D + q)).to(F), tl.load(x + row + (j * D + q)).to(F)


@triton.jit
def _measured(
    x, row, x0, row0, i, j, c, t, TOGETHER: tl.constexpr, D: tl.constexpr, F: tl.constexpr, FAST: tl.constexpr,
    SHIFT: tl.constexpr, EXTREME: tl.constexpr,
):  # fmt: skip
    """p_i - p_j of a link for each sample, at each place of coordinate c, its length, and the inverse of that or 0.

    At the point, which is pulled back by t, and at the anchor; last, whether that needs nothing EXTREME: spans that are
    scaled before they are squared. Those come with a length of 1, whose inverse is not extreme.
    """
    up, down, up0, down0 = t, t, t, t
    if EXTREME:
        size, size0 = tl.zeros_like(t), tl.zeros_like(t)
        for q in tl.static_range(D):
            span, span0 = _span(x, row, x0, row0, i, j, q, t, TOGETHER, D, F)  # type: ignore[misc]
            size, size0 = tl.maximum(size, tl.abs(span)), tl.maximum(size0, tl.abs(span0))
        up, down = _scale(size, FAST, SHIFT)  # type: ignore[misc]
        up0, down0 = _scale(size0, FAST, SHIFT)  # type: ignore[misc]
    along, square = tl.zeros(c.shape, F), tl.zeros_like(t)
    along0, square0, fine0 = along, square, t == t
    for q in tl.static_range(D):
        span, span0 = _span(x, row, x0, row0, i, j, q, t, TOGETHER, D, F)  # type: ignore[misc]
        if EXTREME:
            span, span0 = span * up, span0 * up0
        if not TOGETHER:
            fine0 &= span0 == 0
            along0, square0 = tl.where(c == q, wide(span0), along0), square0 + span0 * span0
        along, square = tl.where(c == q, wide(span), along), square + span * span
    inverse, inverse0 = tl.where(square > 0, tl.rsqrt(square), 0.0), tl.where(square0 > 0, tl.rsqrt(square0), 0.0)
    long, long0 = square * inverse, square0 * inverse0
    if EXTREME:
        long, long0 = long * down, long0 * down0
        along, inverse = _unit(along, inverse, up)  # type: ignore[misc]
        along0, inverse0 = _unit(along0, inverse0, up0)  # type: ignore[misc]
    fine0 |= square0 > 1 / (FAST * FAST)  # a span of 0 has no direction
    return along, long, inverse, along0, long0, inverse0, (square > 1 / (FAST * FAST)) & fine0


@triton.jit
def _span(x, row, x0, row0, i, j, q, t, TOGETHER: tl.constexpr, D: tl.constexpr, F: tl.constexpr):
    """Coordinate q of p_i - p_j, at the point, and at the anchor unless bodies are TOGETHER there."""
    first, second = _coordinate(x, row, i, j, q, D, F)  # type: ignore[misc]
    span = t * first - t * second
    if TOGETHER:
        return span, tl.zeros_like(t)
    else:
        first0, second0 = _coordinate(x0, row0, i, j, q, D, F)  # type: ignore[misc]
        return span + (1 - t) * (first0 - second0), first0 - second0


@triton.jit
def _scale(size, FAST: tl.constexpr, SHIFT: tl.constexpr):
    """By what numbers of this size are scaled before they are squared, and what takes that back."""
    one, big, small = tl.full(size.shape, 1.0, size.dtype), size > FAST, (size < 1 / FAST) & (size > 0)
    up = tl.where(big, 1 / SHIFT, tl.where(small, SHIFT, one))
    return up, tl.where(big, SHIFT, tl.where(small, 1 / SHIFT, one))


@triton.jit
def _unit(along, inverse, up):
    """A span that was scaled with a length of 1, and what is left of the inverse of that; others as they are."""
    scaled = up != 1
    return tl.where(wide(scaled), along * wide(inverse), along), tl.where(scaled, 1.0, inverse)


@triton.jit
def _chosen(links, lengths, known, which, BODIES: tl.constexpr, ROWL: tl.constexpr, F: tl.constexpr):
    """The bodies that a link for each sample joins, and how long it may be; of the first, if there is none."""
    chosen = tl.where(which >= 0, which, 0)
    one = tl.minimum(tl.load(links + 2 * chosen).to(tl.int32), BODIES - 1)
    other = tl.minimum(tl.load(links + 2 * chosen + 1).to(tl.int32), BODIES - 1)
    return one, other, tl.load(lengths + known * ROWL + chosen).to(F)


@triton.jit
def _slopes(
    s, outside, long, inverted, long0, inverted0, longest, STRICT: tl.constexpr, D: tl.constexpr, U: tl.constexpr
):
    """s a / (a - b)^2 and -s b / (a - b)^2 over the lengths, or 0."""
    a, b = long0 - longest, long - longest
    if STRICT:
        b += U * (D / 2 + 6) * (long + longest)
    b = tl.where(outside, b, 0.0)
    part = reciprocal(b - a)
    over = s * part  # one after another: (b - a)^2 may overflow
    # inside, a string may have any length, and no length an inverse
    pull = tl.where(outside, over * (a * part) * inverted, 0.0)
    return pull, tl.where(outside, -over * (b * part) * inverted0, 0.0)


@triton.jit
def backward(
    g, x, x0, links, lengths, weight, active, dx, dx0, N,
    BODIES: tl.constexpr, D: tl.constexpr, M: tl.constexpr, TOGETHER: tl.constexpr, ROW0: tl.constexpr,
    ROWL: tl.constexpr, STRICT: tl.constexpr, AGAIN: tl.constexpr, ENDS: tl.constexpr, ANCHORED: tl.constexpr,
    B: tl.constexpr, WIDTH: tl.constexpr, LINKS: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr,
    PAIRED: tl.constexpr, F: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr,
    NORMAL: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """The derivatives by x and, if ANCHORED, by the anchor."""
    SIZE: tl.constexpr = BODIES * D
    e = places(B, WIDTH, LANES, EACH)
    ahead = tile(x, tl.program_id(0), N, B, SIZE, WIDTH, LANES, EACH, PAIRED)
    coming = tile(g, tl.program_id(0), N, B, SIZE, WIDTH, LANES, EACH, PAIRED)
    link, i, j = joined(links, M, LINKS, B, LANES)  # type: ignore[misc]
    most = limits(lengths, 0, link, M, ROWL, F)
    anchor = anchors(x0, tl.zeros((B,), tl.int64), N, e, SIZE, TOGETHER, D, ROW0, F)
    i, j, whole = checked(i, j, BODIES)  # type: ignore[misc]
    inverse, least = inverses(most)  # type: ignore[misc]
    far0 = farthest(anchor)
    plain = tl.full((B,), True, tl.int1)
    for k in range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0)):
        point, incoming = apart(ahead, x, F), apart(coming, g, F)
        ahead = tile(x, k + tl.num_programs(0), N, B, SIZE, WIDTH, LANES, EACH, PAIRED)
        coming = tile(g, k + tl.num_programs(0), N, B, SIZE, WIDTH, LANES, EACH, PAIRED)
        plain &= _back(
            k, x, x0, links, lengths, weight, active, dx, dx0, N, e, point, incoming, anchor, far0, link, i, j, whole,
            most, inverse, least, BODIES, D, M, TOGETHER, ROW0, ROWL, STRICT, AGAIN, ENDS, ANCHORED, B, PAIRED, F, U,
            NARROW, SMALLEST, NORMAL, HUGE, SHIFT, False
        )  # fmt: skip
    if tl.min(tl.where(plain, 1, 0), axis=0) == 0:
        for k in range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0)):
            point = apart(tile(x, k, N, B, SIZE, WIDTH, LANES, EACH, PAIRED), x, F)
            incoming = apart(tile(g, k, N, B, SIZE, WIDTH, LANES, EACH, PAIRED), g, F)
            _back(
                k, x, x0, links, lengths, weight, active, dx, dx0, N, e, point, incoming, anchor, far0, link, i, j,
                whole, most, inverse, least, BODIES, D, M, TOGETHER, ROW0, ROWL, STRICT, AGAIN, ENDS, ANCHORED, B,
                PAIRED, F, U, NARROW, SMALLEST, NORMAL, HUGE, SHIFT, True
            )  # fmt: skip


@triton.jit
def _back(
    k, x, x0, links, lengths, weight, active, dx, dx0, N, e, point, incoming, anchor, far0, link, i, j, whole,
    most, inverse, least,
    BODIES: tl.constexpr, D: tl.constexpr, M: tl.constexpr, TOGETHER: tl.constexpr, ROW0: tl.constexpr,
    ROWL: tl.constexpr, STRICT: tl.constexpr, AGAIN: tl.constexpr, ENDS: tl.constexpr, ANCHORED: tl.constexpr,
    B: tl.constexpr, PAIRED: tl.constexpr, F: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
    SMALLEST: tl.constexpr, NORMAL: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr, EXTREME: tl.constexpr,
):  # fmt: skip
    """Write what `backward` does of tile k; which samples are plain, as those need be that are not EXTREME."""
    SIZE: tl.constexpr = BODIES * D
    FAST: tl.constexpr = SHIFT**0.5 / 64
    n = (k * B + tl.arange(0, B)).to(tl.int64)
    alive, known = n < N, tl.minimum(n, N - 1)
    at, within = wide(n) * SIZE + e, wide(alive) & (e < SIZE)
    if ROW0 != 0:
        anchor = anchors(x0, n, N, e, SIZE, TOGETHER, D, ROW0, F)
        far0 = farthest(anchor)
    row, row0, far = known * SIZE, known * ROW0, farthest(point)
    size = far if TOGETHER else tl.maximum(far, far0)
    plain = (size < FAST) | ~alive
    if AGAIN:
        if ROWL != 0:
            most = limits(lengths, each(known), link, M, ROWL, F)
            inverse, least = inverses(most)  # type: ignore[misc]
        eta, which, _point, usual = weighed(  # type: ignore[misc]
            x, each(row), x0, each(row0), point, anchor, far0, alive, link, i, j, whole, most, inverse, least,
            True, M, TOGETHER, STRICT, D, ENDS, PAIRED, F, U, NARROW, SMALLEST, NORMAL, HUGE, SHIFT, EXTREME,
        )  # fmt: skip
        plain &= usual
    else:
        eta, which = tl.load(weight + known), tl.load(active + known)
    one, other, longest = _chosen(links, lengths, known, which, BODIES, ROWL, F)  # type: ignore[misc]
    t = tl.full((B,), 1.0, F)
    if EXTREME:
        t = tl.where(far > HUGE, HUGE / tl.where(far > HUGE, far, HUGE), 1.0)
        point = tl.where(wide(t) == 1, point, between(anchor, point, wide(t)))
    body, c = e // D, e % D
    along, long, inverted, along0, long0, inverted0, fine = _measured(  # type: ignore[misc]
        x, row, x0, row0, one, other, c, t, TOGETHER, D, F, FAST, SHIFT, EXTREME
    )
    plain &= fine | (which < 0) | ~alive
    s = total(incoming * (point - anchor))
    pull, push = _slopes(  # type: ignore[misc]
        s, which >= 0, long, inverted, long0, inverted0, longest, STRICT, D, U
    )
    here, there = body == wide(one), body == wide(other)
    write(dx, at, _pushed(t * eta, incoming, pull, wide(t) * along, here, there), within, SIZE)
    if ANCHORED:
        outer = wide(1 - eta) * incoming + _pushed((1 - t) * eta, incoming, (1 - t) * pull, along, here, there)
        if not TOGETHER:
            outer = _pushed(tl.full((B,), 1.0, F), outer, push, along0, here, there)
        write(dx0, at, outer, within, SIZE)
    return plain


@triton.jit
def _pushed(eta, incoming, push, along, here, there):
    """eta g, and one end of a link pushed along it, the other against it."""
    end = tl.where(here, wide(push), 0.0) - tl.where(there, wide(push), 0.0)
    return tl.fma(end, along, wide(eta) * incoming)

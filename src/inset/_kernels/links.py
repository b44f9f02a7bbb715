"""Kernels for `Strings`: y = x0 + eta (x - x0) with the weight of `chord`, and its derivative.

With a = h_l(x0) and b = h_l(x) of the link l that sets it, eta = a / (a - b); s = <g, x - x0> for an incoming g, and n
the derivative of a length by the positions:

    dx = eta g + s a / (a - b)^2 n_l(x),    dx0 = (1 - eta) g - s b / (a - b)^2 n_l(x0).

The margin of `strict` is that of `_strict.py`; the displacement of a body is bounded by the largest in the sample.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import between, divided, quotient, root
from ._rows import moved
from ._tiles import each, first, greatest, summed


@triton.jit
def _ends(x, row, i, j, D: tl.constexpr, F: tl.constexpr):
    """p_i and p_j of links `(K, 1, RUN)` in the samples at `row`, `(1, B, 1)`."""
    SIDE: tl.constexpr = triton.next_power_of_2(D)
    c = tl.arange(0, SIDE)[None, None, None, :]
    at, there = x + row[:, :, :, None], (i + row)[:, :, :, None] * 0 + c < D
    first = tl.load(at + (i[:, :, :, None] * D + c), there, other=0.0)
    second = tl.load(at + (j[:, :, :, None] * D + c), there, other=0.0)
    return first.to(F), second.to(F)


@triton.jit
def _square(x, row, i, j, D: tl.constexpr, F: tl.constexpr):
    """|p_i - p_j|^2; it may overflow."""
    first, second = _ends(x, row, i, j, D, F)  # type: ignore[misc]
    return tl.sum((first - second) * (first - second), axis=3)


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
    first, second = _ends(x, row, i, j, D, F)  # type: ignore[misc]
    if TOGETHER:
        middle, _middle = _ends(x0, row0, 0 * i, 0 * i, D, F)  # type: ignore[misc]
        first0, second0 = middle, middle
    else:
        first0, second0 = _ends(x0, row0, i, j, D, F)  # type: ignore[misc]
    wide = each(t)[:, :, :, None]
    return _length(between(first0, first, wide) - between(second0, second, wide)), _length(first0 - second0)


@triton.jit
def _tile(x, k, N, B: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """The numbers of tile k, asked for before they are needed."""
    n, e = (k * B + tl.arange(0, B)).to(tl.int64), tl.arange(0, WIDTH)
    return tl.load(x + n[:, None] * SIZE + e[None, :], (n < N)[:, None] & (e < SIZE)[None, :], other=0.0)


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
    return s, first(ratio == each(s), link), greatest(tl.where((link < M) & ((h != h) | ~(h0 < 0)), 1, 0)) == 0


@triton.jit
def _kept(
    eta, far, far0, least, most, long0, link,
    M: tl.constexpr, TOGETHER: tl.constexpr, D: tl.constexpr, ENDS: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
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
        error = fixed + (4.04 * K + 2 * U) * least + slip
        depth = least - 2 * fixed
        return quotient(depth, depth + error), depth > 0
    else:
        fixed = 4 * K * (long0 + most) + each(slip0)
        error = fixed + 4.04 * K * most + each(slip)
        depth = most - long0 - 2 * fixed
        room = greatest(tl.where(link < M, -depth / error, -float("inf")))
        return 1 - 1 / (1 - room), greatest(tl.where((link < M) & ~(depth > 0), 1, 0)) == 0


@triton.jit
def forward(
    x, x0, links, lengths, y, weight, active, N,
    BODIES: tl.constexpr, D: tl.constexpr, M: tl.constexpr, TOGETHER: tl.constexpr, ROW0: tl.constexpr,
    ROWL: tl.constexpr, STRICT: tl.constexpr, ENDS: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr,
    LINKS: tl.constexpr, LANES: tl.constexpr, F: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
    SMALLEST: tl.constexpr, NORMAL: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """y, eta, and the link that set it or -1; M of the LINKS are there, and ENDS is 2 sqrt(D)."""
    SIZE: tl.constexpr = BODIES * D
    # links of a sample that lanes take at once: as many as there are lanes, or so many that each lane has one sample
    RUN: tl.constexpr = min(LINKS, LANES if LINKS >= 32 else max(LANES // B, 1))  # type: ignore[assignment]
    FAST: tl.constexpr = SHIFT**0.5 / 64  # coordinates below it have squares
    K: tl.constexpr = U * (D / 2 + 10) if STRICT else 0.0  # type: ignore[assignment]
    e, link = tl.arange(0, WIDTH), tl.arange(0, LINKS // RUN)[:, None, None] * RUN + tl.arange(0, RUN)[None, None, :]
    i = tl.load(links + 2 * link, link < M, other=0).to(tl.int32)
    j = tl.load(links + 2 * link + 1, link < M, other=0).to(tl.int32)
    whole = greatest(tl.maximum(i, j)) < BODIES
    i, j = tl.minimum(i, BODIES - 1), tl.minimum(j, BODIES - 1)
    place = (e % D if TOGETHER else e)[None, :]
    if ROWL == 0:
        most = tl.load(lengths + link, link < M, other=1e30).to(F)
        inverse, least = 1 / most, -greatest(-most)
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
        known = each(tl.minimum(n, N - 1))  # samples that there are
        if ROWL != 0:
            most = tl.load(lengths + known * ROWL + link, (link < M) & (known >= 0), other=1e30).to(F)
            inverse, least = 1 / most, -greatest(-most)
        if ROW0 != 0:
            anchor = tl.load(x0 + n[:, None] * ROW0 + place, within, other=0.0).to(F)
            far0 = tl.max(tl.abs(anchor), axis=1)
        far, t = tl.max(tl.abs(point), axis=1), tl.full((B,), 1.0, F)
        square = _square(x, known * SIZE, i, j, D, F)
        if TOGETHER:
            long0 = tl.zeros_like(square)
            ratio = square * (inverse * inverse)
            top = greatest(ratio)
            # h_l / most_l, with the lengths rounded up
            s, which = (tl.sqrt(top) if STRICT else root(top)) * (1 + K) - (1 - K), first(ratio == each(top), link)
            sound = summed(ratio) < float("inf")
        else:
            long0 = root(_square(x0, known * ROW0, i, j, D, F))
            s, which, sound = _worst(  # type: ignore[misc]
                root(square), long0, most, inverse, link, M, TOGETHER, STRICT, D, U
            )
        plain = (far < FAST) & (far0 < FAST) & (least > 1 / FAST) & (s < float("inf"))
        if tl.min(tl.where(plain | ~alive, 1, 0), axis=0) == 0:
            t = tl.where(far > HUGE, HUGE / tl.where(far > HUGE, far, HUGE), 1.0)
            long, long0 = _lengths(  # type: ignore[misc]
                x, known * SIZE, x0, known * ROW0, i, j, t, TOGETHER, D, F
            )
            over, worst, good = _worst(  # type: ignore[misc]
                long, long0, most, inverse, link, M, TOGETHER, STRICT, D, U
            )
            s, which, sound = tl.where(plain, s, over), tl.where(plain, which, worst), tl.where(plain, sound, good)
        outside = s > 0
        eta = quotient(tl.full((B,), 1.0, F), tl.where(outside, 1 + s, 1.0))
        if STRICT:
            kept, certain = _kept(
                eta, tl.minimum(far, HUGE), far0, least, most, long0, link, M, TOGETHER, D, ENDS, U, NARROW, SMALLEST
            )
            eta = tl.where(certain, tl.where(outside | (t < 1), eta * kept, 1.0), float("nan"))
        eta = tl.where(eta < NORMAL, 0.0, eta)  # below that a weight is not exact
        eta = tl.where(whole & sound, eta, float("nan"))
        # x is read again: what was read last decides how a compiler shares out the numbers, and these are the most
        given = tl.load(x + at, within, other=0.0).to(F)
        tl.store(y + at, moved(anchor, moved(anchor, given, t), eta), within)
        tl.store(weight + n, eta, alive)
        tl.store(active + n, tl.where(outside, which, -1), alive)


@triton.jit
def _span(x, row, i, j, q, D: tl.constexpr, F: tl.constexpr):
    """Coordinate q of p_i and of p_j, a link for each sample."""
    return tl.load(x + row + i * D + q).to(F), tl.load(x + row + j * D + q).to(F)


@triton.jit
def _both_lengths(x, row, x0, row0, i, j, t, up, TOGETHER: tl.constexpr, D: tl.constexpr, F: tl.constexpr):
    """The length of a link for each sample, at the point and at the anchor, by numbers scaled by `up` on the way."""
    square, square0 = tl.zeros_like(t), tl.zeros_like(t)
    for q in tl.static_range(D):
        span, span0 = _pulled(x, row, x0, row0, i, j, q, t, TOGETHER, D, F)  # type: ignore[misc]
        square, square0 = square + (span * up) * (span * up), square0 + (span0 * up) * (span0 * up)
    return root(square) / up, root(square0) / up


@triton.jit
def _pulled(x, row, x0, row0, i, j, q, t, TOGETHER: tl.constexpr, D: tl.constexpr, F: tl.constexpr):
    """Coordinate q of p_i - p_j, at the point, which is pulled back by t, and at the anchor."""
    first, second = _span(x, row, i, j, q, D, F)  # type: ignore[misc]
    if TOGETHER:
        return t * first - t * second, tl.zeros_like(t)
    else:
        first0, second0 = _span(x0, row0, i, j, q, D, F)  # type: ignore[misc]
        return t * first - t * second + (1 - t) * (first0 - second0), first0 - second0


@triton.jit
def backward(
    g, x, x0, links, lengths, weight, active, dx, dx0, N,
    BODIES: tl.constexpr, D: tl.constexpr, TOGETHER: tl.constexpr, ROW0: tl.constexpr, ROWL: tl.constexpr,
    STRICT: tl.constexpr, ANCHORED: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr, F: tl.constexpr,
    U: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """The derivatives by x and, if ANCHORED, by the anchor."""
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
        known = tl.minimum(n, N - 1)
        row, row0 = known * SIZE, known * ROW0
        eta, which = tl.load(weight + known), tl.load(active + known)
        outside = which >= 0
        link = tl.where(outside, which, 0)
        i = tl.minimum(tl.load(links + 2 * link).to(tl.int32), BODIES - 1)
        j = tl.minimum(tl.load(links + 2 * link + 1).to(tl.int32), BODIES - 1)
        most = tl.load(lengths + known * ROWL + link).to(F)
        size, t, up = tl.sum(tl.abs(point), axis=1), tl.full((B,), 1.0, F), tl.full((B,), 1.0, F)
        if tl.min(tl.where((size < FAST) & (size > 1 / FAST) | ~alive, 1, 0), axis=0) == 0:
            far = tl.max(tl.abs(point), axis=1)
            t = tl.where(far > HUGE, HUGE / tl.where(far > HUGE, far, HUGE), 1.0)
            up = tl.where(far > FAST, 1 / SHIFT, tl.where(alive & (far < 1 / FAST), SHIFT, 1.0)).to(F)
            point = tl.where(t[:, None] == 1, point, between(anchor, point, t[:, None]))
        long, long0 = _both_lengths(x, row, x0, row0, i, j, t, up, TOGETHER, D, F)  # type: ignore[misc]
        a, b = long0 - most, long - most
        if STRICT:
            b += U * (D / 2 + 6) * (long + most)
        b = tl.where(outside, b, 0.0)
        along = tl.sum(incoming * (point - anchor), axis=1)
        # the quotients one after another: (a - b)^2 may overflow
        over = along / (a - b)
        pull = tl.where(outside, over * (a / (a - b)) / tl.where(long > 0, long, 1.0), 0.0)
        push = tl.where(outside, -over * (b / (a - b)) / tl.where(long0 > 0, long0, 1.0), 0.0)
        inner, outer = eta[:, None] * incoming, (1 - eta[:, None]) * incoming
        here, there = body == i[:, None], body == j[:, None]
        for q in tl.static_range(D):
            span, span0 = _pulled(x, row, x0, row0, i, j, q, t, TOGETHER, D, F)  # type: ignore[misc]
            pulled, pushed = (pull * span)[:, None], (push * span0)[:, None]
            inner += tl.where((c == q) & here, pulled, 0.0) - tl.where((c == q) & there, pulled, 0.0)
            if ANCHORED and not TOGETHER:
                outer += tl.where((c == q) & here, pushed, 0.0) - tl.where((c == q) & there, pushed, 0.0)
        tl.store(dx + at, t[:, None] * inner, within)
        if ANCHORED:
            outer += (1 - t[:, None]) * inner
            if TOGETHER:
                for q in tl.static_range(D):
                    total = tl.sum(tl.where(within & (c == q), outer, 0.0), axis=1)
                    tl.store(dx0 + n * D + q, total, alive)
            else:
                tl.store(dx0 + at, outer, within)

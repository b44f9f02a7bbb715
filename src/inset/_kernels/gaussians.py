"""Trust regions around diagonal Gaussians: `GaussianKL` with the weights of `chord` and `ray`, and their derivatives.

With z = (m - mq) / std and e the relative change of each scale, h = (sum phi(e) + |z|^2) / 2 - epsilon; |z|^2 is a mean
over STATES, if those share a covariance. `ray` goes to the root of h on the line from the anchor by Newton steps,
and from there, as `chord` from x, along the chord, with the margin of `_strict.py`. With s = <g, x - x0> for an
incoming g, the derivatives are

    chord: eta g + s a / (a - b)^2 dh(x) with a = h(x0), b = h(x);    ray: eta g - s eta dh(y) / <dh(y), x - x0>.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import quotient, reciprocal
from ._policies import LOGARITHM, changes, crossing, evaluated, filled, loaded, plain, within
from ._policy_margins import above, bound, everywhere
from ._rows import moved, read, tile, write


@triton.jit
def _fields(
    m0, s0, mq, sq, epsilon, n, N,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, ROWM: tl.constexpr, ROWS: tl.constexpr,
    ROWQ: tl.constexpr, ROWC: tl.constexpr, ROWE: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr,
    STRICT: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr, NORMAL: tl.constexpr,
):  # fmt: skip
    """What is `loaded` and, of the margin, the factor by which eta shrinks, whether the anchor is certainly inside, and

    the largest old logarithm.
    """
    mean0, spread0, center, old, inverse, scale, most, cut, a = loaded(  # type: ignore[misc]
        m0, s0, mq, sq, epsilon, n, N, KIND, D, STATES, ROWM, ROWS, ROWQ, ROWC, ROWE, WIDTH, WIDE
    )
    far = tl.max(tl.abs(old), axis=1) if KIND == LOGARITHM else 0.0 * most
    if STRICT:
        fixed = bound(mean0, spread0, center, old, inverse, scale, most, KIND, D, STATES, U, NARROW, SMALLEST)
        error = fixed + everywhere(
            mean0, spread0, center, old, inverse, scale, most, fixed, KIND, D, STATES, U, NARROW, SMALLEST
        )
        kept, certain = 1 - 1 / (1 + (-a - 2 * fixed) / error), -a > 2 * fixed
        if KIND != LOGARITHM:  # scales that are no normal numbers are not known well
            certain &= tl.min(old, axis=1) >= NORMAL
    else:
        kept, certain = 1.0 + 0 * a, a < 0
    return mean0, spread0, center, old, inverse, scale, most, cut, a, kept, certain, far


@triton.jit
def _raised(
    z, e, spread, old, scale, most, cut, far,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, STRICT: tl.constexpr, U: tl.constexpr,
    SERIES: tl.constexpr,
):  # fmt: skip
    """h, or if STRICT an upper bound of it."""
    if STRICT:
        return above(z, e, spread, old, scale, most, cut, far, KIND, D, STATES, U, SERIES)
    else:
        b, _slope = evaluated(z, e, most, cut, KIND, STATES, SERIES)  # type: ignore[misc]
        return b


@triton.jit
def _weight(a, b, outside, t, kept, certain, STRICT: tl.constexpr, PULLED: tl.constexpr):
    """eta: that of the chord, unless the point is on the boundary by now and not to be PULLED any further."""
    c = tl.where(outside & (b > 0) & PULLED, b, 0.0)
    eta = tl.where(c > 0, quotient(tl.zeros_like(c) - a, c - a), 1.0)
    if STRICT:
        eta = tl.where(outside | (t < 1), eta * kept, 1.0)
    return tl.where(certain & (b == b), eta, float("nan"))


@triton.jit
def forward(
    m, s, m0, s0, mq, sq, epsilon, y, v, weight, N,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, ROWM: tl.constexpr, ROWS: tl.constexpr,
    ROWQ: tl.constexpr, ROWC: tl.constexpr, ROWE: tl.constexpr, SHARED: tl.constexpr, STRICT: tl.constexpr,
    RAY: tl.constexpr, AGAIN: tl.constexpr, B: tl.constexpr, EACH: tl.constexpr, STAGES: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr,
    NORMAL: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """The means y and the scales v of the result and, unless it is found AGAIN, eta."""
    ALL: tl.constexpr = D * STATES
    if SHARED:
        mean0, spread0, center, old, inverse, scale, most, cut, a, kept, certain, far = _fields(  # type: ignore[misc]
            m0, s0, mq, sq, epsilon, 0, N, KIND, D, STATES, ROWM, ROWS, ROWQ, ROWC, ROWE, WIDTH, WIDE, STRICT, U,
            NARROW, SMALLEST, NORMAL,
        )  # fmt: skip
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        n = (k * B + tl.arange(0, B)).to(tl.int64)
        alive = n < N
        at, mask = tile(k, N, B, WIDTH, D, EACH)
        place, wide = tile(k, N, B, WIDE, ALL, EACH)
        if not SHARED:
            mean0, spread0, center, old, inverse, scale, most, cut, a, kept, certain, far = _fields(
                m0, s0, mq, sq, epsilon, n, N, KIND, D, STATES, ROWM, ROWS, ROWQ, ROWC, ROWE, WIDTH, WIDE, STRICT, U,
                NARROW, SMALLEST, NORMAL,
            )  # fmt: skip
        mean, spread = read(m, place, wide, B), read(s, at, mask, B)
        mean, spread = filled(mean, wide, center, ALL), filled(spread, mask, old, D)
        z, e = changes(mean, spread, center, old, inverse, scale, KIND)  # type: ignore[misc]
        b = _raised(z, e, spread, old, scale, most, cut, far, KIND, D, STATES, STRICT, U, True)
        t = tl.full((B,), 1.0, tl.float32)
        fine = plain(b, e, KIND, STATES)
        if tl.min(tl.where(fine | ~alive, 1, 0), axis=0) == 0:
            mean, spread, t, z, e = within(mean, spread, fine, mean0, spread0, center, old, inverse, scale, KIND, HUGE)
            b = _raised(z, e, spread, old, scale, most, cut, far, KIND, D, STATES, STRICT, U, False)
        outside, step = b > 0, tl.full(b.shape, 1.0, tl.float32)
        if RAY:
            z0, e0 = changes(mean0, spread0, center, old, inverse, scale, KIND)
            step = tl.where(outside, crossing(z0, e0, z, e, most, cut, KIND, STATES, U), step)
            mean, spread = moved(mean0, mean, step), moved(spread0, spread, step)
            z, e = changes(mean, spread, center, old, inverse, scale, KIND)
            if STRICT:
                b = above(z, e, spread, old, scale, most, cut, far, KIND, D, STATES, U, False)
        eta = _weight(a, b, outside, t, kept, certain, STRICT, STRICT or not RAY)
        write(y, place, moved(mean0, mean, eta), wide)
        write(v, at, moved(spread0, spread, eta), mask)
        if not AGAIN:
            tl.store(weight + n, eta * step, alive)


@triton.jit
def backward(
    gm, gs, m, s, m0, s0, mq, sq, epsilon, weight, dm, ds, N,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, ROWM: tl.constexpr, ROWS: tl.constexpr,
    ROWQ: tl.constexpr, ROWC: tl.constexpr, ROWE: tl.constexpr, SHARED: tl.constexpr, STRICT: tl.constexpr,
    RAY: tl.constexpr, AGAIN: tl.constexpr, B: tl.constexpr, EACH: tl.constexpr, STAGES: tl.constexpr,
    WIDTH: tl.constexpr, WIDE: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr,
    NORMAL: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """The derivatives by the means and by the scales."""
    ALL: tl.constexpr = D * STATES
    if SHARED:
        mean0, spread0, center, old, inverse, scale, most, cut, a, kept, certain, far = _fields(  # type: ignore[misc]
            m0, s0, mq, sq, epsilon, 0, N, KIND, D, STATES, ROWM, ROWS, ROWQ, ROWC, ROWE, WIDTH, WIDE, STRICT, U,
            NARROW, SMALLEST, NORMAL,
        )  # fmt: skip
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        n = (k * B + tl.arange(0, B)).to(tl.int64)
        alive = n < N
        at, mask = tile(k, N, B, WIDTH, D, EACH)
        place, wide = tile(k, N, B, WIDE, ALL, EACH)
        if not SHARED:
            mean0, spread0, center, old, inverse, scale, most, cut, a, kept, certain, far = _fields(
                m0, s0, mq, sq, epsilon, n, N, KIND, D, STATES, ROWM, ROWS, ROWQ, ROWC, ROWE, WIDTH, WIDE, STRICT, U,
                NARROW, SMALLEST, NORMAL,
            )  # fmt: skip
        mean, spread = read(m, place, wide, B), read(s, at, mask, B)
        mean, spread = filled(mean, wide, center, ALL), filled(spread, mask, old, D)
        pushed = read(gm, place, wide, B).to(tl.float32)
        bent = read(gs, at, mask, B).to(tl.float32)
        z, e = changes(mean, spread, center, old, inverse, scale, KIND)  # type: ignore[misc]
        b, slope = evaluated(z, e, most, cut, KIND, STATES, True)  # type: ignore[misc]
        raised = _raised(z, e, spread, old, scale, most, cut, far, KIND, D, STATES, STRICT, U, True)
        t = tl.full((B,), 1.0, tl.float32)
        fine = plain(raised if AGAIN else b, e, KIND, STATES)
        if tl.min(tl.where(fine | ~alive, 1, 0), axis=0) == 0:
            mean, spread, t, z, e = within(mean, spread, fine, mean0, spread0, center, old, inverse, scale, KIND, HUGE)
            b, slope = evaluated(z, e, most, cut, KIND, STATES, False)
            raised = _raised(z, e, spread, old, scale, most, cut, far, KIND, D, STATES, STRICT, U, False)
        if AGAIN:
            eta = _weight(a, raised, raised > 0, t, kept, certain, STRICT, True)
        else:
            eta = tl.load(weight + n, alive, other=1.0)
        outside = eta != 1  # as decided there
        along = tl.sum(pushed * (mean - mean0), axis=1) + tl.sum(bent * (spread - spread0), axis=1)
        if RAY:
            # not those of y itself, in which far from the origin rounding is large beside the way from the old policy
            z0, e0 = changes(mean0, spread0, center, old, inverse, scale, KIND)
            z, e = tl.fma(eta[:, None], z - z0, z0), tl.fma(eta[:, None], e - e0, e0)
            b, slope = evaluated(z, e, most, cut, KIND, STATES, False)
        up, out = z * inverse / STATES, slope * scale / 2
        if RAY:
            steep = tl.sum(up * (mean - mean0), axis=1) + tl.sum(out * (spread - spread0), axis=1)
            over = tl.where(outside, -along / tl.where(steep > 0, steep, float("inf")) * eta, 0.0)[:, None]
        else:
            # small times large, one after another: (b - a)^2 may overflow, its inverse vanish
            part = reciprocal(tl.where(outside, b - a, 1.0))
            over = tl.where(outside, along * part * (a * part), 0.0)[:, None]
        inner, over = (t * eta)[:, None], t[:, None] * over
        write(dm, place, inner * pushed + over * up, wide)
        write(ds, at, inner * bent + over * out, mask)

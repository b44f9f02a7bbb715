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

from ._arithmetic import divided
from ._policies import above, bound, changes, crossing, evaluated, height, loaded, tangent_point, within
from ._rows import moved, tile


@triton.jit
def forward(
    m, s, m0, s0, mq, sq, epsilon, y, v, weight, N,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, ROWM: tl.constexpr, ROWS: tl.constexpr,
    ROWQ: tl.constexpr, ROWC: tl.constexpr, ROWE: tl.constexpr, SHARED: tl.constexpr, STRICT: tl.constexpr,
    RAY: tl.constexpr, B: tl.constexpr, STAGES: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr, U: tl.constexpr,
    NARROW: tl.constexpr, SMALLEST: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """The means y and the scales v of the result, and eta."""
    ALL: tl.constexpr = D * STATES
    if SHARED:
        mean0, spread0, center, old, inverse, scale, most = loaded(  # type: ignore[misc]
            m0, s0, mq, sq, epsilon, 0, N, KIND, D, ALL, ROWM, ROWS, ROWQ, ROWC, ROWE, WIDTH, WIDE
        )
        cut = tangent_point(most, KIND)
        a = height(mean0, spread0, center, old, inverse, scale, most, cut, KIND, STATES)
        fixed = bound(
            mean0, spread0, mean0, spread0, center, old, inverse, scale, most, KIND, D, STATES, 4, U, NARROW, SMALLEST
        )
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        n, alive, at, mask = tile(k, N, B, WIDTH, D)
        _n, _alive, place, wide = tile(k, N, B, WIDE, ALL)
        if not SHARED:
            mean0, spread0, center, old, inverse, scale, most = loaded(
                m0, s0, mq, sq, epsilon, n, N, KIND, D, ALL, ROWM, ROWS, ROWQ, ROWC, ROWE, WIDTH, WIDE
            )
            cut = tangent_point(most, KIND)
            a = height(mean0, spread0, center, old, inverse, scale, most, cut, KIND, STATES)
            fixed = bound(
                mean0,
                spread0,
                mean0,
                spread0,
                center,
                old,
                inverse,
                scale,
                most,
                KIND,
                D,
                STATES,
                4,
                U,
                NARROW,
                SMALLEST,
            )
        mean = tl.load(m + place, wide, other=0.0).to(tl.float32)
        spread = tl.load(s + at, mask, other=0.0).to(tl.float32)
        if WIDE > ALL:
            mean = tl.where(wide, mean, center)
        if WIDTH > D:
            spread = tl.where(mask, spread, old)
        mean, spread, t, z, e = within(mean, spread, mean0, spread0, center, old, inverse, scale, KIND, HUGE)
        if STRICT:
            b = above(z, e, spread, old, scale, most, cut, KIND, D, STATES, U)
        else:
            b, _slope = evaluated(z, e, most, cut, KIND, STATES)
        outside, step = b > 0, tl.full(b.shape, 1.0, tl.float32)
        if RAY:
            z0, e0 = changes(mean0, spread0, center, old, inverse, scale, KIND)
            step = tl.where(outside, crossing(z0, e0, z, e, most, cut, KIND, STATES, U), step)
            mean, spread = moved(mean0, mean, step), moved(spread0, spread, step)
            z, e = changes(mean, spread, center, old, inverse, scale, KIND)
            if STRICT:
                b = above(z, e, spread, old, scale, most, cut, KIND, D, STATES, U)
        c = tl.where(outside & (b > 0) & (STRICT or not RAY), b, 0.0)
        eta = divided(a + tl.zeros_like(c), a - c)
        if STRICT:
            error = fixed + bound(
                moved(mean0, mean, eta), moved(spread0, spread, eta), mean0, spread0, center, old, inverse, scale, most,
                KIND, D, STATES, 2, U, NARROW, SMALLEST,
            )  # fmt: skip
            eta = tl.where(outside | (t < 1), eta * (1 - 1 / (1 + (-a - 2 * fixed) / error)), 1.0)
        certain = -a > (2 * fixed if STRICT else 0.0)
        eta = tl.where(certain & (b == b), eta, float("nan"))
        tl.store(y + place, moved(mean0, mean, eta), wide)
        tl.store(v + at, moved(spread0, spread, eta), mask)
        tl.store(weight + n, eta * step, alive)


@triton.jit
def backward(
    gm, gs, m, s, m0, s0, mq, sq, epsilon, weight, dm, ds, N,
    KIND: tl.constexpr, D: tl.constexpr, STATES: tl.constexpr, ROWM: tl.constexpr, ROWS: tl.constexpr,
    ROWQ: tl.constexpr, ROWC: tl.constexpr, ROWE: tl.constexpr, SHARED: tl.constexpr, RAY: tl.constexpr,
    B: tl.constexpr, STAGES: tl.constexpr, WIDTH: tl.constexpr, WIDE: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """The derivatives by the means and by the scales."""
    ALL: tl.constexpr = D * STATES
    if SHARED:
        mean0, spread0, center, old, inverse, scale, most = loaded(  # type: ignore[misc]
            m0, s0, mq, sq, epsilon, 0, N, KIND, D, ALL, ROWM, ROWS, ROWQ, ROWC, ROWE, WIDTH, WIDE
        )
        cut = tangent_point(most, KIND)
        a = height(mean0, spread0, center, old, inverse, scale, most, cut, KIND, STATES)
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        n, alive, at, mask = tile(k, N, B, WIDTH, D)
        _n, _alive, place, wide = tile(k, N, B, WIDE, ALL)
        if not SHARED:
            mean0, spread0, center, old, inverse, scale, most = loaded(
                m0, s0, mq, sq, epsilon, n, N, KIND, D, ALL, ROWM, ROWS, ROWQ, ROWC, ROWE, WIDTH, WIDE
            )
            cut = tangent_point(most, KIND)
            a = height(mean0, spread0, center, old, inverse, scale, most, cut, KIND, STATES)
        mean = tl.load(m + place, wide, other=0.0).to(tl.float32)
        spread = tl.load(s + at, mask, other=0.0).to(tl.float32)
        if WIDE > ALL:
            mean = tl.where(wide, mean, center)
        if WIDTH > D:
            spread = tl.where(mask, spread, old)
        pushed = tl.load(gm + place, wide, other=0.0).to(tl.float32)
        bent = tl.load(gs + at, mask, other=0.0).to(tl.float32)
        eta = tl.load(weight + n, alive, other=1.0)
        mean, spread, t, z, e = within(mean, spread, mean0, spread0, center, old, inverse, scale, KIND, HUGE)
        outside = eta != 1  # as decided there
        along = tl.sum(pushed * (mean - mean0), axis=1) + tl.sum(bent * (spread - spread0), axis=1)
        if RAY:
            z, e = changes(moved(mean0, mean, eta), moved(spread0, spread, eta), center, old, inverse, scale, KIND)
        b, slope = evaluated(z, e, most, cut, KIND, STATES)
        up, out = z * inverse / STATES, slope * scale / 2
        if RAY:
            steep = tl.sum(up * (mean - mean0), axis=1) + tl.sum(out * (spread - spread0), axis=1)
            over = tl.where(outside, -along / tl.where(steep > 0, steep, float("inf")) * eta, 0.0)[:, None]
        else:
            # small times large, one after another: (a - b)^2 may overflow, its inverse vanish
            over = tl.where(outside, along / (a - b) * (a / (a - b)), 0.0)[:, None]
        tl.store(dm + place, t[:, None] * (eta[:, None] * pushed + over * up), wide)
        tl.store(ds + at, t[:, None] * (eta[:, None] * bent + over * out), mask)

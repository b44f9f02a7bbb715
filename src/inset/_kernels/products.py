"""A x <= b: `Polytope` with one anchor; y = x0 + eta (x - x0) and its derivative, without ever storing A x.

With d = b - A x0, s = max_i (A x - b)_i / d_i and eta = 1 / (1 + s); with i the row that sets it and t = <g, x - x0>
for an incoming g,

    dx = eta g - t / (1 + s)^2 A_i / d_i.

Tensor cores multiply numbers of 11 bits, so that a float32 number is the sum of two of them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import divided
from ._rows import moved, near, norm


@triton.jit
def points(x, n, N, anchor, D: tl.constexpr, WIDTH: tl.constexpr, HUGE: tl.constexpr):
    """The points of a tile, and by what factor they were pulled back: 1, but for huge ones."""
    e = tl.arange(0, WIDTH)
    point = tl.load(x + n[:, None] * D + e[None, :], (n < N)[:, None] & (e < D)[None, :], other=0.0).to(tl.float32)
    t = tl.full((point.shape[0],), 1.0, tl.float32)
    if ~(tl.max(tl.max(tl.abs(point), axis=1), axis=0) <= HUGE):
        point, t = near(point, anchor, HUGE)
    return point, t


@triton.jit
def rounded(v):
    """The nearest numbers of 11 bits, which tensor cores multiply exactly."""
    return ((v.to(tl.int32, bitcast=True) + 0x1000) & -0x2000).to(tl.float32, bitcast=True)


@triton.jit
def product(big, small, upper, lower, row, there, e, D: tl.constexpr):
    """Points (big + small) times rows (upper + lower), `(B, rows)`; without the products of the lower halves."""
    at, mask = row[None, :] * D + e[:, None], there[None, :] & (e < D)[:, None]
    high, low = tl.load(upper + at, mask, other=0.0), tl.load(lower + at, mask, other=0.0)
    value = tl.dot(big, low, input_precision="tf32")
    value = tl.dot(small, high, value, input_precision="tf32")
    return tl.dot(big, high, value, input_precision="tf32")


@triton.jit
def settle(
    best, turn, margin, point, t, anchor, length, y, weight, raw, active, n, N,
    D: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, STRICT: tl.constexpr,
):  # fmt: skip
    """Store y, eta, 1 / (1 + s) or 0 inside, and the constraint that sets s = max `best`, in block `turn`."""
    s, column = tl.max(best, axis=1, return_indices=True)  # type: ignore[misc]
    which = column + tl.sum(tl.where(tl.arange(0, COLUMNS)[None, :] == column[:, None], turn, 0), axis=1)
    p, q, size = tl.load(margin), tl.load(margin + 1), tl.load(margin + 2)
    inside, alive, e = s <= 0, n < N, tl.arange(0, WIDTH)
    out = divided(tl.full(s.shape, 1.0, tl.float32), 1 + tl.where(inside, 0.0, s))
    eta = tl.where(inside & (t == 1), 1.0, divided(out, 1 + p + q * (size + out * length))) if STRICT else out
    sure = p + 0 * length
    eta = tl.where(sure == sure, eta, float("nan"))
    at, mask = n[:, None] * D + e[None, :], alive[:, None] & (e < D)[None, :]
    tl.store(y + at, moved(anchor, point, eta), mask)
    tl.store(weight + n, eta, alive)
    tl.store(raw + n, tl.where(inside, 0.0, out), alive)
    tl.store(active + n, which, alive)


@triton.jit
def forward(
    x, x0, upper, lower, offset, slope, margin, y, weight, raw, active, N,
    M: tl.constexpr, D: tl.constexpr, STRICT: tl.constexpr, B: tl.constexpr, COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """y, eta, 1 / (1 + s) or 0 inside, and the row that sets it.

    `upper` + `lower` is A / d, and `offset` -b / d with, if STRICT, what rounding adds to it, `slope` what it adds per
    unit of |x|; `margin` has p, q and |x0| of the error p + q (|x0| + |y|) at y in units of the depth. p is NaN if the
    anchor is not certainly inside.
    """
    n = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    e = tl.arange(0, WIDTH)
    anchor = tl.load(x0 + e, e < D, other=0.0).to(tl.float32)[None, :]
    point, t = points(x, n, N, anchor, D, WIDTH, HUGE)  # type: ignore[misc]
    length = norm(point, SHIFT)
    big = rounded(point)
    best = tl.full((B, COLUMNS), float("-inf"), tl.float32)
    turn = tl.zeros((B, COLUMNS), tl.int32)
    for first in range(0, M, COLUMNS):
        j = first + tl.arange(0, COLUMNS)
        value = product(big, point - big, upper, lower, j, j < M, e, D)
        value += tl.load(offset + j, j < M, other=float("-inf"))[None, :]
        if STRICT:
            value += length[:, None] * tl.load(slope + j, j < M, other=0.0)[None, :]
        turn = tl.where(value > best, first, turn)
        best = tl.maximum(best, value)
    settle(best, turn, margin, point, t, anchor, length, y, weight, raw, active, n, N, D, COLUMNS, WIDTH, STRICT)


@triton.jit
def backward(
    g, x, A, x0, inverse, weight, raw, active, dx, N,
    D: tl.constexpr, B: tl.constexpr, STAGES: tl.constexpr, WIDTH: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """The derivative by x."""
    e = tl.arange(0, WIDTH)
    anchor = tl.load(x0 + e, e < D, other=0.0).to(tl.float32)[None, :]
    for k in tl.range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0), num_stages=STAGES):  # type: ignore[misc]
        n = (k * B + tl.arange(0, B)).to(tl.int64)
        alive = n < N
        at, mask = n[:, None] * D + e[None, :], alive[:, None] & (e < D)[None, :]
        point, t = points(x, n, N, anchor, D, WIDTH, HUGE)
        incoming = tl.load(g + at, mask, other=0.0).to(tl.float32)
        eta, out = tl.load(weight + n, alive, other=1.0), tl.load(raw + n, alive, other=0.0)
        i = tl.load(active + n, alive, other=0)
        row = tl.load(A + i[:, None] * D + e[None, :], mask, other=0.0)
        along = tl.sum(incoming * (point - anchor), axis=1)
        push = along * out * out * tl.load(inverse + i, alive, other=0.0)
        tl.store(dx + at, t[:, None] * (eta[:, None] * incoming - push[:, None] * row), mask)

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
def constants(
    A, b, x0, rows, pieces, N,
    D: tl.constexpr, STRICT: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr,
    SMALLEST: tl.constexpr, LARGEST: tl.constexpr, ROOT: tl.constexpr,
):  # fmt: skip
    """Numbers for each of N rows, in `rows`: 1 / d, `offset`, `slope`, p and q of `forward`; and A / d in two `pieces`.

    Products are off by more than those of the formulas: a number is the sum of two short ones up to 2^-21, products of
    the lower ones are left out, and tensor cores add eight products at a time and cut off what is less than 2^-23 of
    the largest.
    """
    i, e = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64), tl.arange(0, WIDTH)
    there, at = i < N, i[:, None] * D + e[None, :]
    mask = there[:, None] & (e < D)[None, :]
    row, anchor = tl.load(A + at, mask, other=0.0), tl.load(x0 + e, e < D, other=0.0).to(tl.float64)[None, :]
    wide, end = row.to(tl.float64), tl.load(b + i, there, other=1.0).to(tl.float32)
    bound = tl.minimum(tl.maximum(end, -LARGEST), LARGEST)
    depth = (bound.to(tl.float64) - tl.sum(wide * anchor, axis=1)).to(tl.float32)
    inverse = divided(tl.full(depth.shape, 1.0, tl.float32), depth)
    scaled = row * inverse[:, None]
    upper = rounded(scaled)
    offset, slope, p, q = -bound * inverse, 0 * depth, tl.where(depth > 0, 0.0, float("nan")), 0 * depth
    if STRICT:
        steep = tl.sqrt(tl.sum(wide * wide, axis=1)).to(tl.float32)
        size = tl.sqrt(tl.sum(anchor * anchor, axis=1)).to(tl.float32)
        length = tl.minimum(tl.abs(end), 1e30)
        k: tl.constexpr = U * (D + 2)
        split: tl.constexpr = 1.01 * U * (3 * D + 34)
        tiny: tl.constexpr = NARROW * SMALLEST * ROOT
        fixed = 4 * k * length + steep * ((4 * k + 8 * U + NARROW) * size + tiny)
        left = depth - 2 * fixed
        left = tl.where(left > 0, left, float("nan"))
        p = divided(fixed + 2 * k * length + steep * (4 * U * size + tiny), left)
        q = divided((2 * k + 4 * U + NARROW) * steep, left)
        offset, slope = (split * length - bound) * inverse, split * steep * inverse
    tl.store(pieces + at, upper, mask)
    tl.store(pieces + ((i + N)[:, None] * D + e[None, :]), scaled - upper, mask)
    tl.store(rows + i, inverse, there)
    tl.store(rows + N + i, offset, there)
    tl.store(rows + 2 * N + i, slope, there)
    tl.store(rows + 3 * N + i, p, there)
    tl.store(rows + 4 * N + i, q, there)


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
    best, turn, p, q, size, point, t, anchor, length, y, kept, n, N,
    D: tl.constexpr, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, STRICT: tl.constexpr,
):  # fmt: skip
    """Store y, and keep eta, 1 / (1 + s) or 0 inside, and the constraint that sets s = max `best`, in block `turn`.

    p, q and `size` are of the error p + q (|x0| + |y|) at y in units of the depth; p is NaN if the anchor is not
    certainly inside.
    """
    s, column = tl.max(best, axis=1, return_indices=True)  # type: ignore[misc]
    which = column + tl.sum(tl.where(tl.arange(0, COLUMNS)[None, :] == column[:, None], turn, 0), axis=1)
    inside, alive, e = s <= 0, n < N, tl.arange(0, WIDTH)
    out = divided(tl.full(s.shape, 1.0, tl.float32), 1 + tl.where(inside, 0.0, s))
    eta = tl.where(inside & (t == 1), 1.0, divided(out, 1 + p + q * (size + out * length))) if STRICT else out
    sure = p + 0 * length
    eta = tl.where(sure == sure, eta, float("nan"))
    at, mask = n[:, None] * D + e[None, :], alive[:, None] & (e < D)[None, :]
    tl.store(y + at, moved(anchor, point, eta), mask)
    tl.store(kept + n, eta, alive)
    tl.store(kept + (n + N), tl.where(inside, 0.0, out), alive)
    tl.store(kept + (n + N + N), which.to(tl.float32), alive)


@triton.jit
def forward(
    x, x0, rows, pieces, y, kept, N,
    M: tl.constexpr, D: tl.constexpr, STRICT: tl.constexpr, B: tl.constexpr, COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """y, and what `settle` keeps.

    The pieces are A / d. `offset` is -b / d with, if STRICT, what rounding adds to it, `slope` what it adds per unit
    of |x|, and the largest p and q of the rows are those of `settle`.
    """
    n = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    e = tl.arange(0, WIDTH)
    anchor = tl.load(x0 + e, e < D, other=0.0).to(tl.float32)[None, :]
    point, t = points(x, n, N, anchor, D, WIDTH, HUGE)  # type: ignore[misc]
    length = norm(point, SHIFT)
    big = rounded(point)
    best = tl.full((B, COLUMNS), float("-inf"), tl.float32)
    turn = tl.zeros((B, COLUMNS), tl.int32)
    p = tl.zeros((COLUMNS,), tl.float32)
    q, lost = p, p
    for first in range(0, M, COLUMNS):
        j = first + tl.arange(0, COLUMNS)
        value = product(big, point - big, pieces, pieces + M * D, j, j < M, e, D)
        value += tl.load(rows + M + j, j < M, other=float("-inf"))[None, :]
        error = tl.load(rows + 3 * M + j, j < M, other=0.0)
        p, lost = tl.maximum(p, error), lost + 0 * error  # the greater of NaN and a number is the number
        if STRICT:
            value += length[:, None] * tl.load(rows + 2 * M + j, j < M, other=0.0)[None, :]
            q = tl.maximum(q, tl.load(rows + 4 * M + j, j < M, other=0.0))
        turn = tl.where(value > best, first, turn)
        best = tl.maximum(best, value)
    worst, size = tl.max(p, axis=0) + tl.sum(lost, axis=0), tl.sum(norm(anchor, SHIFT), axis=0)
    settle(
        best, turn, worst, tl.max(q, axis=0), size, point, t, anchor, length, y, kept, n, N, D, COLUMNS, WIDTH, STRICT
    )


@triton.jit
def backward(
    g, x, A, x0, rows, kept, dx, N,
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
        eta, out = tl.load(kept + n, alive, other=1.0), tl.load(kept + (n + N), alive, other=0.0)
        i = tl.load(kept + (n + N + N), alive, other=0.0).to(tl.int32)
        row = tl.load(A + i[:, None] * D + e[None, :], mask, other=0.0)
        along = tl.sum(incoming * (point - anchor), axis=1)
        push = along * out * out * tl.load(rows + i, alive, other=0.0)
        tl.store(dx + at, t[:, None] * (eta[:, None] * incoming - push[:, None] * row), mask)

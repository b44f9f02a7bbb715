"""Around a batched eigendecomposition: kernels for `LMI` with one anchor, by `chord` or by `ray`.

S(x) = M (sum_i w_i T_i + T_0 / M), w = (x - x0) / M, M = max(1, |x - x0|), and s = -lambda_min(S(x)) / d, as in
`_eager/matrices.py`. With q the eigenvector and t = <g, x - x0> for an incoming g,

    dx_i = eta g_i + t / (1 + s)^2 q.T_i q / d.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import divided
from ._rows import moved, norm
from .products import points


@triton.jit
def build(
    x, x0, stack, S, unit, N,
    D: tl.constexpr, K: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr, AREA: tl.constexpr, HUGE: tl.constexpr,
    SHIFT: tl.constexpr, TINY: tl.constexpr,
):  # fmt: skip
    """S(x) / M in units of its largest entry, and that; I for what is not finite, which solvers would refuse.

    Entries below TINY, far below rounding, keep batched solvers from converging and become 0.
    """
    n = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    e, f, alive = tl.arange(0, WIDTH), tl.arange(0, AREA), n < N
    anchor = tl.load(x0 + e, e < D, other=0.0)[None, :]
    point, t = points(x, n, N, anchor, D, WIDTH, HUGE)  # type: ignore[misc]
    inverse = 1 / tl.maximum(norm(point - anchor, SHIFT), 1.0)
    total = tl.load(stack + D * K * K + f, f < K * K, other=0.0)[None, :] * inverse[:, None]
    for i in range(D):
        w = (tl.load(x + n * D + i, alive, other=0.0) * t - tl.load(x0 + i) * t) * inverse
        total += w[:, None] * tl.load(stack + i * K * K + f, f < K * K, other=0.0)[None, :]
    finite = tl.sum(0 * total, axis=1) == 0
    size = tl.max(tl.where(finite[:, None], tl.abs(total), 0.0), axis=1)
    total = total * divided(tl.full(size.shape, 1.0, tl.float32), tl.where(finite & (size > 0), size, 1.0))[:, None]
    eye = tl.where(f // K == f % K, 1.0, 0.0)[None, :]
    total = tl.where(finite[:, None], tl.where(tl.abs(total) < TINY, 0.0, total), eye)
    tl.store(S + n[:, None] * (K * K) + f[None, :], total, alive[:, None] & (f < K * K)[None, :])
    tl.store(unit + n, tl.where(finite, size, float("nan")), alive)


@triton.jit
def line(
    x, x0, values, vectors, unit, constants, y, weight, raw, vector, N,
    D: tl.constexpr, K: tl.constexpr, ROW: tl.constexpr, MATRIX: tl.constexpr,
    STRICT: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr, SIDE: tl.constexpr, HUGE: tl.constexpr,
    SHIFT: tl.constexpr,
):  # fmt: skip
    """y, eta, 1 / (1 + s) or 0 inside, and q.

    `constants` has 1 / d, what rounding may add to s and its slope by |x - x0|, and p, q and |x0| of the error
    p + q |y| at y; p is NaN if the anchor is not certainly inside. ROW and MATRIX are strides of `vectors`.
    """
    n = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    e, r, alive = tl.arange(0, WIDTH), tl.arange(0, SIDE), n < N
    at, mask = n[:, None] * D + e[None, :], alive[:, None] & (e < D)[None, :]
    anchor = tl.load(x0 + e, e < D, other=0.0)[None, :]
    point, t = points(x, n, N, anchor, D, WIDTH, HUGE)  # type: ignore[misc]
    length = norm(point - anchor, SHIFT)
    least = tl.load(values + n * K, alive, other=0.0) * tl.load(unit + n, alive, other=1.0)
    s = -least * tl.maximum(length, 1.0) * tl.load(constants)
    p, q, size = tl.load(constants + 3), tl.load(constants + 4), tl.load(constants + 5)
    if STRICT:
        s += tl.load(constants + 1) + length * tl.load(constants + 2)
    inside = s <= 0
    out = divided(tl.full(s.shape, 1.0, tl.float32), 1 + tl.where(inside, 0.0, s))
    eta = tl.where(inside & (t == 1), 1.0, divided(out, 1 + p + q * (size + out * length))) if STRICT else out
    sure = p + 0 * s
    eta = tl.where(sure == sure, eta, float("nan"))
    tl.store(y + at, moved(anchor, point, eta), mask)
    tl.store(weight + n, eta, alive)
    tl.store(raw + n, tl.where(inside, 0.0, out), alive)
    there = alive[:, None] & (r < K)[None, :]
    chosen = tl.load(vectors + n[:, None] * MATRIX + r[None, :] * ROW, there, other=0.0)
    tl.store(vector + n[:, None] * K + r[None, :], chosen, there)


@triton.jit
def backward(
    g, x, x0, stack, constants, weight, raw, vector, dx, N,
    D: tl.constexpr, K: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr, AREA: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    """The derivative by x."""
    n = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    e, f, alive = tl.arange(0, WIDTH), tl.arange(0, AREA), n < N
    at, mask = n[:, None] * D + e[None, :], alive[:, None] & (e < D)[None, :]
    anchor, incoming = tl.load(x0 + e, e < D, other=0.0)[None, :], tl.load(g + at, mask, other=0.0)
    point, t = points(x, n, N, anchor, D, WIDTH, HUGE)  # type: ignore[misc]
    eta, out = tl.load(weight + n, alive, other=1.0), tl.load(raw + n, alive, other=0.0)
    there = alive[:, None] & (f < K * K)[None, :]
    first = tl.load(vector + n[:, None] * K + (f // K)[None, :], there, other=0.0)
    square = first * tl.load(vector + n[:, None] * K + (f % K)[None, :], there, other=0.0)
    push = tl.sum(incoming * (point - anchor), axis=1) * out * out * tl.load(constants)
    total = eta[:, None] * incoming
    for i in range(D):
        slope = tl.sum(square * tl.load(stack + i * K * K + f, f < K * K, other=0.0)[None, :], axis=1)
        total += tl.where((e == i)[None, :], (push * slope)[:, None], 0.0)
    tl.store(dx + at, t[:, None] * total, mask)

"""`LMI` with one anchor, by `chord` or by `ray`: y = x0 + eta (x - x0) and its derivative.

S(x) = M (sum_i w_i T_i + T_0 / M), w = (x - x0) / M, M = max(1, |x - x0|), and s = -lambda_min(S(x)) / d, as in
`_eager/matrices.py`. With q the eigenvector and t = <g, x - x0> for an incoming g,

    dx_i = eta g_i + t / (1 + s)^2 q.T_i q / d.

Only the smallest eigenvalue of S, k x k, and its vector are needed. With m the mean of the diagonal and
f = |S - m I|_F no eigenvalue is beyond m + f or m - f, so that P = (m + f) I - S is positive semidefinite, and its
largest eigenvalue r is the one that belongs to the smallest of S; f <= r <= 2 f. P is squared N = 24 times and divided
by its trace each time. The column with the largest diagonal entry, made a unit vector, is q, and q.S q is too large by
at most

- 3 k u |S|_F, which is the rounding of it.
- r k / (2^N e) < 0.8 k u f, for what is left of other vectors v, of eigenvalues p of P. With A = P^(2^N) in units of
  r = 1 it is, for column j, the mean of 1 - p with the weights p^(2^(N+1)) v_j^2. Their sum is at least A_jj^2, the
  largest (1 - p) p^(2^N) is 1 / (2^N e), and A_jj is at least 1 / k.
- (k + 1) (k + 4) u f, for the rounding of squares, but for terms of u^2. That of A^2, A = P^(2^i), is (k + 1) u |A| |A|
  with |A| taken of each entry, and counts in P as r / 2^i of what it is relative to A^2. Its norm is (k + 1) u |A|_F^2,
  where r |A|_F^2 / |A^2| <= trace(P) = k f; for P itself, where | |P| | <= 2 f, it is 4 (k + 1) u f^2.

The first two are less than the 4 k u |S|_F that s has for any eigensolver, and (k + 4)^2 u f is added for the third.
That is the worst case: of 256,000 matrices of many kinds none had more than 10 u |S|_F in all.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import divided, root
from ._rows import moved, norm
from .products import points


@triton.jit
def trace(matrix, eye):
    return tl.sum(tl.sum(tl.where(eye, matrix, 0.0), axis=2), axis=1)


@triton.jit
def normalised(matrix, eye):
    """The matrix by its trace; I where that is 0."""
    size = trace(matrix, eye)
    factor = 1 / tl.where(size == 0, 1.0, size)
    return tl.where((size == 0)[:, None, None], tl.where(eye, 1.0, 0.0), matrix * factor[:, None, None])


@triton.jit
def scaled(
    x, x0, stack, n, N, t, inverse, eye, D: tl.constexpr, K: tl.constexpr, B: tl.constexpr, SIDE: tl.constexpr
):  # fmt: skip
    """S(x) / M in units of its largest entry, `(B, SIDE, SIDE)`, and that; I and NaN for what is not finite.

    The T_i may be a little off symmetry: their lower triangles count, as for eigensolvers.
    """
    r, alive = tl.arange(0, SIDE), n < N
    at = tl.maximum(r[:, None], r[None, :]) * K + tl.minimum(r[:, None], r[None, :])
    block = (r < K)[:, None] & (r < K)[None, :]
    S = tl.load(stack + D * K * K + at, block, other=0.0)[None, :, :] * inverse[:, None, None]
    for i in range(D):
        w = (tl.load(x + n * D + i, alive, other=0.0) * t - tl.load(x0 + i) * t) * inverse
        S += w[:, None, None] * tl.load(stack + i * K * K + at, block, other=0.0)[None, :, :]
    finite = tl.sum(tl.sum(0 * S, axis=2), axis=1) == 0
    unit = tl.max(tl.max(tl.where(finite[:, None, None], tl.abs(S), 0.0), axis=2), axis=1)
    S *= divided(tl.full((B,), 1.0, tl.float32), tl.where(unit == 0, 1.0, unit))[:, None, None]
    return tl.where(finite[:, None, None], S, tl.where(eye, 1.0, 0.0)), tl.where(finite, unit, float("nan"))


@triton.jit
def lowest(S, eye, K: tl.constexpr, SIDE: tl.constexpr, SQUARINGS: tl.constexpr):
    """The smallest eigenvalue of each matrix, `(B,)`, its vector, `(B, SIDE)`, and f; the largest entries are 1."""
    r, mean = tl.arange(0, SIDE), trace(S, eye) / K
    rest = S - tl.where(eye, mean[:, None, None], 0.0)
    spread = root(tl.sum(tl.sum(rest * rest, axis=2), axis=1))
    P = normalised(tl.where(eye, (mean + spread)[:, None, None], 0.0) - S, eye)
    for _ in range(SQUARINGS):
        P = normalised(tl.dot(P, P, input_precision="ieee"), eye)
    column = tl.argmax(tl.sum(tl.where(eye, P, 0.0), axis=2), axis=1)
    vector = tl.sum(tl.where(r[None, :, None] == column[:, None, None], P, 0.0), axis=1)
    vector = vector / root(tl.sum(vector * vector, axis=1))[:, None]
    image = tl.sum(S * vector[:, None, :], axis=2)
    return tl.sum(image * vector, axis=1), vector, spread


@triton.jit
def forward(
    x, x0, stack, constants, y, weight, raw, vector, N,
    D: tl.constexpr, K: tl.constexpr, SQUARINGS: tl.constexpr, STRICT: tl.constexpr, B: tl.constexpr,
    WIDTH: tl.constexpr, SIDE: tl.constexpr, U: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """y, eta, 1 / (1 + s) or 0 inside, and q.

    `constants` has 1 / d, what rounding may add to s and its slope by |x - x0|, and p, q and |x0| of the error
    p + q |y| at y; p is NaN if the anchor is not certainly inside.
    """
    n = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    e, r, alive = tl.arange(0, WIDTH), tl.arange(0, SIDE), n < N
    at, mask = n[:, None] * D + e[None, :], alive[:, None] & (e < D)[None, :]
    anchor = tl.load(x0 + e, e < D, other=0.0)[None, :]
    point, t = points(x, n, N, anchor, D, WIDTH, HUGE)  # type: ignore[misc]
    length = norm(point - anchor, SHIFT)
    eye = ((r[:, None] == r[None, :]) & (r < K)[:, None])[None, :, :]
    S, unit = scaled(x, x0, stack, n, N, t, 1 / tl.maximum(length, 1.0), eye, D, K, B, SIDE)  # type: ignore[misc]
    least, chosen, spread = lowest(S, eye, K, SIDE, SQUARINGS)  # type: ignore[misc]
    if STRICT:
        least -= (K + 4) * (K + 4) * U * spread
    s = -least * unit * tl.maximum(length, 1.0) * tl.load(constants)
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
    tl.store(vector + n[:, None] * K + r[None, :], chosen, alive[:, None] & (r < K)[None, :])


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

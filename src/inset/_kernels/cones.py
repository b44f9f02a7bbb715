"""|A x + b| <= z.x + d: kernels for `SecondOrderCone` with one anchor, which never store A x.

With r = A x + b, h_i = |r| - z.x - d of the cone i that sets eta = 1 / (1 + s), s = max_i h_i(x) / -h_i(x0), and
t = <g, x - x0> for an incoming g,

    dx = eta g - t / (1 + s)^2 (A^T r / |r| - z) / -h_i(x0).

Points are divided by M = max(1, |x|), so that no square overflows. The products are those of `products.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import divided, root
from ._rows import norm
from .products import points, product, rounded, settle


@triton.jit
def forward(
    x, x0, upper, lower, ends, offset, slope, inverse, margin, y, kept, N,
    M: tl.constexpr, K: tl.constexpr, D: tl.constexpr, STRICT: tl.constexpr, B: tl.constexpr, COLUMNS: tl.constexpr,
    WIDTH: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """y, and what `settle` keeps.

    `upper` + `lower` are the rows of A, the first of every cone, then the second, and so on, and z at last, and `ends`
    are b and d in the same order; `margin` has p, q and |x0|, and `products.forward` tells about the others.
    """
    n = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    e = tl.arange(0, WIDTH)
    anchor = tl.load(x0 + e, e < D, other=0.0).to(tl.float32)[None, :]
    point, t = points(x, n, N, anchor, D, WIDTH, HUGE)  # type: ignore[misc]
    length = norm(point, SHIFT)
    large = tl.maximum(length, 1.0)
    unit = 1 / large
    scaled = point * unit[:, None]
    big = rounded(scaled)
    small = scaled - big
    best = tl.full((B, COLUMNS), float("-inf"), tl.float32)
    turn = tl.zeros((B, COLUMNS), tl.int32)
    for first in range(0, M, COLUMNS):
        j = first + tl.arange(0, COLUMNS)
        square = tl.zeros((B, COLUMNS), tl.float32)
        for k in range(K):
            row = k * M + j
            image = product(big, small, upper, lower, row, j < M, e, D)
            image += unit[:, None] * tl.load(ends + row, j < M, other=0.0)[None, :]
            square += image * image
        row = K * M + j
        image = product(big, small, upper, lower, row, j < M, e, D)
        image += unit[:, None] * tl.load(ends + row, j < M, other=0.0)[None, :]
        value = (root(square) - image) * large[:, None]
        if STRICT:
            more, steep = tl.load(offset + j, j < M, other=0.0), tl.load(slope + j, j < M, other=0.0)
            value += more[None, :] + length[:, None] * steep[None, :]
        value = tl.where((j < M)[None, :], value * tl.load(inverse + j, j < M, other=1.0)[None, :], float("-inf"))
        turn = tl.where(value > best, first, turn)
        best = tl.maximum(best, value)
    p, q, size = tl.load(margin), tl.load(margin + 1), tl.load(margin + 2)
    settle(best, turn, p, q, size, point, t, anchor, length, y, kept, n, N, D, COLUMNS, WIDTH, STRICT)


@triton.jit
def backward(
    g, x, x0, A, b, z, inverse, kept, dx, N,
    K: tl.constexpr, D: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr, HUGE: tl.constexpr, SHIFT: tl.constexpr,
):  # fmt: skip
    """The derivative by x."""
    e = tl.arange(0, WIDTH)
    anchor = tl.load(x0 + e, e < D, other=0.0).to(tl.float32)[None, :]
    for step in range(tl.program_id(0), tl.cdiv(N, B), tl.num_programs(0)):
        n = (step * B + tl.arange(0, B)).to(tl.int64)
        alive = n < N
        at, mask = n[:, None] * D + e[None, :], alive[:, None] & (e < D)[None, :]
        point, t = points(x, n, N, anchor, D, WIDTH, HUGE)
        incoming = tl.load(g + at, mask, other=0.0).to(tl.float32)
        eta, out = tl.load(kept + n, alive, other=1.0), tl.load(kept + (n + N), alive, other=0.0)
        cone = tl.load(kept + (n + N + N), alive, other=0.0).to(tl.int32)
        unit = 1 / tl.maximum(norm(point, SHIFT), 1.0)
        scaled = point * unit[:, None]
        total, square = tl.zeros_like(point), tl.zeros_like(unit)
        for k in range(K):
            row = tl.load(A + ((cone * K + k) * D)[:, None] + e[None, :], mask, other=0.0)
            image = tl.sum(row * scaled, axis=1) + unit * tl.load(b + cone * K + k, alive, other=0.0)
            total += image[:, None] * row
            square += image * image
        down = tl.load(z + (cone * D)[:, None] + e[None, :], mask, other=0.0)
        normal = total * divided(tl.full(unit.shape, 1.0, tl.float32), tl.where(square > 0, root(square), 1.0))[:, None]
        along = tl.sum(incoming * (point - anchor), axis=1)
        push = along * out * out * tl.load(inverse + cone, alive, other=0.0)
        tl.store(dx + at, t[:, None] * (eta[:, None] * incoming - push[:, None] * (normal - down)), mask)

"""What kernels share that hold samples as rows, `(B, WIDTH)`: reading them, huge points, and lengths.

D of the WIDTH coordinates are there. `_tiles.py` has the same for samples that are vectors of any length.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import root
from ._tiles import several


@triton.jit
def tile(k, N, B: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, EACH: tl.constexpr):
    """Where the numbers of a tile of samples are, and which of those there are; a lane can read EACH at once."""
    if WIDTH == D and D < EACH and B * D >= EACH:
        return several(k, N, B, D, EACH)
    else:
        n, e = (k * B + tl.arange(0, B)).to(tl.int64)[:, None], tl.arange(0, WIDTH)[None, :]
        return n * D + e, (n < N) & (e < D)


@triton.jit
def read(x, at, mask, B: tl.constexpr):
    """The numbers of a tile, `(B, WIDTH)`."""
    return tl.load(x + at, mask, other=0.0).reshape(B, at.shape[0] * at.shape[1] // B)


@triton.jit
def write(y, at, v, mask):
    """Store the numbers of a tile."""
    tl.store(y + at, v.reshape(at.shape), mask)


@triton.jit
def row(v, n, N, WIDTH: tl.constexpr, D: tl.constexpr, ROW: tl.constexpr, F: tl.constexpr, other=0.0):
    """Vectors of the samples n, `(B, WIDTH)`, or of all of them, `(1, WIDTH)`: then ROW, from one to the next, is 0."""
    e = tl.arange(0, WIDTH)
    if ROW == 0:
        return tl.load(v + e, e < D, other=other).to(F)[None, :]
    else:
        return tl.load(v + n[:, None] * ROW + e[None, :], (n < N)[:, None] & (e < D)[None, :], other=other).to(F)


@triton.jit
def number(v, n, N, ROW: tl.constexpr, F: tl.constexpr):
    """A number for each sample, `(B,)`, or one for all, `(1,)`."""
    if ROW == 0:
        return tl.load(v + tl.arange(0, 1)).to(F)
    else:
        return tl.load(v + n * ROW, n < N, other=1.0).to(F)


@triton.jit
def near(point, anchor, HUGE: tl.constexpr):
    """The point pulled back to coordinates below HUGE, and by what factor: 1, but for huge points."""
    far = tl.max(tl.abs(point), axis=1)
    t = tl.where(far > HUGE, HUGE / tl.where(far > HUGE, far, HUGE), 1.0)
    return moved(anchor, point, t), t


@triton.jit
def moved(anchor, point, eta):
    """anchor + eta (point - anchor): as eta point + (1 - eta) anchor it is the point itself where eta is 1."""
    return tl.fma(eta[:, None], point, (1 - eta)[:, None] * anchor)


@triton.jit
def norm(v, SHIFT: tl.constexpr):
    """|v| of each row, scaled before by a power of two, which is exact, so that no square overflows or vanishes."""
    far = tl.max(tl.abs(v), axis=1)
    LONG: tl.constexpr = SHIFT**0.5
    up = tl.where(far < 1 / LONG, SHIFT, tl.where(far > LONG, 1 / SHIFT, 1.0)).to(v.dtype)
    down = tl.where(far < 1 / LONG, 1 / SHIFT, tl.where(far > LONG, SHIFT, 1.0)).to(v.dtype)
    scaled = v * up[:, None]
    return root(tl.sum(scaled * scaled, axis=1)) * down

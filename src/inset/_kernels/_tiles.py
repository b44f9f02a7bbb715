"""Tiles of samples for kernels that are bound by the bandwidth of memory: reading them, sums over rows, huge points.

A program takes tiles of B samples in turn, a row of WIDTH coordinates each, of which D are there. A tile is
`(WIDTH / SPAN, B, SPAN)`: lanes read SPAN coordinates of each row at once, so few that a lane has one row, if rows are
long enough. It is read and written as `(B WIDTH / SPAN, SPAN)`: compilers differ in which of several dimensions they
share out among lanes first, if each is as good. Rows shorter than what a lane reads at once, of which all is there, it
reads several at a time: then SPAN is greater than WIDTH.

These kernels can afford some twenty instructions for each number they move: what is the same for all samples is found
once, before the first tile, what concerns a whole row follows from few sums, and what only extreme numbers need is
behind an `if` on a whole tile.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._arithmetic import root


@triton.jit
def places(WIDTH: tl.constexpr, SPAN: tl.constexpr):
    """Which coordinate is where."""
    PART: tl.constexpr = min(SPAN, WIDTH)  # type: ignore[assignment]
    return tl.arange(0, WIDTH // PART)[:, None, None] * PART + tl.arange(0, PART)[None, None, :]


@triton.jit
def _listed(B: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr):
    """Which of the B samples is where, and which coordinate, in a tile as it is read."""
    part, e = tl.arange(0, B * WIDTH // SPAN)[:, None], tl.arange(0, SPAN)[None, :]
    if SPAN > WIDTH:
        return (part * SPAN + e) // WIDTH, (part * SPAN + e) % WIDTH
    else:
        return part % B, part // B * SPAN + e


@triton.jit
def tile(k, N, B: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, SPAN: tl.constexpr):
    """The samples of a tile, which of them there are, where their numbers are, and which of those there are."""
    n = (k * B + tl.arange(0, B)).to(tl.int64)
    b, e = _listed(B, WIDTH, SPAN)  # type: ignore[misc]
    m = (k * B + b).to(tl.int64)
    if SPAN > WIDTH:
        at, mask = several(k, N, B, D, SPAN)  # type: ignore[misc]
        return n, n < N, at, mask
    else:
        return n, n < N, m * D + e, (m < N) & (e < D)


@triton.jit
def several(k, N, B: tl.constexpr, D: tl.constexpr, SPAN: tl.constexpr):
    """Where the numbers of a tile are, and which of those there are: several rows of D follow one another in a SPAN.

    That those of a SPAN are all there or not, so that they are read at once, compilers see if N is a multiple of 16.
    """
    f = tl.arange(0, B * D // SPAN)[:, None] * SPAN + tl.arange(0, SPAN)[None, :]
    return tl.cast(k, tl.int64) * (B * D) + f, f < tl.minimum(N - k * B, B) * D


@triton.jit
def read(x, at, mask, B: tl.constexpr, F: tl.constexpr, other=0.0):
    """The numbers of a tile."""
    PARTS: tl.constexpr = max(1, at.shape[0] // B)  # type: ignore[assignment]
    WHOLE: tl.constexpr = at.shape[0] * at.shape[1]
    return tl.load(x + at, mask, other=other).to(F).reshape(PARTS, B, WHOLE // (B * PARTS))


@triton.jit
def write(y, at, v, mask):
    """Store the numbers of a tile."""
    tl.store(y + at, v.reshape(at.shape), mask)


@triton.jit
def row(
    v, k, N, B: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, ROW: tl.constexpr, SPAN: tl.constexpr,
    F: tl.constexpr, other=0.0,
):  # fmt: skip
    """Vectors of the samples of tile k, or the same for all of them: then ROW, from one to the next, is 0."""
    b, e = _listed(B, WIDTH, SPAN)  # type: ignore[misc]
    if ROW == 0:
        return read(v, e, e < D, B, F, other)
    else:
        m = (k * B + b).to(tl.int64)
        return read(v, m * ROW + e, (m < N) & (e < D), B, F, other)


@triton.jit
def each(v):
    """A number for each sample, beside their coordinates: the way back from `summed`, as a compiler sees it."""
    return v[:, None][None, :, :]


@triton.jit
def summed(v):
    """The sum of each row."""
    return tl.sum(tl.sum(v, axis=0), axis=1)


@triton.jit
def greatest(v):
    """The greatest number of each row."""
    return tl.max(tl.max(v, axis=0), axis=1)


@triton.jit
def first(chosen, e):
    """The first place of each row that is chosen."""
    return tl.min(tl.min(tl.where(chosen, e, 2147483647), axis=0), axis=1)


@triton.jit
def near(point, anchor, HUGE: tl.constexpr):
    """The point pulled back to coordinates below HUGE, and by what factor: 1, but for huge points."""
    far = greatest(tl.abs(point))
    t = tl.where(far > HUGE, HUGE / tl.where(far > HUGE, far, HUGE), 1.0)
    return moved(anchor, point, t), t


@triton.jit
def moved(anchor, point, eta):
    """anchor + eta (point - anchor): as eta point + (1 - eta) anchor it is the point itself where eta is 1."""
    return tl.fma(each(eta), point, each(1 - eta) * anchor)


@triton.jit
def norm(v, SHIFT: tl.constexpr):
    """|v| of each row, scaled before by a power of two, which is exact, so that no square overflows or vanishes."""
    far = greatest(tl.abs(v))
    LONG: tl.constexpr = SHIFT**0.5
    up = tl.where(far < 1 / LONG, SHIFT, tl.where(far > LONG, 1 / SHIFT, 1.0)).to(v.dtype)
    down = tl.where(far < 1 / LONG, 1 / SHIFT, tl.where(far > LONG, SHIFT, 1.0)).to(v.dtype)
    scaled = v * each(up)
    return root(summed(scaled * scaled)) * down

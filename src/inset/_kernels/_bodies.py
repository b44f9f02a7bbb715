"""What kernels for `Strings` hold of B samples, and how it is read.

Coordinates are `(K, B, RUN, SIDE)`, and links `(K, B, RUN)`.

Compilers differ in which of several dimensions they share out among lanes first, if each is as good: what is read and
written has one beside the SIDE that a lane reads at once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._tiles import each, greatest, summed


@triton.jit
def _shared_out(COUNT: tl.constexpr, B: tl.constexpr, LANES: tl.constexpr):
    """0 to COUNT - 1 as `(K, 1, RUN)`: RUN lanes share those of a sample."""
    RUN: tl.constexpr = min(COUNT, max(LANES // B, 1))  # type: ignore[assignment]
    return tl.arange(0, COUNT // RUN)[:, None, None] * RUN + tl.arange(0, RUN)[None, None, :]


@triton.jit
def places(B: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr):
    """Which coordinate is where: a lane reads EACH at once, of the samples of which it has links."""
    SIDE: tl.constexpr = min(EACH, WIDTH)  # type: ignore[assignment]
    return _shared_out(WIDTH // SIDE, B, LANES)[:, :, :, None] * SIDE + tl.arange(0, SIDE)[None, None, None, :]


@triton.jit
def wide(v):
    """A number for each sample, beside their coordinates."""
    return each(v)[:, :, :, None]


@triton.jit
def farthest(v):
    """The largest coordinate of each sample, whatever its sign, of those that are numbers."""
    mine = tl.max(tl.max(tl.abs(v), axis=3), axis=0)
    return tl.max(ordered(tl.where(mine == mine, mine, 0.0)), axis=1).to(v.dtype, bitcast=True)


@triton.jit
def ordered(v):
    """Numbers that are not negative as integers of the same order, in which what is no number is the greatest."""
    return v.to(tl.uint32 if v.dtype == tl.float32 else tl.uint64, bitcast=True)


@triton.jit
def total(v):
    """The sum of the coordinates of each sample."""
    return summed(tl.sum(v, axis=3))


@triton.jit
def _listed(at, there, ROW: tl.constexpr):
    """Places `(K, B, RUN, SIDE)`, and which there are, as `(K B RUN, SIDE)`: so that a lane asks for SIDE at once.

    Compilers lose sight of what they know of them on the way: rows have ROW numbers, and what is read begins with them.
    """
    SIDE: tl.constexpr = at.shape[3]
    COUNT: tl.constexpr = at.shape[0] * at.shape[1] * at.shape[2]
    KNOWN: tl.constexpr = min(SIDE, ROW & -ROW)  # type: ignore[assignment]
    at, there = at.reshape(COUNT, SIDE), there.reshape(COUNT, SIDE)
    if KNOWN > 1:
        at = tl.multiple_of(tl.max_contiguous(at, [1, KNOWN]), [1, KNOWN])
        there = tl.max_constancy(there, [1, KNOWN])
    return at, there


@triton.jit
def read(x, at, there, ROW: tl.constexpr):
    """The numbers at these places, or 0."""
    listed, known = _listed(at, there, ROW)  # type: ignore[misc]
    return tl.load(x + listed, known, other=0.0).reshape(at.shape)


@triton.jit
def write(x, at, v, there, ROW: tl.constexpr):
    """Store numbers at these places."""
    listed, known = _listed(at, there, ROW)  # type: ignore[misc]
    tl.store(x + listed, v.reshape(listed.shape), known)


@triton.jit
def tile(
    x, k, N, B: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr,
    PAIRED: tl.constexpr,
):  # fmt: skip
    """The numbers of tile k, asked for before they are needed; `apart` makes points of them.

    PAIRED are two of 16 bits that come as one: as two, compilers take them apart where they are asked for, and so wait
    for them there. There is an even number of them, and they begin at a multiple of 4 bytes.
    """
    n = tl.cast(k, tl.int64) * B + tl.arange(0, B)
    if PAIRED:
        e = places(B, WIDTH // 2, LANES, EACH // 2)
        pairs = x.to(tl.pointer_type(tl.int32), bitcast=True)
        return read(pairs, wide(n) * (SIZE // 2) + e, wide(n < N) & (e < SIZE // 2), SIZE // 2)
    else:
        e = places(B, WIDTH, LANES, EACH)
        return read(x, wide(n) * SIZE + e, wide(n < N) & (e < SIZE), SIZE)


@triton.jit
def apart(v, x, F: tl.constexpr):
    """The points of a tile of x."""
    if v.dtype == tl.int32:
        PAIRS: tl.constexpr = v.shape[3]
        if x.dtype.element_ty == tl.bfloat16:  # the upper half of a float32
            first, second = (v << 16).to(F, bitcast=True), (v & -0x10000).to(F, bitcast=True)
        else:
            first = v.to(tl.int16).to(x.dtype.element_ty, bitcast=True).to(F)
            second = (v >> 16).to(tl.int16).to(x.dtype.element_ty, bitcast=True).to(F)
        return tl.join(first, second).reshape(v.shape[0], v.shape[1], v.shape[2], 2 * PAIRS)
    else:
        return v.to(F)


@triton.jit
def anchors(
    x0, n, N, e, SIZE: tl.constexpr, TOGETHER: tl.constexpr, D: tl.constexpr, ROW: tl.constexpr, F: tl.constexpr
):
    """The anchors of the samples n, or that of all; of bodies TOGETHER only as many as a lane reads at once."""
    SIDE: tl.constexpr = e.shape[3]
    if TOGETHER:
        e = tl.arange(0, SIDE)[None, None, None, :] if SIDE % D == 0 else e
        e = e % D
    if ROW == 0:
        return read(x0, e, e < SIZE, D if TOGETHER else SIZE).to(F)
    else:
        return read(x0, wide(n) * ROW + e, wide(n < N) & (e < SIZE), D if TOGETHER else SIZE).to(F)


@triton.jit
def joined(links, M: tl.constexpr, LINKS: tl.constexpr, B: tl.constexpr, LANES: tl.constexpr):
    """The links, and the bodies that each joins, as they are."""
    link = _shared_out(LINKS, B, LANES)
    i = tl.load(links + 2 * link, link < M, other=0)
    return link, i.to(tl.int32), tl.load(links + 2 * link + 1, link < M, other=0).to(tl.int32)


@triton.jit
def checked(i, j, BODIES: tl.constexpr):
    """Bodies that there are, and whether all are."""
    return tl.minimum(i, BODIES - 1), tl.minimum(j, BODIES - 1), greatest(tl.maximum(i, j)) < BODIES


@triton.jit
def limits(lengths, known, link, M: tl.constexpr, ROW: tl.constexpr, F: tl.constexpr):
    """How long strings may be in samples that there are, or in all."""
    return tl.load(lengths + known * ROW + link, (link < M) & (known >= 0), other=1e30).to(F)


@triton.jit
def inverses(most):
    """1 / the lengths of strings, and the least length of each sample."""
    return 1 / most, -greatest(-most)

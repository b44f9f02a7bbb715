"""What kernels for `Strings` hold of B samples, and how it is read.

Coordinates are `(K, B, RUN, SIDE)`, and links `(K, B, RUN)`.

Compilers differ in which of several dimensions they share out among lanes first, if each is as good: what is read and
written has one beside the coordinates of a body.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ._tiles import each, greatest, summed


@triton.jit
def _shared_out(COUNT: tl.constexpr, B: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr):
    """0 to COUNT - 1 as `(K, 1, RUN)`: RUN lanes, or more if each takes several at once, share those of a sample.

    The more they are, the fewer lines of the cache they read at once, and the more they have to tell one another.
    """
    LEAST: tl.constexpr = 4 if COUNT > 2 else 1  # type: ignore[assignment]
    RUN: tl.constexpr = min(COUNT, max(LANES // B, LEAST) * EACH)  # type: ignore[assignment]
    return tl.arange(0, COUNT // RUN)[:, None, None] * RUN + tl.arange(0, RUN)[None, None, :]


@triton.jit
def places(B: tl.constexpr, WIDTH: tl.constexpr, D: tl.constexpr, LANES: tl.constexpr, EACH: tl.constexpr):
    """Which coordinate is where, bodies shared out as links are, so that both are with the same lanes."""
    SIDE: tl.constexpr = D if triton.next_power_of_2(D) == D and D > 1 else 1  # type: ignore[assignment]
    body = _shared_out(WIDTH // SIDE, B, LANES, 1 if SIDE > 1 else EACH)
    return body[:, :, :, None] * SIDE + tl.arange(0, SIDE)[None, None, None, :]


@triton.jit
def wide(v):
    """A number for each sample, beside their coordinates."""
    return each(v)[:, :, :, None]


@triton.jit
def farthest(v):
    """The largest coordinate of each sample, whatever its sign."""
    return greatest(tl.max(tl.abs(v), axis=3))


@triton.jit
def total(v):
    """The sum of the coordinates of each sample."""
    return summed(tl.sum(v, axis=3))


@triton.jit
def _listed(at, there, D: tl.constexpr):
    """Places `(K, B, RUN, SIDE)`, and which there are, as `(K B RUN, SIDE)`: so that a lane asks for those of a body.

    Compilers lose sight of what they know of them on the way.
    """
    SIDE: tl.constexpr = at.shape[3]
    COUNT: tl.constexpr = at.shape[0] * at.shape[1] * at.shape[2]
    at, there = at.reshape(COUNT, SIDE), there.reshape(COUNT, SIDE)
    if SIDE == D and D > 1:
        at = tl.multiple_of(tl.max_contiguous(at, [1, SIDE]), [1, SIDE])
        there = tl.max_constancy(there, [1, SIDE])
    return at, there


@triton.jit
def read(x, at, there, D: tl.constexpr):
    """The numbers at these places, or 0."""
    listed, known = _listed(at, there, D)  # type: ignore[misc]
    return tl.load(x + listed, known, other=0.0).reshape(at.shape)


@triton.jit
def write(x, at, v, there, D: tl.constexpr):
    """Store numbers at these places."""
    listed, known = _listed(at, there, D)  # type: ignore[misc]
    tl.store(x + listed, v.reshape(listed.shape), known)


@triton.jit
def tile(x, k, N, e, B: tl.constexpr, SIZE: tl.constexpr, D: tl.constexpr):
    """The numbers of tile k, asked for before they are needed."""
    n = (k * B + tl.arange(0, B)).to(tl.int64)
    return read(x, wide(n) * SIZE + e, wide(n < N) & (e < SIZE), D)


@triton.jit
def anchors(
    x0, n, N, e, SIZE: tl.constexpr, TOGETHER: tl.constexpr, D: tl.constexpr, ROW: tl.constexpr, F: tl.constexpr
):
    """The anchors of the samples n, or that of all, and their largest coordinates."""
    place = e % D if TOGETHER else e
    if ROW == 0:
        anchor = read(x0, place, e < SIZE, D).to(F)
    else:
        anchor = read(x0, wide(n) * ROW + place, wide(n < N) & (e < SIZE), D).to(F)
    return anchor, farthest(anchor)


@triton.jit
def joined(links, BODIES: tl.constexpr, M: tl.constexpr, LINKS: tl.constexpr, B: tl.constexpr, LANES: tl.constexpr):
    """The links, the bodies that each joins, and whether there are such bodies."""
    link = _shared_out(LINKS, B, LANES, 1)
    i = tl.load(links + 2 * link, link < M, other=0).to(tl.int32)
    j = tl.load(links + 2 * link + 1, link < M, other=0).to(tl.int32)
    whole = greatest(tl.maximum(i, j)) < BODIES
    return link, tl.minimum(i, BODIES - 1), tl.minimum(j, BODIES - 1), whole


@triton.jit
def limits(lengths, known, link, M: tl.constexpr, ROW: tl.constexpr, F: tl.constexpr):
    """How long strings may be in samples that there are, or in all; the inverse; and the least of them."""
    most = tl.load(lengths + known * ROW + link, (link < M) & (known >= 0), other=1e30).to(F)
    return most, 1 / most, -greatest(-most)

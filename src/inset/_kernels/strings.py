"""`Strings` on a GPU: one kernel for y = x0 + eta (x - x0) with the weight of `chord`, and one for its derivative.

With a = h_l(x0) and b = h_l(x) of the link l that sets it, eta = a / (a - b); s = <g, x - x0> for an incoming g, and n
the derivative of a length by the positions:

    dx = eta g + s a / (a - b)^2 n_l(x),    dx0 = (1 - eta) g - s b / (a - b)^2 n_l(x0).

The margin of `strict` is that of `_strict.py`; the displacement of a body is bounded by the largest in the sample.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .._project import interpolated
from ..sets.strings import Strings
from ._arithmetic import between, divided, root
from ._launch import launched, power, rows, working


@triton.jit
def _factor(x, n, mask, SIZE: tl.constexpr, WIDTH: tl.constexpr, F: tl.constexpr, HUGE: tl.constexpr):
    """The factor by which x is pulled towards the anchor before anything is computed, `(B,)`: 1, but for huge x."""
    e = tl.arange(0, WIDTH)
    values = tl.load(x + n[:, None] * SIZE + e[None, :], mask[:, None] & (e < SIZE)[None, :], other=0.0).to(F)
    far = tl.max(tl.abs(values), axis=1)
    return tl.where(far > HUGE, HUGE / tl.where(far > HUGE, far, HUGE), 1.0)


@triton.jit
def _ends(x, row, i, j, c, mask, BODIES: tl.constexpr, D: tl.constexpr, F: tl.constexpr):
    """Coordinate c of p_i and of p_j; NaN for a body that there is not."""
    first = tl.load(x + row + i * D + c, mask & (i < BODIES), other=float("nan")).to(F)
    second = tl.load(x + row + j * D + c, mask & (j < BODIES), other=float("nan")).to(F)
    return first, second


@triton.jit
def _spanned(
    x, row, x0, row0, i, j, c, t, mask,
    SHARED: tl.constexpr, BODIES: tl.constexpr, D: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """Coordinate c of p_i - p_j, at the point and at the anchor; with one anchor for all bodies, 0 at the anchor."""
    first, second = _ends(x, row, i, j, c, mask, BODIES, D, F)  # type: ignore[misc]
    if SHARED:
        middle = tl.load(x0 + row0 + c + 0 * i, mask, other=0.0).to(F)
        first0, second0 = middle, middle
    else:
        first0, second0 = _ends(x0, row0, i, j, c, mask, BODIES, D, F)
    return between(first0, first, t) - between(second0, second, t), first0 - second0


@triton.jit
def _lengths(
    x, row, x0, row0, i, j, t, mask,
    SHARED: tl.constexpr, BODIES: tl.constexpr, D: tl.constexpr, F: tl.constexpr,
):  # fmt: skip
    """|p_i - p_j| at the point and at the anchor; scaled by their largest coordinate, so that no square overflows."""
    size, size0 = tl.zeros_like(t * (i + 0.0)), tl.zeros_like(t * (i + 0.0))
    for c in tl.static_range(D):
        span, span0 = _spanned(x, row, x0, row0, i, j, c, t, mask, SHARED, BODIES, D, F)
        size, size0 = tl.maximum(size, tl.abs(span)), tl.maximum(size0, tl.abs(span0))
    size, size0 = tl.where(size > 0, size, 1.0), tl.where(size0 > 0, size0, 1.0)
    square, square0 = tl.zeros_like(size), tl.zeros_like(size)
    for c in tl.static_range(D):
        span, span0 = _spanned(x, row, x0, row0, i, j, c, t, mask, SHARED, BODIES, D, F)
        part, part0 = divided(span, size), divided(span0, size0)
        square, square0 = square + part * part, square0 + part0 * part0
    return size * root(square), size0 * root(square0)


@triton.jit
def _forward(
    x, x0, links, lengths, y, weight, active, N,
    BODIES: tl.constexpr, D: tl.constexpr, M: tl.constexpr, SHARED: tl.constexpr, ROW0: tl.constexpr,
    ROWL: tl.constexpr, STRICT: tl.constexpr, ENDS: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr,
    LINKS: tl.constexpr, F: tl.constexpr, U: tl.constexpr, NARROW: tl.constexpr, SMALLEST: tl.constexpr,
    HUGE: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = BODIES * D
    n = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    alive = n < N
    t = _factor(x, n, alive, SIZE, WIDTH, F, HUGE)

    link = tl.arange(0, LINKS)
    mask = alive[:, None] & (link < M)[None, :]
    i = tl.load(links + 2 * link, link < M, other=0).to(tl.int32)[None, :]
    j = tl.load(links + 2 * link + 1, link < M, other=0).to(tl.int32)[None, :]
    most = tl.load(lengths + n[:, None] * ROWL + link[None, :], mask, other=1.0).to(F)
    long, long0 = _lengths(x, n[:, None] * SIZE, x0, n[:, None] * ROW0, i, j, t[:, None], mask, SHARED, BODIES, D, F)
    h, h0 = long - most, tl.where(mask, long0 - most, -1.0)
    if STRICT:
        h += U * (D / 2 + 4) * (long + most)
    h = tl.where(mask, h, -1.0)

    which = tl.argmax(divided(tl.where(h > 0, h, 0.0), -h0), axis=1)
    chosen = link[None, :] == which[:, None]
    b = tl.sum(tl.where(chosen, h, 0.0), axis=1)
    a = tl.sum(tl.where(chosen, h0, 0.0), axis=1)
    outside = b > 0
    eta = divided(a, a - tl.where(outside, b, 0.0))

    e = tl.arange(0, WIDTH)
    within = alive[:, None] & (e < SIZE)[None, :]
    point = tl.load(x + n[:, None] * SIZE + e[None, :], within, other=0.0).to(F)
    place = e % D if SHARED else e
    anchor = tl.load(x0 + n[:, None] * ROW0 + place[None, :], within, other=0.0).to(F)
    point = between(anchor, point, t[:, None])
    if STRICT:
        moved = tl.abs(between(anchor, point, eta[:, None]))
        off = 4 * U * (moved + tl.abs(anchor)) + 1.01 * NARROW * (moved + SMALLEST)
        off0 = 8 * U * tl.abs(anchor) + 1.01 * NARROW * (tl.abs(anchor) + SMALLEST)
        # every coordinate of both ends may be off by as much; ENDS = 2 sqrt(d)
        slip = ENDS * tl.max(tl.where(within, off, 0.0), axis=1)
        slip0 = ENDS * tl.max(tl.where(within, off0, 0.0), axis=1)
        fixed = 4 * U * (D / 2 + 4) * (long0 + most) + slip0[:, None]
        # a string at y is not longer than it may be, but for what slip covers
        error = fixed + 2 * U * (D / 2 + 4) * 2.02 * most + slip[:, None]
        room = tl.min(tl.where(mask, (-h0 - 2 * fixed) / error, float("inf")), axis=1)
        eta = tl.where(outside | (t < 1), eta * (1 - 1 / (1 + room)), 1.0)
        unsound = mask & ~(-h0 > 2 * fixed)
    else:
        unsound = mask & ~(h0 < 0)
    wrong = tl.max(tl.where(unsound | (h != h), 1, 0), axis=1)
    eta = tl.where(wrong > 0, float("nan"), eta)
    tl.store(y + n[:, None] * SIZE + e[None, :], between(anchor, point, eta[:, None]), within)
    tl.store(weight + n, eta, alive)
    tl.store(active + n, tl.where(outside, which, -1), alive)


@triton.jit
def _backward(
    g, x, x0, links, lengths, weight, active, dx, dx0, N,
    BODIES: tl.constexpr, D: tl.constexpr, SHARED: tl.constexpr, ROW0: tl.constexpr, ROWL: tl.constexpr,
    STRICT: tl.constexpr, ANCHORED: tl.constexpr, B: tl.constexpr, WIDTH: tl.constexpr, F: tl.constexpr,
    U: tl.constexpr, HUGE: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = BODIES * D
    n = (tl.program_id(0) * B + tl.arange(0, B)).to(tl.int64)
    alive = n < N
    t = _factor(x, n, alive, SIZE, WIDTH, F, HUGE)
    eta = tl.load(weight + n, alive, other=1.0)
    which = tl.load(active + n, alive, other=-1)
    outside = which >= 0
    link = tl.where(outside, which, 0)
    i = tl.load(links + 2 * link, alive, other=0).to(tl.int32)
    j = tl.load(links + 2 * link + 1, alive, other=0).to(tl.int32)
    most = tl.load(lengths + n * ROWL + link, alive, other=1.0).to(F)
    long, long0 = _lengths(x, n * SIZE, x0, n * ROW0, i, j, t, alive, SHARED, BODIES, D, F)
    a, b = long0 - most, long - most
    if STRICT:
        b += U * (D / 2 + 4) * (long + most)
    b = tl.where(outside, b, 0.0)

    e = tl.arange(0, WIDTH)[None, :]
    within = alive[:, None] & (e < SIZE)
    row, row0 = n[:, None] * SIZE, n[:, None] * ROW0
    body, c = e // D, e % D
    incoming = tl.load(g + row + e, within, other=0.0).to(F)
    point = tl.load(x + row + e, within, other=0.0).to(F)
    anchor = tl.load(x0 + row0 + (c if SHARED else e), within, other=0.0).to(F)
    point = between(anchor, point, t[:, None])
    along = tl.sum(incoming * (point - anchor), axis=1)
    span, span0 = _spanned(x, row, x0, row0, i[:, None], j[:, None], c, t[:, None], within, SHARED, BODIES, D, F)
    sign = tl.where(body == i[:, None], 1.0, 0.0) - tl.where(body == j[:, None], 1.0, 0.0)
    # the quotients one after another: (a - b)^2 may overflow
    pull = tl.where(outside, along / (a - b) * (a / (a - b)) / tl.where(long > 0, long, 1.0), 0.0)
    inner = eta[:, None] * incoming + pull[:, None] * sign * span
    tl.store(dx + row + e, t[:, None] * inner, within)
    if ANCHORED:
        outer = (1 - eta[:, None]) * incoming + (1 - t[:, None]) * inner
        if SHARED:
            for k in tl.static_range(D):
                total = tl.sum(tl.where(within & (c == k), outer, 0.0), axis=1)
                tl.store(dx0 + n * D + k, total, alive)
        else:
            push = tl.where(outside, -along / (a - b) * (b / (a - b)) / tl.where(long0 > 0, long0, 1.0), 0.0)
            tl.store(dx0 + row + e, outer + push[:, None] * sign * span0, within)


WIDEST = 4096
"""Coordinates of a point, or links, up to which one program holds them all."""


def fused(set: Strings, x: Tensor, anchor: Tensor, method: str, strict: bool) -> Tensor | None:
    """g(x) by the kernels, or None where they do not apply."""
    links, lengths = set.links, set.lengths
    if not isinstance(lengths, Tensor):
        lengths = torch.full((1,), lengths, dtype=working(x.dtype), device=x.device)
    fit = lengths.dtype == working(x.dtype) and anchor.dtype in (x.dtype, lengths.dtype) and isinstance(links, Tensor)
    if method != "chord" or not fit or lengths.requires_grad or links.ndim != 2 or 0 in (*x.shape, *links.shape):
        return None
    bodies, d = x.shape[-2:]
    if max(bodies * d, links.shape[0]) > WIDEST or d > 16:
        return None
    together = anchor.stride(-2) == 0  # all bodies at one place, as in `Strings.anchor`
    anchor = anchor[..., :1, :] if together else anchor
    lengths = lengths.expand(*lengths.shape[:-1], links.shape[0])
    batch = torch.broadcast_shapes(x.shape[:-2], anchor.shape[:-2], lengths.shape[:-1])
    y, _, _ = strings(
        x.expand(*batch, bodies, d).reshape(-1, bodies, d).contiguous(),
        rows(anchor, batch, 2),
        links.contiguous(),
        rows(lengths, batch, 1),
        strict,
    )
    return y.reshape(*batch, bodies, d)


@torch.library.triton_op("inset::strings", mutates_args={})
def strings(x: Tensor, anchor: Tensor, links: Tensor, lengths: Tensor, strict: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y, eta and the link that set it or -1, for x `(N, bodies, d)`.

    `anchor` is `(N or 1, bodies or 1, d)`, `lengths` is `(N or 1, m)`, and everything is contiguous.
    """
    samples, bodies, d = x.shape
    width, many = power(bodies * d), power(links.shape[0])
    y = torch.empty_like(x)
    eta = x.new_empty(samples, dtype=working(x.dtype))
    active = x.new_empty(samples, dtype=torch.int32)
    launched(
        _forward, False, x, max(width, many), x, anchor, links, lengths, y, eta, active,
        BODIES=bodies, D=d, M=links.shape[0], STRICT=strict, ENDS=2.001 * math.sqrt(d), WIDTH=width, LINKS=many,
        **_layout(anchor, lengths),
    )  # fmt: skip
    return y, eta, active


@torch.library.triton_op("inset::strings_backward", mutates_args={})
def strings_backward(
    g: Tensor, x: Tensor, anchor: Tensor, links: Tensor, lengths: Tensor, eta: Tensor, active: Tensor, strict: bool,
    anchored: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The derivatives by x and by the anchor; the latter is of no use unless `anchored`."""
    samples, bodies, d = x.shape
    if anchored and anchor.shape[0] != samples:
        raise ValueError(f"the derivative by an anchor of shape {tuple(anchor.shape)} for {samples} samples")
    width, dx, dx0 = power(bodies * d), torch.empty_like(x), torch.empty_like(anchor)
    launched(
        _backward, False, x, width, g, x, anchor, links, lengths, eta, active, dx, dx0,
        BODIES=bodies, D=d, STRICT=strict, ANCHORED=anchored, WIDTH=width, **_layout(anchor, lengths),
    )  # fmt: skip
    return dx, dx0


def _layout(anchor: Tensor, lengths: Tensor) -> dict[str, Any]:
    """Where a kernel finds the anchor and the lengths of a sample."""
    row0 = anchor.shape[1] * anchor.shape[2] if anchor.shape[0] > 1 else 0
    row = lengths.shape[1] if lengths.shape[0] > 1 else 0
    return {"SHARED": anchor.shape[1] == 1, "ROW0": row0, "ROWL": row}


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, anchor, links, lengths, ctx.strict = inputs
    ctx.save_for_backward(x, anchor, links, lengths, *output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _derivatives(ctx: Any, g: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, anchor, links, lengths, eta, active = ctx.saved_tensors
    if torch.is_grad_enabled():  # the derivative is to be differentiated: through the formulas of the set
        y, _ = interpolated(Strings(links, lengths), x, anchor.expand_as(x), "chord", ctx.strict)
        return *torch.autograd.grad(y, (x, anchor), g, create_graph=True, allow_unused=True), None, None, None
    dx, dx0 = strings_backward(
        g.contiguous(), x, anchor, links, lengths, eta, active, ctx.strict, ctx.needs_input_grad[1]
    )
    return dx, dx0 if ctx.needs_input_grad[1] else None, None, None, None


torch.library.register_autograd("inset::strings", _derivatives, setup_context=_keep)

"""`Strings` on a GPU: the operator around the kernels of `links.py`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._eager.calls import by_formulas, differentiated
from .._project import interpolated
from ..sets.strings import Strings
from . import links as kernels
from ._launch import HELD, common, dense, launched, power, rows, stride, working
from ._operator import constant, operator, watched

WIDEST = 4096
"""Coordinates of a point, or links, up to which one program holds them all."""
FEW, REGISTERS, MORE = 64, 80, 96
"""Registers with which a lane can do, if bodies are together at the anchor: where it reads a sample of 16 bits at once,

where a warp holds samples, and where several warps hold one. Given more it takes more, for what only extreme points
need, and fewer programs run at once.
"""
AGAIN = 16
"""Links up to which a weight is found again on the way back, which costs less than to store it."""


def fused(set: Strings, x: Tensor, anchor: Tensor, method: str, strict: bool) -> Tensor | None:
    """g(x) by the kernels, or None where they do not apply."""
    links, lengths, wide = set.links, set.lengths, working(x.dtype)
    if method != "chord" or not isinstance(links, Tensor) or links.ndim != 2 or 0 in (x.numel(), links.numel()):
        return None
    if not isinstance(lengths, Tensor):
        lengths = constant(float(lengths), wide, x.device, links.shape[0])
    if lengths.requires_grad or any([v.dtype not in (x.dtype, wide) for v in (lengths, anchor)]):
        return None
    shape = x.shape
    bodies, d = shape[-2:]
    if max(bodies * d, links.shape[0]) > WIDEST or d > 16 or anchor.shape[-2:] != shape[-2:]:
        return None
    if lengths.ndim == 0 or lengths.shape[-1] != links.shape[0]:
        lengths = lengths.expand(*lengths.shape[:-1], links.shape[0])
    alike = lengths.ndim == 1 and anchor.shape == shape
    batch = shape[:-2] if alike else common(shape[:-2], anchor.shape[:-2], lengths.shape[:-1])
    flat = len(batch) == 1 and batch == shape[:-2]
    points = x if flat else x.expand(*batch, bodies, d).reshape(-1, bodies, d)
    if not (flat and alike) and (anchor.ndim > 2 or anchor.requires_grad):
        anchor = anchor.expand(*batch, bodies, d).reshape(-1, bodies, d)
    y, _, _ = strings(dense(points), anchor, dense(links), rows(lengths, batch, 1), strict)
    return y if flat else y.reshape(*batch, bodies, d)


@operator("strings")
def strings(x: Tensor, anchor: Tensor, links: Tensor, lengths: Tensor, strict: bool) -> tuple[Tensor, Tensor, Tensor]:
    """y and, unless they are found again, eta and the link that set it or -1, for x `(N, bodies, d)`.

    `anchor` is `(bodies, d)` and `lengths` is `(m)`, or there are N of them, and everything else is contiguous.
    """
    anchor = _placed(anchor)
    layout, y = _layout(x, anchor, links, lengths), torch.empty_like(x)
    kept = 0 if layout["AGAIN"] else x.shape[0]
    eta, active = x.new_empty(kept, dtype=working(x.dtype)), x.new_empty(kept, dtype=torch.int32)
    held = 2 * max(layout["WIDTH"], layout["LINKS"])
    launched(
        kernels.forward, True, x, held, x, anchor, links, lengths, y, eta, active,
        short=True, registers=_registers(x, layout), STRICT=strict, PAIRED=_paired(x),
        TILES=2 if x.element_size() == 2 and _alone(layout) else 1, **layout,
    )  # fmt: skip
    return y, eta, active


@operator("strings_backward")
def strings_backward(
    g: Tensor, x: Tensor, anchor: Tensor, links: Tensor, lengths: Tensor, eta: Tensor, active: Tensor, strict: bool,
    anchored: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The derivatives by x and by the anchor; the latter is of no use unless `anchored`."""
    anchor = _placed(anchor)
    if anchored and (anchor.ndim == 2 or anchor.shape[0] != x.shape[0]):
        raise ValueError(f"the derivative by an anchor of shape {tuple(anchor.shape)} for {x.shape[0]} samples")
    layout, dx = _layout(x, anchor, links, lengths), torch.empty_like(x)
    dx0 = x.new_empty(x.shape if anchored else 0, dtype=anchor.dtype)
    held = 2 * max(layout["WIDTH"], layout["LINKS"]) if layout["AGAIN"] else layout["WIDTH"]
    launched(
        kernels.backward, True, x, held, g, x, anchor, links, lengths, eta, active, dx, dx0,
        short=True, registers=_registers(x, layout), STRICT=strict, PAIRED=_paired(x, g),
        ANCHORED=anchored, **layout,
    )  # fmt: skip
    return dx, dx0


def _placed(anchor: Tensor) -> Tensor:
    """The anchor with one body, if all are at one place, as in `Strings.anchor`."""
    return dense(anchor[..., :1, :] if anchor.stride(-2) == 0 else anchor)


def _paired(*points: Tensor) -> bool:
    """Whether two numbers of 16 bits can be read as one of 32: what a compiler gives to a kernel may begin anywhere."""
    if points[0].element_size() != 2 or math.prod(points[0].shape[1:]) % 2:
        return False
    return not (watched() or torch.compiler.is_compiling()) and all([v.data_ptr() % 4 == 0 for v in points])


def _registers(x: Tensor, layout: dict[str, Any]) -> int:
    """How many a lane may use, if it can do with few."""
    if not layout["TOGETHER"] or x.element_size() == 8:
        return 0
    if not _alone(layout):
        return MORE
    return FEW if x.element_size() == 2 and layout["WIDTH"] <= 8 else REGISTERS


def _alone(layout: dict[str, Any]) -> bool:
    """Whether a warp holds a sample, or several."""
    return max(layout["WIDTH"], layout["LINKS"]) <= HELD // 2


def _layout(x: Tensor, anchor: Tensor, links: Tensor, lengths: Tensor) -> dict[str, Any]:
    """Sizes, where a kernel finds the anchor and the lengths of a sample, and whether weights are found AGAIN."""
    (bodies, d), m = x.shape[-2:], links.shape[0]
    sizes = {"BODIES": bodies, "D": d, "M": m, "ENDS": 2.001 * math.sqrt(d), "WIDTH": power(bodies * d)}
    rows = {"TOGETHER": anchor.shape[-2] == 1, "ROW0": stride(anchor, 2), "ROWL": stride(lengths, 1)}
    return sizes | rows | {"LINKS": power(m), "AGAIN": power(m) <= AGAIN}


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, anchor, links, lengths, ctx.strict = inputs
    ctx.save_for_backward(x, anchor, links, lengths, *output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _derivatives(ctx: Any, g: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, anchor, links, lengths, eta, active = ctx.saved_tensors
    if by_formulas(g):
        set = Strings(links, lengths)

        def formula(x: Tensor, anchor: Tensor) -> Tensor:
            return interpolated(set, x, anchor.expand_as(x), "chord", ctx.strict)[0]

        return differentiated(ctx, formula, (x, anchor), g)
    dx, dx0 = strings_backward(dense(g), x, anchor, links, lengths, eta, active, ctx.strict, ctx.needs_input_grad[1])
    return dx, dx0 if ctx.needs_input_grad[1] else None


strings.differentiate(_keep, _derivatives, live=2)

"""`SecondOrderCone` on a GPU: constants of the set and its anchor, and the operator around the kernels `cones.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._eager.calls import by_formulas, differentiated, remembered, traced
from .._eager.cones import ConeTerms
from .._eager.kinds import norm, positive, roundoff
from .._project import interpolated
from ..sets.second_order_cone import SecondOrderCone
from . import cones
from ._launch import dense, launched, power
from ._operator import Call, operator
from .polytopes import HELD, WIDEST, tensor_cores, tile

MANY = 64
"""Rows of a cone up to which a program goes through them one after another."""


def prepared(set: SecondOrderCone, x: Tensor, anchor: Tensor, method: str, strict: bool) -> Call | None:
    """The kernels for such points, or None where they do not apply."""
    fields = (set.A, set.b, set.z, set.d)
    if [v.ndim for v in fields] != [3, 2, 2, 1] or anchor.ndim != 1 or not tensor_cores(x):
        return None
    if method != "chord" and (method != "paper" or set.d.shape[0] > 1):
        return None
    if any([v.requires_grad or v.dtype != torch.float32 for v in (*fields, anchor)]) or x.dtype != torch.float32:
        return None
    if x.shape[-1] > WIDEST or set.A.shape[1] > MANY or 0 in (*x.shape, *set.A.shape):
        return None
    fields = tuple([dense(v) for v in fields])
    constants = (
        _constants(*fields, strict=strict, anchor=anchor) if traced() else remembered(_Kind, (*fields, strict), anchor)
    )
    return Call(cone, (*fields, dense(anchor), *constants, strict))


@torch.no_grad()
def _constants(A: Tensor, b: Tensor, z: Tensor, d: Tensor, strict: bool, anchor: Tensor) -> tuple[Tensor, ...]:
    """1 / -h(x0), and then `upper`, `lower`, `ends`, `offset`, `slope` and `margin` of the kernel.

    Its products are off by more than those of the formulas, see `polytopes._constants`.
    """
    now, (_, k, n) = ConeTerms.of((A, b, z, d), anchor), A.shape
    rows = torch.cat([A, z[:, None]], 1).transpose(0, 1).reshape(-1, n)
    ends = torch.cat([b, d[:, None]], 1).mT.flatten()
    upper = rounded(rows)
    depth = now.a - norm(now.p)
    pieces = (upper, rows - upper, ends)
    if not strict:
        sound = torch.where((depth > 0).all(), 0.0, torch.nan).to(A.dtype)
        nothing = torch.zeros_like(d)
        return (1 / depth).to(A.dtype), *pieces, nothing, nothing, torch.stack([sound, 0 * sound, 0 * sound])
    own = 1.01 * roundoff(A) * (3 * n + 42 + k / 2)
    more = 1 + own / (roundoff(A) * (n + k / 2 + 4))  # here, and where x is evaluated again
    inverse, offset, slope = [v.to(A.dtype) for v in (1 / positive(depth), more * now.sizes[0], more * now.sizes[1])]
    return inverse, *pieces, offset, slope, torch.stack([now.margin.p, now.margin.q, now.margin.size])


def rounded(v: Tensor) -> Tensor:
    """The nearest numbers of 11 bits."""
    return ((v.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)


class _Kind:
    """What is remembered for an anchor."""

    known = staticmethod(_constants)


@operator("cone")
def cone(
    x: Tensor, A: Tensor, b: Tensor, z: Tensor, d: Tensor, anchor: Tensor, inverse: Tensor, upper: Tensor,
    lower: Tensor, ends: Tensor, offset: Tensor, slope: Tensor, margin: Tensor, strict: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y, and for each sample eta, 1 / (1 + s) and the cone that sets it, for x `(..., n)`; everything is contiguous."""
    m, k, n = A.shape
    samples, width = x.numel() // n, max(16, power(n))
    y, kept = torch.empty_like(x), x.new_empty(3, samples)
    launched(
        cones.forward, False, x, width,
        x, anchor, upper, lower, ends, offset, slope, inverse, margin, y, kept,
        samples=samples, block=tile(samples), warps=4, stages=2, M=m, K=k, D=n, STRICT=strict, WIDTH=width,
        COLUMNS=min(64, HELD // width, max(16, power(m))),
    )  # fmt: skip
    return y, kept


@operator("cone_backward")
def cone_backward(
    g: Tensor, x: Tensor, A: Tensor, b: Tensor, z: Tensor, anchor: Tensor, inverse: Tensor, kept: Tensor
) -> Tensor:  # fmt: skip
    """The derivative by x."""
    dx, (_, k, n) = torch.empty_like(x), A.shape
    launched(
        cones.backward, True, x, power(n), g, x, anchor, A, b, z, inverse, kept, dx,
        samples=x.numel() // n, K=k, D=n, WIDTH=power(n),
    )  # fmt: skip
    return dx


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.strict = inputs
    ctx.save_for_backward(*tensors[:7], output[1])
    ctx.mark_non_differentiable(output[1])


def _derivatives(ctx: Any, g: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, A, b, z, d, anchor, inverse, kept = ctx.saved_tensors
    if by_formulas(g):
        set = SecondOrderCone(A, b, z, d)
        return differentiated(ctx, lambda x: interpolated(set, x, anchor, "chord", ctx.strict)[0], (x,), g)
    return (cone_backward(dense(g), x, A, b, z, anchor, inverse, kept),)


cone.differentiate(_keep, _derivatives, live=1)

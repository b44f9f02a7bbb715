"""`LMI` on a GPU, in one kernel: torch's eigensolvers find every pair, not only the smallest, and wait for the GPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._eager.calls import by_formulas, differentiated, remembered, traced
from .._eager.matrices import KNOWN
from .._project import interpolated
from ..sets.lmi import LMI
from . import matrices
from ._launch import dense, launched, power
from ._operator import Call, operator

WIDEST, SIDE = 64, 32
"""Coordinates of a point and rows of a matrix up to which a program goes through them one after another."""
HELD = 2048
"""Entries of matrices that a program holds on the way back."""
MATRICES, ENTRIES = 2, 512
"""Of a program on the way forth, and entries that a warp holds."""
SQUARINGS = 24
"""After which what is left out is less than rounding; see `matrices.py`."""


def prepared(set: LMI, x: Tensor, anchor: Tensor, method: str, strict: bool) -> Call | None:
    """The kernels for such points, or None where they do not apply."""
    A, C, kind = set.A, set.C, KINDS.get(method)
    if kind is None or A.ndim != 3 or C.ndim != 2 or anchor.ndim != 1 or 0 in (*x.shape, *C.shape):
        return None
    if x.shape[-1] > WIDEST or C.shape[-1] > SIDE or x.dtype != torch.float32:
        return None
    if any([v.requires_grad or v.dtype != torch.float32 for v in (A, C, anchor)]):
        return None
    known = kind.known(A, C, anchor=anchor) if traced() else remembered(kind, (A, C), anchor)
    return Call(lmi, (A, C, dense(anchor), *known, method, strict))


class _Kind:
    """What is remembered for an anchor: the matrices T, and the numbers for `matrices.forward`."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def known(self, A: Tensor, C: Tensor, anchor: Tensor) -> tuple[Tensor, Tensor]:
        known = self.kind.known(A, C, anchor=anchor)
        numbers = (known.inverse, known.offset, known.slope, known.margin.p, known.margin.q, known.margin.size)
        return known.stack, torch.stack([v.reshape(()) for v in numbers])


KINDS = {method: _Kind(kind) for method, kind in KNOWN[LMI].items()}


@operator("lmi")
def lmi(
    x: Tensor, A: Tensor, C: Tensor, anchor: Tensor, stack: Tensor, constants: Tensor, method: str, strict: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y, eta, 1 / (1 + s) and the eigenvector, for x `(..., n)`; everything is contiguous."""
    d, k = x.shape[-1], C.shape[-1]
    samples = x.numel() // d
    y, eta, raw, vector = torch.empty_like(x), x.new_empty(samples), x.new_empty(samples), x.new_empty(samples, k)
    side, width = max(16, power(k)), power(d)  # products are of 16 rows at least
    launched(
        matrices.forward, False, x, width, x, anchor, stack, constants, y, eta, raw, vector,
        samples=samples, block=MATRICES, warps=max(1, MATRICES * side * side // ENTRIES),
        D=d, K=k, SQUARINGS=SQUARINGS, STRICT=strict, WIDTH=width, SIDE=side,
    )  # fmt: skip
    return y, eta, raw, vector


@operator("lmi_backward")
def lmi_backward(
    g: Tensor, x: Tensor, anchor: Tensor, stack: Tensor, constants: Tensor, eta: Tensor, raw: Tensor, vector: Tensor
) -> Tensor:
    """The derivative by x."""
    dx, d, k = torch.empty_like(x), x.shape[-1], vector.shape[-1]
    area, width = power(k * k), power(d)
    launched(
        matrices.backward, False, x, width, g, x, anchor, stack, constants, eta, raw, vector, dx,
        samples=x.numel() // d, block=max(1, HELD // area), warps=4, D=d, K=k, WIDTH=width, AREA=area,
    )  # fmt: skip
    return dx


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.method, ctx.strict = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _derivatives(ctx: Any, g: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, A, C, anchor, stack, constants, eta, raw, vector = ctx.saved_tensors
    if by_formulas(g):
        set = LMI(A, C)
        return differentiated(ctx, lambda x: interpolated(set, x, anchor, ctx.method, ctx.strict)[0], (x,), g)
    return (lmi_backward(dense(g), x, anchor, stack, constants, eta, raw, vector),)


lmi.differentiate(_keep, _derivatives, live=1)

"""`Polytope` on a GPU: constants of the set and its anchor, and the operator around the kernels of `products.py`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._eager.calls import by_formulas, differentiated, remembered, traced
from .._project import interpolated
from ..sets.polytope import Polytope
from . import products
from ._launch import dense, launched, power
from ._operator import Call, operator

WIDEST = 256
"""Coordinates of a point up to which one program holds a tile of points."""
MOST = 2**24
"""Rows, whose numbers are kept as float32."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BLOCK, HELD = 64, 4096
"""Points of a tile, and numbers of A that a program has at hand at once."""


def prepared(set: Polytope, x: Tensor, anchor: Tensor, method: str, strict: bool) -> Call | None:
    """The kernels for such points, or None where they do not apply."""
    A, b = set.A, set.b
    if method not in ("chord", "ray") or x.dtype not in DTYPES or not tensor_cores(x):  # the same for affine ones
        return None
    if A.ndim != 2 or b.ndim != 1 or anchor.ndim != 1 or 0 in (*x.shape, *A.shape):
        return None
    if x.shape[-1] > WIDEST or A.shape[0] > MOST:
        return None
    if any([v.requires_grad or v.dtype not in (x.dtype, torch.float32) for v in (A, b, anchor)]):
        return None
    fields = (A, b, x.dtype, strict)
    constants = _constants(*fields, anchor) if traced() else remembered(_Kind, fields, anchor)
    return Call(polytope, (dense(A), b, dense(anchor), *constants, strict))


def tensor_cores(x: Tensor) -> bool:
    return torch.version.hip is None and (not x.is_cuda or torch.cuda.get_device_capability(x.device) >= (8, 0))


def tile(samples: int) -> int:
    """Points that a program takes: few of a small batch, so that there are many programs."""
    return min(BLOCK, max(16, power(-(-samples // 128))))


def _constants(A: Tensor, b: Tensor, dtype: torch.dtype, strict: bool, anchor: Tensor) -> tuple[Tensor, Tensor]:
    """What `products.forward` has to know of the set and its anchor, for points of this dtype."""
    outer = torch.finfo(dtype)
    narrow = 1.01 * outer.eps / 2 if dtype != torch.float32 else 0.0
    A, b, anchor = dense(A), dense(b), dense(anchor)
    return polytope_constants(A, b, anchor, narrow, outer.smallest_normal, strict)


class _Kind:
    """What is remembered for an anchor."""

    known = staticmethod(_constants)


@operator("polytope_constants")
def polytope_constants(
    A: Tensor, b: Tensor, anchor: Tensor, narrow: float, smallest: float, strict: bool
) -> tuple[Tensor, Tensor]:
    """Numbers for each row, and A in pieces; `narrow` is the roundoff of the result, if that is not of float32."""
    (m, d), width = A.shape, power(A.shape[1])
    rows, pieces = [A.new_empty(size, dtype=torch.float32) for size in ((5, m), (2, m, d))]
    launched(
        products.constants, False, A, width, A, b, anchor, rows, pieces,
        block=max(1, 1024 // width), warps=4, D=d, STRICT=strict, WIDTH=width, NARROW=narrow, SMALLEST=smallest,
        LARGEST=torch.finfo(torch.float32).max / 8, ROOT=math.sqrt(d),
    )  # fmt: skip
    return rows, pieces


@operator("polytope")
def polytope(
    x: Tensor, A: Tensor, b: Tensor, anchor: Tensor, rows: Tensor, pieces: Tensor, strict: bool
) -> tuple[Tensor, Tensor]:
    """y, and for each sample eta, 1 / (1 + s) and the row that sets it, for x `(..., n)`; everything is contiguous."""
    d = x.shape[-1]
    samples, width = x.numel() // d, max(16, power(d))
    y, kept = torch.empty_like(x), rows.new_empty(3, samples)
    launched(
        products.forward, False, x, width, x, anchor, rows, pieces, y, kept,
        samples=samples, block=tile(samples), warps=4, stages=2, M=A.shape[0], D=d, STRICT=strict,
        COLUMNS=min(64, HELD // width), WIDTH=width,
    )  # fmt: skip
    return y, kept


@operator("polytope_backward")
def polytope_backward(g: Tensor, x: Tensor, A: Tensor, anchor: Tensor, rows: Tensor, kept: Tensor) -> Tensor:
    """The derivative by x."""
    dx, d = torch.empty_like(x), x.shape[-1]
    launched(
        products.backward, True, x, power(d), g, x, A, anchor, rows, kept, dx,
        samples=x.numel() // d, D=d, WIDTH=power(d),
    )  # fmt: skip
    return dx


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, A, b, anchor, rows, _, ctx.strict = inputs
    ctx.save_for_backward(x, A, b, anchor, rows, output[1])
    ctx.mark_non_differentiable(output[1])


def _derivatives(ctx: Any, g: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, A, b, anchor, rows, kept = ctx.saved_tensors
    if by_formulas(g):
        set = Polytope(A, b)
        return differentiated(ctx, lambda x: interpolated(set, x, anchor, "chord", ctx.strict)[0], (x,), g)
    return (polytope_backward(dense(g), x, A, anchor, rows, kept),)


polytope.differentiate(_keep, _derivatives, live=1)

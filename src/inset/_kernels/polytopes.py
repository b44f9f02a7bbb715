"""`Polytope` on a GPU: constants of the set and its anchor, and the operator around the kernels of `products.py`."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._eager.calls import remembered, traced
from .._project import interpolated
from ..sets.polytope import Polytope
from . import products
from ._launch import launched, power
from ._operator import operator

WIDEST = 256
"""Coordinates of a point up to which one program holds a tile of points."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BLOCK, HELD = 64, 4096
"""Points of a tile, and numbers of A that a program has at hand at once."""


def fused(set: Polytope, x: Tensor, anchor: Tensor, method: str, strict: bool) -> Tensor | None:
    """g(x) by the kernels, or None where they do not apply."""
    A, b = set.A, set.b
    if method not in ("chord", "ray") or x.dtype not in DTYPES or not tensor_cores(x):  # the same for affine ones
        return None
    if A.ndim != 2 or b.ndim != 1 or anchor.ndim != 1 or x.shape[-1] > WIDEST or 0 in (*x.shape, *A.shape):
        return None
    if any([v.requires_grad for v in (A, b, anchor)]) or A.dtype != torch.float32 or b.dtype != torch.float32:
        return None
    if anchor.dtype not in (x.dtype, torch.float32):
        return None
    points = x.reshape(-1, x.shape[-1]).contiguous()
    fields = (A, b, x.dtype, strict)
    constants = _constants(*fields, anchor) if traced() else remembered(_Kind, fields, anchor)
    y, *_ = polytope(points, A.contiguous(), b, anchor.contiguous(), *constants, strict)
    return y.reshape(x.shape)


def tensor_cores(x: Tensor) -> bool:
    return torch.version.hip is None and (not x.is_cuda or torch.cuda.get_device_capability(x.device) >= (8, 0))


@torch.no_grad()
def _constants(A: Tensor, b: Tensor, dtype: torch.dtype, strict: bool, anchor: Tensor) -> tuple[Tensor, ...]:
    """1 / d, and then `upper`, `lower`, `offset`, `slope` and `margin` of the kernel.

    The products of the kernel are off by more than those of the formulas: a number is the sum of two short ones up to
    2^-21, products of the lower ones are left out, and tensor cores add eight products at a time and cut off what is
    less than 2^-23 of the largest.
    """
    n, u, inner, outer = A.shape[1], torch.finfo(A.dtype).eps / 2, torch.finfo(A.dtype), torch.finfo(dtype)
    narrow, tiny = (1.01 * outer.eps / 2, outer.smallest_normal) if outer.bits < inner.bits else (0.0, 0.0)
    k, split, off = u * (n + 2), 1.01 * u * (3 * n + 34), narrow * tiny * math.sqrt(n)
    anchor = anchor.to(A.dtype)
    rows, size, length = _norm(A), _norm(anchor), b.abs().clamp(max=1e30)
    bound = b.clamp(-inner.max / 8, inner.max / 8)
    depth = bound - A @ anchor
    inverse = 1 / depth
    scaled = A * inverse[:, None]
    upper = rounded(scaled)
    pieces = inverse, upper, scaled - upper
    if not strict:
        sound = torch.where((depth > 0).all(), 0.0, torch.nan)
        return *pieces, -bound * inverse, torch.zeros_like(b), torch.stack([sound, 0 * sound, 0 * sound])
    fixed = 4 * k * length + rows * ((4 * k + 8 * u + narrow) * size + off)
    left = depth - 2 * fixed
    left = torch.where(left > 0, left, torch.nan)
    p = ((fixed + 2 * k * length + rows * (4 * u * size + off)) / left).max()
    q = ((2 * k + 4 * u + narrow) * rows / left).max()
    return *pieces, (split * length - bound) * inverse, split * rows * inverse, torch.stack([p, q, size])


def rounded(v: Tensor) -> Tensor:
    """The nearest numbers of 11 bits."""
    return ((v.view(torch.int32) + 0x1000) & -0x2000).view(torch.float32)


class _Kind:
    """What is remembered for an anchor."""

    known = staticmethod(_constants)


def _norm(v: Tensor) -> Tensor:
    return torch.linalg.vector_norm(v, dim=-1, dtype=torch.float64).to(v.dtype)


@operator("polytope")
def polytope(
    x: Tensor, A: Tensor, b: Tensor, anchor: Tensor, inverse: Tensor, upper: Tensor, lower: Tensor, offset: Tensor,
    slope: Tensor, margin: Tensor, strict: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """y, eta, 1 / (1 + s) and the row that sets it, for x `(N, n)`; everything is contiguous."""
    samples, d = x.shape
    width = max(16, power(d))
    y, eta, raw = torch.empty_like(x), x.new_empty(samples, dtype=A.dtype), x.new_empty(samples, dtype=A.dtype)
    active = x.new_empty(samples, dtype=torch.int32)
    launched(
        products.forward, False, x, width, x, anchor, upper, lower, offset, slope, margin, y, eta, raw, active,
        block=BLOCK, warps=4, stages=2, M=A.shape[0], D=d, STRICT=strict, COLUMNS=min(64, HELD // width), WIDTH=width,
    )  # fmt: skip
    return y, eta, raw, active


@operator("polytope_backward")
def polytope_backward(
    g: Tensor, x: Tensor, A: Tensor, anchor: Tensor, inverse: Tensor, eta: Tensor, raw: Tensor, active: Tensor
) -> Tensor:
    """The derivative by x."""
    dx = torch.empty_like(x)
    launched(
        products.backward, True, x, power(x.shape[1]), g, x, A, anchor, inverse, eta, raw, active, dx,
        D=x.shape[1], WIDTH=power(x.shape[1]),
    )  # fmt: skip
    return dx


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, A, b, anchor, inverse, *_, ctx.strict = inputs
    ctx.save_for_backward(x, A, b, anchor, inverse, *output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _derivatives(ctx: Any, g: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    x, A, b, anchor, inverse, eta, raw, active = ctx.saved_tensors
    nothing = (None,) * 10
    if torch.is_grad_enabled():  # the derivative is to be differentiated: through the formulas of the set
        y, _ = interpolated(Polytope(A, b), x, anchor, "chord", ctx.strict)
        return *torch.autograd.grad(y, x, g, create_graph=True), *nothing
    return polytope_backward(g.contiguous(), x, A, anchor, inverse, eta, raw, active), *nothing


polytope.differentiate(_keep, _derivatives)

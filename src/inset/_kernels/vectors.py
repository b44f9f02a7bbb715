"""Sets of vectors on a GPU, a row of x each: y = x0 + eta (x - x0) with the weight of `chord`, and its derivative.

`Ball` with p = 2 and the diagonal `Ellipsoid` are |(x - c) s| <= r (`norms.py`); `Box` is lower <= x <= upper, and
`Simplex` is x >= 0 on the plane sum x = total (`bounds.py`). x is read once and y written once.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .._eager.calls import by_formulas, differentiated
from .._project import interpolated
from .._set import ConvexSet
from ..sets.ball import Ball
from ..sets.box import Box
from ..sets.ellipsoid import Ellipsoid
from ..sets.simplex import Simplex
from . import bounds, norms
from ._launch import common, dense, launched, power, rows, stride, working
from ._operator import Call, constant, operator

NORM, SCALED, BOUNDS, LOOSE, PLANE = range(5)
"""Kinds of sets: |x - p| <= r; |(x - p) q| <= r; p <= x <= q; the same with Python numbers, which have been rounded;
x >= 0 with sum x = r."""
WIDEST = 4096
"""Coordinates of a point up to which one program holds them all."""


def ball(set: Ball, x: Tensor, anchor: Tensor, method: str, strict: bool) -> Call | Tensor | None:
    """The kernels for such points, g(x) where each point has a set of its own, or None where they do not apply."""
    if set.p != 2 or method not in ("paper", "chord"):  # the same for one constraint
        return None
    return _fused(NORM, (set.center, None, set.radius), x, anchor, strict)


def ellipsoid(set: Ellipsoid, x: Tensor, anchor: Tensor, method: str, strict: bool) -> Call | Tensor | None:
    """The kernels for such points, g(x) where each point has a set of its own, or None where they do not apply."""
    if not set.diagonal or method not in ("paper", "chord"):
        return None
    return _fused(SCALED, (set.center, set.L, 1.0), x, anchor, strict)


def box(set: Box, x: Tensor, anchor: Tensor, method: str, strict: bool) -> Call | Tensor | None:
    """The kernels for such points, g(x) where each point has a set of its own, or None where they do not apply."""
    if method not in ("chord", "ray"):  # the same for affine constraints
        return None
    exact = isinstance(set.lower, Tensor) and isinstance(set.upper, Tensor)
    return _fused(BOUNDS if exact else LOOSE, (set.lower, set.upper, None), x, anchor, strict)


def simplex(set: Simplex, x: Tensor, anchor: Tensor, method: str, strict: bool) -> Call | Tensor | None:
    """The kernels for such points, g(x) where each point has a set of its own, or None where they do not apply."""
    if method not in ("chord", "ray"):
        return None
    return _fused(PLANE, (None, None, set.total), x, anchor, strict)


def _fused(kind: int, fields: tuple[Any, Any, Any], x: Tensor, anchor: Tensor, strict: bool) -> Call | Tensor | None:
    """As above, for a set with these p, q and r: tensors, numbers, or None for what it has not."""
    inner, d = working(x.dtype), x.shape[-1]
    held = [v for v in fields if isinstance(v, Tensor)]
    if any([v.requires_grad for v in held]) or any([v.dtype not in (x.dtype, inner) for v in (*held, anchor)]):
        return None
    if d > WIDEST or 0 in x.shape or 0 in anchor.shape or anchor.shape[-1] != d:
        return None
    shapes = [v.shape[: v.ndim - (k < 2)] for k, v in enumerate(fields) if isinstance(v, Tensor)]
    batch = common(x.shape[:-1], anchor.shape[:-1], *shapes)
    rest = (rows(anchor, batch, 1), *[_filled(v, x, (d,) if k < 2 else (), batch) for k, v in enumerate(fields)])
    if rest[0].ndim == 1 and not any(shapes):
        return Call(vectors, (*rest, kind, strict))
    if x.ndim == 2 and x.shape[:1] == batch:
        return vectors(dense(x), *rest, kind, strict)
    points = dense(x.expand(*batch, d).reshape(-1, d))
    return vectors(points, *rest, kind, strict).reshape(*batch, d)


def _filled(v: Any, x: Tensor, event: tuple[int, ...], batch: tuple[int, ...]) -> Tensor:
    """A field as `event`, or `(N, *event)`; of no use where there is none."""
    if v is None:
        return constant(0.0, working(x.dtype), x.device)
    if not isinstance(v, Tensor):
        one = constant(float(v), working(x.dtype), x.device)
        return one.expand(event).contiguous() if event else one
    if event and v.shape[-1:] != event:
        v = v.broadcast_to((*v.shape[:-1], *event))
    return rows(v, batch, len(event))


@operator("vectors")
def vectors(x: Tensor, anchor: Tensor, p: Tensor, q: Tensor, r: Tensor, kind: int, strict: bool) -> Tensor:
    """y for x `(N, d)`; `anchor`, p and q are `(d)` or `(N, d)`, r is `()` or `(N)`; everything is contiguous.

    If samples share all of these, x may have more dimensions.
    """
    y = torch.empty_like(x)
    _launched("forward", kind, strict, x, anchor, p, q, r, y)
    return y


@operator("vectors_backward")
def vectors_backward(
    g: Tensor, x: Tensor, anchor: Tensor, p: Tensor, q: Tensor, r: Tensor, kind: int, strict: bool, anchored: bool
) -> tuple[Tensor, Tensor]:
    """The derivatives by x and by the anchor; the latter is of no use unless `anchored`."""
    if anchored and anchor.shape != x.shape:
        raise ValueError(f"the derivative by an anchor of shape {tuple(anchor.shape)} for points {tuple(x.shape)}")
    dx, dx0 = torch.empty_like(x), torch.empty_like(anchor)
    _launched("backward", kind, strict, x, anchor, p, q, r, dx, dx0, g=g, ANCHORED=anchored)
    return dx, dx0


def _launched(
    name: str, kind: int, strict: bool, x: Tensor, anchor: Tensor, p: Tensor, q: Tensor, r: Tensor, *results: Tensor,
    g: Tensor | None = None, **options: Any,
) -> None:  # fmt: skip
    """Run the kernel of this name for a kind of set."""
    d = x.shape[-1]
    if kind in (NORM, SCALED):
        module, options = norms, options | {"SCALED": kind == SCALED, "ROOT": math.sqrt(d)}
    else:  # what Python numbers have lost is a matter of the margin
        module, options = bounds, options | {"PLANE": kind == PLANE, "LOOSE": kind == LOOSE and strict}
    row0, rowp, rowq, rowr = stride(anchor, 1), stride(p, 1), stride(q, 1), stride(r, 0)
    launched(
        getattr(module, name), True, x, power(d), *(() if g is None else (g,)), x, anchor, p, q, r, *results,
        samples=x.numel() // d, D=d, WIDTH=power(d), STRICT=strict, ROW0=row0, ROWP=rowp, ROWQ=rowq, ROWR=rowr,
        SHARED=not (row0 or rowp or rowq or rowr), **options,
    )  # fmt: skip


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.kind, ctx.strict = inputs
    ctx.save_for_backward(*tensors)


def _derivatives(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
    x, anchor, p, q, r = ctx.saved_tensors
    anchored = ctx.needs_input_grad[1]
    if by_formulas(g):
        set = _set(ctx.kind, x, p, q, r)
        return differentiated(ctx, lambda x, x0: interpolated(set, x, x0, "chord", ctx.strict)[0], (x, anchor), g)
    dx, dx0 = vectors_backward(dense(g), x, anchor, p, q, r, ctx.kind, ctx.strict, anchored)
    return dx, dx0 if anchored else None


def _set(kind: int, x: Tensor, p: Tensor, q: Tensor, r: Tensor) -> ConvexSet:
    """The set with these fields."""
    if kind == NORM:
        return Ball(p, r)
    if kind == SCALED:
        return Ellipsoid(p, q, diagonal=True)
    return Simplex(x.shape[-1], r) if kind == PLANE else Box(p, q)


vectors.differentiate(_keep, _derivatives, live=2)

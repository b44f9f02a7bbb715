"""Some sets in plain torch, in few operations: one autograd function in place of many formulas.

With d = -h(x0), the depth of the anchor, s = max_i h_i(x) / d_i is how far x is out, and eta = 1 / (1 + s). With
t = <g, x - x0> for an incoming g,

    dx = eta g - t / (1 + s)^2 ds.

For `ray`, s is the gauge less 1: the same for affine constraints. What depends on the set and the anchor alone is
computed once, see `_eager_sets.py` for polytopes, boxes and balls, `_eager_curved.py` for the rest. The margin of
`strict` is that of `_strict.py`. The formulas of the sets are the reference, and what runs for learned fields,
per-sample sets, half precision, under transforms, and for second derivatives.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from . import _eager_cones, _eager_matrices, _eager_quadratics, _eager_sets
from ._namespace import exact_arithmetic, reduced_products
from ._project import interpolated
from ._ray import HUGE
from ._set import ConvexSet

KNOWN = _eager_sets.KNOWN | _eager_quadratics.KNOWN | _eager_cones.KNOWN | _eager_matrices.KNOWN
"""Kinds, by the type of the set and the method."""
PLAIN = (Tensor, nn.Parameter)
"""Types that are not those of some tracer."""
LARGEST = 2**27
"""Numbers that are made of the points at once; if there were more, some points after the others."""


class _Entry(NamedTuple):
    """What was computed for an anchor and a kind of set: of which fields, in which state."""

    fields: tuple[Any, ...]
    versions: tuple[int, ...]
    known: Any


_MEMORY: Any = WeakTensorKeyDictionary()


def fused(set: ConvexSet, x: Any, anchor: Any, method: Any, strict: bool) -> Tensor | None:
    """g(x), or None where this does not apply."""
    kind = KNOWN[type(set)].get(method) if type(set) in KNOWN else None
    if kind is None or traced() or transformed():
        return None
    fields = kind.fields(set, method)
    if fields is None or not _applies(kind, fields, x, anchor):
        return None
    size = LARGEST // kind.count(fields, x)
    with exact_arithmetic(x):
        sloped = x.requires_grad and torch.is_grad_enabled()
        rest = (anchor, _known(kind, fields, anchor), method, strict, sloped, *fields)
        if x.numel() <= size * x.shape[-1]:
            return _Line.apply(x, *rest)
        chunks = x.reshape(-1, x.shape[-1]).split(size)
        return torch.cat([_Line.apply(chunk, *rest) for chunk in chunks]).reshape(x.shape)


def _applies(kind: Any, fields: tuple[Any, ...], x: Any, anchor: Any) -> bool:
    tensors = [anchor, *(v for v in fields if not isinstance(v, float))]
    if any([type(v) not in PLAIN for v in (x, *tensors)]) or x.dtype not in (torch.float32, torch.float64):
        return False
    if any([v.dtype != x.dtype or v.requires_grad for v in tensors]) or anchor.ndim != 1 or x.numel() == 0:
        return False
    if any([isinstance(v, Tensor) and (v.ndim != k or v.numel() == 0) for v, k in zip(fields, cycle(kind.dims))]):
        return False
    return kind.count(fields, x) <= LARGEST and not reduced_products(x)


def traced() -> bool:
    """Whether torch makes a program of what is called, which is to be that of the formulas."""
    return torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None


def transformed() -> bool:
    """Whether vmap, torch.func or forward-mode derivatives are at work, which fast paths have no rules for."""
    if torch._C._are_functorch_transforms_active():
        return True
    return not torch.compiler.is_compiling() and torch.autograd.forward_ad._current_level >= 0


def _known(kind: Any, fields: tuple[Any, ...], anchor: Tensor) -> Any:
    """From memory, if it is about these fields and nothing has changed."""
    tensors = [anchor, *(v for v in fields if isinstance(v, Tensor))]
    capturing = anchor.is_cuda and torch.cuda.is_current_stream_capturing()  # what a graph computes is the graph's
    if capturing or any([v.is_inference() for v in tensors]):  # which do not say whether they have changed
        return kind.known(*fields, anchor=anchor)
    entries = _MEMORY.setdefault(anchor, {})
    versions, found = tuple([v._version for v in tensors]), entries.get(kind)
    if found is None or found.versions != versions or not _same(found.fields, fields):
        found = entries[kind] = _Entry(fields, versions, kind.known(*fields, anchor=anchor))
    return found.known


def _same(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    """Whether these are the same tensors and equal numbers."""
    if len(old) != len(new):
        return False
    return all([a is b or (isinstance(a, float) and a == b) for a, b in zip(old, new, strict=True)])


class _Line(torch.autograd.Function):
    """y on the line from the anchor to x, and its derivative by x."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, anchor: Tensor, known: Any, method: str, strict: bool, sloped: bool, *fields: Any
    ) -> Tensor:
        points = x.reshape(-1, x.shape[-1])
        far = torch.linalg.vector_norm(points, ord=torch.inf, dim=-1, keepdim=True)
        pulled = (HUGE[torch.finfo(x.dtype).bits] / far).clamp_(max=1)
        points = points * pulled  # which changes none but huge ones
        out, length, *active = known.out(points, strict, sloped)
        raw, inside = 1 / (1 + out), out <= 0  # NaN is not
        if strict:  # also a point inside is lost if the anchor is not certain: then p is NaN
            eta = torch.where(inside, 1 + 0 * known.p, raw / (1 + known.error(raw, length)))
        else:
            eta = torch.where(inside, 1.0, raw)
        tensors = [v for v in fields if isinstance(v, Tensor)]  # saved, so that a change of them is noticed
        ctx.save_for_backward(x, anchor, points, pulled, eta, raw.masked_fill(inside, 0.0), *active, *tensors)
        ctx.known, ctx.method, ctx.strict = known, method, strict
        return torch.lerp(anchor, points, eta).reshape(x.shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, anchor, points, pulled, eta, raw, *active = ctx.saved_tensors
        nothing = (None,) * (len(ctx.needs_input_grad) - 1)
        if torch.is_grad_enabled():  # the derivative is to be differentiated: through the formulas of the set
            y, _ = interpolated(ctx.known.set, x, anchor, ctx.method, ctx.strict)
            return *torch.autograd.grad(y, x, g, create_graph=True), *nothing
        g = g.reshape(points.shape)
        along = torch.linalg.vecdot(g, points - anchor)[:, None]
        dx = ctx.known.less(eta * g, along * raw * raw, points, *active)
        return (dx * pulled).reshape(x.shape), *nothing

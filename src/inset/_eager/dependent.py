"""Polytopes, boxes and balls that depend on the input or are learned, in few operations; so may their anchors.

With i the constraint that counts, d = -h_i(x0), w = 1 / (d + h_i(x)), eta = d w and t = <g, x - x0> for an incoming g,

    dx = eta (g - t w dh_i(x)),    dx0 = (1 - eta) (g - t w dh_i(x0)),

and a field of the set gets -t w (eta dh_i(x) + (1 - eta) dh_i(x0)), with the derivatives of h_i by that field. See
`dependent_kinds.py` for what is so of each set. The formulas are the reference, and what runs for points that are not
finite, anchors that are hardly inside, half precision, under transforms, and for second derivatives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._namespace import exact_arithmetic, reduced_products
from .._project import interpolated
from .calls import by_formulas, differentiated, keep, kept
from .dependent_kinds import KINDS, Field
from .small import plain

LARGEST = 2**25
"""Numbers that values of all constraints may be; if there are more, the formulas take some samples after the others."""


def fused(set: Any, x: Any, anchor: Any, method: Any, strict: bool) -> Tensor | None:
    """g(x), or None where this does not apply."""
    kind = KINDS.get(type(set))
    if kind is None or method not in kind.methods(set):
        return None
    fields: tuple[Field, ...] = tuple([float(v) if isinstance(v, int) else v for v in kind.fields(set)])
    tensors = [v for v in fields if not isinstance(v, float)]
    if not plain(x, anchor, *tensors) or x.ndim == 0 or reduced_products(x):
        return None
    batch = x.shape[:-1]
    if any([not _fits(v, batch, k) for v, k in zip((anchor, *fields), (1, *kind.dims), strict=True)]):
        return None
    if batch.numel() * kind.count(fields, x) > LARGEST:
        return None
    with exact_arithmetic(x):
        numbers = tuple([v if isinstance(v, float) else None for v in fields])
        return _Line.apply(x, anchor, *tensors, (kind, numbers, method, strict))  # type: ignore[return-value]


def _fits(v: Field, batch: torch.Size, event: int) -> bool:
    """Whether it is there once, or for each sample."""
    if not isinstance(v, Tensor) or v.ndim == event:
        return True
    lead = v.shape[: v.ndim - event]
    if lead == batch:
        return True
    if event == 2 and not _shared(v, event):  # a matrix of some samples would be copied for the others
        return False
    return len(lead) <= len(batch) and all([a in (1, b) for a, b in zip(reversed(lead), reversed(batch), strict=False)])


def _shared(v: Tensor, event: int) -> bool:
    """Whether all samples have the same, so that its leading dimensions are 1 if there are some."""
    return v.shape[: v.ndim - event].numel() == 1


def _flat(v: Field, batch: torch.Size, event: int) -> Field:
    """As for one sample where all share it, else with one leading dimension."""
    if not isinstance(v, Tensor) or v.ndim == event:
        return v
    shape = v.shape[v.ndim - event :]
    if _shared(v, event):
        return v.reshape(shape)
    if len(batch) == 1 and v.ndim == event + 1:
        return v if v.shape[0] == batch[0] else v.expand(*batch, *shape)
    return v.expand(*batch, *shape).reshape(-1, *shape)


def _filled(tensors: Any, numbers: tuple[float | None, ...]) -> list[Field]:
    """The fields: tensors, and numbers where there are some."""
    rest = iter(tensors)
    return [next(rest) if v is None else v for v in numbers]


class _Line(torch.autograd.Function):
    """The point at the weight eta, and its derivatives; None where the formulas are to tell.

    The fields are not saved: but for `by_formulas` the way back does not need them, so that bounds in a buffer may be
    those of the next step by then.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, *given: Any) -> Tensor | None:
        *tensors, ctx.rest = given
        kind, numbers, _, strict = ctx.rest
        batch = x.shape[:-1]
        points = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
        fields = [_flat(v, batch, k) for v, k in zip(_filled(tensors, numbers), kind.dims, strict=True)]
        solved = kind.solve(points, _flat(anchor, batch, 1), *fields, strict)
        if solved is None:
            return None
        keep(ctx, (x, anchor), solved)
        ctx.tensors, ctx.versions = tensors, [_version(v) for v in tensors]
        return torch.lerp(anchor, x, solved.eta.view(*batch, 1))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (x, anchor), solved = kept(ctx)
        inputs = (x, anchor, *ctx.tensors)
        kind, numbers, method, strict = ctx.rest
        if by_formulas(g):
            if [_version(v) for v in ctx.tensors] != ctx.versions:
                raise RuntimeError(
                    f"a field of {kind.made.__name__} was changed in place after the projection: its derivative can be "
                    "had, but not in batches and not to be differentiated; clone the field before it is changed"
                )

            def formula(x: Tensor, anchor: Tensor, *tensors: Tensor) -> Tensor:
                return interpolated(kind.made(*_filled(tensors, numbers)), x, anchor, method, strict)[0]

            return *differentiated(ctx, formula, inputs, g), None
        with exact_arithmetic(g):
            return *_pulled(ctx, inputs, solved, g), None


def _version(v: Tensor) -> int | None:
    """How often it was changed in place; in inference mode nobody counts."""
    return None if v.is_inference() else v._version


def _pulled(ctx: Any, inputs: tuple[Tensor, ...], solved: Any, g: Tensor) -> list[Tensor | None]:
    """The derivatives by those inputs that ask for them."""
    (x, anchor, *tensors), (kind, numbers, _, _) = inputs, ctx.rest
    batch, n = x.shape[:-1], x.shape[-1]
    away, g = (x - anchor).reshape(-1, n), g.reshape(-1, n)
    w = torch.linalg.vecdot(g, away)[:, None] * solved.pull
    found: list[Tensor | None] = [None] * len(inputs)
    if ctx.needs_input_grad[0]:
        found[0] = torch.addcmul(g * solved.eta, w * solved.raw, solved.slope, value=-1).reshape(x.shape)
    if ctx.needs_input_grad[1]:
        slope0 = solved.slope if solved.slope0 is None else solved.slope0
        dx0 = torch.addcmul(g - g * solved.eta, w - w * solved.raw, slope0, value=-1)
        found[1] = dx0.reshape(x.shape).sum_to_size(anchor.shape)
    places = [k for k, v in enumerate(numbers) if v is None]
    for at, (k, v) in enumerate(zip(places, tensors, strict=True), 2):
        if ctx.needs_input_grad[at]:
            shared, shape = _shared(v, kind.dims[k]), v.shape[v.ndim - kind.dims[k] :]
            dv = kind.by_field(k, w, solved, x, anchor, shape, shared)
            found[at] = dv.reshape(v.shape) if shared else dv.reshape(*batch, *shape).sum_to_size(v.shape)
    return found

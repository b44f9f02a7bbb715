"""Some sets in plain torch, in few operations: one autograd function in place of many formulas.

With d = -h(x0), the depth of the anchor, s = max_i h_i(x) / d_i is how far x is out, and eta = 1 / (1 + s). With
t = <g, x - x0> for an incoming g,

    dx = eta g - t / (1 + s)^2 ds.

For `ray`, s is the gauge less 1: the same for affine constraints. What depends on the set and the anchor alone is
computed once, see `kinds.py` for polytopes and boxes, `norms.py` and `curved.py` for what is curved, `joint.py` for
intersections, `planes.py` for equalities. The margin of `strict` is that of `_strict.py`. The formulas of the sets are
the reference, and what runs for half precision, under transforms, and for second derivatives; learned fields, and those
of each sample, are left to them and to `dependent.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._combine import Intersection, parts
from .._namespace import exact_arithmetic, reduced_products
from .._project import interpolated
from .._ray import HUGE
from .._set import ConvexSet
from ..affine import Equality
from ..sets.quadratic import Quadratic
from . import cones, kinds, matrices, norms, planes, quadratics
from .calls import PLAIN, remembered, traced, transformed
from .joint import Found, Joint, dimensions

KNOWN = kinds.KNOWN | norms.KNOWN | quadratics.KNOWN | cones.KNOWN | matrices.KNOWN | planes.KNOWN
"""Kinds, by the type of the set and the method."""
LARGEST = 2**27
"""Numbers that are made of the points at once; if there were more, some points after the others."""


@dataclass(frozen=True)
class Lines:
    """What is known of a set, its anchor and the method: a function of points."""

    anchor: Tensor
    known: Any
    method: str
    strict: bool
    fields: tuple[Any, ...]
    size: int
    """Points that are taken at once."""

    @property
    def plane(self) -> planes.Plane | None:
        """That of the equalities, if there are some."""
        return getattr(self.known, "plane", None)

    def __call__(self, x: Tensor) -> Tensor:
        with exact_arithmetic(x):
            sloped = x.requires_grad and torch.is_grad_enabled()
            if x.numel() <= self.size * x.shape[-1]:
                return _Line.apply(x, self, sloped)  # type: ignore[return-value]
            chunks = x.reshape(-1, x.shape[-1]).split(self.size)
            return torch.cat([_Line.apply(chunk, self, sloped) for chunk in chunks]).reshape(x.shape)  # type: ignore[misc]


def fused(set: ConvexSet, x: Any, anchor: Any, method: Any, strict: bool) -> Tensor | None:
    """g(x), or None where this does not apply."""
    if traced() or transformed():
        return None
    call = _prepared(set, x, anchor, method, strict)
    return None if call is None else call(x)


def prepared(set: ConvexSet, x: Any, anchor: Any, method: Any, strict: bool) -> Lines | None:
    """The function for x and points like it; on a CPU, since elsewhere settings of torch matter that may change."""
    if type(x) not in PLAIN or not x.is_cpu:
        return None
    return _prepared(set, x, anchor, method, strict)


def _prepared(set: ConvexSet, x: Any, anchor: Any, method: Any, strict: bool) -> Lines | None:
    found = known_kind(set, method)
    if found is None or not _applies(*found, x, anchor):
        return None
    kind, fields = found
    with exact_arithmetic(x):
        known = remembered(kind, fields, anchor)
    if anchor.is_cpu and known.certain.item() != 1:  # by these bounds: the formulas may know that it is inside
        return None
    return Lines(anchor, known, method, strict, fields, LARGEST // kind.count(fields, x))


def known_kind(set: ConvexSet, method: Any) -> Found | None:
    """The kind of a set for a method, and its fields."""
    if type(set) not in KNOWN and type(set) is not Intersection:
        return None
    equal = [part for part in parts(set) if type(part) in planes.SOURCES]
    found = _inequalities([part for part in parts(set) if type(part) is not Equality], method)
    return found if found is None or not equal else planes.OnPlane.of(equal, found)


def _inequalities(sets: list[ConvexSet], method: Any) -> Found | None:
    """Of an intersection; quadratics, which are multiplied side by side, are one part of it."""
    forms = [set for set in sets if type(set) is Quadratic]
    if len(forms) > 1:
        sets = [Intersection(tuple(forms)), *[set for set in sets if type(set) is not Quadratic]]
    found = []
    for set in sets:
        kind = KNOWN[type(set)].get(method) if type(set) in KNOWN else None
        fields = None if kind is None else kind.fields(set, method)
        if kind is None or fields is None:
            return None
        found.append((kind, fields))
    if len(found) < 2:
        return found[0] if found else None
    return None if method == "paper" else Joint.of(found)  # the paper's has one constraint at x and one at the anchor


def _applies(kind: Any, fields: tuple[Any, ...], x: Any, anchor: Any) -> bool:
    tensors = [anchor, *(v for v in fields if not isinstance(v, float))]
    if any([type(v) not in PLAIN for v in (x, *tensors)]) or x.dtype not in (torch.float32, torch.float64):
        return False
    if any([v.dtype != x.dtype or v.requires_grad for v in tensors]) or anchor.ndim != 1 or x.numel() == 0:
        return False
    for v, k in zip(fields, dimensions((kind, fields)), strict=True):
        if isinstance(v, Tensor) and (v.numel() == 0 or (k is not None and v.ndim != k)):
            return False
    return kind.count(fields, x) <= LARGEST and not reduced_products(x)


ONE, ZERO = ({k: torch.tensor(v, dtype=k, device="cpu") for k in (torch.float32, torch.float64)} for v in (1.0, 0.0))
"""A number as a tensor takes torch half the time."""


class _Line(torch.autograd.Function):
    """y on the line from the anchor to x, and its derivative by x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, lines: Lines, sloped: bool) -> Tensor:  # torch looks at each argument
        known, strict = lines.known, lines.strict
        points, pulled = _moderate(x if x.ndim == 2 else x.reshape(-1, x.shape[-1]))
        start, points = (lines.anchor, points) if lines.plane is None else (known.start, lines.plane.onto(points))
        one, zero = ONE[x.dtype], ZERO[x.dtype]
        out, length, *active = known.out(points, strict, sloped)
        raw, inside = torch.add(out, one).reciprocal_(), out <= zero  # NaN is not
        if strict:  # also a point inside is lost if the anchor is not certain; to fill that in would wait for a GPU
            eta = torch.where(inside, known.certain, raw / known.more(raw, length))
        else:
            eta = raw.masked_fill(inside, one)
        if sloped:
            tensors = [v for v in lines.fields if isinstance(v, Tensor)]  # saved, so that a change of them is noticed
            raw.masked_fill_(inside, zero)
            ctx.save_for_backward(*active, x, lines.anchor, points, pulled, eta, raw, *tensors)
            ctx.lines, ctx.start, ctx.active = lines, start, len(active)
        y = torch.lerp(start, points, eta)
        return y if x.ndim == 2 else y.reshape(x.shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        lines, saved = ctx.lines, ctx.saved_tensors
        active, (x, anchor, points, pulled, eta, raw, *_) = saved[: ctx.active], saved[ctx.active :]
        if torch.is_grad_enabled():  # the derivative is to be differentiated: through the formulas of the set
            y, _ = interpolated(lines.known.set, x, anchor, lines.method, lines.strict)
            return *torch.autograd.grad(y, x, g, create_graph=True), None, None
        g = g if x.ndim == 2 else g.reshape(points.shape)
        with exact_arithmetic(x):
            along = torch.linalg.vecdot(g, points - ctx.start).unsqueeze(-1)
            dx = lines.known.less(eta * g, along * raw * raw, points, *active)
        dx = dx if pulled is None else dx * pulled
        return dx if x.ndim == 2 else dx.reshape(x.shape), None, None


def _moderate(points: Tensor) -> tuple[Tensor, Tensor | None]:
    """The points, huge ones pulled in, and by what factor; None where there are none."""
    limit = HUGE[torch.finfo(points.dtype).bits]
    if points.is_cpu:
        low, high = torch.aminmax(points)
        if low.item() >= -limit and high.item() <= limit:
            return points, None
    far = torch.linalg.vector_norm(points, ord=torch.inf, dim=-1, keepdim=True)
    pulled = (limit / far).clamp_(max=1)
    return points * pulled, pulled  # which changes none but huge ones

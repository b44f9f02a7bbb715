"""`Strings` whose anchor has all bodies in one place, with derivatives in closed form; see `_eager/strings.py`.

With s = max_l (|span_l(x)| - length_l) / length_l, the weight is eta = 1 / (1 + s). In float64, where no square of a
float32 overflows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._eager.calls import differentiated, transformed
from .._namespace import is_exporting, keep, select_along
from .._project import interpolated
from ..sets.strings import Strings

ROUNDOFF, TINY = 2.0**-24, 2.0**-148
"""Of float32, and what two of its numbers that are not normal may be off by, twice."""
LONGEST = 1e30
"""Longer strings count as strings of that length in the margin."""


def fused(set: Any, x: Any, anchor: Any, method: Any, strict: bool) -> Tensor | None:
    """g(x), or None where this does not apply."""
    if type(set) is not Strings or method not in ("chord", "ray") or transformed() or is_exporting():
        return None
    if x.shape != anchor.shape or 0 in (*x.shape[-2:], set.links.numel()) or anchor.stride(-2) != 0:
        return None
    lengths = set.lengths
    if lengths.ndim != 1 or lengths.requires_grad if isinstance(lengths, Tensor) else not 0 < lengths <= LONGEST:
        return None
    if any([not v.is_cpu or v.dtype != torch.float32 for v in (x, anchor, lengths) if isinstance(v, Tensor)]):
        return None
    return _Line.apply(x, anchor, (set, method, strict))  # type: ignore[return-value]


def _chosen(set: Strings, points: Tensor, strict: bool) -> tuple[Tensor, Tensor, Any]:
    """1 + s, or a bound of it, the link that sets it, and its length."""
    spans = set._spans(points)
    k = ROUNDOFF * (points.shape[-1] / 2 + 4) if strict else 0.0
    parts = (spans * spans).sum(-1) ** 0.5 / set.lengths * (1 + k) + k
    i = parts.argmax(-1)
    lengths: Any = set.lengths
    if isinstance(lengths, Tensor):
        lengths = select_along(lengths.expand(parts.shape[-1]), i.reshape(-1), 0).reshape(i.shape)
    return parts.amax(-1), i, lengths


def _kept(set: Strings, t: Tensor, away: Tensor, anchor: Tensor, strict: bool) -> Tensor:
    """What is left of the weight t after the margin of `_strict.py`; NaN for no anchor.

    The bodies of a link are off by 4 u (|y_i| + |x0|) each, and |y_i| <= |x0| + t |x_i - x0|. No span of y is longer
    than its string, and what rounding adds is the largest part of the shortest string.
    """
    u, d = ROUNDOFF, away.shape[-1]
    shortest = t.new_full((), set.lengths) if not isinstance(set.lengths, Tensor) else set.lengths.double().amin()
    if not strict:
        return keep(shortest > 0, torch.ones_like(shortest), float("nan"))
    shortest = shortest.clamp(max=LONGEST)
    evaluation = u * (d / 2 + 4) * shortest
    far0, far = ((v * v).sum(-1).sum(-1) ** 0.5 for v in (anchor, away))
    fixed = 4 * evaluation + 16 * u * far0 + TINY * d**0.5
    error = fixed + 4.01 * evaluation + 4 * u * (4 * far0 + 1.415 * t * far)
    room = shortest - 2 * fixed
    return keep(room > 0, 1 - error / (room + error), float("nan"))


class _Line(torch.autograd.Function):
    """The point at the weight eta, and its derivatives by x and by the anchor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, rest: tuple[Any, ...]) -> Tensor:
        set, _, strict = ctx.rest = rest
        point, middle = x.double(), anchor[..., :1, :].double()
        top, i, lengths = _chosen(set, point, strict)
        outside = ~(top <= 1)
        t = 1 / keep(outside, top, 1.0)
        kept = _kept(set, t, point - middle, middle, strict)
        eta = keep(outside | kept.isnan(), t * kept, 1.0)
        ctx.save_for_backward(x, anchor, eta, keep(outside, t * t, 0.0) / lengths, i)
        return torch.lerp(middle, point, eta[..., None, None]).float()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, anchor, eta, pull, i = ctx.saved_tensors
        set, method, strict = ctx.rest
        if torch.is_grad_enabled():  # the derivative is to be differentiated
            return *differentiated(ctx, lambda x, x0: interpolated(set, x, x0, method, strict)[0], (x, anchor), g), None
        point, pushed = x.double(), g.double()
        along = (pushed * (point - anchor[..., :1, :].double())).sum(-1).sum(-1) * pull
        ends = select_along(set.links, i.reshape(-1), 0).reshape(*i.shape, 2)
        first, second = (point.gather(-2, ends[..., k, None, None].expand(*i.shape, 1, x.shape[-1])) for k in (0, 1))
        span = first - second
        span = span * (along / ((span * span).sum((-2, -1)) ** 0.5 + 1e-300))[..., None, None]
        bodies = torch.arange(x.shape[-2], device=x.device)
        signs = (ends[..., :1] == bodies).double() - (ends[..., 1:] == bodies).double()
        inner = pushed * eta[..., None, None]
        return (inner - signs[..., None] * span).float(), (pushed - inner).float(), None

"""`Strings` in few operations, with its derivatives by x and by the anchor in closed form.

With d_l = length_l - |span_l(x0)|, the depth of the anchor, s = max_l (|span_l(x)| - length_l) / d_l is how far x is
out, and eta = 1 / (1 + s). With l the link that sets it, n_l the derivative of a length by the positions, and
t = <g, x - x0> for an incoming g,

    dx = eta g - t eta^2 / d_l n_l(x),    dx0 = (1 - eta) g - t eta^2 s / d_l n_l(x0).

Where the anchor has all bodies in one place, as the mean of some positions has, spans are 0 there. The margin of
`strict` is that of `_strict.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .._project import interpolated
from ..sets.strings import Strings
from .calls import by_formulas, differentiated
from .small import ROUNDOFF, array, at_least, engine, plain, quiet, tensor

LEAST, MOST = 1e-12, 1e12
"""Lengths, and coordinates, for which no square leaves the range of float32."""
LARGEST = 2**25
"""Numbers that spans may have; if there are more, the formulas take some samples after the others."""


def fused(set: Any, x: Any, anchor: Any, method: Any, strict: bool) -> Tensor | None:
    """g(x), or None where this does not apply."""
    if type(set) is not Strings or method not in ("chord", "ray", "paper") or not plain(x, anchor):
        return None
    links, lengths = set.links, set.lengths
    if type(links) is not Tensor or links.dtype != torch.int64 or not links.is_cpu or links.is_inference():
        return None
    if isinstance(lengths, Tensor):
        if not plain(x, lengths) or lengths.requires_grad or lengths.ndim != 1:
            return None
    elif not isinstance(lengths, (int, float)) or not LEAST <= lengths <= MOST:
        return None
    if links.numel() == 0 or x.numel() // x.shape[-2] * links.shape[0] > LARGEST:
        return None
    if x.shape != anchor.shape:
        batch = torch.broadcast_shapes(x.shape, anchor.shape)
        x, anchor = x.expand(batch), anchor.expand(batch)
    together = anchor.stride(-2) == 0
    if method != "chord" and not together:
        return None
    if method == "paper" and isinstance(lengths, Tensor):  # for one length and such an anchor all are the same
        return None
    with quiet(engine(x)):
        solved = _solved(x, anchor, links, lengths, together, strict)
    return None if solved is None else _Line.apply(x, anchor, (links, lengths, solved, strict))  # type: ignore[return-value]


class _Ends(NamedTuple):
    """What is remembered of the links: in which state they were, their bodies, and for how many."""

    version: int
    first: Any
    second: Any
    incidence: Any
    """The matrix `(m, bodies)` that takes positions to spans."""


_ENDS: Any = WeakTensorKeyDictionary()


def _ends(links: Tensor, bodies: int) -> _Ends | None:
    """From memory, if nothing has changed; None if there are no such bodies."""
    found = _ENDS.get(links)
    if found is None or found.version != links._version or found.incidence.shape[1] != bodies:
        if links.ndim != 2 or bool(((links < 0) | (links >= bodies)).any()):
            return None
        first, second = (links[:, k].numpy().copy() for k in (0, 1))
        eye = np.eye(bodies, dtype=np.float32)
        found = _ENDS[links] = _Ends(links._version, first, second, eye[first] - eye[second])
    return found


class _Solved(NamedTuple):
    """The weight of each sample, `(N,)`, and what its derivative is made of."""

    eta: Any
    raw: Any
    """Without the margin."""
    away: Any
    """x - x0, `(N, bodies d)`."""
    out: Any
    """1 + (|span_l| - length_l) / d_l, `(N, m)`."""
    depth: Any
    spans: tuple[Any, ...]
    """At x, and at the anchor unless all its bodies are in one place."""
    lengths: tuple[Any, ...]
    incidence: Any


def _solved(x: Tensor, anchor: Tensor, links: Tensor, lengths: Any, together: bool, strict: bool) -> _Solved | None:
    """None where x is not finite or huge, or the anchor is not certainly inside."""
    xp, u, (bodies, d), ends = engine(x), ROUNDOFF[x.dtype], x.shape[-2:], _ends(links, x.shape[-2])
    if ends is None:
        return None
    points, anchors = array(xp, x).reshape(-1, bodies, d), array(xp, anchor).reshape(-1, bodies, d)
    longest = array(xp, lengths) if isinstance(lengths, Tensor) else float(lengths)
    if isinstance(lengths, Tensor) and not (lengths.min() >= LEAST and lengths.max() <= MOST):
        return None
    away = (points - anchors).reshape(points.shape[0], -1)
    spans = tuple([_spans(xp, v, ends) for v in ((points,) if together else (points, anchors))])
    long = tuple([_norm(xp, v) for v in spans])
    k = u * (d / 2 + 6) if strict else 0.0
    if together:
        depth, out = longest, long[0] / longest
        out = out * (1 + k) + k if strict else out
    else:
        depth = longest - long[1]
        if not depth.min() > 0:
            return None
        out = 1 + (long[0] * (1 + k) - longest * (1 - k)) / depth
    top = out.max(-1) if xp is np else out.amax(-1)
    eta = raw = 1 / at_least(top, 1.0)
    if strict:
        far0 = _norm(xp, anchors[:, 0] if together else anchors.reshape(away.shape))
        part = _margin(raw, _norm(xp, away), far0, depth, long, longest, u, d)
        if not part.max() <= 0.01:
            return None
        eta = raw - raw * part * (raw < 1)
    elif not top.max() <= MOST:
        return None
    return _Solved(eta, raw, away, out, depth, spans, long, ends.incidence)


def _spans(xp: Any, points: Any, ends: _Ends) -> Any:
    """p_i - p_j for each link, `(N, m, d)`."""
    if xp is np:
        return points.take(ends.first, 1) - points.take(ends.second, 1)
    return points.index_select(1, tensor(ends.first)) - points.index_select(1, tensor(ends.second))


def _norm(xp: Any, v: Any) -> Any:
    return np.sqrt(np.vecdot(v, v)) if xp is np else torch.linalg.vector_norm(v, dim=-1)


def _margin(eta: Any, far: Any, far0: Any, depth: Any, long: Any, longest: Any, u: float, d: int) -> Any:
    """The part of eta to give up, see `_strict.py`; it is good up to 0.01, and only then is the anchor sound.

    The bodies of a link are off by 4 u (|y_i| + |x0_i| + |y_j| + |x0_j|), and |y_i| <= |x0_i| + eta |x_i - x0_i|. With
    `far` = |x - x0|, of which two bodies are at most sqrt(2), and `far0` = |x0|, or its size at each body if that is
    the same. Here error / (room + error) <= error / 0.98 depth.
    """
    k, both = u * (d / 2 + 4), 1.415 * 4 * u
    if len(long) == 1:  # all spans are 0 at the anchor, and the shortest length is the one that counts
        shortest = longest if isinstance(longest, float) else float(longest.min())
        scale = 1 / (0.98 * shortest)
        return (far * (both * scale)) * eta + (far0 * (32.1 * u * scale) + 8.04 * k / 0.98)
    off = far * both * eta + far0 * (4 * both)
    part = (4 * k * long[1] + 8.04 * k * longest + off[:, None]) / (0.98 * depth)
    return part.max(-1) if isinstance(part, np.ndarray) else part.amax(-1)


class _Line(torch.autograd.Function):
    """The point at the weight eta, and its derivatives by x and by the anchor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, rest: tuple[Any, ...]) -> Tensor:  # torch looks at each argument
        links, lengths, solved, _ = rest
        if isinstance(lengths, Tensor):  # saved, so that a change of them is noticed
            ctx.save_for_backward(x, anchor, links, lengths)
        else:
            ctx.save_for_backward(x, anchor, links)
        ctx.rest = rest[1:]
        return torch.lerp(anchor, x, tensor(solved.eta.reshape(*x.shape[:-2], 1, 1)))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (x, anchor, links, *_), (lengths, solved, strict) = ctx.saved_tensors, ctx.rest
        if by_formulas(g):
            set = Strings(links, lengths)
            return *differentiated(
                ctx, lambda x, x0: interpolated(set, x, x0, "chord", strict)[0], (x, anchor), g
            ), None
        dx, dx0 = _pulled(solved, array(engine(x), g), x.shape[-2:])
        return tensor(dx).reshape(x.shape), tensor(dx0).reshape(x.shape) if ctx.needs_input_grad[1] else None, None


def _pulled(solved: _Solved, g: Any, event: Any) -> tuple[Any, Any]:
    """The derivatives by x and by the anchor."""
    eta, raw, away, out, depth, spans, long, incidence = solved
    i, rows = out.argmax(-1), np.arange(out.shape[0])
    flat = g.reshape(away.shape)
    if isinstance(away, np.ndarray):
        along = np.vecdot(flat, away)
    else:
        along, rows, incidence = torch.linalg.vecdot(flat, away), tensor(rows), tensor(incidence)
    if not isinstance(depth, float):
        depth = depth[i] if depth.ndim == 1 else depth[rows, i]
    pull = along * raw * raw * (raw < 1) / depth
    g, signs = g.reshape(-1, *event), incidence[i][:, :, None]
    inner = g * eta[:, None, None]
    dx = inner - signs * _unit(spans[0], long[0], pull, rows, i)
    dx0 = g - inner
    if len(spans) > 1:
        dx0 = dx0 - signs * _unit(spans[1], long[1], pull * (1 / raw - 1), rows, i)
    return dx, dx0


def _unit(span: Any, long: Any, pull: Any, rows: Any, i: Any) -> Any:
    """pull times the unit vector of the chosen span, `(N, 1, d)`; 0 if that is 0."""
    return (span[rows, i] * (pull / (long[rows, i] + 1e-30))[:, None])[:, None]

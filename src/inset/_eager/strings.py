"""`Strings` in few operations, with its derivatives by x and by the anchor in closed form.

With d_l = length_l - |span_l(x0)|, the depth of the anchor, s = max_l (|span_l(x)| - length_l) / d_l is how far x is
out, and eta = 1 / (1 + s). With l the link that sets it, n_l the derivative of a length by the positions, and
t = <g, x - x0> for an incoming g,

    dx = eta g - t eta^2 / d_l n_l(x),    dx0 = (1 - eta) g - t eta^2 s / d_l n_l(x0).

Where the anchor has all bodies in one place, as the mean of some positions has, spans are 0 there. The margin of
`strict` is that of `_strict.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._namespace import exact_arithmetic
from .._project import interpolated
from ..sets.strings import Strings
from .calls import by_formulas, differentiated
from .small import ROUNDOFF, array, at_least, engine, largest, plain, quiet, tensor

LEAST, MOST = 1e-12, 1e12
"""Lengths, and coordinates, for which no square leaves the range of float32."""
DENSE = 2**18
"""Entries of the matrix of links and bodies."""
LARGEST = 2**25
"""Numbers that spans may have; if there are more, the formulas take some samples after the others."""


def fused(set: Any, x: Any, anchor: Any, method: Any, strict: bool) -> Tensor | None:
    """g(x), or None where this does not apply."""
    found = prepared(set, x, anchor, method, strict)
    return None if found is None else found(x, anchor)


def prepared(set: Any, x: Any, anchor: Any, method: Any, strict: bool) -> Lengths | None:
    """A function of x and an anchor like these, which is g(x) or None, or None where this does not apply."""
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
    ends = None if links.numel() == 0 else _ends(links, x.shape[-2])
    return None if ends is None else Lengths(links, lengths, ends, method, strict)


@dataclass(frozen=True)
class Lengths:
    """What is known of strings: a function of points and of an anchor."""

    links: Tensor
    lengths: Any
    ends: _Ends
    method: str
    strict: bool

    def __call__(self, x: Tensor, anchor: Tensor) -> Tensor | None:
        if x.numel() // x.shape[-2] * self.links.shape[0] > LARGEST or anchor.numel() == 0:
            return None
        if x.is_neg() or anchor.is_neg():
            return None
        if x.shape != anchor.shape:
            batch = torch.broadcast_shapes(x.shape, anchor.shape)
            x, anchor = x.expand(batch), anchor.expand(batch)
        together = anchor.stride(-2) == 0
        if self.method != "chord" and not together:
            return None
        # for one length and an anchor in one place all methods are the same
        if self.method == "paper" and isinstance(self.lengths, Tensor):
            return None
        with quiet(engine(x)):
            solved = _solved(x, anchor, self, together)
        return None if solved is None else _Line.apply(x, anchor, (self, solved))  # type: ignore[return-value]


class _Ends(NamedTuple):
    """The bodies of each link, `(m,)`, and the matrix `(m, bodies)` that takes positions to spans."""

    first: Any
    second: Any
    incidence: Any


def _ends(links: Tensor, bodies: int) -> _Ends | None:
    """None for links of no such bodies, and where the matrix would be large."""
    if links.ndim != 2 or links.shape[1] != 2 or links.shape[0] * bodies > DENSE or links.is_neg():
        return None
    return _read(links.contiguous().numpy().tobytes(), bodies)


@lru_cache(maxsize=32)
def _read(links: bytes, bodies: int) -> _Ends | None:
    pairs = np.frombuffer(links, np.int64).reshape(-1, 2)
    if ((pairs < 0) | (pairs >= bodies)).any():
        return None
    first, second = pairs.T.copy()
    eye = np.eye(bodies, dtype=np.float32)
    return _Ends(first, second, eye[first] - eye[second])


class _Solved(NamedTuple):
    """The weight of each sample, `(N,)`, and what its derivative is made of."""

    eta: Any
    raw: Any
    """Without the margin."""
    away: Any
    """x - x0, `(N, bodies d)`."""
    link: Any
    """That which sets the weight, `(N,)`."""
    depth: Any
    """Of the links: a number, `(m,)` or `(N, m)`."""
    spans: tuple[Any, ...]
    """At x, and at the anchor unless all its bodies are in one place."""


def _solved(x: Tensor, anchor: Tensor, known: Lengths, together: bool) -> _Solved | None:
    """None where x is not finite or huge, or the anchor is not certainly inside."""
    xp, u, (bodies, d), lengths, strict = engine(x), ROUNDOFF[x.dtype], x.shape[-2:], known.lengths, known.strict
    points, anchors = array(xp, x), array(xp, anchor)
    if x.ndim != 3:
        points, anchors = points.reshape(-1, bodies, d), anchors.reshape(-1, bodies, d)
    longest = array(xp, lengths) if isinstance(lengths, Tensor) else float(lengths)
    if isinstance(lengths, Tensor) and not (lengths.min() >= LEAST and lengths.max() <= MOST):
        return None
    away = (points - anchors).reshape(points.shape[0], -1)
    spans = tuple([_spans(xp, v, known.ends) for v in ((points,) if together else (points, anchors))])
    square, k, long0 = _squares(spans[0]), u * (d / 2 + 6) if strict else 0.0, 0.0
    if together:
        depth, out, scale = longest, square, 1 + k
        if isinstance(longest, float):
            scale /= longest
        else:
            out = square / (longest * longest)
        link = out.argmax(-1)
        top = _root(_at(out, link)) * scale + k
    else:
        long0 = _root(_squares(spans[1]))
        depth = longest - long0
        if not depth.min() > 0:
            return None
        out = 1 + (_root(square) * (1 + k) - longest * (1 - k)) / depth
        link = out.argmax(-1)
        top = _at(out, link)
    if not largest(top) <= MOST:
        return None
    eta = raw = 1 / at_least(top, 1.0)
    if strict:
        far0 = _norm(anchors[:, 0] if together else anchors.reshape(away.shape))
        part = _margin(raw, _norm(away), far0, depth, long0, longest, u, d)
        if not largest(part) <= 0.01:
            return None
        eta = raw - raw * part * (raw < 1)
    return _Solved(eta, raw, away, link, depth, spans)


def _spans(xp: Any, points: Any, ends: _Ends) -> Any:
    """p_i - p_j for each link, `(N, m, d)`."""
    if xp is np:
        return points.take(ends.first, 1) - points.take(ends.second, 1)
    return points.index_select(1, tensor(ends.first)) - points.index_select(1, tensor(ends.second))


def _squares(spans: Any) -> Any:
    """Their squared lengths, `(N, m)`."""
    if isinstance(spans, Tensor):
        return torch.linalg.vecdot(spans, spans)
    d = spans.shape[-1]  # a sum over so few numbers takes NumPy longer than a product with ones
    return (spans * spans).reshape(-1, d).dot(_ones(d, spans.dtype)).reshape(spans.shape[:-1])


@lru_cache
def _ones(d: int, dtype: Any) -> Any:
    return np.ones(d, dtype)


def _root(v: Any) -> Any:
    return v.sqrt() if isinstance(v, Tensor) else np.sqrt(v)


def _norm(v: Any) -> Any:
    return torch.linalg.vector_norm(v, dim=-1) if isinstance(v, Tensor) else np.sqrt(np.vecdot(v, v))


def _at(v: Any, link: Any) -> Any:
    """v of each sample at its link: `(N,)` of `(N, m)`, `(N, d)` of `(N, m, d)`."""
    samples, m = v.shape[:2]
    rest = v.reshape(samples * m, *v.shape[2:])
    if isinstance(v, Tensor):
        return rest.index_select(0, link + torch.arange(0, samples * m, m, device=v.device))
    return rest.take(link + np.arange(0, samples * m, m), 0)


def _margin(eta: Any, far: Any, far0: Any, depth: Any, long0: Any, longest: Any, u: float, d: int) -> Any:
    """The part of eta to give up, see `_strict.py`; it is good up to 0.01, and only then is the anchor sound.

    The bodies of a link are off by 4 u (|y_i| + |x0_i| + |y_j| + |x0_j|), and |y_i| <= |x0_i| + eta |x_i - x0_i|. With
    `far` = |x - x0|, of which two bodies are at most sqrt(2), `far0` = |x0|, or its size at each body if that is the
    same, and `long0` the spans at the anchor, 0 if it is. Here error / (room + error) <= error / 0.98 depth.
    """
    k, both = u * (d / 2 + 4), 1.415 * 4 * u
    if isinstance(long0, float):  # the shortest length is the one that counts
        shortest = longest if isinstance(longest, float) else float(longest.min())
        scale = 1 / (0.98 * shortest)
        return (far * (both * scale)) * eta + (far0 * (32.1 * u * scale) + 8.04 * k / 0.98)
    off = far * both * eta + far0 * (4 * both)
    part = (4 * k * long0 + 8.04 * k * longest + off[:, None]) / (0.98 * depth)
    return part.max(-1) if isinstance(part, np.ndarray) else part.amax(-1)


class _Line(torch.autograd.Function):
    """The point at the weight eta, and its derivatives by x and by the anchor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, rest: tuple[Any, ...]) -> Tensor:  # torch looks at each argument
        known, solved = ctx.rest = rest
        if isinstance(known.lengths, Tensor):  # saved, so that a change of them is noticed
            ctx.save_for_backward(x, anchor, known.links, known.lengths)
        else:
            ctx.save_for_backward(x, anchor, known.links)
        return torch.lerp(anchor, x, tensor(solved.eta.reshape(*x.shape[:-2], 1, 1)))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (x, anchor, *_), (known, solved) = ctx.saved_tensors, ctx.rest
        if by_formulas(g):
            set = Strings(known.links, known.lengths)
            return *differentiated(
                ctx, lambda x, x0: interpolated(set, x, x0, "chord", known.strict)[0], (x, anchor), g
            ), None
        with exact_arithmetic(x):
            dx, dx0 = _pulled(solved, array(engine(x), g), known.ends, x.shape[-2:], ctx.needs_input_grad[1])
        if x.ndim != 3:
            dx, dx0 = dx.reshape(x.shape), None if dx0 is None else dx0.reshape(x.shape)
        return tensor(dx), None if dx0 is None else tensor(dx0), None


def _pulled(solved: _Solved, g: Any, ends: _Ends, event: Any, anchored: bool) -> tuple[Any, Any]:
    """The derivatives by x and, if that is asked for, by the anchor."""
    eta, raw, away, link, depth, spans = solved
    flat, incidence = g.reshape(away.shape), ends.incidence
    if isinstance(away, np.ndarray):
        along, signs = np.vecdot(flat, away), incidence.take(link, 0)
    else:
        along, signs = torch.linalg.vecdot(flat, away), tensor(incidence)[link]
    if not isinstance(depth, float):
        depth = depth[link] if depth.ndim == 1 else _at(depth, link)
    g, signs, span, steep = g.reshape(-1, *event), signs[:, :, None], _at(spans[0], link), raw / depth
    pull = along * raw * steep * (raw < 1)
    inner = g * eta[:, None, None]
    # outside, where all bodies are together at the anchor, the span has 1 / raw of its length, but for rounding
    unit = pull * steep if len(spans) == 1 else pull / (_norm(span) + 1e-30)
    dx, dx0 = inner - signs * (span * unit[:, None])[:, None], g - inner if anchored else None
    if anchored and len(spans) > 1:
        span = _at(spans[1], link)
        unit = pull * (1 / raw - 1) / (_norm(span) + 1e-30)
        dx0 = dx0 - signs * (span * unit[:, None])[:, None]
    return dx, dx0

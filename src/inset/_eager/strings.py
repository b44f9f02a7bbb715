"""`Strings` in few operations, with its derivatives by x and by the anchor in closed form.

With d_l = length_l - |span_l(x0)|, the depth of the anchor, s = max_l (|span_l(x)| - length_l) / d_l is how far x is
out, and eta = 1 / (1 + s). With l the link that sets it, n_l the derivative of a length by the positions, and
t = <g, x - x0> for an incoming g,

    dx = eta g - t eta^2 / d_l n_l(x),    dx0 = (1 - eta) g - t eta^2 s / d_l n_l(x0).

Where the anchor has all bodies in one place, as the mean of some positions has, spans are 0 there, and 1 / eta^2 is
the largest square of a span over that of its length. The margin of `strict` is that of `_strict.py`.

Operations are those of torch for few bodies too: in a training step they are in use anyway, see `gaussian_few.py`. Of
few bodies spans come from a product with a matrix of 0, 1 and -1, which is exact and quicker than to gather them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._namespace import exact_arithmetic, reduced_products
from .._project import interpolated
from ..sets.strings import Strings
from .calls import by_formulas, differentiated, keep, kept
from .small import ROUNDOFF, plain

LEAST, MOST = 1e-12, 1e12
"""Lengths, and coordinates, for which no square leaves the range of float32."""
DENSE = 2**14
"""Entries of the matrix that takes positions to spans, up to which a product is quicker."""
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
    if links.numel() == 0 or reduced_products(x):
        return None
    ends = _ends(links, x.shape[-2], x.shape[-1], x.dtype)
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
        if anchor.ndim == 2 and not anchor.requires_grad:  # that of all
            anchor = anchor.expand_as(x)
        elif x.shape != anchor.shape:
            batch = torch.broadcast_shapes(x.shape, anchor.shape)
            x, anchor = x.expand(batch), anchor.expand(batch)
        together = anchor.stride(-2) == 0
        if self.method != "chord" and not together:
            return None
        # for one length and an anchor in one place all methods are the same
        if self.method == "paper" and isinstance(self.lengths, Tensor):
            return None
        with exact_arithmetic(x):
            return _Line.apply(x, anchor, (self, together))  # type: ignore[return-value]


class _Ends(NamedTuple):
    """Which bodies the m links join. Spans are `(N, d, m)`, so that sums over d are over rows of numbers."""

    first: Tensor
    second: Tensor
    matrix: Tensor | None
    """That takes positions to spans, `(bodies d, d m)`, unless it is large."""
    signs: Tensor | None
    """1 and -1 at the ends of each link, `(m, bodies)`, in the same case."""

    def spans(self, points: Tensor) -> Tensor:
        """p_i - p_j for each link."""
        if self.matrix is not None:
            return torch.mm(points.flatten(1), self.matrix).view(points.shape[0], points.shape[2], -1)
        return (points.index_select(1, self.first) - points.index_select(1, self.second)).mT

    def pushed(self, g: Tensor, link: Tensor, pull: Tensor) -> Tensor:
        """g less one end of a link of each sample pulled, and the other against it: link is `(N,)`, pull `(N, d)`."""
        if self.signs is not None:
            return torch.addcmul(g, self.signs.index_select(0, link).unsqueeze(2), pull.unsqueeze(1), value=-1)
        first, second = (v.index_select(0, link)[:, None, None].expand(-1, 1, g.shape[-1]) for v in self[:2])
        return g.scatter_add(1, first, -pull[:, None]).scatter_add_(1, second, pull[:, None])


def _ends(links: Tensor, bodies: int, d: int, dtype: torch.dtype) -> _Ends | None:
    """None for links of no such bodies."""
    if links.ndim != 2 or links.shape[1] != 2 or links.is_neg():
        return None
    copy = links.clone(memory_format=torch.contiguous_format)  # or torch would think that NumPy may write to the links
    return _read(copy.numpy().tobytes(), bodies, d, dtype)


@lru_cache(maxsize=32)
def _read(links: bytes, bodies: int, d: int, dtype: torch.dtype) -> _Ends | None:
    with torch.inference_mode(False), torch.no_grad():  # for every mode
        first, second = torch.from_numpy(np.frombuffer(links, np.int64).reshape(-1, 2).T.copy())
        if min(first.min().item(), second.min().item()) < 0 or max(first.max().item(), second.max().item()) >= bodies:
            return None
        if bodies * first.numel() * d * d > DENSE:
            return _Ends(first, second, None, None)
        eye, each = torch.eye(bodies, dtype=dtype, device="cpu"), torch.eye(d, dtype=dtype, device="cpu")
        signs = eye[first] - eye[second]
        matrix = signs.T.reshape(bodies, 1, 1, -1) * each[:, :, None]
        return _Ends(first, second, matrix.reshape(bodies * d, -1), signs)


class _Solved(NamedTuple):
    """The weight of each sample, `(N,)`, and what its derivative is made of."""

    eta: Tensor
    bent: Tensor
    """Without the margin, 0 inside."""
    away: Tensor
    """x - x0, `(N, bodies d)`."""
    link: Tensor
    """That which sets the weight, `(N,)`."""
    span: Tensor
    """Of that link, `(N, d)`."""
    span0: Tensor | None
    """At the anchor, unless all its bodies are in one place."""
    steep: Any
    """1 / length^2 of that link, a number or `(N,)`; or 1 / depth, `(N,)`, unless all bodies are in one place."""


def _solved(x: Tensor, anchor: Tensor, known: Lengths, together: bool) -> _Solved | None:
    """None where x is not finite or huge, or the anchor is not certainly inside."""
    u, d, longest, strict = ROUNDOFF[x.dtype], x.shape[-1], known.lengths, known.strict
    if isinstance(longest, Tensor):
        least, most = torch.aminmax(longest)
        if not (least.item() >= LEAST and most.item() <= MOST):
            return None
    away, k = (x - anchor).flatten(1), u * (d / 2 + 6) if strict else 0.0
    spans, spans0 = known.ends.spans(x), None if together else known.ends.spans(anchor)
    square, long0 = (spans * spans).sum(1), 0.0
    if spans0 is None:
        # off by less than k at a length, twice, and the roundings of a square root and of what it divides
        steep: Any = (1 / longest) ** 2
        top, link = (square * (((1 + 2 * k + 4 * u) if strict else 1.0) ** 2 * steep)).max(-1, keepdim=True)
        raw = top.squeeze(1).clamp_(min=1).rsqrt_()
    else:
        long0 = (spans0 * spans0).sum(1).sqrt_()  # which is much quicker than a norm over rows
        depth = longest - long0
        if not depth.min().item() > 0:
            return None
        top, link = (1 + (square.sqrt() * (1 + k) - longest * (1 - k)) / depth).max(-1, keepdim=True)
        steep, raw = 1 / depth, top.squeeze(1).clamp_(min=1).reciprocal_()
    if not raw.min().item() >= 1 / MOST:  # NaN is not
        return None
    inside, eta = raw == 1, raw
    if strict:
        far0 = _norm(anchor.select(1, 0)) if together else _norm(anchor.flatten(1))
        part = _margin(raw, _norm(away), far0, long0, longest, u, d)
        if not part.max().item() <= 0.01:
            return None
        eta = torch.where(inside, raw, torch.addcmul(raw, raw, part, value=-1))
    span0 = None if spans0 is None else _one(spans0, link)
    link, span = link.squeeze(1), _one(spans, link)
    if isinstance(steep, Tensor):
        steep = steep[link] if steep.ndim == 1 else steep.gather(1, link[:, None])[:, 0]
    return _Solved(eta, raw.masked_fill(inside, 0.0), away, link, span, span0, steep)


def _norm(v: Tensor, dim: int = -1) -> Tensor:
    return torch.linalg.vector_norm(v, dim=dim)


def _margin(eta: Tensor, far: Tensor, far0: Tensor, long0: Any, longest: Any, u: float, d: int) -> Tensor:
    """The part of eta to give up, see `_strict.py`; it is good up to 0.01, and only then is the anchor sound.

    The bodies of a link are off by 4 u (|y_i| + |x0_i| + |y_j| + |x0_j|), and |y_i| <= |x0_i| + eta |x_i - x0_i|. With
    `far` = |x - x0|, of which two bodies are at most sqrt(2), `far0` = |x0|, or its size at each body if that is the
    same, and `long0` the spans at the anchor, 0 if it is. Here error / (room + error) <= error / 0.98 depth.
    """
    k, both = u * (d / 2 + 4), 1.415 * 4 * u
    if isinstance(long0, float):  # the shortest length is the one that counts
        shortest = longest.min().item() if isinstance(longest, Tensor) else longest
        scale = 1 / (0.98 * shortest)
        return torch.addcmul(far0, far, eta, value=both / (32.1 * u)).mul_(32.1 * u * scale).add_(8.04 * k / 0.98)
    off = far * both * eta + far0 * (4 * both)
    part = (4 * k * long0 + 8.04 * k * longest + off[:, None]) / (0.98 * (longest - long0))
    return part.amax(-1)


class _Line(torch.autograd.Function):
    """The point at the weight eta, and its derivatives by x and by the anchor; None where `_solved` is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, anchor: Tensor, rest: tuple[Any, ...]) -> Tensor | None:
        known, together = rest  # torch looks at each argument
        points, anchors = x, anchor
        if x.ndim != 3:
            points, anchors = x.reshape(-1, *x.shape[-2:]), anchor.reshape(-1, *x.shape[-2:])
        solved = _solved(points, anchors, known, together)
        if solved is None:
            return None
        ctx.known = known
        held = (known.links, known.lengths) if isinstance(known.lengths, Tensor) else (known.links,)
        keep(ctx, (x, anchor, *held), solved)
        return torch.lerp(anchor, x, solved.eta.view(*x.shape[:-2], 1, 1))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        ((x, anchor, *_), solved), known = kept(ctx), ctx.known
        if by_formulas(g):
            set = Strings(known.links, known.lengths)
            return *differentiated(
                ctx, lambda x, x0: interpolated(set, x, x0, "chord", known.strict)[0], (x, anchor), g
            ), None
        with exact_arithmetic(x):
            dx, dx0 = _pulled(solved, g.reshape(-1, *g.shape[-2:]), known.ends, ctx.needs_input_grad[1])
        if x.ndim != 3:
            dx, dx0 = dx.reshape(x.shape), None if dx0 is None else dx0.reshape(x.shape)
        return dx, dx0, None


def _pulled(solved: _Solved, g: Tensor, ends: _Ends, anchored: bool) -> tuple[Tensor, Tensor | None]:
    """The derivatives by x and, if that is asked for, by the anchor."""
    eta, bent, away, link, span, span0, steep = solved
    along, inner = torch.linalg.vecdot(g.flatten(1), away), g * eta.view(-1, 1, 1)
    if span0 is None:  # outside the span has 1 / bent of its length, but for rounding
        pull = (bent**3).mul_(along).mul_(steep)
        return ends.pushed(inner, link, span * pull.unsqueeze(1)), g - inner if anchored else None
    pull = along * bent * steep
    dx = ends.pushed(inner, link, _unit(span) * (pull * bent)[:, None])
    if not anchored:
        return dx, None
    return dx, ends.pushed(g - inner, link, _unit(span0) * (pull * (1 - bent))[:, None])


def _one(spans: Tensor, link: Tensor) -> Tensor:
    """The span of a link of each sample, `(N, d)`, for links `(N, 1)`."""
    return spans.gather(2, link.unsqueeze(1).expand(-1, spans.shape[1], -1)).squeeze(2)


def _unit(span: Tensor) -> Tensor:
    """The direction, 0 if there is none."""
    return span / (_norm(span)[:, None] + 1e-30)

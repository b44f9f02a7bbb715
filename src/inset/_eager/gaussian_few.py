"""One diagonal Gaussian of few actions around the old policy, as in a policy update; see `gaussian.py`.

There is one weight, and all but the sums over states are numbers of Python. A training step runs through more code than
a processor has at hand, and what counts is how much code is new to it: torch's operations are in use anyway, and a
dozen numbers of Python cost less than one operation of NumPy.
"""

from __future__ import annotations

import math
from operator import mul
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._gaussian import Parameterization
from .calls import by_formulas, differentiated
from .gaussian_line import EXTREME, MOST_LOST, NEWTONS, Pair, cut, enough, first, formulas, highest, margin
from .small import ROUNDOFF, SMALL

Numbers = list[float]


class _Old(NamedTuple):
    """What is known of an old policy."""

    like: tuple[Parameterization, Numbers, torch.dtype]
    scales: Numbers
    center: Tensor
    """Its means."""
    inverse: Tensor
    """1 / std^2, `(d,)`."""
    far: float
    """|mean / std|^2."""


_LAST: list[_Old | None] = [None]
"""The old policy of the last call, which does not change in an update."""


def _known(center: Tensor, scale: Tensor, kind: Parameterization) -> _Old | None:
    """What is known of the old policy, by its numbers: rollout buffers are written to unseen by torch.

    None where scales are tiny or huge.
    """
    scales, old = scale.reshape(-1).tolist(), _LAST[0]
    if old is not None and (kind, scales, center.dtype) == old.like and torch.equal(old.center, center):
        return old
    least, most = EXTREME[kind]
    if not (min(scales) >= least and max(scales) <= most):
        return None
    with torch.inference_mode(False), torch.no_grad():  # for every mode
        inverse = torch.tensor(_inverse(scales, kind), dtype=scale.dtype, device=scale.device)
        old = _Old((kind, scales, center.dtype), scales, center, inverse, _dot(center, center * inverse))
        if center.numel() <= SMALL:
            _LAST[0] = old._replace(center=center.clone())
    return old


class Line(torch.autograd.Function):
    """The point at the weight eta, and its derivative by x; None where h is not finite, or nothing of epsilon is left.

    Of means `(*ones, K, d)`, or `(*ones, d)` if they are not of several states, and scales `(*ones, d)`.
    """

    @staticmethod
    def forward(ctx: Any, means: Tensor, scales: Tensor, rest: tuple[Any, ...]) -> Pair | None:
        (center, scale), epsilon, layout, method, strict = rest
        old = _known(center, scale, layout.parameterization)
        if old is None:
            return None
        shift, count = means - center, means.numel()
        steep = shift * old.inverse
        region = _Region(layout.parameterization, epsilon, old.scales, count, count // len(old.scales), old.far)
        given = _dot(shift, steep), scales.reshape(-1).tolist(), ROUNDOFF[means.dtype]
        solved = _solved(region, *given, method == "ray", strict)
        if solved is None:
            return None
        ctx.save_for_backward(means, scales, center, scale, shift, steep)  # so that a change of them is noticed
        ctx.rest = rest[1:], solved
        return torch.lerp(center, means, solved.eta), torch.lerp(scale, scales, solved.eta)

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        means, scales, center, scale, shift, steep = ctx.saved_tensors
        (epsilon, layout, method, strict), solved = ctx.rest
        if by_formulas(*g):
            formula = formulas((center, scale), epsilon, layout, method, strict)
            return *differentiated(ctx, formula, (means, scales), g), None
        eta, pull, turn, change, slopes = solved
        if not turn:  # inside
            return g[0] * eta, g[1] * eta, None
        bent = g[1].reshape(-1).tolist()
        along = _dot(g[0], shift) + sum(map(mul, bent, change))
        turn *= along
        ds = torch.tensor(
            [eta * b + turn * v for b, v in zip(bent, slopes, strict=True)], dtype=means.dtype, device=means.device
        )
        inward = along * pull
        inward = inward if abs(inward) <= torch.finfo(means.dtype).max else inward * math.inf  # or torch would raise
        return torch.add(g[0] * eta, steep, alpha=inward), ds.reshape(scales.shape), None


def _dot(a: Tensor, b: Tensor) -> float:
    return torch.dot(a.reshape(-1), b.reshape(-1)).item()


def _inverse(old: Numbers, kind: Parameterization) -> Numbers:
    """1 / std^2."""
    if kind == "log_std":
        return [math.exp(-2 * v) for v in old]
    return [1 / v for v in old] if kind == "covariance" else [1 / (v * v) for v in old]


class _Region(NamedTuple):
    kind: Parameterization
    epsilon: float
    old: Numbers
    """The old scales."""
    means: int
    """How many there are, for all states."""
    states: int
    far: float
    """|z|^2 of the old means."""


class _Solved(NamedTuple):
    """The weight and what its derivative is made of."""

    eta: float
    pull: float
    """What multiplies (m - mq) / std^2 in that by the means."""
    turn: float
    """And the slopes in that by the scales."""
    change: Numbers
    """The new scales less the old ones."""
    slopes: Numbers
    """phi' by the scales."""


def _solved(region: _Region, q: float, scales: Numbers, u: float, ray: bool, strict: bool) -> _Solved | None:
    """q is |z|^2 of the means, u roundoff; None where h is not finite, or for no anchor."""
    kind, epsilon, old, count, states, far = region
    q, change = q / states, [a - b for a, b in zip(scales, old, strict=True)]
    e = change if kind == "log_std" else [a / b for a, b in zip(change, old, strict=True)]
    phi, slopes = _spread(e, kind, cut(kind, epsilon))
    h = (q + phi) / 2 - epsilon
    if not h <= highest(states):
        return None
    size = largest = 0.0
    if strict:
        size, largest = sum(map(abs, e)), max(map(abs, old)) if kind == "log_std" else 0.0
        h += u * (count + 10) * q + _error(e, slopes, kind, size, largest, u) + 2.1 * u * epsilon
    t, pull, turn = 1.0, 0.0, 0.0
    if h > 0 and ray:
        t, pull, turn, slopes = _root(q, e, kind, epsilon, u)
    elif h > 0:
        t = epsilon / (epsilon + h)
        pull, turn = -t * t / epsilon, -t * t / (2 * epsilon)
    eta = t
    if strict:
        fixed, slip, bend, push = margin(kind, epsilon, count, len(old), u, largest)
        error = slip + bend * t * size + push * math.sqrt(far / states)
        if not error <= MOST_LOST * epsilon or 2 * fixed >= MOST_LOST * epsilon:
            return None
        eta = t - t * error / (epsilon - 2 * fixed + error) if h > 0 else 1.0
    slopes = slopes if kind == "log_std" else [a / b for a, b in zip(slopes, old, strict=True)]
    return _Solved(eta, pull / states, turn, change, slopes)


def _spread(e: Numbers, kind: Parameterization, cut: float) -> tuple[float, Numbers]:
    """sum phi(e) and the slopes phi'(e), as `gaussian_line.spread`."""
    whole, slopes = 0.0, []
    for v in e:
        if kind == "log_std":
            inner = cut if v > cut else v
            growth = math.expm1(2 * inner)
            phi, slope = growth - 2 * inner, 2 * growth
        else:
            inner = cut if v < cut else v
            phi, slope = inner - math.log1p(inner), inner / (1 + inner)
            if kind == "cholesky":
                phi, slope = inner * inner + 2 * phi, 2 * slope * (2 + inner)
        whole += phi + slope * (v - inner)
        slopes.append(slope)
    return whole, slopes


def _root(q: float, e: Numbers, kind: Parameterization, epsilon: float, u: float) -> tuple[Any, ...]:
    """As `gaussian_line.root`, for a point outside."""
    t = min(first(kind, epsilon, q, sum(map(mul, e, e))), 1.0)
    k = 0
    while True:
        phi, slopes = _spread([t * v for v in e], kind, cut(kind, epsilon))
        over, steep = t * t * q + phi - 2 * epsilon, 2 * t * q + sum(map(mul, slopes, e)) + 1e-300
        if k == NEWTONS or (k and over <= enough(epsilon, u, len(e))):
            break
        t, k = min(t - over / steep, 1.0), k + 1
    t *= 2 * epsilon / (2 * epsilon + max(over, 0.0))
    turn = -t / steep if t < 1 else 0.0
    return t, 2 * t * turn, turn, slopes


def _error(e: Numbers, slopes: Numbers, kind: Parameterization, size: float, largest: float, u: float) -> float:
    """As `gaussian_line.error`, with size = sum |e|."""
    widest, d = max(map(abs, e)), len(e)
    k = u * (d + 10)
    if kind == "log_std":
        off = 2.01 * u * widest + 4.01 * u * largest
        return (max(slopes) * 0.51 + 2.1) * (k * size + (size + d * off) * off * 2.01)
    square = 2.01 if kind == "covariance" else widest + 4.01
    return k * (square * size + (widest + 1.01) * sum(map(abs, slopes)))

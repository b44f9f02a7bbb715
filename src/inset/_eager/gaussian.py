"""`GaussianKL` of diagonal Gaussians around the old policy in few operations, with its derivative in closed form.

With z = (m - mq) / std, q = |z|^2, its mean over the states if they share a constraint, and e the relative change of
each scale, h = (q + sum phi(e)) / 2 - epsilon. At the old policy h = -epsilon, and on the line to it z and e are
multiplied by the weight t:

    chord: t = epsilon / (epsilon + h),           dt = -t^2 / epsilon dh
    ray:   (t^2 q + sum phi(t e)) / 2 = epsilon,  dt = -(t^2 dq + t sum phi'(t e) de) / (2 t q + sum phi'(t e) e)

with phi' the slope of phi. The margin of `strict` is that of `_strict.py`. At y it needs no look at y, where the KL is
at most epsilon: that bounds q and e. For other anchors, learned policies and second derivatives, see the formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .._project import project_checked
from .._trust_region import Layout
from ..sets.gaussian_kl import GaussianKL
from . import gaussian_line as line
from .calls import by_formulas, differentiated, keep, kept
from .gaussian_few import Line as LineOfFew
from .gaussian_line import Pair
from .small import ROUNDOFF, array, at_least, engine, largest, plain, product, quiet, smallest, tensor

MOST = 1.0
"""Of epsilon: bounds of the changes at y are good up to there."""
FEW = 24
"""Scales of one sample up to which numbers of Python are faster than arrays."""


def fused(set: Any, x: Any, anchor: Any, method: Any, strict: bool) -> Pair | None:
    """g(x), or None where this does not apply."""
    if type(set) is not GaussianKL or not _same(anchor, (set.mean, set.covariance)):
        return None
    layout = Layout(set.average, set.diagonal, set.parameterization)
    return region(x, (set.mean, set.covariance), set.epsilon, layout, method, strict)


def prepared(set: Any, x: Any, anchor: Any, method: Any, strict: bool) -> Callable[[Any], Pair] | None:
    """A function of points like these, which is g(x), or None where this does not apply."""
    if type(set) is not GaussianKL or not _same(anchor, (set.mean, set.covariance)):
        return None
    old, layout = (set.mean, set.covariance), Layout(set.average, set.diagonal, set.parameterization)
    if region(x, old, set.epsilon, layout, method, strict) is None:
        return None

    def call(x: Any) -> Pair:
        y = region(x, old, set.epsilon, layout, method, strict)
        return project_checked(set, x, anchor, method, strict, False)[0] if y is None else y

    return call


def region(x: Any, old: Any, epsilon: Any, layout: Layout, method: Any, strict: bool) -> Pair | None:
    """The same for the set and the anchor of an old policy; shapes that are not of two policies are None as well."""
    if not layout.diagonal or method not in ("paper", "chord", "ray") or type(x) is not tuple or type(old) is not tuple:
        return None
    if len(x) != 2 or len(old) != 2 or not plain(*x, *old) or old[0].requires_grad or old[1].requires_grad:
        return None
    if isinstance(epsilon, Tensor) and epsilon.ndim == 0 and epsilon.is_cpu and not epsilon.requires_grad:
        epsilon = epsilon.item()
    if not isinstance(epsilon, (int, float)) or not 0 < epsilon <= MOST:
        return None
    event, shape = 2 if layout.average else 1, x[0].shape
    if len(shape) < event:
        return None
    batch, d = shape[:-event], shape[-1]
    whole = torch.Size((*batch, d))
    if any(
        [v.shape != w and not _fits(v.shape, w, k) for v, w, k in zip(old, (shape, whole), (event, 1), strict=True)]
    ):
        return None
    if x[1].shape != whole:
        if not _fits(x[1].shape, whole, 1):
            return None
        x = (x[0], x[1].expand(whole))
    if batch.numel() == 1 and d <= FEW:
        return LineOfFew.apply(*x, (old, float(epsilon), layout, method, strict))  # type: ignore[return-value]
    with quiet(engine(x[0])):
        solved = _solved(x, old, float(epsilon), layout, method == "ray", strict)
    return None if solved is None else _Line.apply(*x, (old, epsilon, layout, method, strict, solved))  # type: ignore[return-value]


def _same(anchor: Any, old: Pair) -> bool:
    """Whether the anchor is the old policy, or a copy of it."""
    for a, b in zip(anchor, old, strict=True):
        if a is not b and (not plain(a, b) or a.requires_grad or not torch.equal(a, b)):
            return False
    return True


def _fits(shape: torch.Size, whole: torch.Size, event: int) -> bool:
    """Whether a field of that shape is one for a batch of points."""
    if len(shape) < event or shape[-event:] != whole[-event:] or len(shape) > len(whole):
        return False
    return all([a in (1, b) for a, b in zip(reversed(shape), reversed(whole), strict=False)])


class _Solved(NamedTuple):
    """The weight of each sample and what its derivative is made of."""

    eta: Any
    pull: Any
    """What multiplies (m - mq) / std^2 in the derivative of eta by the means."""
    turn: Any
    """And the slopes in that by the scales."""
    shift: Any
    """m - mq."""
    steep: Any
    """(m - mq) / std^2."""
    change: Any
    """The new scales less the old ones."""
    slopes: Any
    """phi' by the scales, `(*batch, d)`."""


def _solved(x: Pair, old: Pair, epsilon: float, layout: Layout, ray: bool, strict: bool) -> _Solved | None:
    """None where h is not finite, or rounding leaves nothing of epsilon."""
    xp, kind, event, u = engine(x[0]), layout.parameterization, 2 if layout.average else 1, ROUNDOFF[x[0].dtype]
    center, scale = array(xp, old[0]), array(xp, old[1])
    low, high = line.EXTREME[kind]
    if not (smallest(scale) >= low and largest(scale) <= high):
        return None
    shift, change = array(xp, x[0]) - center, array(xp, x[1]) - scale
    inverse = xp.exp(-2 * scale) if kind == "log_std" else 1 / (scale if kind == "covariance" else scale * scale)
    if event == 2:
        inverse = inverse[..., None, :]
    states, d = shift.shape[-2] if event == 2 else 1, shift.shape[-1]
    steep = shift * inverse
    q = product(shift, steep, event) / states
    e = change if kind == "log_std" else change / scale
    phi, slopes = line.spread(xp, e, kind, epsilon)
    h = (q + phi) / 2 - epsilon
    if not largest(h) <= line.highest(states):
        return None
    far = size = 0.0
    if strict:
        far = largest(abs(scale)) if kind == "log_std" else 0.0
        off, size = line.error(e, slopes, kind, u, far)
        h = h + u * (states * d + 10) * q + (off + 2.1 * u * epsilon)
    out = at_least(h, 0.0)
    outside = out > 0
    if ray:
        t, pull, turn, slopes = line.root(xp, q, e, outside, kind, epsilon, u)
    else:
        t = epsilon / (epsilon + out)
        pull = t * t * outside / -epsilon
        turn = pull / 2
    eta = t
    if strict:
        fixed, slip, bend, push = line.margin(kind, epsilon, states * d, d, u, far)
        away = product(center, center * inverse, event) / states
        error = slip + bend * (t * size) + push * away**0.5
        if not largest(error) <= line.MOST_LOST * epsilon or 2 * fixed >= line.MOST_LOST * epsilon:
            return None
        eta = t - t * outside * error / (epsilon - 2 * fixed + error)
    slopes = slopes if kind == "log_std" else slopes / scale
    return _Solved(eta, pull / states, turn, shift, steep, change, slopes)


class _Line(torch.autograd.Function):
    """The point at the weight eta, and its derivative by x."""

    @staticmethod
    def forward(ctx: Any, means: Tensor, scales: Tensor, rest: tuple[Any, ...]) -> Pair:  # torch looks at each argument
        (center, old), *ctx.rest, solved = rest
        keep(ctx, (means, scales, center, old), solved)
        eta, layout = tensor(solved.eta), ctx.rest[1]
        return torch.lerp(center, means, eta[..., None] if layout.average else eta), torch.lerp(old, scales, eta)

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (means, scales, center, old), solved = kept(ctx)
        epsilon, layout, method, strict = ctx.rest
        if by_formulas(*g):
            formula = line.formulas((center, old), epsilon, layout, method, strict)
            return *differentiated(ctx, formula, (means, scales), g), None
        eta, pull, turn, shift, steep, change, slopes = solved
        xp, event = engine(means), 2 if layout.average else 1
        pushed, bent = array(xp, g[0]), array(xp, g[1])
        with quiet(xp):  # also of gradients that are not finite
            along = product(pushed, shift, event) + product(bent, change, 1)
            inward, ds = along * pull, bent * eta
            ds += slopes * (along * turn)
            if event == 2:
                eta, inward = eta[..., None], inward[..., None]
            dm = pushed * eta
            dm += steep * inward
            return tensor(dm), tensor(ds), None

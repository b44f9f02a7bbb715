"""`GaussianKL` of diagonal Gaussians around the old policy, with its derivative in closed form.

With z = (m - mq) / std, q = |z|^2, its mean over the states if they share a constraint, and e the relative change of
each scale, h = (t^2 q + sum phi(t e)) / 2 - epsilon on the line to the old policy; see `_eager/gaussian.py` for the
weights and their derivatives, and `_strict.py` for the margin. Points beyond `GaussianKL.domain` are first pulled back
to it, by a factor that counts as a constant.

In float64, where no square of a float32 overflows, and what Newton steps leave is not rounding.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._eager.calls import differentiated, transformed
from .._eager.gaussian import MOST
from .._eager.gaussian_line import NEWTONS, Kind, Pair, first, formulas, spread
from .._namespace import is_exporting, keep, total
from .._ray import over_event
from .._trust_region import Layout
from ..sets.gaussian_kl import GaussianKL

ROUNDOFF, SMALLEST = 2.0**-24, 2.0**-126
"""Of float32."""


def region(x: Pair, old: Pair, epsilon: float, layout: Layout, method: Any, strict: bool) -> Pair | None:
    """What a `TrustRegion` returns, or None where this does not apply."""
    if not layout.diagonal or method not in ("paper", "chord", "ray") or epsilon > MOST:
        return None
    if transformed() or is_exporting() or any([v.dtype != torch.float32 or not v.is_cpu for v in (*x, *old)]):
        return None
    if 0 in x[0].shape[-2 if layout.average else -1 :]:
        return None
    mean, scales = x
    batch = mean.shape[: mean.ndim - (2 if layout.average else 1)]
    old = old[0].detach(), old[1].detach()
    return _Line.apply(mean, scales.expand(*batch, mean.shape[-1]), (old, epsilon, layout, method, strict))  # type: ignore[return-value]


class _Solved(NamedTuple):
    """The weight of each sample, `(*batch,)`, and its derivative by the point."""

    weight: Tensor
    pull: Tensor
    """What multiplies z / std in that by the means, `(*batch,)`."""
    slopes: Tensor
    """That by the scales, `(*batch, d)`."""


def _solved(x: Pair, set: GaussianKL, ray: bool, strict: bool) -> _Solved:
    """For a point and a set of float64."""
    epsilon, states, old = float(set.epsilon), set.mean.shape[-2] if set.average else 1, set.covariance
    z, reach, change = set._whiten(x[0]), set.domain((set.mean, old), x), x[1] - old
    q, change = _mean(z * z, set) * (reach * reach), change * reach[..., None]
    h = (q + set._spread(old + change)) / 2 - epsilon
    top = h + _rounding(q, 0.0, set, old + change, 0 * change, 1) if strict else h
    outside = ~(top <= 0)
    if ray:
        crosses = ~(h <= 0)
        t, steep = _root(q, change, set)
        t, turn = keep(crosses, t, 1.0), keep(crosses, -t / steep, 0.0)
        pull = t * turn
    else:
        t = epsilon / (epsilon + keep(outside, top, 0.0))
        pull = turn = keep(outside, t * t / (-2 * epsilon), 0.0)
    slopes = set._slopes(set._relative(old + change * t[..., None] if ray else old + change))
    slopes = slopes if set.parameterization == "log_std" else slopes / old
    eta = t
    if strict:
        kept = _kept(q * t * t, old + change * t[..., None], set)
        eta = keep(outside | kept.isnan(), t * kept, 1.0)
    return _Solved(eta * reach, pull * reach**3 * (2 / states), slopes * (turn * reach * reach)[..., None])


def _std(set: GaussianKL) -> Tensor:
    """Of the old policy, for each mean."""
    return set._std()[..., None, :] if set.average else set._std()


def _mean(v: Tensor, set: GaussianKL) -> Tensor:
    """The sum over actions, and its mean over the states if they share a constraint."""
    return v.sum((-2, -1)) / v.shape[-2] if set.average else total(v)


def _root(q: Tensor, change: Tensor, set: GaussianKL) -> tuple[Tensor, Tensor]:
    """The t <= 1 with t^2 q + sum phi(t e) = 2 epsilon, or less of it, and the slope by t there.

    As in `_eager/gaussian_line.py`, whose steps these are.
    """
    old, epsilon, kind = set.covariance, float(set.epsilon), set.parameterization
    twice, e = 2 * epsilon, set._relative(old + change)

    def at(t: Tensor) -> tuple[Tensor, Tensor]:
        scales = old + t[..., None] * change
        over = t * t * q + set._spread(scales) - twice
        return over, 2 * t * q + total(set._slopes(set._relative(scales)) * e) + 1e-300

    t = torch.clamp(first(kind, epsilon, q, total(e * e)), max=1.0)
    for _ in range(newtons(kind, epsilon)):
        over, steep = at(t)
        t = torch.clamp(t - over / steep, max=1.0)
    over, steep = at(t)
    return t * (twice / (twice + over.relu())), steep


@lru_cache
def newtons(kind: Kind, epsilon: float) -> int:
    """After how many Newton steps 1e-9 of epsilon is left at most; a program has them all, one after another.

    Up to an epsilon of 0.1 none takes more than one scale that grows or shrinks alone, where the t of small changes is
    the farthest off. Above, variances may.
    """
    if epsilon > 0.1:
        return NEWTONS
    e = np.array([[1e9], [-1e9]])  # where t is not cut off at 1
    t = first(kind, epsilon, 0.0, e * e)
    for k in range(NEWTONS):
        phi, slopes = spread(np, t * e, kind, epsilon)
        over = phi - 2 * epsilon
        if k and over.max() <= 1e-9 * epsilon:
            return k
        t = t - over / (slopes * e)
    return NEWTONS


def _rounding(q: Tensor | float, slip: Tensor | float, set: GaussianKL, scales: Tensor, size: Tensor, k: int) -> Tensor:
    """`GaussianKL.rounding` with k roundoffs where |z|^2 is q; the means are off by `slip` at most, in its units."""
    count = set.mean.shape[-1] * (set.mean.shape[-2] if set.average else 1) + 8
    shift = k * ROUNDOFF * (count * q + 2 * float(set.epsilon)) + (q**0.5 + slip) * slip
    return shift + set._spread_rounding(scales, size, k * ROUNDOFF)


def _kept(q: Tensor, scales: Tensor, set: GaussianKL) -> Tensor:
    """What is left of a weight, at whose point |z|^2 is q, after the margin of `_strict.py`; NaN for no anchor.

    The means of y are off by 4 u (|y| + |mq|), which is at most 4 u (|y - mq| + 2 |mq|).
    """
    old, u, epsilon = set.covariance, ROUNDOFF, float(set.epsilon)
    std = set._known_std(SMALLEST)
    std = std[..., None, :] if set.average else std
    far = _mean(((abs(set.mean) + SMALLEST) / std) ** 2, set) ** 0.5  # below that numbers are as far apart
    fixed = _rounding(0.0, 8 * u * far, set, old, 8 * u * abs(old), 4)
    error = fixed + _rounding(q, 8 * u * far + 4 * u * q**0.5, set, scales, 4 * u * (abs(scales) + abs(old)), 2)
    room = epsilon - 2 * fixed
    return keep(room > 0, 1 - error / (room + error), float("nan"))


class _Line(torch.autograd.Function):
    """The point at the weight, and its derivative by x."""

    @staticmethod
    def forward(ctx: Any, means: Tensor, scales: Tensor, rest: tuple[Any, ...]) -> Pair:
        old, epsilon, layout, method, strict = ctx.rest = rest
        center, scale = (v.double() for v in old)
        x = means.double(), scales.double()
        weight, *parts = _solved(x, GaussianKL(center, scale, epsilon, *layout), method == "ray", strict)
        ctx.save_for_backward(means, scales, *old, weight, *parts)
        y = torch.lerp(center, x[0], over_event(weight, 2 if layout.average else 1))
        return y.float(), torch.lerp(scale, x[1], weight[..., None]).float()

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        means, scales, center, old, weight, pull, slopes = ctx.saved_tensors
        _, epsilon, layout, method, strict = ctx.rest
        if torch.is_grad_enabled():  # the derivative is to be differentiated
            formula = formulas((center, old), epsilon, layout, method, strict)
            return *differentiated(ctx, formula, (means, scales), g), None
        set, (pushed, bent) = GaussianKL(center.double(), old.double(), epsilon, *layout), (v.double() for v in g)
        event, change = 2 if layout.average else 1, scales.double() - old.double()
        shift = means.double() - center.double()
        along = (pushed * shift).sum((-2, -1) if layout.average else -1) + total(bent * change)
        inward = set._whiten(means.double()) / _std(set)
        dm = over_event(weight, event) * pushed + over_event(along * pull, event) * inward
        return dm.float(), (weight[..., None] * bent + along[..., None] * slopes).float(), None

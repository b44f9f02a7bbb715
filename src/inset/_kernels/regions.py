"""`GaussianKL` on a GPU, a diagonal Gaussian for each state: the operator around the kernels of `gaussians.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .._eager.calls import by_formulas, differentiated
from .._gaussian import PARAMETERIZATIONS
from .._project import interpolated
from .._trust_region import Layout
from ..sets.gaussian_kl import GaussianKL
from . import gaussians
from ._launch import WARP, common, dense, launched, power
from ._operator import constant, operator

WIDEST = 8192
"""Means up to which one program holds them all."""
AGAIN = 4
"""Means and scales of a sample up to which weights are found again on the way back, cheaper than to store them."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
Pair = tuple[Tensor, Tensor]
KINDS = {name: k for k, name in enumerate(PARAMETERIZATIONS)}


def fused(set: GaussianKL, x: Pair, anchor: Pair, method: str, strict: bool) -> Pair | None:
    """g(x) by the kernels, or None where they do not apply."""
    layout = Layout(set.average, set.diagonal, set.parameterization)
    return around(x, (set.mean, set.covariance), set.epsilon, layout, anchor, method, strict)


def around(x: Pair, old: Pair, epsilon: Any, layout: Layout, anchor: Pair, method: Any, strict: bool) -> Pair | None:
    """The same for the set of an old policy."""
    if method not in ("paper", "chord", "ray") or not layout.diagonal:
        return None
    if not isinstance(epsilon, Tensor):
        epsilon = constant(float(epsilon), torch.float32, x[0].device)
    dtype, event, held = x[0].dtype, 2 if layout.average else 1, (*old, epsilon)
    if dtype not in DTYPES or x[1].dtype != dtype:
        return None
    if any([v.requires_grad or v.dtype not in (dtype, torch.float32) for v in (*held, *anchor)]):
        return None
    if x[0].shape[-event:].numel() > WIDEST or 0 in (x[0].numel(), x[1].numel(), anchor[0].numel(), anchor[1].numel()):
        return None
    rest = (KINDS[layout.parameterization], method == "ray", layout.average, strict)
    tensors = (*x, *anchor, *old)
    alike = all([v.shape == w.shape for v, w in zip(tensors, x * 3, strict=True)])
    if not alike or epsilon.ndim or x[1].shape[:-1] != x[0].shape[:-event]:
        tensors, epsilon = _together(tensors, epsilon, event)
    return gaussian(*[dense(v) for v in (*tensors, epsilon)], *rest)[:2]


def _together(tensors: Sequence[Tensor], epsilon: Tensor, event: int) -> tuple[Sequence[Tensor], Tensor]:
    """The same in the batch that they have in common; constants of all samples stay as they are."""
    sizes = (event, 1) * 3
    batch = common(*[v.shape[: v.ndim - k] for v, k in zip(tensors, sizes, strict=True)], epsilon.shape)
    points = [_whole(v, batch, k) for v, k in zip(tensors[:2], sizes, strict=False)]
    fields = [v if v.ndim == k else _whole(v, batch, k) for v, k in zip(tensors[2:], sizes[2:], strict=True)]
    return points + fields, epsilon if epsilon.ndim == 0 else _whole(epsilon, batch, 0)


def _whole(v: Tensor, batch: tuple[int, ...], event: int) -> Tensor:
    """v for each sample."""
    return v.expand(*batch, *v.shape[v.ndim - event :])


@operator("gaussian")
def gaussian(
    means: Tensor, scales: Tensor, means0: Tensor, scales0: Tensor, mean: Tensor, scale: Tensor, epsilon: Tensor,
    kind: int, ray: bool, average: bool, strict: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The means and scales of the result and, unless it is found again, eta.

    Means are `(..., K, d)`, or `(..., d)`, and scales `(..., d)`. Fields and epsilon are there once or for each sample,
    and everything is contiguous.
    """
    samples = scales.numel() // scales.shape[-1]
    layout = _layout(samples, ray, means, scales, means0, scales0, mean, scale, epsilon)
    y, v = torch.empty_like(means), torch.empty_like(scales)
    eta = means.new_empty(0 if layout["AGAIN"] else samples, dtype=torch.float32)
    launched(
        gaussians.forward, True, means, _width(means, samples),
        means, scales, means0, scales0, mean, scale, epsilon, y, v, eta,
        samples=samples, KIND=kind, STRICT=strict, **layout,
    )  # fmt: skip
    return y, v, eta


@operator("gaussian_backward")
def gaussian_backward(
    g: Tensor, g2: Tensor, means: Tensor, scales: Tensor, means0: Tensor, scales0: Tensor, mean: Tensor, scale: Tensor,
    epsilon: Tensor, eta: Tensor, kind: int, ray: bool, strict: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The derivatives by the means and by the scales."""
    dm, ds, samples = torch.empty_like(means), torch.empty_like(scales), scales.numel() // scales.shape[-1]
    launched(
        gaussians.backward, True, means, _width(means, samples),
        g, g2, means, scales, means0, scales0, mean, scale, epsilon, eta, dm, ds,
        samples=samples, KIND=kind, STRICT=strict,
        **_layout(samples, ray, means, scales, means0, scales0, mean, scale, epsilon),
    )  # fmt: skip
    return dm, ds


def _width(means: Tensor, samples: int) -> int:
    """The numbers of a sample that count for a tile: means and scales, if a warp holds both."""
    width = power(means.numel() // samples)
    return 2 * width if 2 * width * means.element_size() <= WARP else width


def _layout(samples: int, ray: bool, means: Tensor, scales: Tensor, *fields: Tensor) -> dict[str, Any]:
    """Sizes, and how far it is from one sample to the next in each field: 0 if they share it, and whether all do."""
    d, every = scales.shape[-1], means.numel() // samples
    sizes = {"D": d, "STATES": every // d, "WIDTH": power(d), "WIDE": power(every)}
    counts = zip(("ROWM", "ROWS", "ROWQ", "ROWC", "ROWE"), fields, (every, d, every, d, 1), strict=True)
    strides = {name: 0 if v.numel() == count else count for name, v, count in counts}
    again = not ray and every + d <= AGAIN
    return strides | sizes | {"SHARED": not any(strides.values()), "RAY": ray, "AGAIN": again}


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.kind, ctx.ray, ctx.average, ctx.strict = inputs
    ctx.save_for_backward(*tensors, output[2])
    ctx.mark_non_differentiable(output[2])


def _derivatives(ctx: Any, g: Tensor | None, g2: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    means, scales, *fields, eta = ctx.saved_tensors
    g, g2 = (torch.zeros_like(x) if v is None else v for v, x in ((g, means), (g2, scales)))
    if by_formulas(g, g2):
        return differentiated(ctx, lambda m, s: _formulas(ctx, m, s, *fields), (means, scales), (g, g2))
    rest = ctx.kind, ctx.ray, ctx.strict
    return gaussian_backward(dense(g), dense(g2), means, scales, *fields, eta, *rest)


def _formulas(ctx: Any, means: Tensor, scales: Tensor, *fields: Tensor) -> tuple[Tensor, Tensor]:
    means0, scales0, mean, scale, epsilon = fields
    region = GaussianKL(mean, scale, epsilon, ctx.average, parameterization=PARAMETERIZATIONS[ctx.kind])
    method = "ray" if ctx.ray else "chord"
    return interpolated(region, (means, scales), (means0, scales0), method, ctx.strict)[0]


gaussian.differentiate(_keep, _derivatives, live=2)

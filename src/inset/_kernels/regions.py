"""`GaussianKL` on a GPU, a diagonal Gaussian for each state: the operator around the kernels of `gaussians.py`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._gaussian import PARAMETERIZATIONS
from .._project import interpolated
from ..sets.gaussian_kl import GaussianKL
from . import gaussians
from ._launch import WARP, launched, power, rows
from ._operator import constant, operator

WIDEST = 8192
"""Means up to which one program holds them all."""
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def fused(
    set: GaussianKL, x: tuple[Tensor, Tensor], anchor: tuple[Tensor, Tensor], method: str, strict: bool
) -> tuple[Tensor, Tensor] | None:
    """g(x) by the kernels, or None where they do not apply."""
    if method not in ("paper", "chord", "ray") or not set.diagonal:
        return None
    dtype, event = x[0].dtype, x[0].shape[-2:] if set.average else x[0].shape[-1:]
    d, epsilon = event[-1], set.epsilon
    if not isinstance(epsilon, Tensor):
        epsilon = constant(float(epsilon), torch.float32, x[0].device)[0]
    held = (set.mean, set.covariance, epsilon)
    if dtype not in DTYPES or x[1].dtype != dtype or any([v.dtype not in (dtype, torch.float32) for v in anchor]):
        return None
    if any([v.requires_grad for v in (*held, *anchor)]) or any([v.dtype != torch.float32 for v in held]):
        return None
    if event.numel() > WIDEST or any([0 in v.shape for v in (*x, *anchor)]):
        return None
    sizes = [len(event), 1] * 3
    vectors = (*x, *anchor, *held[:2])
    batch = torch.broadcast_shapes(*(v.shape[: v.ndim - k] for v, k in zip(vectors, sizes, strict=True)), epsilon.shape)
    points = [v.expand(*batch, *v.shape[v.ndim - k :]).contiguous() for v, k in zip(x, sizes, strict=False)]
    fields = [rows(v, batch, k) for v, k in zip(vectors[2:], sizes[2:], strict=True)]
    means, scales, _ = gaussian(
        points[0].reshape(-1, event.numel()), points[1].reshape(-1, d), *[v.reshape(v.shape[0], -1) for v in fields],
        rows(epsilon, batch, 0), PARAMETERIZATIONS.index(set.parameterization), method == "ray", set.average, strict,
    )  # fmt: skip
    return means.reshape(*batch, *event), scales.reshape(*batch, d)


@operator("gaussian")
def gaussian(
    means: Tensor, scales: Tensor, means0: Tensor, scales0: Tensor, mean: Tensor, scale: Tensor, epsilon: Tensor,
    kind: int, ray: bool, average: bool, strict: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The means and scales of the result and eta, for means `(N, K d)` and scales `(N, d)`.

    Fields are the same or have one row, epsilon is `(N or 1,)`, and everything is contiguous.
    """
    y, v, eta = torch.empty_like(means), torch.empty_like(scales), means.new_empty(means.shape[0], dtype=torch.float32)
    launched(
        gaussians.forward, True, means, _width(means),
        means, scales, means0, scales0, mean, scale, epsilon, y, v, eta,
        KIND=kind, RAY=ray, STRICT=strict, **_layout(means, scales, means0, scales0, mean, scale, epsilon),
    )  # fmt: skip
    return y, v, eta


@operator("gaussian_backward")
def gaussian_backward(
    g: Tensor, g2: Tensor, means: Tensor, scales: Tensor, means0: Tensor, scales0: Tensor, mean: Tensor, scale: Tensor,
    epsilon: Tensor, eta: Tensor, kind: int, ray: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The derivatives by the means and by the scales."""
    dm, ds = torch.empty_like(means), torch.empty_like(scales)
    launched(
        gaussians.backward, True, means, _width(means),
        g, g2, means, scales, means0, scales0, mean, scale, epsilon, eta, dm, ds,
        KIND=kind, RAY=ray, **_layout(means, scales, means0, scales0, mean, scale, epsilon),
    )  # fmt: skip
    return dm, ds


def _width(means: Tensor) -> int:
    """The numbers of a sample that count for a tile: means and scales, if a warp holds both."""
    width = power(means.shape[1])
    return 2 * width if 2 * width * means.element_size() <= WARP else width


def _layout(means: Tensor, scales: Tensor, *fields: Tensor) -> dict[str, Any]:
    """Sizes, and how far it is from one sample to the next in each field: 0 if they share it, and whether all do."""
    names, d, every = ("ROWM", "ROWS", "ROWQ", "ROWC", "ROWE"), scales.shape[1], means.shape[1]
    strides = {name: v[0].numel() if v.shape[0] > 1 else 0 for name, v in zip(names, fields, strict=True)}
    sizes = {"D": d, "STATES": every // d, "WIDTH": power(d), "WIDE": power(every)}
    return strides | sizes | {"SHARED": not any(strides.values())}


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.kind, ctx.ray, ctx.average, ctx.strict = inputs
    ctx.save_for_backward(*tensors, output[2])
    ctx.mark_non_differentiable(output[2])


def _derivatives(ctx: Any, g: Tensor | None, g2: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    means, scales, *fields, eta = ctx.saved_tensors
    nothing = (None,) * 9
    g, g2 = (torch.zeros_like(x) if v is None else v for v, x in ((g, means), (g2, scales)))
    if torch.is_grad_enabled():  # the derivative is to be differentiated: through the formulas of the set
        y = _formulas(ctx, means, scales, *fields)
        return *torch.autograd.grad(y, (means, scales), (g, g2), create_graph=True, allow_unused=True), *nothing
    return *gaussian_backward(g.contiguous(), g2.contiguous(), means, scales, *fields, eta, ctx.kind, ctx.ray), *nothing


def _formulas(
    ctx: Any,
    means: Tensor,
    scales: Tensor,
    means0: Tensor,
    scales0: Tensor,
    mean: Tensor,
    scale: Tensor,
    epsilon: Tensor,
) -> tuple[Tensor, Tensor]:
    event = (-1, scales.shape[1]) if ctx.average else (scales.shape[1],)
    shaped = [v.reshape(v.shape[0], *event) for v in (means, means0, mean)]
    region = GaussianKL(shaped[2], scale, epsilon, ctx.average, parameterization=PARAMETERIZATIONS[ctx.kind])
    method = "ray" if ctx.ray else "chord"
    (y, v), _ = interpolated(region, (shaped[0], scales), (shaped[1], scales0), method, ctx.strict)
    return y.reshape(means.shape), v


gaussian.differentiate(_keep, _derivatives)

"""Which transforms a layer survives: each is tried, and its result compared with that of the layer alone.

"yes": it ran and agrees. "wrong": it ran and does not agree. "no": it raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn

from .peers_calls import JaxLayer, TorchLayer
from .peers_sets import Leaves, tensor

TRANSFORMS = ("vmap", "compile", "export", "double backward")
SAME = 1e-6
STEP, CLOSE = 1e-5, 1e-3  # of the difference quotient that a second derivative is compared with


class Module(nn.Module):
    """A layer as a module, which `torch.export` asks for."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def attempts(layer: TorchLayer | JaxLayer, points: Leaves) -> dict[str, str]:
    """A verdict for each of `TRANSFORMS`."""
    tried = torch_attempts(layer, points) if isinstance(layer, TorchLayer) else jax_attempts(layer, points)
    return {name: verdict(*tried[name]) for name in TRANSFORMS}


def verdict(attempt: Callable[[], Any], expected: Callable[[], Any], tolerance: float) -> str:
    wanted = np.asarray(expected())
    try:
        found = np.asarray(attempt())
    except Exception:  # whatever it raises, the answer is no
        return "no"
    return "yes" if np.allclose(found, wanted, rtol=tolerance, atol=tolerance) else "wrong"


def torch_attempts(layer: TorchLayer, points: Leaves) -> dict[str, tuple[Any, Any, float]]:
    (x,) = (tensor(leaf, layer.dtype, layer.device) for leaf in layer.native(points))
    along = torch.linspace(-1, 1, x.numel(), dtype=x.dtype, device=x.device).reshape(x.shape)

    def slope(z: torch.Tensor, function: Callable[..., Any] = layer.function, graph: bool = False) -> torch.Tensor:
        """The gradient of sum(sin(layer(z)))."""
        return torch.autograd.grad(function(z).sin().sum(), z, create_graph=graph)[0]

    def first(function: Callable[..., Any]) -> Any:
        return slope(x.clone().requires_grad_(), function).cpu()

    def compiled() -> Any:
        torch.compiler.reset()
        return first(torch.compile(layer.function, fullgraph=True, backend="aot_eager"))

    def second() -> Any:
        z = x.clone().requires_grad_()
        return torch.autograd.grad((slope(z, graph=True) * along).sum(), z)[0].mul(along).sum().cpu()

    def at(t: float) -> torch.Tensor:
        return (slope((x + t * along).requires_grad_()) * along).sum().cpu()

    def alone() -> Any:
        return layer.function(x).detach().cpu()

    rows = torch.func.vmap(lambda row: layer.function(row[None])[0])
    return {
        "vmap": (lambda: rows(x).cpu(), alone, SAME),
        "compile": (compiled, lambda: first(layer.function), SAME),
        "export": (lambda: torch.export.export(Module(layer.function), (x,)).module()(x).cpu(), alone, SAME),
        "double backward": (second, lambda: (at(STEP) - at(-STEP)) / (2 * STEP), CLOSE),
    }


def jax_attempts(layer: JaxLayer, points: Leaves) -> dict[str, tuple[Any, Any, float]]:
    import jax
    import jax.numpy as jnp
    from jax import export

    def wide(function: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            with jax.enable_x64(True):
                return np.asarray(function())

        return run

    with jax.enable_x64(True):
        x = jnp.asarray(points[0])
        along = jnp.linspace(-1, 1, x.size).reshape(x.shape)
    slope = jax.grad(lambda z: jnp.sin(layer.function(z)).sum())

    def at(t: Any) -> Any:
        return (slope(x + t * along) * along).sum()

    alone = wide(lambda: layer.function(x))
    rows = jax.vmap(lambda row: layer.function(row[None])[0])
    return {
        "vmap": (wide(lambda: rows(x)), alone, SAME),
        "compile": (wide(lambda: jax.jit(slope)(x)), wide(lambda: slope(x)), SAME),
        "export": (wide(lambda: export.export(jax.jit(layer.function))(x).call(x)), alone, SAME),
        "double backward": (wide(lambda: jax.grad(at)(0.0)), wide(lambda: (at(STEP) - at(-STEP)) / (2 * STEP)), CLOSE),
    }

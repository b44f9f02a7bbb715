"""What is timed: one call of a layer without and with its backward pass, in torch and in JAX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .peers_sets import Leaves, tensor


@dataclass(frozen=True)
class Calls:
    """A layer with its inputs in place: `forward()` and `both()` are timed, `leaves(forward())` are judged."""

    forward: Callable[[], Any]
    both: Callable[[], Any]
    leaves: Callable[[Any], Leaves]
    """Its answer as NumPy arrays."""
    compiles: bool = False
    """Whether the first call is no measure of a later one."""


@dataclass(frozen=True)
class TorchLayer:
    """A function of tensors that returns one, or a tuple of them."""

    function: Callable[..., Any]
    dtype: torch.dtype
    device: str
    native: Callable[[Leaves], Leaves] = lambda points: points
    """From points to what the layer is given."""

    def calls(self, points: Leaves, cotangents: Leaves) -> Calls:
        x = tuple(tensor(leaf, self.dtype, self.device).requires_grad_() for leaf in self.native(points))
        weights = tuple(tensor(leaf, self.dtype, self.device) for leaf in cotangents)

        def forward() -> tuple[torch.Tensor, ...]:
            with torch.no_grad():
                y = as_tuple(self.function(*x))
            self._wait()
            return y

        def both() -> object:
            slope = torch.autograd.grad(as_tuple(self.function(*x)), x, weights)
            self._wait()
            return slope

        return Calls(forward, both, lambda y: tuple(np.asarray(leaf.double().cpu()) for leaf in y))

    def _wait(self) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()


@dataclass(frozen=True)
class JaxLayer:
    """A function of JAX arrays, jitted."""

    function: Callable[[Any], Any]
    double: bool = True
    """Whether it is in float64, or else in float32."""

    def calls(self, points: Leaves, cotangents: Leaves) -> Calls:
        import jax  # here: only this layer needs it

        with jax.enable_x64(self.double):
            (x,), (weight,) = (tuple(map(jax.numpy.asarray, leaves)) for leaves in (points, cotangents))
        value = jax.jit(self.function)
        pull = jax.jit(lambda x, weight: jax.vjp(self.function, x)[1](weight))

        def run(function: Callable[..., Any], *args: Any) -> Any:
            with jax.enable_x64(self.double):
                return jax.block_until_ready(function(*args))

        return Calls(lambda: run(value, x), lambda: run(pull, x, weight), lambda y: (np.asarray(y),), compiles=True)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)

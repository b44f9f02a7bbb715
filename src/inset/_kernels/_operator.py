"""Functions that launch kernels, as torch calls them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._eager.calls import PLAIN
from ._launch import dense

KINDS = (*PLAIN, int, float, bool, str)
"""Types of inputs that are not those of some tracer."""


def watched() -> bool:
    """Whether a mode of torch, such as those of its compilers, sees every operation."""
    return torch._C._len_torch_dispatch_stack() > 0


class Operator:
    """A function of tensors that launches kernels, with its derivatives.

    Where torch traces a program it is an operator of the library "inset"; elsewhere it is called as it is, which costs
    the host less.
    """

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self._plain: Callable[..., Any] = function
        self._traced: Any = torch.library.triton_op(f"inset::{name}", function, mutates_args={})
        self.__doc__ = function.__doc__

    def __call__(self, *inputs: Any) -> Any:
        if torch.compiler.is_compiling() or watched() or any([type(v) not in KINDS for v in inputs]):
            return self._traced(*inputs)
        return self._plain(*inputs)

    def differentiate(self, keep: Callable[..., None], derivatives: Callable[..., Any], live: int) -> None:
        """Set what is kept for the backward pass, `(ctx, inputs, outputs)`, and the derivatives, `(ctx, *g)`.

        Those are by the first inputs, `live` of them; all others are constants.
        """
        function = self._plain
        constants = (None,) * (function.__code__.co_argcount - live)

        class Function(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *inputs: Any) -> Any:
                inputs = (*inputs[:-1], *inputs[-1])
                outputs = function(*inputs)
                ctx.set_materialize_grads(False)
                keep(ctx, inputs, outputs)
                return outputs

            @staticmethod
            def backward(ctx: Any, *g: Any) -> Any:
                return *derivatives(ctx, *g), None

        def plain(*inputs: Any) -> Any:
            if not torch.is_grad_enabled() or not any([v.requires_grad for v in inputs[:live]]):
                return function(*inputs)
            return Function.apply(*inputs[:live], inputs[live:])  # torch looks at each argument

        def traced(ctx: Any, *g: Any) -> Any:
            return *derivatives(ctx, *g), *constants

        self._traced.register_autograd(traced, setup_context=keep)
        self._plain = plain


@dataclass(frozen=True)
class Call:
    """An operator with all of its inputs but the points: these may be any of the same dtype and last dimensions."""

    operator: Operator
    rest: tuple[Any, ...]

    def __call__(self, x: Tensor) -> Tensor:
        y = self.operator(dense(x), *self.rest)
        return y if isinstance(y, Tensor) else y[0]


def operator(name: str) -> Callable[[Callable[..., Any]], Operator]:
    """A decorator: the function as an operator of this name."""
    return lambda function: Operator(name, function)


_CONSTANTS: dict[tuple[Any, ...], Tensor] = {}


def constant(value: float, dtype: torch.dtype, device: torch.device, *size: int) -> Tensor:
    """The number as a tensor, made once and not by a kernel in each call."""
    if torch.compiler.is_compiling() or watched():
        return torch.full(size, value, dtype=dtype, device=device)
    key = (value, dtype, device, *size)
    if key in _CONSTANTS:
        return _CONSTANTS[key]
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():  # what a graph makes is the graph's
        return torch.full(size, value, dtype=dtype, device=device)
    with torch.inference_mode(False):
        _CONSTANTS[key] = torch.full(size, value, dtype=dtype, device=device)
    return _CONSTANTS[key]

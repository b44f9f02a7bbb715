"""Arrays for the fast path of `gaussian.py`: NumPy's where they are small. And whether fast paths apply to tensors.

An operation on a few numbers takes torch about three times as long as NumPy, which on a CPU works on the same memory.
That path uses what both write the same way, so that the formulas stand there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .calls import PLAIN, traced, transformed

SMALL = 2**14
"""Numbers of a batch of points up to which NumPy is faster."""
ROUNDOFF = {torch.float32: 2.0**-24, torch.float64: 2.0**-53}
"""Of the dtypes for which there are fast paths."""


def plain(*tensors: Any) -> bool:
    """Whether these are tensors of one dtype, float32 or float64, on the CPU, that no tracer or transform looks at.

    None of them is empty, or the negative of what is in its memory, as `conj().imag` is.
    """
    if traced() or transformed():
        return False
    dtype = getattr(tensors[0], "dtype", None)
    for v in tensors:
        if type(v) not in PLAIN or v.dtype != dtype or not v.is_cpu or v.numel() == 0 or v.is_neg():
            return False
    return dtype in ROUNDOFF


def engine(x: Tensor) -> Any:
    """The namespace for a batch of points."""
    return np if x.numel() <= SMALL else torch


def array(xp: Any, v: Tensor) -> Any:
    """The tensor as an array of the namespace, in the same memory; torch is not told, or it would never resize it."""
    v = v.detach() if v.requires_grad else v
    if xp is torch:
        return v
    v = v.resolve_neg()
    return v.numpy() if torch.compiler.is_compiling() else np.from_dlpack(_Memory(v))  # what compiled autograd knows


class _Memory:
    """What NumPy asks a tensor for, which takes that itself three times as long."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return torch.to_dlpack(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # the CPU


def tensor(v: Any) -> Tensor:
    return v if isinstance(v, Tensor) else torch.from_numpy(v)


def quiet(xp: Any) -> AbstractContextManager[object]:
    """Without derivatives and autocast, and without warnings of what is looked at later."""
    return np.errstate(all="ignore") if xp is np else _constant()


@contextmanager
def _constant() -> Iterator[None]:
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        yield


def at_least(v: Any, low: float) -> Any:
    """max(v, low); NaN stays."""
    return v.clamp(min=low) if isinstance(v, Tensor) else np.maximum(v, low)


def at_most(v: Any, high: float) -> Any:
    """min(v, high); NaN stays."""
    return v.clamp(max=high) if isinstance(v, Tensor) else np.minimum(v, high)


def largest(v: Any) -> float:
    return v.max().item() if isinstance(v, Tensor) else v.item(v.argmax())  # where NumPy is quicker, and NaN stays too


def smallest(v: Any) -> float:
    """Likewise."""
    return v.min().item() if isinstance(v, Tensor) else v.item(v.argmin())


def most(v: Any) -> Any:
    """The largest on the last axis, `(*batch, 1)`; that of many short rows takes NumPy less by columns."""
    if isinstance(v, Tensor):
        return v.amax(-1, keepdim=True)
    d = v.shape[-1]
    if d * d > v.size:
        return v.max(-1, keepdims=True)
    return v.reshape(-1, d).T.copy().max(0).reshape(*v.shape[:-1], 1)


def total(v: Any) -> Any:
    """The sum over the last axis, in the same way; a product is quicker than NumPy's sum."""
    return v.sum(-1, keepdim=True) if isinstance(v, Tensor) else (v @ _ones(v.shape[-1], v.dtype))[..., None]


@lru_cache
def _ones(d: int, dtype: Any) -> Any:
    return np.ones(d, dtype)


def product(a: Any, b: Any, event: int) -> Any:
    """The sum of a b over the last axes, one or two, in the same way."""
    if isinstance(a, Tensor):
        return (a * b).sum(-1, keepdim=True) if event == 1 else (a * b).sum((-2, -1), keepdim=True)[..., 0]
    if event == 2:
        a, b = (v.reshape(*v.shape[:-2], -1) for v in (a, b))
    return np.vecdot(a, b)[..., None]

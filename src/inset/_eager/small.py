"""Arrays for the fast path of `gaussian.py`: NumPy's where they are small. And whether fast paths apply to tensors.

An operation on a few numbers takes torch about three times as long as NumPy, which on a CPU works on the same memory.
That path uses what both write the same way, so that the formulas stand there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
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
    return np.from_dlpack(v.resolve_neg()) if xp is np else v


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


def most(v: Any) -> Any:
    """The largest on the last axis, `(*batch, 1)`."""
    return v.amax(-1, keepdim=True) if isinstance(v, Tensor) else v.max(-1, keepdims=True)


def total(v: Any, event: int) -> Any:
    """The sum over the last axes, in the same way."""
    return v.sum(-1, keepdims=True) if event == 1 else v.sum((-2, -1), keepdims=True)[..., 0]


def product(a: Any, b: Any, event: int) -> Any:
    """The sum of a b, in the same way."""
    return total(a * b, event)

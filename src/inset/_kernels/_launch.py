"""What every kernel needs to be launched: its numbers of precision, its blocks, and a way through compilers."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from .._ray import HUGE


def working(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which a kernel computes for points of this one."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def precision(dtype: torch.dtype) -> dict[str, Any]:
    """The constants of a kernel for points of this dtype; see `_strict.py` for their part in the margin."""
    inner, outer = torch.finfo(working(dtype)), torch.finfo(dtype)
    narrow = outer.bits < inner.bits
    return {
        "F": tl.float64 if dtype == torch.float64 else tl.float32,
        "U": inner.eps / 2,
        "NARROW": outer.eps / 2 if narrow else 0.0,
        "SMALLEST": outer.smallest_normal if narrow else 0.0,
        "HUGE": HUGE[inner.bits],
    }


def power(n: int) -> int:
    """The least power of two that is not below n: blocks have such sizes."""
    return 1 << (n - 1).bit_length()


def launched(kernel: Any, samples: int, width: int, *arguments: Any, **constants: Any) -> None:
    """Run the kernel on samples of this width, a power of two; where torch compiles, as a part of its graph.

    A program holds B samples: few of a small batch, so that there are many programs.
    """
    rows = min(max(1, 4096 // width), 4 if samples <= 4096 else 32)
    if isinstance(kernel, triton.JITFunction):
        kernel = torch.library.wrap_triton(kernel)
    kernel[(-(-samples // rows),)](*arguments, B=rows, num_warps=1 if rows * width <= 256 else 4, **constants)

"""What every kernel needs to be launched: its numbers of precision, its blocks, and a way through compilers."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from .._ray import HUGE

# By which the coordinates of very long or very short vectors are scaled before they are squared.
SHIFT = {32: 2.0**96, 64: 2.0**960}


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
        "EPS": outer.eps,
        "NARROW": outer.eps / 2 if narrow else 0.0,
        "SMALLEST": outer.smallest_normal if narrow else 0.0,
        "HUGE": HUGE[inner.bits],
        "SHIFT": SHIFT[inner.bits],
    }


def rows(v: Tensor, batch: torch.Size, event: int) -> Tensor:
    """v with one leading dimension: of size 1 for a constant that all samples share."""
    if v.ndim == event and not v.requires_grad:
        return v[None].contiguous()
    return v.expand(*batch, *v.shape[v.ndim - event :]).reshape(-1, *v.shape[v.ndim - event :]).contiguous()


def power(n: int) -> int:
    """The least power of two that is not below n: blocks have such sizes."""
    return 1 << (n - 1).bit_length()


PROGRAMS, MORE = 2112, 4
"""That take turns in tiles: about as many as a GPU runs at once, or more where a tile has more than one sample."""
WARP = 2048
"""Bytes of points that a warp holds."""
STAGES = 3
"""Tiles of points that are on their way at once."""


def launched(
    kernel: Any,
    turns: bool,
    x: Tensor,
    width: int,
    *arguments: Any,
    block: int = 0,
    warps: int = 0,
    stages: int = 0,
    **constants: Any,
) -> None:
    """Run the kernel on samples x of this width, a power of two; where torch compiles, as a part of its graph.

    A program is one warp, if a sample fits in there, and takes B samples at a time: few of a small batch, so that there
    are many programs; with `turns` it goes on to further samples. `block`, `warps` and `stages` set other sizes. Of the
    numbers of precision and the constants the kernel gets those that it asks for.
    """
    samples, held = x.shape[0], max(32, WARP // x.element_size())
    block = block or min(max(1, held // width), power(-(-samples // PROGRAMS)))
    most = PROGRAMS * min(MORE, block)
    known = precision(x.dtype) | {"STAGES": STAGES} | constants
    numbers = {name: v for name, v in known.items() if name in kernel.arg_names}
    if isinstance(kernel, triton.JITFunction) and torch._C._len_torch_dispatch_stack():
        kernel = torch.library.wrap_triton(kernel)
    programs = -(-samples // block)
    kernel[(min(programs, most) if turns else programs,)](
        *arguments, samples, B=block, num_warps=warps or max(1, width // held), num_stages=stages or STAGES, **numbers
    )

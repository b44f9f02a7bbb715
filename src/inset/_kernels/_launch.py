"""What every kernel needs to be launched: its numbers of precision, its blocks, and a way through compilers."""

from __future__ import annotations

from typing import Any, NamedTuple

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
        "NORMAL": inner.smallest_normal,
        "HUGE": HUGE[inner.bits],
        "SHIFT": SHIFT[inner.bits],
    }


def dense(v: Tensor) -> Tensor:
    """v as kernels read memory: one number after the other, and not the negative of what is there."""
    negative = not torch.compiler.is_compiling() and v.is_neg()
    return (v.resolve_neg() if negative else v).contiguous()


def rows(v: Tensor, batch: tuple[int, ...], event: int) -> Tensor:
    """v as it is where all samples share it, else with one leading dimension."""
    if v.ndim == event and not v.requires_grad:
        return dense(v)
    return dense(v.expand(*batch, *v.shape[v.ndim - event :]).reshape(-1, *v.shape[v.ndim - event :]))


def stride(v: Tensor, event: int) -> int:
    """How far it is in such an array from one sample to the next: 0 if all share it."""
    return 0 if v.ndim <= event or v.shape[0] == 1 else v.numel() // v.shape[0]


def common(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which these broadcast; that of torch takes longer where those that are not empty are the same."""
    first, *rest = sorted(shapes, key=len, reverse=True)
    return first if all([not v or v == first for v in rest]) else tuple(torch.broadcast_shapes(*shapes))


def power(n: int) -> int:
    """The least power of two that is not below n: blocks have such sizes."""
    return 1 << (n - 1).bit_length()


PROGRAMS, MORE, TURNS = 2112, 6, 14
"""Programs that keep a GPU busy, how many times as many take turns in tiles, and turns of each before they are more.

The more there are, the less the last ones leave idle, and the more often what they begin with is paid for.
"""
WARP, HELD = 2048, 512
"""Bytes of a point that a warp holds, and numbers of several points."""
FEW, NUMBERS, WARPS = 264, 64, 8
"""Programs up to which a GPU has nothing else to do, so that more warps share a tile: numbers of each, and how many."""
LEAST = 128
"""Bytes of a row that lanes read at once, if there are as many."""
STAGES = 3
"""Tiles of points that are on their way at once."""


PARTS, BLOCKS, RESERVED = 4, 32, 1024
"""Parts of a processor, each with warps and registers of its own, programs that it runs at once at most, and bytes of

shared memory that each takes beside its own.
"""
ROCM = torch.version.hip is not None
"""Whether GPUs are those of AMD, whose processors have other parts."""
MOST = 4096
"""Launches that are remembered."""
DIRECT = tuple([int(part) for part in triton.__version__.split(".")[:2]]) >= (3, 6)
"""Whether a compiled kernel takes its arguments as its function does; it was otherwise once."""
_LAUNCHES: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}
"""Compiled kernels on their grids, and the arguments after the tensors, by all that these depend on."""


class Sizes(NamedTuple):
    """The sizes of a launch; 0 where they follow from others."""

    width: int
    block: int
    warps: int
    stages: int
    short: bool
    registers: int


def launched(
    kernel: Any,
    turns: bool,
    x: Tensor,
    width: int,
    *arguments: Tensor,
    samples: int = 0,
    block: int = 0,
    warps: int = 0,
    stages: int = 0,
    short: bool = False,
    registers: int = 0,
    **constants: Any,
) -> None:
    """Run the kernel on samples x of this width, a power of two; where torch compiles, as a part of its graph.

    A program is one warp, if a sample fits in there, and takes B samples at a time: few of a small batch, so that there
    are many programs; with `turns` it goes on to further samples. `block`, `warps` and `stages` set other sizes, with
    `short` a warp holds as few numbers of a long sample as of several, a lane may use as many `registers`, and
    `samples` is their number, if that is not the first dimension of x. Of the numbers of precision and the constants
    the kernel gets those that it asks for.
    """
    samples, sizes = samples or x.shape[0], Sizes(width, block, warps, stages, short, registers)
    if not _direct(kernel):
        _launch(kernel, turns, x, samples, sizes, arguments, constants)
        return
    if x.device.index != torch.cuda.current_device():  # on which Triton launches
        with torch.cuda.device(x.device):
            return launched(kernel, turns, x, width, *arguments, samples=samples, block=block, warps=warps,
                            stages=stages, short=short, registers=registers, **constants)  # fmt: skip
    # what is compiled depends on numbers, on dtypes, and on which addresses are multiples of 16
    key = (id(kernel), samples, x.device, x.dtype, *sizes, *constants.values())
    key += tuple([v.dtype for v in arguments]) + tuple([v.data_ptr() & 15 for v in arguments])
    if found := _LAUNCHES.get(key):
        found[0](*arguments, *found[1])
        return
    compiled, grid, numbers = _launch(kernel, turns, x, samples, sizes, arguments, constants)
    if turns and not ROCM and grid[0] < -(-samples // numbers["B"]):
        grid = (_rounded(grid[0], compiled, x.device), 1, 1)
    if len(_LAUNCHES) >= MOST:
        _LAUNCHES.clear()
    _LAUNCHES[key] = compiled[grid], (samples, *[numbers[name] for name in kernel.arg_names[len(arguments) + 1 :]])


def _rounded(programs: int, compiled: Any, device: torch.device) -> int:
    """About as many programs, so many that the last ones fill the GPU: a multiple of those that it runs at once."""
    here, known = torch.cuda.get_device_properties(device), compiled.metadata
    registers = max(1, -(-compiled.n_regs // 8)) * 8 * 32  # of a warp: lanes are given them in eights
    warps = min(
        PARTS * (here.regs_per_multiprocessor // PARTS // registers), here.max_threads_per_multi_processor // 32
    )
    once = min(BLOCKS, warps // known.num_warps, here.shared_memory_per_multiprocessor // (known.shared + RESERVED))
    once = max(1, once) * here.multi_processor_count
    return max(1, round(programs / once)) * once if programs > once else programs


def _direct(kernel: Any) -> bool:
    """Whether this call may go to a compiled kernel: not in the interpreter, nor where a mode of torch looks on."""
    return DIRECT and isinstance(kernel, triton.JITFunction) and not torch._C._len_torch_dispatch_stack()


def _launch(
    kernel: Any,
    turns: bool,
    x: Tensor,
    samples: int,
    sizes: Sizes,
    arguments: tuple[Tensor, ...],
    constants: dict[str, Any],
) -> tuple[Any, tuple[int, int, int], dict[str, Any]]:
    """Run the kernel by Triton's own means; what that returns, the grid, and the constants."""
    size, width = x.element_size(), sizes.width
    held, each = min(HELD, WARP // size), 16 // size
    block = sizes.block or min(max(1, held // width), power(-(-samples // PROGRAMS)))
    programs = -(-samples // block)
    most = min(max(PROGRAMS, programs // (TURNS * max(1, width // HELD))), PROGRAMS * MORE)
    spread = min(block * width // NUMBERS, WARPS) if programs <= FEW else 1
    warps = sizes.warps or max(1, width // (held if sizes.short else WARP // size), spread)
    # lanes, the numbers that each reads at once, and those of a row, or of several short ones, that are read at once
    several = constants.get("D") == width < each <= block * width
    span = each if several else min(width, max(32 * warps * each // block, LEAST // size))
    lanes = {"LANES": 32 * warps, "EACH": each, "SPAN": span}
    known = precision(x.dtype) | {"STAGES": STAGES} | constants | {"B": block} | lanes
    numbers = {name: v for name, v in known.items() if name in kernel.arg_names}
    options = {"num_warps": warps, "num_stages": sizes.stages or STAGES}
    if isinstance(kernel, triton.JITFunction) and torch._C._len_torch_dispatch_stack():
        kernel = torch.library.wrap_triton(kernel)
    elif sizes.registers and not ROCM:
        options["maxnreg"] = sizes.registers
    grid = (min(programs, most) if turns else programs, 1, 1)
    return kernel[grid](*arguments, samples, **options, **numbers), grid, numbers

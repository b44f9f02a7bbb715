"""Time and peak memory of one cell of `growth`: a set of one size, forward or forward and backward."""

from __future__ import annotations

import ctypes
import multiprocessing
import random
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

import inset
import inset.torch  # as users of torch have it

from .growth_lines import PASSES, Line

Step = Callable[[], object]
ROUND = 0.02  # seconds that one cell is timed for in one round
BUDGET = 1.5  # seconds after which a cell takes part in no more rounds


def step(line: Line, size: int, name: str, **options: Any) -> Step:
    """One call of `project`, strict, for this size; the options say where and how its numbers are made."""
    set, anchor, x = line.problem(size, **options)

    def forward() -> object:
        with torch.no_grad():
            return inset.project(set, x, anchor)

    def backward() -> object:
        z = x.detach().requires_grad_()
        return torch.autograd.grad(inset.project(set, z, anchor).sum(), z)

    return forward if name == PASSES[0] else backward


def seconds(steps: dict[Any, Step], rounds: int, clock: Callable[[], float]) -> dict[Any, float]:
    """Seconds per call of each step, the fastest round: they take turns in random order, and disturbances only add."""
    calls, turns = {}, {}
    for label, run in steps.items():
        run()
        once = _timed(run, 1, clock)
        calls[label] = max(1, round(ROUND / max(once, 1e-6)))
        turns[label] = min(rounds, max(1, int(BUDGET / max(once, ROUND))))
    best, order, shuffle = dict.fromkeys(steps, float("inf")), list(steps), random.Random(0).shuffle
    for turn in range(rounds):
        shuffle(order)
        for label in order:
            if turn < turns[label]:
                best[label] = min(best[label], _timed(steps[label], calls[label], clock))
    return best


def _timed(run: Step, calls: int, clock: Callable[[], float]) -> float:
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls


def clock(device: str) -> Callable[[], float]:
    """Of the processor in one thread, which others on the machine do not disturb; else of the wall."""
    if device.startswith("cuda"):

        def synchronized() -> float:
            torch.cuda.synchronize(device)
            return time.perf_counter()

        return synchronized
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def keep_freed_memory() -> None:
    """Let the C library keep the memory that is freed, in this process.

    By default it gives large arrays back to the system, and the time of large cells, of any operation, is then that of
    asking for fresh pages.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return
    never_by_mmap, never_trim = -4, -1
    mallopt(never_by_mmap, 0)
    mallopt(never_trim, 2**31 - 1)


class Memory:
    """Peak memory of cells: on a CPU of a process of its own for each, on a GPU as torch counts it."""

    def __init__(self, device: str, threads: int) -> None:
        self.device, self.threads, self.pool = device, threads, None
        if not device.startswith("cuda"):
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload([__name__])
            self.pool = ProcessPoolExecutor(1, context, max_tasks_per_child=1)

    def peak(self, line: Line, size: int, name: str, **options: Any) -> tuple[int | None, float]:
        """Bytes beyond those of the libraries: set, points, results and all on the way. And seconds of the call."""
        if self.pool is None:
            return _peak_gpu(line, size, name, options | {"device": self.device})
        return self.pool.submit(_peak_cpu, line, size, name, options, self.threads).result()


def _peak_gpu(line: Line, size: int, name: str, options: dict[str, Any]) -> tuple[int, float]:
    device = options["device"]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    run = step(line, size, name, **options)
    run()
    took = _timed(run, 1, clock(device))
    return torch.cuda.max_memory_allocated(device) - before, took


def _peak_cpu(line: Line, size: int, name: str, options: dict[str, Any], threads: int) -> tuple[int | None, float]:
    torch.set_num_threads(threads)
    step(line, 1 if line.axis != "dimension" else 2, name)()  # loads what a first call loads
    before = _status("VmRSS")
    try:
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")  # the peak so far is that of importing
    except OSError:
        pass
    took = _timed(step(line, size, name, **options), 1, clock("cpu"))
    peak = _status("VmHWM")
    return (None if peak is None or before is None else max(0, peak - before)), took


def _status(field: str) -> int | None:
    """Bytes in memory now or at most, of this process alone (ru_maxrss begins with that of the parent)."""
    try:
        with open("/proc/self/status") as status:
            return next(1024 * int(line.split()[1]) for line in status if line.startswith(field))
    except (OSError, StopIteration):
        return None

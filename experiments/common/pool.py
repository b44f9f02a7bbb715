"""Jobs spread over worker processes with one thread each."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from .store import StoreError

# Read when a worker imports its libraries, hence set before it starts.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NPROC": "1",  # of XLA; its pool of two threads deadlocks on batched eigenvalues (jaxlib 0.10)
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


def end_with(parent: int) -> None:
    """End this process when its parent is gone: a killed run leaves nothing behind that works on."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


class Pool:
    """`workers` processes; with one worker the jobs run in this process."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._executor: ProcessPoolExecutor | None = None

    def __enter__(self) -> Pool:
        if self.workers > 1:
            before = {name: os.environ.get(name) for name in ONE_THREAD}
            os.environ.update(ONE_THREAD)
            self._before = before
            spawn = multiprocessing.get_context("spawn")
            self._executor = ProcessPoolExecutor(self.workers, spawn, initializer=end_with, initargs=(os.getpid(),))
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if self._executor is None:
            return
        self._executor.shutdown(wait=kind is None, cancel_futures=True)
        if kind is not None:  # a job may have minutes to go; what it would write is written whole or not at all
            for child in multiprocessing.active_children():
                child.terminate()
        for name, value in self._before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})

    def run(self, job: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Start `job(*a)` for each a in order, and give each a as its job ends."""
        if self._executor is None:
            for a in arguments:
                job(*a)
                yield a
            return
        futures = {self._executor.submit(job, *a): a for a in arguments}
        try:
            for future in as_completed(futures):
                future.result()
                yield futures[future]
        except BrokenProcessPool:
            raise StoreError(
                "a worker process died, perhaps for want of memory; finished cells are kept: the same command goes on"
            ) from None

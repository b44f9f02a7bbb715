"""A process of its own for each cell, so that a layer which hangs, crashes or takes all memory ends nothing else."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LINE = 160  # characters of an error that are kept
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
M_MMAP_THRESHOLD = -3


def isolated(command: list[str], timeout: float, memory: float, threads: int = 1) -> dict[str, Any]:
    """What the command writes as JSON into the file named by its last argument, or an error of one line.

    It is killed after `timeout` seconds, or when it holds more than `memory` GB.
    """
    with tempfile.TemporaryDirectory() as folder:
        answer, log = Path(folder) / "answer.json", Path(folder) / "log.txt"
        with log.open("w") as said:
            environment = os.environ | dict.fromkeys(THREADS, str(threads))
            process = subprocess.Popen([*command, str(answer)], stdout=said, stderr=said, env=environment)
            why = _wait(process, timeout, memory)
        if answer.exists() and not why:
            return json.loads(answer.read_text())
        return {"error": why or _epitaph(process.returncode, log.read_text())}


def _wait(process: subprocess.Popen[bytes], timeout: float, memory: float) -> str:
    """Wait for the end; why the process was killed, if it was."""
    end, why = time.monotonic() + timeout, ""
    while process.poll() is None and not why:
        if time.monotonic() > end:
            why = f"no result within {timeout:g} s"
        elif resident(process.pid) > memory * 1e9:
            why = f"more than {memory:g} GB of memory"
        time.sleep(0.05)
    if why:
        process.kill()
        process.wait()
    return why


def _epitaph(code: int, log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    last = one_line(lines[-1]) if lines else "no message"
    return f"ended by {signal.Signals(-code).name}: {last}" if code < 0 else f"exit status {code}: {last}"


def one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LINE else f"{flat[:LINE]} ..."


def resident(pid: int | str = "self", field: str = "VmRSS") -> int:
    """Bytes of memory that a process holds, or its peak (`VmHWM`); 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(field)), 0)


def growth(step: Callable[[], object]) -> float | None:
    """MB by which a call makes this process grow at its peak; None where the system does not tell."""
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what was freed is given back, or it would hide what the call takes
        Path("/proc/self/clear_refs").write_text("5")  # the peak starts from here
    except (OSError, AttributeError):
        return None
    before = resident()
    step()
    return max(0, resident(field="VmHWM") - before) / 1e6


def return_memory() -> None:
    """From now on, give memory back as soon as it is freed. Slow, so only after everything was timed."""
    try:
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 16)
    except (OSError, AttributeError):
        return

"""What a result depends on besides its configuration: versions and the machine."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("inset", "numpy", "jax", "torch", "cvxpy", "clarabel", "Box2D")


def versions() -> dict[str, str]:
    """Python and the packages that compute."""
    return {"python": platform.python_version(), **{name: package_version(name) for name in PACKAGES}}


def machine() -> dict[str, str | int]:
    """System, processor and the number of cores that may be used."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"system": f"{platform.system()} {platform.machine()}", "processor": processor(), "cores": cores}


def package_version(package: str) -> str:
    """The version that is installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def processor() -> str:
    """The name of the processor; Linux keeps it in a file, elsewhere Python knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()

"""What a number depends on besides the code: machine, versions, threads."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path

import torch
from experiments.common.environment import package_version, processor

import inset


def describe(device: str = "cpu") -> dict[str, str | int]:
    """Platform, versions and threads, for the head of a table and for result files."""
    return {
        "platform": platform.platform(),
        "processor": processor(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "inset": package_version("inset"),
        "inset source": source_hash(),
        "threads": torch.get_num_threads(),
    }


def source_hash() -> str:
    """A short hash of the library's source files: results of other code are other results."""
    folder = Path(inset.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def show(facts: dict[str, str | int]) -> str:
    return "\n".join(f"{name + ':':<14}{value}" for name, value in facts.items())

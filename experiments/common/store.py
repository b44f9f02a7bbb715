"""The store: one run in one folder, a `.npz` per cell and `manifest.json`. A killed run finds its cells again."""

from __future__ import annotations

import datetime
import json
import os
import time
from pathlib import Path
from typing import Any, Self

import numpy as np

from . import environment, options

Arrays = dict[str, np.ndarray]
MANIFEST = "manifest.json"


class StoreError(Exception):
    """A folder does not hold what was asked of it; the message says what to do."""


class Store:
    """The results of one run. `create` to compute, `read` to look at."""

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = folder, manifest
        self._clock = time.monotonic()

    @classmethod
    def create(cls, folder: Path, experiment: str, config: Any) -> Self:
        """An empty store, or that of an interrupted run of the same configuration to go on with."""
        wanted = options.as_json(config)
        if (folder / MANIFEST).exists():
            store = cls.read(folder)
            _compare(folder, experiment, wanted, store.manifest)
            return store
        folder.mkdir(parents=True, exist_ok=True)
        manifest = {
            "experiment": experiment,
            "scale": options.scale(config),
            "command": options.command(experiment, config),
            "config": wanted,
            "seed": wanted.get("seed"),
            "versions": environment.versions(),
            "machine": environment.machine(),
            "started": _now(),
            "finished": None,
            "seconds": 0.0,
        }
        store = cls(folder, manifest)
        store.write_manifest()
        return store

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The store in a folder, finished or not."""
        try:
            manifest = json.loads((folder / MANIFEST).read_text())
        except FileNotFoundError:
            raise StoreError(f"{folder}: no results here (there is no {MANIFEST})") from None
        except ValueError as error:
            raise StoreError(f"{folder / MANIFEST}: not a manifest of results ({error})") from None
        return cls(folder, manifest)

    @property
    def finished(self) -> bool:
        return bool(self.manifest["finished"])

    def config(self, cls: type) -> Any:
        """The configuration of the run, as an object of its class."""
        values = self.manifest["config"]
        try:
            return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
        except TypeError as error:
            raise StoreError(f"{self.folder}: results of another version of this experiment ({error})") from None

    def has(self, cell: str) -> bool:
        return self.path(cell).exists()

    def load(self, cell: str) -> Arrays:
        if not self.has(cell):
            raise StoreError(f"{self.folder}: no cell {cell!r}")
        return read_arrays(self.path(cell))

    def save(self, cell: str, arrays: Arrays) -> None:
        """Write a cell and count the time since the last one."""
        write_arrays(self.path(cell), arrays)
        self.tick()

    def path(self, cell: str) -> Path:
        return self.folder / f"{cell}.npz"

    def tick(self) -> None:
        """Add the time since the last tick to the manifest: the time of an interrupted run counts too."""
        now = time.monotonic()
        self.manifest["seconds"] = round(self.manifest["seconds"] + now - self._clock, 3)
        self._clock = now
        self.write_manifest()

    def finish(self) -> None:
        """Mark the run as complete."""
        self.manifest["finished"] = _now()
        self.tick()

    def write_manifest(self) -> None:
        write_text(self.folder / MANIFEST, json.dumps(self.manifest, indent=1) + "\n")


def discard(folder: Path) -> None:
    """Remove the results in a folder, and nothing else that may be there; the manifest goes last."""
    if (folder / MANIFEST).exists():
        kinds = ("*.npz", "*.svg", "*.gif", "*.part", "*.pt", "instances/*.npz", "instances/*.part")
        for path in [*(path for kind in kinds for path in folder.glob(kind)), folder / MANIFEST]:
            path.unlink(missing_ok=True)


def write_arrays(path: Path, arrays: Arrays) -> None:
    """A `.npz` file, whole or not at all."""
    partial = partial_file(path)
    with partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    partial.replace(path)


def read_arrays(path: Path) -> Arrays:
    """What `write_arrays` wrote."""
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def write_text(path: Path, text: str) -> None:
    """A text file, whole or not at all."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """A file, whole or not at all."""
    partial = partial_file(path)
    partial.write_bytes(data)
    partial.replace(path)


def partial_file(path: Path) -> Path:
    """Where to write what replaces a file once it is whole."""
    return path.with_name(f"{path.name}.{os.getpid()}.part")


def _compare(folder: Path, experiment: str, wanted: dict[str, Any], manifest: dict[str, Any]) -> None:
    old = {"experiment": manifest["experiment"], **manifest["config"]}
    new = {"experiment": experiment, **wanted}
    changed = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    if changed:
        lines = [f"  {name}: {old.get(name)!r} there, {new.get(name)!r} now" for name in changed]
        raise StoreError(
            f"{folder}: holds results of another run, which this one cannot go on with:\n"
            + "\n".join(lines)
            + "\ngive another folder with --out, or --fresh to discard what is there"
        )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")

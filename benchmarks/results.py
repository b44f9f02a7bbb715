"""A file of results that a killed run finds again: cells by name, written whole or not at all."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any


class Results:
    """The cells of one run and, with a path, their file; `settings` are what a cell depends on."""

    def __init__(self, path: Path | None, settings: dict[str, Any], every: float = 60.0) -> None:
        self.path, self.settings, self.every = path, settings, every
        self.cells: dict[str, Any] = {}
        self.written = time.monotonic()
        if path is not None and path.exists():
            self.cells = _read(path, settings)

    def add(self, key: str, cell: dict[str, Any]) -> None:
        self.cells[key] = cell
        if time.monotonic() - self.written > self.every:
            self.write()

    def write(self) -> None:
        """Replace the file by a complete new one: readers and killed runs never see half of it."""
        if self.path is None:
            return
        partial = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        partial.write_text(json.dumps({"settings": self.settings, "cells": self.cells}, indent=1) + "\n")
        partial.replace(self.path)
        self.written = time.monotonic()


def _read(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
        old, cells = found["settings"], found["cells"]
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"error: --json {path}: exists and holds no results of this benchmark ({error!r})") from None
    settings = json.loads(json.dumps(settings))
    changed = sorted(name for name in {*old, *settings} if old.get(name) != settings.get(name))
    if changed:
        lines = [f"  {name}: {old.get(name)!r} there, {settings.get(name)!r} now" for name in changed]
        raise SystemExit(
            f"error: --json {path}: holds results of another run, which this one cannot continue:\n"
            + "\n".join(lines)
            + "\nname another file, or remove this one"
        )
    return cells

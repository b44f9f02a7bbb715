"""The report: the table of claims and every experiment's figures and tables, in one HTML file."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path
from typing import Any

from . import registry
from .common import drawing, page, places
from .common.store import Store, write_bytes, write_text

ANIMATIONS = 1
"""As many of a run are in the page and among the committed results: they are large."""


def write(path: Path) -> Path:
    """Write the page, and return where it is."""
    chapters = []
    for name, summary in registry.EXPERIMENTS.items():
        sections = [_section(name, store) for store in places.reported(name)]
        chapters.append(page.Chapter(name, summary, sections, f"python -m experiments {name} run"))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page.page(chapters, registry.collect()))
    return path.resolve()


def save_figures(name: str, store: Store, folder: Path, animations: int | None = None) -> list[Path]:
    """Draw the results, one SVG file per figure and one GIF per animation, of which there may be a limit."""
    paths = []
    for key, figure in registry.figures(name, store).items():
        drawing.save(figure, folder / f"{key}.svg")
        paths.append(folder / f"{key}.svg")
    for key, gif in itertools.islice(registry.animations(name, store), animations):
        write_bytes(folder / f"{key}.gif", gif)
        paths.append(folder / f"{key}.gif")
    return paths


def _section(name: str, store: Store) -> page.Section:
    origin = store.manifest
    title = "At paper scale" if origin["scale"] == "paper" else "Latest quick run"
    figures = [
        (drawing.inline(figure, f"{name}-{origin['scale']}-{key}"), registry.captions(name)[key])
        for key, figure in registry.figures(name, store).items()
    ]
    figures += [
        (_image(gif, f"{name}, {key}"), registry.captions(name)[key])
        for key, gif in itertools.islice(registry.animations(name, store), ANIMATIONS)
    ]
    facts = [
        ("command", origin["command"]),
        ("time", f"{origin['seconds']:.1f} s, finished {origin['finished']}"),
        ("seed", str(origin["seed"])),
        ("versions", ", ".join(f"{k} {v}" for k, v in origin["versions"].items())),
        ("machine", _machine(origin["machine"])),
    ]
    return page.Section(title, figures, registry.tables(name, store), facts)


def _machine(machine: dict[str, Any]) -> str:
    parts = (machine["processor"], f"{machine['cores']} cores", machine["system"], machine.get("accelerator"))
    return ", ".join(part for part in parts if part)


def _image(gif: bytes, alt: str) -> str:
    return f'<img alt="{alt}" src="data:image/gif;base64,{base64.b64encode(gif).decode()}">'

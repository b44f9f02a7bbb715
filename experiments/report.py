"""The report: the table of claims and every experiment's figures and tables, in one HTML file."""

from __future__ import annotations

from pathlib import Path

from . import registry
from .common import drawing, page, places
from .common.store import Store, write_text


def write(path: Path) -> Path:
    """Write the page, and return where it is."""
    chapters = []
    for name, summary in registry.EXPERIMENTS.items():
        sections = [_section(name, store) for store in places.reported(name)]
        chapters.append(page.Chapter(name, summary, sections, f"python -m experiments {name} run"))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page.page(chapters, registry.collect()))
    return path.resolve()


def save_figures(name: str, store: Store, folder: Path) -> list[Path]:
    """Draw the results, one SVG file per figure."""
    paths = []
    for key, figure in registry.figures(name, store).items():
        drawing.save(figure, folder / f"{key}.svg")
        paths.append(folder / f"{key}.svg")
    return paths


def _section(name: str, store: Store) -> page.Section:
    origin = store.manifest
    title = "At paper scale" if origin["scale"] == "paper" else "Latest quick run"
    figures = [
        (drawing.inline(figure, f"{name}-{origin['scale']}-{key}"), registry.captions(name)[key])
        for key, figure in registry.figures(name, store).items()
    ]
    facts = [
        ("command", origin["command"]),
        ("time", f"{origin['seconds']:.1f} s, finished {origin['finished']}"),
        ("seed", str(origin["seed"])),
        ("versions", ", ".join(f"{k} {v}" for k, v in origin["versions"].items())),
        (
            "machine",
            f"{origin['machine']['processor']}, {origin['machine']['cores']} cores, {origin['machine']['system']}",
        ),
    ]
    return page.Section(title, figures, registry.tables(name, store), facts)

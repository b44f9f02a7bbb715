"""How figures look: one colour per method in every figure, and SVG small enough to commit and to put into a page."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from .store import write_text

INK = "#1b1b1f"
"""Text and axes; a page replaces it by its own text colour."""
MUTED = "#8a8d93"
"""What is there for orientation; readable on light and on dark."""

# Okabe and Ito's colours, and a line style of its own for each: neither is needed to read the other
COLOR = {
    "igd": "#E69F00",
    "chord": "#0072B2",
    "radial": "#009E73",
    "subgd": "#8C6BB1",
    "subgd_rescaled": "#B79BD3",
    "pgd": "#D55E00",
}
LINE: dict[str, Any] = {
    "igd": "-",
    "chord": (0, (6, 1.5)),
    "radial": "-.",
    "subgd": "--",
    "subgd_rescaled": (0, (3, 1, 1, 1, 1, 1)),
    "pgd": ":",
}
NAME = {
    "igd": "IGD",
    "chord": "IGD, chord",
    "radial": "Radial",
    "subgd": "SubGD",
    "subgd_rescaled": "SubGD, rescaled h",
    "pgd": "PGD",
}

STYLE: dict[Any, Any] = {
    "svg.hashsalt": "inset",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "path.simplify": True,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}


def canvas(width: float, height: float) -> Figure:
    """An empty figure, to be made and filled under `mpl.rc_context(STYLE)`."""
    return Figure(figsize=(width, height), layout="constrained")


def svg(figure: Figure, transparent: bool = False) -> str:
    """The `<svg>` element of a figure, with coordinates to a hundredth of a point."""
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=transparent)
    text = buffer.getvalue()
    text = re.sub(r"<!--.*?-->|^ +", "", text[text.index("<svg") :], flags=re.MULTILINE)
    return re.sub(r'(?<= )d="[^"]+"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text)


def save(figure: Figure, path: Path) -> None:
    """The figure as an SVG file with a white ground."""
    write_text(path, f'<?xml version="1.0" encoding="utf-8"?>\n{svg(figure)}')


def inline(figure: Figure, prefix: str) -> str:
    """The figure as an element of a page: its own names for parts, the page's colour for text, no ground."""
    text = svg(figure, transparent=True)
    text = re.sub(r'id="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    return text.replace(INK, "currentColor")

"""How figures look: one colour per method in every figure, and SVG small enough to commit and to put into a page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import EllipseCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter
from PIL import Image

from .store import write_text

INK = "#1b1b1f"
"""Text and axes; a page replaces it by its own text colour."""
MUTED = "#8a8d93"
"""What is there for orientation; readable on light and on dark."""
RED = "#D62728"
"""What must not be."""

# Okabe and Ito's colours, and a line style of its own for each: neither is needed to read the other
COLOR = {
    "igd": "#E69F00",
    "chord": "#0072B2",
    "radial": "#009E73",
    "subgd": "#8C6BB1",
    "subgd_rescaled": "#B79BD3",
    "pgd": "#D55E00",
    "truth": INK,
    "plain": "#E69F00",
    "strings": "#0072B2",
    "moving": "#56B4E9",
    "smooth": "#009E73",
    "raw_plain": "#CC79A7",
    "raw_strings": "#8C6BB1",
    "nearest": "#D55E00",
    "naive": "#8a8d93",
    "paper": "#E69F00",
    "ray": "#0072B2",
    "started": "#009E73",
}
LINE: dict[str, Any] = {
    "igd": "-",
    "chord": (0, (6, 1.5)),
    "radial": "-.",
    "subgd": "--",
    "subgd_rescaled": (0, (3, 1, 1, 1, 1, 1)),
    "pgd": ":",
    "plain": "-",
    "strings": "-",
    "moving": (0, (6, 1.5)),
    "smooth": "-.",
    "raw_plain": (0, (1.5, 1.2)),
    "raw_strings": (0, (3, 1, 1, 1, 1, 1)),
    "nearest": ":",
}
NAME = {
    "igd": "IGD",
    "chord": "IGD, chord",
    "radial": "Radial",
    "subgd": "SubGD",
    "subgd_rescaled": "SubGD, rescaled h",
    "pgd": "PGD",
    "truth": "truth",
    "plain": "plain (no layer)",
    "strings": "strings (layer)",
    "moving": "moving anchor",
    "smooth": "smooth",
    "raw_plain": "plain, raw inputs",
    "raw_strings": "strings, raw inputs",
    "nearest": "nearest point",
    "naive": "no layer",
    "paper": "interpolation",
    "ray": "ray",
    "started": "started",
}

SHADES = 4
"""Of each colour of an animation, for smooth edges."""

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


class Segments:
    """Line segments that can be changed, all in one line with gaps: that is the smallest file."""

    def __init__(self, ax: Axes, color: str, width: float) -> None:
        self.line = ax.add_line(Line2D([], [], color=color, lw=width, solid_capstyle="round", zorder=2))

    def show(self, ends: np.ndarray) -> None:
        """From end to end, `(n, 2, 2)`."""
        gaps = np.full((len(ends), 1, 2), np.nan)
        self.line.set_data(np.concatenate([ends, gaps], axis=1).reshape(-1, 2).T)


class Discs:
    """Discs that can be moved, of a diameter in the units of the axes."""

    def __init__(self, ax: Axes, color: str, diameter: float) -> None:
        sizes = ([diameter], [diameter], [0.0])
        self.artist = EllipseCollection(*sizes, units="xy", offset_transform=ax.transData, facecolors=[color], zorder=3)
        ax.add_collection(self.artist, autolim=False)

    def show(self, centres: np.ndarray) -> None:
        """Around these points, `(n, 2)`."""
        self.artist.set_offsets(centres)


def svg(figure: Figure, transparent: bool = False) -> str:
    """The `<svg>` element of a figure, with coordinates to a tenth of a point."""
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=transparent)
    text = buffer.getvalue()
    text = re.sub(r"<!--.*?-->|^ +", "", text[text.index("<svg") :], flags=re.MULTILINE)
    return re.sub(r'(?<= )(d|x|y)="[^"]+"', lambda path: _shorter(path[0]), text)


def _shorter(numbers: str) -> str:
    """Coordinates to a tenth, without what a reader of SVG does not need."""
    return re.sub(r" ?\n(?=[A-Za-z])|(?<=L) |\.0(?!\d)", "", re.sub(r"(\.\d)\d+", r"\1", numbers))


def ticks(axis: Axis) -> None:
    """1, 2, 5, 10 on a logarithmic axis, with lines across."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=8))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
    axis.grid(True, color=MUTED, alpha=0.25, lw=0.5)


def save(figure: Figure, path: Path) -> None:
    """The figure as an SVG file with a white ground."""
    write_text(path, f'<?xml version="1.0" encoding="utf-8"?>\n{svg(figure)}')


def inline(figure: Figure, prefix: str) -> str:
    """The figure as an element of a page: its own names for parts, the page's colour for text, no ground."""
    text = svg(figure, transparent=True)
    text = re.sub(r'id="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'(href="|url\()#', rf"\1#{prefix}-", text)
    return text.replace(INK, "currentColor")


def gif(figure: Figure, show: Callable[[int], None], frames: int, rate: float, inks: Sequence[str]) -> bytes:
    """An animation on white: `show(k)` makes the figure frame k, and `rate` frames are shown per second.

    All frames share a palette of the inks in shades towards white: few colours, and the same ones, make a small file.
    """
    shades = np.linspace(1, 0, SHADES)[:, None, None]
    colors = 1 - shades * (1 - np.asarray([to_rgb(ink) for ink in inks]))
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.rint(255 * colors).astype(np.uint8).tobytes())
    painter, images = FigureCanvasAgg(figure), []
    for k in range(frames):
        show(k)
        painter.draw()
        picture = Image.fromarray(np.asarray(painter.buffer_rgba())[..., :3])
        images.append(picture.quantize(palette=palette, dither=Image.Dither.NONE))
    delays = np.diff(np.rint(100 * np.arange(frames + 1) / rate)) * 10  # the format counts hundredths of a second
    buffer = io.BytesIO()
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=delays.tolist(), loop=0)
    return buffer.getvalue()

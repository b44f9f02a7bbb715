"""The figure of `growth`: time and memory against each size, on logarithmic axes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from experiments.common.drawing import MUTED, STYLE, canvas, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .growth_lines import PASSES

COLOR = {"ball": "#0072B2", "box": "#E69F00", "polytope": "#D55E00", "cone": "#009E73", "lmi": "#8C6BB1"}
NAME = {"ball": "ball", "box": "box", "polytope": "polytope", "cone": "second-order cone", "lmi": "LMI"}
TITLE = {
    "batch": "batch, 8 dimensions",
    "dimension": "dimension, batch 256",
    "constraints": "constraints, 100 dimensions, batch 1024",
}
ROWS = {"seconds": ("milliseconds", 1e3), "bytes": ("peak megabytes", 1e-6)}
LEAST = 1e6  # bytes: less is not drawn


def draw(cells: dict[str, Any], path: Path) -> None:
    """One column for each size that grows, times above and memory below."""
    with mpl.rc_context(STYLE):
        figure = canvas(9.0, 5.0)
        axes = figure.subplots(2, 3, sharex="col", sharey="row")
        for row, quantity in zip(axes, ROWS, strict=True):
            for ax, axis in zip(row, TITLE, strict=True):
                _panel(ax, axis, quantity, cells)
            row[0].set_ylabel(ROWS[quantity][0])
        for ax in axes.flat:
            _guides(ax)
        for ax, axis in zip(axes[1], TITLE, strict=True):
            ax.set_xlabel(TITLE[axis])
        _legend(figure)
        save(figure, path)


def _panel(ax: Axes, axis: str, quantity: str, cells: dict[str, Any]) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.minorticks_off()
    ax.grid(color=MUTED, alpha=0.2, lw=0.5)
    scale = ROWS[quantity][1]
    for name, color in COLOR.items():
        cell = cells.get(f"{axis} {name}")
        if cell is None:
            continue
        for style, run in zip(("--", "-"), PASSES, strict=True):
            pairs = zip(cell["sizes"], cell[run][quantity], strict=True)
            shown = [(size, scale * v) for size, v in pairs if v is not None and (quantity == "seconds" or v > LEAST)]
            if shown:
                ax.plot(*zip(*shown, strict=True), style, color=color, lw=1.2)


def _guides(ax: Axes) -> None:
    """Lines of slope 1 behind the others, a factor of 100 apart."""
    limits = ax.get_xlim(), ax.get_ylim()
    for k in range(-7, 5, 2):
        ax.plot([1, 1e7], [10.0**k, 10.0 ** (k + 7)], color=MUTED, alpha=0.6, lw=0.6, ls=":", zorder=0)
    ax.set(xlim=limits[0], ylim=limits[1])


def _legend(figure: Figure) -> None:
    handles = [Line2D([], [], color=color, label=NAME[name]) for name, color in COLOR.items()]
    styles = [Line2D([], [], color=MUTED, ls=style, label=run) for style, run in zip(("--", "-"), PASSES, strict=True)]
    guide = Line2D([], [], color=MUTED, ls=":", label="slope 1")
    figure.legend(handles=[*handles, *styles, guide], loc="outside upper center", ncols=4)

"""Fig. 1, drawn from the stored paths."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle

from ..common.drawing import COLOR, INK, MUTED, STYLE, canvas
from ..common.store import Store
from .config import CELL, Config

CAPTIONS = {
    "stall": (
        "f = |x|^2 is to be minimised in the shaded half-plane, from the anchor. Dots are g(x), numbered by step; "
        "crosses are points x outside, which g pulls back towards the anchor (thin lines). Left: g in the place of an "
        "orthogonal projection. Every gradient points along the line from the anchor to 0, and so does every pull "
        "back: the method stops where it first left the set. Right: the gradient of f(g(x)) knows how g(x) moves "
        "along the boundary when x moves, and g(x) arrives at the optimum."
    )
}
SHOWN = 24
"""Steps drawn on the right, which is when the dots have arrived; those on the left stand still from the stall on."""
EDGE, STAR = "#5b8db8", "#C4272E"
WINDOW = (-1.75, 1.65, -0.3, 3.2)


def figures(store: Store) -> dict[str, Figure]:
    """One figure, two panels."""
    paths, config = store.load(CELL), store.config(Config)
    with mpl.rc_context(STYLE):
        figure = canvas(9.6, 5.7)
        figure.set_layout_engine("constrained", rect=(0, 0, 1, 0.95))  # titles of two lines need it
        left, right = figure.subplots(1, 2, sharex=True, sharey=True)
        for ax in (left, right):
            draw_problem(ax, config, paths["optimum"])
        draw_pgd(left, paths)
        draw_composition(right, paths)
        left.set_title("$g$ in place of a projection stalls\n$x \\leftarrow g(x - \\alpha\\nabla f(x))$")
        right.set_title("descent on $f \\circ g$ converges\n$x \\leftarrow x - \\alpha\\nabla (f \\circ g)(x)$")
        figure.legend(handles=legend(), loc="outside lower center", ncols=4)
    return {"stall": figure}


def draw_problem(ax: Axes, config: Config, optimum: np.ndarray) -> None:
    """The half-plane, level lines of f, the anchor and the optimum."""
    x, y = np.meshgrid(np.linspace(*WINDOW[:2], 60), np.linspace(*WINDOW[2:], 60))
    normal, anchor = np.asarray(config.normal), np.asarray(config.anchor)
    h = normal[0] * x + normal[1] * y - config.offset
    ax.contourf(x, y, h, levels=[-1e9, 0], colors=[EDGE], alpha=0.16, zorder=0)
    ax.contour(x, y, h, levels=[0], colors=[EDGE], linewidths=1.6, zorder=1)
    size = float(np.linalg.norm(optimum))
    for k in (0.4, 1.0, 1.7, 2.4, 3.1):
        ax.add_patch(Circle((0, 0), k * size, fill=False, ec=MUTED, lw=0.7, alpha=0.7, zorder=1))
    ax.plot(0, 0, "+", color=MUTED, ms=8, zorder=2)
    note(ax, (0, 0), "minimum of f alone", (7, -4), MUTED)
    ax.plot(*anchor, "s", color=INK, ms=7, zorder=6)
    note(ax, anchor, "anchor", (8, -2), INK)
    ax.plot(*optimum, "*", color=STAR, ms=15, zorder=3)
    ax.set(xlim=WINDOW[:2], ylim=WINDOW[2:], aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    ax.annotate("feasible set, h ≤ 0", (0.97, 0.94), xycoords="axes fraction", ha="right", color=EDGE)


def draw_pgd(ax: Axes, paths: dict[str, np.ndarray]) -> None:
    """Iterates, and the points before g, which from the stall on are always the same two."""
    stalled = stall(paths["pgd"])
    last = len(paths["pgd"]) - 1
    before, after = paths["pgd_steps"][: stalled + 4], paths["pgd"][: stalled + 4]  # the rest would lie upon them
    outside = np.linalg.norm(before - after, axis=-1) > 1e-12
    ax.plot(*before[outside].T, "x", color=COLOR["pgd"], ms=7, mew=1.5, zorder=4, label="outside")
    for p, q in zip(before[outside], after[outside], strict=True):
        ax.plot(*np.stack([p, q]).T, "-", color=MUTED, lw=0.7, zorder=2)
    ax.plot(*after.T, "o-", color=COLOR["pgd"], ms=5, lw=0.9, zorder=5, label="inside")
    for k in range(1, stalled):
        note(ax, after[k], str(k), (-13, -5), INK)
    note(ax, after[stalled], f"{stalled}, {stalled + 1}, {stalled + 2}, ... {last}", (-76, -5), INK)
    note(ax, before[stalled + 1], "a step leads here,\ng leads back", (-84, -20), COLOR["pgd"])


def stall(after: np.ndarray) -> int:
    """The first step after which nothing moves."""
    moved = np.linalg.norm(np.diff(after, axis=0), axis=-1) > 1e-9
    return int(np.flatnonzero(moved)[-1]) + 1


def draw_composition(ax: Axes, paths: dict[str, np.ndarray]) -> None:
    """Iterates x_k, some outside, and g(x_k), which slide along the boundary."""
    x, y = paths["composition"][: SHOWN + 1], paths["composition_projected"][: SHOWN + 1]
    outside = np.linalg.norm(x - y, axis=-1) > 1e-12
    for p, q in zip(x[outside], y[outside], strict=True):
        ax.plot(*np.stack([p, q]).T, "-", color=MUTED, lw=0.7, zorder=2)
    ax.plot(*x.T, "-", color=COLOR["igd"], lw=0.9, alpha=0.7, zorder=3)
    ax.plot(*x[outside].T, "x", color=COLOR["igd"], ms=7, mew=1.5, zorder=4, label="outside")
    ax.plot(*y.T, "o", color=COLOR["igd"], ms=5, zorder=5, label="inside")
    numbered = [paths["optimum"]]
    for k in range(1, len(y)):
        if min(np.linalg.norm(y[k] - z) for z in numbered) > 0.12:  # else the numbers would cover one another
            note(ax, y[k], str(k), (-13, -5) if k <= np.argmax(outside) else (4, 5), INK)
            numbered.append(y[k])
    note(ax, paths["optimum"], f"{SHOWN}", (9, 3), INK)


def note(ax: Axes, at: Any, text: str, shift: tuple[int, int], color: str) -> None:
    ax.annotate(text, tuple(at), shift, textcoords="offset points", fontsize=8, color=color, zorder=7)


def legend() -> list[Line2D]:
    return [
        Line2D([], [], ls="", marker="o", color=INK, label="$g(x_k)$, in the set"),
        Line2D([], [], ls="", marker="x", color=INK, label="$x_k$ outside, before $g$"),
        Line2D([], [], ls="", marker="*", ms=11, color=STAR, label="optimum in the set"),
        Line2D([], [], ls="", marker="s", color=INK, label="anchor $x_0$"),
    ]

"""The figures: suboptimality against cost, and learning curves."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..common.drawing import COLOR, INK, MUTED, STYLE, canvas, ticks
from ..common.store import Store
from .config import Config
from .summary import LABEL, Row, general, rows, seconds

CAPTIONS = {
    "cost": "Suboptimality on the test programs (mean; bars from the best to the worst seed) against the time of an "
    "epoch of training. Filled: no inequality is violated; hollow: some are. cvxpylayers would be far to the "
    "right. Down and to the left is better.",
    "learning": "Mean suboptimality on the validation programs after each epoch; lines are medians over seeds, bands "
    "go from the best to the worst seed.",
}
INKS = {
    "penalty": MUTED,
    "paper": COLOR["paper"],
    "chord": COLOR["chord"],
    "ray": "#56B4E9",
    "near": COLOR["radial"],
    "near_float32": "#7FCDBB",
    "near_tuned": "#005A42",
    "pinet": COLOR["pgd"],
    "pinet_tuned": "#8C3A00",
}
STROKES: dict[str, Any] = {
    "near_float32": ":",
    "near_tuned": "-.",
    "pinet": "--",
    "pinet_tuned": (0, (1, 1)),
    "ray": ":",
}
LEFT = ("paper", "near_float32", "near_tuned")
"""Methods whose names stand to the left of their marks; the others' to the right, those of chord and ray apart."""
LIFT = {"chord": 2, "ray": -8}


def figures(store: Store) -> dict[str, Figure]:
    return {"cost": against_cost(store), "learning": learning(store)}


def against_cost(store: Store) -> Figure:
    """One panel per objective; both axes logarithmic."""
    variants = store.config(Config).variants
    with mpl.rc_context(STYLE):
        figure = canvas(4.6 * len(variants) + 0.4, 3.8)
        axes = figure.subplots(1, len(variants), squeeze=False, sharey=True)[0]
        for ax, variant in zip(axes, variants, strict=True):
            for method, row in rows(store, variant).items():
                mark(ax, method, row, 1e3 * float(np.median(seconds(store, "epoch")[method])))
            if (epoch := general(store, "epoch")) is not None:
                text = f"cvxpylayers: {epoch:.0f} s \N{RIGHTWARDS ARROW}"
                ax.text(0.98, 0.5, text, transform=ax.transAxes, ha="right", fontsize=7.5, color=INK)
            ax.set(title=variant, xlabel="time of an epoch, ms")
            dress(ax)
            ax.margins(x=0.35)
        axes[0].set_ylabel("mean suboptimality, %")
    return figure


def mark(ax: Axes, method: str, row: Row, time: float) -> None:
    """A method as a point with a bar over seeds and its name; a suboptimality of 0 or less has no place here."""
    if row.center <= 0:
        return
    low, high = np.maximum(row.mean.min(), 1e-9), row.mean.max()
    filled = INKS[method] if row.inequality.max() == 0 else "none"
    ax.plot([time, time], [low, high], color=INKS[method], lw=1.2)
    ax.plot(time, row.center, "o", ms=6, mec=INKS[method], mfc=filled, mew=1.4, label=method)
    left = method in LEFT
    where: Any = {"xytext": (-7 if left else 7, LIFT.get(method, -3)), "textcoords": "offset points"}
    ax.annotate(LABEL[method], (time, row.center), ha="right" if left else "left", fontsize=7.5, color=INK, **where)


def learning(store: Store) -> Figure:
    """One panel per objective."""
    variants = store.config(Config).variants
    with mpl.rc_context(STYLE):
        figure = canvas(4.6 * len(variants) + 0.4, 3.6)
        axes = figure.subplots(1, len(variants), squeeze=False, sharey=True)[0]
        shown = [method for method in store.config(Config).methods if method in rows(store, variants[0])]
        for ax, variant in zip(axes, variants, strict=True):
            for method, row in rows(store, variant).items():
                draw(ax, method, row.curve)
            ax.set(title=variant, xlabel="epoch")
            dress(ax, across=False)
        axes[0].set_ylabel("mean suboptimality, %")
        handles = [Line2D([], [], color=INKS[m], ls=STROKES.get(m, "-"), lw=2, label=LABEL[m]) for m in shown]
        figure.legend(handles=handles, loc="outside upper center", ncols=min(5, len(handles)), handlelength=3)
    return figure


def draw(ax: Axes, method: str, curve: np.ndarray) -> None:
    """Median and range over seeds; what is not positive is left out."""
    at = 1 + np.arange(curve.shape[1])
    low, middle, high = (np.where(line > 0, line, np.nan) for line in np.quantile(curve, (0, 0.5, 1), axis=0))
    ax.fill_between(at, low, high, color=INKS[method], alpha=0.18, lw=0)
    ax.plot(at, middle, color=INKS[method], ls=STROKES.get(method, "-"), lw=1.5, label=method)


def dress(ax: Axes, across: bool = True) -> None:
    ax.set_yscale("log")
    if across:
        ax.set_xscale("log")
    ax.grid(True, color=MUTED, alpha=0.25, lw=0.5)
    for axis in (ax.xaxis, ax.yaxis) if across else (ax.yaxis,):
        ticks(axis)
    ax.tick_params(labelsize=7.5)

"""The panels: one column per class, one row per step size; median and quartiles of the best error so far."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator

from ..common.drawing import COLOR, LINE, MUTED, NAME, STYLE, canvas
from ..common.store import Store
from .config import Config
from .curves import Curves, classes, curves
from .run import CHORD, cell

CAPTIONS = {
    "panels": (
        "Appendix A. Best error so far, (f - f*) / (f(x0) - f*), over iterations: median (lines) and quartiles (bands) "
        "over the instances. Columns are the paper's classes, rows its step sizes. Curves coincide until an iterate "
        "first leaves the set. PGD reaches the optimum to rounding; its curve ends at 1e-9."
    ),
    "more": (
        "The same with IGD on chords, where each constraint is scaled by itself (it differs from IGD where there are "
        "several: Lin, SOC, LinB), and with the radial method, which has no step size: its curve is the same in every "
        "row. The last column is not in the paper. Errors below 1e-16 are drawn there."
    ),
}
FLOOR = 1e-16
POINTS = 36
"""Points per curve: records closer than a pixel would only make the file large."""
PANELS = ("subgd", "pgd", "igd")
MORE = (*PANELS, "chord", "radial")


def figures(store: Store) -> dict[str, Figure]:
    """The paper's 20 panels, and 24 with more methods and one more class."""
    return {
        "panels": grid(store, classes(store, ours=False), PANELS, floor=None),
        "more": grid(store, classes(store), MORE, floor=FLOOR),
    }


def grid(store: Store, classes: tuple[str, ...], methods: tuple[str, ...], floor: float | None) -> Figure:
    """One panel per step size and class; the columns share an axis of errors."""
    steps = store.config(Config).steps
    with mpl.rc_context(STYLE):
        figure = canvas(2.25 * len(classes) + 0.6, 1.75 * len(steps) + 0.8)
        axes = figure.subplots(len(steps), len(classes), sharex=True, sharey="col", squeeze=False)
        for (row, column), ax in np.ndenumerate(axes):
            name = classes[column]
            for method in methods:
                if store.has(cell(name, method)) and (method != "chord" or name in CHORD):
                    draw(ax, curves(store, name, method), row, method, floor)
            dress(ax)
            if row == 0:
                dimension = getattr(store.config(Config), f"{name.removesuffix('B').lower()}_dimension")
                ax.set_title(f"{name}, d = {dimension}")
            if column == 0:
                ax.set_ylabel(f"$\\beta = 10^{{{np.log10(steps[row]):g}}}$")
            if row == len(steps) - 1:
                ax.set_xlabel("iteration")
        handles = [Line2D([], [], color=COLOR[m], ls=LINE[m], lw=2, label=NAME[m]) for m in sorted(methods, key=ORDER)]
        figure.legend(handles=handles, loc="outside upper center", ncols=len(handles), handlelength=3)
        figure.supylabel("best error so far", fontsize=9)
    return figure


def draw(ax: Axes, curve: Curves, row: int, method: str, floor: float | None) -> None:
    """Median and quartiles; a method without step size shows its one curve in every row."""
    k = thin(curve.recorded)
    low, middle, high = np.maximum(curve.quartiles[min(row, len(curve.quartiles) - 1)][:, k], floor or 1e-300)
    at = curve.recorded[k]
    if floor is None:
        # PGD reaches the optimum to rounding; an axis down to there would hide everything else
        shown = middle > 1e-9
        at, low, middle, high = at[shown], np.maximum(low[shown], 1e-9), middle[shown], high[shown]
    ax.fill_between(at, low, high, color=COLOR[method], alpha=0.22, lw=0)
    ax.plot(at, middle, color=COLOR[method], ls=LINE[method], lw=1.6, label=method)


def thin(recorded: np.ndarray) -> np.ndarray:
    """About evenly spaced records on the logarithmic axis, the first and the last among them."""
    wanted = np.geomspace(recorded[0], recorded[-1], POINTS)
    return np.unique(np.searchsorted(recorded, wanted - 1e-9).clip(0, len(recorded) - 1))


def dress(ax: Axes) -> None:
    ax.set(xscale="log", yscale="log")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(numticks=5))
        axis.set_major_formatter(power)
    ax.grid(True, color=MUTED, alpha=0.25, lw=0.5)
    ax.tick_params(labelsize=7.5)
    ax.minorticks_off()


def power(value: float, _: float) -> str:
    """1, 10, 100, and 1e3 or 1e-3 further out."""
    return f"{value:g}" if 0.1 <= value <= 100 else f"1e{round(np.log10(value))}"


ORDER = list(NAME).index

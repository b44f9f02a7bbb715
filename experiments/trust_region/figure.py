"""Violins of what the methods gain, and how the runs went that made the problems."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..common.drawing import COLOR, INK, MUTED, NAME, STYLE, canvas
from ..common.store import Store
from .claims import PAPER
from .config import Config
from .ratios import cells, quartiles, ratios
from .solve import METHODS

CAPTIONS = {
    "ratios": (
        "Gain of each method over that of natural gradient on the same policy updates: distribution, quartiles (bar) "
        "and median (dot). Rows are line searches: by 0.9, which leaves natural gradient most of epsilon, and by "
        "halves. The grey line is natural gradient, the diamond the paper's median. What lies outside of the axis is "
        "drawn at its end."
    ),
    "orthogonal": (
        "Gain of Adam without a layer and through the paper's interpolation, over that through the orthogonal "
        "projection."
    ),
    "returns": "Mean return of the episodes before each update of the runs of natural gradient that made the problems.",
}
SHOWN = (-0.5, 2.5)
"""Ratios on the axis."""


def figures(store: Store) -> dict[str, Figure]:
    """The paper's two figures with more methods, and the runs."""
    config = store.config(Config)
    policies = [policy for policy in config.policies if cells(store, policy)]
    if not policies:
        return {}
    with mpl.rc_context(STYLE):
        return {
            "ratios": against_natural(store, policies, config),
            "orthogonal": against_orthogonal(store, policies),
            "returns": returns(store, policies),
        }


def against_natural(store: Store, policies: list[str], config: Config) -> Figure:
    """A panel per policy and line search."""
    figure = canvas(4.8 * len(policies), 2.5 * len(config.factors))
    axes = figure.subplots(len(config.factors), len(policies), sharex=True, sharey=True, squeeze=False)
    for (row, column), ax in np.ndenumerate(axes):
        policy = policies[column]
        violins(ax, {name: ratios(store, policy, name, row) for name in METHODS})
        ax.plot(list(METHODS).index("paper") + 0.38, PAPER[policy], "D", color=MUTED, ms=5)
        if row == 0:
            ax.set_title(f"{policy}, {len(ratios(store, policy, 'paper'))} updates")
        if column == 0:
            ax.set_ylabel(f"gain / natural gradient\nline search {config.factors[row]:g}")
    return figure


def against_orthogonal(store: Store, policies: list[str]) -> Figure:
    """A panel per policy."""
    figure = canvas(3.2 * len(policies), 2.7)
    axes = figure.subplots(1, len(policies), sharey=True, squeeze=False)[0]
    for ax, policy in zip(axes, policies, strict=True):
        violins(ax, {name: ratios(store, policy, name, over="nearest") for name in ("naive", "paper")})
        ax.set_title(policy)
    axes[0].set_ylabel("gain / orthogonal projection")
    return figure


def violins(ax: Axes, values: dict[str, np.ndarray]) -> None:
    """A violin per method, with quartiles and median."""
    for k, (name, ratio) in enumerate(values.items()):
        inside = np.clip(ratio, *SHOWN)
        if np.ptp(inside) > 0:
            (body,) = ax.violinplot(inside, [k], widths=0.8, showextrema=False, points=50)["bodies"]  # type: ignore[misc]
            body.set(facecolor=COLOR[name], alpha=0.55, edgecolor=COLOR[name])
        low, middle, high = np.clip(quartiles(ratio), *SHOWN)
        ax.plot([k, k], [low, high], color=INK, lw=4, solid_capstyle="butt")
        ax.plot(k, middle, "o", color="white", mec=INK, ms=5)
        ax.annotate(f"{quartiles(ratio)[1]:.2f}", (k, middle), (9, -3), textcoords="offset points", fontsize=8)
    ax.axhline(1, color=MUTED, lw=1, zorder=0)
    ax.set_ylim(*SHOWN)
    ax.set_xticks(range(len(values)), [NAME[name] for name in values], fontsize=8)


def returns(store: Store, policies: list[str]) -> Figure:
    """A panel per policy, a thin line per run and their mean."""
    figure = canvas(3.6 * len(policies), 2.7)
    axes = figure.subplots(1, len(policies), sharey=True, squeeze=False)[0]
    for ax, policy in zip(axes, policies, strict=True):
        runs = [(np.cumsum(cell["states"]) / 1e3, cell["return"]) for cell in cells(store, policy)]
        at = np.linspace(max(s[0] for s, _ in runs), min(s[-1] for s, _ in runs), 90)
        values = [np.interp(at, *run) for run in runs]
        for value in values:
            ax.plot(at, value, color=COLOR["paper"], lw=0.5, alpha=0.5)
        if len(runs) > 1:
            ax.plot(at, np.mean(values, axis=0), color=INK, lw=1.6)
        ax.set(title=policy, xlabel="thousand steps")
    axes[0].set_ylabel("return")
    return figure

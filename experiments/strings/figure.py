"""The figures: the objects, falls as they are and as the models see them, how training went, errors in the test."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..common.drawing import COLOR, INK, LINE, MUTED, NAME, RED, STYLE, Discs, Segments, canvas, ticks
from ..common.store import Arrays, Store
from .animation import SHOWN, Scene, animate
from .claims import PAPER, results
from .config import RATE, Config
from .objects import NAMES, shape

ANIMATION = (
    "The fall of which the snapshots of the {} are, in its own time: the truth, the model with the layer, the model "
    "without. The pictures go with the mean of the truth, or with a model that is too far away for that. Strings that "
    "are longer than they can be are red."
)
CAPTIONS = {
    "objects": "The three objects: seven bodies of diameter 1, and strings that are taut at the start.",
    "rollouts": (
        "One test trajectory per object, that along which plain stretches a string the most: the truth, the model with "
        "the layer (strings) and the one without (plain), which see the first three steps and go on alone. Time "
        "runs from left to right; the pictures go with the mean of the truth, and where a model is too far away for "
        "that, with the model: a number says how far. Strings that are longer than they can be are red and thick. "
        "Without the layer nothing keeps them short; with it no string is ever red."
    ),
    "training": (
        "Error along whole validation trajectories, over updates, one line per seed. Dotted: the errors that the paper "
        "reports for the test, in the colours of its two models. Upright lines part the stages of training; the "
        "numbers are the steps that are unrolled there. Models with a layer train without it up to the bold line."
    ),
    "errors": (
        "Errors on the test trajectories, all seeds together: boxes from quartile to quartile with the median, "
        "whiskers over nine tenths of the trajectories, a dot for the mean. Diamond and line in grey: mean and "
        "standard deviation in the paper."
    ),
    **{name: ANIMATION.format(name) for name in NAMES},
}
WIDTH = 9.6
"""Of every figure: a page shows all equally wide."""
SNAPSHOTS = 7
"""Pictures of a fall."""


def figures(store: Store) -> dict[str, Figure]:
    """Four figures; falls only where they were kept."""
    config, found = store.config(Config), results(store)
    falls = {name: store.load(f"{name}-paths") for name in config.objects if store.has(f"{name}-paths")}
    with mpl.rc_context(STYLE):
        drawn = {"objects": draw_objects(config)}
        if falls:
            drawn["rollouts"] = draw_rollouts(falls, config)
        return {**drawn, "training": draw_training(found, config), "errors": draw_errors(found, config)}


def animations(store: Store) -> Iterator[tuple[str, bytes]]:
    """The fall of each object as a GIF, one after another: each takes seconds to draw."""
    config = store.config(Config)
    for name in config.objects:
        if store.has(f"{name}-paths"):
            with mpl.rc_context(STYLE):
                drawn = animate(name, store.load(f"{name}-paths"), config)
            yield name, drawn


# -- what falls ------------------------------------------------------------------------------------------------------


def draw_objects(config: Config) -> Figure:
    """The objects before the fall, all in one scale."""
    figure = canvas(WIDTH, 2.0)
    widths = [config.length * np.ptp(shape(name).positions[:, 0]) + 2 for name in NAMES]
    for ax, name in zip(figure.subplots(1, 3, width_ratios=widths, sharey=True), NAMES, strict=True):
        start = shape(name)
        strings, bodies = Segments(ax, MUTED, 2), Discs(ax, INK, 1.0)
        strings.show(config.length * start.positions[start.links])
        bodies.show(config.length * start.positions)
        half = config.length * np.ptp(start.positions[:, 0]) / 2 + 1
        ax.set(xlim=(-half, half), ylim=(-config.length - 1, config.length + 1), aspect="equal", xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
        ax.set_title(f"{name}, {len(start.links)} strings")
    return figure


def draw_rollouts(falls: dict[str, Arrays], config: Config) -> Figure:
    """Three rows per object, one column per time."""
    rows = [(name, model) for name in falls for model in SHOWN if model in falls[name]]
    height = (WIDTH - 0.9) / SNAPSHOTS * len(rows) + 0.7
    figure = Figure(figsize=(WIDTH, height))
    edges = {"left": 0.85 / WIDTH, "right": 1 - 0.05 / WIDTH, "bottom": 0.4 / height, "top": 1 - 0.3 / height}
    axes = figure.subplots(len(rows), SNAPSHOTS, squeeze=False, gridspec_kw={**edges, "wspace": 0.04, "hspace": 0.06})
    for (name, model), row in zip(rows, axes, strict=True):
        draw_fall(row, name, model, falls[name], config)
        label = f"{name}\n{NAME[model]}"
        row[0].text(-0.06, 0.5, label, transform=row[0].transAxes, rotation=90, ha="right", va="center")
    for ax, k in zip(axes[0], snapshots(falls[rows[0][0]]), strict=True):
        ax.set_title(f"{k / RATE:.1f} s")
    handles = [
        Line2D([], [], color=MUTED, lw=1.2, label="a string"),
        Line2D([], [], color=RED, lw=2.6, label="a string longer than it can be"),
    ]
    figure.legend(handles=handles, loc="lower center", ncols=2)
    return figure


def snapshots(paths: Arrays) -> np.ndarray:
    """The steps that are drawn: from the start to the end."""
    return np.linspace(0, len(paths["truth"]) - 1, SNAPSHOTS).astype(int)


def draw_fall(row: np.ndarray, name: str, model: str, paths: Arrays, config: Config) -> None:
    for ax, k in zip(row, snapshots(paths), strict=True):
        Scene(ax, name, model, config).show(paths[model][k], paths["truth"][k])


# -- how well it is predicted ----------------------------------------------------------------------------------------


def draw_training(found: dict[tuple[str, str], Arrays], config: Config) -> Figure:
    """One panel per object."""
    figure = canvas(WIDTH, 3.4)
    models = [m for m in config.models if any(model == m for _, model in found)]
    for ax, name in zip(panels(figure, config), config.objects, strict=True):
        for model in models:
            if (name, model) in found:
                draw_validation(ax, found[name, model], model)
            if (name, model) in PAPER:
                ax.axhline(PAPER[name, model][0], color=COLOR[model], ls=":", lw=1.3)
        draw_stages(ax, config)
        ax.set(yscale="log", xlabel="updates", xlim=(0, sum(config.updates)))
        ax.set_title(name, pad=24)
        ticks(ax.yaxis)
    first = figure.axes[0]
    first.set_ylabel("validation error")
    first.set_ylim(top=min(first.get_ylim()[1], config.height))  # who is further off than the fall is long is lost
    handles = [Line2D([], [], color=COLOR[m], ls=LINE[m], lw=2, label=NAME[m]) for m in models]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), handlelength=2.4, columnspacing=1.2)
    return figure


def panels(figure: Figure, config: Config) -> list[Axes]:
    """One for each object of the run, with common axes."""
    return list(figure.subplots(1, len(config.objects), sharex=True, sharey=True, squeeze=False)[0])


def draw_validation(ax: Axes, cell: Arrays, model: str) -> None:
    for seed in cell["validation"].T:
        error = np.where(np.isfinite(seed), seed, np.nan)
        ax.plot(cell["recorded"], error, color=COLOR[model], ls=LINE[model], lw=1, label=model)


def draw_stages(ax: Axes, config: Config) -> None:
    """Where the stages of training begin, and the steps that each unrolls."""
    ends = np.cumsum(config.updates)
    for stage, (end, updates) in enumerate(zip(ends, config.updates, strict=True)):
        if stage:
            ax.axvline(end - updates, color=MUTED, lw=1.6 if stage == config.layer_from else 0.5, zorder=0)
        at = (end - updates / 2, 1.02 + 0.05 * (stage % 2))  # else those of short stages would meet
        ax.text(*at, str(config.horizons[stage]), transform=ax.get_xaxis_transform(), ha="center", fontsize=7)


def draw_errors(found: dict[tuple[str, str], Arrays], config: Config) -> Figure:
    """One panel per object, one box per model."""
    figure = canvas(WIDTH, 0.42 * len(config.models) + 1.1)
    for ax, name in zip(panels(figure, config), config.objects, strict=True):
        for row, model in enumerate(config.models):
            if (name, model) in found:
                draw_box(ax, row, found[name, model]["test"].ravel(), model)
            if (name, model) in PAPER:
                mean, std = PAPER[name, model]
                ax.plot([mean - std, mean + std], [row + 0.36] * 2, "-", color=MUTED, lw=1.2)
                ax.plot(mean, row + 0.36, "D", color=MUTED, ms=4, label="paper")
        ax.set(xscale="log", xlabel="error", title=name)
        ax.set_yticks(range(len(config.models)), [NAME[m] for m in config.models])
        ax.set_ylim(len(config.models) - 0.5, -0.5)
        ticks(ax.xaxis)
    return figure


def draw_box(ax: Axes, row: int, errors: np.ndarray, model: str) -> None:
    """The distribution of the errors that are finite."""
    errors, color = errors[np.isfinite(errors)], COLOR[model]
    if not errors.size:
        return
    line = {"color": color, "linewidth": 1.2}
    ax.boxplot(
        errors,
        orientation="horizontal",
        positions=[row],
        widths=0.42,
        whis=(5, 95),
        showfliers=False,
        boxprops=line,
        whiskerprops=line,
        capprops=line,
        medianprops={**line, "linewidth": 2.4},
        manage_ticks=False,
    )
    ax.plot(errors.mean(), row, "o", color=color, ms=4.5, label=model)

"""The learning curves: mean return over the seeds against steps, with its standard error, and a table of the ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .train import SETTINGS

WINDOW = 20_480
"""Steps over which the returns of a run are averaged."""
LABEL = {"trust_region": "TrustRegion (inset)", "natural": "natural gradient", "trpo": "TRPO (sb3-contrib)"}
# Okabe and Ito's colours, and a line style of its own for each: neither is needed to read the other
COLOR = {"trust_region": "#0072B2", "natural": "#E69F00", "trpo": "#D55E00"}
LINE: dict[str, Any] = {"trust_region": "-", "natural": (0, (6, 1.5)), "trpo": (0, (1.5, 1.2))}
INK = "#1b1b1f"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "inset",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK),
}
Curves = dict[str, dict[str, tuple[np.ndarray, np.ndarray]]]
"""Environment -> method -> (steps, returns `(seeds, steps)`)."""


def load(folder: Path) -> Curves:
    """All runs that are complete. Those of a method may differ in length: their common part counts."""
    runs: dict[str, dict[str, list[tuple[int, np.ndarray]]]] = {}
    for manifest in sorted(folder.glob("*.json")):
        run = json.loads(manifest.read_text())
        with np.load(manifest.with_suffix(".npz"), allow_pickle=False) as arrays:
            curve = smooth(arrays["returns"], arrays["episodes"], WINDOW // run["batch"])
        runs.setdefault(run["environment"], {}).setdefault(run["method"], []).append((run["batch"], curve))
    if not runs:
        raise SystemExit(f"{folder} has no runs: python -m examples.learning_curve run --out {folder}")
    return {name: {m: common(runs[name][m]) for m in LABEL if m in runs[name]} for name in SETTINGS if name in runs}


def smooth(returns: np.ndarray, episodes: np.ndarray, width: int) -> np.ndarray:
    """The mean return of the episodes that ended in the last `width` updates; NaN where there is none."""
    before = np.maximum(np.arange(len(returns)) + 1 - width, 0)
    total, count = (np.append(0.0, np.cumsum(v)) for v in (returns, episodes))
    count = count[1:] - count[before]
    return np.where(count > 0, (total[1:] - total[before]) / np.maximum(count, 1), np.nan)


def common(curves: list[tuple[int, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    every, length = curves[0][0], min(len(curve) for _, curve in curves)
    return every * np.arange(1, length + 1), np.stack([curve[:length] for _, curve in curves])


def spread(returns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over the seeds."""
    count = len(returns)
    return returns.mean(0), returns.std(0, ddof=1) / count**0.5 if count > 1 else 0 * returns[0]


def panel(axes: Axes, name: str, curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    seeds = sorted({len(returns) for _, returns in curves.values()})
    for method, (steps, returns) in curves.items():
        mean, error = spread(returns)
        axes.plot(steps / 1000, mean, color=COLOR[method], ls=LINE[method], lw=1.8, label=LABEL[method])
        axes.fill_between(steps / 1000, mean - error, mean + error, color=COLOR[method], alpha=0.18, lw=0)
    axes.set(title=f"{name}, {' to '.join(map(str, seeds))} seeds", xlabel="thousand steps of the environment")
    axes.margins(x=0.01)
    axes.grid(axis="y", lw=0.4, alpha=0.4)


def draw(folder: Path, file: Path) -> None:
    """Draw all runs of a folder, and print what each method ends with."""
    curves = load(folder)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(4.2 * len(curves), 3.2), layout="constrained")
        panels = figure.subplots(1, len(curves), squeeze=False)[0]
        for axes, (name, methods) in zip(panels, curves.items(), strict=True):
            panel(axes, name, methods)
        panels[0].set_ylabel(f"return, mean of {WINDOW // 1000} thousand steps")
        panels[-1].legend(loc="lower right")
        figure.savefig(file, format="svg", metadata={"Date": None})
    for line in table(curves):
        print(line)
    print(file)


def table(curves: Curves) -> list[str]:
    """Per method: return at the end and over the whole run, mean and standard error over the seeds."""
    lines = [
        f"{'environment':18s} {'method':14s} {'seeds':>5s} {'steps':>8s} {'at the end':>15s} {'over the run':>15s}"
    ]
    for name, methods in curves.items():
        for method, (steps, returns) in methods.items():
            numbers = [spread(v) for v in (returns[:, -1], np.nanmean(returns, 1))]
            text = [f"{mean:.0f} +- {error:.0f}" for mean, error in numbers]
            lines.append(f"{name:18s} {method:14s} {len(returns):5d} {steps[-1]:8d} {text[0]:>15s} {text[1]:>15s}")
    return lines

"""The figure of `peers`: time per sample and worst violation of every layer on every set, at one batch size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from experiments.common.drawing import COLOR, INK, MUTED, STYLE, canvas, save
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .peers_layers import PEERS
from .peers_sets import SETS
from .peers_tables import BATCH, Cells, rows

CAVEAT = (
    "Circles end on the line from an anchor, diamonds at (near: close to) the nearest point: different problems."
    " Of trust-region-layers it is nearest by KL."
    "\nFilled: no sample outside the set; hollow: some. A cross: no result, for lack of time or memory or by an error."
)
#: Name and colour; within the row of a set they follow each other from above.
LAYERS: dict[str, tuple[str, str]] = {
    "chord, strict": ("inset, chord, strict", COLOR["chord"]),
    "chord": ("inset, chord", "#56B4E9"),
    "ray, strict": ("inset, ray, strict", "#003F63"),
    "near": ("inset, near, strict", COLOR["radial"]),
    "rayen": ("RAYEN", COLOR["pgd"]),
    "pinet": ("Pi-net", "#CC79A7"),
    "pinet-tuned": ("Pi-net, tuned", "#8C3A6B"),
    "cvxpylayers-diffcp": ("cvxpylayers, diffcp", "#E69F00"),
    "cvxpylayers-moreau": ("cvxpylayers, Moreau", "#8C6B00"),
    "qpth": ("qpth", "#8C6BB1"),
    "proxsuite": ("ProxQP layer", INK),
    "trust-region-layers": ("trust-region-layers, formulas", "#B79BD3"),
}
NONE = 1e-18  # where a violation of 0 is drawn


def draw(cells: Cells, path: Path) -> None:
    save(figure(cells), path)


def figure(cells: Cells) -> Figure:
    names = [name for name in SETS if any(True for _ in rows(name, BATCH, cells))]
    with mpl.rc_context(STYLE):
        sheet = canvas(9.6, 1.6 + 0.62 * len(names))
        left, right = sheet.subplots(1, 2, sharey=True, width_ratios=(1.15, 1))
        times = [entry["both"] for name in names for _, entry in rows(name, BATCH, cells) if "both" in entry]
        failed = 6e3 * max(times, default=1.0) / BATCH
        for place, name in enumerate(names):
            if place % 2:
                for ax in (left, right):
                    ax.axhspan(place - 0.5, place + 0.5, color=MUTED, alpha=0.12, lw=0)
            for label, entry in rows(name, BATCH, cells):
                if label in LAYERS:
                    mark(left, right, label, entry, place, failed)
        dress(left, f"forward and backward, µs per sample (batch {BATCH})")
        dress(right, "worst h(y), float64")
        right.set_xticks([1e-15, 1e-12, 1e-9, 1e-6, 1e-3])
        left.axvline(failed / 2, color=MUTED, lw=0.6)
        left.text(failed, -0.62, "no result", ha="center", fontsize=7, color=INK)
        right.axvline(10 * NONE, color=MUTED, lw=0.6)
        right.text(NONE, -0.62, "none", ha="center", fontsize=7, color=INK)
        left.set_yticks(range(len(names)), [SETS[name].title for name in names])
        left.set_ylim(len(names) - 0.5, -0.5)
        sheet.legend(handles=legend(), loc="outside lower center", ncols=4, fontsize=8)
        sheet.suptitle(CAVEAT, fontsize=8.5)
    return sheet


def mark(left: Axes, right: Axes, label: str, entry: dict[str, Any], place: int, failed: float) -> None:
    """One layer on one set: a mark in each panel."""
    _, color = LAYERS[label]
    y = place + 0.8 * (list(LAYERS).index(label) / (len(LAYERS) - 1) - 0.5)
    if "error" in entry:
        left.plot(failed, y, "x", color=color, ms=4.5, mew=1.4)
        return
    style: dict[str, Any] = shape(label) | {"mec": color, "mfc": color if entry["share"] == 0 else "white", "ls": ""}
    left.plot(1e3 * entry["both"] / BATCH, y, **style)
    right.plot(max(NONE, entry["worst"]), y, **style)


def shape(label: str) -> dict[str, Any]:
    return {"marker": "D" if label in PEERS and PEERS[label].nearest else "o", "ms": 4.2, "mew": 1.2}


def dress(ax: Axes, text: str) -> None:
    ax.set_xscale("log")
    ax.set_xlabel(text)
    ax.minorticks_off()
    ax.grid(True, axis="x", color=MUTED, alpha=0.25, lw=0.5)
    ax.tick_params(labelsize=8, left=False)


def legend() -> list[Line2D]:
    return [
        Line2D([], [], color=color, mfc=color, mec=color, ls="", label=name, **shape(label))
        for label, (name, color) in LAYERS.items()
    ]

"""An object in a picture, and the animation: the truth and what the models make of it, side by side, as it falls."""

from __future__ import annotations

import numpy as np

from inset import Strings

from ..common.drawing import COLOR, INK, MUTED, NAME, RED, Axes, Discs, Segments, canvas, gif
from ..common.store import Arrays
from .config import RATE, Config
from .objects import shape

FRAME = "#b9bcc2"
"""Around a picture; readable on light and on dark."""
SHOWN = ("truth", "strings", "plain")
"""From left to right, or from top to bottom."""
EVERY = 4
"""Steps from one frame to the next."""
DRIFT = 1.5
"""As far from the middle of its picture an object may be, in diameters of a body; then the picture goes with it."""


class Scene:
    """An object in a picture: discs for the bodies, grey lines for strings, thick red ones for those too long."""

    def __init__(self, ax: Axes, name: str, model: str, config: Config) -> None:
        self.ax = ax
        self.strings = Strings(shape(name).links, config.length + config.slack)
        self.half = config.length * float(np.ptp(shape(name).positions, axis=0).max()) / 2 + DRIFT + 0.5
        self.whole, self.long = Segments(ax, MUTED, 1.2), Segments(ax, RED, 2.6)
        self.bodies = Discs(ax, COLOR[model], 1.0)
        self.note = ax.text(0.97, 0.03, "", transform=ax.transAxes, ha="right", fontsize=7, zorder=4)
        ax.set(xlim=(-self.half, self.half), ylim=(-self.half, self.half), aspect="equal")
        ax.set_axis_off()
        ax.plot([0, 1, 1, 0, 0], [0, 0, 1, 1, 0], color=FRAME, lw=0.6, transform=ax.transAxes, clip_on=False)

    def show(self, positions: np.ndarray, truth: np.ndarray) -> None:
        """Draw the bodies around the mean of the truth, and note how far the picture had to go with them."""
        positions, centre = positions.astype(float), truth.astype(float).mean(axis=0)
        off = positions.mean(axis=0) - centre
        away = float(np.linalg.norm(off))
        if away > DRIFT:
            centre = centre + off * (1 - DRIFT / away)
        ends, long = (positions - centre)[self.strings.links], self.strings.constraints(positions) > 0
        self.whole.show(ends[~long])
        self.long.show(ends[long])
        self.bodies.show(positions - centre)
        self.note.set_text(f"{away:.0f} away" if away > DRIFT else "")


def animate(name: str, paths: Arrays, config: Config) -> bytes:
    """One fall of an object in its own time, as a GIF; to be made under `mpl.rc_context(STYLE)`."""
    models = [m for m in SHOWN if m in paths]
    figure = canvas(1.85 * len(models), 2.3)
    axes = figure.subplots(1, len(models), squeeze=False)[0]
    scenes = {m: Scene(ax, name, m, config) for m, ax in zip(models, axes, strict=True)}
    for model, scene in scenes.items():
        scene.ax.set_title(NAME[model])
    stamp = figure.supxlabel(" ", fontsize=9)

    def show(frame: int) -> None:
        k = frame * EVERY
        for model, scene in scenes.items():
            scene.show(paths[model][k], paths["truth"][k])
        stamp.set_text(f"{k / RATE:.2f} s")

    show(0)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # as it is now: pictures that stay where they are make a small file
    inks = dict.fromkeys((INK, MUTED, RED, *(COLOR[m] for m in models)))
    return gif(figure, show, -(-len(paths["truth"]) // EVERY), RATE / EVERY, list(inks))

"""What the two paths say."""

from __future__ import annotations

import numpy as np

from ..common.claims import Finding
from ..common.store import Store
from .config import CELL, Config


def claims(store: Store) -> list[Finding]:
    """Distances to the optimum at the end; the paper shows them in a figure and gives no numbers."""
    paths, config = store.load(CELL), store.config(Config)
    pgd, composition = (distance(paths, name) for name in ("pgd", "composition_projected"))
    last_move = float(np.linalg.norm(paths["pgd"][-1] - paths["pgd"][-2]))
    start = np.asarray(config.anchor)
    off_line = abs(np.linalg.det(np.stack([paths["pgd"][-1], start]))) / np.linalg.norm(start)
    return [
        Finding(
            "pgd_stalls",
            None,
            pgd[-1],
            pgd[-1] > 0.1 * pgd[0] and last_move < 1e-12,
            "x <- g(x - a grad f(x)) stops moving this far from the optimum.",
        ),
        Finding(
            "pgd_stays_on_its_first_line",
            0,
            off_line,
            off_line < 1e-12,
            "It stops on the line from the anchor to 0 along which it first left the set: its distance from that line.",
        ),
        Finding(
            "composition_converges",
            0,
            composition[-1],
            composition[-1] < 1e-9 * composition[0],
            "x <- x - a grad (f o g)(x): the distance of g(x) to the optimum at the end.",
        ),
    ]


def distance(paths: dict[str, np.ndarray], name: str) -> np.ndarray:
    """|x_k - x*| for every k."""
    return np.linalg.norm(paths[name] - paths["optimum"], axis=-1)

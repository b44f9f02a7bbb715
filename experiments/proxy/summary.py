"""What claims, tables and figures read from the results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..common.store import Arrays, Store
from .config import KINDS, Config, key
from .methods import METHODS

LABEL = {
    "penalty": "penalty",
    "paper": "paper",
    "chord": "chord",
    "ray": "ray",
    "near": "near",
    "near_float32": "near, float32",
    "near_tuned": "near, tuned",
    "pinet": "Pi-net",
    "pinet_tuned": "Pi-net, tuned",
}
"""Names in tables and figures."""


LARGE = Path(__file__).with_name("large")
"""The committed run with ten times as many variables."""


@dataclass(frozen=True)
class Row:
    """One method on one objective: numbers per seed, suboptimality in percent."""

    mean: np.ndarray
    quantiles: np.ndarray
    inequality: np.ndarray
    equality: np.ndarray
    active: np.ndarray
    curve: np.ndarray
    """Mean suboptimality on the validation programs after each epoch, a row per seed."""

    @property
    def center(self) -> float:
        return float(self.mean.mean())

    @property
    def spread(self) -> float:
        """Standard deviation over seeds."""
        return float(self.mean.std(ddof=1)) if len(self.mean) > 1 else 0.0

    @property
    def median(self) -> float:
        return float(np.median(self.quantiles[:, self.quantiles.shape[1] // 2]))

    @property
    def worst(self) -> float:
        return float(self.quantiles[:, -1].max())


def rows(store: Store, variant: str) -> dict[str, Row]:
    """The methods of an objective, in the order of the configuration."""
    methods = store.config(Config).methods
    return {m: row(store.load(key(variant, m))) for m in methods if store.has(key(variant, m))}


def row(cell: Arrays) -> Row:
    return Row(
        100 * cell["mean"],
        100 * cell["quantiles"],
        cell["inequality"],
        cell["equality"],
        cell["active"],
        100 * cell["curve"][..., 0],
    )


def reached(cell: Arrays, level: float) -> float | None:
    """Seconds of training, median over the seeds, until the mean suboptimality on validation is below the level.

    None if some seed never gets there.
    """
    below, clock = cell["curve"][..., 0] < level, np.cumsum(cell["seconds"], axis=-1)
    if not below.any(axis=-1).all():
        return None
    return float(np.median(clock[np.arange(len(clock)), below.argmax(axis=-1)]))


def ours(method: str) -> bool:
    """Whether the layer is one of inset."""
    return METHODS[method].layer not in ("none", "pinet")


def seconds(store: Store, kind: str) -> dict[str, np.ndarray]:
    """Of an epoch, a forward pass or both passes, for each method, a number per round."""
    found = store.load("cost")
    return {m: found[m][:, KINDS.index(kind)] for m in store.config(Config).methods if m in found}


def general(store: Store, kind: str) -> float | None:
    """The same for cvxpylayers, extrapolated from its time per sample; None if it was left out."""
    config, found = store.config(Config), store.load("cost")
    if "cvxpylayers" not in found:
        return None
    forward, both, _ = found["cvxpylayers"]
    train = config.samples - config.validation - config.test
    return float(
        {"epoch": train * both, "forward": config.cost_batch * forward, "both": config.cost_batch * both}[kind]
    )

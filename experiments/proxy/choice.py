"""What validation chooses: the weight of the penalty, and for tuned methods step size, batch and weight of the pull.

Every candidate is trained with a seed that no row of the tables has, and judged on the validation programs. Pi-net gets
the settings that were best for near.
"""

from __future__ import annotations

import itertools

import numpy as np

from ..common.store import Arrays, Store
from .config import Config, key
from .methods import METHODS, Settings

CHOSEN = ("penalty", "near_tuned")
"""Methods with candidates; pinet_tuned follows near_tuned."""


def chooses(method: str) -> bool:
    """Whether a method waits for a choice."""
    return METHODS[method].falling or method in CHOSEN


def choosing(config: Config) -> list[str]:
    """The methods with candidates that a run needs."""
    tuned = any(METHODS[method].falling for method in config.methods)
    return [method for method in CHOSEN if (tuned if METHODS[method].falling else method in config.methods)]


def candidates(method: str, config: Config) -> list[Settings]:
    """Settings to try."""
    if method == "penalty":
        return [Settings(config.rate, config.batch, penalty=weight) for weight in config.penalties]
    grid = itertools.product(config.tuned_rates, config.tuned_batches, config.tuned_pulls)
    return [Settings(rate, batch, pull=pull) for rate, batch, pull in grid]


def cell(variant: str, method: str) -> str:
    return f"choice-{key(variant, method)}"


def choose(tries: list[Arrays], method: str, config: Config) -> Arrays:
    """The candidates, how each did on the validation programs, and the best of them.

    With a layer that is the least suboptimality. Without one it is bought by violations, so both count: the least
    mean of |suboptimality| + violation.
    """
    ends = np.stack([found["curve"][-1] for found in tries])
    score = ends[:, 0] if METHODS[method].layer != "none" else np.abs(ends[:, 0]) + ends[:, 1:].sum(-1)
    tried = candidates(method, config)
    return {
        "rate": np.asarray([s.rate for s in tried]),
        "batch": np.asarray([s.batch for s in tried]),
        "penalty": np.asarray([s.penalty for s in tried]),
        "pull": np.asarray([s.pull for s in tried]),
        "score": score,
        "best": np.asarray(int(np.nanargmin(score))),
    }


def settings(store: Store, variant: str, method: str, config: Config) -> Settings:
    """Of a method, with what was chosen for it."""
    if not chooses(method):
        return Settings(config.rate, config.batch)
    chosen = "near_tuned" if METHODS[method].falling else method
    return candidates(chosen, config)[int(store.load(cell(variant, chosen))["best"])]

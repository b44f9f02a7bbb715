"""Runs of the dynamics experiment that are made up: each number is known, and nothing is trained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from experiments.common.store import Arrays, Store
from experiments.strings.config import Config
from experiments.strings.model import VARIANTS
from experiments.strings.objects import shape

STEPS = 30
SMALL = Config(objects=("chain", "star"), models=("plain", "strings"), seeds=2, test=4, steps=STEPS, width=8)
BENT = {"chain": 3, "star": 1}
"""The body that `plain` has in a wrong place, with strings to two neighbours that become too long."""


def make(folder: Path, config: Config, errors: Mapping[str, float] | None = None) -> Store:
    """A finished run of models with these errors, or of all with an error of 1; those without a layer violate."""
    store = Store.create(folder, "strings", config)
    for name in config.objects:
        for model, error in (errors or dict.fromkeys(config.models, 1.0)).items():
            store.save(f"{name}-{model}", cell(config, model, error))
        if name in BENT:
            store.save(f"{name}-paths", fall(name, config))
    store.finish()
    return store


def cell(config: Config, model: str, error: float) -> Arrays:
    """Seed means from 0.1 below the error to 0.1 above it, trajectories 0.2 around their seed, and one violation."""
    seeds = np.linspace(-0.1, 0.1, config.seeds)[:, None] if config.seeds > 1 else np.zeros((1, 1))
    test = error + seeds + 0.2 * np.where(np.arange(config.test) < config.test / 2, -1, 1)
    violation = np.zeros((config.seeds, config.test))
    violation[-1, -1] = 3.0 if VARIANTS[model].layer == "none" else 0.0
    curve = np.outer(np.geomspace(8, 1, len(config.updates)), error + seeds)
    return {
        "recorded": np.cumsum(config.updates),
        "loss": curve,
        "validation": curve,
        "test": test,
        "violation": violation,
        "kept": np.asarray(0),
    }


def fall(name: str, config: Config) -> Arrays:
    """The object falls without turning; `strings` is a little beside it, and `plain` has one body out of reach."""
    height = np.linspace(config.height, 0, STEPS)
    truth = config.length * shape(name).positions + np.stack([0 * height, height], axis=-1)[:, None]
    plain = truth.copy()
    plain[1:, BENT[name], 1] -= 0.7
    paths = {"truth": truth, "strings": truth + 0.5, "plain": plain}
    return {key: path.astype(np.float32) for key, path in paths.items()}

"""What a layer costs: the time of one update with it over one without, measured in one run, in turns."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np
import torch

from ..common.environment import processor
from ..common.progress import say
from ..common.store import Store
from .config import Config
from .trainee import Trainee, worth_compiling
from .training import starter

ROUNDS = 7
HORIZON, ON_CPU, NEAREST = 240, 32, 16
"""Steps unrolled: as many as the paper's on a GPU; fewer on a CPU, and for the orthogonal projection, where every step
takes the same time; never more than the longest horizon of the run."""


def measure(store: Store, trajectories: np.ndarray, config: Config, device: torch.device) -> None:
    """Write a cell per kind of device: seconds per update of each model, `(rounds,)`."""
    for kind in dict.fromkeys([device.type, "cpu"]):
        key = f"cost-{kind}"
        if not store.has(key):
            say(f"strings: measuring the cost of a layer ({kind})")
            store.save(key, seconds(trajectories, config, torch.device(kind)))


def seconds(trajectories: np.ndarray, config: Config, device: torch.device) -> dict[str, np.ndarray]:
    """Seconds of one update of each model of the first object, measured in turns; compiled if the run itself is."""
    cpu, compiled = device.type == "cpu", worth_compiling(config, device)
    horizon = min(ON_CPU if cpu else HORIZON, max(config.horizons))
    config = dataclasses.replace(config, horizons=(horizon, min(NEAREST, horizon)), updates=(1, 1))

    def job(model: str, stage: int, compiled: bool) -> Callable[[], None]:
        return updater(Trainee(config.objects[0], model, trajectories, config, device, compiled), stage)

    runs = {model: job(model, 0, compiled) for model in config.models if not model.startswith("raw")}
    if cpu:
        runs |= {f"{model}-short": job(model, 1, False) for model in ("plain", "nearest")}
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(ROUNDS):
        for name, go in runs.items():
            clock = time.perf_counter()
            go()
            times[name].append(time.perf_counter() - clock)
    facts = {"horizon": horizon, "machine": machine(device), "compiled": compiled}
    return {name: np.asarray(value) for name, value in (times | facts).items()}


def machine(device: torch.device) -> str:
    """What was measured on."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{processor()}, {torch.get_num_threads()} threads"


def updater(trainee: Trainee, stage: int) -> Callable[[], None]:
    """One update, from the first to the last step of it; the first one, which compiles, is behind it."""
    start = starter(trainee, stage)

    def go() -> None:
        start(0, 0.0)
        if trainee.device.type == "cuda":
            torch.cuda.synchronize()

    go()
    return go

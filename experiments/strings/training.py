"""The loop around the updates: stages of growing horizon, validation, checkpoints, graphs on a GPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..common.graphs import replayed
from ..common.progress import Progress
from ..common.store import Store, partial_file
from .config import Config
from .trainee import BLOCK, Trainee

CHECKPOINT = "checkpoint.pt"
EVERY = 40.0
"""Seconds between checkpoints: what a killed run loses at most."""
VALIDATIONS = 4
"""In each stage, at equal distances; the last one at its end."""


def train(trainees: dict[str, Trainee], config: Config, store: Store) -> Session:
    """Train all models in step, from the checkpoint in the store's folder if there is one."""
    session = Session(trainees, config, store)
    session.resume()
    progress = Progress("strings: training", sum(config.updates), session.done, "updates")
    for stage in range(len(config.horizons)):
        if session.done < sum(config.updates[: stage + 1]):
            session.train_stage(stage, progress)
            session.save()
    return session


class Session:
    """Where the training of all models stands."""

    def __init__(self, trainees: dict[str, Trainee], config: Config, store: Store) -> None:
        self.trainees, self.config, self.store = trainees, config, store
        self.checkpoint = store.folder / CHECKPOINT
        self.done = 0
        """Updates so far, over all stages."""
        self.curve: list[tuple[int, dict[str, list[float]], dict[str, list[float]]]] = []
        """After how many updates, the loss and the validation error of each model and seed."""
        self.saved = time.monotonic()
        self.leaders = {name: leader(name, trainees) for name in trainees}
        """Without their layer, models with the same inputs are one and the same: this one is trained for them."""

    def train_stage(self, stage: int, progress: Progress) -> None:
        """The rest of a stage."""
        before, updates = sum(self.config.updates[:stage]), self.config.updates[stage]
        names = self.trainees if stage >= self.config.layer_from else dict.fromkeys(self.leaders.values())
        for trainee in self.trainees.values():
            trainee.engage(stage)
        starts = [starter(self.trainees[name], stage) for name in names]
        marks = {before + math.ceil(updates * (k + 1) / VALIDATIONS) for k in range(VALIDATIONS)}
        for k in range(self.done - before, updates):
            rate = step_size(self.done, self.config)
            for start in starts:
                start(k, rate)
            self.done += 1
            if self.done in marks:
                self.validate([name for name in self.trainees if name not in names])
            elif self.done % 16 == 0:
                wait(self.trainees)
            progress.advance(self.summary(stage))
            if time.monotonic() - self.saved > EVERY:
                self.save()

    def validate(self, following: list[str]) -> None:
        wait(self.trainees)
        for name in following:
            self.trainees[name].follow(self.trainees[self.leaders[name]])
        wait(self.trainees)
        loss = {name: trainee.loss.tolist() for name, trainee in self.trainees.items()}
        error = {name: trainee.validate() for name, trainee in self.trainees.items()}
        self.curve.append((self.done, loss, error))

    def summary(self, stage: int) -> str:
        """The validation error of each model, mean over objects and seeds, for the bar."""
        text = f"horizon {self.config.horizons[stage]}"
        if not self.curve:
            return text
        error = self.curve[-1][2]
        models = dict.fromkeys(name.split("-")[1] for name in error)
        means = {m: np.mean([v for name, v in error.items() if name.endswith(f"-{m}")]) for m in models}
        return f"{text}, validation " + " ".join(f"{m} {v:.3g}" for m, v in means.items())

    def save(self) -> None:
        wait(self.trainees)
        state = {"done": self.done, "curve": self.curve, "trainees": {n: t.state() for n, t in self.trainees.items()}}
        partial = partial_file(self.checkpoint)
        torch.save(state, partial)
        partial.replace(self.checkpoint)
        self.store.tick()
        self.saved = time.monotonic()

    def resume(self) -> None:
        if self.checkpoint.exists():
            device = next(iter(self.trainees.values())).device
            state: dict[str, Any] = torch.load(self.checkpoint, map_location=device, weights_only=True)
            self.done, self.curve = state["done"], state["curve"]
            for name, trainee in self.trainees.items():
                trainee.restore(state["trainees"][name])


def leader(name: str, trainees: dict[str, Trainee]) -> str:
    """The first trainee for the same object and with the same inputs."""
    same = [trainees[name].name, trainees[name].model.variant.inputs]
    return next(other for other, t in trainees.items() if [t.name, t.model.variant.inputs] == same)


def step_size(done: int, config: Config) -> float:
    """In each phase, without and with the layer, it falls to 0 along half a cosine."""
    first, rest = sum(config.updates[: config.layer_from]), sum(config.updates[config.layer_from :])
    rate, share = (config.rate, done / first) if done < first else (config.rate_with_layer, (done - first) / rest)
    return rate * (1 + math.cos(math.pi * share)) / 2


def starter(trainee: Trainee, stage: int) -> Callable[[int, float], None]:
    """A function that does update k of a stage at a step size; on a GPU it only starts it, as one graph."""
    block: dict[int, Tensor] = {}

    def windows(k: int) -> Tensor:
        if k // BLOCK not in block:
            block.clear()
            block[k // BLOCK] = trainee.sample(stage, k // BLOCK)
        return block[k // BLOCK][k % BLOCK]

    if trainee.device.type != "cuda":

        def start(k: int, rate: float) -> None:
            trainee.rate.fill_(rate)
            trainee.update(windows(k))

        return start

    shown, before = windows(0).clone(), trainee.state()
    update = replayed(lambda: trainee.update(shown), trainee.stream)
    trainee.restore(before)
    torch.cuda.synchronize()

    def start_graph(k: int, rate: float) -> None:
        with torch.cuda.stream(trainee.stream):
            trainee.rate.fill_(rate)
            shown.copy_(windows(k))
        update()

    return start_graph


def wait(trainees: dict[str, Trainee]) -> None:
    """Until the GPU has done what it was given."""
    if any(t.device.type == "cuda" for t in trainees.values()):
        torch.cuda.synchronize()

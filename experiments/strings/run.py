"""Simulate, train, test: every model of every object, then what the layer costs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ..common.devices import pick
from ..common.progress import Progress
from ..common.store import Store, StoreError, read_arrays, write_arrays
from . import cost
from .config import Config, key
from .evaluate import KEPT, pack, score, unpack
from .model import PAST, VARIANTS
from .objects import NAMES
from .simulator import simulate, split
from .trainee import Trainee, worth_compiling
from .training import Session, train


def run(config: Config, out: Path) -> None:
    """Train and test what is not on disk yet; training itself goes on from its last checkpoint."""
    check(config)
    store = Store.create(out, "strings", config)
    device = pick("strings", config.device)
    paths = {name: saved_trajectories(store.folder, name, config) for name in config.objects}
    if not all(store.has(key(name, model)) for name in config.objects for model in config.models):
        train_and_test(store, paths, config, device)
    for name in config.objects:
        if not store.has(f"{name}-paths") and set(KEPT) & set(config.models):
            store.save(f"{name}-paths", example(store, name, split(paths[name], config), config))
    cost.measure(store, paths[config.objects[0]], config, device)
    store.finish()


def train_and_test(store: Store, paths: dict[str, np.ndarray], config: Config, device: torch.device) -> None:
    """The cells of all models, and the weights that are kept."""
    if device.type == "cuda":
        store.manifest["machine"]["accelerator"] = torch.cuda.get_device_name(device)
    compiled = worth_compiling(config, device)
    trainees = {
        key(name, model): Trainee(name, model, paths[name], config, device, compiled)
        for name in config.objects
        for model in config.models
    }
    session = train(trainees, config, store)
    progress = Progress("strings: testing", len(trainees))
    for cell, trainee in trainees.items():
        truth = split(paths[trainee.name], config)["test"]
        store.save(cell, {**curves(session, cell), **test(store, cell, trainee, truth)})
        progress.advance(cell)


def check(config: Config) -> None:
    """Raise if the numbers do not fit together."""
    for given, known in ((config.objects, NAMES), (config.models, tuple(VARIANTS))):
        if unknown := [name for name in given if name not in known]:
            raise StoreError(f"strings: {', '.join(unknown)}: expected some of {', '.join(known)}")
    if len(config.horizons) != len(config.updates):
        stages = f"{len(config.horizons)} horizons and {len(config.updates)} numbers of updates"
        raise StoreError(f"strings: {stages}: expected one of each for every stage")
    if max(config.horizons) > config.steps - PAST:
        most = f"{config.steps} steps of which {PAST} are given"
        raise StoreError(f"strings: a horizon of {max(config.horizons)} steps is too long for trajectories of {most}")


def saved_trajectories(folder: Path, name: str, config: Config) -> np.ndarray:
    """The trajectories of an object: large, quickly made again, not committed."""
    path = folder / "instances" / f"{name}.npz"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        write_arrays(path, {"trajectories": simulate(name, config)})
    return read_arrays(path)["trajectories"]


def curves(session: Session, cell: str) -> dict[str, np.ndarray]:
    """How training went: after how many updates, the loss and the validation error of each seed."""
    done, loss, error = zip(*[(done, loss[cell], error[cell]) for done, loss, error in session.curve], strict=True)
    return {
        "recorded": np.asarray(done),
        "loss": np.asarray(loss, np.float32),
        "validation": np.asarray(error, np.float32),
    }


def test(store: Store, cell: str, trainee: Trainee, truth: np.ndarray) -> dict[str, np.ndarray]:
    """The error and the worst violation on every test trajectory, for each seed; the weights of the best are kept."""
    model, best = trainee.trained(), int(trainee.score.argmin())
    error, violation, _ = score(model, np.broadcast_to(truth, (trainee.config.seeds, *truth.shape)))
    if trainee.variant in KEPT:
        write_arrays(store.path(f"{cell}-weights"), pack(model.member(best)))
    return {"test": error, "violation": violation, "best": trainee.score.cpu().numpy(), "kept": np.asarray(best)}


def example(store: Store, name: str, parts: dict[str, np.ndarray], config: Config) -> dict[str, np.ndarray]:
    """The test trajectory along which plain stretches a string the most, and what the kept weights make of it."""
    models = [m for m in KEPT if m in config.models]
    first = store.load(key(name, models[0]))
    which = int(np.nan_to_num(first["violation"][int(first["kept"])], posinf=0).argmax())
    truth = parts["test"][which]
    paths = {"truth": truth, "which": np.asarray(which)}
    for model in models:
        member = unpack(name, model, store.load(f"{key(name, model)}-weights"), parts["train"], config)
        paths[model] = np.concatenate([truth[:PAST], score(member, truth[None])[2][0]])
    return paths

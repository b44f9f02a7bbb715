"""Choose, train, test: every method on every objective with every seed, then what each costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from ..common.devices import pick
from ..common.environment import package_version
from ..common.pool import Pool
from ..common.progress import Progress, say
from ..common.store import Arrays, Store, StoreError, read_arrays, write_arrays
from . import choice, cost
from .config import VARIANTS, Config, key
from .methods import METHODS, Settings, missing
from .optima import least_values
from .problem import Problem, draw
from .training import judge, train, trainee

Job = tuple[Path, str, str, Settings, int, Config]
"""Folder, objective, method, its settings, seed and configuration."""


def run(config: Config, out: Path) -> None:
    """Train and test what is not on disk yet. A run without some method's package is left unfinished, and says so."""
    check(config)
    store = Store.create(out, "proxy", config)
    device = pick("proxy", config.device)
    (store.folder / "instances").mkdir(exist_ok=True)
    saved_optima(store.folder, draw(config), config, device)
    absent = {method: why for method in config.methods if (why := missing(method, device.type))}
    for method, why in absent.items():
        say(f"proxy: {method} is left out: {why}")
    present = [method for method in config.methods if method not in absent]
    note_environment(store, present, device)
    with Pool(1 if device.type == "cuda" else config.workers) as pool:
        compute_choices(store, pool, config)
        compute_rows(store, pool, present, config)
        if not store.has("cost") and not absent:
            chosen = {m: choice.settings(store, config.variants[0], m, config) for m in present}
            for _ in pool.run(cost.measure, [(store.folder, chosen, config)]):
                store.tick()
    if absent:
        say("proxy: unfinished; install what is missing and give the same command again, or name others with --methods")
    else:
        store.finish()


def check(config: Config) -> None:
    """Raise if the numbers do not fit together."""
    for given, known in ((config.variants, VARIANTS), (config.methods, tuple(METHODS))):
        if unknown := [name for name in given if name not in known]:
            raise StoreError(f"proxy: {', '.join(unknown)}: expected some of {', '.join(known)}")
    if config.samples <= config.validation + config.test:
        parts = f"{config.samples} samples, {config.validation} for validation and {config.test} for test"
        raise StoreError(f"proxy: {parts}: expected some that are left for training")
    if config.equalities >= config.variables:
        raise StoreError(
            f"proxy: {config.equalities} equalities of {config.variables} variables: expected fewer equalities"
        )


def note_environment(store: Store, methods: list[str], device: torch.device) -> None:
    """Add to the manifest what this experiment alone depends on."""
    if any(METHODS[method].layer == "pinet" for method in methods):
        store.manifest["versions"]["pinet-hcnn"] = package_version("pinet-hcnn")
    if device.type == "cuda":
        store.manifest["machine"]["accelerator"] = torch.cuda.get_device_name(device)


def saved_optima(folder: Path, problem: Problem, config: Config, device: torch.device) -> Arrays:
    """The least values, computed once."""
    path = folder / "instances" / "optima.npz"
    if not path.exists():
        write_arrays(path, least_values(problem, config, device))
    return read_arrays(path)


def compute_choices(store: Store, pool: Pool, config: Config) -> None:
    """Train every candidate that is not on disk, and keep the best of each method."""
    wanted = [(v, m) for v in config.variants for m in choice.choosing(config) if not store.has(choice.cell(v, m))]
    jobs: list[Job] = [
        (instance(store.folder, v, m, f"try{k}"), v, m, settings, config.seeds, config)
        for v, m in wanted
        for k, settings in enumerate(choice.candidates(m, config))
    ]
    for _ in work(store, pool, jobs, "proxy: choosing"):
        pass
    for v, m in wanted:
        tries = range(len(choice.candidates(m, config)))
        found = [read_arrays(instance(store.folder, v, m, f"try{k}")) for k in tries]
        store.save(choice.cell(v, m), choice.choose(found, m, config))


def compute_rows(store: Store, pool: Pool, methods: list[str], config: Config) -> None:
    """Train and test every method, seed by seed; once all seeds of a method are there they become one cell."""
    wanted = [(v, m) for m in methods for v in config.variants if not store.has(key(v, m))]
    jobs: list[Job] = [
        (instance(store.folder, v, m, str(seed)), v, m, choice.settings(store, v, m, config), seed, config)
        for seed in range(config.seeds)
        for v, m in wanted
    ]
    for _, variant, method, *_ in work(store, pool, jobs, "proxy: training"):
        paths = [instance(store.folder, variant, method, str(seed)) for seed in range(config.seeds)]
        if all(path.exists() for path in paths):
            found = [read_arrays(path) for path in paths]
            store.save(key(variant, method), {name: np.stack([one[name] for one in found]) for name in found[0]})


def instance(folder: Path, variant: str, method: str, what: str) -> Path:
    """Where one training is kept."""
    return folder / "instances" / f"{key(variant, method)}-{what}.npz"


def work(store: Store, pool: Pool, jobs: list[Job], title: str) -> Iterator[Job]:
    """Do what is not on disk; gives each job once it is done, those of earlier first."""
    there, rest = [job for job in jobs if job[0].exists()], [job for job in jobs if not job[0].exists()]
    yield from there
    progress = Progress(title, len(jobs), len(there), "trainings")
    for job in pool.run(learn, rest):
        store.tick()
        progress.advance(job[0].stem)
        yield job


def learn(path: Path, variant: str, method: str, settings: Settings, seed: int, config: Config) -> None:
    """Train one network; keep its learning curve, and what its answers to the test programs are worth."""
    device, problem = pick("proxy", config.device), draw(config)
    least = saved_optima(path.parent.parent, problem, config, device)
    student = trainee(problem, config, variant, method, settings, seed, device)
    curve = train(student, problem, config, variant, method, settings, seed, least[f"{variant}-validation"])
    y = student.predict(problem.test)
    write_arrays(path, {**curve, **judge(problem, problem.test, y, variant, least[f"{variant}-test"])})

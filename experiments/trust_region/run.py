"""Play, solve, measure: problems from runs of natural gradient, every method on every problem, what a layer costs."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from ..common.devices import pick
from ..common.pool import Pool
from ..common.progress import Progress
from ..common.store import Arrays, Store, StoreError, read_arrays, write_arrays
from . import cost
from .collect import collect, make_environment, problem_files
from .config import Config, key
from .natural import natural_gradient, search
from .policy import Parameters
from .problem import Problems, stack
from .solve import METHODS, Setting, Solver

POLICIES = ("linear", "network")
TOGETHER = {"cuda": 512, "cpu": 8}
"""Problems that are solved at once: as many as keep a GPU busy, or as few as fit into the caches of a CPU."""


def run(config: Config, out: Path) -> None:
    """Compute what is not on disk yet; a run that was killed goes on from its last update."""
    check(config)
    store, device = Store.create(out, "trust_region", config), pick("trust_region", config.device)
    if device.type == "cuda":
        store.manifest["machine"]["accelerator"] = torch.cuda.get_device_name(device)
    (out / "instances").mkdir(exist_ok=True)
    cells = wanted(config)
    for policy, k in play(store, config):
        if device.type == "cuda" and not store.has(key(policy, k)):  # it has nothing else to do while others play
            solve_cell(out, key(policy, k), policy, k, config)
            store.tick()
    missing = [(out, cell, *of, config) for cell, of in cells.items() if not store.has(cell)]
    progress = Progress("trust_region: solving", len(cells), len(cells) - len(missing))
    with Pool(1 if device.type == "cuda" else min(config.workers, max(1, len(missing)))) as pool:
        for _, cell, *_ in pool.run(solve_cell, missing):
            store.tick()
            progress.advance(cell)
    cost.measure(store, config)
    store.finish()


def solve_cell(folder: Path, cell: str, policy: str, run: int | None, config: Config) -> None:
    """Solve the problems of a run, or some of all runs with other settings, and write what came out."""
    device = pick("trust_region", config.device)
    if device.type == "cpu":
        torch.set_num_threads(1)  # the work is many small operations
    found = grid(folder, policy, config, device) if run is None else solved(load(folder, policy, run), config, device)
    write_arrays(folder / f"{cell}.npz", found)


def wanted(config: Config) -> dict[str, tuple[str, int | None]]:
    """The cells to solve: a policy and a run, or None for other mini-batches and step sizes, if there are any."""
    runs: dict[str, tuple[str, int | None]] = {key(p, k): (p, k) for p in config.policies for k in range(config.runs)}
    several = len(config.minibatches) * len(config.rates) > 1
    return runs | ({f"{policy}-grid": (policy, None) for policy in config.policies} if several else {})


def check(config: Config) -> None:
    """Raise if the numbers do not fit together."""
    if unknown := [name for name in config.policies if name not in POLICIES]:
        raise StoreError(f"trust_region: {', '.join(unknown)}: expected some of {', '.join(POLICIES)}")
    if large := [size for size in (*config.minibatches, config.started_minibatch) if size > config.batch]:
        raise StoreError(
            f"trust_region: mini-batches of {large} states: expected at most the {config.batch} of a problem"
        )
    if len({len(v) for v in (config.other_conjugate, config.other_damping, config.other_every)}) > 1:
        raise StoreError("trust_region: other-conjugate, other-damping and other-every: expected as many of each")
    if wrong := [factor for factor in config.factors if not 0 < factor < 1]:
        raise StoreError(f"trust_region: line search factors {wrong}: expected numbers between 0 and 1")


def play(store: Store, config: Config) -> Iterator[tuple[str, int]]:
    """Collect the problems of all runs, if they have not been solved yet; gives each run as it ends."""
    runs = [(policy, k) for policy in config.policies for k in range(config.runs)]
    if all(map(store.has, wanted(config))):
        return
    make_environment().close()  # says what is missing before anything is started
    most = len(runs) * math.ceil(config.steps / config.batch)
    watch = Watch(store.folder, Progress("trust_region: playing", most, count(store.folder), "updates"))
    with watch, Pool(min(config.workers, len(runs))) as pool:
        for policy, k, *_ in pool.run(collect, [(policy, k, config, store.folder) for policy, k in runs]):
            store.tick()
            yield policy, k


class Watch(threading.Thread):
    """Looks how many problems there are, and says so."""

    def __init__(self, folder: Path, progress: Progress) -> None:
        super().__init__(daemon=True)
        self.folder, self.progress, self.over = folder, progress, threading.Event()

    def run(self) -> None:
        while not self.over.wait(1.0):
            self.look()

    def look(self) -> None:
        for _ in range(count(self.folder) - self.progress.done):
            self.progress.advance("update")

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()
        self.look()


def count(folder: Path) -> int:
    return sum(1 for _ in (folder / "instances").glob("*.npz"))


def load(folder: Path, policy: str, run: int, every: int = 1) -> list[Arrays]:
    """The problems of a run in order, or every so many of them."""
    return [read_arrays(path) for path in problem_files(folder, policy, run)[::every]]


def solved(problems: list[Arrays], config: Config, device: torch.device) -> Arrays:
    """What each method makes of each problem of a run: gains and KLs `(factors, problems)`, and how the run went."""
    found = [compare(stack(part, device), config, k) for k, part in enumerate(chunks(problems, device))]
    facts = {
        "states": np.asarray([len(p["states"]) for p in problems]),
        "return": np.asarray([p["returns"].mean() for p in problems]),
    }
    return facts | {name: np.concatenate([part[name] for part in found], axis=-1) for name in found[0]}


def chunks(problems: list[Arrays], device: torch.device) -> list[list[Arrays]]:
    size = TOGETHER[device.type]
    return [problems[k : k + size] for k in range(0, len(problems), size)]


def compare(problems: Problems, config: Config, seed: int) -> Arrays:
    """Natural gradient and all methods on a stack of problems, by the name of the method and of what is measured."""
    direction = natural_gradient(problems, config.epsilon, config.conjugate, config.damping)
    natural = search(problems, direction, config.epsilon, config.factors[0])
    found = {f"natural-{name}": value for name, value in measured(problems, direction, config).items()}
    for name in METHODS:
        if METHODS[name].start == "natural":
            setting = Setting(config.started_minibatch, config.started_rate, config.started_epochs, decay=True)
        else:
            setting = Setting(config.minibatches[0], config.rates[0], config.epochs)
        new = improved(problems, natural, name, setting, config, seed)
        found |= {f"{name}-{what}": value for what, value in measured(problems, new, config).items()}
    return found


def improved(
    problems: Problems, natural: Parameters, name: str, setting: Setting, config: Config, seed: int
) -> Parameters:
    """The parameters that a method ends with, before the line search.

    What starts from the solution of natural gradient ends there if nothing better was found.
    """
    method = METHODS[name]
    if method.start == "old":
        return Solver(problems, problems.old, method, setting, config.epsilon).solve(seed)
    new = Solver(problems, natural, method, setting, config.epsilon).solve(seed)
    with torch.no_grad():
        found = search(problems, new, config.epsilon, config.factors[0])
        better = (problems.gain(found) > problems.gain(natural))[:, None, None]
        return {name: torch.where(better, p, natural[name]) for name, p in new.items()}


def measured(problems: Problems, new: Parameters, config: Config) -> dict[str, np.ndarray]:
    """Gain and KL after the line search with each factor, `(factors, problems)`."""
    found = [search(problems, new, config.epsilon, factor) for factor in config.factors]
    with torch.no_grad():
        values = {
            "gain": torch.stack([problems.gain(p) for p in found]),
            "kl": torch.stack([problems.kl(p) for p in found]),
        }
    return {name: shortened(value.cpu().numpy()) for name, value in values.items()}


def shortened(values: np.ndarray) -> np.ndarray:
    """float32 to 12 binary digits, which is more than is read off them: their files are half as large."""
    return (values.view(np.int32) & ~0xFFF).view(np.float32)


def grid(folder: Path, policy: str, config: Config, device: torch.device) -> Arrays:
    """Gains of every method with each mini-batch and step size, on some problems of all runs.

    `(minibatches, rates, factors, problems)` by the name of the method, `(factors, problems)` for natural gradient,
    `(others, factors, problems)` for other natural gradients.
    """
    runs = [load(folder, policy, k, config.every) for k in range(config.runs)]
    found: list[Arrays] = []
    for seed, part in enumerate(chunks([problem for problems in runs for problem in problems], device)):
        stacked = stack(part, device)
        direction = natural_gradient(stacked, config.epsilon, config.conjugate, config.damping)
        natural = search(stacked, direction, config.epsilon, config.factors[0])
        tried = {"natural": measured(stacked, direction, config)["gain"]}
        others = [natural_gradient(stacked, config.epsilon, *numbers) for numbers in config.others]
        tried["others"] = np.stack([measured(stacked, other, config)["gain"] for other in others])
        for name, method in METHODS.items():
            decay = method.start == "natural"
            settings = [
                [Setting(size, rate, config.epochs, decay) for rate in config.rates] for size in config.minibatches
            ]
            news = [[improved(stacked, natural, name, s, config, seed) for s in row] for row in settings]
            tried[name] = np.stack([np.stack([measured(stacked, n, config)["gain"] for n in row]) for row in news])
        found.append(tried)
    facts = {
        "run": np.concatenate([np.full(len(problems), k) for k, problems in enumerate(runs)]),
        "update": np.concatenate([config.every * np.arange(len(problems)) for problems in runs]),
    }
    return facts | {name: np.concatenate([part[name] for part in found], axis=-1) for name in found[0]}

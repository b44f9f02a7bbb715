"""What a layer costs: the time of one step of Adam with it over one without, measured in one run, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..common.environment import processor
from ..common.progress import say
from ..common.store import Arrays, Store, read_arrays
from .collect import problem_files
from .config import Config
from .orthogonal import cone_layer
from .policy import SPREAD
from .problem import Problems, stack
from .solve import METHODS, Method, Setting, Solver, minibatches

ROUNDS, STEPS = 7, 20
"""Of measuring, and steps of Adam in each; the general solver takes one step."""


def measure(store: Store, config: Config) -> None:
    """Write a cell per policy: seconds per step of each method, `(rounds,)`, on its first problem, one CPU thread."""
    for policy in config.policies:
        if not store.has(f"{policy}-cost"):
            say(f"trust_region: measuring the cost of a layer ({policy})")
            problem = read_arrays(problem_files(store.folder, policy, 0)[0])
            store.save(f"{policy}-cost", seconds(problem, config))


def seconds(problem: Arrays, config: Config) -> Arrays:
    """Seconds of a step of each method and of the general solver."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    stacked, setting = stack([problem], torch.device("cpu")), Setting(config.minibatches[0], config.rates[0], 1)
    solvers = {
        name: Solver(stacked, far(stacked), method, setting, config.epsilon)
        for name, method in METHODS.items()
        if method.start == "old"
    }
    solvers["cone"] = ConeSolver(stacked, far(stacked), METHODS["nearest"], setting, config.epsilon)
    jobs = {name: job(solver, 1 if name == "cone" else STEPS) for name, solver in solvers.items()}
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(ROUNDS):
        for name, go in jobs.items():
            clock = time.perf_counter()
            go()
            times[name].append((time.perf_counter() - clock) / (1 if name == "cone" else STEPS))
    torch.set_num_threads(threads)
    facts = {"machine": f"{processor()}, 1 thread", "minibatch": setting.minibatch}
    return {name: np.asarray(value) for name, value in (times | facts).items()}


def far(problems: Problems) -> dict[str, Tensor]:
    """A policy outside of the trust region, where a layer has something to do."""
    return {name: p + (0.2 if name == SPREAD else 0.0) for name, p in problems.old.items()}


def job(solver: Solver, steps: int) -> Callable[[], None]:
    """Some steps of Adam from where it is; the first one is behind it."""
    rows, active = next(minibatches(solver.problems.counts, solver.setting, 0))
    solver.rows.copy_(rows)
    solver.active.copy_(active)

    def go() -> None:
        for _ in range(steps):
            solver.step()

    go()
    return go


class ConeSolver(Solver):
    """The orthogonal projection through cvxpylayers, one problem at a time."""

    def __init__(
        self, problems: Problems, start: dict[str, Tensor], method: Method, setting: Setting, epsilon: float
    ) -> None:
        super().__init__(problems, start, method, setting, epsilon)
        self.layer = cone_layer(setting.minibatch, problems.actions.shape[-1], epsilon)

    def constrain(self, means: Tensor, log_std: Tensor, old_means: Tensor) -> tuple[Tensor, Tensor]:
        old = torch.exp(2 * self.problems.old[SPREAD][0, 0]).double()
        new = torch.exp(2 * log_std[0, 0]).double()
        means, variances = self.layer(means[0].double(), new, old_means[0].double(), old)
        return means.float()[None], torch.log(variances).float()[None, None] / 2

"""What each method costs: an epoch, a forward pass, and one there and back; in turns, in one process.

On a CPU it is processor time that counts, which other programs on the machine change little; on a GPU the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..common.devices import pick
from ..common.store import Arrays, write_arrays
from .config import Config
from .methods import Settings, Trainee
from .network import batches
from .problem import Problem, draw
from .training import trainee


def measure(folder: Path, settings: dict[str, Settings], config: Config) -> None:
    """Seconds of each kind, `(rounds, kinds)` for every method, into the cell `cost`; a first round does not count."""
    device, problem = pick("proxy", config.device), draw(config)
    timed = {method: kinds(problem, config, method, settings[method], device) for method in settings}
    rounds = {method: [] for method in timed}
    for k in range(config.cost_rounds + 1):
        for method, functions in timed.items():
            taken = [seconds(function, device) for function in functions]
            if k > 0:
                rounds[method].append(taken)
    found: Arrays = {method: np.asarray(taken) for method, taken in rounds.items()}
    if config.layers_batch:
        found["cvxpylayers"] = general_solver(problem, config)
    write_arrays(folder / "cost.npz", {**found, "threads": np.asarray(torch.get_num_threads())})


def kinds(
    problem: Problem, config: Config, method: str, settings: Settings, device: torch.device
) -> list[Callable[[], Any]]:
    """An epoch, a forward pass and a pass there and back of a method, each to be timed."""
    student: Trainee = trainee(problem, config, config.variants[0], method, settings, 0, device)
    rows = next(batches(len(problem.train), settings.batch, 0))

    def epoch() -> None:
        for piece in rows:
            student.update(piece, settings.rate)
        student.wait()

    return [epoch, student.prepare(config.cost_batch, False), student.prepare(config.cost_batch, True)]


def seconds(function: Callable[[], Any], device: torch.device) -> float:
    clock = time.process_time if device.type == "cpu" else time.perf_counter
    start = clock()
    function()
    return clock() - start


def general_solver(problem: Problem, config: Config) -> np.ndarray:
    """The orthogonal projection through cvxpylayers: seconds per sample forward, and there and back; its violation.

    Measured on a few samples, because every one is solved alone.
    """
    import cvxpy
    from cvxpylayers.torch.cvxpylayer import CvxpyLayer

    y, raw, x = (cvxpy.Variable(config.variables), *map(cvxpy.Parameter, (config.variables, config.equalities)))
    rules = [problem.G @ y <= problem.h, problem.A @ y == x]
    program = cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(y - raw)), rules)
    layer = CvxpyLayer(program, parameters=[raw, x], variables=[y])
    given = torch.as_tensor(problem.train[: config.layers_batch])
    noise = np.random.default_rng(0).standard_normal((len(given), config.variables))
    points = torch.as_tensor(noise).requires_grad_()
    taken, excess = [], 0.0
    for _ in range(3):
        start = time.process_time()
        (answer,) = layer(points, given, solver_args={"solve_method": "SCS", "eps": 1e-8})
        middle = time.process_time()
        answer.sum().backward()
        taken.append((middle - start, time.process_time() - start))
        excess = max(excess, float((answer.detach().numpy() @ problem.G.T - problem.h).max()))
    return np.asarray([*np.median(taken, axis=0) / len(given), excess])

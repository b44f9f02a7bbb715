"""Every method on every class, one cell each, spread over worker processes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from ..common.pool import Pool
from ..common.progress import Progress
from ..common.store import Store, read_arrays, write_arrays
from .config import Config

CHORD = ("Lin", "SOC", "LinB")
"""Where there are several constraints; with one, the chord is the paper's interpolation."""

# Longest first: the eigenvalues of SDP take half of the time. A rescaled SubGD there would take half as much again.
PLAN: tuple[tuple[str, str], ...] = (
    ("SDP", "igd"),
    ("SDP", "subgd"),
    *[("SOC", m) for m in ("igd", "subgd", "chord", "subgd_rescaled", "radial")],
    ("SDP", "radial"),
    *[("Norm", m) for m in ("radial", "igd", "subgd", "pgd", "subgd_rescaled")],
    *[("LinB", m) for m in ("radial", "igd", "subgd", "chord", "subgd_rescaled")],
    *[("Lin", m) for m in ("radial", "igd", "subgd", "chord", "subgd_rescaled")],
    *[("Exp", m) for m in ("radial", "igd", "subgd", "subgd_rescaled")],
)
"""(class, method) of every cell."""


def cell(name: str, method: str) -> str:
    """The cell of a class and a method; chord is IGD where there is one constraint."""
    return f"{name}-{'igd' if method == 'chord' and name not in CHORD else method}"


def run(config: Config, out: Path) -> None:
    """Make the instances, then run every method on them; what is on disk already is kept."""
    store = Store.create(out, "convex", config)
    plan = [job for job in PLAN if job[0] in config.classes]
    todo = [job for job in plan if not store.has(cell(*job))]
    progress = Progress("convex", len(plan), len(plan) - len(todo))
    names = list(dict.fromkeys(name for name, _ in todo))
    with Pool(config.workers if len(todo) > 1 else 1) as pool:
        missing = [name for name in names if not instances(store.folder, name).exists()]
        for _ in pool.run(make_instances, [(store.folder, name, config) for name in missing]):
            pass
        for _, name, method, _ in pool.run(solve, [(store.folder, *job, config) for job in todo]):
            store.tick()
            progress.advance(f"{name} {method}")
    store.finish()


def instances(folder: Path, name: str) -> Path:
    """The instances of a class: large, quickly made again, not committed."""
    return folder / "instances" / f"{name}.npz"


def make_instances(folder: Path, name: str, config: Config) -> None:
    from .generators import sample  # here and below: only the workers load what computes

    path = instances(folder, name)
    path.parent.mkdir(exist_ok=True)
    write_arrays(path, sample(name, config))


def solve(folder: Path, name: str, method: str, config: Config) -> None:
    """One cell: quartiles and worst over the instances of the best error so far, for each step size."""
    import jax

    from .problems import problems

    clock = time.process_time()
    task = problems(name, read_arrays(instances(folder, name)))
    with jax.enable_x64(True):
        history, recorded, status = descend(task, solver(method, config), steps(method, config))
    error = np.moveaxis(task.error(np.moveaxis(history, -1, 0)), 0, -1)
    error = error.reshape(-1, *error.shape[-2:])  # without step sizes: one row
    arrays = {**summary(error, recorded, status), "seconds": np.asarray(time.process_time() - clock)}
    write_arrays(Store.read(folder).path(cell(name, method)), arrays)


def descend(task: Any, solver: Any, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best values so far `(step sizes, instances, R)`, after which steps, and how each instance ended."""
    import jax

    from inset.jax import minimize

    plan: list[int] = []

    def history(c: Any, set: Any, anchor: Any) -> Any:
        result = minimize(c, set, anchor, solver, steps)
        plan.extend(result.recorded)
        return result.history, result.status

    # under jit the radial method goes without its lower bounds, which nobody looks at here
    go = history if hasattr(solver, "step") else jax.jit(history)
    values, status = go(task.c, task.set, task.anchor)
    return np.asarray(values), np.asarray(plan), np.asarray(status)


def solver(method: str, config: Config) -> Any:
    """The solver of a method, for all step sizes at once."""
    from inset.descent import IGD, PGD, Radial, SubGD

    beta = np.asarray(config.steps)[:, None]
    return {
        "igd": IGD(beta, method="paper"),
        "chord": IGD(beta, method="chord"),
        "subgd": SubGD(beta),
        "subgd_rescaled": SubGD(beta, rescale=True),
        "pgd": PGD(beta),
        "radial": Radial(),
    }[method]


def steps(method: str, config: Config) -> int:
    return config.radial_iterations if method == "radial" else config.iterations


def summary(error: np.ndarray, recorded: np.ndarray, status: np.ndarray) -> dict[str, np.ndarray]:
    """What is kept of the errors `(step sizes, instances, R)`, in single precision: the files are committed."""
    quartiles = np.moveaxis(np.quantile(error, [0.25, 0.5, 0.75], axis=1), 0, 1)
    return {
        "recorded": recorded,
        "quartiles": quartiles.astype(np.float32),
        "worst": error.max(axis=1).astype(np.float32),
        "final": error[..., -1].astype(np.float32),
        "status": np.atleast_2d(status).astype(np.int8),
    }

"""What `solvers` measures: radial descent on all instances at once and the loops over them, timed in turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from array_api_compat import array_namespace
from experiments.convex.config import Config
from experiments.convex.generators import Arrays, sample
from experiments.convex.optima import OMEGA
from experiments.convex.problems import Problems, problems

import inset
import inset.jax
import inset.torch

from .solver_loops import Core, Model, through_cvxpy, tolerance

#: SCS and the loops through CVXPY see so many instances: a loop takes as long for each of the others.
SUBSET = 100
#: Radial descent is given up after so many steps.
MOST = 5_000

Say = Callable[[str], None]


def instances(name: str, count: int, seed: int) -> Arrays:
    """The first instances of a class; those of a smaller count are among them."""
    return sample(name, Config(instances=count, seed=seed))


@dataclass
class Entry:
    """One row of the table: how to answer the first `count` instances, and what it took."""

    solve: Callable[[], np.ndarray]
    """The answers, `(count, n)`."""
    count: int
    setting: str
    """What was set so that the accuracy is reached."""
    seconds: list[float] = field(default_factory=list)
    """CPU seconds per instance, one number per round."""
    points: np.ndarray = field(default_factory=lambda: np.empty(0))


def measure(name: str, arrays: Arrays, accuracy: float, rounds: int, allowance: float, say: Say) -> dict[str, Any]:
    """All entries of one class and count, timed in turns; at least one round, more while the allowance lasts."""
    task = problems(name, arrays)
    if name == "Exp":
        task = replace(task, set=inset.Sublevel(exponential_h))  # the one of `problems` does not know torch
    with jax.enable_x64(True):
        entries, first = radial(task, accuracy, say)
        entries |= loops(name, arrays, task, accuracy, say)
        take_turns(entries, rounds, allowance, say)
    return {
        "instances": len(task.c),
        "variables": task.c.shape[-1],
        "accuracy": accuracy,
        "first call": first,
        "entries": {label: summary(task, entry, accuracy) for label, entry in entries.items()},
    }


def take_turns(entries: dict[str, Entry], rounds: int, allowance: float, say: Say) -> None:
    """Time every entry once a round, in random order. CPU time: other work on the machine does not count."""
    order, shuffle = list(entries), random.Random(0).shuffle
    started = time.process_time()
    for done in range(rounds):
        if done and (time.process_time() - started) * (done + 1) / done > allowance:
            break
        shuffle(order)
        for label in order:
            say(f"round {done + 1}, {label}")
            entry = entries[label]
            entry.points, seconds = timed(entry.solve)
            entry.seconds.append(seconds / entry.count)


def timed(solve: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    """The answers and the CPU seconds they took."""
    start = time.process_time()
    points = solve()
    return points, time.process_time() - start


def error(task: Problems, x: np.ndarray) -> np.ndarray:
    """|f(x) - f*| / (f(x0) - f*) for the answers to the first instances; inf where there is none."""
    value = np.concatenate([(task.c[: len(x)] * x).sum(-1), task.start[len(x) :]])
    return np.nan_to_num(abs(task.error(value)), nan=np.inf)[: len(x)]


def summary(task: Problems, entry: Entry, accuracy: float) -> dict[str, Any]:
    x = np.concatenate([entry.points, task.anchor[entry.count :]])
    errors, h = error(task, entry.points), np.asarray(task.set.h(x))[: entry.count]
    return {
        "seconds": entry.seconds,
        "measured": entry.count,
        "setting": entry.setting,
        "worst error": float(errors.max()),
        "within": int((errors <= accuracy).sum()),
        "worst h": float(np.nanmax(h)),
    }


# -- radial descent, all instances at once -------------------------------------------------------------------------


class _Enough(Exception):
    """Raised to leave a pilot run without its certificate."""


def radial(task: Problems, accuracy: float, say: Say) -> tuple[dict[str, Entry], float]:
    """The entries of radial descent, and the seconds of JAX's first call, which compiles."""
    say("radial (torch), pilot run")
    steps = enough(inset.torch.minimize, task, accuracy)
    say("radial (jax), first call")
    points, first = timed(lambda: descend(inset.jax.minimize, task, steps))
    in_jax = steps if error(task, points).max() <= accuracy else enough(inset.jax.minimize, task, accuracy)
    count = len(task.c)
    return {
        "radial (torch)": Entry(lambda: descend(inset.torch.minimize, task, steps), count, f"{steps} steps"),
        "radial (jax)": Entry(lambda: descend(inset.jax.minimize, task, in_jax), count, f"{in_jax} steps"),
    }, first


def descend(minimize: Callable[..., Any], task: Problems, steps: int) -> np.ndarray:
    return np.asarray(minimize(task.c, task.set, task.anchor, steps=steps).x)


def enough(minimize: Callable[..., Any], task: Problems, accuracy: float) -> int:
    """The first recorded step at which every instance is within the accuracy, or the last one."""
    last = 0

    def look(step: int, result: Any) -> None:
        nonlocal last
        last = step
        if error(task, np.asarray(result.x)).max() <= accuracy:
            raise _Enough

    with suppress(_Enough):
        minimize(task.c, task.set, task.anchor, steps=MOST, callback=look)
    return last


def exponential_h(x: Any) -> Any:
    """|v|^2 / 2 + sum exp(v_i) - d, v = x - W(1), in any framework."""
    xp, v = array_namespace(x), x - OMEGA
    return xp.sum(v * v / 2 + xp.exp(v), axis=-1) - x.shape[-1]


# -- Clarabel and SCS, one instance after the other ----------------------------------------------------------------


def loops(name: str, arrays: Arrays, task: Problems, accuracy: float, say: Say) -> dict[str, Entry]:
    """The entries of both solvers; each one's tolerance is found by its core."""
    model, entries = Model(name, arrays), {}
    for label, solver in (("Clarabel", "CLARABEL"), ("SCS", "SCS")):
        say(f"{label}, pilot runs")
        some = min(SUBSET, len(task.c))
        core = Core(model, solver, len(task.c) if solver == "CLARABEL" else some)
        asked = tolerance(core, accuracy, lambda x: error(task, x))
        through_cvxpy(model, solver, asked, 1)  # so that CVXPY has analysed the problem once
        bound, setting = (model, solver, asked), f"tolerance {asked:.0e}"
        entries[f"{label}, core"] = Entry(lambda core=core, asked=asked: core.solve(asked), len(core.data), setting)
        entries[f"{label}, CVXPY"] = Entry(lambda bound=bound, some=some: through_cvxpy(*bound, some), some, setting)
    return entries

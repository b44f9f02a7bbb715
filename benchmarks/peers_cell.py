"""One cell of `peers`: a layer on a set at a batch size, in turns with inset's layers, all in one process."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .peers_calls import Calls
from .peers_layers import OURS, PEERS, REFERENCES, Build, ours
from .peers_process import growth, one_line, return_memory
from .peers_sets import SETS, Leaves, Problem, as_point, as_set
from .peers_transforms import attempts

ROUND = 0.02  # seconds that one layer is timed for in one round
SLOW = 5.0  # a call that takes longer is made once, and counts
ALLOWANCE = 8.0  # seconds after which no round begins
Seconds = dict[tuple[str, str], list[float]]


@dataclass(frozen=True)
class Order:
    """What is to be measured, as it is handed to the process."""

    layer: str
    """A name in `PEERS`, or "inset"."""
    set: str
    batch: int
    """0: try the transforms instead."""
    rounds: int = 15
    threads: int = 1
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float64"

    @property
    def labels(self) -> list[str]:
        return list(REFERENCES) if self.layer == "inset" else [*REFERENCES, self.layer]

    @property
    def judged(self) -> list[str]:
        """Whose numbers are kept: the peer's, or all of inset's."""
        return list(REFERENCES) if self.layer == "inset" else [self.layer]


def fulfil(order: Order) -> dict[str, Any]:
    """The numbers of the cell, or the error in one line."""
    try:
        with default_dtype(torch.float64 if order.batch == 0 else getattr(torch, order.dtype)):
            return transforms(order) if order.batch == 0 else measure(order)
    except Exception as error:  # whatever a layer raises is its result
        return {"error": one_line(f"{type(error).__name__}: {error}")}


def builder(label: str) -> Build:
    return ours(label) if label in OURS else PEERS[label].build


def missing(layer: str) -> list[str]:
    """The modules that a peer needs and that are not there."""
    needed = PEERS[layer].modules if layer in PEERS else ()
    return [name for name in needed if importlib.util.find_spec(name) is None]


def measure(order: Order) -> dict[str, Any]:
    problem, dtype = SETS[order.set].draw(order.seed), getattr(torch, order.dtype)
    points = problem.points(order.batch, order.seed)
    if dtype == torch.float32:
        problem, points = problem.rounded(np.float32), tuple(leaf.astype(np.float32).astype(float) for leaf in points)
    draw = np.random.default_rng(order.seed)
    cotangents = tuple(draw.standard_normal(leaf.shape) for leaf in points)
    calls = {label: builder(label)(problem, dtype, order.device).calls(points, cotangents) for label in order.labels}
    turns = take_turns(calls, order)
    return_memory()
    entries = {}
    for label in order.judged:
        quick = turns.seconds[label, "both"][0] < SLOW
        memory = peak(calls[label], calls[label].both, order.device) if quick else turns.memory[label]
        entry = summary(turns.seconds, label) | judge(problem, points, calls[label].leaves(turns.answers[label]))
        entry["memory"] = None if memory is None else short(memory)
        if quick and dtype == torch.float64 and (label in OURS or PEERS[label].float32):
            entry["float32"] = in_float32(order, problem, label)
        entries[label] = entry
    return {"entries": entries}


@dataclass
class Turns:
    """What the layers did in turns."""

    seconds: Seconds
    """Of one call in each round, by label and part."""
    answers: dict[str, Any]
    """What the first forward call returned, by label."""
    memory: dict[str, float | None]
    """MB of the first call with a backward pass, by label."""


def take_turns(calls: dict[str, Calls], order: Order) -> Turns:
    """Time every layer once a round, in random order."""
    turns, counts, steps = Turns({}, {}, {}), {}, {}
    for label, call in calls.items():
        for part, step in (("forward", call.forward), ("both", call.both)):
            first, value, turns.memory[label] = first_call(call, step, order.device)
            if part == "forward":
                turns.answers[label] = value
            once = elapsed(step, 1) if first < SLOW or call.compiles else first
            steps[label, part], counts[label, part] = step, 0 if once > SLOW else max(1, round(ROUND / once))
            turns.seconds[label, part] = [once] if once > SLOW else []
    turn, shuffle, begin = [key for key in steps if counts[key]], random.Random(0).shuffle, time.perf_counter()
    for done in range(order.rounds):
        if done and (time.perf_counter() - begin) * (done + 1) / done > ALLOWANCE:
            break
        shuffle(turn)
        for key in turn:
            turns.seconds[key].append(elapsed(steps[key], counts[key]))
    return turns


def first_call(calls: Calls, step: Callable[[], Any], device: str) -> tuple[float, Any, float | None]:
    """Seconds, what was returned, and MB of memory."""
    found: list[Any] = []

    def call() -> None:
        start = time.perf_counter()
        value = step()
        found.extend((time.perf_counter() - start, value))

    memory = peak(calls, call, device)
    return found[0], found[1], memory


def peak(calls: Calls, step: Callable[[], object], device: str) -> float | None:
    """MB that a call takes at its peak: of the process, or of the GPU, where JAX does not tell."""
    if not device.startswith("cuda"):
        return growth(step)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return None if calls.compiles else (torch.cuda.max_memory_allocated() - before) / 1e6


def elapsed(step: Callable[[], object], times: int) -> float:
    """Seconds of one call, the mean of some."""
    start = time.perf_counter()
    for _ in range(times):
        step()
    return (time.perf_counter() - start) / times


def summary(seconds: Seconds, label: str) -> dict[str, Any]:
    """Milliseconds, and how many times as long as inset's layers in the same round."""
    found: dict[str, Any] = {part: short(1e3 * statistics.median(seconds[label, part])) for part in ("forward", "both")}
    found["forward ratio"] = ratio(seconds[label, "forward"], seconds[REFERENCES[0], "forward"])[1]
    ratios = {reference: ratio(seconds[label, "both"], seconds[reference, "both"]) for reference in REFERENCES}
    found["both ratio"] = {reference: quartiles[1] for reference, quartiles in ratios.items()}
    low, _, high = ratios[REFERENCES[0]]
    return found | {"low": low, "high": high, "rounds": len(seconds[label, "both"])}


def ratio(times: list[float], base: list[float]) -> tuple[float, float, float]:
    """The quartiles of times / base over the rounds; all the same where there was one."""
    if len(times) != len(base) or len(times) == 1:
        only = short(statistics.median(times) / statistics.median(base))
        return only, only, only
    quotients = [a / b for a, b in zip(times, base, strict=True)]
    low, middle, high = statistics.quantiles(quotients, n=4, method="inclusive")
    return short(low), short(middle), short(high)


def judge(problem: Problem, points: Leaves, answer: Leaves) -> dict[str, Any]:
    """The worst h(y), the share of samples with h(y) > 0, the mean |y - x| and the worst residual of equations.

    All of it in float64 from the numbers that were returned; NaN counts as a violation.
    """
    h = as_set(problem).h(as_point(answer)).numpy()
    moved = sum(((y - x) ** 2).sum(-1) for x, y in zip(points, answer, strict=True))
    found = {
        "worst": short(float(max(0.0, np.nanmax(h)) if np.isfinite(h).any() else np.nan)),
        "share": short(float(np.mean(~(h <= 0)))),
        "displacement": short(float(np.sqrt(moved).mean())),
    }
    if problem.kind == "equality":
        residual = abs(answer[0] @ problem.arrays["E"].T - problem.arrays["e"]).max()
        found["residual"] = short(float(residual))
    return found


def in_float32(order: Order, problem: Problem, label: str) -> dict[str, Any]:
    """The same judgement of the layer in float32, on the set with its numbers rounded to float32."""
    rounded = problem.rounded(np.float32)
    points = tuple(leaf.astype(np.float32) for leaf in problem.points(order.batch, order.seed))
    with default_dtype(torch.float32):
        layer = builder(label)(rounded, torch.float32, order.device)
        calls = layer.calls(points, points)
        answer = calls.leaves(calls.forward())
    found = judge(rounded, tuple(leaf.astype(float) for leaf in points), answer)
    return {name: found[name] for name in ("worst", "share")}


def transforms(order: Order) -> dict[str, Any]:
    """Which transforms work, for each layer of the cell, on a few points."""
    problem = SETS[order.set].draw(order.seed)
    labels = list(OURS) if order.layer == "inset" else [order.layer]
    points = problem.points(4, order.seed)
    return {
        "transforms": {
            label: attempts(builder(label)(problem, torch.float64, order.device), points) for label in labels
        }
    }


def short(value: float) -> float:
    """Four digits, which keeps result files small."""
    return float(f"{value:.4g}")


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """RAYEN builds its buffers in torch's default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def main(text: str, path: str) -> None:
    """Do as ordered and write the result. All threads of the process share as many cores as were allowed."""
    order = Order(**json.loads(text))
    if order.device == "cpu" and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-order.threads :])
    torch.set_num_threads(order.threads)
    warnings.simplefilter("ignore")
    result = fulfil(order)
    Path(path).write_text(json.dumps(result))


def command(order: Order) -> list[str]:
    """What `isolated` is to run."""
    return [sys.executable, "-m", "benchmarks.peers_cell", json.dumps(asdict(order))]


if __name__ == "__main__":
    main(*sys.argv[1:])

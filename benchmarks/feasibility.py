"""Zero violations: points thrown at every certified set, in every dtype and by every method, with strict=True.

A point counts as a violation when the result y has not h(y) <= 0 in its own dtype (with the equalities of the
set, up to their rounding), in other batch shapes, or with y and the set converted to float64. NaN counts as well.
The exit status is 1 if there is one. With --json a killed run continues where it stopped.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import inset

from . import environment
from .points import Point, leaves, map_point, rows, size, throw, to_float64
from .results import Results
from .sets import Case, cases

DTYPES = ("float64", "float32", "bfloat16", "float16")
METHODS = ("paper", "chord", "ray")
CHECKS: tuple[str, ...] = ("any", "dtype", "shape", "float64")
#: Numbers in one chunk of points: a few MB on a CPU, where several arrays of the chunk's size live at once.
CHUNK = {"cpu": 2**20, "cuda": 2**24}
#: Results are evaluated again in pieces of this many rows, and the first few one by one.
PIECE, ALONE = 509, 8


@dataclass(frozen=True)
class Cell:
    """One entry of the table: a set, a dtype, a method, and how many points."""

    case: Case
    dtype: str
    method: Any
    points: int

    @property
    def key(self) -> str:
        return f"{self.case.name}|{self.dtype}|{self.method}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=lambda text: int(float(text)), default=10**8, help="in total (default 1e8)")
    parser.add_argument("--sets", help="comma-separated names or beginnings of names, `ball,far box`; default all")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="comma-separated (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--threads", type=int, help="threads of torch (default: its own choice)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results there, and continue from them")


def run(args: argparse.Namespace) -> int:
    if args.threads:
        torch.set_num_threads(args.threads)
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit("error: --device cuda: torch sees no CUDA device here")
    facts = environment.describe(args.device)
    print(environment.show(facts | {"seed": args.seed}), flush=True)
    cells = plan(args.points, args.sets, args.dtypes.split(","))
    settings = {name: getattr(args, name) for name in ("points", "sets", "dtypes", "seed", "device")} | facts
    results = Results(args.json, settings)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a terminated run writes what it has
    try:
        fill(cells, results, args.seed, args.device)
    finally:
        results.write()
    return report(cells, results.cells)


def plan(points: int, sets: str | None, dtypes: list[str]) -> list[Cell]:
    """The cells, each with a share of the points by the weight of its set."""
    unknown = [name for name in dtypes if name not in DTYPES]
    if unknown:
        raise SystemExit(f"error: --dtypes {','.join(unknown)}: expected some of {','.join(DTYPES)}")
    wanted = [name.strip() for name in sets.split(",")] if sets else [""]
    chosen = [(dtype, case) for dtype in dtypes for case in cases(getattr(torch, dtype))]
    names = list(dict.fromkeys(case.name for _, case in chosen))
    for name in wanted:
        if not any(known.startswith(name) for known in names):
            raise SystemExit(f"error: --sets {name}: no such set; expected beginnings of {', '.join(names)}")
    chosen = [(dtype, case) for dtype, case in chosen if any(case.name.startswith(name) for name in wanted)]
    total = sum(case.weight for _, case in chosen) * len(METHODS)
    return [
        Cell(case, dtype, method, max(64, round(points * case.weight / total)))
        for dtype, case in chosen
        for method in METHODS
    ]


def fill(cells: list[Cell], results: Results, seed: int, device: str) -> None:
    """Run the cells that are not among the results yet."""
    todo = [cell for cell in cells if cell.key not in results.cells]
    if len(todo) < len(cells):
        print(f"{len(cells) - len(todo)} of {len(cells)} cells are in {results.path} already", flush=True)
    progress = _Progress(sum(cell.points / cell.case.weight for cell in todo))
    for cell in todo:
        try:
            found = measure(cell, seed, device, progress)
        except RuntimeError as error:  # a linear algebra routine that gave up, say: one cell, not the run
            found = {"points": 0, "violations": dict.fromkeys(CHECKS, 0), "error": f"{type(error).__name__}: {error}"}
        results.add(cell.key, found)
    progress.end()


def measure(cell: Cell, seed: int, device: str, progress: _Progress) -> dict[str, Any]:
    """Throw the points of one cell, in chunks; count violations by check and keep the first as an example."""
    dtype = getattr(torch, cell.dtype)
    set, anchor = cell.case.at(dtype, device)
    exact = to_float64(set)
    # of its own for each cell, so that a cell is the same in every selection of sets
    generator = torch.Generator(device).manual_seed(seed + zlib.crc32(cell.key.encode()))
    chunk = min(max(CHUNK[device.split(":")[0]] // size(anchor), PIECE), 2**18)
    counts, example, done = dict.fromkeys(CHECKS, 0), None, 0
    started = time.perf_counter()
    while done < cell.points:
        count = min(chunk, cell.points - done)
        with torch.no_grad():
            x = throw(set, anchor, count, cell.case.spread, generator)
            y = inset.project(set, x, anchor, method=cell.method)
            wrong = violations(set, exact, y)
        for check, flags in wrong.items():
            counts[check] += int(flags.sum())
        if example is None and counts["any"]:
            example = _example(set, exact, x, y, int(wrong["any"].nonzero()[0, 0]))
        done += count
        progress.advance(count / cell.case.weight, cell.key, counts["any"])
    seconds = round(time.perf_counter() - started, 3)
    return {"points": done, "violations": counts, "example": example, "seconds": seconds}


def violations(set: inset.ConvexSet, exact: inset.ConvexSet, y: Point) -> dict[str, Tensor]:
    """Which points are not in the set: in their dtype, evaluated in other batch shapes, in float64, in any of these."""
    count = leaves(y)[0].shape[0]
    steps = [(k, k + 1) for k in range(min(ALONE, count))]
    steps += [(k, min(k + PIECE, count)) for k in range(len(steps), count, PIECE)]
    pieces = torch.cat([set.h(rows(y, *step)) for step in steps])
    double = exact.h(map_point(lambda leaf: leaf.double(), y))
    flags = [~set.contains(y), ~(pieces <= 0), ~(double <= 0)]
    return dict(zip(CHECKS, [torch.stack(flags).any(0), *flags], strict=True))


def _example(set: inset.ConvexSet, exact: inset.ConvexSet, x: Point, y: Point, k: int) -> dict[str, Any]:
    """Input, result and both values of h of row k; the numbers are exact when read as float64."""
    row = map_point(lambda leaf: leaf[k], y)
    double = map_point(lambda leaf: leaf.double(), row)
    return {
        "x": map_point(lambda leaf: leaf[k].double().tolist(), x),
        "y": map_point(lambda leaf: leaf.double().tolist(), row),
        "h": float(set.h(row)),
        "h float64": float(exact.h(double)),
    }


def report(cells: list[Cell], found: dict[str, Any]) -> int:
    """Print violations per set, dtype and method; the exit status."""
    table: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        entry = found[cell.key]
        counts = table.setdefault(cell.case.name, {}).setdefault(cell.dtype, [])
        counts.append("error" if "error" in entry else str(entry["violations"]["any"]))
    points = {cell.case.name: cell.points for cell in cells}
    width = max(map(len, table)) + 2
    dtypes = list(next(iter(table.values())))
    print(f"\nViolations by method: {' / '.join(METHODS)}")
    print(f"{'set':<{width}}{'points each':>12}" + "".join(f"{dtype:>24}" for dtype in dtypes))
    for name, row in table.items():
        numbers = "".join(f"{' / '.join(row[dtype]):>24}" for dtype in dtypes)
        print(f"{name:<{width}}{points[name]:>12,}{numbers}")
    entries = {cell.key: found[cell.key] for cell in cells}
    bad = {key: entry for key, entry in entries.items() if "error" in entry or entry["violations"]["any"]}
    total, wrong = (sum(numbers) for numbers in zip(*map(_counts, entries.values()), strict=True))
    print(f"\n{total:,} points, {wrong:,} violations, {sum('error' in entry for entry in bad.values())} errors")
    for key, entry in bad.items():
        print(f"{key}: {entry.get('error') or _summary(entry)}")
    return 1 if bad else 0


def _counts(entry: dict[str, Any]) -> tuple[int, int]:
    return entry["points"], entry["violations"]["any"]


def _summary(entry: dict[str, Any]) -> str:
    example = entry["example"]
    return f"{entry['violations']}, first h = {example['h']:.6g}, in float64 {example['h float64']:.6g}"


class _Progress:
    """A line on stderr: how much is done, how long it will take, where it is."""

    def __init__(self, total: float) -> None:
        self.total, self.done, self.started, self.shown = total, 0.0, time.monotonic(), 0.0

    def advance(self, amount: float, label: str, wrong: int) -> None:
        self.done += amount
        now = time.monotonic()
        if now - self.shown < (0.5 if sys.stderr.isatty() else 30):
            return
        self.shown = now
        left = (now - self.started) * (self.total / self.done - 1)
        note = f", {wrong} violations" if wrong else ""
        line = f"{self.done / self.total:6.1%}, {_clock(left)} left: {label}{note}"
        print(f"\r\x1b[K{line}" if sys.stderr.isatty() else line, end="", file=sys.stderr)
        print("", end="" if sys.stderr.isatty() else "\n", file=sys.stderr, flush=True)

    def end(self) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"

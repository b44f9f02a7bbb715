"""How cost grows: time and peak memory against the batch, the dimension and the number of constraints.

Calls of `project`, strict, in float32, forward and forward + backward; along each line one size doubles. Printed are
the slopes on logarithmic axes, fitted by least squares to the last four doublings, beside those that the operations
ask for, and the largest step: by how much a doubling costs more than it should.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from . import environment, growth_tables
from .growth_cells import Memory, clock, keep_freed_memory, seconds, step
from .growth_lines import LARGE, PASSES, SETS, Line, lines
from .results import Results


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which the sizes take turns (default 5)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--quick", action="store_true", help="small sizes only: about half a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="results; a run that was stopped continues there")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw the results in --json, and measure nothing")


def run(args: argparse.Namespace) -> int:
    if args.figure is not None:
        return _draw(args.json, args.figure)
    names = args.sets.split(",")
    unknown = [name for name in names if name not in SETS]
    if unknown:
        raise SystemExit(f"error: --sets {','.join(unknown)}: expected some of {','.join(SETS)}")
    torch.set_num_threads(args.threads)
    facts = environment.describe(args.device) | {"seed": args.seed, "rounds": args.rounds, "quick": args.quick}
    print(environment.show(facts), flush=True)
    results = Results(args.json, facts, every=0.0)
    chosen = [line for line in lines(args.quick) if line.set in names]
    memory = Memory(args.device, args.threads)
    keep_freed_memory()
    for line in chosen:
        if line.name not in results.cells:
            _progress(line.name)
            results.add(line.name, measure(line, args, memory))
    _progress("")
    growth_tables.show(chosen, results.cells)
    if "polytope" in names and not args.quick:
        _large(args, memory, results)
        growth_tables.show_large(results.cells)
    results.write()
    return 0


def measure(line: Line, args: argparse.Namespace, memory: Memory) -> dict[str, Any]:
    """Seconds and bytes of each size, for both passes. Memory first: its processes are others."""
    options = {"seed": args.seed}
    labels = [(name, size) for name in PASSES for size in line.sizes]
    peaks = {}
    for name, size in labels:
        peaks[name, size] = memory.peak(line, size, name, **options)[0]
        _progress(f"{line.name}: memory, {name}, {size}", brief=True)
    _progress(f"{line.name}: time", brief=True)
    steps = {(name, size): step(line, size, name, device=args.device, **options) for name, size in labels}
    times = seconds(steps, args.rounds, clock(args.device))
    return {"sizes": list(line.sizes), "slope": line.slope} | {
        name: {"seconds": [times[name, s] for s in line.sizes], "bytes": [peaks[name, s] for s in line.sizes]}
        for name in PASSES
    }


def _large(args: argparse.Namespace, memory: Memory, results: Results) -> None:
    for dtype in (torch.float32, torch.float64):
        for name in PASSES:
            key = f"large {str(dtype).removeprefix('torch.')} {name}"
            if key not in results.cells:
                _progress(key)
                peak, took = memory.peak(LARGE, LARGE.sizes[0], name, dtype=dtype, seed=args.seed)
                results.add(key, {"seconds": took, "bytes": peak})
    _progress("")


def _draw(source: Path | None, target: Path) -> int:
    if source is None or not source.exists():
        raise SystemExit("error: --figure draws the results of a run: name their file, --json FILE")
    from .growth_figure import draw

    draw(json.loads(source.read_text())["cells"], target)
    return 0


def _progress(text: str, brief: bool = False) -> None:
    """On stderr: one line that changes on a terminal; elsewhere lines, without those that are `brief`."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    elif text and not brief:
        print(text, file=sys.stderr, flush=True)

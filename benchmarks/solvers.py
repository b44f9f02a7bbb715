"""Many convex problems at once: radial descent, batched, against a loop of Clarabel and one of SCS.

Six classes of random problems min c.x over a set. All to the same accuracy |f - f*| <= accuracy (f(x0) - f*) in
every instance, with f* known: radial descent gets as many steps, a solver as tight a tolerance, as a pilot run
shows to be needed. Times are CPU seconds of one process, so one thread is compared with one thread; the variants
take turns, and a ratio is the median over the rounds of (this one / radial descent in the same round).
With --json a killed run continues where it stopped.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from experiments import convex

from . import environment
from .results import Results

CLASSES = ("Lin", "SDP", "SOC", "Norm", "Exp", "LinB")
SOLVERS = ("Clarabel", "SCS")
RADIAL = ("radial (torch)", "radial (jax)")
#: Packages on whose versions the numbers depend, besides those of every benchmark.
PACKAGES = ("jax", "cvxpy", "clarabel", "scs")
QUICK = 5  # instances


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--classes", default=",".join(CLASSES), help="comma-separated (default %(default)s)")
    parser.add_argument("--count", type=int, nargs="+", default=[100, 1000], help="instances (default 100 1000)")
    parser.add_argument("--accuracy", type=float, default=1e-6, help="relative to f(x0) - f* (default 1e-6)")
    parser.add_argument("--rounds", type=int, default=5, help="at most so many (default 5)")
    parser.add_argument(
        "--allowance", type=float, default=15.0, help="CPU seconds after which no round begins (default 15)"
    )
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} instances and at most 2 rounds")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results there, and continue from them")


def run(args: argparse.Namespace) -> int:
    names, counts = args.classes.split(","), [QUICK] if args.quick else args.count
    unknown = [name for name in names if name not in CLASSES]
    if unknown:
        raise SystemExit(f"error: --classes {','.join(unknown)}: expected some of {','.join(CLASSES)}")
    if min(counts) < 1 or args.rounds < 1 or not args.accuracy > 0:
        raise SystemExit("error: --count, --rounds and --accuracy: expected positive numbers")
    if args.quick:
        args.rounds = min(args.rounds, 2)
    torch.set_num_threads(1)
    facts = environment.describe() | {name: version(name) for name in PACKAGES} | {"problems": problems_hash()}
    print(environment.show(facts | {"seed": args.seed, "accuracy": args.accuracy}), flush=True)
    print(NOTE, flush=True)
    fixed = {name: getattr(args, name) for name in ("accuracy", "rounds", "allowance", "seed")}
    results = Results(args.json, fixed | facts)
    for name in names:
        fill(name, counts, args, results)
        for count in counts:
            print(table(name, results.cells[key(name, count)]), flush=True)
    print(overview([(name, results.cells[key(name, count)]) for name in names for count in counts]), flush=True)
    return 0


def problems_hash() -> str:
    """A short hash of the files that the instances depend on: results on other instances are other results."""
    folder = Path(convex.__file__).parent
    files = [(folder / f"{name}.py").read_bytes() for name in ("config", "generators", "optima")]
    return hashlib.sha256(b"\0".join(files)).hexdigest()[:12]


NOTE = """
ms: CPU milliseconds per instance. torch, jax: how many times as long as radial descent there. error: the largest
|f - f*| / (f(x0) - f*); ok: instances within the accuracy; h: the largest h of an answer, positive if outside of the
set. core: the solver's own interface, conic data prepared beforehand, set up and solved anew for each instance.
CVXPY: one problem with Parameters for all instances, analysed once before the timing. Of more than 100 instances, SCS
and CVXPY are measured on the first 100: the time of a loop is linear. Radial descent does not find out by itself when
it is within the accuracy: the number of steps is from a pilot run. Compiling is not in the times of jax; its
first call is given below each table."""


def key(name: str, count: int) -> str:
    return f"{name}|{count}"


def fill(name: str, counts: list[int], args: argparse.Namespace, results: Results) -> None:
    """Measure what is not among the results yet."""
    todo = [count for count in counts if key(name, count) not in results.cells]
    if not todo:
        print(f"\n{name} is in {results.path} already", flush=True)
        return
    from . import solver_race  # here: the other benchmarks need neither JAX nor CVXPY

    say = progress()
    say(f"{name}: {max(todo)} instances are being drawn")
    arrays = solver_race.instances(name, max(todo), args.seed)
    for count in todo:
        some = {field: values[:count] for field, values in arrays.items()}
        cell = solver_race.measure(
            name,
            some,
            args.accuracy,
            args.rounds,
            args.allowance,
            lambda text, count=count: say(f"{name}, {count} instances: {text}"),
        )
        results.add(key(name, count), cell)
        results.write()
    say("")


def ratio(cell: dict[str, Any], label: str, reference: str) -> float:
    """The median over the rounds of (seconds of one / seconds of the other)."""
    pairs = zip(cell["entries"][label]["seconds"], cell["entries"][reference]["seconds"], strict=True)
    return statistics.median(a / b for a, b in pairs)


def table(name: str, cell: dict[str, Any]) -> str:
    """The entries of a class and count, and who wins."""
    entries = cell["entries"]
    rounds = len(next(iter(entries.values()))["seconds"])
    title = f"{name}, {cell['instances']} instances, {cell['variables']} variables, {rounds} round{'s' * (rounds > 1)}"
    lines = ["", f"{title:<46}{'ms':>10}{'torch':>9}{'jax':>9}{'error':>9}{'ok':>11}{'h':>10}"]
    for label, entry in entries.items():
        ratios = "".join(f"{ratio(cell, label, reference):>9.3g}" for reference in RADIAL)
        ok = f"{entry['within']}/{entry['measured']}"
        lines.append(
            f"  {label:<18}{entry['setting']:<26}{1e3 * statistics.median(entry['seconds']):>10.3g}{ratios}"
            f"{entry['worst error']:>9.0e}{ok:>11}{entry['worst h']:>10.0e}"
        )
    later = cell["instances"] * statistics.median(entries["radial (jax)"]["seconds"])
    first = cell["first call"]
    lines.append(f"  first call of jax: {first:.3g} s, a later one {later:.3g} s: {first / later:.3g} times as long")
    return "\n".join([*lines, *verdicts(cell)])


def verdicts(cell: dict[str, Any]) -> list[str]:
    """Who wins against the solvers alone and against the solvers through CVXPY, and by what factor."""
    best, lines = champion(cell), []
    for way in ("core", "CVXPY"):
        factors = {f"{solver}, {way}": ratio(cell, f"{solver}, {way}", best) for solver in SOLVERS}
        rival = min(factors, key=lambda label: factors[label])
        winner, loser, factor = (
            (rival, best, 1 / factors[rival]) if factors[rival] < 1 else (best, rival, factors[rival])
        )
        lines.append(f"  -> {winner} wins, {factor:.3g} times as fast as {loser}")
    missed = [label for label, entry in cell["entries"].items() if entry["within"] < entry["measured"]]
    if missed:
        lines.append(f"  -> not within {cell['accuracy']:.0e} in every instance: {'; '.join(missed)}")
    return lines


def champion(cell: dict[str, Any]) -> str:
    """The faster one of radial descent in torch and in JAX."""
    return min(RADIAL, key=lambda label: ratio(cell, label, RADIAL[0]))


def overview(cells: list[tuple[str, dict[str, Any]]]) -> str:
    """One line per class and count: the times of the solvers over that of the faster radial descent."""
    labels = [f"{solver}, {way}" for solver in SOLVERS for way in ("core", "CVXPY")]
    lines = ["", "Time over that of the faster radial descent: below 1 the solver wins, above 1 radial descent"]
    lines.append(f"{'class':<8}{'instances':>10}  {'faster radial':<18}" + "".join(f"{label:>18}" for label in labels))
    for name, cell in cells:
        best = champion(cell)
        ratios = "".join(f"{ratio(cell, label, best):>18.3g}" for label in labels)
        lines.append(f"{name:<8}{cell['instances']:>10}  {best:<18}{ratios}")
    return "\n".join(lines)


def progress() -> Callable[[str], None]:
    """Show a line on stderr: each one on a terminal, elsewhere one every ten seconds."""
    shown = time.monotonic()

    def say(text: str) -> None:
        nonlocal shown
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif text and time.monotonic() - shown > 10:
            shown = time.monotonic()
            print(text, file=sys.stderr, flush=True)

    return say

"""What generality costs: the library against formulas written by hand, and a training step with and without it.

The part `formulas` is forward and backward alone, `dependent` the same of sets that depend on the input, `networks` a
step of a small network, and `training` a policy update, 240 steps of a dynamics model and an image-sized batch, eager
and compiled, with the ratios that the paper states.

Every number is a ratio of times of one run: the variants take turns, and the median over the rounds of
(time of the variant) / (time of the reference in the same round) is printed, with the quartiles.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

import inset
from inset.torch import Projection

from . import dependent_sets, environment
from .by_hand import SETS, VECTORS, Formula, drawn
from .points import Point, leaves, map_point
from .results import Results
from .training_steps import GOALS, LOOSE, PAPER, RAY, STEPS, STRICT, build, captured

Step = Callable[[], object]
#: The ratios this project holds itself to, for the polytope at batch 512.
BARS = {"project, strict=False": 1.3, "project, strict=True": 1.6}
BATCHES = (1, 32, 512, 8192)
ROUND = 0.02  # seconds that one variant is timed for in one round
LONG_ROUND, LONGEST, FEWEST = 0.1, 30.0, 5  # of training steps: a round, all rounds of a table, and how few they may be


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--parts", default=",".join(PARTS), help="comma-separated (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=25, help="rounds in which the variants take turns (default 25)")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch (default 1)")
    parser.add_argument(
        "--sets", default=",".join(SETS), help="of formulas and networks, comma-separated (default %(default)s)"
    )
    parser.add_argument("--steps", default=",".join(STEPS), help="of training, comma-separated (default %(default)s)")
    parser.add_argument(
        "--device", default="cpu", help="where the steps of training run; the other parts run on the CPU (default cpu)"
    )
    parser.add_argument("--no-compile", action="store_true", help="training in eager mode only: quicker")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the times there; a stopped run goes on from it"
    )


def run(args: argparse.Namespace) -> int:
    parts = _chosen("parts", args.parts, PARTS)
    names, steps = _chosen("sets", args.sets, SETS), _chosen("steps", args.steps, STEPS)
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit(f"error: --device {args.device}: torch sees no GPU here; expected one, or --device cpu")
    torch.set_num_threads(args.threads)
    facts = environment.describe(args.device) | {"seed": args.seed, "rounds": args.rounds}
    print(environment.show(facts), flush=True)
    results = Results(args.json, facts)
    for part in parts:
        PARTS[part](results, steps if part == "training" else names, args)
    results.write()
    return 0


def _chosen(option: str, text: str, known: Iterable[str]) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"error: --{option} {','.join(unknown)}: expected some of {','.join(known)}")
    return names


def formulas(results: Results, names: list[str], args: argparse.Namespace) -> None:
    print("\nForward and backward against the formula by hand, n = 50, m = 50, float64, method chord")
    for name in names:
        for batch in BATCHES:
            torch.manual_seed(args.seed)
            title, bars = f"{name}, batch {batch}", BARS if (name, batch) == ("polytope", 512) else {}
            _table(results, "formulas", title, bars, lambda n=name, b=batch: timed(layer_steps(n, b), args.rounds))


def dependent(results: Results, names: list[str], args: argparse.Namespace) -> None:
    sizes = f"n = {dependent_sets.DIMENSION}, m = {dependent_sets.ROWS}"
    print(f"\nThe same with a set for each sample, and derivatives by its fields, {sizes}, float32")
    for name in [name for name in names if name in dependent_sets.SETS]:
        for batch in BATCHES:
            torch.manual_seed(args.seed)
            title = f"{name} for each, batch {batch}"

            def measure(name: str = name, batch: int = batch) -> dict[str, list[float]]:
                return timed(dependent_sets.steps(name, batch), args.rounds)

            _table(results, "dependent", title, {}, measure)


def networks(results: Results, names: list[str], args: argparse.Namespace) -> None:
    print("\nOne training step (Adam) of a network 64-256-256-50 against the same network without the layer, float32")
    for name in [name for name in names if name in VECTORS]:
        for batch in (32, 512):
            torch.manual_seed(args.seed)
            title = f"{name}, batch {batch}"
            _table(results, "networks", title, {}, lambda n=name, b=batch: timed(network_steps(n, b), args.rounds))


def training(results: Results, names: list[str], args: argparse.Namespace) -> None:
    print("\nIn a training step: one step of Adam against the same without the layer, float32")
    for name in names:
        for mode in _modes(args):
            title = f"{name}, {mode}" + (f" (paper {PAPER[name]})" if name in PAPER else "")
            bars: dict[str, float] = dict.fromkeys((STRICT, LOOSE, RAY), GOALS[mode])

            def measure(name: str = name, mode: str = mode) -> dict[str, list[float]]:
                trainees = build(name, mode, args.device, args.seed)
                steps = {k: captured(v) for k, v in trainees.items()} if mode == "captured" else trainees
                return timed(steps, args.rounds, args.device, LONG_ROUND, LONGEST)

            try:
                _table(results, "training", title, bars, measure)
            except Exception as error:
                if mode == "eager":
                    raise
                print(f"\n{title}: {_first_line(error)}", flush=True)


def _modes(args: argparse.Namespace) -> list[str]:
    """How training steps are run."""
    modes = ["eager"] if args.no_compile else ["eager", "compiled"]
    return [*modes, "captured"] if args.device.startswith("cuda") else modes


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


# -- what is timed -----------------------------------------------------------------------------------------------


def layer_steps(name: str, batch: int) -> dict[str, Step]:
    """Forward and backward by hand (first: the reference), by `project` and by the layer; same numbers."""
    set, anchor, by_hand = SETS[name]()
    x = drawn(anchor, batch)
    cotangent = map_point(torch.randn_like, x)
    loose, tight = Projection(set, anchor, strict=False), Projection(set, anchor)
    functions = by_hand | {
        "project, strict=False": lambda x: inset.project(set, x, anchor, strict=False),
        "project, strict=True": lambda x: inset.project(set, x, anchor),
        "Projection, strict=False": loose,
        "Projection, strict=True": tight,
    }
    reference = by_hand["by hand"]
    for function in functions.values():
        torch.testing.assert_close(function(x), reference(x), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(_pull(function, x, cotangent), _pull(reference, x, cotangent), rtol=1e-5, atol=1e-5)
    return {label: _backward(function, x, cotangent) for label, function in functions.items()}


def network_steps(name: str, batch: int) -> dict[str, Step]:
    """One optimiser step of the network alone (the reference) and with the layer."""
    set, anchor, _ = SETS[name]()
    layers: dict[str, nn.Module] = {
        "without the layer": nn.Identity(),
        "with it, strict=False": Projection(set, anchor, strict=False).float(),
        "with it, strict=True": Projection(set, anchor).float(),
    }
    x, target = torch.randn(batch, 64), 3 * torch.randn(batch, 50)
    return {label: _train(layer, x, target) for label, layer in layers.items()}


def _pull(function: Formula, x: Point, cotangent: Point) -> tuple[Tensor, ...]:
    return torch.autograd.grad(leaves(function(x)), leaves(x), leaves(cotangent))


def _backward(function: Formula, x: Point, cotangent: Point) -> Step:
    return lambda: _pull(function, x, cotangent)


def _train(layer: nn.Module, x: Tensor, target: Tensor) -> Step:
    hidden = (nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 50))
    network = nn.Sequential(*hidden, layer)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        (network(x) - target).square().mean().backward()
        optimizer.step()

    return step


# -- how it is timed and shown -----------------------------------------------------------------------------------


def timed(
    steps: Mapping[str, Step], rounds: int, device: str = "cpu", turn: float = ROUND, most: float = 1e9
) -> dict[str, list[float]]:
    """Seconds per call of each step in each round; the order within a round is random.

    A round takes about `turn` seconds of each step; there are fewer of them if they would take more than `most`.
    """
    calls, whole = {}, 0.0
    for label, step in steps.items():
        _seconds(step, 3, device)
        once = _seconds(step, 1, device)
        calls[label] = max(1, round(turn / once))
        whole += calls[label] * once
    order, seconds = list(steps), {label: [] for label in steps}
    shuffle = random.Random(0).shuffle
    for _ in range(min(rounds, max(FEWEST, int(most / whole)))):
        shuffle(order)
        for label in order:
            seconds[label].append(_seconds(steps[label], calls[label], device))
    return seconds


def _seconds(step: Step, calls: int, device: str) -> float:
    """Of one call, until a GPU has done what it was given; those of the processor, where one thread does all."""
    gpu = device.startswith("cuda")
    clock = time.perf_counter if gpu or torch.get_num_threads() > 1 else time.process_time
    start = clock()
    for _ in range(calls):
        step()
    if gpu:
        torch.cuda.synchronize()
    return (clock() - start) / calls


def _table(
    results: Results, part: str, title: str, bars: Mapping[str, float], measure: Callable[[], dict[str, list[float]]]
) -> None:
    key = f"{part}: {title}"
    if key not in results.cells:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{title} ...", end="", file=sys.stderr, flush=True)
        try:
            results.add(key, measure())
        finally:
            if sys.stderr.isatty():
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    seconds: dict[str, list[float]] = results.cells[key]
    reference, *variants = seconds
    base = seconds[reference]
    print(f"\n{title:<32}{'microseconds':>12}{'ratio':>8}{'quartiles':>15}{'bar':>9}")
    print(f"  {reference:<30}{1e6 * statistics.median(base):>12.1f}{1:>8.2f}")
    for label in variants:
        ratios = [a / b for a, b in zip(seconds[label], base, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        bar = f"<= {bars[label]}" if label in bars else ""
        spread = f"{low:.2f} - {high:.2f}"
        time_ = 1e6 * statistics.median(seconds[label])
        print(f"  {label:<30}{time_:>12.1f}{middle:>8.2f}{spread:>15}{bar:>9}", flush=True)


PARTS = {"formulas": formulas, "dependent": dependent, "networks": networks, "training": training}

"""Learning curves: policies trained through `inset.torch.TrustRegion`, by natural gradient, and by TRPO of sb3-contrib.

    python -m examples.learning_curve run --env Pendulum-v1 --method trust_region --seeds 5
    python -m examples.learning_curve figure

`run` makes each run of (environment, method, seed) that is not in --out yet, one after another: a file of arrays with a
value per update, and a manifest. It can be stopped at any time, and goes on with the run that was not finished.
`figure` draws all that are there and prints a table.

Methods: trust_region is Adam through the layer; natural is natural gradient in the same code (see train.py); trpo is
the one of sb3-contrib, with the tuned settings of rl-baselines3-zoo, and needs `pip install -e '.[examples]'`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import trpo
from .train import SETTINGS, UPDATES, train

STEPS = {"Pendulum-v1": 102_400, "BipedalWalker-v3": 307_200}
METHODS = (*UPDATES, "trpo")
OUT = Path("runs/learning_curve")
UNUSED = {"trust_region": ("cg_steps", "cg_damping"), "natural": ("epochs", "minibatch", "rate", "spread_rate")}
"""Settings that a method does not look at."""
PACKAGES = ("inset", "numpy", "torch", "gymnasium", "box2d", "stable-baselines3", "sb3-contrib")


def plan(name: str, method: str, seed: int, steps: int) -> dict[str, Any]:
    """What makes a run what it is, as its manifest begins."""
    own = {key: value for key, value in asdict(SETTINGS[name]).items() if key not in UNUSED.get(method, ())}
    settings, batch = (trpo.settings(name), trpo.BATCH) if method == "trpo" else (own, SETTINGS[name].batch)
    return {
        "environment": name,
        "method": method,
        "seed": seed,
        "updates": -(-steps // batch),
        "batch": batch,
        "settings": settings,
    }


def is_done(out: Path, wanted: dict[str, Any]) -> bool:
    """Whether the run is there; another run under its name is an error."""
    manifest = out / f"{stem(wanted)}.json"
    if not manifest.exists():
        return False
    found = json.loads(manifest.read_text())
    other = [key for key in wanted if found.get(key) != wanted[key]]
    if other:
        raise SystemExit(f"{manifest} is a run with other {' and '.join(other)}: remove it, or choose another --out")
    return True


def stem(run: dict[str, Any]) -> str:
    return f"{run['environment']}-{run['method']}-{run['seed']}"


def make(out: Path, wanted: dict[str, Any]) -> None:
    """One run, from its start; the manifest is written last."""
    name, method, seed, count = (wanted[key] for key in ("environment", "method", "seed", "updates"))
    updates = trpo.train(name, seed, count) if method == "trpo" else train(name, method, seed, count, SETTINGS[name])
    start = time.monotonic()
    columns = record(watched(updates, wanted))
    manifest = {**wanted, "seconds": round(time.monotonic() - start), "versions": versions()}
    out.mkdir(parents=True, exist_ok=True)
    partial = out / f".{stem(wanted)}.{os.getpid()}"
    with partial.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **columns)
    partial.replace(out / f"{stem(wanted)}.npz")
    partial.write_text(json.dumps(manifest, indent=1) + "\n")
    partial.replace(out / f"{stem(wanted)}.json")


def record(updates: Iterator[tuple[list[float], float, float]]) -> dict[str, np.ndarray]:
    """Per update: how many episodes ended, the sum of their returns, the mean KL and the gain."""
    rows = [(len(returns), sum(returns), kl, gain) for returns, kl, gain in updates]
    episodes, returns, kl, gain = (np.asarray(column, np.float64) for column in zip(*rows, strict=True))
    return {"episodes": episodes.astype(np.int32), "returns": returns, "kl": kl, "gain": gain.astype(np.float32)}


def watched(updates: Iterator[Any], run: dict[str, Any]) -> Iterator[Any]:
    """The same, with progress on stderr: a bar on a terminal, elsewhere a line now and then."""
    title, total = stem(run), run["updates"]
    start = said = time.monotonic()
    mean = float("nan")
    for done, update in enumerate(updates, 1):
        mean = float(np.mean(update[0])) if update[0] else mean
        now = time.monotonic()
        text = f"{done * run['batch']} steps, return {mean:.0f}, {now - start:.0f} s"
        if sys.stderr.isatty():
            bar = ("#" * (30 * done // total)).ljust(30, ".")
            print(f"\r{title} [{bar}] {text:<50}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif done == total or now - said > 30:
            said = now
            print(f"{title}: {text}", file=sys.stderr, flush=True)
        yield update


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m examples.learning_curve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="run|figure")
    run = commands.add_parser("run", help="make the runs that are missing")
    figure = commands.add_parser("figure", help="draw the runs that are there")
    lengths = ", ".join(f"{steps} for {name}" for name, steps in STEPS.items())
    for option, known in (("--env", list(SETTINGS)), ("--method", list(METHODS))):
        text = f"one or more of {', '.join(known)}; default: all"
        run.add_argument(option, nargs="+", choices=known, default=known, metavar="NAME", help=text)
    run.add_argument("--steps", type=int, metavar="N", help=f"of the environment, in each run; default: {lengths}")
    run.add_argument("--seeds", type=int, default=5, metavar="N", help="runs with seeds 0, ..., N - 1; default: 5")
    for command in (run, figure):
        command.add_argument(
            "--out", type=Path, default=OUT, metavar="DIR", help="folder of the runs; default: %(default)s"
        )
    figure.add_argument("--figure", type=Path, metavar="FILE", help="an SVG; default: learning_curve.svg in --out")
    args = parser.parse_args(argv)
    for option in ("steps", "seeds"):
        if getattr(args, option, None) is not None and getattr(args, option) < 1:
            parser.error(f"--{option} {getattr(args, option)}: expected a positive number")
    return args


def main(argv: list[str] | None = None) -> None:
    args = parse(argv)
    if args.command == "figure":
        from .figure import draw

        return draw(args.out, args.figure or args.out / "learning_curve.svg")
    torch.set_num_threads(1)  # the networks are small
    cells = itertools.product(args.env, range(args.seeds), args.method)
    runs = [plan(name, method, seed, args.steps or STEPS[name]) for name, seed, method in cells]
    missing = [run for run in runs if not is_done(args.out, run)]
    print(f"{len(runs) - len(missing)} of {len(runs)} runs are already in {args.out}", file=sys.stderr)
    if any(run["method"] == "trpo" for run in missing):
        trpo.packages()  # rather now than after the first runs
    for run in missing:
        make(args.out, run)


if __name__ == "__main__":
    main()

"""Layers of others on the same sets: time, memory, violations, displacement and transforms, side by side.

RAYEN, Pi-net, cvxpylayers (diffcp, Moreau), qpth, ProxQP's layer and the published formulas of trust-region-layers
against `Projection`, the same points.
Each cell is a process of its own, in which the peer takes turns with inset's layers; a ratio is the median over the
rounds of (this layer / that of inset in the same round). A peer that fails is reported with its error.
With --json a killed run continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from experiments.common.environment import package_version

from . import environment, peers_tables
from .peers_cell import Order, command, missing
from .peers_layers import PEERS
from .peers_process import isolated
from .peers_sets import SETS, Kind
from .results import Results

BATCHES = (1, 512, 8192)
SMALL = "polytope-10-20"  # where the transforms are tried
STOPPED = ("no result within", "more than")  # how the error of a cell begins that was killed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated (default %(default)s)")
    parser.add_argument("--layers", default=",".join(("inset", *PEERS)), help="comma-separated (default %(default)s)")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)), help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=15, help="at most so many (default 15)")
    parser.add_argument("--threads", type=int, default=1, help="threads, and cores, of each process (default 1)")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument("--dtype", default="float64", choices=("float64", "float32"), help="default float64")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds that a cell may take (default 120)")
    parser.add_argument("--memory", type=float, default=12.0, help="GB that a cell may take (default 12)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results there, and continue from them")
    parser.add_argument("--show", action="store_true", help="measure nothing; print what --json holds")
    parser.add_argument(
        "--earlier",
        type=Path,
        metavar="FILE",
        help="with --show and --figure: an earlier run, for sets that --json lacks",
    )
    parser.add_argument("--figure", type=Path, metavar="FILE", help="measure nothing; draw what --json holds as SVG")


def run(args: argparse.Namespace) -> int:
    if args.show or args.figure is not None:
        return show(args)
    names = _chosen("--sets", args.sets, tuple(SETS))
    layers = _chosen("--layers", args.layers, ("inset", *PEERS))
    batches = [int(batch) for batch in args.batches.split(",")]
    if min(batches) < 1 or args.rounds < 1 or args.threads < 1:
        raise SystemExit("error: --batches, --rounds and --threads: expected positive numbers")
    torch.set_num_threads(args.threads)
    facts = environment.describe(args.device) | versions() | {"seed": args.seed, "rounds": args.rounds}
    facts |= {"dtype": args.dtype}
    print(f"{environment.show(facts)}\n{peers_tables.NOTE}", flush=True)
    results = Results(args.json, facts, every=0.0)
    fill(orders(names, layers, batches, args), args, results)
    print(peers_tables.everything(names, batches, results.cells), flush=True)
    return 0


def show(args: argparse.Namespace) -> int:
    """Print, or draw, what was measured."""
    files = [path for path in (args.json, args.earlier) if path is not None]
    if args.json is None or not all([path.exists() for path in files]):
        raise SystemExit("error: --show and --figure want the results in --json FILE, which has to exist")
    cells: peers_tables.Cells = {}
    about = ""
    for found in [json.loads(path.read_text()) for path in files]:
        known = {key.split("|")[0] for key in cells}
        own = {key: cell for key, cell in found["cells"].items() if key.split("|")[0] not in known}
        names = [name for name in SETS if any([key.startswith(f"{name}|") for key in own])]
        about += f"{environment.show(found['settings'])}\nsets:         {', '.join(names)}\n\n"
        cells |= own
    if args.figure is not None:
        from . import peers_figure  # here: only it needs matplotlib

        peers_figure.draw(cells, args.figure)
    if args.show:
        print(f"{about}{peers_tables.NOTE}\n{peers_tables.everything(list(SETS), list(BATCHES), cells)}")
    return 0


def _chosen(option: str, text: str, known: tuple[str, ...]) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"error: {option} {','.join(unknown)}: expected some of {','.join(known)}")
    return names


def versions() -> dict[str, str]:
    """Of the packages of the peers."""
    packages = {package for peer in PEERS.values() for package in peer.packages}
    return {package: package_version(package) for package in ("jax", "cvxpy", *sorted(packages))}


def orders(names: list[str], layers: list[str], batches: list[int], args: argparse.Namespace) -> dict[str, Order]:
    """What is to be measured, by the name of the cell: each layer on the sets that it can do, and its transforms."""
    shared = {name: getattr(args, name) for name in ("rounds", "threads", "seed", "device", "dtype")}
    plan = {}
    for name in names:
        able = [layer for layer in layers if _can(layer, SETS[name].kind)]
        for batch in batches:
            plan |= {peers_tables.key(name, batch, layer): Order(layer, name, batch, **shared) for layer in able}
    tried = [layer for layer in layers if layer != "near" and _can(layer, SETS[SMALL].kind)]
    return plan | {peers_tables.key("transforms", 0, layer): Order(layer, SMALL, 0, **shared) for layer in tried}


def _can(layer: str, kind: Kind) -> bool:
    return layer == "inset" or kind in PEERS[layer].kinds


def fill(plan: dict[str, Order], args: argparse.Namespace, results: Results) -> None:
    """Measure what is not among the results yet, and what was stopped earlier than it would be now."""
    todo = {name: order for name, order in plan.items() if _open(results.cells.get(name), args.timeout)}
    for count, (name, order) in enumerate(todo.items()):
        start = time.monotonic()
        reason = hopeless(order, results.cells)
        cell = {"error": reason} if reason else in_process(order, args)
        if "error" in cell:
            cell["timeout"] = args.timeout
        results.add(name, cell)
        said = cell.get("error", "done")
        print(f"{count + 1}/{len(todo)} {name}: {said}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    results.write()


def hopeless(order: Order, cells: dict[str, Any]) -> str:
    """Why a cell is not even tried: a package is missing, or fewer points were too many already."""
    absent = missing(order.layer)
    if absent:
        return f"not installed: {', '.join(absent)}"
    for batch in BATCHES:
        error = cells.get(peers_tables.key(order.set, batch, order.layer), {}).get("error", "")
        if 0 < batch < order.batch and error.startswith(STOPPED):
            return f"{error}, at batch {batch} already" if "batch" not in error else error
    return ""


def _open(cell: dict[str, Any] | None, timeout: float) -> bool:
    return cell is None or (cell.get("error", "").startswith(STOPPED) and cell["timeout"] < timeout)


def in_process(order: Order, args: argparse.Namespace) -> dict[str, Any]:
    return isolated(command(order), args.timeout, args.memory, args.threads)

"""How near the layer is to what a GPU can do: to a copy of its points, or to its own matrix product.

Every number is a ratio of times of one run on the device, in turns. Work is queued behind a matrix product that keeps
the device busy, so that what is measured is the device; what a call costs the host is shown beside it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import inset
from inset.torch import Projection

from . import environment
from .results import Results

Job = Callable[[], object]
Algebra = Callable[[Tensor], Tensor]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
FORWARD, BOTH = 0.8, 0.7
"""The shares of the bandwidth of a copy that this project holds itself to."""
PRODUCT, PRODUCTS, ALGEBRA = 1.25, 2.2, 1.3
"""And how many times the matrix product, forward and there and back, and the linear algebra."""
CALLS = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="cuda", help="default cuda; cpu for a look at the ratios there")
    parser.add_argument("--elements", type=float, default=2**26, help="of x in each cell (default 2^26)")
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated (default %(default)s)")
    parser.add_argument("--dimensions", default="4,16,64,256,1024", help="default %(default)s")
    parser.add_argument("--rounds", type=int, default=11, help="in which the variants take turns (default 11)")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the cells there; a stopped run goes on from it"
    )


def run(args: argparse.Namespace) -> int:
    names = args.sets.split(",")
    if unknown := [name for name in names if name not in SETS]:
        raise SystemExit(f"error: --sets {','.join(unknown)}: expected some of {','.join(SETS)}")
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit(f"error: --device {args.device}: torch sees no GPU here; expected one, or --device cpu")
    facts = environment.describe(args.device) | {"seed": args.seed, "elements": int(args.elements)}
    print(environment.show(facts), flush=True)
    results = Results(args.json, facts)
    _vectors(results, names, args)
    _matrices(results, args)
    results.write()
    return 0


def _vectors(results: Results, names: list[str], args: argparse.Namespace) -> None:
    """Sets that are bound by bandwidth."""
    print(
        "\nShare of the bandwidth of a copy, strict: forward, which reads x and writes y, and there and back, which\n"
        f"has to read x and g and to write y and dx (goals {FORWARD:.0%} and {BOTH:.0%}); microseconds of a call on\n"
        "the host\n"
    )
    print(f"{'set':<14}{'d':>6} {'dtype':<10}{'forward':>9}{'both':>8}{'host':>8}")
    for name in names:
        for d in map(int, args.dimensions.split(",")):
            for dtype in DTYPES:
                key = f"{name}-{d}-{dtype}"
                if key not in results.cells:
                    results.add(key, _vector_cell(name, d, DTYPES[dtype], args))
                cell = results.cells[key]
                print(
                    f"{name:<14}{d:>6} {dtype:<10}{_share(cell['forward'])}{_share(cell['both'])}{cell['host']:>8.0f}"
                )


def _share(value: float) -> str:
    return f"{value:>8.0%} "


def _vector_cell(name: str, d: int, dtype: torch.dtype, args: argparse.Namespace) -> dict[str, float]:
    torch.manual_seed(args.seed)
    count = max(1, int(args.elements) // d)
    set, anchor, x = SETS[name](d, count, args.device)
    layer = Projection(set, anchor)
    x = tuple(v.to(dtype) for v in x) if isinstance(x, tuple) else x.to(dtype)
    leaves = x if isinstance(x, tuple) else (x,)
    targets = [torch.empty_like(v) for v in leaves]
    live = [v.clone().requires_grad_() for v in leaves]
    g = [torch.randn_like(v) for v in leaves]

    def copy() -> None:
        for target, leaf in zip(targets, leaves, strict=True):
            target.copy_(leaf)

    def forward() -> None:
        with torch.no_grad():
            layer(x)

    def both() -> None:
        y = layer(tuple(live) if isinstance(x, tuple) else live[0])
        torch.autograd.grad(y if isinstance(y, tuple) else (y,), live, g)

    times = measured({"copy": copy, "forward": forward, "both": both}, args.rounds, args.device)
    return {
        "forward": _median(c / f for c, f in zip(times["copy"], times["forward"], strict=True)),
        "both": _median(2 * c / b for c, b in zip(times["copy"], times["both"], strict=True)),
        "host": 1e6 * hosted(forward, args.device),
        "copy": statistics.median(times["copy"]),
    }


def _matrices(results: Results, args: argparse.Namespace) -> None:
    """Sets that are bound by linear algebra."""
    print(
        "\nTimes the linear algebra alone, float32: forward, there and back, and there and back over the algebra with\n"
        f"its own derivative (goals for the polytope {PRODUCT} and {PRODUCTS}, for cones and matrices {ALGEBRA})\n"
    )
    print(f"{'set':<26}{'forward':>9}{'both':>8}{'both / both':>13}")
    for name, make in MATRICES.items():
        for strict in (False, True):
            key = f"{name}{', strict' if strict else ''}"
            if key not in results.cells:
                results.add(key, _matrix_cell(make, strict, args))
            cell = results.cells[key]
            print(f"{key:<26}{cell['forward']:>9.2f}{cell['both']:>8.2f}{cell['both / both']:>13.2f}")


def _matrix_cell(make: Callable[..., Any], strict: bool, args: argparse.Namespace) -> dict[str, float]:
    torch.manual_seed(args.seed)
    set, x, algebra = make(args.elements, args.device)
    layer, live, g = (
        Projection(set, torch.zeros_like(x[0]), strict=strict),
        x.clone().requires_grad_(),
        torch.randn_like(x),
    )

    with torch.no_grad():
        pull = torch.randn_like(algebra(x))

    jobs: dict[str, Job] = {
        "algebra": torch.no_grad()(lambda: algebra(x)),
        "algebra and back": lambda: torch.autograd.grad(algebra(live), live, pull),
        "forward": torch.no_grad()(lambda: layer(x)),
        "both": lambda: torch.autograd.grad(layer(live), live, g),
    }
    times = measured(jobs, args.rounds, args.device)

    def ratio(job: str, to: str) -> float:
        return _median(a / b for a, b in zip(times[job], times[to], strict=True))

    ratios = {"forward": ratio("forward", "algebra"), "both": ratio("both", "algebra")}
    ratios["both / both"] = ratio("both", "algebra and back")
    return ratios | {"algebra": statistics.median(times["algebra"])}


# -- the sets ----------------------------------------------------------------------------------------------------


def _points(count: int, d: int, device: str, size: float) -> Tensor:
    """Half of them longer than size, about."""
    return torch.randn(count, d, device=device) * (size / d**0.5 * 2 ** (2 * torch.rand(count, 1, device=device) - 1))


def ball(d: int, count: int, device: str) -> tuple[inset.ConvexSet, Tensor, Tensor]:
    center = torch.zeros(d, device=device)
    return inset.Ball(center, 1.0), center, _points(count, d, device, 1.0)


def ellipsoid(d: int, count: int, device: str) -> tuple[inset.ConvexSet, Tensor, Tensor]:
    center, axes = torch.zeros(d, device=device), 0.5 + torch.rand(d, device=device)
    return inset.Ellipsoid(center, 1 / axes, diagonal=True), center, _points(count, d, device, 1.0)


def box(d: int, count: int, device: str) -> tuple[inset.ConvexSet, Tensor, Tensor]:
    upper = 0.5 + torch.rand(d, device=device)
    return inset.Box(-upper, upper), torch.zeros(d, device=device), _points(count, d, device, 0.5 * d**0.5)


def simplex(d: int, count: int, device: str) -> tuple[inset.ConvexSet, Tensor, Tensor]:
    return inset.Simplex(d), torch.full((d,), 1 / d, device=device), 1 / d + _points(count, d, device, 1 / d**0.5)


def strings(d: int, count: int, device: str) -> tuple[inset.ConvexSet, Tensor, Tensor]:
    """A chain in the plane."""
    bodies = d // 2
    links = torch.stack([torch.arange(bodies - 1), torch.arange(1, bodies)], -1).to(device)
    anchor = torch.zeros(1, 2, device=device).expand(bodies, 2)
    return inset.Strings(links, 1.0), anchor, _points(count, d, device, 0.5 * d**0.5).reshape(count, bodies, 2)


def gaussian(d: int, count: int, device: str) -> tuple[Any, Any, Any]:
    """A policy for each state, with half as many actions as d: means and log-stds."""
    old = torch.zeros(d // 2, device=device), torch.zeros(d // 2, device=device)
    region = inset.GaussianKL(*old, 0.05, average=False, parameterization="log_std")
    mean, spread = (_points(count, d // 2, device, 0.2) for _ in range(2))
    return region, old, (mean, spread)


SETS: dict[str, Callable[..., Any]] = {
    "ball": ball,
    "box": box,
    "ellipsoid": ellipsoid,
    "simplex": simplex,
    "strings": strings,
    "gaussian": gaussian,
}


def polytope(elements: float, device: str) -> tuple[inset.ConvexSet, Tensor, Algebra]:
    A, b = torch.randn(256, 64, device=device), 4 + torch.rand(256, device=device) * 8
    x = torch.randn(int(elements) // 256, 64, device=device)
    return inset.Polytope(A, b), x, lambda x: x @ A.mT


def cones(elements: float, device: str) -> tuple[inset.ConvexSet, Tensor, Algebra]:
    """16 cones |A x + b| <= c.x + d of 4 rows in 64 dimensions."""
    A, c = torch.randn(16, 4, 64, device=device), torch.randn(16, 64, device=device)
    x = torch.randn(int(elements) // 1024, 64, device=device)
    together = torch.cat([A.reshape(64, 64), c])
    set = inset.SecondOrderCone(A, torch.zeros(16, 4, device=device), c, 12 + torch.rand(16, device=device))
    return set, x, lambda x: x @ together.mT


def lmi(elements: float, device: str) -> tuple[inset.ConvexSet, Tensor, Algebra]:
    """sum x_i F_i <= C, matrices of 10 rows; the linear algebra is that sum and its eigenvectors."""
    F = torch.randn(10, 10, 10, device=device)
    F, C = F + F.mT, -20 * torch.eye(10, device=device)
    x = torch.randn(int(elements) // 2**14, 10, device=device)
    return inset.LMI(F, C), x, lambda x: torch.linalg.eigh(torch.einsum("ni,ijk->njk", x, F) + C)[0]


MATRICES = {"polytope (64, 256)": polytope, "cones (16 x 4, 64)": cones, "lmi (10 x 10)": lmi}


# -- the clock ---------------------------------------------------------------------------------------------------


def measured(jobs: dict[str, Job], rounds: int, device: str) -> dict[str, list[float]]:
    """Seconds of a call of each, by rounds."""
    for job in jobs.values():  # compiles what is to be compiled
        job()
        job()
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            times[name].append(_seconds(job, device))
    return times


def _seconds(job: Job, device: str) -> float:
    if not device.startswith("cuda"):
        start = time.perf_counter()
        job()
        return time.perf_counter() - start
    busy, busy_too = (torch.zeros(8192, 8192, device=device) for _ in range(2))
    torch.cuda.synchronize()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.mm(busy, busy, out=busy_too)  # about 20 ms, in which the calls are queued
    start.record()
    for _ in range(CALLS):
        job()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 1e3 / CALLS


def hosted(job: Job, device: str) -> float:
    """Seconds that a call keeps the host busy."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    start = time.perf_counter()
    job()
    seconds = time.perf_counter() - start
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    return seconds


def _median(values: Any) -> float:
    return statistics.median(list(values))

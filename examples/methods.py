"""The four methods on a polygon, and what they cost where the nearest point matters.

    python examples/methods.py [--out DIR]

Draws `methods.svg`: points outside of a polygon, and where each method puts them. Then prints a table for a problem of
100 variables, 50 equalities and 50 inequalities: how far from x the result is, how far from the nearest point, and how
long forward and backward take.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes

from inset import Ball, ConvexSet, Equality, Method, Near, Polytope, project

# Okabe and Ito's colours, and a marker of its own for each method: neither is needed to read the other
LOOKS: dict[str, dict[str, Any]] = {
    "paper": {"color": "#E69F00", "marker": "^", "ms": 6},
    "chord": {"color": "#0072B2", "marker": "D", "ms": 4},
    "ray": {"color": "#009E73", "marker": "o", "ms": 9, "mfc": "none", "mew": 1.4},
    "near": {"color": "#CC79A7", "marker": "s", "ms": 6},
}


def draw(ax: Axes, title: str, set: ConvexSet, anchor: np.ndarray, x: np.ndarray) -> None:
    grid = np.stack(np.meshgrid(np.linspace(-2, 2, 401), np.linspace(-2, 2, 401)), axis=-1)
    h = set.h(grid)
    ax.contourf(grid[..., 0], grid[..., 1], h, levels=[-1e9, 0], colors=["#e8eef4"])
    ax.contour(grid[..., 0], grid[..., 1], h, levels=[0], colors=["#44546a"], linewidths=1.2)
    for point, y in zip(x, project(set, x, anchor, method=Near(200)), strict=True):
        ax.plot(*zip(point, anchor, strict=True), color="#9a9a9a", lw=0.7, zorder=1)
        ax.plot(*zip(point, y, strict=True), color=LOOKS["near"]["color"], lw=0.7, ls=":", zorder=1)
    ax.plot(*x.T, "x", color="black", ms=5, zorder=3, label="x, outside")
    for method, look in LOOKS.items():
        y = project(set, x, anchor, method=method)  # type: ignore[arg-type]
        ax.plot(*y.T, ls="", **look, zorder=4, label=f"g(x), {method}")
    ax.plot(*anchor, "*", color="black", ms=11, zorder=5, label="anchor")
    ax.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal", xticks=[], yticks=[], title=title)
    ax.spines[:].set_visible(False)


def figure(path: Path) -> None:
    mpl.rcParams.update({"svg.hashsalt": "inset", "font.size": 9, "axes.titlesize": 10, "legend.frameon": False})
    A = np.array([[1.0, 0.25], [0.3, 1.0], [-2.0, 1.2], [-0.6, -1.0], [0.5, -0.8]])
    polygon = Polytope(A, np.array([1.0, 0.8, 1.9, 0.8, 0.8]))
    angle = 0.1 + 2 * np.pi * np.arange(7) / 7
    x = 1.75 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    canvas, axes = plt.subplots(1, 2, figsize=(8.4, 4.6), layout="constrained")
    draw(axes[0], "polygon", polygon, np.array([-0.35, 0.0]), x)
    draw(axes[1], "polygon and disc", polygon & Ball(np.zeros(2), 0.9), np.array([-0.35, 0.0]), x)
    canvas.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    path.parent.mkdir(parents=True, exist_ok=True)
    canvas.savefig(path, format="svg", metadata={"Date": None})
    plt.close(canvas)


def problem(batch: int) -> tuple[ConvexSet, torch.Tensor, torch.Tensor]:
    """{A y = b, G y <= h} with one b per sample; points thrown from the anchor, on the plane of the equalities."""
    rng = np.random.default_rng(17)
    A, G = rng.normal(size=(50, 100)), rng.normal(size=(50, 100))
    inverse = np.linalg.pinv(A)
    b, h = rng.uniform(-1, 1, size=(batch, 50)), np.abs(G @ inverse).sum(1)
    noise = 3 * rng.normal(size=(batch, 100))
    anchor = b @ inverse.T
    A, b, G, h, anchor, x = (torch.as_tensor(v) for v in (A, b, G, h, anchor, anchor + noise - noise @ A.T @ inverse.T))
    return Polytope(G, h) & Equality(A, b), anchor, x


def seconds(set: ConvexSet, x: torch.Tensor, anchor: torch.Tensor, method: Method) -> float:
    """CPU time of forward and backward, the least of a few runs."""
    times = []
    for _ in range(5):
        point = x.clone().requires_grad_()
        start = time.process_time()
        project(set, point, anchor, method=method).square().sum().backward()
        times.append(time.process_time() - start)
    return min(times)


def table(batch: int = 512) -> None:
    torch.set_num_threads(1)
    set, anchor, x = problem(batch)
    nearest = project(set, x, anchor, method=Near(1000))
    least = (nearest - x).norm(dim=1)
    print(f"{'method':10s} |g(x) - x|   from the nearest point   largest h   CPU ms there and back, batch {batch}")
    methods: list[Method] = ["paper", "chord", "ray", Near(5), Near(10), "near", Near(40)]
    for method in methods:
        y = project(set, x, anchor, method=method)
        far, off = ((y - v).norm(dim=1) / least for v in (x, nearest))
        name = f"Near({method.steps})" if isinstance(method, Near) else method
        took = 1000 * seconds(set, x, anchor, method)
        print(f"{name:10s} {far.mean():10.4f} {off.mean():24.1e} {set.h(y).max():+11.1e} {took:12.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the four methods, and print what they cost.")
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="where to draw (default: demo)")
    out = parser.parse_args().out
    figure(out / "methods.svg")
    print(out / "methods.svg")
    table()


if __name__ == "__main__":
    main()

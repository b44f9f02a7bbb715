"""The demonstration: what the projections do to points, and a network trained under constraints.

    python examples/demo.py [--quick] [--out DIR]

Draws `sets.svg` and `training.svg`, writes them into one self-contained page, `report.html`, and prints its path.
"""

from __future__ import annotations

import argparse
import html
import importlib.metadata
import io
import os
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor, nn

from inset import Ball, ConvexSet, Ellipsoid, ExponentialCone, Polytope, Sublevel, project
from inset.torch import Projection

Method = Literal["paper", "chord", "ray"]
METHODS: tuple[Method, ...] = ("paper", "chord", "ray")
SEED = 0

# Okabe and Ito's colours, and a marker of its own for each method: neither is needed to read the other
COLOR = {"paper": "#E69F00", "chord": "#0072B2", "ray": "#009E73", "penalty": "#D55E00"}
MARKER = {"paper": "^", "chord": "D", "ray": "o"}
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "inset",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


# -- what the projections do to points -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """A set in the plane, an anchor, and points outside; `lift` puts points of the plane into the set's space."""

    title: str
    set: ConvexSet
    anchor: np.ndarray
    points: np.ndarray
    window: tuple[float, float, float, float]
    lift: Callable[[np.ndarray], np.ndarray] = lambda p: p
    plane: tuple[int, int] = (0, 1)
    labels: tuple[str, str] = ("", "")

    def image(self, method: Method) -> np.ndarray:
        return project(self.set, self.lift(self.points), self.lift(self.anchor), method=method)[..., list(self.plane)]


def scenes() -> list[Scene]:
    polygon = Polytope(
        np.array([[3.0, 3.0], [-1.0, 0.4], [0.2, -1.0], [1.0, -0.5], [-2.0, 3.0]]), np.array([3.3, 1.2, 1.0, 1.1, 3.0])
    )
    cut = Ellipsoid(np.zeros(2), np.array([[0.65, 0.25], [0.0, 1.0]])) & Polytope(np.array([[1.0, 1.0]]), np.ones(1))

    def log_sum_exp(x: Any) -> Any:
        z = np.stack([2 * x[..., 0], 2 * x[..., 1], -x[..., 0] - x[..., 1]], axis=-1)
        return np.logaddexp.reduce(z, axis=-1) - 2.2

    cone = np.array([[1.0, 0.4], [1.8, 2.2], [-0.6, -0.9], [0.7, -0.8], [1.7, 3.6], [-2.0, -0.7]])
    return [
        Scene("polygon", polygon, np.array([-0.35, 0.0]), ring(7, 1.8, 0.0), (-2, 2, -2, 2)),
        Scene(
            "disc, anchor off centre",
            Ball(np.zeros(2), 1.0),
            np.array([-0.5, 0.3]),
            ring(7, 1.75, 0.45),
            (-2, 2, -2, 2),
        ),
        Scene("ellipse and half-plane", cut, np.array([-0.5, -0.1]), ring(7, 1.75, 0.1), (-2, 2, -2, 2)),
        Scene(
            "log-sum-exp: $\\log(e^{2x} + e^{2y} + e^{-x-y}) \\leq 2.2$",
            Sublevel(log_sum_exp),
            np.array([-0.3, -0.3]),
            ring(7, 2.5, 0.08),
            (-2.8, 2.8, -2.8, 2.8),
        ),
        Scene(
            "slice of the exponential cone: $z \\geq e^x$",
            ExponentialCone(),
            np.array([-1.0, 2.2]),
            cone,
            (-2.6, 2.6, -1.2, 4.2),
            lambda p: np.stack([p[..., 0], np.ones_like(p[..., 0]), p[..., 1]], axis=-1),
            (0, 2),
            ("$x$", "$z$"),
        ),
    ]


def ring(count: int, radius: float, turn: float) -> np.ndarray:
    angle = turn + 2 * np.pi * np.arange(count) / count
    return radius * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def draw_scene(ax: Axes, scene: Scene) -> None:
    x0, x1, y0, y1 = scene.window
    gx, gy = np.meshgrid(np.linspace(x0, x1, 161), np.linspace(y0, y1, 161))
    h = scene.set.h(scene.lift(np.stack([gx, gy], axis=-1)))
    ax.contourf(gx, gy, np.nan_to_num(h, nan=1e9), levels=[-1e9, 0], colors=["#e8eef4"])
    ax.contour(gx, gy, np.nan_to_num(h, nan=1e9), levels=[0], colors=["#44546a"], linewidths=1.2)
    for p in scene.points:
        ax.plot(*zip(p, scene.anchor, strict=True), color="#9a9a9a", lw=0.7, zorder=1)
    ax.plot(*scene.points.T, "x", color="black", ms=5, zorder=3)
    for method, size in zip(METHODS, (6, 4, 9), strict=True):
        face = "none" if method == "ray" else COLOR[method]
        image = scene.image(method)
        ax.plot(*image.T, MARKER[method], color=COLOR[method], mfc=face, mew=1.4, ms=size, zorder=4, clip_on=False)
    ax.plot(*scene.anchor, "*", color="black", ms=11, zorder=5)
    ax.set(xlim=(x0, x1), ylim=(y0, y1), aspect="equal", title=scene.title, xticks=[], yticks=[])
    ax.set(xlabel=scene.labels[0], ylabel=scene.labels[1])
    if not any(scene.labels):
        ax.spines[:].set_visible(False)


def draw_folding(ax: Axes) -> None:
    """|g(x)| over |x|: one disc, two functions. With the square, points further out come back."""
    r = np.linspace(0.0, 4.0, 161)
    x = np.stack([r, 0 * r], axis=-1)
    square = Sublevel(lambda p: (p * p).sum(-1) - 1, finite=True)
    curves = [
        ("$h = |x|^2 - 1$, chord", square, "chord", "--"),
        ("$h = |x| - 1$, chord", Ball(np.zeros(2), 1.0), "chord", "-"),
        ("either $h$, ray", square, "ray", ":"),
    ]
    for label, set, method, line in curves:
        y = project(set, x, np.zeros(2), method=method, strict=False)  # type: ignore[arg-type]
        ax.plot(r, y[..., 0], line, color=COLOR[method], lw=3 if line == ":" else 1.8, label=label)
    ax.set(title="folding: one disc, two functions", xlabel="$|x|$", ylabel="$|g(x)|$", xlim=(0, 4), ylim=(0, 1.5))
    ax.legend(loc="upper right")


def sets_figure() -> tuple[Figure, list[list[str]]]:
    figure, axes = plt.subplots(2, 3, figsize=(10.5, 7.4), layout="constrained")
    rows = []
    for ax, scene in zip(axes.flat, scenes(), strict=False):
        draw_scene(ax, scene)
        x, anchor = scene.lift(scene.points), scene.lift(scene.anchor)
        images = [project(scene.set, x, anchor, method=method) for method in METHODS]
        moved = [np.linalg.norm(y - x, axis=-1).mean() for y in images]
        worst = max(scene.set.h(y).max() for y in images)
        rows.append([scene.title.split(":")[0], *(f"{d:.3f}" for d in moved), f"{worst:+.1e}"])
    draw_folding(axes.flat[-1])
    looks: list[dict[str, Any]] = [
        {"marker": "x", "color": "black", "label": "x, outside"},
        {"marker": "*", "color": "black", "label": "anchor", "ms": 10},
    ]
    for m in METHODS:
        face = "none" if m == "ray" else COLOR[m]
        looks.append({"marker": MARKER[m], "color": COLOR[m], "mfc": face, "mew": 1.4, "label": f"g(x), {m}"})
    handles = [Line2D([], [], ls="", **look) for look in looks]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure, rows


# -- a network under constraints -------------------------------------------------------------------------------------


@dataclass
class Run:
    """One way to respect the constraints, and what it gave at each evaluation."""

    name: str
    method: Method | None = None
    weight: float = 0.0
    """Of the violated constraints in the loss; with a layer, of 1 - eta."""
    steps: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    violated: list[float] = field(default_factory=list)
    worst: float = 0.0
    eta: float | None = None
    y: Tensor = field(default_factory=lambda: torch.empty(0))


def problem() -> tuple[ConvexSet, Callable[[Tensor], Tensor], Tensor, Tensor, float]:
    """The set, the target of an angle, training and test angles, and the least test loss of a feasible output."""
    A = torch.tensor([[1.0, 1.0], [-1.0, 0.5], [0.0, -1.0]])
    safe = Polytope(A, torch.tensor([1.0, 0.9, 0.8])) & Ball(torch.zeros(2), radius=1.1)

    def target(angle: Tensor) -> Tensor:
        return torch.cat([1.5 * angle.cos(), 1.2 * angle.sin()], dim=1)

    train = 2 * torch.pi * torch.rand(128, 1)
    test = torch.linspace(0, 2 * torch.pi, 501)[:-1, None]
    t = target(test)
    angle = torch.linspace(0, 2 * torch.pi, 4001)[:-1, None]
    edge = project(safe, 10 * torch.cat([angle.cos(), angle.sin()], 1), torch.zeros(2), method="ray")
    distance = torch.cdist(t, edge).min(1).values.where(~safe.contains(t), 0.0)
    return safe, target, train, test, distance.square().mean().item()


def train_run(run: Run, steps: int, every: int) -> None:
    torch.manual_seed(SEED)
    safe, target, inputs, test, _ = problem()
    body = nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2))
    layer = Projection(safe, method=run.method) if run.method else None

    def net(angle: Tensor) -> tuple[Tensor, Tensor]:
        """The output, and what the weight of this run is for, per sample."""
        y = body(torch.cat([angle.cos(), angle.sin()], dim=1))
        if layer is None:
            return y, safe.constraints(y).clamp(min=0).square().sum(1)
        y, info = layer(y, return_info=True)
        return y, 1 - info.eta

    optimizer = torch.optim.Adam(body.parameters(), lr=3e-3)
    for step in range(steps + 1):
        if step % every == 0:
            with torch.no_grad():
                run.y, extra = net(test)
            h = safe.h(run.y)
            run.steps.append(step)
            run.loss.append((run.y - target(test)).square().sum(1).mean().item())
            run.violated.append((h > 0).float().mean().item())
            run.worst, run.eta = h.max().item(), None if layer is None else 1 - extra.mean().item()
        y, extra = net(inputs)
        loss = (y - target(inputs)).square().sum(1).mean() + run.weight * extra.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def train_all(quick: bool) -> list[Run]:
    runs = [Run(f"penalty, weight {w:g}", weight=w) for w in (1.0, 10.0, 100.0)]
    runs += [Run(f"layer, {m}", method=m) for m in METHODS]
    runs += [Run("layer, ray, and 0.03 (1 - eta)", method="ray", weight=0.03)]
    for k, run in enumerate(runs):
        start = time.perf_counter()
        train_run(run, 60 if quick else 500, 10)
        say(f"  {k + 1}/{len(runs)} {run.name}: loss {run.loss[-1]:.4f}, {time.perf_counter() - start:.1f} s")
    return runs


def training_figure(runs: list[Run]) -> Figure:
    torch.manual_seed(SEED)
    safe, target, _, test, best = problem()
    figure, (plane, loss, violated) = plt.subplots(1, 3, figsize=(12, 4.0), layout="constrained")
    g = torch.linspace(-1.6, 1.6, 241)
    h = safe.h(torch.stack(torch.meshgrid(g, g, indexing="xy"), -1))
    plane.contourf(g, g, h, levels=[-1e9, 0], colors=["#e8eef4"])
    plane.contour(g, g, h, levels=[0], colors=["#44546a"], linewidths=1.2)
    plane.plot(*target(test).T, color="black", lw=1, label="targets")
    for key, run, line in (("penalty", runs[0], ":"), ("ray", runs[5], "-")):
        plane.plot(*run.y.T, line, color=COLOR[key], lw=2, label=run.name)
    plane.set(aspect="equal", xticks=[], yticks=[], title="outputs on test inputs", ylim=(-1.9, 1.4))
    plane.spines[:].set_visible(False)
    plane.legend(loc="lower center", ncols=2)
    lines = {1.0: ":", 10.0: "--", 100.0: "-."}
    for run in runs[:6]:
        style: dict[str, Any] = {"color": COLOR[run.method or "penalty"], "ls": lines.get(run.weight, "-"), "lw": 1.8}
        loss.plot(run.steps, run.loss, **style, label=run.name)
        violated.plot(run.steps, [100 * v for v in run.violated], **style)
    loss.axhline(best, color="black", lw=0.8, label="least loss in the set")
    loss.set(xlabel="step", title="test loss", ylim=(0, 3.5 * best))
    violated.set(xlabel="step", title="test outputs outside of the set, %", ylim=(-11, 104))
    violated.text(runs[0].steps[-1], -3, "all layers: 0", ha="right", va="top")
    figure.legend(*loss.get_legend_handles_labels(), loc="outside right center")
    return figure


# -- the report ------------------------------------------------------------------------------------------------------


def report(quick: bool, out: Path, command: str) -> Path:
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    mpl.rcParams.update(STYLE)
    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    say("drawing the sets")
    figure, moved = sets_figure()
    sets_svg = svg(figure, out / "sets.svg")
    say("training")
    runs = train_all(quick)
    training_svg = svg(training_figure(runs), out / "training.svg")
    torch.manual_seed(SEED)
    best = problem()[-1]
    results = [
        [
            r.name,
            f"{r.loss[-1]:.4f}",
            f"{r.loss[-1] / best - 1:+.1%}",
            f"{r.violated[-1]:.1%}",
            f"{r.worst:+.1e}",
            "" if r.eta is None else f"{r.eta:.2f}",
        ]
        for r in runs
    ]
    columns = ["", "test loss", "against the least in the set", "outputs outside", "largest h", "mean eta"]
    facts = [["command", command], ["seed", str(SEED)], ["time", f"{time.perf_counter() - start:.0f} s"], *versions()]
    page = PAGE.format(
        sets=sets_svg,
        moved=table(["set", *METHODS, "largest h(g(x))"], moved),
        training=training_svg,
        results=table(columns, results),
        best=f"{best:.4f}",
        quick="<p><strong>Quick run: the training is cut short.</strong></p>" if quick else "",
        facts=table(["", ""], facts),
    )
    path = out / "report.html"
    write(path, page)
    return path.resolve()


def svg(figure: Figure, path: Path) -> str:
    """Save the figure as SVG, and return the element to put into a page."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None})
    plt.close(figure)
    text = buffer.getvalue()
    write(path, text)
    return text[text.index("<svg") :]


def write(path: Path, text: str) -> None:
    """All of the file or nothing: written next to it and renamed."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, suffix=".tmp", delete=False) as file:
        file.write(text)
    os.chmod(file.name, 0o644)
    os.replace(file.name, path)


def table(head: list[str], rows: list[list[str]]) -> str:
    def line(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    return "<table>" + (line(head, "th") if any(head) else "") + "".join(line(row, "td") for row in rows) + "</table>"


def versions() -> list[list[str]]:
    names = ("inset", "torch", "numpy", "matplotlib")
    found = {d.metadata["Name"] for d in importlib.metadata.distributions()}
    known = [[n, importlib.metadata.version(n) if n in found else "from the source tree"] for n in names]
    return [["python", platform.python_version()], *known]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>inset: demonstration</title><style>
body {{ max-width: 62rem; margin: 2rem auto; padding: 0 1rem; font: 16px/1.5 system-ui, sans-serif; color: #222 }}
svg {{ width: 100%; height: auto }}
table {{ border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }}
th, td {{ text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid #ddd }}
</style></head><body>
<h1>inset: a network's output in a convex set</h1>{quick}
<h2>What the projections do</h2>
<p>A point x outside of the set is pulled towards the anchor, along the line between them. The methods differ in how
far. Each result is in the set; none is the nearest point. On the polygon, chord and ray agree. In the exponential cone
the logarithm in h is steep near z = 0, so the chord lands close to the anchor; the ray does not. In the last panel the
set is one disc: with h = |x|<sup>2</sup> - 1 the chord brings far points back towards the anchor, with h = |x| - 1 it
does not, and the ray does with neither.</p>
{sets}
<p>Mean distance from x to g(x), over the points drawn:</p>{moved}
<h2>A network under constraints</h2>
<p>A network of one angle is fitted to a curve that leaves a polygon cut by a disc. A penalty on violated constraints is
compared with the layer. Both are trained on 128 random angles and tested on 500 others. The least loss that outputs in
the set can have is {best}; a penalty may get below it, by leaving the set. Along an exact ray the loss does not feel
how far out x is, so x drifts outwards (small eta); a small weight on 1 - eta, the last row, holds it.</p>
{training}{results}
<h2>How this page was made</h2>{facts}
</body></html>
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the sets, train under constraints, write a report.")
    parser.add_argument("--quick", action="store_true", help="train for a few steps only")
    parser.add_argument("--out", type=Path, default=Path("demo"), metavar="DIR", help="where to write (default: demo)")
    arguments = parser.parse_args()
    command = shlex.join(["python", "examples/demo.py", *sys.argv[1:]])
    print(report(arguments.quick, arguments.out, command))


if __name__ == "__main__":
    main()

"""The tables of the report: medians of all methods, how they depend on what the paper leaves open, costs."""

from __future__ import annotations

import numpy as np

from ..common.store import Arrays, Store
from ..common.tables import Table
from .claims import PAPER, costs
from .config import Config
from .ratios import STAGES, cells, grid_medians, natural_medians, quartiles, ratios
from .solve import METHODS

WHAT = {
    "naive": "Adam, no layer",
    "paper": "Adam through the paper's interpolation",
    "nearest": "Adam through the orthogonal projection",
    "ray": "Adam through the exact ray",
    "started": "the same, from the solution of natural gradient",
}


def tables(store: Store) -> list[Table]:
    """Those for which there are results."""
    config = store.config(Config)
    made = [medians(store, policy, config) for policy in config.policies if cells(store, policy)]
    made += [sensitivity(store, policy, config) for policy in config.policies if store.has(f"{policy}-grid")]
    made += [baselines(store, policy, config) for policy in config.policies if store.has(f"{policy}-grid")]
    return [*made, spent(costs(store))] if costs(store) else made


def medians(store: Store, policy: str, config: Config) -> Table:
    """Every method against natural gradient, with both line searches."""
    rows = []
    for method in METHODS:
        row = [f"{method}: {WHAT[method]}"]
        for k in range(len(config.factors)):
            values = ratios(store, policy, method, k)
            low, middle, high = quartiles(values)
            row.append(f"{middle:.2f} ({low:.2f} to {high:.2f})")
        used = np.concatenate([cell[f"{method}-kl"][0] for cell in cells(store, policy)]) / config.epsilon
        better = float((ratios(store, policy, method) > 1).mean())
        rows.append((*row, f"{100 * better:.0f} %", f"{100 * float(np.median(used)):.0f} %"))
    used = np.concatenate([cell["natural-kl"] for cell in cells(store, policy)], axis=-1) / config.epsilon
    shares = " and ".join(f"{100 * float(np.median(u)):.0f} %" for u in used)
    return Table(
        f"The {policy} policy, {len(ratios(store, policy, 'paper'))} updates of {len(cells(store, policy))} runs: gain "
        f"over that of natural gradient, median (quartiles). The paper has {PAPER[policy]} for its interpolation. "
        f"Natural gradient itself uses {shares} of epsilon with the line searches.",
        ("method", *(f"line search {f:g}" for f in config.factors), "better", "of epsilon used"),
        tuple(rows),
    )


def sensitivity(store: Store, policy: str, config: Config) -> Table:
    """The paper's method and ours by line search, mini-batch, step size and stage of the run."""
    methods = ("paper", "ray", "started")
    found = {method: grid_medians(store, policy, method) for method in methods}
    rows = []
    for f, factor in enumerate(config.factors):
        for b, size in enumerate(config.minibatches):
            for r, rate in enumerate(config.rates):
                numbers = [found[m][b, r, f, s] for m in methods for s in range(len(STAGES))]
                shown = ["" if np.isnan(v) else f"{v:.2f}" for v in numbers]
                rows.append((f"{factor:g}", str(size), f"{rate:g}", *shown))
    count = len(store.load(f"{policy}-grid")["update"])
    return Table(
        f"The {policy} policy: median gain over that of natural gradient by what the paper leaves open, on {count} "
        f"updates in the early, middle and late third of the runs. `started` begins at the "
        "solution of natural gradient.",
        ("line search", "mini-batch", "step size", *(f"{m}, {s}" for m in methods for s in STAGES)),
        tuple(rows),
    )


def baselines(store: Store, policy: str, config: Config) -> Table:
    """The methods against other natural gradients: the paper does not say which one it has."""
    natural, paper, ours = (natural_medians(store, policy, method) for method in ("natural", "paper", "started"))
    rows = []
    for k, (steps, damping, every) in enumerate(config.others):
        for f, factor in enumerate(config.factors):
            numbers = (1 / natural[k, f], paper[k, 0, 0, f], paper[k, ..., f].max(), ours[k, -1, -1, f])
            states = "all" if every == 1 else f"1 of {every}"
            rows.append((str(steps), f"{damping:g}", states, f"{factor:g}", *(f"{v:.2f}" for v in numbers)))
    count = len(store.load(f"{policy}-grid")["update"])
    first, last = (f"{size} states, {rate:g}" for size, rate in _ends(config))
    return Table(
        f"The {policy} policy against other natural gradients, medians over {count} "
        f"updates: what such a one gains over the one above ({config.conjugate} steps, damping {config.damping:g}, all "
        f"states); the paper's interpolation over it ({first}; and with the best of all mini-batches and step sizes); "
        f"`started` over it ({last}, {config.epochs} epochs).",
        ("CG steps", "damping", "states", "line search", "over ours", "paper", "paper, best", "started"),
        tuple(rows),
    )


def _ends(config: Config) -> tuple[tuple[int, float], tuple[int, float]]:
    return (config.minibatches[0], config.rates[0]), (config.minibatches[-1], config.rates[-1])


def spent(found: dict[str, Arrays]) -> Table:
    """Steps of Adam, in units of one without a layer."""
    names = ("naive", "paper", "ray", "nearest", "cone")
    rows = [
        (policy, f"{1e3 * float(np.median(cell['naive'])):.2f} ms", *(_ratio(cell, name) for name in names[1:]))
        for policy, cell in found.items()
    ]
    first = next(iter(found.values()))
    return Table(
        f"Time of a step of Adam on {int(first['minibatch'])} states, {first['machine']}: without a layer, and with "
        "one in units of that. The paper has 1.5 for its interpolation and over 300 for cvxpylayers (cone).",
        ("policy", "no layer", "paper", "ray", "nearest", "cone"),
        tuple(rows),
    )


def _ratio(cell: Arrays, name: str) -> str:
    return f"{float(np.median(cell[name] / cell['naive'])):.3g}"

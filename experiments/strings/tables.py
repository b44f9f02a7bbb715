"""The tables of the report: errors, violations, the price of a layer, and whether its kink is to blame."""

from __future__ import annotations

import numpy as np

from ..common.store import Arrays, Store
from ..common.tables import Table
from .claims import PAPER, costs, error, results, seeds, unrolled
from .config import Config
from .model import VARIANTS

MODELS = (
    "plain is the paper's network without a layer, strings the same with one; moving pulls towards the mean of the "
    "predicted positions, smooth has a layer without kink, raw models see positions as they are"
)
KINK = ("plain", "strings", "smooth", "moving")


def tables(store: Store) -> list[Table]:
    """Those for which there are results."""
    found, config = results(store), store.config(Config)
    made = [errors(found, config), violations(found, config)]
    if costs(store):
        made.append(cost(costs(store)))
    if any(model in ("smooth", "moving") for _, model in found):
        made.append(kink(found, config))
    return made


def errors(found: dict[tuple[str, str], Arrays], config: Config) -> Table:
    """The paper's table, with more models."""
    rows = []
    for model in config.models:
        row = [model]
        for name in config.objects:
            mean, std = PAPER.get((name, model), (None, None))
            row += [_error(found.get((name, model))), f"{mean:.2f} ± {std:.2f}" if mean else ""]
        rows.append(tuple(row))
    return Table(
        f"Error: mean distance of a body from where it should be along {config.test} test trajectories, over "
        f"{seeds(config)}. Mean ± standard deviation over trajectories, then the means of the best and of the worst "
        f"seed; next to it the paper's. Models: {MODELS}.",
        ("model", *(word for name in config.objects for word in (name, "paper"))),
        tuple(rows),
    )


def _error(cell: Arrays | None) -> str:
    if cell is None:
        return ""
    with np.errstate(invalid="ignore"):  # a rollout that overflows
        means, std = cell["test"].mean(axis=1), cell["test"].std(axis=1).mean()
    spread = f" ({means.min():.2f} to {means.max():.2f})" if len(means) > 1 else ""
    return f"{error(cell):.2f} ± {std:.2f}{spread}"


def violations(found: dict[tuple[str, str], Arrays], config: Config) -> Table:
    """The longest string of all, with each model."""

    def show(name: str, model: str) -> str:
        if (name, model) not in found:
            return ""
        worst = float(found[name, model]["violation"].max())
        lengths = f" ({worst / config.length:.1f} lengths)" if VARIANTS[model].layer == "none" else ""
        return f"{worst:.3g}{lengths}"

    return Table(
        "Worst violation: by how much the longest string, at any step of any test trajectory and seed, is longer than "
        f"the layer allows ({config.length + config.slack:g}); without a layer also in lengths of a string.",
        ("model", *config.objects),
        tuple((model, *(show(name, model) for name in config.objects)) for model in config.models),
    )


def cost(cells: dict[str, Arrays]) -> Table:
    """Times of an update over that of plain, measured in turns."""
    rows = []
    for device, cell in cells.items():
        for name, times in cell.items():
            plain = cell.get("plain-short" if name.endswith("-short") else "plain")
            if times.ndim == 0 or plain is None:
                continue
            low, middle, high = np.percentile(times / plain, (25, 50, 75))
            ratio = ("", "") if times is plain else (f"{middle:.2f}", f"{low:.2f} to {high:.2f}")
            rows.append((device, name, f"{1e3 * np.median(times):.3g}", *ratio))
    how = "; ".join(f"{device}: {_machine(cell)}{unrolled(cell)}" for device, cell in cells.items())
    return Table(
        "Time of one update, and how many times as long as plain it takes: the ratio is taken round by round; median "
        f"and quartiles. {how}. Those called short, of fewer steps and not compiled, are for the orthogonal projection "
        "(nearest).",
        ("device", "model", "ms", "ratio to plain", "quartiles"),
        tuple(rows),
    )


def _machine(cell: Arrays) -> str:
    return f"{cell['machine']}, " if "machine" in cell else ""


def kink(found: dict[tuple[str, str], Arrays], config: Config) -> Table:
    """The layers of the comparison, against no layer."""

    def show(name: str, model: str) -> str:
        cell, plain = found.get((name, model)), found.get((name, "plain"))
        if cell is None:
            return ""
        change = f" ({error(cell) / error(plain) - 1:+.1%})" if plain and model != "plain" else ""
        return f"{error(cell):.2f}{change}"

    return Table(
        "Does removing the kink fix the chain? Mean error, and how much more or less that is than without a layer. The "
        "paper suspects the kink of its layer where it is worse than none; smooth has none, moving has another anchor. "
        "The choice between paper, chord and ray is none here: the anchor puts all bodies at one point, and all "
        "strings have one length, so every h_l grows evenly from one value along the ray from the anchor, and the "
        "three are one map.",
        ("model", *config.objects),
        tuple((m, *(show(name, m) for name in config.objects)) for m in KINK if m in config.models),
    )

"""What the test says about the paper's table, about what a layer costs, and about strings that are too long."""

from __future__ import annotations

import numpy as np

from ..common.claims import Finding
from ..common.store import Arrays, Store
from .config import Config, key
from .model import PAST, VARIANTS

PAPER = {
    ("chain", "plain"): (2.52, 1.38),
    ("chain", "strings"): (2.89, 1.39),
    ("triangles", "plain"): (2.32, 1.19),
    ("triangles", "strings"): (2.19, 1.01),
    ("star", "plain"): (2.25, 1.09),
    ("star", "strings"): (2.18, 0.96),
}
"""The paper's table: mean and standard deviation of the error over the test trajectories, by object and model."""
DEVICES = ("cuda", "cpu")


def claims(store: Store) -> list[Finding]:
    return [*of_errors(store), *of_costs(store), *of_violations(store), *of_variants(store)]


def of_errors(store: Store) -> list[Finding]:
    """The cells of the paper's table."""
    config, found = store.config(Config), results(store)
    return [
        Finding(
            f"{name}_{model}",
            PAPER[name, model][0],
            error(cell),
            error(cell) <= PAPER[name, model][0],
            f"Mean distance of a body from where it should be, over the {config.steps - PAST} steps that are predicted "
            f"of {config.test} test trajectories of the {name} and {seeds(config)}, {describe(cell, model)}; holds if "
            f"it is the paper's or less. {effort(store)}",
        )
        for (name, model), cell in found.items()
        if (name, model) in PAPER
    ]


def of_costs(store: Store) -> list[Finding]:
    """How many times as long an update takes with a layer."""
    found, cells = [], costs(store)
    judged = (("cost", 1.2, 1.2), ("cost_cpu", None, 1.15))
    for (claim, paper, bound), (device, cell) in zip(judged, cells.items(), strict=False):
        if {"plain", "strings"} <= set(cell):
            measured = float(np.median(cell["strings"] / cell["plain"]))
            note = (
                f"Time of an update of strings over that of plain, on {device}, {unrolled(cell)}: "
                f"median of {len(cell['plain'])} rounds, in each of which both are measured; holds up to {bound}."
            )
            found.append(Finding(claim, paper, measured, measured <= bound, note))
    for device, cell in cells.items():
        if {"plain-short", "nearest-short"} <= set(cell):
            measured = float(np.median(cell["nearest-short"] / cell["plain-short"]))
            note = (
                f"Not in the paper, which could not run it: the same on {device} with the orthogonal projection in "
                "the place of the layer, fewer steps unrolled; holds above 10."
            )
            found.append(Finding("cost_nearest", None, measured, measured > 10, note))
            break
    return found


def of_violations(store: Store) -> list[Finding]:
    """By how much the longest string of all is too long, with a layer and without."""
    config, found = store.config(Config), []
    what = (
        "The largest excess of a string over the length that the layer has, over all objects, "
        f"{seeds(config)}, test trajectories and steps,"
    )
    models, worst = worst_violation(store, layer=True)
    if models:
        note = f"{what} of the models with a layer ({', '.join(models)}); holds if it is exactly 0."
        found.append(Finding("worst_violation", 0, worst, worst == 0, note))
    models, worst = worst_violation(store, layer=False)
    if models:
        note = f"{what} of the models without ({', '.join(models)}); holds if there is one: then the layer is needed."
        found.append(Finding("worst_violation_plain", None, worst, worst > 0, note))
    return found


def worst_violation(store: Store, layer: bool) -> tuple[list[str], float]:
    """The models with a layer, or those without, and the largest violation of all their rollouts."""
    cells = {key: cell for key, cell in results(store).items() if (VARIANTS[key[1]].layer != "none") == layer}
    values = np.concatenate([np.zeros(0), *(cell["violation"].ravel() for cell in cells.values())])
    if not layer:
        values = values[np.isfinite(values)]  # without a layer a rollout may overflow
    return list(dict.fromkeys(model for _, model in cells)), float(values.max(initial=0))


def of_variants(store: Store) -> list[Finding]:
    """Not in the paper: two changes to the layer."""
    found = []
    moving, smooth = (better(store, model) for model in ("moving", "smooth"))
    if moving:
        note = (
            f"Not in the paper: of {len(moving)} objects, for how many the mean error is smaller if the layer pulls "
            "towards the mean of the predicted positions and not of the previous ones; holds if for all."
        )
        found.append(Finding("moving_beats_previous", None, sum(moving.values()), all(moving.values()), note))
    if smooth:
        won = ", ".join(name for name, less in smooth.items() if less) or "none"
        note = (
            f"Not in the paper: of {len(smooth)} objects, for how many ({won}) the mean error is smaller with a layer "
            "without the kink that the paper suspects to harm the chain; holds if the chain is one of them."
        )
        found.append(Finding("smooth_beats_kink", None, sum(smooth.values()), smooth.get("chain", False), note))
    return found


def results(store: Store) -> dict[tuple[str, str], Arrays]:
    """What is there, by object and model."""
    config = store.config(Config)
    keys = {(name, model): key(name, model) for name in config.objects for model in config.models}
    return {(name, model): store.load(at) for (name, model), at in keys.items() if store.has(at)}


def costs(store: Store) -> dict[str, Arrays]:
    """Seconds per update by device; what the claims are about comes first."""
    return {device: store.load(f"cost-{device}") for device in DEVICES if store.has(f"cost-{device}")}


def error(cell: Arrays) -> float:
    """The mean over seeds and test trajectories."""
    return float(cell["test"].mean(dtype=float))


def better(store: Store, model: str) -> dict[str, bool]:
    """For each object that has both, whether the error of the model is smaller than that of `strings`."""
    found = results(store)
    pairs = {name: (cell, found.get((name, "strings"))) for (name, m), cell in found.items() if m == model}
    return {name: error(cell) < error(other) for name, (cell, other) in pairs.items() if other}


def unrolled(cell: Arrays) -> str:
    """How the costs of a cell were measured."""
    return f"{int(cell['horizon'])} steps unrolled{', compiled' if cell.get('compiled') else ''}"


def seeds(config: Config) -> str:
    return f"{config.seeds} seed{'s' if config.seeds > 1 else ''}"


def describe(cell: Arrays, model: str) -> str:
    """What the model is; without a layer also what became of the strings."""
    if VARIANTS[model].layer != "none":
        return "with the layer"
    return f"without a layer, whose strings were up to {cell['violation'].max():.3g} too long"


def effort(store: Store) -> str:
    """How long was trained, and that a small run is not expected to do what the paper's does."""
    config = store.config(Config)
    said = f"{sum(config.updates)} updates, which unroll up to {max(config.horizons)} steps"
    if store.manifest["scale"] == "paper":
        return f"Trained with {said}."
    return f"Trained with {said} only: the paper's number is out of reach of so small a run."

"""What the solved problems say about the paper's medians, about our method, and about what a layer costs."""

from __future__ import annotations

import numpy as np

from ..common.claims import Finding
from ..common.store import Arrays, Store
from .config import Config
from .ratios import quartiles, ratios

PAPER = {"linear": 1.31, "network": 1.57}
"""The paper's median gain through the interpolation over that of natural gradient."""
COSTS = {"interpolation": ("paper", 1.5), "orthogonal": ("cone", 300.0)}
"""What is measured, and the paper's ratio to a step without a layer."""
GOAL = 1.1
"""Median that our method is to reach."""
BASELINES = ("strong", "paper_like")
"""Names of the line searches, in the order of `Config.factors`."""


def claims(store: Store) -> list[Finding]:
    return [*of_medians(store), *of_ours(store), *of_costs(store), *of_projections(store)]


def of_medians(store: Store) -> list[Finding]:
    """The paper's two medians, with two line searches."""
    config, found = store.config(Config), []
    for policy in config.policies:
        for k, (name, factor) in enumerate(zip(BASELINES, config.factors, strict=False)):
            values = ratios(store, policy, "paper", k)
            if len(values):
                low, median, high = quartiles(values)
                note = (
                    f"Median over {len(values)} policy updates ({policy} mean) of the gain of Adam through the paper's "
                    f"interpolation over that of natural gradient, both after a line search that shortens the step by "
                    f"{factor:g}; quartiles {low:.2f} and {high:.2f}; holds if it is the paper's or more."
                )
                found.append(Finding(f"median_{policy}/{name}", PAPER[policy], median, median >= PAPER[policy], note))
    return found


def of_ours(store: Store) -> list[Finding]:
    """Adam through the ray, from the solution of natural gradient."""
    config, found = store.config(Config), []
    for policy in config.policies:
        values = ratios(store, policy, "started")
        if len(values):
            low, median, high = quartiles(values)
            note = (
                "Not in the paper: the same for Adam through the exact ray, started from the solution of natural "
                f"gradient, after the line search by {config.factors[0]:g} ({len(values)} updates, quartiles {low:.2f} "
                f"and {high:.2f}); holds from {GOAL:g} on."
            )
            found.append(Finding(f"ours_{policy}/strong", None, median, median >= GOAL, note))
    return found


def of_costs(store: Store) -> list[Finding]:
    """Steps of Adam with a layer, on the network."""
    cell = costs(store).get("network")
    if cell is None:
        return []
    found = []
    for claim, (method, paper) in COSTS.items():
        measured = float(np.median(cell[method] / cell["naive"]))
        what = "the paper's interpolation" if claim == "interpolation" else "the orthogonal projection by cvxpylayers"
        holds = measured <= paper if claim == "interpolation" else measured >= paper
        note = (
            f"Time of a step of Adam through {what} over one without a layer: the network, "
            f"{int(cell['minibatch'])} states, {cell['machine']}; median of {len(cell['naive'])} rounds, in each of "
            "which both are measured; holds "
            f"{'up to' if claim == 'interpolation' else 'from'} {paper:g}{'' if claim == 'interpolation' else ' on'}."
        )
        found.append(Finding(f"cost_{claim}", paper, measured, holds, note))
    return found


def of_projections(store: Store) -> list[Finding]:
    """Interpolation against the orthogonal projection."""
    values = [ratios(store, policy, "paper", over="nearest") for policy in store.config(Config).policies]
    pooled = np.concatenate([np.zeros(0), *values])
    if not len(pooled):
        return []
    medians = ", ".join(
        f"{np.median(v):.2f} ({policy})"
        for policy, v in zip(store.config(Config).policies, values, strict=True)
        if len(v)
    )
    note = (
        f"Median over {len(pooled)} policy updates of the gain through the paper's interpolation over that through the "
        f"orthogonal projection, same settings; by policy {medians}; holds above 1, as the paper has it."
    )
    median = float(np.median(pooled))
    return [Finding("interpolation_beats_orthogonal", None, median, median > 1, note)]


def costs(store: Store) -> dict[str, Arrays]:
    """Seconds per step, by policy."""
    keys = {policy: f"{policy}-cost" for policy in store.config(Config).policies}
    return {policy: store.load(at) for policy, at in keys.items() if store.has(at)}

"""What the benchmark says about the layers."""

from __future__ import annotations

import math

import numpy as np

from ..common.claims import Finding
from ..common.store import Store
from .config import Config
from .summary import Row, ours, rows, seconds

CHEAPER = 5.0
"""How many times as long as one of near an epoch of Pi-net is to take, at least."""
FAR = 5.0
"""How many times as large as that of near the suboptimality of the chord is to be, at least."""
LOSS = 0.1
"""What float32 may cost near, as a share of its suboptimality."""
HALF = 0.5
"""What tuning is to leave of the suboptimality of Pi-net, at most."""


def claims(store: Store) -> list[Finding]:
    """All numbers that the results allow; a quick run has no peers."""
    found: list[Finding] = []
    for variant in store.config(Config).variants:
        found += of_variant(variant, rows(store, variant))
    return [*found, *violation(store), *precision(store), *cost(store)]


def of_variant(variant: str, table: dict[str, Row]) -> list[Finding]:
    """Suboptimality in percent: mean over the test programs, then over seeds."""
    found = []
    near, chord, pinet = table.get("near"), table.get("chord"), table.get("pinet")
    if near and chord:
        ratio = chord.center / near.center
        meaning = f"{variant}: mean suboptimality of the chord, in units of that of near; wanted is {FAR:g} or more."
        found.append(Finding(f"chord_over_near_{variant}", None, ratio, ratio >= FAR, meaning))
    if near and pinet:
        meaning = f"{variant}: mean suboptimality of near in percent; wanted is Pi-net's, up to its standard error."
        found.append(Finding(f"near_{variant}", None, near.center, no_worse(near, pinet), meaning))
    if chord and pinet:
        meaning = f"{variant}: mean suboptimality of Pi-net in percent; it too is to beat the chord by far."
        found.append(Finding(f"pinet_{variant}", None, pinet.center, pinet.center * FAR <= chord.center, meaning))
    tuned, peer = table.get("near_tuned"), table.get("pinet_tuned")
    if tuned and pinet:
        share = tuned.center / pinet.center
        meaning = f"{variant}: mean suboptimality of near, tuned, in units of Pi-net's at the same number of epochs."
        found.append(Finding(f"near_tuned_over_pinet_{variant}", None, share, share <= HALF, meaning))
    if tuned and peer:
        share = tuned.center / peer.center
        meaning = f"{variant}: the same in units of Pi-net's, trained likewise; wanted is 1, up to that standard error."
        found.append(Finding(f"near_tuned_over_pinet_tuned_{variant}", None, share, no_worse(tuned, peer), meaning))
    return found


def no_worse(one: Row, other: Row) -> bool:
    """Whether the mean over seeds is at most the other's, up to the standard error of that mean."""
    error = float(other.mean.std(ddof=1)) / math.sqrt(len(other.mean)) if len(other.mean) > 1 else 0.0
    return bool(one.mean.mean() <= other.mean.mean() + error)


def violation(store: Store) -> list[Finding]:
    """Of the inequalities, by the layers of inset, over all seeds and test programs."""
    variants = store.config(Config).variants
    worst = [row.inequality.max() for v in variants for m, row in rows(store, v).items() if ours(m)]
    if not worst:
        return []
    meaning = "Worst violation of an inequality by any layer of inset, in float64 and float32: none, to the last bit."
    return [Finding("worst_violation", 0, float(max(worst)), bool(max(worst) == 0), meaning)]


def precision(store: Store) -> list[Finding]:
    tables = [rows(store, variant) for variant in store.config(Config).variants]
    losses = [t["near_float32"].center / t["near"].center - 1 for t in tables if {"near", "near_float32"} <= set(t)]
    if not losses:
        return []
    meaning = f"What float32 costs near: its suboptimality over that in float64, less 1, at worst; {LOSS:g} is allowed."
    return [Finding("float32_loss", None, max(losses), max(losses) <= LOSS, meaning)]


def cost(store: Store) -> list[Finding]:
    epoch = seconds(store, "epoch")
    if not {"near", "pinet"} <= set(epoch):
        return []
    ratio = float(np.median(epoch["pinet"] / epoch["near"]))
    meaning = f"Time of an epoch with Pi-net over that with near, round by round in one process; wanted {CHEAPER:g}."
    return [Finding("epoch_ratio", None, ratio, ratio >= CHEAPER, meaning)]

"""The tables of the report."""

from __future__ import annotations

import numpy as np

from ..common.claims import show
from ..common.store import Store
from ..common.tables import Table
from . import choice
from .config import Config, key
from .methods import METHODS
from .summary import LABEL, LARGE, Row, general, reached, row, rows, seconds


def tables(store: Store) -> list[Table]:
    """Quality by objective, cost, and what validation chose."""
    config = store.config(Config)
    found = [quality(variant, rows(store, variant), config) for variant in config.variants]
    found.append(cost(store))
    found += [chosen(store)] if choice.choosing(config) else []
    return [*found, large(Store.read(LARGE))] if config == Config() else found


def quality(variant: str, table: dict[str, Row], config: Config) -> Table:
    """Suboptimality, violations and active constraints on the test programs."""
    return Table(
        f"{variant}: suboptimality (f(y) - f*) / |f*| in percent on {config.test} test programs, {config.seeds} "
        f"{'seeds' if config.seeds > 1 else 'seed'} (± standard deviation over seeds); the worst violations; and how "
        "many inequalities are active at y, to a thousandth of h. A suboptimality that is bought by violations can be "
        "too small.",
        ("method", "mean", "median", "worst", "violation", "of equalities", "active"),
        tuple(
            (
                LABEL[method],
                f"{row.center:.3g} ± {row.spread:.1g}",
                f"{row.median:.3g}",
                f"{row.worst:.3g}",
                show_violation(float(row.inequality.max())),
                show_violation(float(row.equality.max())),
                f"{row.active.mean():.1f}",
            )
            for method, row in table.items()
        ),
    )


GOOD = 8e-3
"""The suboptimality that Pi-net's authors show to be reached after about 175 s, on 1000 variables."""


def large(store: Store) -> Table:
    """Ten times as many variables: quality, and how soon it is good."""
    config, epochs = store.config(Config), seconds(store, "epoch")
    lines = []
    for method in config.methods:
        cells = []
        for variant in config.variants:
            cell = store.load(key(variant, method))
            found, after = row(cell), reached(cell, GOOD)
            cells += [f"{found.center:.3g} ± {found.spread:.1g}", show_violation(float(found.inequality.max()))]
            cells.append("never" if after is None else f"{after:.1f} s")
        lines.append((LABEL[method], *cells, f"{1e3 * np.median(epochs[method]):.3g}"))
    return Table(
        f"{config.variables} variables, {config.equalities} equalities, {config.inequalities} inequalities, "
        f"{config.seeds} seeds, {store.manifest['machine']['accelerator']}: mean suboptimality in percent on "
        f"{config.test} test programs (± standard deviation over seeds), worst violation, and seconds of training "
        f"until that on the validation programs is below {100 * GOOD:g} % (median over seeds); milliseconds of an "
        "epoch.",
        ("method", *(f"{v}{what}" for v in config.variants for what in ("", ", violation", ", good after")), "epoch"),
        tuple(lines),
    )


def show_violation(value: float) -> str:
    return "0" if value == 0 else f"{value:.0e}"


def cost(store: Store) -> Table:
    """Milliseconds, and an epoch in units of one of near."""
    config = store.config(Config)
    times = {kind: seconds(store, kind) for kind in ("epoch", "forward", "both")}
    near = times["epoch"].get("near")
    lines = []
    for method, epoch in times["epoch"].items():
        ratio = "" if near is None else f"{np.median(epoch / near):.2f}"
        lines.append((LABEL[method], *(f"{1e3 * np.median(times[kind][method]):.3g}" for kind in times), ratio))
    if (epoch := general(store, "epoch")) is not None:
        ratio = "" if near is None else f"{epoch / np.median(near):.3g}"
        lines.append(("cvxpylayers", *(f"{1e3 * (general(store, kind) or 0):.3g}" for kind in times), ratio))
    threads = int(store.load("cost")["threads"])
    machine = store.manifest["machine"]
    cpu = f"processor time of {machine['processor']}, {threads} thread{'s' if threads > 1 else ''}"
    where = machine.get("accelerator") or cpu
    return Table(
        f"Milliseconds, medians of {config.cost_rounds} rounds in which all methods take turns in one process "
        f"({where}): an epoch of training, a forward pass and one there and back on {config.cost_batch} samples, and "
        "the epoch in units of one of near (median of the ratios of each round). cvxpylayers solves one sample after "
        f"the other; its times are extrapolated from {config.layers_batch} samples, for the layer alone.",
        ("method", "epoch", "forward", "forward and backward", "epoch / near"),
        tuple(lines),
    )


def chosen(store: Store) -> Table:
    """Every candidate with its score; the best is marked."""
    config, lines = store.config(Config), []
    for variant in config.variants:
        for method in choice.choosing(config):
            found = store.load(choice.cell(variant, method))
            for k, settings in enumerate(choice.candidates(method, config)):
                free = METHODS[method].layer == "none"
                weight = settings.penalty if free else settings.pull
                score = found["score"][k] if free else 100 * found["score"][k]
                mark = "chosen" if k == int(found["best"]) else ""
                lines.append(
                    (
                        variant,
                        LABEL[method],
                        show(settings.rate),
                        str(settings.batch),
                        f"{weight:g}",
                        show(float(score)),
                        mark,
                    )
                )
    return Table(
        "What validation chose, with a seed of its own: for near the least suboptimality (in percent), for the penalty "
        "the least |suboptimality| + violation, means over the validation programs. The weight is that of the pull "
        "or of the penalty.",
        ("objective", "method", "step size", "batch", "weight", "score", ""),
        tuple(lines),
    )

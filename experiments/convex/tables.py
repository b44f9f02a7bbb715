"""The tables of the report: every pair of class and step size, and the best of IGD against the radial method."""

from __future__ import annotations

from ..common.store import Store
from ..common.tables import Table, small
from .config import Config
from .curves import OURS, classes, curves, wins
from .run import cell


def tables(store: Store) -> list[Table]:
    return [best_tuned(store), pairs(store)]


def best_tuned(store: Store) -> Table:
    """IGD with the best step size of the grid, against the radial method, which has none."""
    last = store.config(Config).iterations
    rows = []
    for name in classes(store):
        igd, chord, radial = (curves(store, name, m) for m in ("igd", "chord", "radial"))
        early, late = (radial.best(k) for k in (100, int(radial.recorded[-1])))
        numbers = (*igd.best(last), *chord.best(last), *early, *late)
        rows.append((name, *(small(v) for v in numbers)))
    end = store.config(Config).radial_iterations
    heads = (f"IGD {last}", f"IGD, chord {last}", "Radial 100", f"Radial {end}")
    return Table(
        f"Error (f - f*) / (f(x0) - f*), median and worst of {store.config(Config).instances} instances: IGD after "
        f"{last} iterations with the step size of the grid that is best for the class, and the radial method.",
        ("class", *(word for head in heads for word in (head, "worst"))),
        tuple(rows),
    )


def pairs(store: Store) -> Table:
    """The median error at the end for each class and step size."""
    methods = {
        "igd": "IGD",
        "subgd": "SubGD",
        "subgd_rescaled": "SubGD, h / |h(x0)|",
        "pgd": "PGD",
        "chord": "IGD, chord",
    }
    won = wins(store)
    rows = []
    for name in classes(store):
        found = {m: curves(store, name, m).median[:, -1] for m in methods if store.has(cell(name, m))}
        for i, step in enumerate(store.config(Config).steps):
            numbers = (small(found[m][i]) if m in found else "" for m in methods)
            better = ("yes" if won[name, step] else "no") if name not in OURS else ""
            rows.append((name, f"{step:g}", *numbers, better))
    return Table(
        f"Median error after {store.config(Config).iterations} iterations, and whether IGD ends below SubGD.",
        ("class", "step", *methods.values(), "IGD < SubGD"),
        tuple(rows),
    )

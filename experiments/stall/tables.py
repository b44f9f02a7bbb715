"""Distances to the optimum along both paths."""

from __future__ import annotations

from ..common.store import Store
from ..common.tables import Table, small
from .claims import distance
from .config import CELL


def tables(store: Store) -> list[Table]:
    paths = store.load(CELL)
    last = len(paths["pgd"]) - 1
    at = sorted({k for k in (0, 5, 10, 20, 50, 100, 200) if k < last} | {last})
    pgd, composition = distance(paths, "pgd"), distance(paths, "composition_projected")
    rows = tuple((str(k), small(pgd[k]), small(composition[k])) for k in at)
    head = ("step", "x <- g(x - a grad f(x))", "x <- x - a grad (f o g)(x), at g(x)")
    return [Table("Distance to the constrained optimum.", head, rows)]

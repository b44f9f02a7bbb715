"""The experiments, by name. A new one is a folder and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .common import places
from .common.claims import Claim, Finding, rows
from .common.store import Store
from .common.tables import Table

EXPERIMENTS = {
    "stall": "Fig. 1: interpolation used as in PGD stalls, descent on f o g converges",
    "convex": "Appendix A: IGD, SubGD and PGD on five classes of convex problems",
    "trust_region": "Reinforcement learning: policy updates inside a KL trust region, against natural gradient",
    "strings": "Supervised learning of dynamics models: bodies linked by strings, with and without a layer",
    "proxy": "Optimisation proxies: networks that answer with solutions of programs, feasible by a layer",
}
"""Name of the folder, and what is repeated there."""
VERBS = {
    "strings": {"evaluate": "roll the kept weights out again on the test trajectories, and print the errors"},
    "proxy": {"optima": "solve the benchmark's programs again, and compare with the least values that are shipped"},
}
"""What else can be done with the results of an experiment: `verb(folder)` in a file of that name, and its help."""


def config(name: str) -> Any:
    """The dataclass of the experiment's numbers."""
    return _part(name, "config").Config


def run(name: str, config: Any, out: Path) -> None:
    """Compute, or go on computing, the results in `out`."""
    _part(name, "run").run(config, out)


def findings(name: str, store: Store) -> list[Finding]:
    """What the results say about the claims."""
    return _part(name, "claims").claims(store)


def tables(name: str, store: Store) -> list[Table]:
    """The tables of the report."""
    return _part(name, "tables").tables(store)


def figures(name: str, store: Store) -> dict[str, Any]:
    """The figures, by the name of their file."""
    return _part(name, "figure").figures(store)


def animations(name: str, store: Store) -> Iterator[tuple[str, bytes]]:
    """GIFs by the name of their file, each drawn when it is asked for; none if the experiment has none."""
    return iter(getattr(_part(name, "figure"), "animations", lambda _: ())(store))


def do(name: str, verb: str, folder: Path | None) -> None:
    """One of the experiment's verbs, on the results in a folder or on the latest at paper scale."""
    getattr(_part(name, verb), verb)(folder)


def captions(name: str) -> dict[str, str]:
    """What each figure and each animation shows."""
    return _part(name, "figure").CAPTIONS


def collect() -> list[tuple[Claim, str]]:
    """Every claim with its meaning: at paper scale from the committed results, then from the latest quick run."""
    found = []
    for name in EXPERIMENTS:
        for store in places.reported(name):
            said = findings(name, store)
            found += zip(rows(store, said), (f.meaning for f in said), strict=True)
    return found


def _part(name: str, part: str) -> Any:
    # on first use: what draws does not load what computes, nor the other way round
    return importlib.import_module(f"experiments.{name}.{part}")

"""Where results are: `runs/` holds what was run here, `experiments/<name>/results/` what is committed."""

from __future__ import annotations

from pathlib import Path

from .store import MANIFEST, Store, StoreError

ROOT = Path(__file__).resolve().parent.parent.parent
RUNS = ROOT / "runs"
EXPERIMENTS = ROOT / "experiments"


def run_folder(name: str, scale: str) -> Path:
    """Where `python -m experiments <name> run` writes: one folder for each of "paper", "quick" and "custom"."""
    return RUNS / scale / name


def committed_folder(name: str) -> Path:
    """Where results at paper scale are committed."""
    return EXPERIMENTS / name / "results"


def reported(name: str) -> list[Store]:
    """What claims and the report read: the committed results, then the latest quick run; each if it is complete."""
    stores = []
    for folder in (committed_folder(name), run_folder(name, "quick")):
        if (folder / MANIFEST).exists():
            store = Store.read(folder)
            if store.finished:
                stores.append(store)
    return stores


def latest(name: str, quick: bool) -> Store:
    """The latest complete run at a scale: the one made here or, at paper scale, the committed one."""
    folders = [run_folder(name, "quick")] if quick else [run_folder(name, "paper"), committed_folder(name)]
    for folder in folders:
        if (folder / MANIFEST).exists():
            store = Store.read(folder)
            if store.finished:
                return store
    option = " --quick" if quick else ""
    raise StoreError(
        f"{name}: no complete {'quick' if quick else 'paper-scale'} results yet; make them with\n"
        f"  python -m experiments {name} run{option}"
    )

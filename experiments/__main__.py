"""The command line: `python -m experiments --help`."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path
from typing import Any

from . import registry
from .common import claims, options, places
from .common.progress import say
from .common.store import MANIFEST, Store, StoreError, discard

EPILOG = """\
examples:
  python -m experiments all --quick          everything, small, in minutes; then the report
  python -m experiments convex run           at paper scale, into runs/paper/convex
  python -m experiments convex figure        draw what was run
  python -m experiments convex publish       copy a paper-scale run to experiments/convex/results, to be committed
  python -m experiments strings evaluate     test the committed weights again
  python -m experiments claims --json        paper and measured, from committed results and the latest quick run
  python -m experiments report               the same with figures, as one HTML page

An interrupted run goes on where it stopped when the same command is given again.
"""


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        arguments.do(arguments)
    except StoreError as error:
        say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        say("\ninterrupted; finished cells are kept, the same command goes on from there")
        return 130
    return 0


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m experiments",
        description="The experiments of the paper, repeated.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = top.add_subparsers(metavar="name", required=True, title="experiments and commands")
    for name, summary in registry.EXPERIMENTS.items():
        _add_experiment(names, name, summary)
    everything = names.add_parser("all", help="run every experiment, draw its figures, write the report")
    _add_run_options(everything, "every finished run is made again, an interrupted one goes on")
    everything.set_defaults(do=run_all)
    page = names.add_parser("report", help="write one HTML page with claims, figures and tables; prints its path")
    page.add_argument("--out", type=Path, metavar="FILE", help="the page (default: runs/report.html)")
    page.set_defaults(do=lambda a: print(_report(a.out)))
    table = names.add_parser("claims", help="print what the paper says next to what was measured")
    table.add_argument("--json", action="store_true", help="as a JSON list of objects")
    table.set_defaults(do=show_claims)
    return top


def _add_experiment(names: Any, name: str, summary: str) -> None:
    experiment = names.add_parser(name, help=summary, description=summary)
    what = experiment.add_subparsers(metavar="what", required=True, title="what to do")
    run = what.add_parser("run", help="compute the results", description=summary)
    _add_run_options(run, "a finished run is kept, an interrupted one goes on")
    run.add_argument(
        "--out", type=Path, metavar="DIR", help=f"default: runs/SCALE/{name}, SCALE being paper, quick or custom"
    )
    options.add_options(run, registry.config(name))
    run.set_defaults(do=lambda a: run_one(name, options.read_options(a, registry.config(name), a.quick), a))
    figure = what.add_parser("figure", help="draw the results of a run, next to them")
    figure.add_argument("--quick", action="store_true", help="of the latest quick run, not of the one at paper scale")
    figure.add_argument("--out", type=Path, metavar="DIR", help="of the run in this folder")
    figure.set_defaults(do=lambda a: draw(name, Store.read(a.out) if a.out else places.latest(name, a.quick)))
    publish = what.add_parser("publish", help=f"copy a paper-scale run to experiments/{name}/results, to be committed")
    publish.add_argument(
        "--out", type=Path, metavar="DIR", help=f"of the run in this folder (default: runs/paper/{name})"
    )
    publish.set_defaults(do=lambda a: commit(name, a.out or places.run_folder(name, "paper")))
    for verb, text in registry.VERBS.get(name, {}).items():
        extra = what.add_parser(verb, help=text, description=text)
        extra.add_argument("--out", type=Path, metavar="DIR", help="of the run in this folder, not of the latest one")
        extra.set_defaults(do=lambda a, verb=verb: registry.do(name, verb, a.out))


def _add_run_options(parser: argparse.ArgumentParser, otherwise: str) -> None:
    parser.add_argument("--quick", action="store_true", help="a small version of the same, for a first look")
    parser.add_argument("--fresh", action="store_true", help=f"discard earlier results (otherwise {otherwise})")


def run_one(name: str, config: Any, arguments: argparse.Namespace) -> None:
    folder = arguments.out or places.run_folder(name, options.scale(config))
    if arguments.fresh:
        discard(folder)
    elif (folder / MANIFEST).exists() and Store.read(folder).finished:
        Store.create(folder, name, config)  # complains if it is another configuration
        say(f"{name}: finished earlier, nothing to do (--fresh runs it again)")
        print(folder)
        return
    registry.run(name, config, folder)
    print(folder)


def run_all(arguments: argparse.Namespace) -> None:
    for name in registry.EXPERIMENTS:
        cls = registry.config(name)
        config = cls.quick() if arguments.quick else cls()
        folder = places.run_folder(name, options.scale(config))
        if arguments.fresh or _is_over(folder, config):
            discard(folder)
        registry.run(name, config, folder)
        draw(name, Store.read(folder))
    print(_report(None))


def _is_over(folder: Path, config: Any) -> bool:
    """Whether the folder holds a finished run, or one of other numbers, which cannot be gone on with."""
    if not (folder / MANIFEST).exists():
        return False
    store = Store.read(folder)
    return store.finished or store.manifest["config"] != options.as_json(config)


def draw(name: str, store: Store, committed: bool = False) -> None:
    from . import report  # and matplotlib

    for path in report.save_figures(name, store, store.folder, report.ANIMATIONS if committed else None):
        print(path)


def commit(name: str, folder: Path) -> None:
    """Copy a finished run at paper scale, with its figures, to where results are committed."""
    store, target = Store.read(folder), places.committed_folder(name)
    if not store.finished or store.manifest["scale"] != "paper":
        state = store.manifest["scale"] if store.finished else "unfinished"
        raise StoreError(f"{folder}: the run is {state}; only a finished run with the paper's numbers is committed")
    discard(target)
    target.mkdir(parents=True, exist_ok=True)
    for path in [*sorted(folder.glob("*.npz")), folder / MANIFEST]:
        shutil.copyfile(path, target / path.name)
    draw(name, Store.read(target), committed=True)


def show_claims(arguments: argparse.Namespace) -> None:
    found = [claim for claim, _ in registry.collect()]
    if not found and not arguments.json:
        raise StoreError("no results yet; make some with\n  python -m experiments all --quick")
    print(claims.to_json(found) if arguments.json else claims.to_text(found))


def _report(path: Path | None) -> Path:
    from . import report

    return report.write(path or places.RUNS / "report.html")


if __name__ == "__main__":
    sys.exit(main())

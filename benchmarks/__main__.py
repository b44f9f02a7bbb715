"""The command line: `python -m benchmarks <name> [options]`."""

from __future__ import annotations

import argparse
import sys

from . import agreement, feasibility, growth, limits, overhead, peers, solvers

#: Each module offers `add_arguments(parser)` and `run(args) -> exit status`; its docstring is its help.
BENCHMARKS = {
    "agreement": agreement,
    "feasibility": feasibility,
    "growth": growth,
    "limits": limits,
    "overhead": overhead,
    "peers": peers,
    "solvers": solvers,
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measurements of inset.")
    names = parser.add_subparsers(dest="name", metavar="name", required=True, title="benchmarks")
    for name, module in BENCHMARKS.items():
        text = module.__doc__ or ""
        sub = names.add_parser(
            name,
            help=text.splitlines()[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(run=module.run)
    args = parser.parse_args(argv)
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())

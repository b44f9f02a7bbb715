"""Fast paths against the formulas: the same points and derivatives, on the device where they run.

A kernel, or few operations, stand in place of a set's formulas where they can. Here both project the same points, and
the formulas do so again in float64. A fast path agrees if it is as near to that as the formulas in its own dtype are,
in float64 as those in float32, each in eps of its dtype; or within rounding. The exit status is 1 if one does not.
Whether results are in the set is for `feasibility` to tell.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import inset
from inset import _fast
from inset.torch import Projection

from . import environment
from .feasibility import DTYPES, plan
from .points import Point, leaves, map_point, to_float64
from .results import Results
from .sets import Case

MORE, ROUNDING = 8.0, 128.0
"""How many times the error of the formulas, and how many eps, a fast path may be off."""
SHARE = 0.9
"""Of the points that are judged: far out, and where two constraints are as bad, rounding decides which is active."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--points", type=lambda text: int(float(text)), default=2000, help="in a cell (default 2000)")
    parser.add_argument("--sets", help="comma-separated names or beginnings of names, `ball,far box`; default all")
    parser.add_argument("--dtypes", default=",".join(DTYPES), help="comma-separated (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default cpu)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the cells there; a stopped run goes on from it"
    )


def run(args: argparse.Namespace) -> int:
    if args.device.startswith("cuda") and not torch.cuda.is_available():
        raise SystemExit(f"error: --device {args.device}: torch sees no GPU here; expected one, or --device cpu")
    cells = plan(1, args.sets, args.dtypes.split(","))
    facts = environment.describe(args.device) | {"seed": args.seed, "points": args.points}
    print(environment.show(facts), flush=True)
    print(
        "\nErrors against float64, fast path / formulas, of points and of derivatives, and what strict takes of the\n"
        "way from the anchor, in eps of the dtype\n"
    )
    print(f"{'set':<26}{'dtype':<10}{'method':<8}{'path':<12}{'points':>18}{'derivatives':>18}{'margin':>20}")
    results, bad = Results(args.json, facts), 0
    for cell in cells:
        if cell.key not in results.cells:
            results.add(cell.key, measured(cell.case, cell.dtype, cell.method, args.points, args.seed, args.device))
        found = results.cells[cell.key]
        if found["path"] is None:
            continue
        bad += not found["agrees"]
        columns = "".join(_pair(found[name], width) for name, width in (("y", 18), ("dx", 18), ("margin", 20)))
        verdict = "" if found["agrees"] else "  differs"
        print(f"{cell.case.name:<26}{cell.dtype:<10}{cell.method:<8}{found['path']:<12}{columns}{verdict}", flush=True)
    results.write()
    count = sum(results.cells[cell.key]["path"] is not None for cell in cells)
    print(f"\n{count} fast paths, {bad} that differ; {len(cells) - count} cells run by the formulas alone")
    return 1 if bad else 0


def _pair(values: list[float], width: int) -> str:
    return f"{values[0]:.2g} / {values[1]:.2g}".rjust(width)


def measured(case: Case, name: str, method: Any, count: int, seed: int, device: str) -> dict[str, Any]:
    """Errors of the fast path and of the formulas; the path is None where there is only one of them."""
    dtype = getattr(torch, name)
    set, anchor = case.at(dtype, device)
    draw = torch.Generator(device).manual_seed(seed)
    x = map_point(lambda leaf: _around(leaf, case.spread, count, draw), anchor)
    path = _path(set, x, anchor, method)
    if path is None:
        return {"path": None}
    g = map_point(lambda leaf: torch.randn(leaf.shape, generator=draw, device=device).to(dtype), x)
    known = torch.float32 if dtype == torch.float64 else dtype
    fast = _Errors(set, x, g, anchor, method, _twice)
    there = case.at(known, device)[0]
    usual = _Errors(there, _cast(x, known), _cast(g, known), _cast(anchor, known), method, _by_formulas)
    found: dict[str, Any] = {"path": path}
    for column in ("y", "dx", "margin"):
        found[column] = [getattr(fast, column), getattr(usual, column)]
    found["agrees"] = all(f <= max(MORE * u, ROUNDING) for f, u in (found["y"], found["dx"]))
    return found


class _Errors:
    """What a way to project is off from the formulas in float64, and what strict takes, in eps."""

    def __init__(
        self, set: inset.ConvexSet, x: Point, g: Point, anchor: Point, method: Any, apply: Callable[..., Any]
    ) -> None:
        eps = torch.finfo(leaves(x)[0].dtype).eps
        wide, middle, cotangent = (_cast(v, torch.float64) for v in (x, anchor, g))
        true, truth = _by_formulas(to_float64(set), wide, cotangent, middle, method, False)
        loose, derivative = apply(set, x, g, anchor, method, False)
        tight, _ = apply(set, x, g, anchor, method, True)
        self.y, self.dx = _error(loose, true, middle) / eps, _error(derivative, truth, None) / eps
        self.margin = _shorter(tight, loose, middle) / eps


def _around(anchor: Tensor, spread: float, count: int, draw: torch.Generator) -> Tensor:
    """Points about as far as the set is wide, some inside and some well outside."""
    step = torch.randn(count, *anchor.shape, generator=draw, device=anchor.device)
    far = 2 ** (6 * torch.rand(count, *(1,) * anchor.ndim, generator=draw, device=anchor.device) - 4)
    return (anchor.float() + spread * far * step).to(anchor.dtype)


def _path(set: inset.ConvexSet, x: Point, anchor: Point, method: Any) -> str | None:
    """The package that projects in place of the formulas."""
    for fused in _fast.FUSED:
        if fused(set, x, anchor, method, True) is not None:
            return fused.__module__.split(".")[1].removeprefix("_")
    return None


def _by_formulas(
    set: inset.ConvexSet, x: Point, g: Point, anchor: Point, method: Any, strict: bool
) -> tuple[Point, Point]:
    """g(x) and its derivative under a transform of torch.func, where no fast path runs."""
    y, pull, *_ = torch.func.vjp(partial(inset.project, set, anchor=anchor, method=method, strict=strict), x)
    return y, pull(g)[0]


def _twice(set: inset.ConvexSet, x: Point, g: Point, anchor: Point, method: Any, strict: bool) -> tuple[Point, Point]:
    """Those of the second call of a layer, which goes straight to its path."""
    layer = Projection(set, anchor, method=method, strict=strict)
    layer(x)
    live = map_point(lambda leaf: leaf.clone().requires_grad_(), x)
    y = layer(live)
    torch.autograd.backward(leaves(y), leaves(g))
    return map_point(lambda leaf: leaf.detach(), y), map_point(lambda leaf: leaf.grad, live)


def _cast(x: Point, dtype: torch.dtype) -> Point:
    return map_point(lambda leaf: leaf.to(dtype), x)


def _flat(x: Point, count: int) -> Tensor:
    """The numbers of each sample side by side."""
    return torch.cat([leaf.double().expand(count, *leaf.shape[1:]).reshape(count, -1) for leaf in leaves(x)], -1)


def _error(found: Point, true: Point, anchor: Point | None) -> float:
    """The distance over the size of what is true, or of the anchor if that is larger, in all but a few samples."""
    count = leaves(true)[0].shape[0]
    size = _flat(true, count).norm(dim=-1)
    if anchor is not None:
        size = size.clamp(min=float(_flat(map_point(lambda leaf: leaf[None], anchor), 1).norm()))
    off = (_flat(found, count) - _flat(true, count)).norm(dim=-1) / size.clamp(min=1e-30)
    return float(off.nan_to_num(torch.inf).quantile(SHARE))


def _shorter(tight: Point, loose: Point, anchor: Point) -> float:
    """The mean share of the way from the anchor that strict takes."""
    count = leaves(loose)[0].shape[0]
    way = (_flat(loose, count) - _flat(map_point(lambda leaf: leaf[None], anchor), count)).norm(dim=-1)
    return float(((_flat(tight, count) - _flat(loose, count)).norm(dim=-1) / way.clamp(min=1e-30)).mean())

"""The tables of `growth`: times, memory, slopes, and the largest step between neighbouring sizes."""

from __future__ import annotations

import math
from typing import Any

from .growth_lines import LARGE, PASSES, Line

TAIL = 16  # slopes are of the sizes within this factor of the largest
CLIFF = 2.0  # a step so much larger than expected is one
LEAST = {"seconds": 0.0, "bytes": 16e6}  # less memory is that of the allocator, not of the arrays
UNITS = {"seconds": ("ms", 1e3), "bytes": ("MB", 1e-6)}


def slope(sizes: list[int], values: list[float]) -> float:
    """Of the line through the logarithms that has the least squares, over the tail."""
    tail = [(s, v) for s, v in zip(sizes, values, strict=True) if TAIL * s >= sizes[-1] and v > 0]
    pairs = [(math.log(s), math.log(v)) for s, v in tail]
    if len(pairs) < 2:
        return math.nan
    x, y = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    return sum((a - x) * (b - y) for a, b in pairs) / sum((a - x) ** 2 for a, _ in pairs)


def largest_step(sizes: list[int], values: list[float], expected: float, least: float = 0.0) -> tuple[float, int]:
    """The largest growth from one size to the next over the expected one, and the size it leads to."""
    steps = [
        (after / before / (larger / size) ** expected, larger)
        for size, larger, before, after in zip(sizes, sizes[1:], values, values[1:], strict=False)
        if before > least
    ]
    return max(steps, default=(math.nan, 0))


def show(lines: list[Line], cells: dict[str, Any]) -> None:
    """For each axis a table of times and one of memory, a column for each set and pass."""
    worst = []
    for axis in dict.fromkeys(line.axis for line in lines):
        group = [line for line in lines if line.axis == axis]
        for quantity in UNITS:
            worst += _table(axis, group, cells, quantity)
    if worst:
        step, where = max(worst)
        verdict = "a cliff" if step > CLIFF else "no cliff"
        print(f"\n{verdict}: the largest step is {step:.2f} times the expected one ({where})")


def _table(axis: str, lines: list[Line], cells: dict[str, Any], quantity: str) -> list[tuple[float, str]]:
    unit, scale = UNITS[quantity]
    columns = [(line, name, cells[line.name][name][quantity]) for line in lines for name in PASSES]
    columns = [(line, name, values) for line, name, values in columns if None not in values]
    if not columns:
        return []
    fixed = {"batch": "8 dimensions", "dimension": "batch 256", "constraints": "100 dimensions, batch 1024"}[axis]
    print(f"\n{unit} against {axis}, {fixed}; + is forward + backward\n")
    print(f"{axis:>12}" + "".join(f"{line.set + (' +' if name == PASSES[1] else ''):>12}" for line, name, _ in columns))
    for size in max((line.sizes for line in lines), key=len):
        shown = [values[line.sizes.index(size)] if size in line.sizes else None for line, _, values in columns]
        print(f"{size:>12}" + "".join(f"{_entry(v, scale, quantity):>12}" for v in shown))
    worst, rows = [], {"slope": "", "expected": "", "largest step": ""}
    for line, name, values in columns:
        sizes = list(line.sizes)
        step, at = largest_step(sizes, values, line.slope, LEAST[quantity])
        rows["slope"] += f"{_number(slope(sizes, values)):>12}"
        rows["expected"] += f"{line.slope:>12}"
        rows["largest step"] += f"{_number(step):>12}"
        if not math.isnan(step):
            worst.append((step, f"{unit} against {axis}, {line.set}, {name}, up to {at}"))
    for label, text in rows.items():
        print(f"{label:>12}{text}", flush=True)
    return worst


def _entry(value: float | None, scale: float, quantity: str) -> str:
    if value is None:
        return ""
    return "<1" if quantity == "bytes" and scale * value < 1 else f"{scale * value:.3g}"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2f}"


def show_large(cells: dict[str, Any]) -> None:
    n, m = LARGE.n, LARGE.sizes[0]
    print(f"\nA polytope of {m} constraints in {n} dimensions, batch {LARGE.batch}\n")
    print(f"{'':<32}{'seconds':>10}{'peak GB':>10}")
    for key, cell in cells.items():
        if key.startswith("large "):
            memory = "" if cell["bytes"] is None else f"{cell['bytes'] / 1e9:.2f}"
            print(f"{key.removeprefix('large '):<32}{cell['seconds']:>10.3g}{memory:>10}")

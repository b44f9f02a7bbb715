"""What `peers` prints: a table per set and batch size, the transforms, and the bars."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .peers_layers import OURS, PEERS, REFERENCES
from .peers_sets import SETS

Cells = dict[str, dict[str, Any]]
BATCH = 512  # of the bars
POLYTOPES = ("polytope-50-50", "polytope-200-400", "polytope-1000-1000")
CURVED = ("quadratic-10-100", "quadratic-100-1000", "cones-10-100", "lmi-10", "lmi-100")

NOTE = """
Not like for like: a layer marked * computes the nearest point of the set, the others the last point of the set on the
line from an anchor, or, for the chord, one before it. The nearest point costs more and moves x less, as |y - x|
shows; `near` steps towards it, and then goes along a line. trust-region-layers, their formulas in our code, computes
the nearest means and variances apart, by KL and not by |y - x|, each with one half of epsilon.

forward: without gradients; both: forward and backward; milliseconds per call of one batch. /chord!, /chord, /ray!: the
time over that of inset's layer in the same round; ! stands for strict. MB: how much the process grows at the peak of
one `both`. worst h: the largest h(y), in float64 from the numbers returned, 0 if no sample is outside; outside: the
share of samples with h(y) > 0, if only by an ulp. |y - x|: mean displacement. float32: the layer in float32.
A call of more than 5 s is made once. RAYEN gets x - x0 in its own coordinates, and Pi-net compiled functions; building
a layer, compiling and tuning are not in the times."""


def key(name: str, batch: int, layer: str) -> str:
    return f"{name}|{batch}|{layer}"


def title(label: str) -> str:
    peer = PEERS.get(label)
    return label.replace(", strict", "!") if peer is None else peer.title + "*" * peer.nearest


def rows(name: str, batch: int, cells: Cells) -> Iterator[tuple[str, dict[str, Any]]]:
    """Label and entry, or error, of every layer that was measured on a set."""
    for layer in ("inset", *PEERS):
        cell = cells.get(key(name, batch, layer))
        if cell is None:
            continue
        yield from cell["entries"].items() if "entries" in cell else [(layer, cell)]


def table(name: str, batch: int, cells: Cells) -> str:
    found = list(rows(name, batch, cells))
    head = f"{'forward':>10}{'/chord!':>9}{'both':>10}{'/chord!':>9}{'quartiles':>15}{'/chord':>9}{'/ray!':>9}{'MB':>8}"
    head += f"{'worst h':>9}{'outside':>9}{'|y - x|':>9}{'float32: h':>12}{'outside':>9}"
    wide = max([21, *(len(title(label)) + 1 for label, _ in found)])
    lines = ["", f"{SETS[name].title}, batch {batch}", f"  {'':<{wide}}{head}"]
    lines += [f"  {title(label):<{wide}}{row(entry)}" for label, entry in found]
    residuals = [f"{title(label)} {entry['residual']:.0e}" for label, entry in found if "residual" in entry]
    if residuals:
        lines.append(f"  largest |E y - e|: {', '.join(residuals)}")
    return "\n".join(lines) if found else ""


def row(entry: dict[str, Any]) -> str:
    if "error" in entry:
        return f"  {entry['error']}"
    ratios = {reference: f"{number(value):>9}" for reference, value in entry["both ratio"].items()}
    spread = f"{number(entry['low'])} - {number(entry['high'])}" if entry["rounds"] > 1 else "one round"
    memory = "-" if entry["memory"] is None else number(entry["memory"])
    text = f"{number(entry['forward']):>10}{number(entry['forward ratio']):>9}{number(entry['both']):>10}"
    text += f"{ratios[REFERENCES[0]]}{spread:>15}{ratios[REFERENCES[1]]}{ratios[REFERENCES[2]]}{memory:>8}"
    text += f"{violation(entry)}{number(entry['displacement']):>9}"
    return text + (violation(entry["float32"], 12) if "float32" in entry else "")


def number(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1e-3 else "0"


def violation(entry: dict[str, Any], width: int = 9) -> str:
    worst = f"{entry['worst']:.0e}" if entry["worst"] else "0"
    share = f"{100 * entry['share']:.3g} %"
    return f"{worst:>{width}}{share:>9}"


def everything(names: list[str], batches: list[int], cells: Cells) -> str:
    """All tables, as far as there is something to show."""
    tables = [table(name, batch, cells) for name in names for batch in batches]
    return "\n".join([*filter(None, tables), transforms(cells), bars(cells)])


def transforms(cells: Cells) -> str:
    """What was tried with each layer, and what came of it."""
    from .peers_transforms import TRANSFORMS

    lines = ["", "Transforms, tried on the small polytope: yes, no (it raised), wrong (it ran, with another result)"]
    lines.append(f"  {'':<21}" + "".join(f"{name:>17}" for name in TRANSFORMS))
    for layer in ("inset", *PEERS):
        cell = cells.get(key("transforms", 0, layer), {})
        for label, verdicts in cell.get("transforms", {}).items():
            lines.append(f"  {title(label):<21}" + "".join(f"{verdicts[name]:>17}" for name in TRANSFORMS))
        if "error" in cell:
            lines.append(f"  {title(layer):<21}  {cell['error']}")
    return "\n".join(lines)


# -- the bars ----------------------------------------------------------------------------------------------------


def bars(cells: Cells) -> str:
    """What this project holds itself to, and where it misses that."""
    lines = ["", f"Bars, forward and backward, batch {BATCH}; they are enforced by nothing"]
    lines += speed("RAYEN, chord without the margin", "rayen", "chord", 5, POLYTOPES, cells)
    lines += speed("RAYEN, chord with it", "rayen", "chord, strict", 4, POLYTOPES, cells)
    lines += speed("RAYEN, chord with the margin", "rayen", "chord, strict", 1, CURVED, cells)
    lines += speed("RAYEN, ray with the margin", "rayen", "ray, strict", 1, CURVED, cells)
    lines += speed("cvxpylayers, Moreau", "cvxpylayers-moreau", "chord, strict", 500, tuple(SETS), cells)
    return "\n".join([*lines, *feasible(cells)])


def speed(text: str, layer: str, reference: str, bar: float, names: tuple[str, ...], cells: Cells) -> list[str]:
    """How many times as long as inset's layer a peer takes, set by set."""
    lines = [f"  {text}: at least {bar:g} times as long"]
    for name in names:
        cell = cells.get(key(name, BATCH, layer))
        if cell is None:
            continue
        if "error" in cell:
            found = f"not measured: {cell['error']}"
        else:
            value = cell["entries"][layer]["both ratio"][reference]
            found = f"{number(value):<8}{'met' if value >= bar else 'MISSED'}"
        lines.append(f"    {name:<22}{found}")
    return lines if len(lines) > 1 else [f"{lines[0]}: not measured"]


def feasible(cells: Cells) -> list[str]:
    """Whether inset's strict layers violate nothing, and who else does not."""
    lines = ["  No violation where every peer shows some"]
    for name in SETS:
        shares = {label: entry["share"] for label, entry in rows(name, BATCH, cells) if "share" in entry}
        strict = [label for label in shares if label == "near" or (label in OURS and label != "chord")]
        others = [label for label in shares if label in PEERS and label != "near"]
        if not strict:
            continue
        guilty = [title(label) for label in strict if shares[label] > 0]
        clean = [title(label) for label in others if shares[label] == 0]
        found = f"MISSED by {', '.join(guilty)}" if guilty else "met"
        peers = f"peers without any: {', '.join(clean)}" if clean else f"every one of {len(others)} peers shows some"
        lines.append(f"    {name:<22}{found:<8}{peers if others else 'no peer was measured'}")
    return lines

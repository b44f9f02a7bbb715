"""Claims: what the paper says, next to what was measured here."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any

from .store import Store


@dataclass(frozen=True)
class Finding:
    """One number that an experiment measured against the paper's."""

    claim: str
    """A short name, unique within the experiment."""
    paper: float | None
    """The paper's number; None where it gives none, or where the claim is ours."""
    measured: float
    holds: bool
    meaning: str
    """The claim as a sentence."""


@dataclass(frozen=True)
class Claim:
    """A row of the table of claims."""

    experiment: str
    claim: str
    paper: float | None
    measured: float
    scale: str
    holds: bool
    command: str


def rows(store: Store, findings: list[Finding]) -> list[Claim]:
    """The findings with where they come from."""
    origin = store.manifest
    return [
        Claim(origin["experiment"], f.claim, f.paper, _number(f), origin["scale"], bool(f.holds), origin["command"])
        for f in findings
    ]


def to_json(claims: list[Claim]) -> str:
    return json.dumps([asdict(claim) for claim in claims], indent=1, allow_nan=False)


def to_text(claims: list[Claim]) -> str:
    """A table with aligned columns."""
    head = ("experiment", "claim", "paper", "measured", "scale", "holds", "command")
    lines = [head, *(tuple(show(value) for value in asdict(claim).values()) for claim in claims)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join("  ".join(word.ljust(w) for word, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def show(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 1e6):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.3g}" if 1 <= abs(value) < 1000 else f"{value:.2g}"
    return str(value)


def _number(finding: Finding) -> float:
    if not math.isfinite(finding.measured):
        raise ValueError(f"claim {finding.claim!r}: measured {finding.measured}, expected a finite number")
    return int(finding.measured) if float(finding.measured).is_integer() else float(finding.measured)

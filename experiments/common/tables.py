"""`Table`: rows of text under a caption, for the report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """A caption, column heads and rows."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def small(value: float, floor: float = 1e-16) -> str:
    """An error with two digits; below the floor, rounding is all that is left of it."""
    return f"{value:.1e}" if value >= floor else f"<{floor:.0e}"

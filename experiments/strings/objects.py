"""The three objects: where their seven bodies start, which of them are linked, and their symmetries."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BODIES = 7
NAMES = ("chain", "triangles", "star")


@dataclass(frozen=True, eq=False)
class Shape:
    """Bodies of diameter 1 with strings that are taut at the start."""

    positions: np.ndarray
    """Where the bodies start, around 0, in units of the length of a string, `(7, 2)`."""
    links: np.ndarray
    """The pairs of bodies that a string links, `(strings, 2)`."""

    def symmetries(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The rotations and reflections A after which the object looks as before, and how they rename bodies.

        Pairs `(order, A)` with positions[order] @ A.T == positions. A trajectory p of the object, turned and renamed
        as p[:, order] @ A.T, is one of the same object after another kick, if gravity is left out.
        """
        found = []
        for k in range(6):
            angle = k * np.pi / 3
            turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
            for mirror in (np.eye(2), np.diag([-1.0, 1.0])):
                map = turn @ mirror
                gaps = np.linalg.norm(self.positions[:, None] - self.positions @ map.T, axis=-1)
                if gaps.min(axis=1).max() < 1e-9:
                    found.append((gaps.argmin(axis=1), map))
        return found


def shape(name: str) -> Shape:
    """The object of a name.

    >>> [len(shape(name).links) for name in NAMES]
    [6, 9, 12]
    """
    row = np.arange(BODIES)
    if name == "chain":
        positions, links = np.stack([row, 0 * row], 1), [(i, i + 1) for i in range(6)]
    elif name == "triangles":
        positions = np.stack([row / 2, np.sqrt(0.75) * (row % 2)], 1)  # every second body is a top
        links = [(i, j) for k in (0, 2, 4) for i, j in ((k, k + 1), (k + 1, k + 2), (k, k + 2))]
    elif name == "star":
        angles = np.arange(6) * np.pi / 3
        positions = np.concatenate([np.zeros((1, 2)), np.stack([np.cos(angles), np.sin(angles)], 1)])
        links = [(0, i) for i in range(1, 7)] + [(i, i % 6 + 1) for i in range(1, 7)]
    else:
        raise ValueError(f"object {name!r}: expected one of {', '.join(NAMES)}")
    return Shape(positions - positions.mean(axis=0), np.array(links))

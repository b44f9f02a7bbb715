"""Phase one: a strictly feasible point of a program, or a proof that there is none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ._descend import Descent, descend
from ._program import Program

DEEP = 0.1
"""It stops here: rows have length 1, so this is a depth in the units of the variables."""
SHALLOW = 1e-9
"""Depth below which a set counts as without interior: less than what constraints are asked to hold to."""
BOXES = (10.0, 1e3, 1e5, 1e7)
"""Where it looks, relative to the largest distance of a row from the origin."""


@dataclass(frozen=True, eq=False)
class Start:
    """What phase one found: an anchor, or bounds of how deep a point can be."""

    anchor: Tensor | None
    steps: int = 0
    depth: float = float("inf")
    """How deep the deepest point found is; negative by how much it violates a constraint."""
    deepest: float = float("inf")
    """No point is deeper; inf where that is not proved."""
    y: Tensor | None = None
    """What proves it: G^T y = 0, y.e = 1 and y.h = deepest, for y in the dual cone."""
    contradiction: bool = False
    """Whether y proves the program infeasible."""


def find_anchor(program: Program, solver: Any, steps: int, say: Callable[[str], None]) -> Start:
    """A strictly feasible point, deep if that is quick, by minimising how much the cones must grow to hold one.

    It is looked for in a box, so as not to be far away where the set is without bound, and in a wider one if need be.
    """
    x = torch.zeros_like(program.c)
    if not program.blocks or float(program.heights(program.slack(x)).max()) <= -DEEP:
        return Start(x)
    start, taken = Start(None), 0
    for radius in BOXES:
        found = _search(program, radius * program.size, solver, steps, say)
        taken += found.steps
        start = _judge(program, found, taken)
        if start.anchor is not None or start.y is not None:
            break
    return start


def _search(program: Program, radius: float, solver: Any, steps: int, say: Callable[[str], None]) -> Descent:
    """The descent in a box."""
    x = torch.zeros_like(program.c)
    height = float(program.heights(program.slack(x)).max())
    seen: list[tuple[int, float]] = []

    def enough(step: int, value: float) -> bool:
        """Deep, or inside and not a tenth deeper than after half of the steps."""
        seen.append((step, value))
        earlier = next((v for k, v in reversed(seen) if 2 * k <= step), 0.0)
        return value <= -DEEP or (step >= 64 and value < -SHALLOW and value > 1.1 * earlier)

    anchor = torch.cat([x, x.new_tensor([height + 1.0])])
    return descend(program.relaxed(radius), anchor, solver, steps, SHALLOW / 10, enough=enough, say=say)


def _judge(program: Program, found: Descent, steps: int) -> Start:
    """The anchor, or what is proved without the help of the box."""
    proof, m = found.proof, len(program.h)
    x = proof.x[:-1]
    depth = -float(program.heights(program.slack(x)).max())
    if depth > SHALLOW:
        return Start(x, steps, depth)
    if proof.y is None or bool(proof.y[m + 1 :].any()):
        return Start(None, steps, depth)
    y = proof.y[:m]
    # what rounding leaves of G^T y = 0 must not matter, even far out
    doubt = SHALLOW + BOXES[-1] * program.size * float((program.G.T @ y).abs().max())
    return Start(None, steps, depth, -proof.lower, y, proof.lower > doubt)

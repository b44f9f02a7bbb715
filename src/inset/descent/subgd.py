"""`SubGD`: subgradient descent, down f inside the set and down h outside."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from .._namespace import Array, namespace
from ._program import Program, cut
from ._record import Record, start
from ._step import check_step, column
from .result import Status


class SubGDState(NamedTuple):
    record: Record
    z: Array


@dataclasses.dataclass(frozen=True, eq=False)
class SubGD:
    """x <- x - step grad f(x) where h(x) <= 0, else x - step grad h(x). Only iterates inside are recorded.

    With `rescale` h is first divided by |h(anchor)|, as in `IGD`.

    >>> SubGD(1e-2)
    SubGD(step=0.01, rescale=False)
    """

    step: Any
    rescale: bool = False

    def __post_init__(self) -> None:
        check_step(self)

    def start(self, program: Program) -> SubGDState:
        return SubGDState(start(program.anchor, program.offset, program.usable), program.anchor)

    def advance(self, program: Program, state: SubGDState) -> SubGDState:
        xp, z = namespace(state.z), state.z
        depth = xp.min(program.scale, axis=-1, keepdims=True)
        h, g = cut(program, z, depth if self.rescale else xp.ones_like(depth))
        inside = h <= 0
        value = program.value(z)
        record = state.record.add(z, value, inside).called()
        following = z - column(self.step, program) * xp.where(inside[:, None], program.slope(z), g)
        finite = xp.all(xp.isfinite(following), axis=-1) & (xp.isfinite(value) | ~inside)
        record = record.stop(~finite, Status.NOT_FINITE)
        return SubGDState(record, xp.where(record.running[:, None], following, z))

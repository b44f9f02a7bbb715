"""`PGD`: projected gradient descent, where the set knows its nearest points."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from .._namespace import Array, namespace
from .._set import offers
from ._program import Program
from ._record import Record, start
from ._step import check_step, column
from .result import Status


class PGDState(NamedTuple):
    record: Record
    z: Array


@dataclasses.dataclass(frozen=True, eq=False)
class PGD:
    """x <- nearest(x - step grad f(x)), with the orthogonal projection of the set.

    >>> PGD(1e-2)
    PGD(step=0.01)
    """

    step: Any

    def __post_init__(self) -> None:
        check_step(self)

    def start(self, program: Program) -> PGDState:
        if not offers(program.set, "nearest"):
            raise NotImplementedError(
                f"PGD needs the nearest point of the set, which {type(program.set).__name__} does not know in closed "
                "form; use Radial() or IGD(step)"
            )
        return PGDState(start(program.anchor, program.offset, program.usable), program.anchor)

    def advance(self, program: Program, state: PGDState) -> PGDState:
        xp, z = namespace(state.z), state.z
        following = program.at.of(program.set.nearest(program.point(z - column(self.step, program) * program.slope(z))))
        value = program.value(following)
        finite = xp.all(xp.isfinite(following), axis=-1) & xp.isfinite(value)
        record = state.record.called().add(following, value, finite).stop(~finite, Status.NOT_FINITE)
        return PGDState(record, xp.where(record.running[:, None], following, z))

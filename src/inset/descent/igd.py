"""`IGD`: gradient descent on f o g, the algorithm of the paper."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

from .._combine import Product
from .._namespace import Array, keep, namespace
from .._project import METHODS, Interpolation
from ._program import Program
from ._record import Record, start
from ._step import check_step, column
from .result import Status


class IGDState(NamedTuple):
    record: Record
    z: Array
    """The iterate, which may be outside of the set, `(N, k)`."""


@dataclasses.dataclass(frozen=True, eq=False)
class IGD:
    """Gradient descent on f o g, g the interpolation towards the anchor x0, with h scaled so that h(x0) = -1:

        x <- x - beta grad f(x)                              where h(x) <= 0
        x <- x - beta (1 + h(x)) grad (f o g)(x)             outside, and there
             (1 + h(x)) grad (f o g)(x) = grad f(y) - (grad f(y).(y - x0)) grad h(x),    y = g(x)

    Best and average are taken over the points g(x_k), all of them feasible. For a linear f and with
    `IGD.from_bounds` the paper's theorem bounds the error of the average by `bound()`; other f need not be convex.
    `step` is beta, a number or an array of the shape of the batch. `method` chooses g as in `project`.

    >>> IGD.from_bounds(L=1.0, H=1.0, R=2.0, K=10_000).bound()
    0.06
    """

    step: Any
    method: Interpolation = "paper"
    error: float | None = None
    """The bound of the theorem, when the step comes from one."""

    def __post_init__(self) -> None:
        check_step(self)
        if self.method not in METHODS:
            raise ValueError(f"IGD(method={self.method!r}): expected one of {', '.join(METHODS)}")

    @staticmethod
    def from_bounds(L: float, H: float, R: float, K: int, depth: float = 1.0) -> IGD:
        """The step size beta = R / (L (1 + H0 R) sqrt(K)) with the smallest bound after K steps, H0 = H / depth.

        `L` and `H` are Lipschitz constants of f and h, `R` bounds the distance from the anchor to an optimum,
        `depth` is |h(anchor)|: leave it 1 if H is meant for the scaled h. The theorem asks for
        K >= (R H0 / (1 + R H0))^2, which every K >= 1 satisfies.
        """
        for name, number in (("L", L), ("H", H), ("R", R), ("K", K), ("depth", depth)):
            if not number > 0:
                raise ValueError(f"IGD.from_bounds({name}={number}): expected a positive number")
        factor = 1 + H / depth * R
        return IGD(R / (L * factor * math.sqrt(K)), error=R * L * factor / math.sqrt(K))

    def bound(self) -> float:
        """R L (1 + H0 R) / sqrt(K): by how much f of the average exceeds the optimum at most, after K steps."""
        if self.error is None:
            raise ValueError("IGD(step).bound(): the step must come from IGD.from_bounds(L, H, R, K)")
        return self.error

    def start(self, program: Program) -> IGDState:
        if self.method == "ray" and isinstance(program.set, Product):
            raise ValueError("IGD(method='ray'): a Product has a ray for each block; expected 'paper' or 'chord'")
        return IGDState(start(program.anchor, program.offset, program.usable), program.anchor)

    def advance(self, program: Program, state: IGDState) -> IGDState:
        xp, z = namespace(state.z), state.z
        h, g = program.height(z, self.method)
        outside = ~(h <= 0)
        y = z / (1 + keep(outside, h, 0.0))[:, None]
        value = program.value(y)
        record = state.record.add(y, value, xp.isfinite(h)).called()
        df = program.slope(y)
        mixed = df - xp.sum(df * y, axis=-1)[:, None] * g
        following = z - column(self.step, program) * xp.where(outside[:, None], mixed, df)
        finite = xp.all(xp.isfinite(following), axis=-1) & xp.isfinite(value)
        record = record.stop(~finite, Status.NOT_FINITE)
        return IGDState(record, xp.where(record.running[:, None], following, z))

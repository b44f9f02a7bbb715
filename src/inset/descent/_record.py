"""`Record`: what every solver keeps of its run, the best point above all."""

from __future__ import annotations

from typing import NamedTuple

from .._namespace import Array, namespace
from .result import Status


class Record(NamedTuple):
    """The best feasible point so far of each problem, the sum of the feasible points, and where the run stands."""

    z: Array
    """Coordinates of the best point, `(N, k)`."""
    value: Array
    """Its objective, `(N,)`."""
    total: Array
    """Sum of the feasible points, `(N, k)`."""
    count: Array
    """How many of them there are, `(N,)`."""
    evaluations: Array
    """Calls of h with its subgradient, `(N,)`."""
    status: Array
    """A `Status`, `(N,)`: `OUT_OF_STEPS` while the problem runs."""

    @property
    def running(self) -> Array:
        return self.status == Status.OUT_OF_STEPS

    def add(self, z: Array, value: Array, good: Array) -> Record:
        """With the feasible points z where `good` and running; NaN never enters."""
        xp = namespace(z)
        good = good & self.running & xp.isfinite(value)
        better = good & (value < self.value)
        return self._replace(
            z=xp.where(better[:, None], z, self.z),
            value=xp.where(better, value, self.value),
            total=xp.where(good[:, None], self.total + z, self.total),
            count=xp.where(good, self.count + 1, self.count),
        )

    def called(self) -> Record:
        """With one more call of h, by the problems that run."""
        return self._replace(evaluations=namespace(self.z).where(self.running, self.evaluations + 1, self.evaluations))

    def stop(self, where: Array, status: Status) -> Record:
        """With this status for the running problems named."""
        xp = namespace(self.z)
        return self._replace(status=xp.where(where & self.running, 0 * self.status + int(status), self.status))


def start(z: Array, value: Array, usable: Array) -> Record:
    """The record of problems that have only their anchor z; without a usable one they have failed."""
    xp = namespace(z)
    count = 0 * xp.astype(usable, xp.int32)
    status = xp.where(usable, count + int(Status.OUT_OF_STEPS), count + int(Status.FAILED_ANCHOR))
    nan = xp.full_like(value, float("nan"))
    return Record(z, xp.where(usable, value, nan), xp.zeros_like(z), count, count, status)

"""What the solvers see: minimise f over a set, for N problems at once, in flat coordinates around the anchor."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .._combine import parts
from .._coordinates import Coordinates
from .._linalg import length
from .._namespace import Array, Point, gather, keep, namespace, stop_gradient, value_and_grad
from .._project import Method, project_with_info
from .._ray import into_domain
from .._set import ConvexSet, offers
from ..affine import onto


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """Minimise f(x) over the x = anchor + F z of a set; z = 0 is the anchor."""

    set: ConvexSet
    at: Coordinates
    anchor: Array
    """0, the coordinates of the anchor, `(N, k)`."""
    scale: Array
    """|h_i| at the anchor, `(N, m)`."""
    usable: Array
    """Whether the anchor is strictly inside, `(N,)`."""
    offset: Array
    """f at the anchor, `(N,)`."""
    cost: Array | None
    """The gradient of f in z where f is linear, `(N, k)`."""
    objective: Callable[[Any], Array] | None
    """f where it is not, of the shape of the batch."""

    def point(self, z: Array) -> Point:
        """The point of coordinates z; symmetric where the set wants a symmetric matrix."""
        x = self.at.point(z)
        bent = any([offers(part, "onto") and not offers(part, "equalities") for part in parts(self.set)])
        return onto(self.set, x) if bent else x

    def constraints(self, z: Array) -> Array:
        """All h_i at z, `(N, m)`; a constant -1 if there are none."""
        xp = namespace(z)
        values = self.set.constraints(self.point(z))
        if values.shape[-1] == 0:
            return 0 * z[..., :1] - 1
        values = xp.broadcast_to(values, (*self.at.batch, values.shape[-1]))
        return xp.reshape(values, (z.shape[0], values.shape[-1]))

    def value(self, z: Array) -> Array:
        """f at z, `(N,)`."""
        if self.cost is not None:
            return self.offset + namespace(z).sum(self.cost * z, axis=-1)
        assert self.objective is not None
        return self.at.flat(self.objective(self.point(z)))

    def slope(self, z: Array) -> Array:
        """The gradient of f at z, `(N, k)`."""
        return self.cost if self.cost is not None else value_and_grad(self.value, z)[1]

    def lowest(self, origin: Array, gauge: Array) -> Array:
        """The least f on the set where its gauge from the origin, on the plane of descent 1, is at least `gauge`."""
        assert self.cost is not None
        return self.value(origin) - length(self.cost) / gauge

    def height(self, z: Array, method: Method) -> tuple[Array, Array]:
        """H(z) = 1 / eta(z) - 1 outside of the set and some H(z) <= 0 inside, with a subgradient.

        eta is the weight of `project` with this method, so that g(z) = z / (1 + H(z)) outside. For `paper` and
        `chord` H is h scaled to h(anchor) = -1, all constraints alike or each by itself.
        """
        xp = namespace(z)
        if method == "ray":
            return value_and_grad(self._gauge, z)
        scale = self.scale if method == "chord" else xp.min(self.scale, axis=-1, keepdims=True)

        def top(z: Array) -> Array:
            near, reach = self.enter(z, xp.zeros_like(z), own=True)
            h = _largest(self.constraints(near) / scale)
            return xp.where(reach < 1, (1 + keep(h > 0, h, 0.0)) / reach - 1, h)

        return value_and_grad(top, z) if self._has_domain(own=True) else cut(self, z, scale)

    def _gauge(self, z: Array) -> Array:
        x, anchor = self.at.point(z), self.at.point(namespace(z).zeros_like(z))
        _, info = project_with_info(self.set, x, anchor, method="ray", strict=False)
        eta = self.at.flat(info.eta)
        return namespace(z).where(eta < 1, 1 / eta - 1, 0 * eta - 1)

    def enter(self, z: Array, origin: Array, own: bool = False) -> tuple[Array, Array]:
        """The last point from the origin to z at which h is finite, and what part of the way it is, `(N,)`.

        A user's function is asked only with `own`: it says where it is finite by its values alone.
        """
        xp = namespace(z)
        reach = xp.ones_like(z[:, 0])
        for part in parts(self.set) if self._has_domain(own) else ():
            if offers(part, "domain") and (own or offers(part, "rounding")):
                near, step = into_domain(part, self.at.point(z), self.at.point(origin))
                step = self.at.flat(step + 0 * xp.reshape(reach, self.at.batch))
                z, reach = xp.where((step < 1)[:, None], self.at.of(near), z), reach * step
        return z, reach

    def _has_domain(self, own: bool) -> bool:
        return any([offers(part, "domain") and (own or offers(part, "rounding")) for part in parts(self.set)])


@dataclasses.dataclass(frozen=True, eq=False)
class Epigraph:
    """Minimise v over f(z) - f(anchor) <= width (1 + v / unit) and z in the set: a convex f made linear.

    The coordinates are those of the program and v. Width and unit make the new constraint as deep, and its gradient
    as long, as those of the set are at the anchor.
    """

    program: Program
    width: Array
    unit: Array
    anchor: Array
    scale: Array
    cost: Array

    @property
    def usable(self) -> Array:
        return self.program.usable

    def constraints(self, z: Array) -> Array:
        xp = namespace(z)
        z, v = z[:, :-1], z[:, -1]
        above = (self.program.value(z) - self.program.offset) / self.width - 1 - v / self.unit
        return xp.concat([self.program.constraints(z), above[:, None]], axis=-1)

    def value(self, z: Array) -> Array:
        return self.program.value(z[:, :-1])

    def lowest(self, origin: Array, gauge: Array) -> Array:
        return self.program.offset + self.width * (1 + (origin[:, -1] - 1 / gauge) / self.unit)

    def enter(self, z: Array, origin: Array) -> tuple[Array, Array]:
        near, reach = self.program.enter(z[:, :-1], origin[:, :-1])
        v = origin[:, -1:] + reach[:, None] * (z[:, -1:] - origin[:, -1:])
        return namespace(z).concat([near, v], axis=-1), reach


def linear(program: Program) -> Program | Epigraph:
    """The program itself where its objective is linear, else its epigraph."""
    if program.cost is not None:
        return program
    z = program.anchor
    xp = namespace(z)
    steep, slope = length(cut(program, z, program.scale)[1]), length(program.slope(z))
    unit = xp.where(steep > 0, 1 / keep(steep > 0, steep, 1.0), xp.ones_like(steep))
    width = xp.where(slope > 0, slope * unit, 1 + abs(program.offset))
    one = xp.ones_like(z[:, :1])
    wide = xp.concat([z, 0 * one], axis=-1)
    cost = xp.concat([0 * z, one], axis=-1)
    return Epigraph(program, width, unit, wide, xp.concat([program.scale, one], axis=-1), cost)


def cut(program: Program | Epigraph, z: Array, scale: Array) -> tuple[Array, Array]:
    """max_i h_i(z) / scale_i and a subgradient: the gradient of one constraint that attains it."""
    return value_and_grad(lambda z: _largest(program.constraints(z) / scale), z)


def _largest(values: Array) -> Array:
    return gather(values, namespace(values).argmax(stop_gradient(values), axis=-1))

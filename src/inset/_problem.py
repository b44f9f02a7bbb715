"""`Problem`: the search for an interior point as an optimisation problem over the free coordinates of a point."""

from __future__ import annotations

import math
from collections.abc import Callable

from ._combine import parts
from ._coordinates import Coordinates, flattened
from ._errors import AnchorError
from ._fields import field_leaves, leaves, map_point, working
from ._linalg import apply
from ._namespace import Array, Point, eye_like, host, jitted, like, namespace, value_and_grad, widen
from ._set import ConvexSet, offers
from ._shapes import broadcast_shapes, event_dims, largest, side_by_side
from .affine import eliminate, stacked


class Problem:
    """Minimise h over z, `(batch, k)`: the free coordinates of a point, in one flat batch and, if possible, float64.

    The solvers see z and what depends on it as NumPy arrays (of torch on an accelerator): many small operations are
    slow in torch on several threads, and an eager loop in JAX compiles each of them for each shape.
    """

    def __init__(self, set: ConvexSet, candidates: list[Point]):
        self.original = set
        self.name = " & ".join([type(part).__name__ for part in parts(set)])
        # the function of a user may know one dtype only, a network in float32 for instance
        own = any([callable(v) for _, v, _ in field_leaves(set)])
        self.set, *wide = working(set, *[p if own else map_point(widen, p) for p in candidates])
        self.leaf = leaf = leaves(wide[0])[0]
        self.xp, dims = namespace(leaf), event_dims(set)
        equal = [part.equalities(leaf) for part in parts(self.set) if offers(part, "equalities")]
        system = stacked(equal, leaf) if equal else ()
        batches = [tuple(v.shape[: v.ndim - k]) for p in wide for v, k in zip(leaves(p), dims, strict=True)]
        batches += [tuple(M.shape[: M.ndim - k]) for M, k in zip(system, (2, 1), strict=False)]
        self.batch = broadcast_shapes(*batches, tuple(self.set.h(wide[0]).shape))
        shapes = tuple([tuple(v.shape[v.ndim - k :]) for v, k in zip(leaves(wide[0]), dims, strict=True)])
        zero = self.xp.zeros_like(flattened(wide[0], self.batch, shapes))
        F, base = self._free(*system[:2]) if system else (None, zero)
        self.at = Coordinates(base, F, self.batch, shapes, set.event_ndim)
        self.candidates = [host(self.at.of(p)) for p in wide]

    def _free(self, A: Array, b: Array) -> tuple[Array, Array]:
        """`(F, x0)` with x = F z + x0 wherever A x = b."""
        xp, n = self.xp, A.shape[-1]
        F, x0 = eliminate(A, b)
        residual = xp.max(abs(apply(A, x0) - b), axis=-1)
        terms = xp.max(abs(b), axis=-1) + xp.max(abs(A)) * xp.max(abs(x0), axis=-1)
        bad = self.flat(xp.broadcast_to(residual > 1e3 * n * float(xp.finfo(A.dtype).eps) * terms, self.batch))
        if bool(xp.any(bad)):
            raise AnchorError(
                f"the equalities A x = b of {self.name} have no common solution{self.where(bad)}: the best residual is "
                f"{float(xp.max(residual)):.3g}; correct or leave out the equations that contradict each other"
            )
        if F.ndim > 2:
            F = xp.reshape(xp.broadcast_to(F, (*self.batch, *F.shape[-2:])), (-1, *F.shape[-2:]))
        return F, xp.reshape(xp.broadcast_to(x0, (*self.batch, n)), (-1, n))

    def flat(self, v: Array, *event: int) -> Array:
        return self.xp.reshape(v, (math.prod(self.batch), *event))

    def enter(self, z: Array) -> Array:
        return like(z, self.leaf)

    def point(self, z: Array) -> Point:
        """The point of coordinates `(*more, batch, k)`, with shape `(*more, *batch, *event)`."""
        return self.at.point(z)

    def constraints(self, z: Array, chosen: Callable[[ConvexSet], bool] = lambda part: True) -> Array:
        """The constraints of the chosen parts, `(*more, batch, m)`."""
        x, more = self.point(z), tuple(z.shape[:-1])
        values = [part.constraints(x) for part in parts(self.set) if chosen(part)]
        full = [self.xp.broadcast_to(v, (*more[:-1], *self.batch, v.shape[-1])) for v in values]
        return self.xp.reshape(side_by_side(full), (*more, sum([v.shape[-1] for v in values])))

    def oracle(self, origin: Array) -> Callable[[Array], tuple[Array, Array]]:
        """z -> h and its gradient. h is NaN outside the domain, in which the origin is; -1e30 for -inf."""

        def h(z: Array) -> Array:
            value = largest(self.constraints(z))
            return self.xp.where(value < -1e30, 0 * z[..., 0] - 1e30, value)

        def both(z: Array, origin: Array) -> tuple[Array, Array]:
            value, gradient = value_and_grad(h, z)
            return self.xp.where(self._in_domain(origin, z), value, self.xp.full_like(value, float("nan"))), gradient

        fast, origin = jitted(both, self.leaf), self.enter(origin)
        return lambda z: tuple([host(v) for v in fast(self.enter(z), origin)])

    def best(self, *points: Array) -> Array:
        """Per sample the one of smallest h; NaN and inf are worst."""
        z, *others = points
        value = jitted(lambda z: largest(self.constraints(z)), self.leaf)
        for other in others:
            a, b = (host(value(self.enter(p))) for p in (z, other))
            z = namespace(z).where((namespace(b).isfinite(b) & ~(a <= b))[:, None], other, z)
        return z

    def rows(self, origin: Array) -> tuple[Array, Array]:
        """`(A, b)` of the affine parts around the origin: A z <= b for the point origin + z."""
        rise, at = jitted(self._rises, self.leaf)(self.enter(origin))
        return widen(host(rise)), widen(host(-at))

    def _rises(self, origin: Array) -> tuple[Array, Array]:
        xp = self.xp
        at = self.constraints(origin, is_affine)
        finite = xp.isfinite(at)
        # a step as long as b is large: no digits are lost in the difference
        reach = 1 + xp.max(xp.where(finite, abs(at), xp.zeros_like(at)), axis=-1)
        moves = reach[:, None] * eye_like(origin.shape[-1], origin)[:, None, :]
        rise = self.constraints(origin + moves, is_affine) - self.constraints(origin - moves, is_affine)
        rise = xp.where(finite, rise, xp.zeros_like(rise)) / (2 * reach)[:, None]
        return xp.moveaxis(rise, 0, -1), at

    def _in_domain(self, origin: Array, z: Array) -> Array:
        here, there = self.point(origin), self.point(z)
        good = self.xp.ones_like(z[:, 0]) > 0
        for part in parts(self.set):
            # without rounding bounds it is a user's function: it says so itself, by NaN
            if offers(part, "domain") and offers(part, "rounding"):
                inside = (part.domain(here, there) >= 1) | ~(part.domain(here, here) >= 1)
                good = good & self.flat(self.xp.broadcast_to(inside, self.batch))
        return good

    def where(self, bad: Array) -> str:
        """ " at batch index ..." of the bad samples, "" without a batch."""
        if not self.batch:
            return ""
        xp = namespace(bad)
        bad = xp.reshape(xp.broadcast_to(bad, (math.prod(self.batch),)), self.batch)
        found = list(zip(*[axis.tolist() for axis in xp.nonzero(bad)], strict=True))
        shown = ", ".join([str(i[0] if len(i) == 1 else i) for i in found[:8]])
        return f" at batch index {shown}" + (f" and {len(found) - 8} more" if len(found) > 8 else "")

    def named(self, numbers: list[int], chosen: Callable[[ConvexSet], bool] = lambda part: True) -> str:
        """Constraints by their numbers, those of the chosen parts: "rows 0, 2 of part 0 (Box) and row 1 of part 1"."""
        offset, names = 0, []
        for k, part in enumerate(parts(self.set)):
            if not chosen(part):
                continue
            count = self.constraints(self.enter(self.candidates[0]), lambda p, part=part: p is part).shape[-1]
            mine = [str(i - offset) for i in numbers if offset <= i < offset + count]
            offset += count
            owner = type(part).__name__ if len(parts(self.set)) == 1 else f"part {k} ({type(part).__name__})"
            if mine:
                names.append(f"{'row' if len(mine) == 1 else 'rows'} {', '.join(mine)} of {owner}")
        return " and ".join(names)


def is_affine(part: ConvexSet) -> bool:
    return part.affine

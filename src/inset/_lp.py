"""The search for an interior point as an optimisation problem, and the linear programs among them.

`Problem`: the free coordinates of a point. `chebyshev`: the centre of each polytope of a batch, in one loop.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ._combine import parts
from ._errors import AnchorError
from ._fields import field_leaves, leaves, map_point, working
from ._linalg import apply, length
from ._namespace import Array, Point, eye_like, is_jax, is_torch, like, namespace, value_and_grad
from ._set import ConvexSet, offers
from ._shapes import broadcast_shapes, event_dims, largest, side_by_side
from .affine import _stack, eliminate

class Problem:
    """Minimise h over z, `(batch, k)`: the free coordinates of a point, in one flat batch and, if possible, float64.

    The solvers see z and what depends on it as NumPy arrays (of torch on an accelerator): many small operations are
    slow in torch on several threads, and an eager loop in JAX compiles each of them for each shape.
    """

    def __init__(self, set: ConvexSet, candidates: list[Point]):
        self.original, self.event_ndim = set, set.event_ndim
        self.name = " & ".join([type(part).__name__ for part in parts(set)])
        # the function of a user may know one dtype only, a network in float32 for instance
        own = any([callable(v) for _, v, _ in field_leaves(set)])
        self.set, *wide = working(set, *[p if own else map_point(widen, p) for p in candidates])
        self.leaf = leaf = leaves(wide[0])[0]
        self.xp, dims = namespace(leaf), event_dims(set)
        equal = [part.equalities(leaf) for part in parts(self.set) if offers(part, "equalities")]
        system = _stack(equal, leaf) if equal else ()
        batches = [tuple(v.shape[: v.ndim - k]) for p in wide for v, k in zip(leaves(p), dims, strict=True)]
        batches += [tuple(M.shape[: M.ndim - k]) for M, k in zip(system, (2, 1), strict=False)]
        self.batch = broadcast_shapes(*batches, tuple(self.set.h(wide[0]).shape))
        self.shapes = [tuple(v.shape[v.ndim - k :]) for v, k in zip(leaves(wide[0]), dims, strict=True)]
        self.F, self.x0 = self._free(*system[:2]) if system else (None, None)
        self.candidates = [self._coordinates(p) for p in wide]

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

    def _coordinates(self, p: Point) -> Array:
        pairs = zip(leaves(p), self.shapes, strict=True)
        full = [self.flat(self.xp.broadcast_to(v, (*self.batch, *s)), math.prod(s)) for v, s in pairs]
        x = self.xp.concat(full, axis=-1)
        return host(x if self.F is None else apply(self.xp.matrix_transpose(self.F), x - self.x0))

    def flat(self, v: Array, *event: int) -> Array:
        return self.xp.reshape(v, (math.prod(self.batch), *event))

    def enter(self, z: Array) -> Array:
        return like(z, self.leaf)

    def point(self, z: Array) -> Point:
        """The point of coordinates `(*more, batch, k)`, with shape `(*more, *batch, *event)`."""
        x = z if self.F is None else apply(self.F, z) + self.x0
        entries, at = [], 0
        for shape in self.shapes:
            stop = at + math.prod(shape)
            entries.append(self.xp.reshape(x[..., at:stop], (*x.shape[:-2], *self.batch, *shape)))
            at = stop
        remaining = iter(entries)
        return map_point(lambda _: next(remaining), self.event_ndim)

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

        fast, origin = compiled(both, self.leaf), self.enter(origin)
        return lambda z: tuple([host(v) for v in fast(self.enter(z), origin)])

    def best(self, *points: Array) -> Array:
        """Per sample the one of smallest h; NaN and inf are worst."""
        z, *others = points
        value = compiled(lambda z: largest(self.constraints(z)), self.leaf)
        for other in others:
            a, b = (host(value(self.enter(p))) for p in (z, other))
            z = namespace(z).where((namespace(b).isfinite(b) & ~(a <= b))[:, None], other, z)
        return z

    def rows(self, origin: Array) -> tuple[Array, Array]:
        """`(A, b)` of the affine parts around the origin: A z <= b for the point origin + z."""
        rise, at = compiled(self._rises, self.leaf)(self.enter(origin))
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


# Mehrotra's method needs 10 to 25 steps; the rest is for badly scaled programs.
STEPS = 80


class Centre(NamedTuple):
    """Solution of max r s.t. a_i.x + |a_i| r <= b_i, and of its dual."""

    x: Array
    """The centre, `(batch, n)`."""
    radius: Array
    """min_i (b_i - a_i.x) / |a_i|, `(batch,)`: negative if the rows contradict each other, 0 if the set is flat."""
    weights: Array
    """Multipliers w >= 0 with sum_i w_i a_i / |a_i| = 0, `(batch, m)`: positive on the rows that fix the radius."""
    size: Array
    """max_i |b_i| / |a_i|, `(batch,)`: what a radius about 0 is small against."""


def chebyshev(A: Array, b: Array) -> Centre:
    """The centre and radius of the largest ball in each {x : A x <= b}, A `(batch, m, n)` and b `(batch, m)`.

    Rows with b = +inf never bind. A radius without bound is cut off at a little more than max_i |b_i| / |a_i|,
    which no bounded one exceeds. Where the centre is not unique, the result is not at an end of them.

    >>> import numpy as np
    >>> triangle = chebyshev(np.array([[[-1.0, 0.0], [0.0, -1.0], [3.0, 4.0]]]), np.array([[0.0, 0.0, 12.0]]))
    >>> triangle.x.round(6), triangle.radius.round(6)
    (array([[1., 1.]]), array([1.]))
    """
    xp = namespace(A)
    G, d = _unit_rows(A, b)
    binding = xp.isfinite(d)
    zero = xp.zeros_like(d)
    size = xp.max(xp.where(binding, abs(d), zero), axis=-1)
    unit = xp.where(size > 0, size, xp.ones_like(size))
    limit = 1 + xp.where(1 / unit < 1000, 1 / unit, 1000 * xp.ones_like(unit))
    # a row 0 <= 1 takes the place of one that never binds
    d = xp.concat([xp.where(binding, d / unit[:, None], zero + 1), limit[:, None]], axis=-1)
    G = xp.concat([xp.where(binding[..., None], G, xp.zeros_like(G)), xp.zeros_like(G[:, :1])], axis=-2)
    radial = xp.concat([xp.where(binding, zero + 1, zero), xp.ones_like(limit[:, None])], axis=-1)
    y, z = _mehrotra(xp.concat([G, radial[..., None]], axis=-1), d)
    x = y[:, :-1]
    slack = xp.where(radial > 0, d - (G @ x[..., None])[..., 0], xp.full_like(d, float("inf")))
    return Centre(x * unit[:, None], xp.min(slack, axis=-1) * unit, z[:, :-1], size)


def _unit_rows(A: Array, b: Array) -> tuple[Array, Array]:
    """Rows of norm 1. A row that is 0 up to rounding becomes r <= b_i if b_i <= 0, and never binds otherwise."""
    xp = namespace(A)
    norms = length(A)
    tiny = 16 * A.shape[-1] * float(xp.finfo(A.dtype).eps)
    vanishing = norms <= tiny * xp.max(norms, axis=-1, keepdims=True)
    norms = xp.where(vanishing, xp.ones_like(norms), norms)
    b = xp.where(vanishing & (b > tiny), xp.full_like(b, float("inf")), b / norms)
    return xp.where(vanishing[..., None], xp.zeros_like(A), A / norms[..., None]), b


def _mehrotra(G: Array, d: Array) -> tuple[Array, Array]:
    """max y_last s.t. G y <= d, whose last column is non-negative, and its multipliers z.

    Primal-dual predictor-corrector steps with slacks s. The start is strictly feasible (y_last low enough), the
    multipliers need not be. A multiple of the identity keeps the normal equations regular when G has no full rank.
    """
    xp = namespace(G)
    eps = float(xp.finfo(G.dtype).eps)
    m = G.shape[-2]
    Gt = xp.matrix_transpose(G)
    goal = eye_like(G.shape[-1], G)[-1]
    y = (xp.min(d, axis=-1, keepdims=True) - 1) * goal
    s = d - (G @ y[..., None])[..., 0]
    z = xp.ones_like(s) / m
    for _ in range(STEPS):
        dual = (Gt @ z[..., None])[..., 0] - goal
        primal = (G @ y[..., None])[..., 0] + s - d
        gap = xp.sum(s * z, axis=-1)
        unsolved = (gap > eps**0.5 * abs(y[..., -1]) + 100 * eps) | (xp.max(abs(dual), axis=-1) > eps**0.5)
        if not bool(xp.any(unsolved)):
            break
        weight = z / s
        normal = Gt @ (weight[..., None] * G)
        ridge = eps * xp.max(abs(normal), axis=(-2, -1))
        normal = normal + ridge[..., None, None] * eye_like(G.shape[-1], G)

        def direction(complement: Array) -> tuple[Array, Array, Array]:
            right = (Gt @ ((complement - z * primal) / s)[..., None])[..., 0] - dual
            dy = xp.linalg.solve(normal, right[..., None])[..., 0]
            ds = -primal - (G @ dy[..., None])[..., 0]
            return dy, ds, -(complement + z * ds) / s

        _, ds, dz = direction(s * z)
        ahead = xp.sum((s + _reach(s, ds) * ds) * (z + _reach(z, dz) * dz), axis=-1)
        centring = (ahead / gap) ** 3 * gap / m
        dy, ds, dz = direction(s * z + ds * dz - centring[..., None])
        sound = unsolved & xp.all(xp.isfinite(dy), axis=-1) & xp.all(xp.isfinite(dz), axis=-1)
        to_boundary = 0.99 * xp.where(sound, xp.ones_like(gap), xp.zeros_like(gap))[..., None]
        dy, ds, dz = (xp.where(sound[..., None], v, xp.zeros_like(v)) for v in (dy, ds, dz))
        forward, upward = to_boundary * _reach(s, ds), to_boundary * _reach(z, dz)
        y, s, z = y + forward * dy, s + forward * ds, z + upward * dz
    return y, z


def _reach(v: Array, dv: Array) -> Array:
    """The largest t <= 1 with v + t dv >= 0, per sample, `(batch, 1)`."""
    xp = namespace(v)
    falling = dv < -v
    one = xp.ones_like(v)
    return xp.min(xp.where(falling, v / xp.where(falling, -dv, one), one), axis=-1, keepdims=True)


def is_affine(part: ConvexSet) -> bool:
    return part.affine


def host(v: Array) -> Array:
    """The same array, of NumPy if it is in the memory of the host."""
    if is_torch(v):
        v = v.detach()
        return v.numpy() if v.device.type == "cpu" else v
    import numpy as np

    return np.asarray(v)


def compiled(fn: Callable[..., Any], x: Array) -> Callable[..., Any]:
    """`fn` under `jax.jit` if x is an array of JAX, whose eager derivatives are slow; else as it is."""
    return sys.modules["jax"].jit(fn) if is_jax(x) else fn


def widen(v: Array) -> Array:
    """The same array in float64, where the framework and the device have it."""
    xp = namespace(v)
    if is_torch(v):
        return v if v.device.type == "mps" else v.to(xp.float64)
    return xp.astype(v, xp.asarray(0.0).dtype)

"""`interior_point`: a strictly feasible point of a set, deep if possible, to serve as anchor."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from ._combine import Product, parts
from ._errors import AnchorError
from ._fields import field_leaves, leaves, map_arrays, map_point, working
from ._linalg import apply
from ._lp import Centre, chebyshev, minimise
from ._namespace import (
    Array, Point, eye_like, exact_arithmetic, is_array, is_floating, is_torch, like, namespace, stop_gradient,
)  # fmt: skip
from ._set import ConvexSet, offers
from ._shapes import broadcast_shapes, check_point, event_dims, event_shape, largest, side_by_side
from ._strict import Margin
from .affine import _stack, eliminate, onto

# Below this multiple of the size of h a best value counts as 0: the set is flat, not empty.
FLAT = 1e-6


def interior_point(set: ConvexSet, *, start: Point | None = None, steps: int | None = None) -> Point:
    """A point x with h(x) < 0 by more than rounding, in the framework, dtype and device of the set.

    - A set that knows an anchor (`set.anchor(start)`) gives that one.
    - Where all constraints are affine it is the Chebyshev centre, the x of max r s.t. a_i.x + |a_i| r <= b_i.
    - Otherwise h = max_i h_i is minimised by Shor's r-algorithm, for at most `steps` values of h (200 + 100 n), until
      it is near its minimum or, on sets without bound, below -max(1, 2 |h(start)|).

    Equalities are eliminated first. Batch dimensions of the fields and of `start` are solved in one loop; a `Product`
    block by block. `start` is a guess, which need not be feasible; sets whose fields do not tell the shape of a point
    (a `Sublevel`) need one. Looks at values, so not for use under tracing.

    Raises `AnchorError` where there is no such point, with the constraints that are in conflict.

    >>> import numpy as np
    >>> from inset import Polytope, interior_point
    >>> triangle = Polytope(np.array([[-1.0, 0.0], [0.0, -1.0], [3.0, 4.0]]), np.array([0.0, 0.0, 12.0]))
    >>> interior_point(triangle).round(6)
    array([1., 1.])
    """
    if isinstance(set, Product):
        starts = start if start is not None else (None,) * len(set.blocks)
        return tuple([interior_point(b, start=s, steps=steps) for b, s in zip(set.blocks, starts, strict=True)])
    if start is not None:
        check_point(set, start, "a start")
    set = map_arrays(set, stop_gradient)
    reference = _reference(set, start)
    if start is not None:
        start = map_point(lambda v: _to(stop_gradient(v), reference), start)
    candidates = [map_point(lambda v: _to(v, reference), p) for p in _known(set, start)]
    if len(parts(set)) == 1 and candidates and bool(_certified(set, candidates[0]).all()):
        return candidates[0]
    if start is not None:
        candidates.insert(0, start)
    with _quiet(reference), exact_arithmetic(reference):
        return _solve(Problem(set, candidates or [_origin(set, reference)]), reference, steps)


class Problem:
    """Minimise h over z, `(batch, k)`: the free coordinates of a point, in float64 and in one flat batch."""

    def __init__(self, set: ConvexSet, candidates: list[Point]):
        widest = _widest(leaves(candidates[0])[0])
        self.original = set
        self.set, *candidates = working(set, *[map_point(lambda v: _cast(v, widest), p) for p in candidates])
        leaf, dims = leaves(candidates[0])[0], event_dims(set)
        self.xp, self.event_ndim = namespace(leaf), set.event_ndim
        equal = [part.equalities(leaf) for part in parts(self.set) if offers(part, "equalities")]
        system = _stack(equal, leaf) if equal else ()
        batches = [tuple(v.shape[: v.ndim - k]) for p in candidates for v, k in zip(leaves(p), dims, strict=True)]
        batches += [tuple(M.shape[: M.ndim - k]) for M, k in zip(system, (2, 1), strict=False)]
        self.batch = broadcast_shapes(*batches, tuple(self.set.h(candidates[0]).shape))
        self.shapes = [tuple(v.shape[v.ndim - k :]) for v, k in zip(leaves(candidates[0]), dims, strict=True)]
        self.F, self.x0 = self._free(system)
        self.candidates = [self.coordinates(p) for p in candidates]

    def _free(self, system: tuple[Array, ...]) -> tuple[Array | None, Array | None]:
        """`(F, x0)` with x = F z + x0, or None twice without equalities."""
        if not system:
            return None, None
        A, b = system[:2]
        xp, n = self.xp, A.shape[-1]
        F, x0 = eliminate(A, b)
        eps = float(xp.finfo(A.dtype).eps)
        residual = xp.max(abs(apply(A, x0) - b), axis=-1)
        bad = residual > 1e3 * n * eps * (xp.max(abs(b), axis=-1) + xp.max(abs(A)) * xp.max(abs(x0), axis=-1))
        if bool(xp.any(bad)):
            raise AnchorError(
                f"the equalities A x = b of {_name(self.original)} have no common solution: the best residual is "
                f"{float(xp.max(residual)):.3g}{_where(self, bad)}; remove or correct the equations that contradict"
            )
        if F.ndim > 2:
            F = xp.reshape(xp.broadcast_to(F, (*self.batch, *F.shape[-2:])), (-1, *F.shape[-2:]))
        return F, xp.reshape(xp.broadcast_to(x0, (*self.batch, n)), (-1, n))

    def coordinates(self, p: Point) -> Array:
        xp = self.xp
        flat = [
            xp.reshape(xp.broadcast_to(v, (*self.batch, *shape)), (math.prod(self.batch), math.prod(shape)))
            for v, shape in zip(leaves(p), self.shapes, strict=True)
        ]
        x = xp.concat(flat, axis=-1)
        return x if self.F is None else apply(xp.matrix_transpose(self.F), x - self.x0)

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
        both = [self.xp.broadcast_to(v, (*more[:-1], *self.batch, v.shape[-1])) for v in values]
        return self.xp.reshape(side_by_side(both), (*more, sum([v.shape[-1] for v in values])))

    def h(self, z: Array) -> Array:
        """h, raised to -1e30 where it is -inf, so that differences are numbers."""
        value = largest(self.constraints(z))
        return self.xp.where(value < -1e30, self.xp.full_like(value, -1e30), value)

    def rows(self, origin: Array) -> tuple[Array, Array]:
        """`(A, b)` of the affine parts around the origin: A z <= b for the point origin + z."""
        xp, n = self.xp, origin.shape[-1]
        at = self.constraints(origin, _is_affine)
        finite = xp.isfinite(at)
        reach = 1 + xp.max(xp.where(finite, abs(at), xp.zeros_like(at)), axis=-1)  # as far as b: no digits are lost
        moves = reach[:, None] * eye_like(n, origin)[:, None, :]
        rise = self.constraints(origin + moves, _is_affine) - self.constraints(origin - moves, _is_affine)
        rise = xp.where(finite, rise, xp.zeros_like(rise))
        return xp.moveaxis(rise, 0, -1) / (2 * reach)[:, None, None], -at

    def in_domain(self, origin: Array, z: Array) -> Array:
        """Whether z is in the domain of the constraints, given that the origin is; `(batch,)`."""
        here, there = self.point(origin), self.point(z)
        good = self.xp.ones_like(z[:, 0]) > 0
        for part in parts(self.set):
            # without rounding bounds it is a user's function: it says so itself, by NaN
            if offers(part, "domain") and offers(part, "rounding"):
                known = part.domain(here, here) >= 1
                reach = self.xp.broadcast_to((part.domain(here, there) >= 1) | ~known, self.batch)
                good = good & self.xp.reshape(reach, (-1,))
        return good

    def finish(self, z: Array, reference: Array) -> tuple[Point, Array]:
        """The point in the dtype of the result, and per sample of the flat batch whether it will do."""
        x = map_point(lambda v: _to(v, reference), onto(self.set, self.point(z)))
        return x, self.xp.reshape(self.xp.broadcast_to(_certified(self.original, x), self.batch), (-1,))


def _solve(problem: Problem, reference: Array, steps: int | None) -> Point:
    z = problem.candidates[0]
    for other in problem.candidates[1:]:
        z = _better(problem, z, other)
    affine = [_is_affine(part) for part in parts(problem.set)]
    if any(affine):
        A, b = problem.rows(z)
        centre = chebyshev(A, b)
        x, good = problem.finish(z + centre.x, reference)
        empty = centre.radius < -FLAT * (1e-6 + centre.size)
        if all(affine) and bool(problem.xp.all(good)):
            return x
        if all(affine) or bool(problem.xp.any(empty)):
            raise AnchorError(_affine_message(problem, centre, ~good if all(affine) else empty, empty))
        z = _better(problem, z, z + centre.x)
    h0 = problem.h(z)
    if not bool(problem.xp.all(problem.xp.isfinite(h0))):
        bad = ~problem.xp.isfinite(h0)
        raise AnchorError(f"h of {_name(problem.original)} is not finite at the start{_where(problem, bad)}; "
                          "pass a `start` where it is")  # fmt: skip
    z, best = minimise(problem.h, z, lambda there: problem.in_domain(z, there), steps or 200 + 100 * z.shape[-1])
    x, good = problem.finish(z, reference)
    if bool(problem.xp.all(good)):
        return x
    raise AnchorError(_general_message(problem, z, best, h0, ~good))


def _better(problem: Problem, z: Array, other: Array) -> Array:
    """Per sample the one of smaller h; NaN and inf are worst."""
    xp = problem.xp
    a, b = problem.h(z), problem.h(other)
    return xp.where((xp.isfinite(b) & ~(a <= b))[:, None], other, z)


def _is_affine(part: ConvexSet) -> bool:
    return part.affine


# -- what went wrong ---------------------------------------------------------------------------------


def _affine_message(problem: Problem, centre: Centre, bad: Array, empty: Array) -> str:
    xp = problem.xp
    first = int(xp.argmax(xp.where(bad & empty, 2 + xp.zeros_like(centre.radius), xp.astype(bad, centre.radius.dtype))))
    radius, weights = float(centre.radius[first]), centre.weights[first]
    rows = [i for i in range(weights.shape[-1]) if float(weights[i]) > 1e-5]
    named = _rows(problem, rows)
    where = _where(problem, bad)
    head = f"{_name(problem.original)} has no strictly feasible point{where}"
    if bool(empty[first]):
        return f"{head}: it is empty. {named} contradict each other (each violated by {-radius:.3g} at best, in units of |a_i|); relax one of them"
    if radius <= FLAT * float(centre.size[first]):
        return (
            f"{head}: it is flat, the largest ball in it has radius {radius:.3g}. {named} leave no room; if they are "
            "meant as equalities, leave them out and join `& Equality(A, b)`"
        )
    return f"{head} in this dtype: the largest ball in it has radius {radius:.3g}, within rounding. Use float64 fields"


def _general_message(problem: Problem, z: Array, best: Array, h0: Array, bad: Array) -> str:
    xp = problem.xp
    value = float(xp.max(xp.where(bad, best, xp.full_like(best, -float("inf")))))
    first = int(xp.argmax(xp.where(bad, best, xp.full_like(best, -float("inf")))))
    level = value - 1e-3 * abs(value) - FLAT
    rows = [i for i, v in enumerate(problem.constraints(z)[first]) if float(v) >= level]
    head = f"{_name(problem.original)} has no strictly feasible point{_where(problem, bad)}, or none was found"
    found = f"the best h reached is {value:.3g}, at {_rows(problem, rows)}"
    if value > FLAT * (1 + abs(float(h0[first]))):
        return f"{head}: {found}, so the set seems to be empty; relax these constraints, or pass another `start`"
    return (
        f"{head}: {found}, about 0, so the set seems to be flat; if some constraints are meant as equalities, leave "
        "them out and join `& Equality(A, b)`"
    )


def _rows(problem: Problem, rows: list[int]) -> str:
    """Constraints by their numbers, as `rows 0, 2 of Polytope and row 1 of part 1 (Box)`."""
    z, offset, names = problem.candidates[0], 0, []
    for k, part in enumerate(parts(problem.set)):
        count = problem.constraints(z, lambda p, part=part: p is part).shape[-1]
        mine = [i - offset for i in rows if offset <= i < offset + count]
        offset += count
        owner = type(part).__name__ if len(parts(problem.set)) == 1 else f"part {k} ({type(part).__name__})"
        if mine:
            names.append(f"{'row' if len(mine) == 1 else 'rows'} {', '.join(map(str, mine))} of {owner}")
    return " and ".join(names) or "no row"


def _where(problem: Problem, bad: Array) -> str:
    """The indices of the bad samples in the batch, "" without one."""
    if not problem.batch:
        return ""
    flat = problem.xp.reshape(problem.xp.broadcast_to(problem.xp.reshape(bad, (-1,)), (math.prod(problem.batch),)), (-1,))
    indices = []
    for k in [k for k, b in enumerate(flat) if bool(b)]:
        index = []
        for size in reversed(problem.batch):
            k, i = divmod(k, size)
            index.insert(0, i)
        indices.append(str(index[0] if len(index) == 1 else tuple(index)))
    shown = ", ".join(indices[:8]) + (f" and {len(indices) - 8} more" if len(indices) > 8 else "")
    return f" at batch index {shown}"


def _name(set: ConvexSet) -> str:
    return " & ".join([type(part).__name__ for part in parts(set)])


# -- arrays and where they come from -----------------------------------------------------------------


def _reference(set: ConvexSet, start: Point | None) -> Array:
    """An array of the framework, dtype and device of the result."""
    arrays = [v for _, v, role in field_leaves(set) if role == "array" and is_array(v) and is_floating(v)]
    if not arrays and start is not None:
        arrays = list(leaves(start))
    if not arrays:
        arrays = [leaf for p in _known(set, None) for leaf in leaves(p)]
    if not arrays:
        raise AnchorError(f"the fields of {_name(set)} do not tell the shape of a point: pass interior_point(set, start=x)")
    xp = namespace(arrays[0])
    dtype = arrays[0].dtype
    for v in arrays[1:]:
        dtype = xp.promote_types(dtype, v.dtype) if is_torch(v) else xp.result_type(dtype, v.dtype)
    return _cast(xp.reshape(arrays[0], (-1,))[:1], dtype)


def _known(set: ConvexSet, start: Point | None) -> list[Point]:
    """The anchors that the parts of the set know, at least of the shape of the start."""
    found = []
    for part in parts(set):
        try:
            anchor = part.anchor(start)
        except (AnchorError, NotImplementedError):
            continue
        found.append(anchor if start is None else map_point(lambda a, x: a + 0 * x, anchor, start))
    return found


def _origin(set: ConvexSet, reference: Array) -> Point:
    """The zero point, if the fields tell its shape."""
    for part in parts(set):
        spec, sizes = part.shapes.get("x"), event_shape(part)
        specs = spec if isinstance(spec, tuple) else (spec,)
        axes = [axis for s in specs for axis in (s.split() if s is not None else ["?"])]
        sizes |= {a: int(a) if a.isdigit() else getattr(part, a, None) for a in axes if a not in sizes}
        if all([isinstance(sizes[a], int) for a in axes]):
            zeros = [reference[0] * namespace(reference).zeros([sizes[a] for a in s.split()]) for s in specs]
            return map_point(lambda v: _to(v, reference), tuple(zeros) if isinstance(spec, tuple) else zeros[0])
    raise AnchorError(f"the fields of {_name(set)} do not tell the shape of a point: pass interior_point(set, start=x)")


def _certified(set: ConvexSet, x: Point) -> Array:
    """Whether x is inside by more than rounding, in its own dtype, `(*batch,)`."""
    inside = set.contains(x)
    dtypes = map_point(lambda v: v.dtype, x)
    set, x = working(set, x)
    leaf = leaves(x)[0]
    xp = namespace(leaf)
    given = [xp.finfo(dtype) for dtype in leaves(dtypes)]
    narrow = max([float(info.eps) / 2 if info.bits < xp.finfo(leaf.dtype).bits else 0.0 for info in given])
    values = [part.constraints(x) for part in parts(set)]
    margin = 64 * max([float(info.eps) for info in given])
    deep = largest(side_by_side(values)) < 0
    for part, value in zip(parts(set), values, strict=True):
        if not offers(part, "rounding"):
            deep = deep & (largest(value) < -margin)
    return inside & deep & Margin(parts(set), x, values, narrow, dtypes).anchor_is_certified()


def _to(v: Array, reference: Array) -> Array:
    return like(v, reference)


def _cast(v: Array, dtype: Any) -> Array:
    return v if v.dtype == dtype else namespace(v).astype(v, dtype)


def _widest(x: Array) -> Any:
    """float64 where the framework and the device have it."""
    xp = namespace(x)
    if is_torch(x):
        return xp.float32 if x.device.type == "mps" else xp.float64
    return xp.asarray(0.0).dtype


def _quiet(x: Array) -> Any:
    """NumPy warns where h is NaN or infinite, which is expected here."""
    xp = namespace(x)
    return xp.errstate(all="ignore") if hasattr(xp, "errstate") else nullcontext()

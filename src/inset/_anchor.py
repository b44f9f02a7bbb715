"""`interior_point`: a strictly feasible point of a set, deep if possible, to serve as anchor."""

from __future__ import annotations

from functools import partial

from ._combine import Product, parts
from ._errors import AnchorError, PointShapeError
from ._fields import field_leaves, leaves, map_arrays, map_point, working
from ._lp import Centre, chebyshev
from ._namespace import (
    Array,
    Point,
    exact_arithmetic,
    host,
    is_array,
    is_floating,
    is_torch,
    jitted,
    like,
    namespace,
    stop_gradient,
)
from ._problem import Problem, is_affine
from ._search import minimise
from ._set import ConvexSet, offers
from ._shapes import check_point, event_shape, largest, side_by_side
from ._strict import Margin
from .affine import onto

# Below this multiple of the size of h a best value counts as 0: the set is flat, not empty.
FLAT = 1e-6
EQUALITIES = "If these are meant as equalities, leave them out and join `& Equality(A, b)` instead"
SHAPELESS = "{!r}: the fields do not tell framework and shape of a point; pass interior_point(set, start=x), any point"


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
    set = map_arrays(set, stop_gradient)
    reference = _reference(set, start)
    if start is not None:
        check_point(set, start, "a start")
        start = map_point(lambda v: like(stop_gradient(v), reference), start)
    candidates = [map_point(lambda v: like(v, reference), p) for p in _known(set, start)]
    candidates = [p for p in candidates if _fits(set, p)]
    with exact_arithmetic(reference):
        certified = jitted(partial(_certified, set), reference)
        if len(parts(set)) == 1 and candidates and bool(certified(candidates[0]).all()):
            return candidates[0]
        candidates = [*([start] if start is not None else []), *candidates]
        return _solve(Problem(set, candidates or [_origin(set, reference)]), reference, steps)


def _solve(problem: Problem, reference: Array, steps: int | None) -> Point:
    z = problem.best(*problem.candidates)
    xp = namespace(z)
    affine = [part.affine for part in parts(problem.set)]
    if z.shape[-1] and any(affine) and problem.constraints(problem.enter(z), is_affine).shape[-1]:
        centre = chebyshev(*problem.rows(z))
        x, good = _finish(problem, z + centre.x, reference)
        empty = centre.radius < -FLAT * (1e-6 + centre.size)
        if all(affine) and bool(xp.all(good)):
            return x
        if all(affine) or bool(xp.any(empty)):
            raise AnchorError(_affine_message(problem, centre, ~good if all(affine) else empty))
        z = problem.best(z, z + centre.x)
    oracle = problem.oracle(z)
    h0, _ = oracle(z)
    if not bool(xp.all(xp.isfinite(h0))):
        at = problem.where(~xp.isfinite(h0))
        raise AnchorError(f"h of {problem.name} is not finite at the start{at}; pass a `start` where it is")
    z, best = minimise(oracle, z, h0, steps or 200 + 100 * z.shape[-1]) if z.shape[-1] else (z, h0)
    x, good = _finish(problem, z, reference)
    if bool(xp.all(good)):
        return x
    raise AnchorError(_general_message(problem, z, best, h0, ~good))


def _finish(problem: Problem, z: Array, reference: Array) -> tuple[Point, Array]:
    """The point in the dtype of the result, and per sample whether it is strictly inside."""
    x = map_point(lambda v: like(v, reference), onto(problem.set, problem.point(problem.enter(z))))
    good = jitted(partial(_certified, problem.original), reference)(x)
    return x, host(problem.flat(problem.xp.broadcast_to(good, problem.batch)))


def _affine_message(problem: Problem, centre: Centre, bad: Array) -> str:
    worst, head = _worst(problem, bad, -centre.radius)
    radius, size = float(centre.radius[worst]), float(centre.size[worst])
    named = problem.named([i for i, w in enumerate(centre.weights[worst].tolist()) if w > 1e-5], is_affine)
    at_best = f"at best the largest (a_i.x - b_i) / |a_i| is {-radius:.3g}"
    if radius < -FLAT * (1e-6 + size):
        return f"{head} is empty: {named} contradict each other ({at_best}, it must be negative). Relax one of them"
    if radius <= FLAT * (1e-6 + size):
        return f"{head} is flat: {named} leave no room ({at_best}, about 0). {EQUALITIES}"
    return f"{head} is too thin for its dtype: {at_best}, which is within rounding. Use float64 fields"


def _general_message(problem: Problem, z: Array, best: Array, h0: Array, bad: Array) -> str:
    worst, head = _worst(problem, bad, best)
    value = float(best[worst])
    values = problem.constraints(problem.enter(z))[worst].tolist()
    named = problem.named([i for i, v in enumerate(values) if v >= value - 1e-3 * abs(value) - FLAT])
    found = f"the best h reached is {value:.3g}, at {named}"
    if value > FLAT * (1 + abs(float(h0[worst]))):
        return f"{head} seems to be empty: {found}. Relax these constraints, or pass another `start`"
    return f"{head} seems to be flat: {found}, about 0. {EQUALITIES}"


def _worst(problem: Problem, bad: Array, value: Array) -> tuple[int, str]:
    """The bad sample of largest value, and the beginning of the message about it."""
    xp = namespace(value)
    value = xp.where(bad, value, xp.full_like(value, -float("inf")))
    worst = int(xp.argmax(value))
    head = f"{problem.name} has no strictly feasible point{problem.where(bad)}"
    return worst, f"{head}; the set{problem.where(value >= value[worst]) if problem.batch else ''}"


def _reference(set: ConvexSet, start: Point | None) -> Array:
    """An array of the framework, dtype and device of the result."""
    arrays = [v for _, v, role in field_leaves(set) if role == "array" and is_array(v) and is_floating(v)]
    if not arrays and start is not None:
        arrays = list(leaves(start))
    if not arrays:
        arrays = [leaf for p in _known(set, None) for leaf in leaves(p)]
    if not arrays:
        raise AnchorError(SHAPELESS.format(set))
    xp = namespace(arrays[0])
    dtype = arrays[0].dtype
    for v in arrays[1:]:
        dtype = xp.promote_types(dtype, v.dtype) if is_torch(v) else xp.result_type(dtype, v.dtype)
    return xp.astype(xp.reshape(arrays[0], (-1,))[:1], dtype)


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


def _fits(set: ConvexSet, x: Point) -> bool:
    """Whether the anchor of one part is a point of all of them: it may leave free what only another part fixes."""
    try:
        check_point(set, x)
    except PointShapeError:
        return False
    return True


def _origin(set: ConvexSet, reference: Array) -> Point:
    """The zero point, if the fields tell its shape."""
    for part in parts(set):
        spec, sizes = part.shapes.get("x"), event_shape(part)
        specs = spec if isinstance(spec, tuple) else (spec,)
        axes = [axis for s in specs for axis in (s.split() if s is not None else ["?"])]
        sizes |= {a: int(a) if a.isdigit() else getattr(part, a, None) for a in axes if a not in sizes}
        if all([isinstance(sizes[a], int) for a in axes]):
            zeros = [like(namespace(reference).zeros([sizes[a] for a in (s or "").split()]), reference) for s in specs]
            return tuple(zeros) if isinstance(spec, tuple) else zeros[0]
    raise AnchorError(SHAPELESS.format(set))


def _certified(set: ConvexSet, x: Point) -> Array:
    """Whether x is inside by more than rounding, in its own dtype, `(*batch,)`."""
    inside = set.contains(x)
    dtypes = map_point(lambda v: v.dtype, x)
    set, x = working(set, x)
    xp = namespace(leaves(x)[0])
    given = [xp.finfo(dtype) for dtype in leaves(dtypes)]
    narrow = max([float(info.eps) / 2 if info.bits < xp.finfo(leaves(x)[0].dtype).bits else 0.0 for info in given])
    values = [part.constraints(x) for part in parts(set)]
    inside = inside & (largest(side_by_side(values)) < 0)
    for part, value in zip(parts(set), values, strict=True):
        if not offers(part, "rounding"):
            inside = inside & (largest(value) < -64 * max([float(info.eps) for info in given]))
    margin = Margin(parts(set), x, values, narrow, dtypes)
    if margin.known:
        inside = inside & xp.all((margin.depth > margin.at_anchor) | xp.isinf(margin.depth), axis=-1)
    return inside

"""`project`: pull a point towards the anchor by the weight eta, which keeps it in the set.

    g(x) = x                        if h(x) <= 0
         = x0 + eta (x - x0)        otherwise

How eta is chosen is `method`, of which `near` first moves x (see `_near.py`); that the numbers returned are in the set
is `strict` (see `_strict.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

from . import _ray, _strict
from ._chunks import chunk_by_chunk
from ._combine import Product, parts
from ._fields import leaves, map_arrays, map_point, working
from ._namespace import Array, Point, exact_arithmetic, gather, is_torch, keep, namespace, stop_gradient, take
from ._near import Near, check_parts, nearer
from ._ray import active_row
from ._set import ConvexSet, offers
from ._shapes import broadcast_shapes, check_point, largest, side_by_side, widened
from .affine import has_equalities, onto

Interpolation = Literal["paper", "chord", "ray"]
Method = Interpolation | Literal["near"] | Near
METHODS = ("paper", "chord", "ray")  # along the line to the anchor; `near` leaves it


class Info(NamedTuple):
    """What happened to each sample; for a `Product` each entry is a tuple with one array per block."""

    eta: Any
    """Weight of x: 1 where x was inside, NaN where the anchor is not strictly feasible.

    For `"near"`, of the point that its steps reached."""
    active: Any
    """Index of the constraint that set eta; -1 where x, or the point that the steps reached, was inside."""
    h: Any
    """h(x) before the projection."""


def project(
    set: ConvexSet, x: Point, anchor: Point | None = None, *, method: Method = "chord", strict: bool = True
) -> Point:
    """The point g(x) = x0 + eta (x - x0) of the set, with x0 = `anchor` and eta = 1 where h(x) <= 0.

    Works on torch, JAX and NumPy arrays; leading dimensions of x, of the anchor and of the fields of the
    set are batches and broadcast. `method` chooses eta outside the set:

    - `"paper"`: h(x0) / (h(x0) - h(x)) with h = max_i h_i;
    - `"chord"`: the smallest h_i(x0) / (h_i(x0) - h_i(x)) over the violated i: never smaller than the paper's;
    - `"ray"`: the largest eta that stays in the set;
    - `"near"`: splitting steps take x almost to the nearest point of the set, then `"ray"`; see `Near`, which sets
      their number.

    With `strict` the numbers returned satisfy `set.h(y) <= 0` in their own dtype and in float64.

    For tensors of torch, what depends on the set and the anchor alone is remembered until one of them changes in place;
    a change through `.data` does not show.

    >>> import numpy as np
    >>> from inset import Ball, project
    >>> project(Ball(np.zeros(2), 1.0), np.array([3.0, 4.0]), np.zeros(2)).round(3)
    array([0.6, 0.8])
    """
    return _project(set, x, anchor, method, strict, False)[0]


def project_with_info(
    set: ConvexSet, x: Point, anchor: Point | None = None, *, method: Method = "chord", strict: bool = True
) -> tuple[Point, Info]:
    """`project`, and for each sample its eta, active constraint and h(x), as an `Info`.

    >>> import numpy as np
    >>> from inset import Box, project_with_info
    >>> y, info = project_with_info(Box(-np.ones(2), np.ones(2)), np.array([4.0, 0.0]), np.zeros(2))
    >>> float(info.eta.round(6)), int(info.active)   # the constraints are lower - x, then x - upper
    (0.25, 2)
    """
    return _project(set, x, anchor, method, strict, True)


def check_method(name: str, method: Any, set: ConvexSet | None = None) -> None:
    """Raise unless `project` knows the method, and can use it for the set."""
    if method not in (*METHODS, "near") and not isinstance(method, Near):
        raise ValueError(f"{name}(method={method!r}): expected one of {', '.join(METHODS)}, near, or Near(steps=...)")
    if set is not None and method not in METHODS:
        check_parts(set)


def _project(set: ConvexSet, x: Point, anchor: Any, method: Method, strict: bool, informed: bool) -> Any:
    check_method("project", method, set)
    check_point(set, x)
    anchor = set.anchor(x) if anchor is None else anchor
    check_point(set, anchor, "an anchor")
    return project_checked(set, x, widened(set, anchor, x), method, strict, informed)


def project_checked(set: ConvexSet, x: Point, anchor: Point, method: Method, strict: bool, informed: bool) -> Any:
    """`project_with_info`, or None in place of the `Info`, for points and a method that are known to fit."""
    if isinstance(set, Product):
        done = [
            project_checked(block, point, a, method, strict, informed)
            for block, point, a in zip(set.blocks, x, anchor, strict=True)
        ]
        infos = Info(*(tuple(column) for column in zip(*(info for _, info in done), strict=True))) if informed else None
        return tuple([y for y, _ in done]), infos
    for fused in _fast_paths(x):
        y = fused(set, x, anchor, method, strict)
        if y is not None:  # the same numbers whether there is an `Info` or not
            return y, interpolated(set, x, anchor, method, strict, True)[1] if informed else None
    return interpolated(set, x, anchor, method, strict, informed)


def _fast_paths(x: Point) -> Sequence[Callable[..., Any]]:
    """What may give g(x) without the formulas, for a tensor of torch."""
    if not is_torch(leaves(x)[0]):
        return ()
    from . import _fast

    return _fast.FUSED


def interpolated(set: ConvexSet, x: Point, anchor: Point, method: Method, strict: bool, informed: bool = False) -> Any:
    """`project` by the formulas of the set, for one set, with the `Info` if it is asked for."""
    with exact_arithmetic(leaves(x)[0]):
        return chunk_by_chunk(lambda x, x0: _interpolate(set, x, x0, method, strict, informed), set, x, anchor)


def _interpolate(
    set: ConvexSet, x: Point, anchor: Point, method: Method, strict: bool, informed: bool
) -> tuple[Point, Info | None]:
    dtypes = map_point(lambda leaf: leaf.dtype, x)
    set, x, x0 = working(set, x, anchor)
    if any([not offers(part, "rounding") for part in parts(set)]):  # a user's function sees the whole batch
        xp = namespace(leaves(x)[0])
        x0 = map_point(lambda a, b: xp.broadcast_to(a, broadcast_shapes(tuple(a.shape), tuple(b.shape))), x0, x)
    narrow, eps = _precision(x, dtypes)
    x, pulled = _ray.pull_back(set, x, x0)
    x, x0 = onto(set, x, eps), onto(set, x0)
    before = None
    if method not in METHODS:
        x, before = nearer(set, x, method if isinstance(method, Near) else Near())
        if narrow and not has_equalities(set):  # a point inside is returned as it is: round it as x was
            x = map_point(lambda leaf, dtype: _astype(_astype(leaf, dtype), leaf.dtype), x, dtypes)
        method = "ray"
    near, reach = _ray.into_domain(set, x, x0)  # near = x0 + reach (x - x0), where h is finite

    frozen = tuple([map_arrays(part, stop_gradient) for part in parts(set)])
    still0, still = map_point(stop_gradient, x0), map_point(stop_gradient, near)
    at0, at = (_evaluated(set, frozen, *pair, method) for pair in ((x0, still0), (near, still)))
    values0, computed = at0.values, at.values
    if sum([v.shape[-1] for v in computed]) == 0:  # equalities only
        return _cast(x, dtypes), _info(pulled, None, computed) if informed else None
    if strict:
        bounds = _strict.upper(frozen, still, still0, computed, narrow if has_equalities(set) else 0.0)
        at = at._replace(values=bounds)
    eta, active, outside = _weight(set, at, at0, method)
    if strict:
        margin = _strict.Margin(frozen, still0, values0, narrow, dtypes)
        # exactly the weight that was certified, with the derivative of the one that was computed
        eta = margin.shrink(set, still, stop_gradient(eta)) + (eta - stop_gradient(eta))
        eta = keep(outside | (reach < 1) | (pulled < 1), eta, 1.0)
        sound = margin.anchor_is_certified()
    else:
        sound = largest(side_by_side(values0)) < 0
    eta = keep(sound, eta, float("nan"))
    y = _cast(_ray.between(set, x0, eta, near), dtypes)
    if not informed:
        return y, None
    return y, _info(eta * reach * pulled, keep(outside | (reach < 1), active, -1), computed, before)


def _info(eta: Array, active: Array | None, values: list[Array], before: Array | None = None) -> Info:
    xp = namespace(eta)
    if active is None:
        active = xp.argmax(eta[..., None], axis=-1) - 1
    return Info(eta, active, largest(side_by_side(values)) if before is None else before)


class _Evaluated(NamedTuple):
    """A point, and the constraints of each part there."""

    point: Point
    values: list[Array]
    """Without gradients: they tell which constraint is active."""
    live: list[Array | None]
    """With gradients; None where the part can evaluate the active constraint alone, or nobody asks."""


def _evaluated(set: ConvexSet, frozen: tuple[ConvexSet, ...], point: Point, still: Point, method: Method) -> _Evaluated:
    live = [
        None if method == "ray" or offers(part, "row") or offers(part, "equalities") else part.constraints(point)
        for part in parts(set)
    ]
    values = [f.constraints(still) if v is None else stop_gradient(v) for f, v in zip(frozen, live, strict=True)]
    return _Evaluated(point, values, live)


def _weight(set: ConvexSet, at: _Evaluated, at0: _Evaluated, method: Method) -> tuple[Array, Array, Array]:
    """Eta with gradients, the constraint that set it, and which samples are outside (NaN is)."""
    if method == "paper":
        return _chord(set, at, at0, paper=True)
    if method == "chord" or all([part.affine for part in parts(set)]):
        return _chord(set, at, at0)
    direction = map_point(lambda a, b: a - b, at.point, at0.point)
    etas, rows, start = [], [], 0
    for part, v, v0 in zip(parts(set), at.values, at0.values, strict=True):
        if part.affine and v.shape[-1]:
            eta, i, _ = _chord(part, _Evaluated(at.point, [v], [None]), _Evaluated(at0.point, [v0], [None]))
            etas.append(eta[..., None])
            rows.append((start + i)[..., None])
        elif v.shape[-1]:
            column = _ray.exact(part, at0.point, direction, v, v0)
            etas.append(namespace(v).min(column, axis=-1, keepdims=True))
            rows.append(start + namespace(v).argmin(column, axis=-1, keepdims=True))
        start += v.shape[-1]
    xp = namespace(etas[0])
    column = side_by_side(etas)
    active = gather(side_by_side(rows), xp.argmin(column, axis=-1))
    outside = ~(largest(side_by_side(at.values)) <= 0)
    return keep(outside, xp.min(column, axis=-1), 1.0), active, outside


def _chord(set: ConvexSet, at: _Evaluated, at0: _Evaluated, paper: bool = False) -> tuple[Array, Array, Array]:
    """eta = h_i(x0) / (h_i(x0) - h_i(x)) of the constraint that makes it smallest, or of the paper's max."""
    v, v0 = side_by_side(at.values), side_by_side(at0.values)
    xp = namespace(v)
    # clipped at 0, because a bound at infinity would give inf / inf
    i = xp.argmax(v if paper else xp.clip(v, 0, None) / -v0, axis=-1)
    top = v[..., 0] if v.shape[-1] == 1 else gather(v, i)
    outside = ~(top <= 0)
    h = _row(set, at, i)
    h = h + (top - stop_gradient(h))  # the value with its rounding bound, the derivative of the constraint
    i0 = xp.argmax(v0, axis=-1) if paper else i
    if v0.ndim == 1:  # one anchor for all samples: its constraints are few, no row has to be picked per sample
        pairs = zip(parts(set), at0.live, strict=True)
        h0 = take(side_by_side([p.constraints(at0.point) if live is None else live for p, live in pairs]), i0)
    else:
        h0 = _row(set, at0, i0)
    h0 = keep(outside, h0, -1.0)  # it may be infinite
    return h0 / (h0 - keep(outside, h, 0.0)), i, outside


def _row(set: ConvexSet, at: _Evaluated, i: Array) -> Array:
    """Constraint i of all parts, numbered as their values are side by side."""
    xp = namespace(i)
    result, start = None, 0
    for part, v, live in zip(parts(set), at.values, at.live, strict=True):
        size = v.shape[-1]
        if size == 0:
            continue
        if result is None and start + size == sum([w.shape[-1] for w in at.values]):
            return active_row(part, at.point, i, live)
        value = active_row(part, at.point, xp.clip(i - start, 0, size - 1), live)
        result = value if result is None else xp.where(i >= start, value, result)
        start += size
    assert result is not None
    return result


def _precision(x: Point, dtypes: Any) -> tuple[float, float]:
    """Roundoff of the result where it is narrower than the working dtype of x, else 0; and its eps."""
    xp = namespace(leaves(x)[0])
    given = [xp.finfo(dtype) for dtype in leaves(dtypes)]
    bits = xp.finfo(leaves(x)[0].dtype).bits
    narrow = max([float(info.eps) / 2 if info.bits < bits else 0.0 for info in given])
    return narrow, max([float(info.eps) for info in given])


def _cast(y: Point, dtypes: Any) -> Point:
    return map_point(lambda leaf, dtype: leaf if leaf.dtype == dtype else _astype(leaf, dtype), y, dtypes)


def _astype(leaf: Array, dtype: Any) -> Array:
    return namespace(leaf).astype(leaf, dtype)

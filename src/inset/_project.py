"""`project`: pull a point towards the anchor by the weight eta, which keeps it in the set.

    g(x) = x                        if h(x) <= 0
         = x0 + eta (x - x0)        otherwise

How eta is chosen is `method`; that the numbers returned are in the set is `strict` (see `_strict.py`).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from . import _ray, _strict
from ._namespace import Array, Point, exact_arithmetic, namespace, stop_gradient
from ._ray import active_row, along, over_event
from ._combine import Product, parts
from ._fields import leaves, map_arrays, map_point, working
from ._set import ConvexSet
from ._shapes import check_point, largest, side_by_side
from .affine import has_equalities, onto

Method = Literal["paper", "chord", "ray"]
METHODS = ("paper", "chord", "ray")


class Info(NamedTuple):
    """What happened to each sample; for a `Product` each entry is a tuple with one array per block."""

    eta: Any
    """Weight of x: 1 where x was inside, NaN where the anchor is not strictly feasible."""
    active: Any
    """Index of the constraint that set eta; -1 where x was inside."""
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
    - `"ray"`: the largest eta that stays in the set.

    With `strict` the numbers returned satisfy `set.h(y) <= 0` in their own dtype and in float64.

    >>> import numpy as np
    >>> from inset import Ball, project
    >>> project(Ball(np.zeros(2), 1.0), np.array([3.0, 4.0]), np.zeros(2)).round(3)
    array([0.6, 0.8])
    """
    return project_with_info(set, x, anchor, method=method, strict=strict)[0]


def project_with_info(
    set: ConvexSet, x: Point, anchor: Point | None = None, *, method: Method = "chord", strict: bool = True
) -> tuple[Point, Info]:
    """`project`, and for each sample its eta, active constraint and h(x)."""
    if method not in METHODS:
        raise ValueError(f"project(method={method!r}): expected one of {', '.join(METHODS)}")
    if anchor is None:
        anchor = set.anchor(x)
    check_point(set, x)
    check_point(set, anchor, "an anchor")
    if isinstance(set, Product):
        done = [
            project_with_info(block, point, a, method=method, strict=strict)
            for block, point, a in zip(set.blocks, x, anchor, strict=True)
        ]
        infos = Info(*(tuple(column) for column in zip(*(info for _, info in done), strict=True)))
        return tuple([y for y, _ in done]), infos
    with exact_arithmetic(leaves(x)[0]):
        return _interpolate(set, x, anchor, method, strict)


def _interpolate(set: ConvexSet, x: Point, anchor: Point, method: Method, strict: bool) -> tuple[Point, Info]:
    dtypes = map_point(lambda leaf: leaf.dtype, x)
    set, x, x0 = working(set, x, anchor)
    narrow, eps = _precision(x, dtypes)
    x, pulled = _ray.pull_back(set, x, x0)
    x, x0 = onto(set, x, eps), onto(set, x0)
    near, reach = _ray.into_domain(set, x, x0)  # near = x0 + reach (x - x0), where h is finite
    direction = map_point(lambda a, b: a - b, near, x0)

    # which constraint is active is found without gradients; that one alone is then evaluated with them
    frozen = tuple([map_arrays(part, stop_gradient) for part in parts(set)])
    still0, still = map_point(stop_gradient, x0), map_point(stop_gradient, near)
    values0 = [part.constraints(still0) for part in frozen]
    values = [part.constraints(still) for part in frozen]
    h = largest(side_by_side(values))
    xp = namespace(h)
    nobody = xp.argmax(h[..., None], axis=-1) - 1  # no active constraint: -1 for each sample
    if sum([v.shape[-1] for v in values]) == 0:
        return _cast(x, dtypes), Info(pulled, nobody, h)
    if strict:
        values = _strict.upper(frozen, still, values, narrow if has_equalities(set) else 0.0)
    eta, active, outside = _weight(set, near, x0, direction, values, values0, method)
    outside = outside | (reach < 1)
    sound = largest(side_by_side(values0)) < 0
    if strict:
        margin = _strict.Margin(frozen, still0, values0, narrow, dtypes)
        shrunk = margin.shrink(set, map_point(stop_gradient, direction), stop_gradient(eta))
        eta = shrunk + (eta - stop_gradient(eta))  # exactly the weight that was certified
        sound = sound & margin.anchor_is_certified()
    eta, outside = xp.where(sound, eta, xp.full_like(eta, float("nan"))), outside | ~sound
    y = map_point(
        lambda a, d, b, k: xp.where(over_event(outside, k), a + over_event(eta, k) * d, b),
        *(x0, direction, x, set.event_ndim),
    )
    info = Info(xp.where(outside, eta * reach * pulled, xp.ones_like(eta)), xp.where(outside, active, nobody), h)
    return _cast(y, dtypes), info


def _weight(
    set: ConvexSet, x: Point, x0: Point, direction: Point, values: list[Array], values0: list[Array], method: Method
) -> tuple[Array, Array, Array]:
    """Eta with gradients, the constraint that set it, and which samples are outside (NaN is)."""
    if method == "paper":
        return _chord(set, x, x0, values, values0, paper=True)
    if method == "chord" or all([part.affine for part in parts(set)]):
        return _chord(set, x, x0, values, values0)
    columns, offsets, start = [], [], 0
    for part, v, v0 in zip(parts(set), values, values0, strict=True):
        if part.affine and v.shape[-1]:
            eta, i, _ = _chord(part, x, x0, [v], [v0])
            columns.append((1 / eta)[..., None])
            offsets.append((i + start)[..., None])
        elif v.shape[-1]:
            gauge = _ray.gauges(part, x0, direction, v, v0)
            columns.append(gauge)
            offsets.append(start + namespace(v).argmax(gauge, axis=-1, keepdims=True) + 0 * gauge.shape[-1])
        start += v.shape[-1]
    xp = namespace(columns[0])
    tops = side_by_side([xp.max(column, axis=-1, keepdims=True) for column in columns])
    gauge = xp.max(tops, axis=-1)
    active = xp.take_along_axis(side_by_side(offsets), xp.argmax(tops, axis=-1, keepdims=True), axis=-1)[..., 0]
    outside = ~(largest(side_by_side(values)) <= 0)
    # the comparison keeps NaN: a bad sample stays bad
    return 1 / xp.where(gauge <= 1, xp.ones_like(gauge), gauge), active, outside


def _chord(
    set: ConvexSet, x: Point, x0: Point, values: list[Array], values0: list[Array], paper: bool = False
) -> tuple[Array, Array, Array]:
    """eta = h_i(x0) / (h_i(x0) - h_i(x)) of the constraint that makes it smallest, or of the paper's max."""
    v, v0 = side_by_side(values), side_by_side(values0)
    xp = namespace(v)
    i = xp.argmax(v if paper else xp.where(v > 0, v / -v0, xp.zeros_like(v)), axis=-1)
    top = v[..., 0] if v.shape[-1] == 1 else xp.take_along_axis(v, i[..., None], axis=-1)[..., 0]
    outside = ~(top <= 0)
    h = _row(set, x, i, values)
    h = h + (top - stop_gradient(h))  # the value with its rounding bound, the derivative of the constraint
    h0 = _row(set, x0, xp.argmax(v0, axis=-1) if paper else i, values)
    return h0 / (h0 - xp.where(outside, h, xp.zeros_like(h))), i, outside


def _row(set: ConvexSet, x: Point, i: Array, values: list[Array]) -> Array:
    """Constraint i of all parts, numbered as `values` are side by side."""
    xp = namespace(i)
    result, start = None, 0
    for part, v in zip(parts(set), values, strict=True):
        size = v.shape[-1]
        if size == 0:
            continue
        if result is None and start + size == sum([w.shape[-1] for w in values]):
            return active_row(part, x, i)
        value = active_row(part, x, xp.clip(i - start, 0, size - 1))
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

"""From what the user gives, an objective, a set and an anchor, to a `Program`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from .._combine import parts
from .._coordinates import Coordinates, flattened
from .._fields import leaves, map_arrays, map_point, working_dtype
from .._namespace import Array, Point, is_array, like, namespace, stop_gradient, value_and_grad
from .._project import project
from .._set import ConvexSet, offers
from .._shapes import broadcast_shapes, check_point, event_dims
from ..affine import eliminate, onto, stacked
from ._program import Program


@dataclasses.dataclass(frozen=True, eq=False)
class Goal:
    """The objective: c.x for a vector c, or a function of x."""

    vector: Point | None
    function: Callable[[Point], Array] | None


def build(
    compiled: Callable[[Any], Any], objective: Any, set: ConvexSet, anchor: Point, extra: tuple[int, ...]
) -> Program:
    """The program of N = prod(batch) problems; the batch is that of all arrays together and of the shape `extra`."""
    check_point(set, anchor, "an anchor")
    first = leaves(anchor)[0]
    reference = namespace(first).astype(namespace(first).reshape(first, (-1,))[:1], working_dtype(set, anchor))
    set = map_arrays(set, lambda v: like(stop_gradient(v), reference))
    anchor = onto(set, map_point(lambda v: like(stop_gradient(v), reference), anchor))
    goal = Goal(None, objective) if callable(objective) else Goal(_vector(set, objective, reference), None)
    equal = [part.equalities(anchor) for part in parts(set) if offers(part, "equalities")]
    F = eliminate(*stacked(equal, anchor)[:2])[0] if equal else None
    return compiled(assemble)(set, anchor, goal, F, namespace(reference).zeros(extra))


def assemble(set: ConvexSet, anchor: Point, goal: Goal, F: Array | None, extra: Array) -> Program:
    """The program around an anchor on the subspace that F spans; only the shape of `extra` counts."""
    cost, objective = goal.vector, goal.function
    dims = event_dims(set)
    points = [anchor] if cost is None else [anchor, cost]
    batches = [tuple(v.shape[: v.ndim - k]) for p in points for v, k in zip(leaves(p), dims, strict=True)]
    batches += [tuple(set.constraints(anchor).shape[:-1]), tuple(extra.shape)]
    if F is not None:
        batches.append(tuple(F.shape[:-2]))
    if objective is not None:
        batches.append(tuple(objective(anchor).shape))
    batch = broadcast_shapes(*batches)
    shapes = tuple([tuple(v.shape[v.ndim - k :]) for v, k in zip(leaves(anchor), dims, strict=True)])
    base = flattened(anchor, batch, shapes)
    xp = namespace(base)
    if F is not None and F.ndim > 2:
        F = xp.reshape(xp.broadcast_to(F, (*batch, *F.shape[-2:])), (base.shape[0], *F.shape[-2:]))
    at = Coordinates(base, F, batch, shapes, set.event_ndim)
    zero = xp.zeros_like(base if F is None else base[:, :1] * F[..., 0, :])
    nothing = xp.zeros_like(base[:, 0])
    program = Program(set, at, zero, zero, nothing == 0, nothing, None, objective)
    safe = project(set, at.point(zero), at.point(zero))  # NaN where the anchor is not strictly inside
    usable = xp.all(xp.isfinite(flattened(safe, batch, shapes)), axis=-1)
    scale = abs(program.constraints(zero))
    scale = xp.where(xp.isfinite(scale) & (scale > 0), scale, xp.ones_like(scale))
    if cost is None:
        return dataclasses.replace(program, scale=scale, usable=usable, offset=program.value(zero))
    c = flattened(cost, batch, shapes)
    offset, slope = value_and_grad(lambda z: xp.sum(c * flattened(program.point(z), batch, shapes), axis=-1), zero)
    return dataclasses.replace(program, scale=scale, usable=usable, offset=offset, cost=slope)


def _vector(set: ConvexSet, objective: Any, reference: Array) -> Point:
    """A linear objective in the framework and dtype of the anchor."""
    if not all(is_array(leaf) for leaf in leaves(objective)):
        raise TypeError(
            "minimize(objective=...): expected an array of the shape of a point (for c.x) or a function of a point, "
            f"received {type(objective).__name__}"
        )
    check_point(set, objective, "a linear objective")
    return map_point(lambda v: like(stop_gradient(v), reference), objective)

"""`diagnose`: is h convex here, is the anchor strict, how well conditioned is the set, and what happens to each x."""

from __future__ import annotations

import dataclasses
from typing import Any

from ._combine import Product, parts
from ._fields import leaves, map_arrays, map_point, working
from ._namespace import Array, Point, exact_arithmetic, is_array, is_torch, like, namespace, stop_gradient
from ._project import Method, project_with_info
from ._ray import between, into_domain
from ._set import ConvexSet
from ._shapes import check_point, event_dims, largest, side_by_side
from .affine import equalities_hold, onto

SEGMENTS = 256


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What `diagnose` found. Prints as a short report."""

    convex: bool
    """Whether no constraint rose above its chord by more than rounding on the random segments tried."""
    convexity_gap: float
    """The largest h_i(middle) - chord found, relative to the values at the ends: positive means not convex."""
    nonconvex_constraint: int | None
    """The constraint with that gap, if it is not convex."""
    anchor_h: Array
    """h at the anchor, `(*batch,)`: negative for a strict one."""
    anchor_strict: bool
    """Whether every anchor is strictly feasible and satisfies the equalities."""
    conditioning: float
    """H / |h(x0)|, the constant in the paper's bound, with the Lipschitz constant H of h estimated on the segments."""
    eta: Array | None = None
    """For each x: its weight."""
    active: Array | None = None
    """For each x: the constraint that set the weight, -1 inside."""
    margin: Array | None = None
    """For each x: -h of the projected point, how far inside it is."""
    status: Any = None
    """For each x: one of "inside", "moved", "bad anchor", "not finite", as a NumPy array of strings."""

    def __str__(self) -> str:
        import numpy as np

        worst = float(namespace(self.anchor_h).max(self.anchor_h))
        lines = [
            "convex on the segments tried" if self.convex else f"NOT CONVEX: constraint {self.nonconvex_constraint}",
            f"  convexity gap    {self.convexity_gap:.3g}",
            f"anchor {'strict' if self.anchor_strict else 'NOT STRICT: pass inset.interior_point(set)'}",
            f"  h(anchor)        {worst:.6g}",
            f"  H / |h(anchor)|  {self.conditioning:.3g}",
        ]
        if self.status is not None:
            names, counts = np.unique(self.status, return_counts=True)
            lines.append("samples " + ", ".join(f"{n} {c}" for n, c in zip(names, counts, strict=True)))
        return "\n".join(lines)


def diagnose(
    set: ConvexSet, anchor: Point | None = None, x: Point | None = None, *, method: Method = "chord", seed: int = 0
) -> Diagnosis:
    """Test what the projection relies on, and say for each x what it does. One bad sample never raises for its batch.

    Along random segments around the anchor (as wide as x, or as the anchor is deep) each constraint is compared with
    its chord, h_i((a + b)/2) <= (h_i(a) + h_i(b))/2, and its slope |h(a) - h(b)| / |a - b| bounds the Lipschitz
    constant H from below. `set.check()` is called, so bad values of fields do raise.

    >>> import numpy as np
    >>> from inset import Sublevel, diagnose
    >>> ring = Sublevel(lambda x: 0.25 - (x * x).sum(-1))      # the outside of a disc
    >>> diagnose(ring, np.array([2.0, 0.0])).convex
    False
    """
    set.check()
    anchor = set.anchor(x) if anchor is None else anchor
    check_point(set, anchor, "an anchor")
    if isinstance(set, Product):
        raise TypeError("diagnose looks at one set at a time: call it for each block of the Product")
    if x is not None:
        check_point(set, x)
    with exact_arithmetic(leaves(anchor)[0]):
        still, x0 = _frozen(set, anchor)
        gap, where, lipschitz = _segments(still, x0, x, seed)
        h0 = largest(still.constraints(x0))
    strict = bool((h0 < 0).all()) and _all(equalities_hold(set, anchor, 1e-3))
    depth = float(abs(_smallest(h0)))
    report = Diagnosis(
        convex=gap <= 0,
        convexity_gap=gap,
        nonconvex_constraint=where if gap > 0 else None,
        anchor_h=h0,
        anchor_strict=strict,
        conditioning=lipschitz / depth if depth else float("inf"),
    )
    return report if x is None else _with_samples(report, set, anchor, x, method)


def _frozen(set: ConvexSet, anchor: Point) -> tuple[ConvexSet, Point]:
    set, anchor = working(map_arrays(set, stop_gradient), map_point(stop_gradient, anchor))
    return set, onto(set, anchor)


def _segments(set: ConvexSet, anchor: Point, x: Point | None, seed: int) -> tuple[float, int, float]:
    """Worst convexity gap (0 if none beyond rounding), its constraint, and the steepest slope of h."""
    a, b = (_random_points(set, anchor, x, seed + k) for k in range(2))
    middle = map_point(lambda p, q: (p + q) / 2, a, b)
    va, vb, vm = (side_by_side([p.constraints(v) for p in parts(set)]) for v in (a, b, middle))
    xp = namespace(va)
    eps = float(xp.finfo(va.dtype).eps)
    finite = xp.isfinite(va) & xp.isfinite(vb)
    size = abs(va) + abs(vb) + 1e-30
    excess = xp.where(finite, (vm - (va + vb) / 2) / size, 0.0)
    # NaN in the middle of two finite ends: the domain itself is not convex
    excess = xp.where(finite & ~xp.isfinite(vm), 1.0, excess)
    flat = xp.reshape(excess, (-1, excess.shape[-1]))
    place = int(xp.argmax(flat))
    worst = float(xp.reshape(flat, (-1,))[place])
    squares = [
        xp.sum(xp.reshape((p - q) ** 2, (*p.shape[: p.ndim - k], -1)), axis=-1)
        for p, q, k in zip(leaves(a), leaves(b), event_dims(set), strict=True)
    ]
    slopes = abs(largest(va) - largest(vb)) / xp.sqrt(sum(squares[1:], start=squares[0]))
    slope = float(xp.max(xp.where(xp.isfinite(slopes), slopes, 0.0)))
    tolerance = max(1e-6, 1e4 * eps) if eps > 1e-10 else 1e-9
    return (worst if worst > tolerance else min(worst, 0.0)), place % flat.shape[-1], slope


def _random_points(set: ConvexSet, anchor: Point, x: Point | None, seed: int) -> Point:
    """Points around the anchor, as far as x is or as the anchor is deep, pulled into the domain and onto the plane."""
    import numpy as np

    rng = np.random.default_rng(seed)
    depth = float(abs(_smallest(largest(set.constraints(anchor)))))
    reach = np.exp(rng.normal(size=SEGMENTS))

    def throw(leaf: Array, other: Array | None) -> Array:
        noise = rng.normal(size=(SEGMENTS, *leaf.shape))
        scale = np.reshape(reach, (SEGMENTS, *(1,) * leaf.ndim))
        far = depth + float(abs(leaf).max()) if other is None else _typical(other, leaf)
        return leaf + like(scale * noise * (far + 1e-3), leaf)

    others = x if x is not None else map_point(lambda leaf: None, anchor)
    points = onto(set, map_point(throw, anchor, others))
    points, reach = into_domain(set, points, anchor)
    # a point pulled onto the edge of the domain is pulled further, where slopes are finite
    return points if isinstance(reach, float) else between(set, anchor, 1 - 0.1 * (0 * reach + (reach < 1)), points)


def _typical(x: Array, anchor: Array) -> float:
    """The median distance of finite coordinates of x from the anchor."""
    import numpy as np

    values = np.abs(_numpy(x) - _numpy(anchor))
    values = values[np.isfinite(values)]
    return float(np.median(values)) if values.size else 1.0


def _with_samples(report: Diagnosis, set: ConvexSet, anchor: Point, x: Point, method: Method) -> Diagnosis:
    import numpy as np

    y, info = project_with_info(set, x, anchor, method=method)
    eta, finite = _numpy(info.eta), np.asarray(True)
    for leaf, k in zip(leaves(x), event_dims(set), strict=True):
        finite = finite & np.isfinite(_numpy(leaf)).reshape(*leaf.shape[: leaf.ndim - k], -1).all(-1)
    status = np.where(_numpy(info.active) < 0, "inside", "moved").astype("<U10")
    status = np.where(np.isnan(eta), "bad anchor", status)
    status = np.where(np.broadcast_to(finite, status.shape), status, "not finite")
    return dataclasses.replace(report, eta=info.eta, active=info.active, margin=-set.h(y), status=status)


def _smallest(values: Array) -> Array:
    return namespace(values).min(abs(values))


def _all(condition: Any) -> bool:
    return bool(condition.all()) if is_array(condition) else bool(condition)


def _numpy(x: Array) -> Any:
    import numpy as np

    return x.detach().double().cpu().numpy() if is_torch(x) and x.is_floating_point() else np.asarray(x)

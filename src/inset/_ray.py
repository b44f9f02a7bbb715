"""Along the ray from the anchor through x: how far h is finite, and how far the set reaches."""

from __future__ import annotations

from ._combine import parts
from ._fields import leaves, map_arrays, map_point
from ._namespace import Array, Point, gather, keep, lerp, namespace, repeat, stop_gradient
from ._root import attached
from ._set import ConvexSet, offers
from ._shapes import event_dims, largest

# Two values of h per step. The bracket shrinks superlinearly once it is small; the log-scale bisection
# gets it there when h grows exponentially. Measured in tests/test_ray.py.
STEPS = 16

# Coordinates beyond this are pulled back before anything is computed, by bits of the working dtype.
HUGE = {32: 2.0**96, 64: 2.0**500}


def over_event(v: Array, event: int) -> Array:
    """A batch-shaped array with `event` trailing axes of size one."""
    return v[(..., *(None,) * event)] if event else v


def along(set: ConvexSet, anchor: Point, t: Array, direction: Point) -> Point:
    """anchor + t direction."""
    return map_point(lambda a, d, k: a + over_event(t, k) * d, anchor, direction, set.event_ndim)


def between(set: ConvexSet, anchor: Point, t: Array, x: Point) -> Point:
    """anchor + t (x - anchor): exactly x at t = 1."""
    return map_point(lambda a, b, k: lerp(a, b, over_event(t, k)), anchor, x, set.event_ndim)


def pull_back(set: ConvexSet, x: Point, anchor: Point) -> tuple[Point, Array]:
    """x, pulled back along the ray to coordinates below `HUGE`, where products do not overflow; and by what factor.

    The factor t is 1, and the point x itself bit for bit, for all but huge x.
    """
    xp = namespace(leaves(x)[0])
    sizes = [
        xp.max(xp.abs(stop_gradient(leaf)), axis=tuple(range(-k, 0))) if k else xp.abs(stop_gradient(leaf))
        for leaf, k in zip(leaves(x), event_dims(set), strict=True)
    ]
    far = sizes[0]
    for size in sizes[1:]:
        far = xp.maximum(far, size)
    limit = HUGE[xp.finfo(far.dtype).bits]
    t = keep(far > limit, limit / far, 1.0)
    return between(set, anchor, t, x), t


def into_domain(set: ConvexSet, x: Point, anchor: Point) -> tuple[Point, Array | float]:
    """The last point of the segment from the anchor to x at which every constraint is finite, and how far that is."""
    reach: Array | float = 1.0
    for part in parts(set):
        if offers(part, "domain"):
            step = part.domain(anchor, x)
            x, reach = between(set, anchor, step, x), reach * step
    return x, reach


def gauges(part: ConvexSet, anchor: Point, direction: Point, values: Array, values0: Array) -> Array:
    """1 / eta of the exact ray for each constraint of a part that is not affine, shape `(*batch, m or 1)`."""
    if offers(part, "gauge"):
        return part.gauge(anchor, direction)
    eta = search(part, anchor, direction, largest(values), largest(values0))
    return (1 / eta)[..., None]


def search(part: ConvexSet, anchor: Point, direction: Point, h1: Array, h0: Array) -> Array:
    """The largest t <= 1 with h(anchor + t direction) <= 0, differentiable. `h1`, `h0`: h at t = 1 and 0.

    A bracket [lo, hi] with h(lo) <= 0 < h(hi). The chord between its ends is feasible by convexity; the
    secant through two inner points, prolonged, is an upper bound; what is left is bisected on a log scale.
    """
    frozen = map_arrays(part, stop_gradient)
    x0, d = map_point(stop_gradient, anchor), map_point(stop_gradient, direction)
    xp = namespace(h1)

    def h(t: Array) -> Array:
        return largest(frozen.constraints(along(frozen, x0, t, d)))

    def tighten(lo: Array, h_lo: Array, hi: Array, h_hi: Array, before: Array, h_before: Array) -> tuple[Array, ...]:
        chord = lo + (hi - lo) * (h_lo / (h_lo - h_hi))
        chord = xp.where((chord > lo) & (chord < hi), chord, lo)
        value = h(chord)
        inner = value <= 0
        advance = inner & (chord > lo)
        before, h_before = xp.where(advance, lo, before), xp.where(advance, h_lo, h_before)
        lo, h_lo = xp.where(advance, chord, lo), xp.where(advance, value, h_lo)
        hi, h_hi = xp.where(inner, hi, chord), xp.where(inner, h_hi, value)

        rise = h_lo - h_before
        secant = lo - h_lo * (lo - before) / keep(rise > 0, rise, 1.0)
        middle = xp.where(hi > 4 * lo, xp.sqrt(xp.where(lo > 0, lo, hi / 1024) * hi), (lo + hi) / 2)
        guess = xp.where((before >= 0) & (rise > 0) & (secant > lo) & (secant < middle), secant, middle)
        value = h(guess)
        inner = value <= 0
        before, h_before = xp.where(inner, lo, before), xp.where(inner, h_lo, h_before)
        lo, h_lo = xp.where(inner, guess, lo), xp.where(inner, value, h_lo)
        return lo, h_lo, xp.where(inner, hi, guess), xp.where(inner, h_hi, value), before, h_before

    outside = ~(h1 <= 0)
    one = xp.ones_like(h1 + h0)
    # the second inner point, for the secant, comes with the first step
    start = (0 * one, h0 * one, one, keep(outside, h1, 1.0) * one, -one, h0 * one - 1)
    eta = keep(outside, repeat(STEPS, tighten, start)[0], 1.0)
    i = xp.argmax(frozen.constraints(along(frozen, x0, eta, d)), axis=-1)
    return attached(lambda t: active_row(part, along(part, anchor, t, direction), i), eta, outside)


def active_row(part: ConvexSet, x: Point, i: Array) -> Array:
    """The constraint i of a part at x, with gradients, shape `(*batch,)`."""
    if offers(part, "row"):
        return part.row(x, i)
    values = part.constraints(x)
    if values.shape[-1] == 1:
        return values[..., 0]
    xp = namespace(values)
    if values.shape[:-1] != i.shape:
        values = xp.broadcast_to(values, (*i.shape, values.shape[-1]))
    return gather(values, i)

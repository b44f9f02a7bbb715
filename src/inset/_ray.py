"""Along the ray from the anchor through x: how far h is finite, and how far the set reaches."""

from __future__ import annotations

from ._combine import parts
from ._fields import leaves, map_arrays, map_point
from ._namespace import Array, Point, gather, keep, lerp, namespace, repeat, stop_gradient
from ._root import attached
from ._set import ConvexSet, offers
from ._shapes import event_dims, largest

# One value of h per step. The bracket shrinks superlinearly once it is small; the log-scale bisection gets it there
# when h grows exponentially.
STEPS = 28

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
            if offers(part, "rounding"):  # a user's function is where it says
                x = _snapped(set, anchor, x, step < 1)
    return x, reach


def _snapped(set: ConvexSet, anchor: Point, x: Point, retreated: Array) -> Point:
    """x with coordinates that are 0 but for the rounding of the retreat set to 0: near the edge h may be steep."""

    def snap(a: Array, b: Array, k: int) -> Array:
        xp, still = namespace(b), stop_gradient(b)
        tiny = abs(still) <= 4 * float(xp.finfo(b.dtype).eps) * abs(stop_gradient(a))
        return b - xp.where(over_event(retreated, k) & tiny, still, xp.zeros_like(still))

    return map_point(snap, anchor, x, set.event_ndim)


def exact(part: ConvexSet, anchor: Point, direction: Point, values: Array, values0: Array) -> Array:
    """Eta of the exact ray for each constraint of a part that is not affine, `(*batch, m)`, or of all of them."""
    gauge = part.gauge(anchor, direction) if offers(part, "gauge") else None
    if gauge is not None:
        # the comparison keeps NaN: a bad sample stays bad
        return 1 / keep(~(gauge <= 1), gauge, 1.0)
    return search(part, anchor, direction, largest(values), largest(values0))[..., None]


def search(part: ConvexSet, anchor: Point, direction: Point, h1: Array, h0: Array) -> Array:
    """The largest t <= 1 with h(anchor + t direction) <= 0, differentiable. `h1`, `h0`: h at t = 1 and 0.

    Chandrupatla's method: a bracket with h <= 0 at one end and h > 0 (or NaN) at the other; inverse quadratic
    interpolation where the last three points make it safe, else bisection: on a log scale while the ends differ by
    more than a factor, and towards 1 in large strides, because the slope may be infinite at the edge of a domain.
    """
    frozen = map_arrays(part, stop_gradient)
    x0, d = map_point(stop_gradient, anchor), map_point(stop_gradient, direction)
    xp = namespace(h1)
    eps = float(xp.finfo(h1.dtype).eps)

    def h(t: Array) -> Array:
        return largest(frozen.constraints(along(frozen, x0, t, d)))

    def tighten(a: Array, fa: Array, b: Array, fb: Array, c: Array, fc: Array) -> tuple[Array, ...]:
        """b is the end tried last, a the other end, c the end that b replaced."""
        lo, hi = xp.where(fb <= 0, b, a), xp.where(fb <= 0, a, b)
        middle = xp.where(hi > 4 * lo, xp.sqrt(lo) * xp.sqrt(hi), (lo + hi) / 2)
        chord = hi * (h0 / (h0 - xp.where(fb <= 0, fa, fb)))  # feasible by convexity: a first lower end above 0
        middle = xp.where(lo > 0, middle, xp.where(chord > 0, chord, hi / 32))
        middle = xp.where((hi == 1) & (lo > 0.25), 1 - (1 - lo) / 16, middle)
        xi, phi = (b - a) / (c - a), (fb - fa) / (fc - fa)
        smooth = (phi * phi < xi) & ((1 - phi) * (1 - phi) < 1 - xi)
        t = fb / (fa - fb) * (fc / (fa - fc)) + (c - b) / (a - b) * (fb / (fc - fb)) * (fa / (fc - fa))
        least = xp.clip(2 * eps * abs(b) / abs(a - b), 0.0, 0.5)  # never closer to an end than rounding
        t = xp.where(t < least, least, xp.where(t > 1 - least, 1 - least, t))
        guess = xp.where(smooth & (t == t), b + t * (a - b), middle)
        value = h(guess)
        same = (value <= 0) == (fb <= 0)  # then b is replaced, else it becomes the other end
        return xp.where(same, a, b), xp.where(same, fa, fb), guess, value, xp.where(same, b, a), xp.where(same, fb, fa)

    outside = ~(h1 <= 0)
    one = xp.ones_like(h1 + h0)
    start = (0 * one, h0 * one, one, keep(outside, h1, 1.0) * one, 0 * one, h0 * one)
    a, _, b, fb, *_ = repeat(STEPS, tighten, start)
    eta = keep(outside, xp.where(fb <= 0, b, a), 1.0)
    i = xp.argmax(frozen.constraints(along(frozen, x0, eta, d)), axis=-1)
    return attached(lambda t: active_row(part, along(part, anchor, t, direction), i), eta, outside)


def active_row(part: ConvexSet, x: Point, i: Array, values: Array | None = None) -> Array:
    """The constraint i of a part at x, with gradients, shape `(*batch,)`; of the values at x, if they are known."""
    if values is None and offers(part, "row"):
        return part.row(x, i)
    column: Array = part.constraints(x) if values is None else values
    if column.shape[-1] == 1:
        return column[..., 0]
    xp = namespace(column)
    if column.shape[:-1] != i.shape:
        column = xp.broadcast_to(column, (*i.shape, column.shape[-1]))
    return gather(column, i)

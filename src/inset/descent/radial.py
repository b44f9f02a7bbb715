"""`Radial`: minimise the gauge of the set on a plane. No step size, no other parameter."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from .._linalg import apply, length, unit
from .._namespace import Array, exact_arithmetic, eye_like, host, keep, like, namespace
from ._certificate import gauge_bound
from ._pool import Pool
from ._pool import start as start_pool
from ._program import Epigraph, Program, cut
from ._record import Record, start
from .result import Result, Status

# Powers of eps, so that one rule serves float64 and float32; beside each its value in float64.
TRUST = 0.64  # 1e-10: points with a larger relative rounding error of h are not recorded
SANE = 0.77  # 1e-12: rays with a larger one are not followed
RECENT = 4  # cuts that bound the gauge of the next ray


class RadialState(NamedTuple):
    """One search per problem: its ray, what is known of the gauge there, and the metric of the r-algorithm."""

    record: Record
    pool: Pool
    heading: Array
    """-c / |c|, `(N, k)`."""
    origin: Array
    """The anchor of the search, `(N, k)`; it moves when a deeper point is found."""
    scale: Array
    """|h_i| at the origin, `(N, m)`."""
    recent: Array
    """The last few cuts, `(N, RECENT, k)`."""
    y: Array
    """The ray, on the plane heading.y = 1, `(N, k)`."""
    best_y: Array
    """The ray of the smallest gauge, `(N, k)`."""
    B: Array
    """The metric, `(N, k, k)`."""
    D: Array
    """The direction of the walk, `(N, k)`."""
    q: Array
    """The subgradient at which D was chosen, `(N, k)`."""
    s: Array
    """The step along D, `(N,)` as all that follow."""
    best: Array
    """Smallest upper bound of the gauge, over all rays."""
    upper: Array
    """Upper bound of the gauge on this ray."""
    low: Array
    """Lower bound of the gauge on this ray, from points outside of the set."""
    near: Array
    """Distance from the origin to the boundary by the subgradient there."""
    unit: Array
    """A guess of that distance along the first ray, which grows."""
    walked: Array
    """Rays since D was chosen."""
    first: Array
    """Whether the first ray is still being measured."""
    fresh: Array
    """Whether the metric is new, without a direction."""
    improved: Array
    """Whether `best` fell since D was chosen."""
    idle: Array
    """Rays since `best` last fell by more than rounding."""
    mark: Array
    """`best` when it last did."""
    vain: Array
    """Whether the metric was made new and nothing has been gained since."""


@dataclasses.dataclass(frozen=True, eq=False)
class Radial:
    """Minimise a linear f over the set through its gauge, by Shor's r-algorithm.

    Let p(y) be the gauge of the set seen from the anchor x0 (1/p(y) is how far the set reaches along y), ch = c/|c|.
    Minimising c.x over the set is minimising the convex p on the plane {y : ch.y = -1}: f(x0) - f = |c| / p. One call
    of h and its subgradient g at x = x0 + t y, with h scaled so that each h_i(x0) = -1, gives

        u = g / (g.(x - x0) - h(x)),   u.(z - x0) <= 1 for every z in the set:   p(y) >= u.y
        (1 + max(h(x), 0)) / t >= p(y), by the chord, whose end is feasible and is recorded

    The r-algorithm walks on the plane along D = -B unit(B^T q), q the part of u in the plane, and halves the metric
    B along the change of q at each turn. A convex objective that is not linear goes through its epigraph. There is
    no proof of a rate. A k x k matrix per problem: made for some tens of variables.

    The cuts also bound the optimum from below (`Result.lower`), among points up to ten times as far from the anchor
    as the best one. `tol` is the gap, relative to f(x0) - f, below which a problem counts as converged; in float32 it
    is 2e-4 at least.

    >>> Radial()
    Radial(tol=1e-06)
    """

    tol: float = 1e-6

    linear = True

    def start(self, program: Program | Epigraph) -> RadialState:
        z = program.anchor
        xp = namespace(z)
        assert program.cost is not None
        _, g = cut(program, z, program.scale)
        g = xp.where(xp.isfinite(g), g, xp.zeros_like(g))
        record = start(z, program.value(z), program.usable).called()
        size = length(program.cost)
        record = record.stop(~xp.isfinite(size), Status.NOT_FINITE).stop(size == 0, Status.CONVERGED)
        pool = start_pool(g, 16 + 2 * z.shape[-1])
        return _anew(record, pool, -unit(program.cost), z, program.scale, g)

    def advance(self, program: Program | Epigraph, state: RadialState) -> RadialState:
        """One call of h: measure the ray, and once it is known well enough, go to the next."""
        running = state.record.running
        measured, q, sane, new = _measure(program, state)
        return _where(running, _where(measured, _walk(new, q, sane), new), state)

    def refresh(self, program: Program | Epigraph, state: RadialState) -> RadialState:
        """Search again from the mean of the recorded points where it is much deeper in the set than the origin."""
        xp = namespace(state.y)
        count = xp.astype(state.record.count, state.y.dtype)
        mean = state.record.total / keep(count > 0, count, 1.0)[:, None]
        values = program.constraints(mean)
        scale = xp.where(xp.isfinite(values), abs(values), xp.ones_like(values))
        _, g = cut(program, mean, scale)
        record = state.record.called()
        deeper = -xp.max(values, axis=-1) > 4 * xp.min(state.scale, axis=-1)
        move = deeper & xp.all(values < -0.05 * state.scale, axis=-1) & xp.all(xp.isfinite(g), axis=-1)
        move = move & record.running & (count > 0)
        pool, inside = state.pool.shifted(mean - state.origin, move)
        moved = _anew(record, pool, state.heading, mean, scale, g)
        return _where(move & inside, moved, state._replace(record=record, pool=pool))

    def certify(self, program: Program | Epigraph, state: RadialState, result: Result) -> Result:
        """The result with a lower bound of the optimum from the cuts, and `CONVERGED` where it meets the value."""
        value, status = host(result.value), host(result.status)
        xp = namespace(value)
        value, status = (xp.reshape(v, (-1,)) for v in (value, status))
        pool, heading, best, y = (host(v) for v in (state.pool.cuts, state.heading, state.best, state.best_y))
        unsure = ((status == Status.OUT_OF_STEPS) | (status == Status.STALLED)) & xp.isfinite(best)
        bound = xp.ones_like(best) * (1 - 450 * float(xp.finfo(best.dtype).eps))
        tol = max(self.tol, 2000 * float(xp.finfo(best.dtype).eps))
        if bool(xp.any(unsure)):
            with exact_arithmetic(bound):
                bound[unsure] = gauge_bound(
                    pool[unsure], heading[unsure], best[unsure], 10 * length(y[unsure]), tol / 10
                )
        gauge = bound * xp.where(xp.isfinite(best), best, xp.zeros_like(best))
        lower = host(program.lowest(state.origin, like(gauge, state.best)))
        lower = xp.where((status == Status.CONVERGED) & ~xp.isfinite(best), value, lower)
        lower = xp.where(xp.isnan(value) | (status == Status.UNBOUNDED), xp.full_like(lower, -float("inf")), lower)
        lower = xp.where(lower < value, lower, value)
        met = unsure & xp.isfinite(lower) & (value - lower <= tol * (host(program.value(program.anchor)) - lower))
        status = xp.where(met, int(Status.CONVERGED) + 0 * status, status)
        shape = result.value.shape
        return result._replace(
            lower=like(lower, result.value).reshape(shape),
            status=namespace(result.status).asarray(status).reshape(shape),
        )


def _where(mask: Array, a: RadialState, b: RadialState) -> RadialState:
    """The state a where the mask holds, else b. The pool is that of a, which is written in place."""
    xp = namespace(mask)

    def choose(new: Array, old: Array) -> Array:
        return old if new is old else xp.where(mask[(..., *(None,) * (new.ndim - 1))], new, old)

    record = Record(*map(choose, a.record, b.record))
    return RadialState(record, a.pool, *map(choose, a[2:], b[2:]))


def _anew(record: Record, pool: Pool, heading: Array, origin: Array, scale: Array, g: Array) -> RadialState:
    """A search from this origin, before its first ray is measured; g is the subgradient there."""
    xp, y = namespace(origin), heading
    zero, still, steep = xp.zeros_like(y[:, 0]), xp.zeros_like(y), length(g)
    distance = xp.where(steep > 0, 1 / keep(steep > 0, steep, 1.0), zero + 1)
    inf, yes, no = zero + float("inf"), zero == 0, zero != 0
    recent = xp.concat([g[:, None, :]] * RECENT, axis=1)
    return RadialState(
        record, pool, heading, origin, scale, recent, y, y, _plane(heading), still, still,
        s=zero, best=inf, upper=inf, low=zero, near=distance, unit=distance, walked=zero, first=yes, fresh=yes,
        improved=no, idle=zero, mark=inf, vain=no,
    )  # fmt: skip


def _plane(heading: Array) -> Array:
    """The projection onto the plane: the metric that knows nothing yet."""
    return eye_like(heading.shape[-1], heading) - heading[:, :, None] * heading[:, None, :]


def _trial(state: RadialState) -> Array:
    """The gauge at which to call h on this ray: its lower bound, unless that is far below what has been reached."""
    xp = namespace(state.y)
    inf = xp.full_like(state.low, float("inf"))
    known = xp.max(apply(state.recent, state.y), axis=-1)
    reached = xp.where(state.best < state.upper, state.best, state.upper)
    least = xp.where(state.first, 0.01 / state.unit, 0.1 * reached)
    trial = xp.where(known > least, known, least)
    trial = xp.where(state.first & (known <= 0), 1 / state.unit, trial)
    loose = xp.isfinite(state.upper) & (state.upper > 3 * trial)  # the same ray, not yet measured well
    trial = xp.where(loose, xp.sqrt(keep(loose, state.upper, 1.0)) * xp.sqrt(trial), trial)
    # a cut that hardly leads beyond the last point outside was made at the edge of the domain of h: bisect
    useless = (state.low > 0) & ~(trial - state.low > 1e-3 * (state.upper - state.low))
    middle = xp.where(xp.isfinite(state.upper), xp.sqrt(state.low) * xp.sqrt(keep(useless, state.upper, 1.0)), inf)
    return xp.where(useless, xp.where(middle < 2 * state.low, middle, 2 * state.low), trial)


def _measure(program: Program | Epigraph, state: RadialState) -> tuple[Array, Array, Array, RadialState]:
    """One call of h on the ray: a cut, a feasible point, bounds of the gauge.

    Also returns whether the ray is known well enough, its subgradient in the plane, and whether rounding spares it.
    """
    xp, y = namespace(state.y), state.y
    eps = float(xp.finfo(y.dtype).eps)
    p = _trial(state)
    z, reach = program.enter(state.origin + y / p[:, None], state.origin)
    t = reach / p
    h, g = cut(program, z, state.scale)
    finite = xp.isfinite(h) & xp.all(xp.isfinite(g), axis=-1)
    h, g = keep(finite, h, 0.0), xp.where(finite[:, None], g, xp.zeros_like(g))
    over = 1 + keep(h > 0, h, 0.0)
    size, steep = t * length(y), length(g)

    end = state.origin + (t / over)[:, None] * y
    record = state.record.called().add(end, program.value(end), finite & (steep * size <= eps**-TRUST * over))
    record = record.stop(finite & (size / over > eps**-TRUST * state.near), Status.UNBOUNDED)
    record = record.stop(~finite & (size <= eps * state.near), Status.NOT_FINITE)

    rise = keep(finite, xp.sum(g * y, axis=-1) * t - h, 1.0)
    u = g / rise[:, None]
    lower, bound = xp.sum(u * y, axis=-1), over / t
    sane = finite & (length(u) * length(y) <= eps**-SANE * bound)
    better = sane & (bound < state.best)
    upper = xp.where(finite & (bound < state.upper), bound, state.upper)
    beyond = ~finite | (h > 0) | (reach < 1)
    slack = xp.where(state.first, 0 * upper + 0.1, 0 * upper + 0.5)
    measured = finite & (upper - lower <= slack * upper)
    q = u - xp.sum(u * state.heading, axis=-1)[:, None] * state.heading
    optimal = (length(q) * length(y) <= 45 * eps * bound) & (bound - lower <= 450 * eps * bound)
    # cuts that lie closer together than this differ by rounding: they would drive better ones out of the pool
    apart = state.first | state.fresh | (state.s * length(state.D) > eps**0.7 * length(y))
    keeps = finite & record.running & apart & ~state.vain
    return (
        measured,
        q,
        sane,
        state._replace(
            record=record.stop(measured & optimal, Status.CONVERGED),
            pool=state.pool.add(u, keeps),
            recent=xp.concat([state.recent[:, 1:], xp.where(finite[:, None], u, state.recent[:, -1])[:, None]], axis=1),
            best=xp.where(better, bound, state.best),
            best_y=xp.where(better[:, None], y, state.best_y),
            upper=upper,
            low=xp.where(beyond & (1 / t > state.low), 1 / t, state.low),
            unit=xp.where(state.first & finite & (h < 0), 4 * state.unit, state.unit),
            improved=state.improved | better,
        ),
    )


def _walk(state: RadialState, q: Array, sane: Array) -> RadialState:
    """The step of the r-algorithm from a measured ray with subgradient q to the next."""
    xp, y = namespace(state.y), state.y
    eps = float(xp.finfo(y.dtype).eps)
    walked = state.walked + 1
    turn = state.fresh | (xp.sum(state.D * q, axis=-1) >= 0)
    e = unit(_seen(state.B, q - state.q)) * xp.astype(turn & ~state.fresh, y.dtype)[:, None]
    B = state.B - (state.B @ e[..., None]) * e[:, None, :] / 2
    D = xp.where(turn[:, None], -apply(B, unit(_seen(B, q))), state.D)

    steep, size = length(q), length(y)
    reach = xp.where(steep > 0, 0.5 * state.best / keep(steep > 0, steep, 1.0), size)
    s = xp.where(turn & ~state.improved & (walked <= 1), 0.9 * state.s, state.s)
    s = xp.where(~turn & (walked % 2 == 0), 1.2 * s, s)
    reach = xp.where(reach < size, reach, size)
    reach = xp.where((state.s > 0) & (state.s < reach), state.s, reach)  # what the last metric came down to
    s = xp.where(state.fresh, reach, s)

    gained = state.best < state.mark * (1 - 45 * eps)
    idle = xp.where(gained, 0 * s, state.idle + 1)
    stuck = (s * length(D) <= 45 * eps * size) | (idle > 30 + 3 * y.shape[-1]) | ~sane
    vain = state.vain & ~gained
    return state._replace(
        record=state.record.stop(stuck & vain, Status.STALLED),
        y=xp.where(stuck[:, None], state.best_y, y + s[:, None] * D),
        B=xp.where(stuck[:, None, None], _plane(state.heading), B),
        D=D,
        q=xp.where(turn[:, None], q, state.q),
        s=xp.where(stuck, 10 * s * length(D), s),
        upper=xp.full_like(s, float("inf")),
        low=xp.zeros_like(s),
        walked=xp.where(turn | stuck, 0 * walked, walked),
        first=state.first & ~state.first,
        fresh=stuck,
        improved=state.improved & ~turn,
        idle=xp.where(stuck, 0 * s, idle),
        mark=xp.where(gained, state.best, state.mark),
        vain=stuck | vain,
    )


def _seen(B: Array, v: Array) -> Array:
    """B^T v."""
    return (v[:, None, :] @ B)[:, 0, :]

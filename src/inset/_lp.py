"""The two solvers behind `interior_point`, each for a whole batch in one loop.

`chebyshev`: linear programs, by an interior-point method. `minimise`: any convex h, by the r-algorithm.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ._linalg import length
from ._namespace import Array, eye_like, namespace, value_and_grad

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
    which no bounded one exceeds. Where the centre is not unique, the result is central among them.

    >>> import numpy as np
    >>> square = chebyshev(np.array([[[1.0, 0], [0, 1], [-1, 0], [0, -1]]]), np.array([[3.0, 1, 1, 1]]))
    >>> square.x.round(6), square.radius.round(6)
    (array([[1., 0.]]), array([1.]))
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
    return xp.min(xp.where(falling, v / xp.where(falling, -dv, xp.ones_like(v)), xp.ones_like(v)), axis=-1, keepdims=True)


def minimise(
    h: Callable[[Array], Array], z: Array, inside: Callable[[Array], Array], steps: int
) -> tuple[Array, Array]:
    """A point of low h and its value, for each start z `(batch, n)` where h `(batch,)` is finite and convex.

    Shor's r-algorithm: walk along D = -B unit(B^T g) while h falls; then shrink B by 1/2 along the change of the
    gradient g, seen through B. A trial where h is not finite, or not `inside` its domain, is halved back. A sample is
    done below -max(1, 2 |h(z)|), or once h is negative and gains less than 1 % in 20 + 2 n steps; while h >= 0 it
    gets two fresh metrics before it gives up.
    """
    xp = namespace(z)
    n = z.shape[-1]
    eps = float(xp.finfo(z.dtype).eps)
    state = _Walk(z, h(z))
    enough = -xp.maximum(2 * abs(state.best), xp.ones_like(state.best))
    least = eps**0.6 * (1 + abs(state.best))
    for _ in range(steps):
        value, g = value_and_grad(h, state.z)
        good = xp.isfinite(value) & xp.all(xp.isfinite(g), axis=-1) & inside(state.z)
        state.record(good, value, xp.where(state.best < 0, 0.01 * abs(state.best), least))
        state.advance(good, value, xp.where(good[:, None], g, xp.zeros_like(g)), eps)
        negative = state.best < 0
        stuck = state.stopped | (state.idle > xp.where(negative, 20.0 + 2 * n + 0 * value, 50.0 + 5 * n + 0 * value))
        done = (state.best <= enough) | (stuck & (negative | (state.restarts >= 2)))
        if bool(xp.all(done)):
            break
        state.restart(stuck & ~done)
    return state.best_z, state.best


class _Walk:
    """The samples of one run of the r-algorithm: where each is, its metric, and the best it has seen."""

    def __init__(self, z: Array, value: Array):
        xp = self.xp = namespace(z)
        n, zero = z.shape[-1], xp.zeros_like(value)
        self.z, self.last, self.best_z, self.best, self.mark = z, z, z, value, value
        self.B = xp.broadcast_to(eye_like(n, z), (z.shape[0], n, n))
        self.D, self.g = xp.zeros_like(z), xp.zeros_like(z)
        self.step, self.walked, self.idle, self.restarts = zero, zero, zero, zero
        self.fresh, self.stopped = zero == 0, zero > 0

    def record(self, good: Array, value: Array, gain: Array) -> None:
        where = self.xp.where
        better = good & (value < self.best)
        self.best, self.best_z = where(better, value, self.best), where(better[:, None], self.z, self.best_z)
        gained = self.best < self.mark - gain
        self.mark, self.idle = where(gained, self.best, self.mark), where(gained, 0 * self.idle, self.idle + 1)

    def advance(self, good: Array, value: Array, g: Array, eps: float) -> None:
        where, xp = self.xp.where, self.xp
        turn = good & (self.fresh | (xp.sum(self.D * g, axis=-1) >= 0))
        e = _unit(self._seen(g - self.g))
        shrunk = self.B - (self.B @ e[..., None]) * e[:, None, :] / 2
        self.B = where((turn & ~self.fresh)[:, None, None], shrunk, self.B)
        self.D = where(turn[:, None], -(self.B @ _unit(self._seen(g))[..., None])[..., 0], self.D)
        slope, size = length(g), length(self.z)
        first = xp.maximum(abs(value), 1e-3 * where(slope > 0, slope, 1 + 0 * slope) * (1e-3 + size))
        first = where(slope > 0, first / where(slope > 0, slope, 1 + 0 * slope), 1 + 0 * slope)
        self.step = where(turn & self.fresh, first, where(turn & (self.walked <= 1), 0.9 * self.step, self.step))
        self.walked = where(turn, 0 * self.walked, self.walked + 1)
        self.step = where(good & ~turn & (self.walked % 2 == 0), 1.2 * self.step, self.step)
        self.step = where(good, self.step, self.step / 2)
        self.g, self.fresh = where(turn[:, None], g, self.g), self.fresh & ~turn
        following = where(good[:, None], self.z + self.step[:, None] * self.D, (self.last + self.z) / 2)
        self.last = where(good[:, None], self.z, self.last)
        self.stopped = length(following - self.last) <= eps * size
        self.z = following

    def restart(self, where: Array) -> None:
        xp = self.xp
        self.z, self.last = (xp.where(where[:, None], self.best_z, v) for v in (self.z, self.last))
        self.B = xp.where(where[:, None, None], eye_like(self.z.shape[-1], self.z), self.B)
        self.fresh, self.idle = self.fresh | where, xp.where(where, 0 * self.idle, self.idle)
        self.restarts = xp.where(where, self.restarts + 1, self.restarts)

    def _seen(self, v: Array) -> Array:
        """B^T v."""
        return (v[:, None, :] @ self.B)[:, 0, :]


def _unit(v: Array) -> Array:
    """v / |v|, 0 for v = 0."""
    xp = namespace(v)
    size = length(v)[..., None]
    return v / xp.where(size > 0, size, xp.ones_like(size))

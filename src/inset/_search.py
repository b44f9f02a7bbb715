"""`minimise`: low values of convex functions that are not smooth, a batch of them at once."""

from __future__ import annotations

from collections.abc import Callable

from ._linalg import length, unit
from ._namespace import Array, eye_like, namespace


def minimise(oracle: Callable[[Array], tuple[Array, Array]], z: Array, h0: Array, steps: int) -> tuple[Array, Array]:
    """A point of low h and its value, for each start z `(batch, n)`.

    `oracle` gives a convex h `(batch,)` and its gradient; `h0` is h at the start, finite.

    Shor's r-algorithm: walk along D = -B unit(B^T g) while h falls; then shrink B by 1/2 along the change of the
    gradient g, seen through B. A trial where h is not finite is halved back. A sample is
    done below -max(1, 2 |h(z)|), or once h is negative and gains less than 1 % in 20 + 2 n steps; while h >= 0 it
    gets two fresh metrics before it gives up.
    """
    xp = namespace(z)
    n = z.shape[-1]
    eps = float(xp.finfo(z.dtype).eps)
    state = _Walk(z, h0)
    enough = -xp.maximum(2 * abs(state.best), xp.ones_like(state.best))
    least = eps**0.6 * (1 + abs(state.best))
    for _ in range(steps):
        value, g = oracle(state.z)
        good = xp.isfinite(value) & xp.all(xp.isfinite(g), axis=-1)
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
        e = unit(self._seen(g - self.g))
        shrunk = self.B - (self.B @ e[..., None]) * e[:, None, :] / 2
        self.B = where((turn & ~self.fresh)[:, None, None], shrunk, self.B)
        self.D = where(turn[:, None], -(self.B @ unit(self._seen(g))[..., None])[..., 0], self.D)
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

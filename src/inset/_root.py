"""Roots with derivatives, for nearest points: of decreasing functions of one variable, and of v - c = t / v."""

from __future__ import annotations

from collections.abc import Callable

from ._linalg import eigh, symmetric
from ._namespace import Array, eye_like, keep, namespace, repeat, stop_gradient

LEAST, MOST = 1e-30, 1e30  # decreasing_root looks for t in this range
NEWTONS = 10  # of convex_root, from a start within ten times the root, or where f is steep
HALVINGS, SECANTS = 20, 7  # the first leave 1/7000 of t, or 1/5000 for an interval of 200; the second all digits


def decreasing_root(
    f: Callable[[Array], Array],
    zero: Array,
    wanted: Array | None = None,
    search: Callable[[Array], Array] | None = None,
) -> Array:
    """The t > 0 with f(t) = 0 for a decreasing f, for each sample alone; 0 where not `wanted`, or else f(0) <= 0.

    `zero` is an array of zeros of the shape of t. Values alone find the root, by bisection on a log scale and a few
    secants; `search` has the values of f alone, where they are cheaper without derivatives.
    """
    xp = namespace(zero)
    wanted = stop_gradient(f(zero)) > 0 if wanted is None else wanted
    t = _search(search or f, zero + LEAST, zero + MOST, lambda lo, hi: xp.sqrt(lo) * xp.sqrt(hi))
    return xp.where(wanted, attached(f, xp.where(wanted, t, xp.ones_like(t)), wanted), zero)


def root_between(f: Callable[[Array], Array], lower: Array, upper: Array) -> Array:
    """The t in [lower, upper] with f(t) = 0 for an f that is positive before it and negative after it.

    The nearer end where f does not change sign. Found as in `decreasing_root`, on a linear scale. Derivatives of the
    ends count where the interval is a point.
    """
    lo, hi = stop_gradient(lower), stop_gradient(upper)
    t = _search(f, lo, hi, lambda lo, hi: lo + (hi - lo) / 2)
    return namespace(lower).where(hi > lo, attached(f, t, hi > lo), upper)


def convex_root(f: Callable[[Array], Array], slope: Callable[[Array], Array], upper: Array) -> Array:
    """The t in [0, upper] with f(t) = 0 for a convex f with f(0) < 0 and f(upper) >= 0; without derivatives.

    Newton steps come from above; a secant through f(0) ends below what they left.
    """
    xp = namespace(upper)

    def step(t: Array) -> tuple[Array]:
        following = t - f(t) / slope(t)
        return (xp.where(following < t, following, t),)

    (t,) = repeat(NEWTONS, step, (upper,))
    low, high = f(0 * upper), f(t)
    return t * (low / (low - keep(high > 0, high, 0.0)))


def _search(f: Callable[[Array], Array], lo: Array, hi: Array, mean: Callable[[Array, Array], Array]) -> Array:
    """The t in [lo, hi] at which f falls through 0; a static number of steps, and no derivatives."""
    xp = namespace(lo)

    def halve(lo: Array, hi: Array) -> tuple[Array, Array]:
        middle = mean(lo, hi)
        above = stop_gradient(f(middle)) > 0
        return xp.where(above, middle, lo), xp.where(above, hi, middle)

    def secant(last: Array, height: Array, t: Array, best: Array, lowest: Array) -> tuple[Array, ...]:
        value = stop_gradient(f(t))
        # once there, the next secant is drawn through two rounding errors and may lead anywhere: keep the best
        better = abs(value) <= lowest
        flat = value == height
        following = t - value * ((t - last) / keep(~flat, value - height, 1.0))
        following = xp.where(flat, t, xp.where(following < lo, lo, xp.where(following > hi, hi, following)))
        return t, value, following, xp.where(better, t, best), xp.where(better, abs(value), lowest)

    lo, hi = repeat(HALVINGS, halve, (lo, hi))
    height = stop_gradient(f(lo))
    return repeat(SECANTS, secant, (lo, height, hi, lo, abs(height)))[3]


def attached(f: Callable[[Array], Array], root: Array, wanted: Array) -> Array:
    """The value of `root` with the first and second derivatives of the t that solves f(t) = 0, where `wanted`.

    Newton steps less their values. Their slope is a constant, a central difference: each step multiplies its error,
    and that of ignoring how it moves, by itself once more, so that three leave nothing of either.
    """
    xp = namespace(root)
    root = stop_gradient(root)
    step = float(xp.finfo(root.dtype).eps) ** (1 / 3) * abs(root)
    ahead, here, behind = (stop_gradient(f(root + k * step)) for k in (1, 0, -1))
    slope = xp.where(xp.isfinite(ahead), (ahead - behind) / 2, here - behind) / keep(step > 0, step, 1.0)
    usable = wanted & xp.isfinite(slope) & (slope != 0)
    slope = keep(usable, slope, 1.0)
    t = root
    for _ in range(3):
        value = f(t)
        t = t - (value - stop_gradient(value)) / slope
    return xp.where(usable, t, root)


def lifted(c: Array, t: Array) -> Array:
    """The v >= 0 with v - c = t / v: the larger root (c + sqrt(c^2 + 4 t)) / 2, written so that nothing cancels."""
    xp = namespace(c)
    size = xp.sqrt(c * c + 4 * t)
    direct = (c > 0) | (size == 0)
    return xp.where(direct, (c + size) / 2, 2 * t / xp.where(direct, xp.ones_like(size), size - c))


def lifted_matrix(C: Array, t: Array) -> Array:
    """The positive definite S with S - C = t S^-1, C symmetric and t > 0: `lifted` on the eigenvalues of C.

    Its derivatives never touch those of the eigenvectors, so they are finite at ties. With C = U diag(c) U^T, U
    constant, and v = lifted(c, t), the change X of U^T S U that goes with a change dC of U^T C U and dt of t solves

        X (1 + t / v_i v_j) = dC + dt V^-1 - dt V^-1 X V^-1 + t V^-1 X V^-1 X V^-1 + third order,   V = diag(v),

    of which two fixed-point steps from X = 0 give the first and second derivatives.
    """
    xp = namespace(C)
    t, t0 = t[..., None, None], stop_gradient(t)[..., None, None]
    c, U = eigh(stop_gradient(C))
    Ut = xp.matrix_transpose(U)
    v = lifted(c, t0[..., 0])
    raised = xp.where(v > 1e-15, v, xp.zeros_like(v) + 1e-15)  # its square is above 0 in float32
    rows, columns = raised[..., :, None], raised[..., None, :]
    denominator = rows * columns + t0
    W = Ut @ C @ U
    pushed = rows * columns * (W - stop_gradient(W)) + (t - t0) * columns * eye_like(C.shape[-1], C)
    X = pushed / denominator
    X = X + (t0 * (X / columns) @ X - (t - t0) * X) / denominator
    return symmetric((U * v[..., None, :]) @ Ut + U @ X @ Ut)

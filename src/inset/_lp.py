"""`chebyshev`: the centre of each polytope of a batch, by an interior-point method in one loop."""

from __future__ import annotations

from typing import NamedTuple

from ._linalg import length
from ._namespace import Array, eye_like, namespace

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
    which no bounded one exceeds. Where the centre is not unique, the result is not at an end of them.

    >>> import numpy as np
    >>> triangle = chebyshev(np.array([[[-1.0, 0.0], [0.0, -1.0], [3.0, 4.0]]]), np.array([[0.0, 0.0, 12.0]]))
    >>> triangle.x.round(6), triangle.radius.round(6)
    (array([[1., 1.]]), array([1.]))
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
    y, z = mehrotra(xp.concat([G, radial[..., None]], axis=-1), d)
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


def mehrotra(G: Array, d: Array, accuracy: float = 0.5) -> tuple[Array, Array]:
    """max y_last s.t. G y <= d, whose last column is non-negative, and its multipliers z.

    Solved to the power `accuracy` of eps, relative to y_last. Primal-dual predictor-corrector steps with slacks s. The
    start is strictly feasible (y_last low enough), the multipliers need not be. A multiple of the identity keeps the
    normal equations regular when G has no full rank.
    """
    xp = namespace(G)
    eps = float(xp.finfo(G.dtype).eps)
    m = G.shape[-2]
    Gt = xp.matrix_transpose(G)
    goal = eye_like(G.shape[-1], G)[-1]
    y = (xp.min(d, axis=-1, keepdims=True) - 1) * goal
    s = d - (G @ y[..., None])[..., 0]
    z = xp.ones_like(s) / m
    best = y, z, xp.full_like(s[..., 0], float("inf"))
    for _ in range(STEPS):
        dual = (Gt @ z[..., None])[..., 0] - goal
        primal = (G @ y[..., None])[..., 0] + s - d
        gap = xp.sum(s * z, axis=-1)
        best = _better((y, z, gap + xp.max(abs(dual), axis=-1)), best)
        unsolved = gap > eps**accuracy * abs(y[..., -1]) + 100 * eps
        unsolved = unsolved | (xp.max(abs(dual), axis=-1) > eps**accuracy)
        if not bool(xp.any(unsolved)):
            break
        weight = z / s
        normal = Gt @ (weight[..., None] * G)
        ridge = eps * xp.max(abs(normal), axis=(-2, -1))
        normal = normal + ridge[..., None, None] * eye_like(G.shape[-1], G)

        system = (G, normal, s, z, primal, dual)
        _, ds, dz = _direction(*system, s * z)
        ahead = xp.sum((s + _reach(s, ds) * ds) * (z + _reach(z, dz) * dz), axis=-1)
        centring = (ahead / gap) ** 3 * gap / m
        dy, ds, dz = _direction(*system, s * z + ds * dz - centring[..., None])
        sound = unsolved & xp.all(xp.isfinite(dy), axis=-1) & xp.all(xp.isfinite(dz), axis=-1)
        to_boundary = 0.99 * xp.where(sound, xp.ones_like(gap), xp.zeros_like(gap))[..., None]
        dy, ds, dz = (xp.where(sound[..., None], v, xp.zeros_like(v)) for v in (dy, ds, dz))
        forward, upward = to_boundary * _reach(s, ds), to_boundary * _reach(z, dz)
        y, s, z = y + forward * dy, s + forward * ds, z + upward * dz
    return best[:2]


def _better(new: tuple[Array, Array, Array], old: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
    """The iterate (y, z, residual) of smaller residual: past what rounding allows, steps make things worse."""
    xp = namespace(new[0])
    better = new[2] < old[2]
    y, z = (xp.where(better[..., None], a, b) for a, b in zip(new[:2], old[:2], strict=True))
    return y, z, xp.where(better, new[2], old[2])


def _direction(
    G: Array, normal: Array, s: Array, z: Array, primal: Array, dual: Array, complement: Array
) -> tuple[Array, Array, Array]:
    """The Newton step (dy, ds, dz) that removes the residuals and makes s z fall by `complement`."""
    xp = namespace(G)
    right = (xp.matrix_transpose(G) @ ((complement - z * primal) / s)[..., None])[..., 0] - dual
    dy = _solve(normal, right)
    ds = -primal - (G @ dy[..., None])[..., 0]
    return dy, ds, -(complement + z * ds) / s


def _solve(normal: Array, right: Array) -> Array:
    xp = namespace(normal)
    try:
        return xp.linalg.solve(normal, right[..., None])[..., 0]
    except (ValueError, RuntimeError):  # singular to the last bit, in NumPy and in torch: at the end of a program
        more = 1e3 * float(xp.finfo(normal.dtype).eps) * xp.max(abs(normal), axis=(-2, -1))
        regular = normal + (1e-30 + more)[..., None, None] * eye_like(normal.shape[-1], normal)
        return xp.linalg.solve(regular, right[..., None])[..., 0]


def _reach(v: Array, dv: Array) -> Array:
    """The largest t <= 1 with v + t dv >= 0, per sample, `(batch, 1)`."""
    xp = namespace(v)
    falling = dv < -v
    one = xp.ones_like(v)
    return xp.min(xp.where(falling, v / xp.where(falling, -dv, one), one), axis=-1, keepdims=True)

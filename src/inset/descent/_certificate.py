"""A lower bound of the optimum, from the cuts that a radial descent has seen."""

from __future__ import annotations

from .._linalg import length
from .._lp import mehrotra
from .._namespace import Array, eye_like, namespace


def gauge_bound(cuts: Array, heading: Array, best: Array, reach: Array, enough: float) -> Array:
    """A lower bound of min_y max_j u_j.y on the plane heading.y = 1, relative to its upper bound `best`, `(N,)`.

    Over the y with |y - heading| <= reach, by duality: weights w >= 0 of sum 1 and the mean cut u = sum_j w_j u_j give
    max_j u_j.y >= u.heading - reach |q|, with q the part of u in the plane. The weights are those of the linear program
    over a box around these y, unless one cut alone gives a bound of 1 - enough. 0 if the bound is negative.
    """
    xp = namespace(cuts)
    u = cuts / best[:, None, None]
    ahead = (u @ heading[..., None])[..., 0]
    aside = u - ahead[..., None] * heading[:, None, :]
    bound = xp.max(ahead - reach[:, None] * length(aside), axis=-1)
    bound = xp.where(bound > 0, bound, xp.zeros_like(bound))
    rest = ~(bound >= 1 - enough)
    if bool(xp.any(rest)):
        several = _mean_bound(ahead[rest], aside[rest], reach[rest])
        bound[rest] = xp.where(several > bound[rest], several, bound[rest])
    return bound


def _mean_bound(ahead: Array, aside: Array, reach: Array) -> Array:
    """The bound by the best weights, `(N,)`, of cuts given by their parts along the heading and in the plane."""
    xp = namespace(ahead)
    G = xp.concat([aside * reach[:, None, None], xp.ones_like(ahead)[..., None]], axis=-1)  # the box is [-1, 1]
    side = xp.broadcast_to(eye_like(aside.shape[-1], aside), (*ahead.shape[:1], *aside.shape[-1:], aside.shape[-1]))
    sides = xp.concat([side, -side], axis=-2)
    sides = xp.concat([sides, xp.zeros_like(sides[..., :1])], axis=-1)
    d = xp.concat([-ahead, xp.ones_like(sides[..., 0])], axis=-1)
    _, w = mehrotra(xp.concat([G, sides], axis=-2), d, accuracy=0.75)
    w = w[:, : ahead.shape[-1]]
    best_bound = xp.zeros_like(reach)
    for _ in range(3):
        w = xp.where(w > 0, w, xp.zeros_like(w))
        total = xp.sum(w, axis=-1, keepdims=True)
        w = w / xp.where(total > 0, total, xp.ones_like(total))
        q = (w[:, None, :] @ aside)[:, 0, :]
        bound = xp.sum(w * ahead, axis=-1) - reach * length(q)
        best_bound = xp.where(bound > best_bound, bound, best_bound)
        w = w - _correction(aside, w, q)
    return best_bound


def _correction(aside: Array, w: Array, q: Array) -> Array:
    """The change of the weights, small relative to each, that removes what is left in the plane: sum_j w_j a_j = q."""
    xp = namespace(aside)
    A = xp.concat([xp.matrix_transpose(aside), xp.ones_like(w)[:, None, :]], axis=-2)
    K = (A * w[:, None, :]) @ xp.matrix_transpose(A)
    K = K + (64 * float(xp.finfo(A.dtype).eps) * (1 + xp.max(abs(K)))) * eye_like(K.shape[-1], K)
    right = xp.concat([q, xp.zeros_like(q[:, :1])], axis=-1)
    return w * (xp.linalg.solve(K, right[..., None])[..., 0][:, None, :] @ A)[:, 0, :]

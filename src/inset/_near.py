"""`near`: steps of a splitting method towards the nearest point of a set; `project` makes the result feasible.

Every part of the set is written as {y : K_i y in D_i}, with a D_i whose nearest point P_i(z) is known in closed form
(`ConvexSet.split`), and the equalities as y = x + W q, W = Q K^T with Q the orthogonal projection onto the null space.
With K and P for all parts at once, the problem

    min |y - x|^2 / 2   with  K y in D,  A y = b

is solved by relaxed Douglas-Rachford steps on v in the space of K y,

    z = P(v),   t = 2 z - v - K x,   v <- v + alpha (K y - z)  with  y = x + F t,   F = W (S^-1 + W^T W)^-1,

S a diagonal of weights. F and K F are found once, so a step costs one small product and one excess e = v - P(v).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ._combine import parts
from ._fields import leaves, map_arrays, map_point
from ._linalg import affine, apply
from ._namespace import Array, Point, eye_like, is_traced, namespace, plus, repeat, stop_gradient
from ._set import ConvexSet, Split, offers
from ._shapes import broadcast_shapes, event_dims, largest, side_by_side
from .affine import Equality, onto, stacked

RELAXATION = 1.7  # alpha
WEIGHT = 1.4  # S in units of 1 / |row of W|^2


@dataclass(frozen=True)
class Near:
    """The method "almost the nearest point": `steps` splitting steps towards it, then `"ray"` from where they led.

    Argmin |y - x| over the set is approached by Douglas-Rachford steps on the parts of the set, in the subspace of its
    equalities; the ray pulls what is still outside into the set. A lone set with a closed-form nearest point needs no
    steps. With `tol` a sample rests once K y is within tol of D for each part {y : K y in D} of the set, for a polytope
    once no constraint is violated by more than that; `steps` stays the most that are made.

    >>> import numpy as np
    >>> from inset import Near, Polytope, project
    >>> corner = Polytope(np.array([[1.0, 0.0], [0.0, 1.0]]), np.ones(2))
    >>> x = np.array([3.0, 0.9])
    >>> project(corner, x, np.zeros(2), method="ray").round(3), project(corner, x, np.zeros(2), method=Near()).round(3)
    (array([1. , 0.3]), array([1. , 0.9]))
    """

    steps: int = 20
    tol: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"Near(steps={self.steps!r}): expected a whole number of steps, 1 or more")
        if self.tol is not None and not self.tol >= 0:
            raise ValueError(f"Near(tol={self.tol!r}): expected None, or a number that is 0 or more")


def nearer(set: ConvexSet, x: Point, near: Near) -> tuple[Point, Array]:
    """Almost the nearest point to x, for x in the affine hull; x itself where h(x) <= 0. And h(x)."""
    frozen = map_arrays(set, stop_gradient)
    h = largest(frozen.constraints(map_point(stop_gradient, x)))
    pieces = [part for part in parts(set) if not isinstance(part, Equality)]
    if not pieces:
        return x, h
    if len(pieces) == 1 and len(parts(set)) == 1 and offers(pieces[0], "nearest"):
        y = onto(set, _nearest(pieces[0], x))
    else:
        y = _split_steps(set, pieces, x, near)
    inside = h <= 0

    def choose(leaf: Array, moved: Array, k: int) -> Array:
        xp, axes = namespace(leaf), tuple(range(-k, 0))
        # where the steps overflow the ray goes from x itself
        stay = inside | ~xp.all(xp.isfinite(moved), axis=axes) if k else inside | ~xp.isfinite(moved)
        return xp.where(stay[(..., *(None,) * k)], leaf, moved)

    return map_point(choose, x, y, set.event_ndim), h


def check_parts(set: ConvexSet) -> None:
    """Raise unless `near` can step towards each part of the set, and of the blocks of a product."""
    for block in getattr(set, "blocks", ()):
        check_parts(block)
    for part in parts(set):
        if not (offers(part, "split") or offers(part, "nearest") or isinstance(part, Equality)):
            kinds = " & ".join([type(part).__name__ for part in parts(set)])
            raise NotImplementedError(
                f"method='near' needs the nearest point of each part of a set; received {kinds}, and "
                f"{type(part).__name__} has neither nearest(x) nor split(x). Use method='ray', which needs neither"
            )


def _nearest(part: ConvexSet, x: Point) -> Point:
    try:
        return part.nearest(x)
    except NotImplementedError as error:
        raise NotImplementedError(f"method='near': {error}. Use method='ray', which needs no nearest point") from None


def _split_steps(set: ConvexSet, pieces: list[ConvexSet], x: Point, near: Near) -> Point:
    flat = _Flat(set, x)
    start = flat.vector(x)
    splits = [_split(piece, flat, x, start) for piece in pieces]
    K = _stack([split.K for split in splits])
    excess = _side_by_side([split.excess for split in splits], [split.K.shape[-2] for split in splits])
    equal = [part.equalities(start) for part in parts(set) if offers(part, "equalities")]
    system = stacked(equal, start) if equal else None
    F = _graph(K, system, [(split.K.shape[-2], split.block) for split in splits])
    c = apply(K, start)
    v = _steps(K, F, excess, c, near)
    y = start + apply(F, plus(v, -2.0, excess(v)) - c)
    if system is not None:
        A, b, inverse = map_point(stop_gradient, system)
        still = stop_gradient(y)
        y = y - apply(inverse, apply(A, still) - b)  # for rounding: the derivatives of y are in the subspace already
    y = flat.point(y)
    for piece in pieces:
        if offers(piece, "onto") and not offers(piece, "equalities"):
            y = piece.onto(y)
    return y


def _steps(K: Array, F: Array, excess: Callable[[Array], Array], c: Array, near: Near) -> Array:
    """v after the steps, from v = K x = c.

    With e = v - P(v) and r = v - 2 e, the reflection of v in D, a step is v <- Q r + k + (2 - alpha) e.
    """
    xp = namespace(c)
    m, n = K.shape[-2:]
    Q = RELAXATION * (K @ F) + (1 - RELAXATION) * eye_like(m, K) if m <= 2 * n else None

    def linear(r: Array, k: Array) -> Array:
        if Q is not None:
            return affine(Q, r, k)
        return plus(RELAXATION * apply(K, apply(F, r)) + k, 1 - RELAXATION, r)

    k = c - linear(c, xp.zeros_like(c))

    def step(v: Array) -> tuple[Array]:
        e = excess(v)
        following = plus(linear(plus(v, -2.0, e), k), 2 - RELAXATION, e)
        return (following if near.tol is None else xp.where(_rests(following - v, near.tol), v, following),)

    if near.tol is None or is_traced(k):
        return repeat(near.steps, step, (c + xp.zeros_like(k),))[0]
    v = c + xp.zeros_like(k)
    for _ in range(near.steps):
        last = v
        (v,) = step(last)
        if bool(xp.all(v == last)):
            break
    return v


def _rests(move: Array, tol: float) -> Array:
    """Whether K y is within tol of z, `(*batch, 1)`: a step moves v by alpha (K y - z)."""
    xp = namespace(move)
    return (xp.max(abs(stop_gradient(move)), axis=-1) <= RELAXATION * tol)[..., None]


def _graph(K: Array, system: tuple[Array, ...] | None, blocks: list[tuple[int, int]]) -> Array:
    """F = W (S^-1 + W^T W)^-1, `(..., n, m)`, by the smaller of two inverses."""
    xp = namespace(K)
    W = xp.matrix_transpose(K)
    if system is not None:
        A, _, inverse = system
        for _ in range(2):  # the second time for the rounding of the first
            W = W - inverse @ (A @ W)
    n, m = W.shape[-2:]
    weight = _weights(stop_gradient(K), stop_gradient(W), blocks)
    if m <= n:
        half = xp.sqrt(weight)
        V = W * half[..., None, :]
        inner = eye_like(m, K) + xp.matrix_transpose(V) @ V
        return (V @ xp.linalg.inv(inner)) * half[..., None, :]
    weighted = W * weight[..., None, :]
    return xp.linalg.inv(eye_like(n, K) + weighted @ xp.matrix_transpose(W)) @ weighted


def _weights(K: Array, W: Array, blocks: list[tuple[int, int]]) -> Array:
    """The diagonal of S: 1 / |row of W|^2, one number for the rows that a D couples."""
    xp = namespace(K)
    size, free = xp.sum(K * K, axis=-1), xp.sum(W * W, axis=-2)
    # a constraint that the equalities fix has a row of rounding errors
    square = xp.where(free > float(xp.finfo(K.dtype).eps) * size, free, size)
    columns, start = [], 0
    for m, block in blocks:
        rows = square[..., start : start + m]
        if block > 1:
            grouped = xp.reshape(rows, (*rows.shape[:-1], m // block, block))
            mean = xp.mean(grouped, axis=-1, keepdims=True)
            rows = xp.reshape(mean + xp.zeros_like(grouped), rows.shape)
        columns.append(rows)
        start += m
    square = side_by_side(columns)
    return WEIGHT / xp.where(square > 0, square, xp.ones_like(square))


def _split(piece: ConvexSet, flat: _Flat, x: Point, start: Array) -> Split:
    if offers(piece, "split"):
        return piece.split(x)
    n = start.shape[-1]
    return Split(eye_like(n, start), lambda z: z - flat.vector(_nearest(piece, flat.point(z))), n)


def _stack(maps: list[Array]) -> Array:
    """The maps K_i below each other."""
    if len(maps) == 1:
        return maps[0]
    xp = namespace(maps[0])
    batch = broadcast_shapes(*[tuple(K.shape[:-2]) for K in maps])
    return xp.concat([xp.broadcast_to(K, (*batch, *K.shape[-2:])) for K in maps], axis=-2)


def _side_by_side(excesses: list[Callable[[Array], Array]], sizes: list[int]) -> Callable[[Array], Array]:
    """The excess of all parts: each acts on its own rows."""
    if len(excesses) == 1:
        return excesses[0]

    def excess(v: Array) -> Array:
        columns, start = [], 0
        for one, m in zip(excesses, sizes, strict=True):
            columns.append(one(v[..., start : start + m]))
            start += m
        return side_by_side(columns)

    return excess


class _Flat:
    """Points of a set as vectors, and back."""

    def __init__(self, set: ConvexSet, x: Point) -> None:
        self.event_ndim = set.event_ndim
        self.shapes = [tuple(leaf.shape[leaf.ndim - k :]) for leaf, k in zip(leaves(x), event_dims(set), strict=True)]

    def vector(self, x: Point) -> Array:
        columns = []
        for leaf, shape in zip(leaves(x), self.shapes, strict=True):
            batch = leaf.shape[: leaf.ndim - len(shape)]
            columns.append(namespace(leaf).reshape(leaf, (*batch, math.prod(shape))))
        return side_by_side(columns)

    def point(self, v: Array) -> Point:
        shapes, start = iter(self.shapes), 0

        def cut(_: Any) -> Array:
            nonlocal start
            shape = next(shapes)
            stop = start + math.prod(shape)
            leaf = namespace(v).reshape(v[..., start:stop], (*v.shape[:-1], *shape))
            start = stop
            return leaf

        return map_point(cut, self.event_ndim)

"""Equalities A x = b: joined to a set by `&`, and eliminated by the null space."""

from __future__ import annotations

from typing import Any

from ._combine import parts
from ._errors import PointShapeError
from ._fields import map_point, working
from ._linalg import apply
from ._namespace import Array, Point, exact_arithmetic, is_array, is_traced, namespace, stop_gradient
from ._set import ConvexSet, convex_set, offers
from ._shapes import broadcast_shapes, side_by_side


@convex_set
class Equality(ConvexSet):
    """{x : A x = b}, an affine subspace. It has no interior: join it to a set by `&`.

    `project` first moves x onto the subspace by the linear map x - A^+ (A x - b), then interpolates inside it.
    In floating point A x = b holds up to `8 n eps (|A||x| + |b|)`, which `contains` allows for.
    `A` is `(..., k, n)` with k <= n, `b` is `(..., k)`; both may carry batch dimensions and gradients.

    >>> import numpy as np
    >>> from inset import Box, Equality, project
    >>> half = Box(np.zeros(3), np.ones(3)) & Equality(np.ones((1, 3)), np.ones(1))
    >>> project(half, np.array([2.0, 0.0, 0.0]), np.full(3, 1 / 3)).round(3)
    array([1., 0., 0.])
    """

    A: Array
    b: Array
    inverse: Array | None = None
    """A^+; found once, here, when A is a constant, and again at each use when it is not."""

    event_ndim = 1
    affine = True
    shapes = {"A": "k n", "b": "k", "inverse": "n k", "x": "n"}

    def __post_init__(self) -> None:
        super().__post_init__()
        if is_array(self.A) and self.A.shape[-2] > self.A.shape[-1]:
            k, n = self.A.shape[-2:]
            raise PointShapeError(f"Equality(A={tuple(self.A.shape)}): {k} equations in {n} unknowns; expected k <= n")
        if self.inverse is None and is_array(self.A) and not _varies(self.A):
            object.__setattr__(self, "inverse", namespace(self.A).linalg.pinv(self.A))

    def constraints(self, x: Array) -> Array:
        return x[..., :0]  # no inequality

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        return x[..., :0]

    def equalities(self, x: Array) -> tuple[Array, Array, Array]:
        inverse = self.inverse if self.inverse is not None else namespace(x).linalg.pinv(self.A)
        return self.A, self.b, inverse

    def anchor(self, x: Array | None = None) -> Array:
        """The point of the subspace nearest to the origin, A^+ b."""
        inverse = self.inverse if self.inverse is not None else namespace(self.A).linalg.pinv(self.A)
        return apply(inverse, self.b)

    def nearest(self, x: Array) -> Array:
        return onto(self, x)


def eliminate(A: Array, b: Array) -> tuple[Array, Array]:
    """`(F, x0)` such that {x : A x = b} = {F z + x0}: F spans the null space of A, x0 = A^+ b.

    The columns of F are orthonormal. The rank of A decides how many there are; under tracing, where its value cannot
    be looked at, the rows count as independent.

    >>> import numpy as np
    >>> F, x0 = eliminate(np.ones((1, 3)), np.ones(1))
    >>> F.shape, x0.round(3)
    ((3, 2), array([0.333, 0.333, 0.333]))
    """
    xp = namespace(A)
    _, values, Vh = xp.linalg.svd(A, full_matrices=True)
    eps = float(xp.finfo(A.dtype).eps)
    rank = A.shape[-2]
    if not is_traced(A):
        tolerance = max(A.shape[-2:]) * eps * float(xp.max(values))
        rank = int(xp.max(xp.sum(xp.astype(values > tolerance, xp.int32), axis=-1)))
    return xp.matrix_transpose(Vh[..., rank:, :]), apply(xp.linalg.pinv(A), b)


def has_equalities(set: ConvexSet) -> bool:
    """Whether points are moved before they are interpolated, so that even an inside point is rounded again."""
    return any([offers(part, "equalities") or offers(part, "onto") for part in parts(set)])


def onto(set: ConvexSet, x: Point, eps: float | None = None) -> Point:
    """x moved linearly onto the affine hull of the set; bit for bit x where it is there up to rounding.

    `eps` is that of the dtype in which x was given.
    """
    equal = [part for part in parts(set) if offers(part, "equalities")]
    if equal:
        x = _onto_subspace(equal, x, eps)
    for part in parts(set):
        if offers(part, "onto") and not offers(part, "equalities"):
            x = part.onto(x)
    return x


def _onto_subspace(equal: list[ConvexSet], x: Array, eps: float | None) -> Array:
    xp = namespace(x)
    if len(equal) == 1 and offers(equal[0], "onto"):
        system, moved = equal[0].equalities(x), equal[0].onto(x)
    else:
        system = stacked([part.equalities(x) for part in equal], x)
        A, b, inverse = system
        moved = x - apply(inverse, apply(A, x) - b)
        moved = moved - apply(inverse, apply(A, moved) - b)  # once more: the residual of the first is not rounding
    there = _residual_small(system, stop_gradient(x), eps or float(xp.finfo(x.dtype).eps), 2.0)
    # the value of x, the derivative of the linear map
    return xp.where(there[..., None], stop_gradient(x) + (moved - stop_gradient(moved)), moved)


def equalities_hold(set: ConvexSet, x: Point, tol: float = 0.0) -> Any:
    """Whether each equality of the set holds at x up to rounding in the dtype of x, or up to `tol`."""
    holds: Any = True
    for part in parts(set):
        if offers(part, "equalities"):
            eps = float(namespace(x).finfo(x.dtype).eps)
            with exact_arithmetic(x):
                part, wide = working(part, x)
                holds = holds & _residual_small(part.equalities(wide), wide, eps, 8.0, tol)
    for block, point in zip(getattr(set, "blocks", ()), x if isinstance(x, tuple) else (), strict=False):
        holds = holds & equalities_hold(block, point, tol)
    return holds


def _residual_small(system: tuple[Array, ...], x: Array, eps: float, factor: float, tol: float = 0.0) -> Array:
    A, b = map_point(stop_gradient, system[:2])
    xp = namespace(x)
    residual = xp.abs(apply(A, x) - b)
    allowed = factor * x.shape[-1] * eps * (apply(xp.abs(A), xp.abs(x)) + xp.abs(b)) + tol
    return xp.all(residual <= allowed, axis=-1)


def stacked(systems: list[tuple[Array, ...]], x: Array) -> tuple[Array, ...]:
    """Several systems `(A, b, A^+)` as one."""
    if len(systems) == 1:
        return systems[0]
    xp = namespace(x)
    batch = broadcast_shapes(*[tuple(A.shape[:-2]) for A, *_ in systems])
    A = xp.concat([xp.broadcast_to(A, (*batch, *A.shape[-2:])) for A, *_ in systems], axis=-2)
    return A, side_by_side([b for _, b, *_ in systems]), xp.linalg.pinv(A)


def _varies(A: Array) -> bool:
    """Whether A is traced or has gradients, so that nothing may be kept from its present value."""
    return is_traced(A) or bool(getattr(A, "requires_grad", False))

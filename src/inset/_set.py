"""`ConvexSet`, the base of every set, and `@convex_set`, which makes one of a class."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

from ._errors import AnchorError
from ._fields import HasFields, leaves, show, working
from ._namespace import Array, Point, exact_arithmetic
from ._shapes import Named, check_point, check_shapes, largest, named_dimensions

# Called with each class that `@convex_set` makes; `inset.jax` adds its pytree registration here.
CLASSES: list[type] = []
ON_NEW_CLASS: list[Callable[[type], None]] = []


class Split(NamedTuple):
    """{x : K x in D}, for points of the affine hull: a linear map, and a D that knows its nearest points."""

    K: Array
    """`(..., m, n)`; points of other shapes count as vectors."""
    excess: Callable[[Array], Array]
    """z - P(z) for z of shape `(..., m)`, with P the orthogonal projection onto D."""
    block: int
    """How many consecutive rows of K belong to one factor of D; 1 for a box."""


class ConvexSet(HasFields):
    """C = {x : h(x) <= 0} with h(x) = max_i h_i(x) and every h_i convex.

    A concrete set implements `constraints` and may implement any of the optional methods below, each of
    which makes something tighter or faster. In all of them the points and the fields of `self` have one
    floating dtype (float32 or wider); `project`, `h` and `contains` see to that.
    """

    #: Trailing dimensions that make a point; a tuple of them when the point is a tuple of arrays.
    event_ndim: int | tuple[int, ...]
    #: Shape of each field's trailing dimensions, by name, and of the point (`"x"`): `{"A": "m n", "x": "n"}`.
    shapes: ClassVar[dict[str, str | tuple[str, ...]]] = {}
    #: `shapes` of a class taken apart, by `@convex_set`.
    named: ClassVar[Named | None] = None
    #: Whether every constraint is affine. The chord is then exact, and `ray` uses it.
    affine: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_shapes(self)

    # -- what a set must say ---------------------------------------------------------------------

    def constraints(self, x: Point) -> Array:
        """The m convex values h_i(x), shape `(*batch, m)`; each is <= 0 inside."""
        raise NotImplementedError(f"{type(self).__name__} must implement constraints(x)")

    # -- what a set may say ----------------------------------------------------------------------

    def anchor(self, x: Point | None = None) -> Point:
        """A strictly feasible point, shaped by the broadcast fields; some sets build it from `x`."""
        raise AnchorError(
            f"{type(self).__name__} knows no anchor in closed form; "
            "find one with inset.interior_point(set), or pass a strictly feasible point"
        )

    def nearest(self, x: Point) -> Point:
        """The orthogonal projection of x onto the set, argmin_y |y - x|, where it can be had to rounding."""
        raise NotImplementedError(f"{type(self).__name__} has no closed-form nearest point")

    def split(self, x: Point) -> Split:
        """A linear map K and a set D with {x : K x in D}, where D knows its nearest points better than the set does.

        `x` is a point of the set's space, for its shape, dtype and framework.
        """
        raise NotImplementedError

    def gauge(self, anchor: Point, direction: Point) -> Array | None:
        """1 / (largest t with anchor + t direction in the set), per constraint or their maximum.

        Only values above 1 matter. None where the set has nothing better than a search along the ray.
        """
        raise NotImplementedError

    def row(self, x: Point, i: Array) -> Array:
        """The constraint h_i(x) alone, i of shape `(*batch,)`: the backward pass then touches one row."""
        raise NotImplementedError

    def rounding(self, x: Point, size: Point, u: float) -> Array:
        """A bound, per constraint, of what rounding does to it; linear in `size` and `u` together.

        It covers the error of evaluating h_i(x) with roundoff u, in any order of summation, and the change of h_i
        when each coordinate j of x moves by at most size_j.
        """
        raise NotImplementedError

    def domain(self, anchor: Point, x: Point) -> Array:
        """The largest t <= 1 with anchor + t (x - anchor) in the closed domain of the constraints."""
        raise NotImplementedError

    def equalities(self, x: Point) -> tuple[Array, Array, Array]:
        """`(A, b, A^+)` such that every point of the set satisfies A x = b."""
        raise NotImplementedError

    def onto(self, x: Point) -> Point:
        """x moved linearly onto the affine hull of the set (equalities, symmetry)."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise a `ValueError` if a field holds a value that makes no sense. Never called under tracing."""

    # -- what follows from that ------------------------------------------------------------------

    def h(self, x: Point) -> Array:
        """h(x) = max_i h_i(x), shape `(*batch,)`; in float32 for half-precision points."""
        check_point(self, x)
        with exact_arithmetic(leaves(x)[0]):
            set, x = working(self, x)
            return largest(set.constraints(x))

    def contains(self, x: Point, tol: float = 0.0) -> Array:
        """Whether h(x) <= tol; equalities may be off by `8 n eps (|A||x| + |b|)`, their rounding."""
        inside = self.h(x) <= tol
        from .affine import equalities_hold

        return inside & equalities_hold(self, x, tol)

    def __and__(self, other: ConvexSet) -> ConvexSet:
        if not isinstance(other, ConvexSet):
            return NotImplemented
        from ._combine import Intersection, parts

        return Intersection((*parts(self), *parts(other)))

    def __repr__(self) -> str:
        fields = ", ".join(f"{f.name}={show(getattr(self, f.name))}" for f in dataclasses.fields(self))  # type: ignore[arg-type]
        return f"{type(self).__name__}({fields})"


_T = TypeVar("_T", bound=type)


def static(*, default: Any = dataclasses.MISSING) -> Any:
    """A field that is part of the type of the set (p, a flag), not an array: never traced."""
    return dataclasses.field(default=default, metadata={"role": "static"})


def index() -> Any:
    """An integer array field, which keeps its dtype."""
    return dataclasses.field(metadata={"role": "index"})


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(static, index, dataclasses.field))
def convex_set(cls: _T) -> _T:
    """Make a subclass of `ConvexSet` a frozen dataclass and let the front-ends know it."""
    cls = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
    cls.roles = tuple([(f.name, f.metadata.get("role", "array")) for f in dataclasses.fields(cls)])
    cls.named = named_dimensions(cls)
    CLASSES.append(cls)
    for hook in ON_NEW_CLASS:
        hook(cls)
    return cls


def offers(set: ConvexSet, method: str) -> bool:
    """Whether the set implements this optional method."""
    return getattr(type(set), method) is not getattr(ConvexSet, method)

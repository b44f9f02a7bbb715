"""Sets made of sets: `Intersection`, the points in every part, and `Product`, sets side by side."""

from __future__ import annotations

from ._errors import AnchorError, PointShapeError
from ._namespace import Array, Point
from ._set import ConvexSet, convex_set
from ._shapes import side_by_side


def parts(set: ConvexSet) -> tuple[ConvexSet, ...]:
    """The sets of an intersection, or the set itself."""
    return set.parts if isinstance(set, Intersection) else (set,)


@convex_set
class Intersection(ConvexSet):
    """The points that lie in every part: the constraints of all parts side by side. Made by `&`.

    >>> import numpy as np
    >>> from inset import Ball, Box
    >>> both = Box(np.zeros(2), np.ones(2)) & Ball(np.zeros(2), 1.0)
    >>> both.contains(np.array([[0.9, 0.9], [0.5, 0.5]]))
    array([False,  True])
    """

    parts: tuple[ConvexSet, ...]

    def __post_init__(self) -> None:
        kinds = {part.event_ndim for part in self.parts}
        if len(kinds) != 1:
            names = ", ".join(f"{type(p).__name__}: {p.event_ndim}" for p in self.parts)
            raise PointShapeError(f"sets joined by & must have points of one kind; event_ndim is {names}")

    @property
    def event_ndim(self) -> int | tuple[int, ...]:  # type: ignore[override]
        return self.parts[0].event_ndim

    def constraints(self, x: Point) -> Array:
        return side_by_side([part.constraints(x) for part in self.parts])

    def anchor(self, x: Point | None = None) -> Point:
        """The first anchor of a part that lies strictly inside all of them (looks at values)."""
        for part in self.parts:
            try:
                anchor = part.anchor(x)
            except (AnchorError, NotImplementedError):
                continue
            if bool((self.h(anchor) < 0).all()) and bool(self.contains(anchor).all()):
                return anchor
        return super().anchor(x)

    def check(self) -> None:
        for part in self.parts:
            part.check()


@convex_set
class Product(ConvexSet):
    """Sets side by side: points (x_1, ..., x_k) with x_j in block j. Made by `Product((C_1, ..., C_k))`.

    h is the maximum over the blocks; `project` treats each block alone, so each keeps its own eta.

    >>> import numpy as np
    >>> from inset import Ball, Box, Product, project
    >>> both = Product((Box(np.zeros(2), np.ones(2)), Ball(np.zeros(2), 1.0)))
    >>> project(both, (np.array([3.0, 0.5]), np.array([0.3, 0.4])))[1]
    array([0.3, 0.4])
    """

    blocks: tuple[ConvexSet, ...]

    @property
    def event_ndim(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple([block.event_ndim for block in self.blocks])  # type: ignore[misc]

    def constraints(self, x: Point) -> Array:
        return side_by_side([block.constraints(p) for block, p in zip(self.blocks, x, strict=True)])

    def anchor(self, x: Point | None = None) -> Point:
        points = x if x is not None else (None,) * len(self.blocks)
        return tuple([block.anchor(p) for block, p in zip(self.blocks, points, strict=True)])

    def nearest(self, x: Point) -> Point:
        return tuple([block.nearest(p) for block, p in zip(self.blocks, x, strict=True)])

    def check(self) -> None:
        for block in self.blocks:
            block.check()

"""`Strings`: bodies linked by strings of bounded length."""

from __future__ import annotations

from .._errors import AnchorError
from .._linalg import ball_gauge, norm, pick
from .._namespace import Array, arange_like, length, namespace, select_along
from .._set import ConvexSet, convex_set, index
from .._shapes import largest
from .._strings import shortened
from .._values import require


@convex_set
class Strings(ConvexSet):
    """{bodies p_1 .. p_k in R^d : |p_i - p_j| <= length_l for each link l = (i, j)}.   h_l(p) = |p_i - p_j| - length_l.

    A point is `(..., k, d)`. `links` is an integer array `(m, 2)`, `lengths` a number, `(m,)` or `(..., m)`.
    The anchor puts all bodies at their mean; to anchor at the mean of other positions, pass `set.anchor(others)`.

    >>> import numpy as np
    >>> chain = Strings(np.array([[0, 1], [1, 2]]), 1.0)
    >>> chain.h(np.array([[0.0, 0.0], [3.0, 4.0], [3.0, 4.5]]))
    np.float64(4.0)
    """

    links: Array = index()
    lengths: Array | float

    event_ndim = 2
    shapes = {"links": "m 2", "lengths": "m", "x": "bodies d"}

    def constraints(self, x: Array) -> Array:
        return norm(self._spans(x)) - self.lengths

    def row(self, x: Array, i: Array) -> Array:
        # by masks: the derivative of a gather is a scatter, which compilers cannot fuse with its neighbours
        xp, bodies = namespace(x), arange_like(x.shape[-2], x)[:, None]
        ends = [pick(self.links[..., k], i, 0)[..., None, None] == bodies for k in (0, 1)]
        first, second = (xp.where(end, x, xp.zeros_like(x)) for end in ends)
        return norm(xp.sum(first - second, axis=-2)) - pick(self.lengths, i, 0)

    def gauge(self, anchor: Array, direction: Array) -> Array:
        return ball_gauge(self._spans(anchor), self._spans(direction), self.lengths)

    def rounding(self, x: Array, size: Array, u: float) -> Array:
        spans = self._spans(x)
        evaluation = (spans.shape[-1] / 2 + 4) * (length(spans) + self.lengths)
        first, second = (select_along(length(size), self.links[..., i], -1) for i in (0, 1))
        return u * evaluation + first + second

    def anchor(self, x: Array | None = None) -> Array:
        """All bodies at the mean of their positions in x."""
        if x is None:
            raise AnchorError("the anchor of Strings is the mean of given positions: pass anchor(x), or an anchor")
        xp = namespace(x)
        return xp.broadcast_to(xp.mean(x, axis=-2, keepdims=True), x.shape)

    def nearest(self, x: Array) -> Array:
        """y = (I + A^T diag(t) A)^-1 x with (A y)_l = (p_i - p_j) / length_l, t >= 0, and |(A y)_l| = 1 where t_l > 0.

        Found by an interior-point method with a static number of steps.
        """
        xp = namespace(x)
        y = shortened(self._incidence(x), self.lengths + xp.zeros_like(x[..., :1, 0]), x)
        return xp.where((largest(self.constraints(x)) > 0)[..., None, None], y, x)

    def check(self) -> None:
        require(self, "lengths", "positive", lambda xp, lengths: lengths > 0)
        require(self, "links", "indices of bodies, 0 or more", lambda xp, links: links >= 0)

    def _spans(self, x: Array) -> Array:
        """p_i - p_j for each link, `(*batch, m, d)`."""
        first, second = (select_along(x, self.links[..., i], -2) for i in (0, 1))
        return first - second

    def _incidence(self, x: Array) -> Array:
        """The matrix `(m, bodies)` that takes x to the spans."""
        xp, bodies = namespace(x), arange_like(x.shape[-2], x)
        first, second = (xp.astype(self.links[:, i : i + 1] == bodies, x.dtype) for i in (0, 1))
        return first - second

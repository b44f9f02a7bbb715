"""`Sublevel`: the set under a function of the user's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._fields import leaves, map_arrays, map_point
from .._namespace import Array, Point, namespace, stop_gradient
from .._ray import between
from .._set import ConvexSet, convex_set, static
from .._shapes import event_dims, largest


@convex_set
class Sublevel(ConvexSet):
    """{x : fn(x, *parameters) <= 0} for a convex `fn` of yours.   h(x) = fn(x, *parameters).

    `fn` maps points `(*batch, ...)` to `(*batch,)`, or to `(*batch, m)` for m constraints; it may be an
    `nn.Module`, an input-convex network for instance. `parameters` are arrays that may carry batch dimensions and
    gradients. `event_ndim` says how many trailing dimensions make a point.

    Where `fn` is NaN or infinite, x counts as outside and is pulled back to where fn is finite, which costs a few
    more evaluations; `finite=True` promises that it never is and saves them. Whether fn is convex is for you to
    know, and for `inset.diagnose` to test.

    >>> import numpy as np
    >>> disc = Sublevel(lambda x: (x * x).sum(-1) - 1)
    >>> disc.contains(np.array([[0.6, 0.6], [0.9, 0.9]]))
    array([ True, False])
    """

    fn: Callable[..., Any]
    parameters: tuple[Any, ...] = ()
    event_ndim: int | tuple[int, ...] = static(default=1)
    finite: bool = static(default=False)

    def constraints(self, x: Point) -> Array:
        value = self.fn(x, *self.parameters)
        batch = leaves(x)[0].ndim - event_dims(self)[0]
        return value if value.ndim > batch else value[..., None]

    def domain(self, anchor: Point, x: Point) -> Array:
        """The largest 2^-k at which h is finite, found by bisection of k: constant in x, so without derivative."""
        still, x0, x1 = map_arrays(self, stop_gradient), map_point(stop_gradient, anchor), map_point(stop_gradient, x)
        leaf = leaves(x1)[0]
        xp = namespace(leaf)
        k = event_dims(self)[0]
        zero = xp.zeros_like(leaf[(..., *(0,) * k)]) if k else xp.zeros_like(leaf)
        if self.finite:
            return zero + 1
        limit = 2 ** (6 if xp.finfo(leaf.dtype).bits < 64 else 9)
        low, high = zero - 1, zero + 2 * limit  # h is not finite at 2^-low, finite at 2^-high
        for _ in range(limit.bit_length() + 1):
            middle = xp.floor((low + high) / 2)
            middle = xp.where(middle < 0, zero, middle)
            finite = xp.isfinite(largest(still.constraints(between(self, x0, 2.0**-middle, x1))))
            low, high = xp.where(finite, low, middle), xp.where(finite, middle, high)
        return 2.0**-high

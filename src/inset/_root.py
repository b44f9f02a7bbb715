"""One-dimensional roots with derivatives, for nearest points."""

from __future__ import annotations

from collections.abc import Callable

from ._namespace import Array, derivative, namespace, stop_gradient

DOUBLINGS, STEPS = 30, 60


def decreasing_root(f: Callable[[Array], Array], zero: Array) -> Array:
    """The t >= 0 with f(t) = 0 for a decreasing f, for each sample alone; 0 where f(0) <= 0.

    `zero` is an array of zeros of the shape of t. The bracket grows by powers of 4 from 1 and is then bisected on
    a log scale. Two Newton steps at the end polish the root and carry its first and second derivatives.
    """
    xp = namespace(zero)
    wanted = stop_gradient(f(zero)) > 0
    lo, hi = zero + 1e-12, zero + 1
    for _ in range(DOUBLINGS):
        hi = xp.where(stop_gradient(f(hi)) > 0, 4 * hi, hi)
    for _ in range(STEPS):
        middle = xp.sqrt(lo * hi)
        above = stop_gradient(f(middle)) > 0
        lo, hi = xp.where(above, middle, lo), xp.where(above, hi, middle)
    root = hi
    for _ in range(2):
        value, slope = derivative(f, root)
        usable = wanted & (slope < 0)
        root = root - xp.where(usable, value, zero) / xp.where(usable, slope, xp.ones_like(slope))
    return xp.where(wanted, root, zero)

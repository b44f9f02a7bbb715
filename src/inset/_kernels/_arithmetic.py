"""Arithmetic inside of kernels."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def divided(a, b):
    """a / b, correctly rounded: a GPU's own float32 division is not."""
    if a.dtype == tl.float32:
        return tl.div_rn(a, b)
    else:
        return a / b


@triton.jit
def quotient(a, b):
    """a / b for b >= 0, up to one unit in the last place, without the branches of `divided`."""
    inverse = reciprocal(b)
    about = a * inverse
    left = tl.fma(-about, b, a)
    return tl.where(left == left, tl.fma(left, inverse, about), about)  # infinite quotients and divisors


@triton.jit
def reciprocal(b):
    """1 / b for b >= 0, up to some units in the last place: a GPU has the root, and many instructions for 1 / b."""
    if b.dtype == tl.float32:
        inverse = tl.rsqrt(b)
        return inverse * inverse
    else:
        return 1 / b


@triton.jit
def root(a):
    """The correctly rounded square root."""
    if a.dtype == tl.float32:
        return tl.sqrt_rn(a)
    else:
        return tl.sqrt(a)


@triton.jit
def between(a, b, t):
    """a + t (b - a): exactly b at t = 1."""
    return tl.where(t < 0.5, a + t * (b - a), b - (b - a) * (1 - t))

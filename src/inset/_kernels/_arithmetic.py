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

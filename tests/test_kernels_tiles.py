"""How kernels read and write samples, in Triton's interpreter on the CPU: all of them, and nothing behind the last."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from inset._kernels import _bodies, _rows, _tiles

N, B = 11, 4


@triton.jit
def vectors(x, y, N, B: tl.constexpr, D: tl.constexpr, SPAN: tl.constexpr):
    for k in range(tl.cdiv(N, B)):
        _n, _alive, at, mask = _tiles.tile(k, N, B, D, D, SPAN)
        _tiles.write(y, at, _tiles.read(x, at, mask, B, tl.float32), mask)


@triton.jit
def rows(x, y, N, B: tl.constexpr, D: tl.constexpr, SPAN: tl.constexpr):
    for k in range(tl.cdiv(N, B)):
        at, mask = _rows.tile(k, N, B, triton.next_power_of_2(D), D, SPAN)
        _rows.write(y, at, _rows.read(x, at, mask, B), mask)


@triton.jit
def bodies(x, y, N, B: tl.constexpr, D: tl.constexpr, SPAN: tl.constexpr):
    WIDTH: tl.constexpr = triton.next_power_of_2(D)
    PAIRED: tl.constexpr = D % 2 == 0 and x.dtype.element_ty.primitive_bitwidth == 16
    e = _bodies.places(B, WIDTH, 8, SPAN)
    for k in range(tl.cdiv(N, B)):
        n = (k * B + tl.arange(0, B)).to(tl.int64)
        at, there = _bodies.wide(n) * D + e, _bodies.wide(n < N) & (e < D)
        points = _bodies.apart(_bodies.tile(x, k, N, B, D, WIDTH, 8, SPAN, PAIRED), x, tl.float32)
        _bodies.write(y, at, points, there, D)


@pytest.mark.parametrize(
    ("kernel", "d", "span"),
    [
        *[(vectors, d, span) for d, span in ((4, 8), (2, 8), (4, 4), (8, 4))],
        *[(rows, d, span) for d, span in ((4, 8), (2, 8), (1, 4), (3, 8), (8, 4))],
        *[(bodies, d, span) for d, span in ((4, 8), (6, 4), (10, 8), (15, 4))],
    ],
)
def test_samples_are_read_and_written(kernel: Any, d: int, span: int) -> None:
    for dtype in (torch.float32, torch.bfloat16) if kernel is bodies else (torch.float32,):
        x, y = torch.arange(1.0, N * d + 1).to(dtype), torch.full((20 * d,), -1.0)
        kernel[(1,)](x, y, N, B=B, D=d, SPAN=span)
        assert torch.equal(y[: N * d], x.float()) and (y[N * d :] == -1).all()

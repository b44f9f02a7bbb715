"""Points of a set as trees of tensors, and a generator of hard ones."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import inset

# An array, or a tuple of them, as in `inset`.
Point = Any


def leaves(x: Point) -> list[Tensor]:
    return [leaf for entry in x for leaf in leaves(entry)] if isinstance(x, tuple) else [x]


def map_point(fn: Callable[..., Any], x: Point, *others: Any) -> Any:
    """`fn` of each array of a point and of the matching entries of `others`."""
    if isinstance(x, tuple):
        return tuple(map_point(fn, *entries) for entries in zip(x, *others, strict=True))
    return fn(x, *others)


def rows(x: Point, start: int, stop: int) -> Point:
    return map_point(lambda leaf: leaf[start:stop], x)


def size(x: Point) -> int:
    """Numbers in one point, given one."""
    return sum(leaf.numel() for leaf in leaves(x))


def to_float64(set: inset.ConvexSet) -> inset.ConvexSet:
    """The same set with its floating arrays in float64; the numbers in them do not change."""
    new = copy.copy(set)
    for field in dataclasses.fields(set):  # type: ignore[arg-type]
        object.__setattr__(new, field.name, _double(getattr(set, field.name)))
    return new


def _double(value: Any) -> Any:
    if isinstance(value, inset.ConvexSet):
        return to_float64(value)
    if isinstance(value, tuple):
        return tuple(_double(entry) for entry in value)
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def throw(set: inset.ConvexSet, anchor: Point, count: int, spread: float, generator: torch.Generator) -> Point:
    """`count` points of the dtype of the anchor, at every magnitude from 1e-30 to the largest number of the dtype.

    Half have about the size of the set (`spread`), a third are sparse, half are around the anchor and half around the
    origin; the last quarter is then put on the boundary, give or take three ulps.
    """
    first = leaves(anchor)[0]
    info, device = torch.finfo(first.dtype), first.device

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64, device=device)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64, device=device)

    low, high = -30.0, math.log10(info.max)
    far = 10 ** (low + (high - low) * uniform(count))
    far = torch.where(uniform(count) < 0.5, spread * normal(count).exp(), far)
    sparse, around = uniform(count) < 0.3, uniform(count) < 0.5

    def leaf(origin: Tensor) -> Tensor:
        wide = (count, *(1,) * origin.ndim)
        step = normal(count, *origin.shape)
        step = torch.where(sparse.reshape(wide) & (uniform(count, *origin.shape) < 0.6), 0.0, step)
        if isinstance(anchor, tuple):  # a mean alone, or a covariance alone, may be what is thrown
            step = torch.where((uniform(count) < 0.2).reshape(wide), 0.0, step)
        start = torch.where(around.reshape(wide), origin.double(), 0.0)
        return (start + far.reshape(wide) * step).clamp(-info.max, info.max).to(origin.dtype)

    x = map_point(leaf, anchor)
    return _with_boundary(set, anchor, x, count - count // 4, generator)


def _with_boundary(set: inset.ConvexSet, anchor: Point, x: Point, start: int, generator: torch.Generator) -> Point:
    """x with the points from `start` on moved to the boundary as computed without `strict`, up to three ulps off."""
    chosen = map_point(lambda leaf: leaf[start:], x)
    edge = inset.project(set, chosen, anchor, method="ray", strict=False)

    def leaf(given: Tensor, reached: Tensor, old: Tensor) -> Tensor:
        info = torch.finfo(given.dtype)
        ulps = torch.randint(-3, 4, reached.shape, generator=generator, device=given.device)
        moved = (reached.double() * (1 + info.eps * ulps)).clamp(-info.max, info.max).to(given.dtype)
        return torch.cat([given[:start], torch.where(torch.isfinite(moved), moved, old)])

    return map_point(leaf, x, edge, chosen)

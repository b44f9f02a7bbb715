"""Many samples of many constraints: one chunk of the samples after another, so that memory stays bounded.

The values of m constraints at a batch of points are an array (batch, m), and `project` makes a few of that size.
Samples do not depend on each other, so they can take turns; what is kept of a chunk, for the result and for its
derivatives, is of the size of its points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ._combine import parts
from ._fields import field_leaves, leaves, map_point
from ._namespace import Array, Point, is_array, is_exporting, is_jax, is_traced, namespace, scan
from ._set import ConvexSet, offers
from ._shapes import broadcast_shapes, event_dims

# An array made on the way has at most so many numbers, or as many as the set itself.
AT_ONCE = 2**25


def chunk_by_chunk(fn: Callable[[Point, Point], Any], set: ConvexSet, x: Point, anchor: Point) -> Any:
    """`fn(x, anchor)`, a tree of arrays with the batch of x in front: of all samples at once where memory allows it."""
    count = _count(set, x, anchor)
    if count == 1:
        return fn(x, anchor)
    xp = namespace(leaves(x)[0])
    batch = _batches(set, x)[0]
    total = math.prod(batch)

    def flat(leaf: Array, k: int) -> Array:
        event = tuple(leaf.shape[leaf.ndim - k :])
        return xp.reshape(xp.broadcast_to(leaf, (*batch, *event)), (total, *event))

    def join(*chunks: Array) -> Array:
        whole = xp.concat(chunks, axis=0)
        return xp.reshape(whole, (*batch, *whole.shape[1:]))

    x, size = map_point(flat, x, set.event_ndim), -(-total // count)
    if any(_batches(set, anchor)):
        anchor = map_point(flat, anchor, set.event_ndim)
        return _map(join, *_each(lambda pair: fn(*pair), (x, anchor), size))
    return _map(join, *_each(lambda point: fn(point, anchor), x, size))


def _count(set: ConvexSet, x: Point, anchor: Point) -> int:
    """Into how many chunks the samples are cut; 1 where their number is a symbol, or x alone has not the whole batch.

    A field acts on points, so evaluating it makes about (its size) / (size of a point) numbers per sample.
    """
    held, batch = _held(set), _batches(set, x)[0]
    if held == 0 or is_exporting() or any([not isinstance(size, int) for size in batch]):
        return 1
    if broadcast_shapes(*_batches(set, x), *_batches(set, anchor)) != batch:
        return 1
    point = sum([math.prod(leaf.shape[leaf.ndim - k :]) for leaf, k in zip(leaves(x), event_dims(set), strict=True)])
    points = math.prod(batch) * (2 if any(_batches(set, anchor)) else 1)  # anchors of their own are evaluated too
    numbers, most = points * held, max(point, 1) * max(AT_ONCE, held)
    return 1 if numbers <= most else min(math.prod(batch), -(-numbers // most))


def _held(set: ConvexSet) -> int:
    """How many numbers the fields of the set hold; 0 if it may be another set for each sample."""
    held = 0
    for part in parts(set):
        if not offers(part, "rounding"):  # checked again as the user will: with the whole batch
            return 0
        for name, value, _ in field_leaves(part):
            if is_array(value):
                if name not in part.shapes or value.ndim != len(str(part.shapes[name]).split()):
                    return 0
                held += math.prod(value.shape)
    return held


def _batches(set: ConvexSet, x: Point) -> list[tuple[int, ...]]:
    """The leading dimensions of each array of a point."""
    return [tuple(leaf.shape[: leaf.ndim - k]) for leaf, k in zip(leaves(x), event_dims(set), strict=True)]


def _each(fn: Callable[[Point], Any], x: Point, size: int) -> list[Any]:
    """`fn` of each chunk of x; where JAX traces, in a loop, because XLA would keep all chunks at once."""
    first = leaves(x)[0]
    total = first.shape[0]

    def cut(start: int, stop: int) -> Point:
        return map_point(lambda leaf: leaf[start:stop], x)

    if not (is_jax(first) and is_traced(first)):
        return [fn(cut(k * size, (k + 1) * size)) for k in range(-(-total // size))]
    xp, count = namespace(first), total // size

    def body(state: Any, *entries: Array) -> tuple[Any, Any]:
        entry = iter(entries)
        return state, fn(map_point(lambda leaf: next(entry), x))

    columns = [xp.reshape(leaf, (count, size, *leaf.shape[1:])) for leaf in leaves(cut(0, count * size))]
    rows = _map(lambda v: xp.reshape(v, (count * size, *v.shape[2:])), scan(body, (), *columns)[1])
    return [rows, fn(cut(count * size, total))] if count * size < total else [rows]


def _map(fn: Callable[..., Array], tree: Any, *others: Any) -> Any:
    """`fn` of each array of a tree of tuples and None, with the matching arrays of others."""
    if tree is None:
        return None
    if isinstance(tree, tuple):
        entries = [_map(fn, *column) for column in zip(tree, *others, strict=True)]
        return type(tree)(*entries) if hasattr(tree, "_fields") else tuple(entries)
    return fn(tree, *others)

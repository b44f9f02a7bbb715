"""Shapes: of fields against each other, of points against sets, and of batches against batches."""

from __future__ import annotations

from typing import Any, NamedTuple

from ._errors import PointShapeError
from ._fields import field_leaves, leaves, map_point
from ._namespace import Array, Point, is_array, is_floating, namespace


def event_dims(set: Any) -> tuple[int, ...]:
    """`event_ndim` of each array of a point."""
    return leaves(set.event_ndim)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of arrays of these shapes."""
    if all(tuple(s) == tuple(shapes[0]) for s in shapes):
        return tuple(shapes[0])
    width = max(len(s) for s in shapes)
    padded = [(1,) * (width - len(s)) + tuple(s) for s in shapes]
    result = []
    for sizes in zip(*padded, strict=True):
        wide = [s for s in sizes if s != 1]
        if any(s != wide[0] for s in wide):
            raise PointShapeError(f"shapes {', '.join(str(tuple(s)) for s in shapes)} do not broadcast")
        result.append(wide[0] if wide else 1)
    return tuple(result)


def side_by_side(values: list[Array]) -> Array:
    """Arrays `(*batch, m_k)` as one array `(*batch, sum m_k)`."""
    if len(values) == 1:
        return values[0]
    batch = broadcast_shapes(*[v.shape[:-1] for v in values])
    xp = namespace(values[0])
    return xp.concat([xp.broadcast_to(v, (*batch, v.shape[-1])) for v in values], axis=-1)


def largest(values: Array) -> Array:
    """max over the last axis; -inf where it is empty."""
    xp = namespace(values)
    if values.shape[-1] == 0:
        return xp.sum(values, axis=-1) - float("inf")
    return xp.max(values, axis=-1)


class Named(NamedTuple):
    """`shapes` of a set whose points are one array, taken apart, for `check_point`."""

    given: tuple[tuple[str, int], ...]
    """Dimensions that are numbers."""
    fields: tuple[str, ...]
    """Those that are fields of the set, if it holds an integer there: `n` of `Simplex(n)`."""
    arrays: tuple[tuple[str, tuple[str, ...]], ...]
    """The dimensions of each field."""
    point: tuple[str, ...]


def named_dimensions(cls: Any) -> Named | None:
    """None where the shapes depend on the fields, or points are tuples."""
    if not isinstance(cls.shapes, dict) or not isinstance(cls.shapes.get("x"), str):
        return None
    split = {name: tuple(str(spec).split()) for name, spec in cls.shapes.items()}
    axes = [axis for names in split.values() for axis in names]
    given = tuple([(axis, int(axis)) for axis in axes if axis.isdigit()])
    fields = tuple([axis for axis in axes if hasattr(cls, axis) or axis in dict(cls.roles)])
    return Named(given, fields, tuple([(n, a) for n, a in split.items() if n != "x"]), split["x"])


def event_shape(set: Any) -> dict[str, int]:
    """Sizes of the named dimensions, read off the fields. Raises where two fields disagree."""
    axes = " ".join([part for spec in set.shapes.values() for part in (spec if isinstance(spec, tuple) else (spec,))])
    # a size may be a field itself: `n` of `Simplex(n)`
    sizes = {axis: getattr(set, axis) for axis in axes.split() if isinstance(getattr(set, axis, None), int)}
    origin = {axis: axis for axis in sizes}
    for name, spec in set.shapes.items():
        if name == "x":
            continue
        value = getattr(set, name)
        if not is_array(value):
            continue
        axes = str(spec).split()
        if value.ndim < len(axes):
            raise PointShapeError(_shape_message(set, f"{name} has {value.ndim} dimensions, too few"))
        for axis, size in zip(axes, value.shape[value.ndim - len(axes) :], strict=True):
            if axis.isdigit():
                if size != int(axis):
                    raise PointShapeError(_shape_message(set, f"{name} must have size {axis} there, not {size}"))
            elif sizes.setdefault(axis, size) != size:
                raise PointShapeError(
                    _shape_message(set, f"{axis} is {sizes[axis]} in {origin[axis]} but {size} in {name}")
                )
            origin.setdefault(axis, name)
    return sizes


def known_event(set: Any) -> tuple[tuple[int | None, ...], ...]:
    """The trailing dimensions of each array of a point; None where the set leaves them open."""
    if hasattr(set, "blocks"):
        return tuple([event for block in set.blocks for event in known_event(block)])
    if hasattr(set, "parts"):
        return tuple([_merged(events) for events in zip(*[known_event(part) for part in set.parts], strict=True)])
    spec, sizes = set.shapes["x"], event_shape(set)
    axes = [entry.split() for entry in (spec if isinstance(spec, tuple) else (spec,))]
    return tuple([tuple([int(a) if a.isdigit() else sizes.get(a) for a in names]) for names in axes])


def _merged(events: tuple[tuple[int | None, ...], ...]) -> tuple[int | None, ...]:
    return tuple([next((size for size in sizes if size is not None), None) for sizes in zip(*events, strict=True)])


def check_shapes(set: Any) -> None:
    """Raise unless the fields are arrays or numbers whose shapes fit each other."""
    for name, value, role in field_leaves(set):
        if role != "static" and not (is_array(value) or isinstance(value, (int, float)) or callable(value)):
            if type(value) is object or value is None:  # a placeholder of a tree transform, or an absent field
                continue
            raise TypeError(
                f"{type(set).__name__}({name}=...) must be a torch, JAX or NumPy array or a number, "
                f"received {type(value).__name__}; wrap lists in an array"
            )
    event_shape(set)


def check_point(set: Any, x: Point, what: str = "points") -> None:
    """Raise unless x has the structure and trailing shape of a point of the set, in floating dtype."""
    if all([part.named is not None and _fits(part, part.named, x) for part in getattr(set, "parts", (set,))]):
        return
    for part in getattr(set, "parts", ()):
        check_point(part, x, what)
    if isinstance(set.event_ndim, tuple):
        k = len(set.event_ndim)
        if not isinstance(x, tuple) or len(x) != k:
            got = f"a tuple of {len(x)}" if isinstance(x, tuple) else type(x).__name__
            raise PointShapeError(f"{type(set).__name__} expects {what} that are tuples of {k}; received {got}")
    elif isinstance(x, tuple):
        raise PointShapeError(f"{type(set).__name__} expects {what} that are one array; received a tuple of {len(x)}")
    blocks = getattr(set, "blocks", None)
    if blocks is not None:
        for block, point in zip(blocks, x, strict=True):
            check_point(block, point, what)
        return
    spec, sizes = set.shapes.get("x"), event_shape(set)
    for leaf, k, axes in zip(
        x if isinstance(x, tuple) else (x,),
        set.event_ndim if isinstance(set.event_ndim, tuple) else (set.event_ndim,),
        spec if isinstance(spec, tuple) else (spec,) * (len(x) if isinstance(x, tuple) else 1),
        strict=True,
    ):
        _check_leaf(type(set).__name__, leaf, k, axes, sizes, what)


def widened(set: Any, anchor: Point, x: Point) -> Point:
    """The anchor, with the trailing dimensions of x where it has 1. Raise if it has others."""
    return map_point(lambda a, b, k: _widened(type(set).__name__, a, b, k), anchor, x, set.event_ndim)


def _widened(name: str, anchor: Array, x: Array, k: int) -> Array:
    received, expected = anchor.shape[anchor.ndim - k :], x.shape[x.ndim - k :]
    if received == expected:
        return anchor
    if any([m not in (1, n) for m, n in zip(received, expected, strict=True)]):
        raise PointShapeError(
            f"{name} expects an anchor of shape (..., {', '.join(map(str, expected))}), as x has it, or with 1 for any "
            f"of them; received {tuple(anchor.shape)}"
        )
    return namespace(anchor).broadcast_to(anchor, (*anchor.shape[: anchor.ndim - k], *expected))


def _fits(set: Any, named: Named, x: Point) -> bool:
    """Whether `check_point` has nothing to say, found out quickly; False also where it is for that one to tell."""
    if isinstance(x, tuple) or not is_floating(x):
        return False
    sizes: dict[str, int] = dict(named.given)
    for axis in named.fields:
        if isinstance(size := getattr(set, axis), int):
            sizes[axis] = size
    for name, axes in named.arrays:
        value = getattr(set, name)
        if hasattr(value, "shape") and not _agree(value, axes, sizes):
            return False
    return _agree(x, named.point, sizes)


def _agree(value: Any, axes: tuple[str, ...], sizes: dict[str, int]) -> bool:
    """Whether the trailing dimensions are those in `sizes`, to which new ones are added."""
    shape = value.shape
    first = len(shape) - len(axes)
    return first >= 0 and all([sizes.setdefault(a, shape[first + k]) == shape[first + k] for k, a in enumerate(axes)])


def _check_leaf(name: str, leaf: Array, k: int, axes: str | None, sizes: dict[str, int], what: str) -> None:
    if not is_floating(leaf):
        raise TypeError(f"{name} expects {what} of floating dtype; received {leaf.dtype}. Convert them first")
    received = tuple(leaf.shape[leaf.ndim - k :]) if leaf.ndim >= k else None
    if axes is None:
        if received is None:
            raise PointShapeError(f"{name} expects {what} of {k} dimensions or more; received {tuple(leaf.shape)}")
        return
    names = axes.split()
    if received is not None:
        for axis, size in zip(names, received, strict=True):
            sizes.setdefault(axis, int(axis) if axis.isdigit() else size)
    if received is None or received != tuple([sizes[a] for a in names]):
        shown = ", ".join([str(sizes.get(a, a)) for a in names])
        raise PointShapeError(f"{name} expects {what} of shape (..., {shown}); received {tuple(leaf.shape)}")


def _shape_message(set: Any, problem: str) -> str:
    named = [(n, str(s).split()) for n, s in set.shapes.items() if n != "x" and is_array(getattr(set, n))]
    got = ", ".join(f"{n}={tuple(getattr(set, n).shape)}" for n, _ in named)
    want = ", ".join(f"{n} (..., {', '.join(axes)})" if axes else f"{n} (...)" for n, axes in named)
    return f"{type(set).__name__}({got}): {problem}; expected {want}"

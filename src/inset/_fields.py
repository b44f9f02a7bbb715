"""The arrays of points and of sets: walking over them, and bringing them to one dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from ._namespace import Array, Point, is_array, is_floating, is_torch, namespace, reduced_products


class HasFields:
    """A dataclass whose fields are arrays, numbers, functions, or (tuples of) others of its kind."""

    #: The name of each field and its role: array, index or static.
    roles: ClassVar[tuple[tuple[str, str], ...]] = ()


def leaves(x: Point) -> tuple[Array, ...]:
    """The arrays of a point."""
    if isinstance(x, tuple):
        return tuple([leaf for entry in x for leaf in leaves(entry)])
    return (x,)


def map_point(fn: Callable[..., Array], x: Point, *others: Any) -> Point:
    """`fn` applied to each array of a point and to the matching entries of `others`."""
    if isinstance(x, tuple):
        return tuple([map_point(fn, *entries) for entries in zip(x, *others, strict=True)])
    return fn(x, *others)


def field_leaves(set: Any) -> Iterator[tuple[str, Any, str]]:
    """`(path, value, role)` of each field of the set and of the sets within; role is array, index or static."""
    for name, role in set.roles:
        value = getattr(set, name)
        values = value if isinstance(value, tuple) and role == "array" else (value,)
        for k, v in enumerate(values):
            path = name if values is not value else f"{name}_{k}"
            if isinstance(v, HasFields):
                for inner, leaf, inner_role in field_leaves(v):
                    yield f"{path}_{inner}", leaf, inner_role
            else:
                yield path, v, role


def map_fields(set: Any, fn: Callable[[Any, str], Any]) -> Any:
    """The same set with `fn(value, role)` in place of each non-static field, without checks."""
    new = object.__new__(type(set))
    for name, role in set.roles:
        value = getattr(set, name)
        if role != "static":
            if isinstance(value, HasFields):
                value = map_fields(value, fn)
            elif isinstance(value, tuple):
                value = tuple([map_fields(v, fn) if isinstance(v, HasFields) else fn(v, role) for v in value])
            else:
                value = fn(value, role)
        object.__setattr__(new, name, value)
    return new


def map_arrays(set: Any, fn: Callable[[Array], Array]) -> Any:
    """The same set with `fn` applied to its real-valued arrays (not to scalars, indices or functions)."""
    return map_fields(set, lambda v, role: fn(v) if role == "array" and is_array(v) else v)


def working(set: Any, *points: Point) -> tuple[Any, ...]:
    """The set and the points in one floating dtype: that in which h is evaluated at the first of them."""
    x = leaves(points[0])[0]
    dtype = working_dtype(set, points[0])
    arrays = [v for _, v, role in field_leaves(set) if role == "array" and is_array(v)]
    if all([v.dtype == dtype for v in [*arrays, *leaves(points)]]):
        return set, *points
    xp = namespace(x)

    def cast(v: Array) -> Array:
        if is_torch(x) and not is_torch(v):
            v = xp.asarray(v, device=x.device)
        return v if v.dtype == dtype else v.to(dtype) if is_torch(v) else xp.astype(xp.asarray(v), dtype)

    return map_arrays(set, cast), *(map_point(cast, p) for p in points)


def working_dtype(set: Any, x: Point) -> Any:
    """The widest floating dtype of the set and the point, float32 at least."""
    first = leaves(x)[0]
    xp = namespace(first)
    dtype = first.dtype
    for v in [*leaves(x), *[v for _, v, role in field_leaves(set) if role == "array" and is_array(v)]]:
        if v.dtype == dtype:
            continue
        if is_torch(first) and not is_torch(v):
            v = xp.asarray(v)
        if is_floating(v):
            dtype = xp.promote_types(dtype, v.dtype) if is_torch(first) else xp.result_type(dtype, v.dtype)
    if xp.finfo(dtype).bits < 32:
        dtype = xp.float32
    # where the process allows TF32 a float32 product is not one: compute the constraints in float64
    return xp.float64 if reduced_products(first) else dtype


def show(value: Any) -> str:
    """A field for `repr`: dtype and shape of an array, the value of the rest."""
    if is_array(value):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, tuple):
        return "(" + ", ".join(show(v) for v in value) + ")"
    return repr(value)

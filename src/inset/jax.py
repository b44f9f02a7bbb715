"""The JAX front-end: sets as pytrees, which `jit`, `vmap` and `grad` take as arguments, and `minimize`."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax

from . import _set
from ._anchor import interior_point
from ._coordinates import Coordinates
from ._fields import map_fields, map_point
from ._namespace import Point, is_array
from ._project import Info, project, project_with_info
from ._set import ConvexSet
from .descent import IGD, PGD, Radial, SubGD
from .descent._build import Goal
from .descent._minimize import DEFAULT, Callback, Solver
from .descent._minimize import minimize as _minimize
from .descent._program import Epigraph, Program
from .descent.result import Result

__all__ = ["Info", "minimize", "project", "project_with_info"]


def _is_child(value: Any, role: str) -> bool:
    """Arrays, and what holds arrays, are traced; numbers, functions and static fields are part of the type."""
    if role == "static" or isinstance(value, (int, float)):
        return False
    is_leaf = jax.tree_util.treedef_is_leaf(jax.tree_util.tree_structure(value))
    return not (callable(value) and is_leaf)


def _register(cls: type) -> None:
    """Make a set class a pytree. Its fixed fields are compared by `==`, so they must be hashable."""

    def flatten_with_keys(set: Any) -> tuple[Any, Any]:
        children, fixed = [], []
        traced = vars(set).get("_traced")  # of a set that a tree transform made: it may hold axes, say, for arrays
        for field in dataclasses.fields(set):
            value, role = getattr(set, field.name), field.metadata.get("role", "array")
            if _is_child(value, role) if traced is None else field.name in traced:
                children.append((jax.tree_util.GetAttrKey(field.name), value))
                fixed.append((field.name, True, None))
            else:
                fixed.append((field.name, False, value))
        return children, tuple(fixed)

    def unflatten(fixed: Any, children: Any) -> Any:
        new, values = object.__new__(cls), iter(children)
        for name, is_child, value in fixed:
            object.__setattr__(new, name, next(values) if is_child else value)
        object.__setattr__(new, "_traced", tuple(name for name, is_child, _ in fixed if is_child))
        return new

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten)


for _cls in _set.CLASSES:
    _register(_cls)
_set.ON_NEW_CLASS.append(_register)

# What `jit` must not trace: shapes, functions, choices. The rest of each dataclass is arrays.
for _cls, _fixed in (
    (Coordinates, ("batch", "shapes", "event_ndim")),
    (Goal, ("function",)),
    (Program, ("objective",)),
    (Epigraph, ()),
    (IGD, ("method", "error")),
    (SubGD, ("rescale",)),
    (PGD, ()),
    (Radial, ("tol",)),
):
    _names = [field.name for field in dataclasses.fields(_cls)]
    jax.tree_util.register_dataclass(_cls, [name for name in _names if name not in _fixed], list(_fixed))


def minimize(
    objective: Any,
    set: ConvexSet,
    anchor: Point | None = None,
    solver: Solver = DEFAULT,
    steps: int = 1_000,
    *,
    callback: Callback | None = None,
    progress: bool = False,
) -> Result:
    """`inset.torch.minimize` for JAX arrays: the least f(x) over the points x of a set, a batch of problems at once.

    The loop is compiled once per shape, solver and objective function. Inside `jit` or `vmap` all steps are run,
    without callback, progress and lower bound; the anchor must then be given. Not differentiable. JAX computes in
    float32 unless `jax_enable_x64` is set; expect four digits then.

    >>> import jax.numpy as jnp
    >>> from inset import Ball
    >>> float(minimize(jnp.array([3.0, 4.0]), Ball(jnp.zeros(2), radius=2.0)).value.round(3))
    -10.0
    """
    objective = (
        objective if callable(objective) else map_point(lambda v: jax.numpy.asarray(v) if is_array(v) else v, objective)
    )
    set = map_fields(set, lambda v, role: jax.numpy.asarray(v) if is_array(v) else v)
    anchor = interior_point(set) if anchor is None else map_point(jax.numpy.asarray, anchor)
    return _minimize(_jitted, objective, set, anchor, solver, steps, callback, progress)


_jitted = functools.cache(jax.jit)

"""The JAX front-end: sets as pytrees, so that `jit`, `vmap` and `grad` take them as arguments."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

from . import _set
from ._project import Info, project, project_with_info

__all__ = ["Info", "project", "project_with_info"]


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

"""Looking at values: what `ConvexSet.check` is made of. Never used under tracing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ._namespace import is_array, is_traced, namespace


def require(set: Any, name: str, expected: str, holds: Callable[[Any, Any], Any]) -> None:
    """Raise a `ValueError` unless `holds(xp, value)` is true for every entry of the field `name`."""
    value = getattr(set, name)
    if is_array(value):
        if is_traced(value):
            return
        xp = namespace(value)
        good = holds(xp, value)
    else:
        xp, good = math, holds(math, value)
    bad = ~good if is_array(good) else not good
    if not (bool(bad.any()) if is_array(bad) else bad):
        return
    first = ""
    if is_array(bad) and bad.ndim and is_array(value) and value.shape == bad.shape:
        where = tuple(int(axis[0]) for axis in xp.nonzero(bad))
        first = f"; received {float(value[where]):.6g} at index {list(where)}"
    elif not is_array(value) or value.ndim == 0:
        first = f"; received {float(value):.6g}"
    raise ValueError(f"{type(set).__name__}({name}=...) must be {expected}{first}")

"""Sets that a GPU projects onto in one kernel, forward and backward, instead of many: written in Triton.

The formulas of the sets are the reference, to which a kernel agrees up to rounding, and what runs where there is none:
on other devices, for other methods, for learned fields, under vmap and torch.func, and for second derivatives. To add
one, write a module with a function like `polytopes.prepared` or `strings.fused` and list it in `KERNELS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._eager.calls import transformed
from .._set import ConvexSet
from .._trust_region import check_policies
from ..sets.ball import Ball
from ..sets.box import Box
from ..sets.ellipsoid import Ellipsoid
from ..sets.gaussian_kl import GaussianKL
from ..sets.lmi import LMI
from ..sets.polytope import Polytope
from ..sets.second_order_cone import SecondOrderCone
from ..sets.simplex import Simplex
from ..sets.strings import Strings
from . import lmis, polytopes, regions, second_order_cones, strings, vectors
from ._operator import Call

KERNELS: dict[type[ConvexSet], Callable[[Any, Any, Any, str, bool], Any]] = {
    Ball: vectors.ball,
    Box: vectors.box,
    Ellipsoid: vectors.ellipsoid,
    GaussianKL: regions.fused,
    LMI: lmis.prepared,
    Polytope: polytopes.prepared,
    SecondOrderCone: second_order_cones.prepared,
    Simplex: vectors.simplex,
    Strings: strings.fused,
}


def fused(set: ConvexSet, x: Any, anchor: Any, method: Any, strict: bool) -> Any:
    """g(x) by one kernel, or None if there is none for this."""
    return projected(set, x, anchor, method, strict) if _apply(set, x, anchor) else None


def prepared(set: ConvexSet, x: Any, anchor: Any, method: Any, strict: bool) -> Any:
    """A `Call` for x and any points like it, or the same as above."""
    return KERNELS[type(set)](set, x, anchor, method, strict) if _apply(set, x, anchor) else None


def projected(set: ConvexSet, x: Any, anchor: Any, method: Any, strict: bool) -> Any:
    """g(x) by the kernels, or None where they do not apply, wherever x is."""
    found = KERNELS[type(set)](set, x, anchor, method, strict)
    return found(x) if isinstance(found, Call) else found


def _apply(set: ConvexSet, x: Any, anchor: Any) -> bool:
    return type(set) in KERNELS and _on_gpu(x) and _on_gpu(anchor) and not (transformed() or _scripted())


def _scripted() -> bool:
    """Whether torch.jit traces, which makes tensors of sizes."""
    return not torch.compiler.is_compiling() and torch._C._get_tracing_state() is not None


def region(new: Any, old: Any, epsilon: float, layout: Any, method: Any, strict: bool) -> Any:
    """The same for the set and the anchor of an old policy."""
    if not _on_gpu(new) or not _on_gpu(old) or transformed() or _scripted():
        return None
    check_policies(new, old, layout)
    return regions.around(new, old, epsilon, layout, old, method, strict)


def _on_gpu(x: Any) -> bool:
    return all([_on_gpu(v) for v in x]) if isinstance(x, tuple) else isinstance(x, Tensor) and x.is_cuda

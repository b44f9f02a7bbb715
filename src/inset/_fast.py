"""The fast paths of torch, in the order in which they are asked: kernels of a GPU, then few operations.

They give the numbers of the formulas up to rounding, or None where they do not apply. This is loaded with the first
tensor of torch that is projected, since it imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import torch

from ._eager import dependent, gaussian, lines, strings

FUSED: list[Callable[..., Any]] = [lines.fused, gaussian.fused, strings.fused, dependent.fused]
"""For g(x), of `(set, x, anchor, method, strict)`."""
PREPARED: list[Callable[..., Any]] = [lines.prepared, gaussian.prepared]
"""For g(x), or for a function of x and of points like it that a layer may call again."""
ANCHORED: list[Callable[..., Any]] = [strings.prepared]
"""For a function of points and of an anchor, which is g(x) or None, that a layer may call again."""
REGIONS: list[Callable[..., Any]] = [gaussian.region]
"""For what a `TrustRegion` returns."""
if torch.version.cuda is not None and find_spec("triton") is not None:
    from ._kernels import fused, prepared, region

    FUSED.insert(0, fused)
    PREPARED.insert(0, prepared)
    REGIONS.insert(0, region)

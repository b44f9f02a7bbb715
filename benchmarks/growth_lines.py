"""What `growth` measures: sets of any size, and the lines along which one size grows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import inset

PASSES = ("forward", "forward + backward")
Problem = tuple[inset.ConvexSet, Tensor, Tensor]


@dataclass(frozen=True)
class Line:
    """A set, and the sizes through which one of its dimensions goes while the others stay."""

    axis: str
    set: str
    sizes: tuple[int, ...]
    slope: int
    """Of the time on logarithmic axes, once arithmetic outweighs calls."""
    batch: int
    n: int
    m: int = 0
    """Constraints of a polytope, dimension of a cone, or side of the matrix of an LMI; 0: n."""

    @property
    def name(self) -> str:
        return f"{self.axis} {self.set}"

    def problem(self, size: int, device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 0) -> Problem:
        """The set, its anchor 0 and points of which most are outside."""
        sizes = replace(self, **{{"batch": "batch", "dimension": "n", "constraints": "m"}[self.axis]: size})
        make = torch.Generator(device).manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=make, device=device, dtype=dtype)

        x = normal(sizes.batch, sizes.n).mul_(2)
        return SETS[self.set](normal, sizes.n, sizes.m or sizes.n), torch.zeros_like(x[0]), x


Normal = Callable[..., Tensor]


def ball(normal: Normal, n: int, m: int) -> inset.ConvexSet:
    return inset.Ball(torch.zeros_like(normal(n)), 1.0)


def box(normal: Normal, n: int, m: int) -> inset.ConvexSet:
    return inset.Box(-1 - normal(n).abs(), 1 + normal(n).abs())


def polytope(normal: Normal, n: int, m: int) -> inset.ConvexSet:
    return inset.Polytope(normal(m, n).div_(math.sqrt(n)), 0.5 + normal(m).abs())


def cone(normal: Normal, n: int, m: int) -> inset.ConvexSet:
    A, b, z = normal(1, m, n).div_(math.sqrt(n)), 0.1 * normal(1, m) / math.sqrt(m), normal(1, n) / n
    return inset.SecondOrderCone(A, b, z, torch.ones_like(b[:, 0]))


def lmi(normal: Normal, n: int, m: int) -> inset.ConvexSet:
    A = normal(n, m, m).div_(math.sqrt(n))
    return inset.LMI((A + A.mT) / 2, -2 * torch.eye(m, dtype=A.dtype, device=A.device))


SETS = {"ball": ball, "box": box, "polytope": polytope, "cone": cone, "lmi": lmi}


def doublings(largest: int, smallest: int = 1) -> tuple[int, ...]:
    """`largest`, half of it, and so on down to `smallest`, rounded up and in rising order."""
    sizes = [largest]
    while sizes[0] > smallest:
        sizes.insert(0, -(-sizes[0] // 2))
    return tuple(sizes)


def lines(quick: bool) -> list[Line]:
    batches, eigen = doublings(2**10 if quick else 2**20), doublings(2**6 if quick else 2**16)
    dimensions, constraints = doublings(2**6 if quick else 2**12, 2), doublings(1000 if quick else 100_000)
    return [
        Line("batch", "ball", batches, 1, 0, 8),
        Line("batch", "box", batches, 1, 0, 8),
        Line("batch", "polytope", batches, 1, 0, 8, 32),
        Line("batch", "cone", batches, 1, 0, 8, 8),
        Line("batch", "lmi", eigen, 1, 0, 8, 4),
        Line("dimension", "ball", dimensions, 1, 256, 0),
        Line("dimension", "box", dimensions, 1, 256, 0),
        Line("dimension", "polytope", dimensions, 2, 256, 0),
        Line("dimension", "cone", dimensions, 2, 256, 0),
        Line("dimension", "lmi", dimensions, 1, 256, 0, 8),
        Line("constraints", "polytope", constraints, 1, 1024, 100),
    ]


#: The largest polytope, measured by itself.
LARGE = Line("constraints", "polytope", (100_000,), 1, 1024, 1000)

"""Reference optima: every program solved to rounding, all parameters in one batch.

On A y = x, y = A^+ x + N z with N a basis of the null space of A. What is left is min f over G N z <= h - G A^+ x: ADMM
with the slack as its second variable, one matrix for all programs and iterations. The sine is replaced by the parabola
above it that touches it where y is, sin(y + d) <= sin(y) + cos(y) d + d^2/2, so that the same iteration serves both.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import inset
from inset.torch import project

from ..common.store import Arrays, StoreError, read_arrays, write_arrays
from .config import VARIANTS, Config
from .problem import Problem, draw

SHIPPED = Path(__file__).with_name("optima.npz")
"""Least values of the benchmark's own programs; `python -m experiments proxy optima` solves them again."""
PARTS = ("validation", "test")
STARTS = 3
"""Random starts from which the nonconvex programs are solved again."""
ITERATIONS, CHECK = 20_000, 100
"""Of ADMM at most, and after how many the residuals are looked at."""
TIGHT = 1e-11
"""Residuals at which a program counts as solved, relative to the sizes of its terms."""
WEIGHT, RELAXATION = 0.1, 1.6


def least_values(problem: Problem, config: Config, device: torch.device) -> Arrays:
    """f* of the validation and the test programs by objective: `convex-test` and so on, shipped or computed."""
    wanted = [(variant, part) for variant in config.variants for part in PARTS]
    shipped = read_arrays(SHIPPED)
    if np.array_equal(shipped["fingerprint"], fingerprint(problem)):
        return {f"{variant}-{part}": shipped[f"{variant}-{part}"] for variant, part in wanted}
    return {
        f"{variant}-{part}": problem.value(solve(problem, getattr(problem, part), variant, device), variant)
        for variant, part in wanted
    }


def optima(folder: Path | None) -> None:
    """Solve the benchmark's programs again, from several starts, and compare; with a folder, write the values there."""
    problem, cpu, found = draw(Config()), torch.device("cpu"), {"fingerprint": fingerprint(draw(Config()))}
    shipped = read_arrays(SHIPPED)
    rng = np.random.default_rng(0)
    for variant in VARIANTS:
        for part in PARTS:
            name, x = f"{variant}-{part}", getattr(problem, part)
            free = x.shape[0], problem.A.shape[1] - problem.A.shape[0]
            starts = [0.0, *(k * rng.standard_normal(free) for k in range(1, STARTS + 1) if variant == "nonconvex")]
            values = [problem.value(solve(problem, x, variant, cpu, start), variant) for start in starts]
            found[name] = np.min(values, axis=0)
            apart = np.abs(values / shipped[name] - 1).max()
            print(f"{name}: mean {found[name].mean():.9f}, {len(starts)} starts within {apart:.1e} of what is shipped")
    if folder is not None:
        write_arrays(folder / SHIPPED.name, found)


def fingerprint(problem: Problem) -> np.ndarray:
    """Numbers that tell problems apart: a few of each array, with the digits that no library disputes."""
    arrays = (problem.Q, problem.p, problem.A[-1], problem.G[-1], problem.h, problem.validation[0], problem.test[-1])
    return np.round([[len(a), a[0], a[-1], a.mean()] for a in arrays], 9)


def solve(
    problem: Problem, x: np.ndarray, variant: str, device: torch.device, start: np.ndarray | float = 0.0
) -> np.ndarray:
    """A feasible y of least f for each row of x: the least of all if f is convex, else of those near the start z."""
    Q, p, A, G, h, inverse = (
        torch.as_tensor(getattr(problem, name), device=device) for name in ("Q", "p", "A", "G", "h", "inverse")
    )
    parameters = torch.as_tensor(x, device=device)
    base = parameters @ inverse.mT
    null = torch.linalg.svd(A)[2][len(A) :].mT
    rows, bound = G @ null, h - base @ G.mT
    curve = Q + p if variant == "nonconvex" else Q
    matrix = torch.linalg.inv(null.mT * curve @ null + WEIGHT * rows.mT @ rows)
    z = torch.as_tensor(start + np.zeros((len(x), null.shape[1])), device=device)
    slack, dual = torch.minimum(z @ rows.mT, bound), torch.zeros_like(bound)
    for k in range(ITERATIONS):
        y = base + z @ null.mT
        slope = p * torch.cos(y) - p * y if variant == "nonconvex" else p
        previous = z
        z = (WEIGHT * (slack - dual) @ rows - (slope + curve * base) @ null) @ matrix
        mixed = RELAXATION * (z @ rows.mT) + (1 - RELAXATION) * slack
        slack, dual = torch.minimum(mixed + dual, bound), torch.clamp(mixed + dual - bound, min=0)
        if k % CHECK == CHECK - 1 and solved(z - previous, z, z @ rows.mT - slack, bound):
            feasible = inset.Polytope(G, h) & inset.Equality(A, parameters, inverse)
            return project(feasible, base + z @ null.mT, base).cpu().numpy()
    raise StoreError(f"proxy: {variant} programs are not solved after {ITERATIONS} iterations")


def solved(step: Tensor, z: Tensor, residual: Tensor, bound: Tensor) -> bool:
    """Whether both the last step and the residual of the slack are small."""
    return bool(step.abs().max() <= TIGHT * (1 + z.abs().max()) and residual.abs().max() <= TIGHT * bound.abs().max())

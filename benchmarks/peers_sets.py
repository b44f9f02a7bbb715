"""The sets on which layers are compared: arrays that every layer is built from, the same ones as a set of inset.

All are drawn from a seed. An anchor lies off the centre, so that no symmetry helps anyone; about four of five points
lie outside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

import inset

Kind = Literal["polytope", "quadratic", "cones", "lmi", "equality", "kl"]
Arrays = dict[str, np.ndarray]
#: A point, or a batch of points: one array, or the mean and the variances of a Gaussian.
Leaves = tuple[np.ndarray, ...]


@dataclass(frozen=True, eq=False)
class Problem:
    """A set as arrays, an anchor in it, and the size of the points that are to be projected."""

    kind: Kind
    arrays: Arrays
    anchor: Leaves
    size: float = 1.0

    def points(self, batch: int, seed: int) -> Leaves:
        """`batch` points around the anchor, at distances that differ by a factor of e from one to the next."""
        draw = np.random.default_rng([seed, batch])
        far = self.size * np.exp(draw.standard_normal((batch, 1)))
        if self.kind == "kl":
            mean, variance = self.anchor
            shift, spread = draw.standard_normal((2, batch, len(mean)))
            return mean + far * shift * np.sqrt(variance), variance * np.exp(np.tanh(far) * spread)
        (anchor,) = self.anchor
        return (anchor + far * draw.standard_normal((batch, len(anchor))),)

    def rounded(self, dtype: type[np.floating]) -> Problem:
        """The same with all numbers rounded to a dtype, which a layer of that dtype gets; still float64."""
        arrays = {name: value.astype(dtype).astype(float) for name, value in self.arrays.items()}
        return Problem(self.kind, arrays, tuple(v.astype(dtype).astype(float) for v in self.anchor), self.size)


def as_set(problem: Problem, dtype: torch.dtype = torch.float64, device: str = "cpu") -> inset.ConvexSet:
    """The set in inset's form."""
    a = {name: tensor(value, dtype, device) for name, value in problem.arrays.items()}
    if problem.kind == "polytope":
        return inset.Polytope(a["A"], a["b"])
    if problem.kind == "equality":
        return inset.Polytope(a["A"], a["b"]) & inset.Equality(a["E"], a["e"])
    if problem.kind == "quadratic":
        pieces = [inset.Quadratic(*terms) for terms in zip(a["P"], a["q"], a["r"], strict=True)]
        return reduce(lambda left, right: left & right, pieces)
    if problem.kind == "cones":
        return inset.SecondOrderCone(a["A"], a["b"], a["z"], a["d"])
    if problem.kind == "lmi":
        return inset.LMI(a["A"], a["C"])
    return inset.GaussianKL(a["mean"], a["variance"], a["epsilon"], average=False)


def as_point(leaves: Leaves, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Any:
    """A point in inset's form: an array, or a tuple of them."""
    moved = [tensor(leaf, dtype, device) for leaf in leaves]
    return tuple(moved) if len(moved) > 1 else moved[0]


def tensor(value: np.ndarray, dtype: torch.dtype = torch.float64, device: str = "cpu") -> Tensor:
    return torch.as_tensor(value).to(device=device, dtype=dtype)


def norm_form(problem: Problem) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """Each quadratic inequality as |F (y - c)| <= rho, for layers that know norms: F^T F = P, c its minimiser."""
    form = []
    for P, q, r in zip(*(problem.arrays[name] for name in ("P", "q", "r")), strict=True):
        c = -np.linalg.solve(P, q)
        form.append((np.linalg.cholesky(P).T, c, float(np.sqrt(c @ P @ c - 2 * r))))
    return form


# -- the draws ---------------------------------------------------------------------------------------------------


def polytope(n: int, m: int, seed: int) -> Problem:
    """Every row touches the unit ball around a centre, so that none is redundant."""
    draw = np.random.default_rng([seed, n, m])
    A, centre = unit(draw.standard_normal((m, n))), draw.standard_normal(n)
    anchor = centre + 0.3 * unit(draw.standard_normal(n))
    return Problem("polytope", {"A": A, "b": A @ centre + 1}, (anchor,))


def equality(n: int, m: int, k: int, seed: int) -> Problem:
    """A polytope with k equations."""
    draw = np.random.default_rng([seed, n, m, k])
    A, E, centre = unit(draw.standard_normal((m, n))), unit(draw.standard_normal((k, n))), draw.standard_normal(n)
    step = draw.standard_normal(n)
    step = step - np.linalg.pinv(E) @ (E @ step)
    arrays = {"A": A, "b": A @ centre + 1, "E": E, "e": E @ centre}
    return Problem("equality", arrays, (centre + 0.3 * unit(step),))


def quadratic(m: int, n: int, seed: int) -> Problem:
    """m ellipsoids of about unit size whose centres are 0.2 from the origin; P is dense."""
    draw = np.random.default_rng([seed, m, n])
    P, rank = np.empty((m, n, n)), min(n, 20)
    for matrix in P:
        factor = draw.standard_normal((n, rank)) / np.sqrt(n)
        np.matmul(factor, factor.T, out=matrix)
        matrix.flat[:: n + 1] += 0.5
    centres = 0.2 * unit(draw.standard_normal((m, n)))
    q = -np.einsum("ijk,ik->ij", P, centres)
    r = -(centres * q).sum(-1) / 2 - 0.5
    arrays = {"P": P, "q": q, "r": r}
    return Problem("quadratic", arrays, (0.1 * unit(draw.standard_normal(n)),), 2 / np.sqrt(n))


def cones(m: int, k: int, n: int, seed: int) -> Problem:
    """m second-order cones |A x + b| <= z.x + d, with k rows in A."""
    draw = np.random.default_rng([seed, m, k, n])
    arrays = {
        "A": draw.standard_normal((m, k, n)) / np.sqrt(k),
        "b": 0.1 * draw.standard_normal((m, k)) / np.sqrt(k),
        "z": 0.5 * unit(draw.standard_normal((m, n))),
        "d": 0.5 + draw.random(m),
    }
    return Problem("cones", arrays, (0.1 * unit(draw.standard_normal(n)),), 1 / np.sqrt(n))


def lmi(n: int, k: int, seed: int) -> Problem:
    """sum_i x_i A_i - C positive semidefinite, k by k, with C = -I at the origin."""
    draw = np.random.default_rng([seed, n, k])
    A = draw.standard_normal((n, k, k)) / np.sqrt(2 * k)
    A = A + A.transpose(0, 2, 1)
    return Problem("lmi", {"A": A, "C": -np.eye(k)}, (0.05 * unit(draw.standard_normal(n)),), 1 / np.sqrt(n))


def kl(d: int, seed: int) -> Problem:
    """Gaussians of d actions within KL 0.1 of an old one, which is the anchor; diagonal covariances."""
    draw = np.random.default_rng([seed, d])
    mean, variance = draw.standard_normal(d), np.exp(0.3 * draw.standard_normal(d))
    return Problem("kl", {"mean": mean, "variance": variance, "epsilon": np.array(0.1)}, (mean, variance), 0.5)


def unit(v: np.ndarray) -> np.ndarray:
    return v / np.linalg.norm(v, axis=-1, keepdims=True)


@dataclass(frozen=True)
class Family:
    """A set to be drawn from a seed."""

    title: str
    kind: Kind
    draw: Callable[[int], Problem]


SETS: dict[str, Family] = {
    "polytope-10-20": Family("polytope, n = 10, m = 20", "polytope", lambda seed: polytope(10, 20, seed)),
    "polytope-50-50": Family("polytope, n = 50, m = 50", "polytope", lambda seed: polytope(50, 50, seed)),
    "polytope-200-400": Family("polytope, n = 200, m = 400", "polytope", lambda seed: polytope(200, 400, seed)),
    "polytope-1000-1000": Family("polytope, n = 1000, m = 1000", "polytope", lambda seed: polytope(1000, 1000, seed)),
    "quadratic-10-100": Family("10 quadratics, n = 100", "quadratic", lambda seed: quadratic(10, 100, seed)),
    "quadratic-100-1000": Family("100 quadratics, n = 1000", "quadratic", lambda seed: quadratic(100, 1000, seed)),
    "cones-10-100": Family("10 cones of 50 rows, n = 100", "cones", lambda seed: cones(10, 50, 100, seed)),
    "lmi-10": Family("LMI, 10 x 10, n = 10", "lmi", lambda seed: lmi(10, 10, seed)),
    "lmi-100": Family("LMI, 100 x 100, n = 100", "lmi", lambda seed: lmi(100, 100, seed)),
    "equality-100": Family(
        "50 equations, 50 inequalities, n = 100", "equality", lambda seed: equality(100, 50, 50, seed)
    ),
    "kl-10": Family("Gaussian KL, 10 actions", "kl", lambda seed: kl(10, seed)),
}

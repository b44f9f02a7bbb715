"""Problems with known optima for the tests of descent: NumPy arrays, a batch of each kind."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import inset
import inset.torch
from cases import convert
from inset import IGD, Radial, SubGD

SOLVERS = (Radial(), IGD(0.05), IGD(0.05, "chord"), IGD(0.05, "ray"), SubGD(0.05), SubGD(0.05, rescale=True))
every_solver = pytest.mark.parametrize("solver", SOLVERS, ids=repr)


class Problems(NamedTuple):
    """Minimise c.x over each set from its anchor; `optimum` is the value of each."""

    c: np.ndarray
    set: Any
    anchor: np.ndarray
    optimum: np.ndarray

    def gap(self, value: Any) -> np.ndarray:
        """(f - f*) / (f(anchor) - f*)."""
        start = (self.c * self.anchor).sum(-1)
        values = np.asarray(value)
        if values.ndim > start.ndim:
            start, optimum = start[:, None], self.optimum[:, None]
        else:
            optimum = self.optimum
        return (values - optimum) / (start - optimum)


def polytopes(count: int, d: int, m: int, seed: int = 0) -> Problems:
    """Random half-spaces around the origin whose optimum is one vertex, solved exactly from its active rows."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    found: list[tuple[Any, ...]] = []
    while len(found) < count:
        A, c = rng.normal(size=(m, d)), rng.normal(size=d)
        A /= np.linalg.norm(A, axis=-1, keepdims=True)
        solved = linprog(c, A, np.ones(m), bounds=(None, None))
        if solved.status == 0:
            active = np.argsort(solved.slack)[:d]
            found.append((A, c, c @ np.linalg.solve(A[active], np.ones(d))))
    A, c, optimum = (np.array(column) for column in zip(*found, strict=True))
    return Problems(c, inset.Polytope(A, np.ones((count, m))), np.zeros((count, d)), optimum)


def balls(count: int, d: int, seed: int = 0) -> Problems:
    """The unit ball: the optimum is -|c|."""
    rng = np.random.default_rng(seed)
    c, anchor = rng.normal(size=(2, count, d))
    anchor *= rng.uniform(0.1, 0.9, size=(count, 1)) / np.linalg.norm(anchor, axis=-1, keepdims=True)
    return Problems(c, inset.Ball(np.zeros(d), 1.0), anchor, -np.linalg.norm(c, axis=-1))


def matrices(count: int, d: int, n: int, seed: int = 0) -> Problems:
    """Linear matrix inequalities with complementary X and Z: c_i = A_i.X, and sum y_i A_i - C = Z at the optimum y."""
    rng = np.random.default_rng(seed)
    found: list[tuple[Any, ...]] = []
    while len(found) < count:
        B = rng.normal(size=(d, n, n))
        A = (B + np.swapaxes(B, -1, -2)) / 2
        Q, _ = np.linalg.qr(rng.normal(size=(n, n)))
        half = n // 2
        X = (Q[:, :half] * rng.uniform(0.5, 1, half)) @ Q[:, :half].T
        Z = (Q[:, half:] * rng.uniform(0.5, 1, n - half)) @ Q[:, half:].T
        y = rng.normal(size=d)
        C, c = np.einsum("i,ijk->jk", y, A) - Z, np.einsum("ijk,jk->i", A, X)
        try:
            anchor = inset.interior_point(inset.LMI(A, C) & inset.Ball(y, 1.0), start=y)
        except inset.AnchorError:
            continue
        found.append((A, C, c, anchor, c @ y))
    A, C, c, anchor, optimum = (np.array(column) for column in zip(*found, strict=True))
    return Problems(c, inset.LMI(A, C), anchor, optimum)


def solve(problems: Problems, solver: Any = None, steps: int = 1000, **options: Any) -> inset.Result:
    """In torch and float64."""
    c, set, anchor = (convert(v, "torch") for v in (problems.c, problems.set, problems.anchor))
    return inset.torch.minimize(c, set, anchor, solver or Radial(), steps, **options)

"""Every set once: what each test file runs over. A new set adds one line to `CASES`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import inset
from inset._fields import map_arrays, map_fields, map_point
from inset._namespace import is_array, namespace

RNG = np.random.default_rng(7)


@dataclass(frozen=True)
class Case:
    """A set of NumPy arrays, a strictly feasible anchor, and how far to throw points from it."""

    name: str
    set: Any
    anchor: Any
    spread: float = 3.0

    def points(self, rng: np.random.Generator, *batch: int, spread: float | None = None) -> Any:
        """Points around the anchor, some inside and most outside."""
        far = (self.spread if spread is None else spread) * np.exp(rng.normal(size=batch))

        def throw(leaf: np.ndarray, k: int) -> np.ndarray:
            shape = leaf.shape[leaf.ndim - k :]
            return leaf + far.reshape(*batch, *(1,) * k) * rng.normal(size=(*batch, *shape))

        return map_point(throw, self.anchor, self.set.event_ndim)

    def __repr__(self) -> str:
        return self.name


def convert(value: Any, framework: str, dtype: str = "float64") -> Any:
    """A point, a set or an array of NumPy in another framework and dtype; indices keep theirs."""
    if isinstance(value, inset.ConvexSet):
        return map_fields(
            value, lambda v, role: convert(v, framework, dtype if role == "array" else "int64") if is_array(v) else v
        )
    if isinstance(value, tuple):
        return tuple(convert(v, framework, dtype) for v in value)
    if framework == "torch":
        import torch

        return torch.as_tensor(np.asarray(value)).to(getattr(torch, dtype))
    if framework == "jax":
        import jax.numpy as jnp

        return jnp.asarray(value, dtype=dtype)
    return np.asarray(value, dtype=dtype)


def to_float64(value: Any) -> Any:
    """A torch set or point with every real array in float64."""
    if isinstance(value, inset.ConvexSet):
        return map_arrays(value, lambda v: v.double())
    return map_point(lambda v: v.double(), value)


def _symmetric(*shape: int) -> np.ndarray:
    X = RNG.normal(size=(*shape, shape[-1]))
    return (X + np.swapaxes(X, -1, -2)) / 2


def _definite(n: int) -> np.ndarray:
    X = RNG.normal(size=(n, n))
    return X @ X.T / n + 0.3 * np.eye(n)


def log_sum_exp(x: Any) -> Any:
    """A smooth convex function that is finite everywhere: log sum exp(x) - 2, shifted against overflow."""
    xp = namespace(x)
    top = xp.max(x, axis=-1, keepdims=True)
    return top[..., 0] + xp.log(xp.sum(xp.exp(x - top), axis=-1)) - 2


def barrier(x: Any) -> Any:
    """Convex where x > -1, NaN elsewhere: sum(-log(1 + x) + x) - 1."""
    xp = namespace(x)
    return xp.sum(x - xp.log(1 + x), axis=-1) - 1


def shifted_norm(x: Any, center: Any) -> Any:
    """Two constraints with a parameter: |x - center|^2 - 1 and sum(x) - 1."""
    xp = namespace(x)
    return xp.stack([xp.sum((x - center) ** 2, axis=-1) - 1, xp.sum(x, axis=-1) - 1], axis=-1)


_A, _b = RNG.normal(size=(7, 4)), RNG.uniform(0.5, 1.5, size=7)
_mean, _variance, _full = RNG.normal(size=(3, 2)), np.array([0.5, 2.0]), _definite(2)
_cone = (RNG.normal(size=(3, 2, 4)), 0.3 * RNG.normal(size=(3, 2)), RNG.normal(size=(3, 4)), RNG.uniform(1, 2, size=3))
_links = np.array([[0, 1], [1, 2], [2, 3], [0, 3]])
_chol = np.linalg.cholesky(_full)
_zero = np.zeros(4)
_off = 0.1 * np.ones(4)

CASES = (
    Case("polytope", inset.Polytope(_A, _b), _zero),
    Case("box", inset.Box(-np.ones(4), np.array([0.5, 1.0, 2.0, np.inf])), _off),
    Case("box-numbers", inset.Box(-0.7, 0.9), _off),
    Case("ball-1", inset.Ball(0.2 * np.ones(4), 1.3, 1), _off),
    Case("ball-2", inset.Ball(0.2 * np.ones(4), 1.3), _off),
    Case("ball-inf", inset.Ball(0.2 * np.ones(4), 1.3, math.inf), _off),
    Case("ellipsoid", inset.Ellipsoid(_off, RNG.normal(size=(4, 4)) + np.eye(4)), _off),
    Case("ellipsoid-diagonal", inset.Ellipsoid(_off, np.array([1.0, 0.5, 2.0, -0.8]), diagonal=True), _off),
    Case("quadratic", inset.Quadratic(_definite(4), 0.3 * RNG.normal(size=4), np.array(-1.5)), _zero),
    Case("paraboloid", inset.Quadratic(np.diag([2.0, 2, 2, 0]), -np.eye(4)[3], 0.0), np.eye(4)[3]),
    Case("second-order-cone", inset.SecondOrderCone(*_cone), _zero),
    Case("psd", inset.PSD(3, floor=0.1), np.eye(3) + 0.1 * _symmetric(3)),
    Case("lmi", inset.LMI(_symmetric(4, 3), -2 * np.eye(3)), _zero),
    Case("spectral-ball", inset.SpectralBall(0.1 * RNG.normal(size=(3, 2)), 1.2), np.zeros((3, 2))),
    Case("exponential-cone", inset.ExponentialCone(), np.array([-1.0, 1.0, 1.2])),
    Case("power-cone", inset.PowerCone(0.3), np.array([1.0, 1.2, 0.1])),
    Case("simplex", inset.Simplex(4, 2.0), np.full(4, 0.5)),
    Case("categorical-entropy", inset.CategoricalEntropy(4, kappa=1.0), np.full(4, 0.25), 0.3),
    Case("gaussian-entropy", inset.GaussianEntropy(2, kappa=1.0), (np.zeros(2), np.array([0.6, 0.7]))),
    Case(
        "gaussian-entropy-full",
        inset.GaussianEntropy(2, kappa=1.0, diagonal=False),
        (np.zeros(2), np.array([[0.6, 0.1], [0.1, 0.7]])),
    ),
    Case(
        "gaussian-entropy-cholesky",
        inset.GaussianEntropy(2, 1.0, diagonal=False, parameterization="cholesky"),
        (np.zeros(2), np.array([[0.8, 0.0], [0.1, 0.9]])),
    ),
    Case(
        "gaussian-entropy-log-std",
        inset.GaussianEntropy(2, 1.0, parameterization="log_std"),
        (np.zeros(2), np.array([0.0, 0.1])),
    ),
    Case("gaussian-kl", inset.GaussianKL(_mean, _variance, 0.05), (_mean, _variance), 0.3),
    Case("gaussian-kl-states", inset.GaussianKL(_mean[0], _variance, 0.05, average=False), (_mean[0], _variance), 0.3),
    Case("gaussian-kl-full", inset.GaussianKL(_mean, _full, 0.05, diagonal=False), (_mean, _full), 0.3),
    Case(
        "gaussian-kl-cholesky",
        inset.GaussianKL(_mean, _chol, 0.05, diagonal=False, parameterization="cholesky"),
        (_mean, _chol),
        0.3,
    ),
    Case(
        "gaussian-kl-std",
        inset.GaussianKL(_mean, _variance, 0.05, parameterization="cholesky"),
        (_mean, _variance),
        0.3,
    ),
    Case(
        "gaussian-kl-log-std",
        inset.GaussianKL(_mean, np.log(_variance), 0.05, parameterization="log_std"),
        (_mean, np.log(_variance)),
        0.3,
    ),
    Case("strings", inset.Strings(_links, np.array([1.0, 0.8, 1.2, 1.5])), 0.1 * RNG.normal(size=(4, 2))),
    Case("sublevel", inset.Sublevel(log_sum_exp, finite=True), _zero),
    Case("sublevel-domain", inset.Sublevel(barrier), _zero),
    Case("sublevel-parameters", inset.Sublevel(shifted_norm, (_off,)), _zero),
    Case("intersection", inset.Polytope(_A, _b) & inset.Ball(_off, 1.0) & inset.Box(-np.ones(4), np.ones(4)), _zero),
    Case("equality", inset.Polytope(_A, _b) & inset.Equality(np.ones((1, 4)), np.array([0.2])), 0.05 * np.ones(4)),
    Case("product", inset.Product((inset.Ball(_zero, 1.0), inset.PSD(2))), (_off, np.eye(2))),
)

#: Sets whose feasibility is certified in float64 as well as in the working dtype: all but user functions.
CERTIFIED = tuple(case for case in CASES if not case.name.startswith("sublevel"))


def repeats_the_chord(case: Case, method: str) -> bool:
    """Whether the method runs the very code of the chord: `paper` for one constraint, `ray` where all are affine."""
    if isinstance(case.set, inset.Product):
        return False
    parts = getattr(case.set, "parts", (case.set,))
    if method == "ray":
        return all(part.affine for part in parts)
    return method == "paper" and case.set.constraints(case.anchor).shape[-1] == 1

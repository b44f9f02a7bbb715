"""The random instances: five classes of the paper and LinB, all of the form min c.x over a set, with an anchor x0.

Each `draw_...` makes a chunk of candidates, as arrays with the instance first: the fields of the set, the objective
`c`, the `anchor` and an `optimum`, which is known by construction (Lin, SDP, Norm) or computed (`optima.py`). A
candidate with NaN in its anchor or optimum is drawn again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cvxpy
import numpy as np

from .config import Config
from .optima import OMEGA, exp_optimum, soc_optimum, solved, vertex

Arrays = dict[str, np.ndarray]
Random = np.random.Generator

CHUNK = 32
"""Candidates drawn at a time."""


def sample(name: str, config: Config) -> Arrays:
    """The first `config.instances` good candidates of a class; the i-th does not depend on how many are asked for."""
    kept: list[Arrays] = []
    count = chunk = 0
    while count < config.instances:
        rng = np.random.default_rng([config.seed, list(DRAW).index(name), chunk])
        arrays = DRAW[name](rng, config)
        good = np.isfinite(arrays["anchor"]).all(-1) & np.isfinite(arrays["optimum"]).all(-1)
        kept.append({key: value[good] for key, value in arrays.items()})
        count, chunk = count + int(good.sum()), chunk + 1
        if chunk > 10 + count:
            raise RuntimeError(f"{name}: {count} of {chunk * CHUNK} candidates can be used, with these sizes too few")
    return {key: np.concatenate([part[key] for part in kept])[: config.instances] for key in kept[0]}


def sphere(rng: Random, *shape: int) -> np.ndarray:
    """Points uniform on the unit sphere of the last axis."""
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def ball(rng: Random, *shape: int) -> np.ndarray:
    """Points uniform in the unit ball of the last axis."""
    return sphere(rng, *shape) * rng.random((*shape[:-1], 1)) ** (1 / shape[-1])


def feasible_ball(rng: Random, d: int, h: Callable[[np.ndarray], np.ndarray], tries: int = 10_000) -> np.ndarray:
    """Points uniform in the unit ball, each drawn again until h < 0; NaN after so many tries."""
    x = np.full((CHUNK, d), np.nan)
    for _ in range(tries):
        again = np.isnan(x[:, 0])
        if not again.any():
            break
        fresh = np.where(again[:, None], ball(rng, CHUNK, d), x)
        x = np.where((h(fresh) < 0)[:, None], fresh, np.nan)
    return x


def draw_lin(rng: Random, config: Config) -> Arrays:
    """A x <= 0 with a_1 = -c, and the other rows turned so that c stays feasible: the optimal value is 0."""
    d = config.lin_dimension
    c = sphere(rng, CHUNK, d)
    rows = sphere(rng, CHUNK, config.lin_constraints - 1, d)
    rows = np.where(rows @ c[:, :, None] > 0, -rows, rows)
    A = np.concatenate([-c[:, None], rows], axis=1)
    anchor = feasible_ball(rng, d, lambda x: (A @ x[:, :, None])[..., 0].max(-1))
    return {"A": A, "b": np.zeros(A.shape[:2]), "c": c, "anchor": anchor, "optimum": np.zeros_like(c)}


def draw_linb(rng: Random, config: Config) -> Arrays:
    """A x <= 1 with random unit rows, so that the unit ball is inside; those with one optimal vertex are kept."""
    d = config.lin_dimension
    A, c = sphere(rng, CHUNK, config.linb_constraints, d), sphere(rng, CHUNK, d)
    b = np.ones(A.shape[:2])
    anchor = feasible_ball(rng, d, lambda x: ((A @ x[:, :, None])[..., 0] - b).max(-1))
    optimum = np.stack([vertex(c[i], A[i], b[i]) for i in range(CHUNK)])
    return {"A": A, "b": b, "c": c, "anchor": anchor, "optimum": optimum}


def draw_norm(rng: Random, config: Config) -> Arrays:
    """|x| <= 1, with optimum -c."""
    d = config.norm_dimension
    c = sphere(rng, CHUNK, d)
    return {"c": c, "anchor": feasible_ball(rng, d, lambda x: np.linalg.norm(x, axis=-1) - 1), "optimum": -c}


def draw_exp(rng: Random, config: Config) -> Arrays:
    """|x - b|^2 / 2 + sum exp(x_i - b_i) <= d with b_i = W(1), so that the left side is least at 0."""
    d = config.exp_dimension
    c = sphere(rng, CHUNK, d)
    return {"c": c, "anchor": feasible_ball(rng, d, exponential), "optimum": exp_optimum(c)}


def exponential(x: Any) -> Any:
    """|x - b|^2 / 2 + sum exp(x_i - b_i) - d for arrays of any framework."""
    xp = x.__array_namespace__()
    v = x - OMEGA
    return xp.sum(v * v / 2 + xp.exp(v), axis=-1) - x.shape[-1]


def draw_sdp(rng: Random, config: Config) -> Arrays:
    """sum x_i A_i - C positive semidefinite, with optimum y by construction.

    X and Z are the positive and negative parts of a random symmetric matrix, so X Z = 0. With C = sum y_i A_i - Z and
    c_i = <A_i, X>, y is feasible with slack Z, and c.x - c.y = <X, sum x_i A_i - C> >= 0 for every feasible x.
    """
    d, k = config.sdp_dimension, config.sdp_size
    A = symmetric(rng.standard_normal((CHUNK, d, k, k)))
    values, V = np.linalg.eigh(symmetric(rng.standard_normal((CHUNK, k, k))))
    X, Z = (V * np.maximum(s * values, 0)[:, None] @ V.mT for s in (1, -1))
    y = rng.standard_normal((CHUNK, d))
    C = symmetric(np.einsum("ni,nijk->njk", y, A) - Z)
    anchor = np.stack([deepest(A[i], Z[i], y[i], config.sdp_depth) for i in range(CHUNK)])
    return {"A": A, "C": C, "c": config.sdp_objective * np.einsum("nijk,njk->ni", A, X), "anchor": anchor, "optimum": y}


def deepest(A: np.ndarray, Z: np.ndarray, y: np.ndarray, depth: float) -> np.ndarray:
    """The x within 1 of y with the largest lambda_min(Z + sum (x_i - y_i) A_i); NaN if that is below `depth`."""
    u, t = cvxpy.Variable(len(A)), cvxpy.Variable()
    slack = Z + cvxpy.reshape(A.reshape(len(A), -1).T @ u, Z.shape, order="C")
    if solved(cvxpy.Problem(cvxpy.Maximize(t), [slack >> t * np.eye(len(Z)), cvxpy.norm(u) <= 1])):
        assert u.value is not None
        if np.linalg.eigvalsh(Z + np.tensordot(u.value, A, 1))[0] >= depth:
            return y + u.value
    return np.full(len(A), np.nan)


def symmetric(B: np.ndarray) -> np.ndarray:
    """(B + B^T) / 2."""
    return (B + B.mT) / 2


def draw_soc(rng: Random, config: Config) -> Arrays:
    """|A_i x + b_i| <= z_i.x + d_i, with d_i such that a random unit vector is on the boundary of every cone.

    From that point, 100 steps of Adam on the largest constraint lead to the anchor.
    """
    n, m, k = config.soc_dimension, config.soc_constraints, config.soc_rows
    c, x = sphere(rng, CHUNK, n), sphere(rng, CHUNK, n)
    A = rng.standard_normal((CHUNK, m, k, n))
    b, z = rng.standard_normal((CHUNK, m, k)), rng.standard_normal((CHUNK, m, n))
    d = np.linalg.norm(image(A, b, x), axis=-1) - (z @ x[:, :, None])[..., 0]
    anchor = adam(lambda x: soc_slope(A, b, z, d, x)[1], x, steps=100, rate=1e-2)
    anchor = np.where((soc_slope(A, b, z, d, anchor)[0] < 0)[:, None], anchor, np.nan)
    optimum = np.stack([soc_optimum(c[i], A[i], b[i], z[i], d[i]) for i in range(CHUNK)])
    return {"A": A, "b": b, "z": z, "d": d, "c": c, "anchor": anchor, "optimum": optimum}


def image(A: np.ndarray, b: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A_i x + b_i for every instance and i."""
    return (A @ x[:, None, :, None])[..., 0] + b


def soc_slope(
    A: np.ndarray, b: np.ndarray, z: np.ndarray, d: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """h(x) = max_i |A_i x + b_i| - z_i.x - d_i and the gradient of the largest term."""
    v = image(A, b, x)
    size = np.linalg.norm(v, axis=-1)
    values = size - (z @ x[:, :, None])[..., 0] - d
    at = (np.arange(len(x)), values.argmax(-1))
    return values[at], ((v[at] / size[at][:, None])[:, None] @ A[at])[:, 0] - z[at]


def adam(slope: Callable[[np.ndarray], np.ndarray], x: np.ndarray, steps: int, rate: float) -> np.ndarray:
    """x after so many steps of Adam with its usual constants."""
    mean, square = np.zeros_like(x), np.zeros_like(x)
    for k in range(1, steps + 1):
        g = slope(x)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        x = x - rate * (mean / (1 - 0.9**k)) / (np.sqrt(square / (1 - 0.999**k)) + 1e-8)
    return x


DRAW: dict[str, Callable[[Random, Config], Arrays]] = {
    "Lin": draw_lin,
    "SDP": draw_sdp,
    "SOC": draw_soc,
    "Norm": draw_norm,
    "Exp": draw_exp,
    "LinB": draw_linb,
}
"""The paper's five classes in its order, and ours."""

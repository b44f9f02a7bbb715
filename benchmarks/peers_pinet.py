"""Pi-net's layer (`pinet-hcnn`, JAX): the nearest point by operator splitting, with its defaults and tuned."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch

from .peers_calls import JaxLayer
from .peers_sets import Problem, as_point, as_set, norm_form

STEPS, BACKWARD, SIGMA, OMEGA = 100, 5, 1.0, 1.7  # the library's own defaults
EQUILIBRATION = 25  # what its authors scale by in their experiments; by default they do not
#: Tuning takes the step size of least violation after `PILOT` iterations, and goes on by `CHUNK` until `GOAL`.
SIGMAS, PILOT, CHUNK, MOST, GOAL, TUNED_BACKWARD = (0.03, 0.1, 0.3, 1.0, 3.0), 50, 25, 800, 1e-6, 25
SAMPLES, SEED = 512, 1_000  # the points that tuning looks at


def default(problem: Problem, dtype: torch.dtype, device: str) -> JaxLayer:
    """Pi-net with every default of the library."""
    double = dtype == torch.float64
    return JaxLayer(_project(_layer(problem, 0, double), SIGMA, STEPS, BACKWARD), double)


def tuned(problem: Problem, dtype: torch.dtype, device: str) -> JaxLayer:
    """Pi-net with the step size of least violation, and as many iterations as bring it below `GOAL`."""
    import jax

    double = dtype == torch.float64
    layer = _layer(problem, EQUILIBRATION, double)
    with jax.enable_x64(double):
        (points,) = problem.points(SAMPLES, SEED)
        begun = {sigma: _begin(layer, jax.numpy.asarray(points), sigma) for sigma in SIGMAS}
        sigma = min(SIGMAS, key=lambda sigma: _violation(problem, begun[sigma][0]))
        y, advance = begun[sigma]
        steps = PILOT
        while steps < MOST and _violation(problem, y) > GOAL:
            y, steps = advance(), steps + CHUNK
    return JaxLayer(_project(layer, sigma, steps, TUNED_BACKWARD), double)


def _begin(layer: Any, x: Any, sigma: float) -> tuple[np.ndarray, Any]:
    """What `PILOT` iterations lead to, and a function that makes `CHUNK` more and says where they lead."""
    state: Any = None
    given = _instance(layer, x)

    def advance() -> np.ndarray:
        nonlocal state
        start = layer.initialize(given) if state is None else state
        options = {"n_iter": CHUNK, "n_iter_bwd": TUNED_BACKWARD, "fpi": False}
        y, state = layer.call(y_raw=given, s0=start, sigma=sigma, omega=OMEGA, **options)
        return np.asarray(y.x[..., 0])

    return [advance() for _ in range(PILOT // CHUNK)][-1], advance


def _violation(problem: Problem, y: np.ndarray) -> float:
    worst = float(as_set(problem).h(as_point((y,))).max())
    if problem.kind == "equality":
        worst = max(worst, float(abs(y @ problem.arrays["E"].T - problem.arrays["e"]).max()))
    return worst if worst == worst else np.inf


def _instance(layer: Any, x: Any) -> Any:
    """Points as Pi-net takes them: columns, with the norms, which it asks for in every call."""
    pinet: Any = importlib.import_module("pinet")
    norms = [constraint.spec for constraint in layer.nl_constraints or ()]
    return pinet.ProjectionInstance(x=x[..., None], nl=norms or None)


def _project(layer: Any, sigma: float, steps: int, backward: int) -> Any:
    def function(x: Any) -> Any:
        options = {"n_iter": steps, "n_iter_bwd": backward, "fpi": False}
        y, _ = layer.call(y_raw=_instance(layer, x), sigma=sigma, omega=OMEGA, **options)
        return y.x[..., 0]

    return function


def _layer(problem: Problem, equilibration: int, double: bool) -> Any:
    """The set in Pi-net's words: affine inequalities, equalities and norms."""
    import jax

    pinet: Any = importlib.import_module("pinet")
    with jax.enable_x64(double):
        scaling = pinet.EquilibrationParams(max_iter=equilibration)
        return pinet.Project(**_constraints(problem, pinet, jax.numpy), unroll=False, equilibration_params=scaling)


def _constraints(problem: Problem, pinet: Any, jnp: Any) -> dict[str, Any]:
    a = problem.arrays

    def norm(A: np.ndarray, b: np.ndarray, slope: np.ndarray, bound: float) -> Any:
        """|A y + b| <= slope.y + bound; also without a slope, where its own type for that case fails in `Project`."""
        A, b, slope = jnp.asarray(A)[None], jnp.asarray(b)[None, :, None], jnp.asarray(slope)[None, None]
        bounds = jnp.full((1, 1, 1), bound)
        spec = pinet.NonLinearSpecification(nl_type=pinet.SOCType, a_mat=A, a=b, f=slope, b=bounds)
        return pinet.NonLinearConstraint(spec=spec)

    if problem.kind == "quadratic":
        return {"nl_constraints": [norm(F, -F @ c, np.zeros_like(c), rho) for F, c, rho in norm_form(problem)]}
    if problem.kind == "cones":
        terms = zip(a["A"], a["b"], a["z"], a["d"], strict=True)
        return {"nl_constraints": [norm(*term) for term in terms]}
    upper = jnp.asarray(a["b"])[None, :, None]
    lower = jnp.full_like(upper, -jnp.inf)
    found = {"ineq_constraint": pinet.AffineInequalityConstraint(c_mat=jnp.asarray(a["A"])[None], lb=lower, ub=upper)}
    if problem.kind == "equality":
        E, e = jnp.asarray(a["E"])[None], jnp.asarray(a["e"])[None, :, None]
        found["eq_constraint"] = pinet.EqualityConstraint(a_mat=E, b=e, method=None)
    return found

"""The same network with the layer of Pi-net (`pinet-hcnn`), in JAX."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .config import Config
from .methods import Settings
from .network import first_weights, forward
from .problem import Problem, objective

Apply = Callable[[Any, Any], Any]
MOMENTUM, MEMORY, FLOOR = 0.9, 0.999, 1e-8
"""Adam's usual constants."""


def pinet_layer(problem: Problem, config: Config) -> Apply:
    """Pi-net's projection with the settings that its authors tuned for this problem."""
    pinet: Any = importlib.import_module("pinet")
    equal = pinet.EqualityConstraint(
        a_mat=jnp.asarray(problem.A)[None], b=jnp.asarray(problem.train[:1, :, None]), method=None, var_b=True
    )
    upper = jnp.asarray(problem.h)[None, :, None]
    below = pinet.AffineInequalityConstraint(
        c_mat=jnp.asarray(problem.G)[None], lb=jnp.full_like(upper, -jnp.inf), ub=upper
    )
    scaling = pinet.EquilibrationParams(
        max_iter=config.pinet_equilibration, tol=1e-3, ord=2.0, col_scaling=False, update_mode="Gauss", safeguard=False
    )
    layer = pinet.Project(eq_constraint=equal, ineq_constraint=below, unroll=False, equilibration_params=scaling)

    def apply(raw: Any, x: Any) -> Any:
        equality = pinet.EqualityConstraintsSpecification(b=x[..., None])
        projected, _ = layer.call(
            y_raw=pinet.ProjectionInstance(x=raw[..., None], eq=equality),
            sigma=config.pinet_sigma,
            omega=config.pinet_omega,
            n_iter=config.pinet_steps,
            n_iter_bwd=config.pinet_backward,
            fpi=False,
        )
        return projected.x[..., 0]

    return apply


class JaxTrainee:
    """A network, a layer and Adam, jitted, in float64; see `methods.Trainee`."""

    def __init__(
        self, problem: Problem, config: Config, variant: str, settings: Settings, seed: int, layer: Any = pinet_layer
    ) -> None:
        with jax.enable_x64(True):
            apply: Apply = layer(problem, config)
            Q, p, A, inverse = map(jnp.asarray, (problem.Q, problem.p, problem.A, problem.inverse))
            self.data = jnp.asarray(problem.train)
            self.weights: Any = jax.tree.map(jnp.asarray, first_weights(config, seed))
            self.moments: Any = jax.tree.map(jnp.zeros_like, (self.weights, self.weights))
        self.count = 0
        sine = jnp.sin if variant == "nonconvex" else None

        def answer(weights: Any, x: Any) -> Any:
            return apply(forward(weights, x, jax.nn.relu), x)

        def loss(weights: Any, x: Any) -> Any:
            if not settings.pull:
                return objective(answer(weights, x), Q, p, sine).mean()
            raw = forward(weights, x, jax.nn.relu)
            raw = raw - (raw @ A.T - x) @ inverse.T
            y = apply(raw, x)
            return objective(y, Q, p, sine).mean() + settings.pull * ((raw - y) ** 2).sum(-1).mean()

        def step(weights: Any, moments: Any, x: Any, rate: Any, count: Any) -> Any:
            return adam(weights, moments, jax.grad(loss)(weights, x), rate, count)

        self.answer, self.slope, self.step = jax.jit(answer), jax.jit(jax.grad(loss)), jax.jit(step)

    def update(self, rows: np.ndarray, rate: float) -> None:
        self.count += 1
        with jax.enable_x64(True):
            self.weights, self.moments = self.step(self.weights, self.moments, self.data[rows], rate, self.count)

    def predict(self, x: np.ndarray) -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(self.answer(self.weights, jnp.asarray(x)))

    def prepare(self, count: int, backward: bool) -> Callable[[], None]:
        with jax.enable_x64(True):
            x = self.data[:count]

        def timed() -> None:
            with jax.enable_x64(True):
                jax.block_until_ready((self.slope if backward else self.answer)(self.weights, x))

        return timed

    def wait(self) -> None:
        jax.block_until_ready(self.weights)


def adam(weights: Any, moments: Any, slope: Any, rate: Any, count: Any) -> tuple[Any, Any]:
    """The weights and the two moments after one step of Adam."""
    mean = jax.tree.map(lambda m, g: MOMENTUM * m + (1 - MOMENTUM) * g, moments[0], slope)
    square = jax.tree.map(lambda s, g: MEMORY * s + (1 - MEMORY) * g * g, moments[1], slope)

    def move(w: Any, m: Any, s: Any) -> Any:
        return w - rate * (m / (1 - MOMENTUM**count)) / (jnp.sqrt(s / (1 - MEMORY**count)) + FLOOR)

    return jax.tree.map(move, weights, mean, square), (mean, square)

"""`polytope_head.py` in JAX: the set is an argument of a jitted function.

    python examples/jax_twin.py

Sets are pytrees, so `jit`, `grad` and `vmap` take them like any other argument: another polytope of the same shape
needs no new compilation, and `grad` with respect to the set gives the gradient of each of its fields.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

import inset
from inset import Ball, ConvexSet, Polytope
from inset.jax import project

Params = list[tuple[jax.Array, jax.Array]]


def init(key: jax.Array, sizes: tuple[int, ...] = (1, 64, 64, 2)) -> Params:
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        (jax.random.normal(k, (m, n)) / m**0.5, jnp.zeros(n)) for k, m, n in zip(keys, sizes, sizes[1:], strict=False)
    ]


@jax.jit
def predict(params: Params, safe: ConvexSet, anchor: jax.Array, x: jax.Array) -> jax.Array:
    *hidden, (W, b) = params
    for V, c in hidden:
        x = jnp.tanh(x @ V + c)
    return project(safe, x @ W + b, anchor)


def loss(params: Params, safe: ConvexSet, anchor: jax.Array, x: jax.Array, target: jax.Array) -> jax.Array:
    return jnp.square(predict(params, safe, anchor, x) - target).sum(1).mean()


@jax.jit
def train_step(
    params: Params, safe: ConvexSet, anchor: jax.Array, x: jax.Array, target: jax.Array
) -> tuple[Params, jax.Array]:
    value, gradient = jax.value_and_grad(loss)(params, safe, anchor, x, target)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), value


def main(steps: int = 400) -> float:
    A = jnp.array([[1.0, 1.0], [-1.0, 0.5], [0.0, -1.0]])
    b = jnp.array([1.0, 1.3, 0.8])
    safe = Polytope(A, b) & Ball(jnp.zeros(2), radius=1.4)
    anchor = inset.interior_point(safe)  # once, outside of jit

    angle = jnp.linspace(-jnp.pi, jnp.pi, 256)[:, None]
    target = jnp.concatenate([1.6 * jnp.cos(angle), jnp.sin(angle)], axis=1)
    params = init(jax.random.key(0))
    worst = -jnp.inf
    for step in range(steps + 1):
        if step % (steps // 4) == 0:
            y = predict(params, safe, anchor, angle)
            worst = max(worst, safe.h(y).max().item())
            print(f"step {step:4d}   loss {jnp.square(y - target).sum(1).mean():.4f}   max h(y) {safe.h(y).max():+.2e}")
        params, _ = train_step(params, safe, anchor, angle, target)

    by_field = jax.jit(jax.grad(loss, argnums=1))(params, safe, anchor, angle, target)
    print(f"d loss / d b of the polytope: {by_field.parts[0].b.round(3)}")
    print(f"largest h(y): {worst:+.2e}  ({'never violated' if worst <= 0 else 'VIOLATED'})")
    return float(worst)


if __name__ == "__main__":
    main()

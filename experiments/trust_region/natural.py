"""Natural gradient, and the line search back to the old policy that every method ends with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .policy import SPREAD, Parameters
from .problem import Problems

SHORTEST = 1e-6
"""Where the line search gives up: the new policy is then the old one."""


def natural_gradient(problems: Problems, epsilon: float, iterations: int, damping: float, every: int = 1) -> Parameters:
    """old + sqrt(2 epsilon / x.Fx) x with Fx = g: the best for a gain that is linear and a KL that is quadratic.

    F is estimated from every so many states.
    """
    leaves = {name: p.detach().requires_grad_() for name, p in problems.old.items()}
    gradient = grad(problems.gain(leaves), leaves)
    fisher = fisher_product(problems, every)
    x = conjugate_gradient(lambda v: add(fisher(v), v, damping), gradient, iterations)
    scale = torch.sqrt(2 * epsilon / dot(x, fisher(x)).clamp(min=1e-30))
    return move(problems.old, x, scale)


def fisher_product(problems: Problems, every: int = 1) -> Callable[[Parameters], Parameters]:
    """v -> F v with F = E[J^T S^-1 J] for the mean, J its derivative, and 2 for each log-std: the Hessian of the KL."""
    spread = problems.old[SPREAD]
    flat = {name: p for name, p in problems.old.items() if name != SPREAD}
    weights = problems.weights
    if every > 1:
        weights = weights * (torch.arange(weights.shape[1], device=weights.device) % every == 0)
        weights = weights / weights.sum(-1, keepdim=True)

    def means(parameters: Parameters) -> Tensor:
        return problems.policy.mean(parameters, problems.features)

    pull_back = torch.func.vjp(means, flat)[1]

    def product(v: Parameters) -> Parameters:
        moved = torch.func.jvp(means, (flat,), ({name: v[name] for name in flat},))[1]
        (back,) = pull_back(moved * torch.exp(-2 * spread) * weights[..., None])
        return {**back, SPREAD: 2 * v[SPREAD]}

    return product


def conjugate_gradient(product: Callable[[Parameters], Parameters], b: Parameters, iterations: int) -> Parameters:
    """An approximate solution of A x = b for each problem."""
    x = {name: torch.zeros_like(v) for name, v in b.items()}
    residual, direction = dict(b), dict(b)
    size = dot(residual, residual)
    for _ in range(iterations):
        image = product(direction)
        step = size / dot(direction, image).clamp(min=1e-30)
        x, residual = add(x, direction, step), add(residual, image, -step)
        before, size = size, dot(residual, residual)
        direction = add(residual, direction, size / before.clamp(min=1e-30))
    return x


def search(problems: Problems, new: Parameters, epsilon: float, factor: float) -> Parameters:
    """old + t (new - old) with the first t of 1, factor, factor^2, ... at which the mean KL is at most epsilon."""
    difference = add(new, problems.old, -1.0)
    t = torch.ones_like(problems.weights[:, 0])
    while True:
        trial = move(problems.old, difference, t)
        far = ~(problems.kl(trial) <= epsilon)  # NaN is too far
        if not far.any():
            return trial
        t = torch.where(far, torch.where(t < SHORTEST, 0.0, t * factor), t)


def move(old: Parameters, direction: Parameters, t: Tensor) -> Parameters:
    """old + t direction; exactly old at t = 0, whatever the direction."""
    where = (t > 0)[:, None, None]
    return {n: torch.where(where, p + t[:, None, None] * direction[n], p) for n, p in old.items()}


def grad(values: Tensor, leaves: Parameters) -> Parameters:
    """The gradient of each value with respect to its own parameters."""
    gradients = torch.autograd.grad(values.sum(), list(leaves.values()))
    return dict(zip(leaves, gradients, strict=True))


def dot(a: Parameters, b: Parameters) -> Tensor:
    """The inner product of each problem's parameters."""
    return torch.stack([(a[name] * b[name]).sum((-2, -1)) for name in a]).sum(0)


def add(a: Parameters, b: Parameters, scale: Tensor | float) -> Parameters:
    """a + scale b."""
    scale = scale[:, None, None] if isinstance(scale, Tensor) else scale
    return {name: a[name] + scale * b[name] for name in a}

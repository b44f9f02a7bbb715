"""A policy trained with `inset.torch.TrustRegion`, in one file: roll-outs, advantages, update, value network.

Each batch of transitions makes one problem: maximise the weighted advantage, with a mean KL to the old policy of at
most epsilon. Adam solves it on mini-batches, through the layer (`through_layer`). What the layer promises is about what
it returns, and the network alone may be further away; so the step of the parameters is shortened until the network
itself, on all states, is in the trust region (`shorten`). `natural_gradient` is the same with the step of TRPO.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from inset.torch import TrustRegion

Gaussian = tuple[Tensor, Tensor]
"""Means `(N, d)` and one log_std `(d,)`."""


@dataclass(frozen=True)
class Settings:
    """The numbers of a run: those of TRPO in rl-baselines3-zoo, but for those of Adam and `shrink`."""

    discount: float
    normalize: bool
    """Whether observations and rewards are divided by their running deviation."""
    critic_epochs: int
    cg_steps: int
    """Of conjugate gradient, for natural gradient."""
    epochs: int
    """Of Adam through the layer, for the policy. Few, with a small rate, where advantages are noisy."""
    rate: float
    spread_rate: float
    """Of Adam for log_std. Few epochs with the small rate of the network would hardly move it."""
    minibatch: int = 256
    shrink: float = 0.9
    """By how much a step that is too long is shortened at a time."""
    epsilon: float = 0.01
    """Bound of the mean KL of an update."""
    trace: float = 0.95
    """Lambda of generalised advantage estimation."""
    environments: int = 2
    horizon: int = 1024
    """Steps of each environment between updates."""
    critic_batch: int = 128
    critic_rate: float = 1e-3
    cg_damping: float = 0.1

    @property
    def batch(self) -> int:
        return self.environments * self.horizon


SETTINGS = {
    "Pendulum-v1": Settings(0.9, False, critic_epochs=15, cg_steps=15, epochs=20, rate=1e-3, spread_rate=1e-3),
    "BipedalWalker-v3": Settings(0.99, True, critic_epochs=20, cg_steps=25, epochs=4, rate=3e-4, spread_rate=3e-3),
}


# -- networks -------------------------------------------------------------------------------------------


def network(inputs: int, outputs: int, last: float) -> nn.Sequential:
    """Two hidden layers of 64, orthogonal weights; `last` scales the weights of the output."""
    sizes, gains = (inputs, 64, 64, outputs), (2**0.5, 2**0.5, last)
    layers: list[nn.Module] = []
    for i, gain in enumerate(gains):
        linear = nn.Linear(sizes[i], sizes[i + 1])
        nn.init.orthogonal_(linear.weight, gain)
        nn.init.zeros_(linear.bias)
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


class Policy(nn.Module):
    """States -> (means, log_std)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mean = network(inputs, outputs, 0.01)
        self.log_std = nn.Parameter(torch.zeros(outputs))

    def forward(self, states: Tensor) -> Gaussian:
        return self.mean(states), self.log_std


def normal(policy: Gaussian) -> Normal:
    return Normal(policy[0], policy[1].exp())


def mean_kl(new: Gaussian, old: Gaussian) -> Tensor:
    """KL(new | old), the mean over states."""
    return kl_divergence(normal(new), normal(old)).sum(-1).mean()


# -- data -----------------------------------------------------------------------------------------------


class Running:
    """Mean and variance of all rows so far; 0 and 1 before the first."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean, self.variance, self.count = np.zeros(shape), np.ones(shape), 0

    def add(self, rows: np.ndarray) -> None:
        total, shift = self.count + len(rows), rows.mean(0) - self.mean
        spread = self.variance * self.count + rows.var(0) * len(rows) + shift**2 * self.count * len(rows) / total
        self.mean, self.variance, self.count = self.mean + shift * len(rows) / total, spread / total, total


@dataclass
class Batch:
    """What an update sees, `(N, ...)`, targets for the values, and how the episodes went that ended meanwhile."""

    states: Tensor
    actions: Tensor
    advantages: Tensor
    targets: Tensor
    returns: list[float]
    """Undiscounted, as the environment gives them."""


def make_environment(name: str) -> gymnasium.Env[np.ndarray, np.ndarray]:
    with warnings.catch_warnings():  # Box2D's wrappers use what Python deprecates
        warnings.simplefilter("ignore", DeprecationWarning)
        return gymnasium.make(name)


class Sampler:
    """Several environments side by side, never reset but at the end of an episode."""

    def __init__(self, name: str, seed: int, settings: Settings) -> None:
        self.settings = settings
        self.environments = [make_environment(name) for _ in range(settings.environments)]
        box: Any = self.environments[0].action_space
        self.low, self.high = box.low, box.high
        seeds = range(settings.environments * seed, settings.environments * (seed + 1))
        self.raw = np.stack([env.reset(seed=k)[0] for env, k in zip(self.environments, seeds, strict=True)])
        self.seen, self.scale = Running(self.raw.shape[1:]), Running(())
        self.totals, self.discounted = np.zeros(len(seeds)), np.zeros(len(seeds))

    def show(self, states: np.ndarray) -> Tensor:
        """States as the networks see them; the statistics stay the same within a batch."""
        if self.settings.normalize:
            states = ((states - self.seen.mean) / np.sqrt(self.seen.variance + 1e-8)).clip(-10, 10)
        return torch.as_tensor(states, dtype=torch.float32)

    @torch.no_grad()
    def collect(self, policy: Policy, critic: nn.Module) -> Batch:
        """`horizon` steps of each environment, and their advantages."""
        s, width = self.settings, len(self.environments)
        raw = np.zeros((s.horizon, *self.raw.shape), np.float32)
        rewards, bootstrap = np.zeros((s.horizon, width)), np.zeros((s.horizon, width))
        ends, discounted = np.zeros((s.horizon, width), bool), np.zeros((s.horizon, width))
        actions, returns = [], []
        for k in range(s.horizon):
            raw[k] = self.raw
            actions.append(normal(policy(self.show(self.raw))).sample())
            for i, (env, action) in enumerate(zip(self.environments, actions[-1].numpy(), strict=True)):
                state, reward, terminated, truncated, _ = env.step(action.clip(self.low, self.high))
                rewards[k, i], ends[k, i] = reward, terminated or truncated
                self.totals[i] += float(reward)
                discounted[k, i] = self.discounted[i] = s.discount * self.discounted[i] + float(reward)
                if ends[k, i]:
                    if not terminated:  # the time limit is no end of the world: its value counts
                        bootstrap[k, i] = critic(self.show(state)).item()
                    returns.append(float(self.totals[i]))
                    self.totals[i] = self.discounted[i] = 0.0
                    state, _ = env.reset()
                self.raw[i] = state
        self.scale.add(discounted.reshape(-1))
        if s.normalize:
            rewards = (rewards / np.sqrt(self.scale.variance + 1e-8)).clip(-10, 10)
        states = self.show(raw)
        values = critic(torch.cat([states, self.show(self.raw)[None]]))[..., 0].double().numpy()
        advantages = estimate_advantages(rewards + s.discount * bootstrap, ends, values, s)
        self.seen.add(raw.reshape(-1, *raw.shape[2:]))
        advantages, targets = (torch.as_tensor(v).float().flatten() for v in (advantages, advantages + values[:-1]))
        return Batch(states.flatten(0, 1), torch.cat(actions), advantages, targets, returns)


def estimate_advantages(rewards: np.ndarray, ends: np.ndarray, values: np.ndarray, s: Settings) -> np.ndarray:
    """sum_l (discount trace)^l (r + discount V(s') - V(s)), cut at the end of an episode; arrays are (time, env)."""
    follows = ~ends
    errors = rewards + s.discount * values[1:] * follows - values[:-1]
    result, running = np.zeros_like(errors), np.zeros(errors.shape[1])
    for k in reversed(range(len(errors))):
        running = errors[k] + s.discount * s.trace * running * follows[k]
        result[k] = running
    return result


# -- the update -----------------------------------------------------------------------------------------


def through_layer(policy: Policy, batch: Batch, old: Gaussian, s: Settings) -> None:
    """Adam on mini-batches; the loss sees the policy that is in the trust region."""
    region = TrustRegion(s.epsilon)
    before = normal(old).log_prob(batch.actions).sum(-1)
    spread = {"params": [policy.log_std], "lr": s.spread_rate}
    optimizer = torch.optim.Adam([{"params": policy.mean.parameters()}, spread], s.rate)
    for rows in minibatches(len(batch.states), s.minibatch, s.epochs):
        new = region(policy(batch.states[rows]), (old[0][rows], old[1]))
        ratio = (normal(new).log_prob(batch.actions[rows]).sum(-1) - before[rows]).exp()
        optimizer.zero_grad()
        (-ratio * batch.advantages[rows]).mean().backward()
        optimizer.step()


def natural_gradient(policy: Policy, batch: Batch, old: Gaussian, s: Settings) -> None:
    """old + sqrt(2 epsilon / x.Fx) x with (F + damping) x = g, the step of TRPO; F is the Hessian of the mean KL."""
    parameters = list(policy.parameters())
    new = policy(batch.states)
    ratio = (normal(new).log_prob(batch.actions) - normal(old).log_prob(batch.actions)).sum(-1).exp()
    g = flat(torch.autograd.grad((ratio * batch.advantages).mean(), parameters, retain_graph=True))
    slope = flat(torch.autograd.grad(mean_kl(new, old), parameters, create_graph=True))

    def product(v: Tensor) -> Tensor:
        return flat(torch.autograd.grad(slope @ v, parameters, retain_graph=True)) + s.cg_damping * v

    x, residual, direction = torch.zeros_like(g), g.clone(), g.clone()
    for _ in range(s.cg_steps):
        image, size = product(direction), residual @ residual
        if size < 1e-10:
            break
        step = size / (direction @ image)
        x, residual = x + step * direction, residual - step * image
        direction = residual + (residual @ residual) / size * direction
    length = torch.sqrt(2 * s.epsilon / (x @ product(x)).clamp(min=1e-30))
    vector_to_parameters(parameters_to_vector(parameters).detach() + length * x, parameters)


def flat(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


@torch.no_grad()
def shorten(policy: Policy, start: Tensor, batch: Batch, old: Gaussian, s: Settings) -> tuple[float, float]:
    """start + t (new - start), t = 1, shrink, ...: the first in the trust region that gains. Its mean KL and gain."""
    end, t = parameters_to_vector(policy.parameters()), 1.0
    before = normal(old).log_prob(batch.actions).sum(-1)
    while t > 1e-3:
        vector_to_parameters(start + t * (end - start), policy.parameters())
        new = policy(batch.states)
        kl = mean_kl((new[0].double(), new[1].double()), (old[0].double(), old[1].double())).item()
        ratio = (normal(new).log_prob(batch.actions).sum(-1) - before).exp()
        gain = (ratio * batch.advantages).mean().item()
        if kl <= s.epsilon and gain > 0:  # the gain of the old policy is 0: advantages have mean 0
            return kl, gain
        t *= s.shrink
    vector_to_parameters(start, policy.parameters())
    return 0.0, 0.0


def minibatches(count: int, size: int, epochs: int) -> Iterator[Tensor]:
    for _ in range(epochs):
        yield from torch.randperm(count).split(size)


UPDATES: dict[str, Callable[[Policy, Batch, Gaussian, Settings], None]] = {
    "trust_region": through_layer,
    "natural": natural_gradient,
}


def improve(policy: Policy, batch: Batch, s: Settings, update: str) -> tuple[float, float]:
    """One update of the policy, made in place; returns the mean KL to the old one and the gain."""
    batch.advantages = (batch.advantages - batch.advantages.mean()) / (batch.advantages.std() + 1e-8)
    mean, log_std = policy(batch.states)
    old, start = (mean.detach(), log_std.detach().clone()), parameters_to_vector(policy.parameters()).detach().clone()
    UPDATES[update](policy, batch, old, s)
    return shorten(policy, start, batch, old, s)


def train(name: str, update: str, seed: int, updates: int, s: Settings) -> Iterator[tuple[list[float], float, float]]:
    """A whole run; after each batch the returns of the episodes that ended in it, the KL of the update and its gain."""
    torch.manual_seed(seed)
    sampler = Sampler(name, seed, s)
    states, actions = sampler.raw.shape[1], len(sampler.low)
    policy, critic = Policy(states, actions), network(states, 1, 1.0)
    optimizer = torch.optim.Adam(critic.parameters(), s.critic_rate)
    for _ in range(updates):
        batch = sampler.collect(policy, critic)
        kl, gain = improve(policy, batch, s, update)
        for rows in minibatches(len(batch.states), s.critic_batch, s.critic_epochs):
            loss = (critic(batch.states[rows])[:, 0] - batch.targets[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        yield batch.returns, kl, gain

"""Runs of natural gradient on BipedalWalker: every update is a problem, and is stored before it is made."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..common.store import Arrays, StoreError, partial_file, write_arrays
from .config import Config, key
from .natural import natural_gradient, search
from .policy import SPREAD, begin_linear, begin_network
from .problem import pack, stack

ENVIRONMENT = "BipedalWalker-v3"
"""The paper's v2 is retired; in v3 a lidar ray sees the nearest thing and not the furthest."""
LOOKED_AT = 500
"""States of a random policy, whose distances are the bandwidth of the random features."""
VALUE_EPOCHS, VALUE_RATE, VALUE_BATCH = 5, 1e-3, 256


def make_environment() -> Any:
    """The environment, or a message that says what to install."""
    try:
        with warnings.catch_warnings():  # Box2D's wrappers use what Python deprecates, and crash where that is an error
            warnings.simplefilter("ignore", DeprecationWarning)
            import gymnasium

            return gymnasium.make(ENVIRONMENT, disable_env_checker=True)
    except (ImportError, gymnasium_errors()) as error:
        raise StoreError(
            f"trust_region: {ENVIRONMENT} needs gymnasium and Box2D: pip install 'gymnasium[box2d]' ({error})"
        ) from None


def gymnasium_errors() -> type[Exception]:
    """What gymnasium raises if Box2D is missing."""
    try:
        from gymnasium.error import DependencyNotInstalled
    except ImportError:
        return ImportError
    return DependencyNotInstalled


def problem_file(folder: Path, policy: str, run: int, update: int) -> Path:
    return folder / "instances" / f"{key(policy, run)}-{update:04d}.npz"


def problem_files(folder: Path, policy: str, run: int) -> list[Path]:
    """The problems of a run, in order."""
    return sorted((folder / "instances").glob(f"{key(policy, run)}-*.npz"))


def collect(policy: str, run: int, config: Config, folder: Path) -> None:
    """Play a run to its end, from its last update if it was interrupted."""
    torch.set_num_threads(1)
    player = Player(policy, run, config, folder / f"{key(policy, run)}.pt")
    while player.steps < config.steps:
        episodes = player.play()
        problem = player.problem(episodes)
        write_arrays(problem_file(folder, policy, run, player.update), problem)
        player.improve(problem, episodes)
        player.save()


class Episode:
    """What happened from a reset to the end."""

    def __init__(self) -> None:
        self.states: list[np.ndarray] = []
        self.actions: list[np.ndarray] = []
        self.rewards: list[float] = []
        self.last: np.ndarray | None = None
        """The state after the last step if it was cut off by the time limit, None if it ended."""


class Player:
    """A run: its policy, its values, how far it is. All of it is on disk after each update."""

    def __init__(self, policy: str, run: int, config: Config, checkpoint: Path) -> None:
        self.config, self.checkpoint, self.seed = config, checkpoint, config.seed + run
        space = make_environment()
        d, actions = space.observation_space.shape[0], space.action_space.shape[0]
        random = np.random.default_rng([self.seed, 0])
        if policy == "linear":
            fixed, parameters = begin_linear(self.look_around(random), actions, config.features, random)
        else:
            fixed, parameters = begin_network(d, actions, config.width, random)
        self.fixed: Arrays = fixed
        self.parameters: Arrays = parameters
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            layers = [nn.Linear(d, config.width), nn.Tanh(), nn.Linear(config.width, config.width), nn.Tanh()]
            self.values = nn.Sequential(*layers, nn.Linear(config.width, 1))
        self.optimizer = torch.optim.Adam(self.values.parameters(), lr=VALUE_RATE)
        self.update = self.steps = 0
        if checkpoint.exists():
            self.restore()

    def look_around(self, random: np.random.Generator) -> np.ndarray:
        """Some states, with random actions."""
        environment = make_environment()
        state, _ = environment.reset(seed=self.seed)
        states = []
        for _ in range(LOOKED_AT):
            states.append(state)
            state, _, ended, cut, _ = environment.step(random.uniform(-1, 1, 4).astype(np.float32))
            if ended or cut:
                state, _ = environment.reset()
        return np.stack(states)

    def act(self, state: np.ndarray) -> np.ndarray:
        """The mean action."""
        p = self.parameters
        if self.fixed:
            return np.sin(state @ self.fixed["frequencies"] + self.fixed["phases"][0]) @ p["matrix"] + p["offset"][0]
        x = np.tanh(state @ p["weight0"] + p["bias0"][0])
        return np.tanh(x @ p["weight1"] + p["bias1"][0]) @ p["weight2"] + p["bias2"][0]

    def play(self) -> list[Episode]:
        """Whole episodes, with at least `config.batch` steps."""
        random = np.random.default_rng([self.seed, 1, self.update])
        std = np.exp(self.parameters[SPREAD][0])
        environment = make_environment()  # a new one: the world of Box2D remembers what happened before a reset
        state, _ = environment.reset(seed=int(random.integers(2**31)))
        episodes = [Episode()]
        steps = 0
        while True:
            noise = random.standard_normal(len(std), dtype=np.float32)
            action = (self.act(state) + std * noise).astype(np.float32)
            episodes[-1].states.append(state)
            episodes[-1].actions.append(action)
            state, reward, ended, cut, _ = environment.step(action.clip(-1, 1))
            episodes[-1].rewards.append(float(reward))
            steps += 1
            if ended or cut:
                episodes[-1].last = None if ended else state
                if steps >= self.config.batch:
                    return episodes
                episodes.append(Episode())
                state, _ = environment.reset()

    def problem(self, episodes: list[Episode]) -> Arrays:
        """The update that is to be made, with advantages of mean 0 and variance 1."""
        advantages = np.concatenate([self.advantages(e) for e in episodes])
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        states, actions = (np.stack([v for e in episodes for v in getattr(e, n)]) for n in ("states", "actions"))
        problem = pack(self.fixed, self.parameters, states, actions, advantages.astype(np.float32))
        return problem | {"returns": np.asarray([sum(e.rewards) for e in episodes])}

    @torch.no_grad()
    def predicted(self, episode: Episode) -> np.ndarray:
        """The values of the states of an episode, and of the one after it."""
        values = self.values(torch.from_numpy(np.stack(episode.states)))[:, 0].double().numpy()
        last = 0.0 if episode.last is None else float(self.values(torch.from_numpy(episode.last)))
        return np.append(values, last)

    def advantages(self, episode: Episode) -> np.ndarray:
        """Generalised advantage estimation: sum_l (discount trace)^l (r + discount V(s') - V(s))."""
        values, c = self.predicted(episode), self.config
        errors = np.asarray(episode.rewards) + c.discount * values[1:] - values[:-1]
        result, running = np.zeros_like(errors), 0.0
        for k in reversed(range(len(errors))):
            running = errors[k] + c.discount * c.trace * running
            result[k] = running
        return result

    def improve(self, problem: Arrays, episodes: list[Episode]) -> None:
        """Natural gradient for the policy, then regression for the values, on what they should have been."""
        c, problems = self.config, stack([problem], torch.device("cpu"))
        targets = np.concatenate([self.advantages(e) + self.predicted(e)[:-1] for e in episodes])
        new = natural_gradient(problems, c.epsilon, c.conjugate, c.damping)
        new = search(problems, new, c.epsilon, c.factors[0])
        self.parameters = {name: p[0].numpy() for name, p in new.items()}
        self.fit(torch.from_numpy(problem["states"]), torch.from_numpy(targets.astype(np.float32)))
        self.update += 1
        self.steps += len(problem["states"])

    def fit(self, states: Tensor, targets: Tensor) -> None:
        """A few epochs of regression."""
        random = torch.Generator().manual_seed(self.seed + 1_000_003 * self.update)
        for _ in range(VALUE_EPOCHS):
            for rows in torch.randperm(len(states), generator=random).split(VALUE_BATCH):
                loss = (self.values(states[rows])[:, 0] - targets[rows]).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()

    def save(self) -> None:
        state = {
            "update": self.update,
            "steps": self.steps,
            "parameters": {name: torch.from_numpy(p) for name, p in self.parameters.items()},
            "values": self.values.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        partial = partial_file(self.checkpoint)
        torch.save(state, partial)
        partial.replace(self.checkpoint)

    def restore(self) -> None:
        state: dict[str, Any] = torch.load(self.checkpoint, weights_only=True)
        self.update, self.steps = state["update"], state["steps"]
        self.parameters = {name: p.numpy() for name, p in state["parameters"].items()}
        self.values.load_state_dict(state["values"])
        self.optimizer.load_state_dict(state["optimizer"])

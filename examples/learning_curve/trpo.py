"""The outside reference: TRPO of sb3-contrib, with the settings that rl-baselines3-zoo tuned for these environments."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from .train import make_environment

ENVIRONMENTS = 2
TUNED: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {"gamma": 0.9, "n_critic_updates": 15, "use_sde": True, "sde_sample_freq": 4},
    "BipedalWalker-v3": {"gamma": 0.99, "n_critic_updates": 20, "cg_max_steps": 25},
}
"""In hyperparams/trpo.yml of the zoo. What it leaves to sb3-contrib is left to it here."""
SHARED: dict[str, Any] = {
    "n_steps": 1024,
    "batch_size": 128,
    "gae_lambda": 0.95,
    "cg_damping": 0.1,
    "learning_rate": 1e-3,
    "target_kl": 0.01,
}
"""In that file for one environment, and the default of sb3-contrib for the other."""
BATCH = ENVIRONMENTS * SHARED["n_steps"]
NORMALIZED = ("BipedalWalker-v3",)
"""Where the zoo divides observations and rewards by their running deviation."""


def settings(name: str) -> dict[str, Any]:
    """All that differs from the defaults of sb3-contrib, or might."""
    return {**SHARED, **TUNED[name], "n_envs": ENVIRONMENTS, "normalize": name in NORMALIZED}


def packages() -> tuple[Any, Any, Any]:
    """TRPO, what watches an environment, and what runs several; or a message that says what to install."""
    try:
        with warnings.catch_warnings():  # its warnings are not about this program
            warnings.simplefilter("ignore")
            monitor = import_module("stable_baselines3.common.monitor").Monitor
            return import_module("sb3_contrib").TRPO, monitor, import_module("stable_baselines3.common.vec_env")
    except ImportError as error:
        raise SystemExit(
            f"--method trpo is the one of sb3-contrib: pip install -e '.[examples]' ({error}); "
            "trust_region and natural need no more than torch and gymnasium"
        ) from None


def train(name: str, seed: int, updates: int) -> Iterator[tuple[list[float], float, float]]:
    """As our own `train`: after each update the returns of the episodes that ended before it, its KL and its gain."""
    trpo, monitor, vector = packages()
    environment = vector.DummyVecEnv([lambda: monitor(make_environment(name))] * ENVIRONMENTS)
    if name in NORMALIZED:
        environment = vector.VecNormalize(environment, gamma=TUNED[name]["gamma"])
    model = trpo("MlpPolicy", environment, seed=seed, device="cpu", **SHARED, **TUNED[name])
    returns: list[float] = []

    def watch(local: dict[str, Any], _: dict[str, Any]) -> bool:
        returns.extend(info["episode"]["r"] for info in local["infos"] if "episode" in info)
        return True

    for _ in range(updates):
        returns.clear()
        model.learn(BATCH, callback=watch, reset_num_timesteps=False)  # one roll-out, one update
        values = model.logger.name_to_value
        yield list(returns), values["train/kl_divergence_loss"], values["train/policy_objective"]

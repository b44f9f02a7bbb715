"""Testing a model, and the committed weights: `python -m experiments strings evaluate` rolls them out again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ..common import places
from ..common.progress import say
from ..common.store import Arrays, Store, StoreError
from .config import Config, key
from .model import PAST, VARIANTS, Dynamics, build, distance, rollout
from .simulator import simulate, split

KEPT = ("plain", "strings")
"""Models whose best weights are committed."""
BEHIND = ("strings", "nearest")
"""Models whose layer is also tried behind the weights of `plain`."""


@torch.no_grad()
def score(model: Dynamics, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The mean distance and the worst violation along each trajectory `(..., n, steps, 7, 2)`, and the rollouts.

    The model sees the first three positions. A violation is what the longest string is over the length that the
    layer has, computed in float64; it is 0 where no string is too long.
    """
    target = torch.tensor(truth, device=model.scales.device)
    path = rollout(model, target[..., :PAST, :, :], target.shape[-3] - PAST)
    error = distance(path, target[..., PAST:, :, :])
    over = model.strings.constraints(path.double()).amax((-2, -1))
    return error.cpu().numpy(), over.clamp(min=0).cpu().numpy(), path.cpu().numpy()


def pack(model: Dynamics) -> Arrays:
    """The parameters in half precision."""
    return {name: p.detach().cpu().numpy().astype(np.float16) for name, p in model.named_parameters()}


def unpack(name: str, model: str, arrays: Arrays, train: np.ndarray, config: Config) -> Dynamics:
    """The model of an object with parameters in half precision, ready to be used."""
    dynamics = build(name, model, train, config)
    with torch.no_grad():
        for key, p in dynamics.named_parameters():
            p.copy_(torch.from_numpy(arrays[key].astype(np.float32)))
    return dynamics.eval()


def evaluate(folder: Path | None) -> None:
    """Print the error and the worst violation of the kept weights on the test trajectories, simulated again.

    The weights of `plain` are also rolled out with layers behind them that they were not trained with.
    """
    store = Store.read(folder) if folder else places.latest("strings", quick=False)
    config = store.config(Config)
    kept = {name: [m for m in KEPT if store.has(f"{key(name, m)}-weights")] for name in config.objects}
    if not any(kept.values()):
        raise StoreError(f"{store.folder}: no weights here; make them with\n  python -m experiments strings run")
    say(f"weights of {store.folder}, test trajectories of seed {config.seed}")
    head = f"{'object':<10} {'weights':<8} {'layer':<8} {'error':>7} {'std':>6} {'in training':>12}"
    print(f"{head} {'worst violation':>16}")
    for name in filter(kept.get, config.objects):
        parts = split(simulate(name, config), config)
        for model, used in [(m, m) for m in kept[name]] + [("plain", m) for m in BEHIND if "plain" in kept[name]]:
            member = unpack(name, used, store.load(f"{key(name, model)}-weights"), parts["train"], config)
            error, violation, _ = score(member, parts["test"])
            before = store.load(key(name, model))
            then = f"{before['test'][int(before['kept'])].mean():.3f}" if used == model else "-"
            row = f"{name:<10} {model:<8} {VARIANTS[used].layer:<8} {error.mean():>7.3f} {error.std():>6.3f} {then:>12}"
            print(f"{row} {violation.max():>16.3g}", flush=True)

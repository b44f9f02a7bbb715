"""Both ways to use the interpolation g, from the anchor, step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

import inset

from ..common.progress import Progress
from ..common.store import Store
from .config import CELL, Config

Map = Callable[[torch.Tensor], torch.Tensor]


def run(config: Config, out: Path) -> None:
    """Write the iterates of both methods, before and after g, and the optimum."""
    store = Store.create(out, "stall", config)
    progress = Progress("stall", 1)
    normal, anchor = (torch.tensor(v, dtype=torch.float64) for v in (config.normal, config.anchor))
    offset = torch.tensor([config.offset], dtype=torch.float64)
    set = inset.Polytope(normal[None], offset)

    def g(x: torch.Tensor) -> torch.Tensor:
        return inset.project(set, x, anchor, method="paper", strict=False)

    if not store.has(CELL):
        left = as_in_pgd(g, anchor, config.step, config.steps)
        right = composition(g, anchor, config.step, config.steps)
        optimum = normal * offset / normal.square().sum()  # the point of the line a.x = b that is nearest to 0
        paths = {"pgd_steps": left[0], "pgd": left[1], "composition": right[0], "composition_projected": right[1]}
        store.save(CELL, {name: path.numpy() for name, path in (*paths.items(), ("optimum", optimum))})
    progress.advance(CELL)
    store.finish()


def f(x: torch.Tensor) -> torch.Tensor:
    """The sphere function |x|^2."""
    return x.square().sum()


def as_in_pgd(g: Map, x: torch.Tensor, step: float, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x <- g(x - step grad f(x)): the points before g and the iterates, both from the start on."""
    before, after = [x], [x]
    for _ in range(steps):
        y = x - step * torch.func.grad(f)(x)
        x = g(y)
        before.append(y)
        after.append(x)
    return torch.stack(before), torch.stack(after)


def composition(g: Map, x: torch.Tensor, step: float, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
    """x <- x - step grad (f o g)(x): the iterates and their projections g(x)."""
    iterates = [x]
    for _ in range(steps):
        x = x - step * torch.func.grad(lambda x: f(g(x)))(x)
        iterates.append(x)
    path = torch.stack(iterates)
    return path, g(path)

"""One model in training: its windows, its updates by back-propagation through time, its validation, its state."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
import torch._dynamo
from torch import Tensor

from ..common.graphs import replayed
from .config import Config
from .model import PAST, Dynamics, build, distance, rollout
from .objects import shape
from .simulator import FALL, split

START = 0.25
"""Share of the windows that begin where the trajectory begins, as the test does."""
CLIP = 1.0
"""Largest norm of the gradient of one model."""
REACH = 0.25
"""Of `bounded`, in units of the number of steps unrolled over the number of windows."""
MEMORY = 0.999
"""Of the running average of the weights, which is what is validated and kept."""
BLOCK = 16
"""Batches that are drawn at once."""


class Trainee:
    """One model of one object, in `config.seeds` copies that are trained side by side."""

    def __init__(
        self,
        name: str,
        variant: str,
        trajectories: np.ndarray,
        config: Config,
        device: torch.device,
        compiled: bool = False,
    ) -> None:
        self.name, self.variant, self.config, self.device = name, variant, config, device
        parts = split(trajectories, config)
        self.paths = torch.from_numpy(turned(name, parts["train"], config)).to(device)
        self.validation = torch.from_numpy(parts["validation"]).to(device)
        self.model = build(name, variant, parts["train"], config, config.seeds).to(device)
        self.model.initialise([torch.Generator().manual_seed(config.seed + k) for k in range(config.seeds)])
        self.names, self.parameters = zip(*self.model.named_parameters(), strict=True)
        self.average = [p.detach().clone() for p in self.parameters]
        self.best = [p.detach().clone() for p in self.parameters]
        self.score = torch.full((config.seeds,), math.inf, device=device)
        """Validation error of the best weights."""
        self.rate = torch.zeros((), device=device)
        cuda = device.type == "cuda"
        self.optimizer = torch.optim.Adam(self.parameters, lr=self.rate, fused=True, capturable=cuda)
        self.loss = torch.zeros(config.seeds, device=device)
        self._begin_optimizer()
        self.stream = torch.cuda.Stream() if cuda else None
        self._errors: Callable[[], Tensor] | None = None
        self.step = self.bounded_call
        if compiled:
            torch._dynamo.config.recompile_limit = 64  # all models share the code that is compiled
            self.step = torch.compile(self.bounded_call, dynamic=False)

    def _begin_optimizer(self) -> None:
        """Give the optimizer its state now: a graph on a GPU reads and writes tensors that are there."""
        for p in self.parameters:
            p.grad = torch.zeros_like(p)
        self.optimizer.step()
        for value in self.moments():
            value.zero_()

    def moments(self) -> list[Tensor]:
        """The optimizer's counts and running means."""
        return [value for p in self.parameters for value in self.optimizer.state[p].values()]

    def engage(self, stage: int) -> None:
        """Use the layer, if the model has one and the stage is late enough."""
        self.model.engaged = self.model.variant.layer != "none" and stage >= self.config.layer_from

    def sample(self, stage: int, block: int) -> Tensor:
        """Windows for the next updates, `(BLOCK, seeds, batch, 3 + horizon, 7, 2)`; asked again, the same ones."""
        horizon, batch = self.config.horizons[stage], self.config.batch
        last = self.paths.shape[1] - PAST - horizon
        drawn = []
        for k in range(self.config.seeds):
            random = np.random.default_rng([self.config.seed + k, stage, block])
            which = random.integers(len(self.paths), size=(BLOCK, batch))
            first = random.integers(last + 1, size=(BLOCK, batch)) * (random.random((BLOCK, batch)) >= START)
            drawn.append(np.stack([which, first]))
        which, first = torch.from_numpy(np.stack(drawn, axis=2)).to(self.device)
        return self.paths[which[..., None], first[..., None] + torch.arange(PAST + horizon, device=self.device)]

    def update(self, windows: Tensor) -> Tensor:
        """One step of Adam on the mean distance along the windows, `(seeds, batch, 3 + horizon, 7, 2)`."""
        # leaves of its own for every update: a graph cannot be captured around those of another stream
        leaves = {name: p.detach().requires_grad_() for name, p in zip(self.names, self.parameters, strict=True)}
        start = windows[..., :PAST, :, :].detach().requires_grad_()  # or the first steps would be compiled apart
        horizon = windows.shape[-3] - PAST
        limit = torch.full((), REACH * horizon / self.config.batch, device=self.device)
        path = rollout(lambda past: self.step(leaves, past, limit), start, horizon)
        loss = distance(path, windows[..., PAST:, :, :]).mean(-1)
        gradients = torch.autograd.grad(loss.sum(), list(leaves.values()))
        with torch.no_grad():
            norm = torch.stack([g.square().sum((-2, -1)) for g in gradients]).sum(0).sqrt()
            scale = (CLIP / norm).clamp(max=1)[:, None, None]
            for p, g in zip(self.parameters, gradients, strict=True):
                p.grad = torch.where(scale > 0, g * scale, 0.0)  # an update that overflows is left out
            self.optimizer.step()
            for mean, p in zip(self.average, self.parameters, strict=True):
                mean.lerp_(p, 1 - MEMORY)
            self.loss.copy_(loss)
        return self.loss

    def validate(self) -> list[float]:
        """The error along whole validation trajectories, for each seed; the best weights so far are kept.

        The layer is there, also where training is still without it.
        """
        engaged, self.model.engaged = self.model.engaged, self.model.variant.layer != "none"
        self.model.eval()
        if self._errors is None:
            self._errors = replayed(self.errors, self.stream)
        with torch.cuda.stream(self.stream), torch.no_grad():
            error = self._errors()
            better = error < self.score
            for old, new in zip(self.best, self.average, strict=True):
                old.copy_(torch.where(better[:, None, None], new, old))
            self.score.copy_(torch.where(better, error, self.score))
            self.model.train().engaged = engaged
            return error.tolist()

    @torch.no_grad()
    def errors(self) -> Tensor:
        """The validation error of the averaged weights, infinite where a rollout overflows."""
        leaves = dict(zip(self.names, self.average, strict=True))
        truth = self.validation.expand(self.config.seeds, *self.validation.shape)
        path = rollout(lambda past: self.call(leaves, past), truth[..., :PAST, :, :], truth.shape[-3] - PAST)
        return distance(path, truth[..., PAST:, :, :]).mean(-1).nan_to_num(nan=math.inf)

    def call(self, leaves: dict[str, Tensor], past: Tensor) -> Tensor:
        """The next positions, by the model with other parameters than its own."""
        return torch.func.functional_call(self.model, leaves, (past,))

    def bounded_call(self, leaves: dict[str, Tensor], past: Tensor, limit: Tensor) -> Tensor:
        """The same, for training: the gradient with respect to each window's positions at one step is limited.

        Along hundreds of steps through a layer with a kink it would grow beyond any number.
        """
        return bounded(self.call(leaves, past), limit)

    def follow(self, leader: Trainee) -> None:
        """Go on from where another trainee is."""
        for name in ("parameters", "average", "moments"):
            for mine, theirs in zip(self.tensors()[name], leader.tensors()[name], strict=True):
                mine.copy_(theirs)
        self.loss.copy_(leader.loss)

    def tensors(self) -> dict[str, list[Tensor]]:
        """Everything that training goes on from."""
        return {
            "parameters": [p.data for p in self.parameters],
            "average": self.average,
            "best": self.best,
            "moments": self.moments(),
            "score": [self.score],
        }

    def state(self) -> dict[str, list[Tensor]]:
        """A copy of it, to be saved."""
        return {name: [t.clone() for t in values] for name, values in self.tensors().items()}

    def restore(self, state: dict[str, list[Tensor]]) -> None:
        """Go back to it, in place."""
        for name, values in self.tensors().items():
            for mine, saved in zip(values, state[name], strict=True):
                mine.copy_(saved)

    def trained(self) -> Dynamics:
        """The models with the weights that validated best, ready to be used."""
        with torch.no_grad():
            for mine, best in zip(self.parameters, self.best, strict=True):
                mine.copy_(best)
        self.engage(len(self.config.horizons))
        return self.model.eval()


class Bounded(torch.autograd.Function):
    """The identity, with another backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, limit: Tensor) -> Tensor:
        ctx.save_for_backward(limit)
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (gradient,), (limit,) = gradients, ctx.saved_tensors
        norm = gradient.square().sum((-2, -1), keepdim=True).sqrt()
        return torch.where(norm.isfinite(), gradient * (limit / norm.clamp(min=limit)), 0.0), None


def bounded(x: Tensor, limit: Tensor) -> Tensor:
    """x `(..., 7, 2)`; of the gradient that comes back, each sample has at most the norm `limit`, or is 0 if infinite.

    >>> x = torch.ones(2, 1, 2, requires_grad=True)
    >>> y = bounded(x, torch.tensor(5.0)) * torch.tensor([[[3.0, 4.0]], [[30.0, 40.0]]])
    >>> torch.autograd.grad(y.sum(), x)[0].tolist()
    [[[3.0, 4.0]], [[3.0, 4.0]]]
    """
    return cast(Tensor, Bounded.apply(x, limit))


def worth_compiling(config: Config, device: torch.device) -> bool:
    """On a GPU; on a CPU if it has a C++ compiler and there is enough to do."""
    if device.type == "cuda":
        return True
    steps = sum(h * u for h, u in zip(config.horizons, config.updates, strict=True))
    return steps > 100_000 and shutil.which("g++") is not None


def turned(name: str, trajectories: np.ndarray, config: Config) -> np.ndarray:
    """The trajectories after every rotation and reflection that the object does not notice.

    Falling aside, they are what the simulator gives for a kick that is turned as well.
    """
    k = np.arange(trajectories.shape[1])
    falling = np.zeros((len(k), 1, 2))
    falling[..., 1] = config.height + FALL * (k + 1)[:, None] * (k + 2)[:, None] / 2
    centred = trajectories - falling
    images = [centred[:, :, order] @ matrix.T + falling for order, matrix in shape(name).symmetries()]
    return np.concatenate(images).astype(np.float32)

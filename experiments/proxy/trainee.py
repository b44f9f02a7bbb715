"""The network with a layer of `inset`, or with a penalty, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import inset
from inset.torch import Projection

from .config import Config
from .methods import Method, Settings
from .network import first_weights, forward
from .problem import Problem, objective


class TorchTrainee:
    """A network, its layer and its optimiser; see `methods.Trainee`."""

    def __init__(
        self,
        problem: Problem,
        config: Config,
        variant: str,
        method: Method,
        settings: Settings,
        seed: int,
        device: torch.device,
    ) -> None:
        self.dtype, self.device, self.settings = getattr(torch, method.dtype), device, settings
        self.Q, self.p, self.A, self.G, self.h, self.inverse, self.data = (
            self.tensor(getattr(problem, name)) for name in ("Q", "p", "A", "G", "h", "inverse", "train")
        )
        self.weights = [
            (self.tensor(W).requires_grad_(), self.tensor(b).requires_grad_()) for W, b in first_weights(config, seed)
        ]
        self.sine = torch.sin if variant == "nonconvex" else None
        self.layer = layer(method)
        self.optimizer = torch.optim.Adam([tensor for pair in self.weights for tensor in pair], lr=settings.rate)

    def tensor(self, array: np.ndarray) -> Tensor:
        return torch.as_tensor(array, dtype=self.dtype, device=self.device)

    def feasible(self, x: Tensor) -> inset.ConvexSet:
        """The set of each program in a batch: only the right-hand sides of the equalities differ."""
        return inset.Polytope(self.G, self.h) & inset.Equality(self.A, x, self.inverse)

    def answer(self, x: Tensor) -> Tensor:
        raw = forward(self.weights, x, torch.relu)
        return self.onto(raw, x) if self.layer is None else self.layer(raw, self.feasible(x), x @ self.inverse.mT)

    def onto(self, raw: Tensor, x: Tensor) -> Tensor:
        """The nearest points with A y = x."""
        return raw - (raw @ self.A.mT - x) @ self.inverse.mT

    def loss(self, x: Tensor) -> Tensor:
        if self.layer is None:  # the equalities cost nothing; the inequalities are left to the penalty
            y = self.answer(x)
            excess = torch.relu(y @ self.G.mT - self.h).square().sum(-1).mean()
            return self.value(y) + self.settings.penalty * excess
        if not self.settings.pull:
            return self.value(self.answer(x))
        raw = self.onto(forward(self.weights, x, torch.relu), x)
        y = self.layer(raw, self.feasible(x), x @ self.inverse.mT)
        return self.value(y) + self.settings.pull * (raw - y).square().sum(-1).mean()

    def value(self, y: Tensor) -> Tensor:
        return objective(y, self.Q, self.p, self.sine).mean()

    def update(self, rows: np.ndarray, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        self.loss(self.data[torch.as_tensor(rows, device=self.device)]).backward()
        self.optimizer.step()

    def predict(self, x: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return self.answer(self.tensor(x)).cpu().numpy()

    def prepare(self, count: int, backward: bool) -> Callable[[], None]:
        x = self.data[:count]

        def timed() -> None:
            if backward:
                torch.autograd.grad(self.loss(x), [tensor for pair in self.weights for tensor in pair])
            else:
                with torch.no_grad():
                    self.answer(x)
            self.wait()

        return timed

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def layer(method: Method) -> Projection | None:
    """The layer of a method; set and anchor are passed in each call."""
    if method.layer == "none":
        return None
    if method.layer == "pinet":
        raise ValueError("layer(pinet): expected a layer of inset")
    return Projection(method=method.layer)

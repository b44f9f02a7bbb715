"""The models: a network that predicts the next positions from the last three, with or without a layer behind it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from inset import Strings
from inset.torch import Projection

from .config import Config
from .objects import BODIES, shape

PAST = 3
"""Positions that the network sees."""


@dataclass(frozen=True)
class Variant:
    """What makes one model different from another."""

    layer: Literal["none", "chord", "smooth", "nearest"] = "none"
    """Which layer keeps the strings: none, `Projection`, the same without its kink, or the orthogonal projection."""
    anchor: Literal["previous", "predicted"] = "previous"
    """The layer pulls towards the mean of these positions."""
    inputs: Literal["relative", "raw"] = "relative"
    """`raw`: positions in, change out. `relative`: positions and velocities around the mean in, acceleration out."""


VARIANTS = {
    "plain": Variant(),
    "strings": Variant("chord"),
    "moving": Variant("chord", anchor="predicted"),
    "smooth": Variant("smooth"),
    "raw_plain": Variant(inputs="raw"),
    "raw_strings": Variant("chord", inputs="raw"),
    "nearest": Variant("nearest", anchor="predicted"),
}
"""The models by name. `plain` and `strings` are the paper's, `raw_...` with its inputs to the letter."""


class Dynamics(nn.Module):
    """p_{t+1} = g(p_t + change(p_t, p_{t-1}, p_{t-2})), with g the layer of the variant.

    A point is `(..., 7, 2)`, the input `(..., 3, 7, 2)` from the oldest to the newest. With `members` the parameters
    have a leading dimension, and so has the input: independent models of one kind, trained side by side.
    What the model gives is in the set to the last bit; in training the layer is without its margin for rounding.
    """

    scales: Tensor

    def __init__(
        self, variant: Variant, strings: Strings, scales: Tensor, width: int, depth: int, members: int | None = None
    ) -> None:
        super().__init__()
        self.variant = variant
        self.register_buffer("scales", scales)
        self.layer = Projection(strings, strict=False)
        self.engaged = variant.layer != "none"
        """Whether the layer is used; training begins without."""
        sizes = [PAST * BODIES * 2, *[width] * depth, BODIES * 2]
        lead = () if members is None else (members,)
        self.weights = nn.ParameterList([torch.empty(*lead, m, n) for m, n in itertools.pairwise(sizes)])
        self.biases = nn.ParameterList([torch.zeros(*lead, 1, n) for n in sizes[1:]])

    @property
    def strings(self) -> Strings:
        """What the layer keeps, or would keep."""
        return cast(Strings, self.layer.set)

    @torch.no_grad()
    def initialise(self, generators: list[torch.Generator]) -> None:
        """Weights as He et al. do it, one generator per member, and a last layer of zeros."""
        for weight in self.weights:
            rows, columns = weight.shape[-2:]
            drawn = [torch.randn(rows, columns, generator=g) * math.sqrt(2 / rows) for g in generators]
            weight.copy_(torch.stack(drawn).reshape(weight.shape))
        self.weights[-1].zero_()

    def forward(self, past: Tensor) -> Tensor:
        y = past[..., -1, :, :] + self.change(past)
        return self.constrain(y, past[..., -1, :, :]) if self.engaged else y

    def change(self, past: Tensor) -> Tensor:
        """What is added to the current positions."""
        position, speed, force = self.scales.unbind()
        if self.variant.inputs == "raw":
            return self.network(past.flatten(-3)).unflatten(-1, (BODIES, 2))
        inner = past - past.mean(-2, keepdim=True)
        newest = inner[..., -1:, :, :] / position
        speeds = inner.diff(dim=-3) / speed
        features = torch.cat([newest, speeds[..., -1:, :, :], speeds.diff(dim=-3) * (0.3 * speed / force)], dim=-3)
        pull = self.network(features.flatten(-3)).unflatten(-1, (BODIES, 2))
        return past[..., -1, :, :] - past[..., -2, :, :] + 3 * force * pull

    def network(self, x: Tensor) -> Tensor:
        for k, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            if k < len(self.weights) - 1:
                x = nn.functional.silu(x)
        return x

    def constrain(self, y: Tensor, previous: Tensor) -> Tensor:
        """g(y): no string is longer than the layer allows."""
        mean = (previous if self.variant.anchor == "previous" else y).mean(-2, keepdim=True)
        anchor = mean.expand(y.shape)
        if self.variant.layer == "smooth":
            y = smooth(self.strings, y, anchor)
        elif self.variant.layer == "nearest":
            y = self.strings.nearest(y)
        return y if self.training and self.variant.layer != "chord" else self.layer(y, anchor=anchor)

    def train(self, mode: bool = True) -> Dynamics:
        """The layer has its margin for rounding, unless the model is in training."""
        self.layer.strict = not mode
        return super().train(mode)

    def member(self, k: int) -> Dynamics:
        """One of the models that were trained side by side, on its own."""
        assert self.weights[0].ndim == 3, "it is on its own"
        width, depth = self.weights[0].shape[-1], len(self.weights) - 1
        alone = Dynamics(self.variant, self.strings, self.scales, width, depth)
        for mine, theirs in zip(alone.parameters(), self.parameters(), strict=True):
            mine.data = theirs.detach()[k].clone()
        return alone.train(self.training)


def build(name: str, model: str, train: np.ndarray, config: Config, members: int | None = None) -> Dynamics:
    """The model of an object, its inputs scaled by the trajectories to train on; parameters are still to be set."""
    strings = Strings(torch.from_numpy(shape(name).links), config.length + config.slack)
    return Dynamics(VARIANTS[model], strings, scales(train), config.width, config.depth, members)


def smooth(strings: Strings, y: Tensor, anchor: Tensor, width: float = 0.01) -> Tensor:
    """anchor + s(r) / r (y - anchor), with r the largest ratio of a string to its length and s(r) < 1 smooth.

    s(r) = r below 1 - width, and 1 - width exp(-(r - 1 + width) / width) from there on: it bends where `Projection`
    has a kink, at the price of pulling a little before a string is taut.
    """
    direction = y - anchor
    ends = direction[..., strings.links, :]
    ratio = (torch.linalg.vector_norm(ends[..., 0, :] - ends[..., 1, :], dim=-1) / strings.lengths).amax(-1)
    over = (ratio - (1 - width)) / width
    bent = (1 - width * torch.exp(-over.clamp(min=0))) / ratio.clamp(min=0.5)
    return anchor + torch.where(over > 0, bent, 1.0)[..., None, None] * direction


def rollout(step: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> Tensor:
    """The positions `(..., steps, 7, 2)` after the first three, `(..., 3, 7, 2)`, each from the last three."""
    past, path = list(start.unbind(-3)), []
    for _ in range(steps):
        path.append(step(torch.stack(past, dim=-3)))
        past = [*past[1:], path[-1]]
    return torch.stack(path, dim=-3)


def distance(path: Tensor, truth: Tensor) -> Tensor:
    """The Euclidean distance of each body from where it should be, mean over bodies and steps, `(...)`."""
    # the small number keeps the derivative finite where nothing is wrong
    return ((path - truth).square().sum(-1) + 1e-12).sqrt().mean((-2, -1))


def scales(trajectories: np.ndarray) -> Tensor:
    """The spread of positions, velocities and accelerations around the mean of the bodies."""
    inner = trajectories - trajectories.mean(-2, keepdims=True)
    return torch.tensor([np.diff(inner, n, axis=-3).std() for n in range(3)], dtype=torch.float32)

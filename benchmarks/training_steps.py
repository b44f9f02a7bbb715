"""Training steps to time with and without the layer: a policy update, a dynamics model, an image-sized batch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
import torch._dynamo
from experiments.strings.config import Config as StringsConfig
from experiments.strings.model import PAST, VARIANTS, Dynamics, distance, rollout
from experiments.strings.objects import BODIES, shape
from experiments.trust_region.config import Config as PolicyConfig
from experiments.trust_region.policy import SPREAD, Network, begin_network, log_density
from torch import Tensor, nn

import inset
from inset.torch import Projection, TrustRegion

from .training_layers import Bare, ByHand, polytope_by_hand, strings_by_hand, trust_region_by_hand

WITHOUT, STRICT, LOOSE, RAY = "without the layer", "with it, strict=True", "with it, strict=False", "TrustRegion(), ray"
BY_HAND = "the formula by hand"
"""In place of the layer: the paper's formula written for this one model, without checks or a margin for rounding."""
BARE = "(x0 + x) / 2 as one node"
"""In place of the layer: what any does on a line to an anchor, with nothing to find out and no constraint kept."""
GOALS = {"eager": 1.15, "compiled": 1.05, "captured": 1.05}
"""The ratios this project holds itself to; captured are steps on a GPU as CUDA graphs."""
PAPER = {"policy": 1.5, "dynamics": 1.2}
"""Those that the paper states."""
Point = Tensor | tuple[Tensor, Tensor]
Wrap = Callable[[Any], Any]


@dataclass(frozen=True)
class Trainee:
    """A network in training; each call is one step of Adam.

    The step size is 0: however many steps are timed, the same points stay outside of the set.
    """

    network: nn.Module
    outputs: Callable[[], Point]
    """What the layer returns, or without it the network."""
    loss: Callable[[], Tensor]
    set: inset.ConvexSet
    """In which the layer keeps the outputs."""
    optimizer: torch.optim.Optimizer

    def __call__(self) -> None:
        self.optimizer.zero_grad()
        self.loss().backward()
        self.optimizer.step()


Trainees = dict[str, Trainee]


def build(name: str, mode: str, device: str, seed: int = 0, **sizes: int) -> Trainees:
    """The variants of a step, of which the first is without the layer; all have the same weights and data."""
    torch.manual_seed(seed)
    torch._dynamo.reset()  # what was compiled for another step would be tried first
    return STEPS[name](device, compiled if mode == "compiled" else _as_it_is, **sizes)


def compiled(function: Any) -> Any:
    return torch.compile(function, dynamic=False, fullgraph=True)


def captured(trainee: Trainee) -> Callable[[], None]:
    """The whole step, optimizer included, as a CUDA graph: what it costs the device, and the host next to nothing."""
    trainee = replace(trainee, optimizer=torch.optim.Adam(trainee.network.parameters(), lr=0.0, capturable=True))
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            trainee()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        trainee()

    def step() -> None:
        assert trainee is not None  # whose weights and data the graph reads
        graph.replay()

    return step


def _as_it_is(function: Any) -> Any:
    return function


def _trainee(
    network: nn.Module, outputs: Callable[[], Point], loss: Callable[[], Tensor], set: inset.ConvexSet
) -> Trainee:
    return Trainee(network, outputs, loss, set, torch.optim.Adam(network.parameters(), lr=0.0))


# -- a policy update ---------------------------------------------------------------------------------------------


class Policy(nn.Module):
    """The Gaussian policy of `experiments/trust_region`: a mean for each state, one log-std."""

    def __init__(self, parameters: dict[str, np.ndarray], region: TrustRegion | ByHand | Bare | None) -> None:
        super().__init__()
        self.region = region
        for name, value in parameters.items():
            self.register_parameter(name, nn.Parameter(torch.from_numpy(value)[None].clone()))

    def forward(self, states: Tensor, old: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """(mean, log_std); with an old policy, written as the layer wants it, near that one.

        Where the layer is the paper's, variances are interpolated.
        """
        parameters: dict[str, Tensor] = dict(self.named_parameters())
        mean, log_std = Network().mean(parameters, states), parameters[SPREAD][:, 0]
        if self.region is None or old is None:
            return mean, log_std
        if self.region.layout.parameterization == "log_std":
            return self.region((mean, log_std), old)
        mean, variance = self.region((mean, torch.exp(2 * log_std)), old)
        return mean, torch.log(variance) / 2


def policy(device: str, wrap: Wrap, states: int = 64, size: int = 24, actions: int = 4, width: int = 64) -> Trainees:
    """The expected advantage over a mini-batch of states, the mean KL from the old policy at most 0.01."""
    epsilon = PolicyConfig.epsilon
    _, start = begin_network(size, actions, width, np.random.default_rng(torch.initial_seed()))
    seen, advantages = torch.randn(1, states, size).to(device), torch.randn(1, states).to(device)
    with torch.no_grad():
        old = tuple(v.detach().to(device) for v in Policy(start, None)(seen.cpu()))
        played = old[0] + torch.exp(old[1]) * torch.randn(old[0].shape).to(device)
        before = log_density(old[0], old[1][:, None], played)
    region = inset.GaussianKL(old[0], old[1], epsilon, parameterization="log_std")

    def trainee(layer: TrustRegion | ByHand | Bare | None) -> Trainee:
        network = Policy({**start, SPREAD: start[SPREAD] + np.float32(0.2)}, layer).to(device)  # outside
        variances = layer is not None and layer.layout.parameterization == "covariance"
        near = (old[0], torch.exp(2 * old[1])) if variances else old

        def loss() -> Tensor:
            mean, log_std = network(seen, near)
            return -(torch.exp(log_density(mean, log_std[:, None], played) - before) * advantages).mean()

        return _trainee(network, lambda: network(seen, near), wrap(loss), region)

    layers: dict[str, TrustRegion | ByHand | Bare | None] = {WITHOUT: None, RAY: TrustRegion(epsilon)}
    layers |= {BY_HAND: trust_region_by_hand(epsilon), BARE: Bare(region)}
    for label, strict in ((STRICT, True), (LOOSE, False)):
        layers[label] = TrustRegion(epsilon, parameterization="covariance", method="paper", strict=strict)
    return {label: trainee(layers[label]) for label in (WITHOUT, STRICT, LOOSE, RAY, BY_HAND, BARE)}


# -- a dynamics model --------------------------------------------------------------------------------------------


def dynamics(device: str, wrap: Wrap, windows: int = 50, horizon: int = 240, width: int = 256) -> Trainees:
    """The star of `experiments/strings`, seven bodies that fly apart, unrolled; what is compiled is one step of it."""
    config, star = StringsConfig(), shape("star")
    set = inset.Strings(torch.from_numpy(star.links).to(device), config.length + config.slack)
    first = torch.from_numpy(star.positions * config.length).float()
    flight = first + 0.05 * torch.arange(PAST)[:, None, None] * torch.randn(windows, 1, BODIES, 2)
    start, truth = flight.to(device), first.to(device)
    scales = torch.tensor([1.0, 0.05, 0.01])

    def path(step: Callable[[Tensor], Tensor]) -> Tensor:
        # or the first steps, whose input needs no gradient, would be compiled apart
        return rollout(step, start.detach().requires_grad_(), horizon)

    def trainee(variant: str, strict: bool, layer: nn.Module | None = None) -> Trainee:
        network = Dynamics(VARIANTS[variant], set, scales, width, config.depth)
        if layer is not None:
            network.add_module("layer", layer)
        network.initialise([torch.Generator().manual_seed(torch.initial_seed())])
        network = network.to(device).train(not strict)  # in training its layer is without the margin for rounding
        cell = wrap(network)
        return _trainee(network, lambda: path(network), lambda: distance(path(cell), truth).mean(), set)

    return {
        WITHOUT: trainee("plain", False),
        STRICT: trainee("strings", True),
        LOOSE: trainee("strings", False),
        BY_HAND: trainee("strings", False, strings_by_hand(set)),
        BARE: trainee("strings", True, Bare(set)),
    }


# -- an image-sized batch ----------------------------------------------------------------------------------------


def images(
    device: str,
    wrap: Wrap,
    batch: int = 256,
    pixels: int = 3 * 32 * 32,
    width: int = 1024,
    outputs: int = 64,
    rows: int = 256,
) -> Trainees:
    """A network of two hidden layers that ends in a polytope, which half of its outputs are outside of."""
    hidden = nn.Sequential(
        nn.Linear(pixels, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )
    x, target, faces = torch.randn(batch, pixels), torch.randn(batch, outputs), torch.randn(rows // 2, outputs)
    A = torch.cat([faces, -faces])
    with torch.no_grad():
        b = 1.001 * (hidden(x) @ A.mT).amax(-1).median().expand(rows)  # no sample is on the boundary
    set, x, target = inset.Polytope(A.to(device), b.to(device)), x.to(device), target.to(device)
    anchor = torch.zeros(outputs, device=device)

    def trainee(layer: nn.Module) -> Trainee:
        network = nn.Sequential(*copy.deepcopy(hidden), layer).to(device)

        def loss() -> Tensor:
            return (network(x) - target).square().mean()

        return _trainee(network, lambda: network(x), wrap(loss), set)

    layers = {WITHOUT: nn.Identity(), STRICT: Projection(set, anchor), LOOSE: Projection(set, anchor, strict=False)}
    layers |= {BY_HAND: polytope_by_hand(set, anchor), BARE: Bare(set, anchor)}
    return {label: trainee(layer) for label, layer in layers.items()}


STEPS: dict[str, Callable[..., Trainees]] = {"policy": policy, "dynamics": dynamics, "images": images}

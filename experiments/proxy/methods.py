"""The methods: which layer is behind the network, in which precision, and how it is trained."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

Layer = Literal["none", "paper", "chord", "ray", "near", "pinet"]


@dataclass(frozen=True)
class Method:
    """One row of the tables."""

    layer: Layer
    """What makes the output feasible; none leaves it to a penalty."""
    dtype: Literal["float64", "float32"] = "float64"
    falling: bool = False
    """Whether the step size falls along half a cosine, from a start that validation chose."""


METHODS: dict[str, Method] = {
    "penalty": Method("none"),
    "paper": Method("paper"),
    "chord": Method("chord"),
    "ray": Method("ray"),
    "near": Method("near"),
    "near_float32": Method("near", dtype="float32"),
    "near_tuned": Method("near", falling=True),
    "pinet": Method("pinet"),
    "pinet_tuned": Method("pinet", falling=True),
}


@dataclass(frozen=True)
class Settings:
    """What a method leaves open, and validation decides."""

    rate: float
    """Step size of Adam, or its start."""
    batch: int
    """Samples per update."""
    penalty: float = 0.0
    """Weight of the penalty, without a layer."""
    pull: float = 0.0
    """Weight of the squared distance between what comes into the layer and what leaves it.

    Along the normal of a face the derivative of a projection is zero: what is outside of a wrong face stays there. The
    pull brings it back."""


class Trainee(Protocol):
    """A network with a layer in training, in whatever framework."""

    def update(self, rows: np.ndarray, rate: float) -> None:
        """One step of Adam on these training samples."""
        ...

    def predict(self, x: np.ndarray) -> np.ndarray:
        """y for each row of x, in the numbers that the layer returned."""
        ...

    def prepare(self, count: int, backward: bool) -> Any:
        """A function without arguments to be timed: a forward pass on so many samples, or one there and back."""
        ...

    def wait(self) -> None:
        """Until a GPU has done what it was given."""
        ...


def missing(method: str, device: str) -> str | None:
    """Why a method cannot run on a cpu or cuda device here, or None."""
    if METHODS[method].layer != "pinet":
        return None
    if importlib.util.find_spec("pinet") is None:
        return "pinet-hcnn is not installed (pip install -c constraints.txt -e '.[peers]')"
    if device == "cuda":
        import jax

        if jax.default_backend() != "gpu":
            return "JAX does not see the GPU (pip install 'jax[cuda13]')"
    return None

"""The numbers of the dynamics experiment."""

from __future__ import annotations

from dataclasses import dataclass, field

RATE = 60
"""Steps per second."""


@dataclass(frozen=True)
class Config:
    """The defaults are the paper's numbers; "our choice" marks what the paper leaves open or what we do otherwise."""

    objects: tuple[str, ...] = ("chain", "triangles", "star")
    """Objects, each with models of its own."""
    models: tuple[str, ...] = ("plain", "strings", "moving", "smooth", "raw_plain", "raw_strings")
    """Models: plain and strings are the paper's two, see model.py for the others. Our choice."""
    seeds: int = 3
    """Seeds of each model: of its first weights and of the order of the data. Our choice."""
    train: int = 50
    """Trajectories per object to train on."""
    validation: int = 75
    """Trajectories per object by which the best weights are chosen."""
    test: int = 75
    """Trajectories per object that the tables are about."""
    steps: int = 485
    """Steps of a trajectory, at 60 per second."""
    height: float = 400.0
    """Where the fall begins."""
    force: float = 2000.0
    """Norm of the force on one body during the first step; 42 units per second for a body. Our choice."""
    length: float = 2.0
    """Length of the strings, in diameters of a body. Our choice."""
    slack: float = 0.005
    """What the layer allows beyond it: Box2D's strings stretch by up to 0.0048. Our choice."""
    width: int = 256
    """Nodes of a hidden layer."""
    depth: int = 4
    """Hidden layers."""
    horizons: tuple[int, ...] = (8, 16, 32, 64, 128, 240, 482, 32, 64, 240, 482)
    """Steps unrolled in training, stage by stage. Our choice; the paper says up to 240."""
    updates: tuple[int, ...] = (2000, 2000, 2000, 1500, 1000, 500, 200, 1600, 300, 700, 350)
    """Updates in each stage. Our choice."""
    layer_from: int = 7
    """The stage from which on the layer is there, after a first phase without. Our choice."""
    batch: int = 50
    """Windows of trajectories per update. Our choice."""
    rate: float = 1e-3
    """Step size of Adam at the start; in each phase it falls to 0 along half a cosine. Our choice."""
    rate_with_layer: float = 2e-4
    """Step size where the layer joins. Our choice."""
    seed: int = 0
    """Of the trajectories, and the first of the seeds of the models."""
    device: str = field(default="auto", compare=False)
    """cpu, cuda, or auto: cuda where there is one."""

    @classmethod
    def quick(cls) -> Config:
        """One object and the paper's two models, trained for a minute."""
        return cls(
            objects=("star",),
            models=("plain", "strings"),
            seeds=1,
            horizons=(8, 16),
            updates=(700, 250),
            layer_from=1,
            batch=32,
            rate=2e-3,
            rate_with_layer=1e-3,
        )


def key(name: str, model: str) -> str:
    """The cell of a model of an object."""
    return f"{name}-{model}"

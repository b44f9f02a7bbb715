"""Trajectories of the objects, by Box2D: a kick, then free fall."""

from __future__ import annotations

import warnings

import numpy as np

from .config import RATE, Config
from .objects import BODIES, shape

with warnings.catch_warnings():  # its wrappers use what Python deprecates, and crash where that is an error
    warnings.simplefilter("ignore", DeprecationWarning)
    from Box2D import b2CircleShape, b2FixtureDef, b2World

GRAVITY = -10.0
FALL = GRAVITY / RATE**2
"""What gravity adds to the change of position in each step."""
ITERATIONS = (10, 10)
"""Of Box2D's solvers of velocities and positions, in each step."""


def simulate(name: str, config: Config) -> np.ndarray:
    """The trajectories of an object, `(trajectories, steps, 7, 2)`: those to train on, to validate on, to test on.

    The same seed gives the same trajectories, whatever other objects are simulated.
    """
    count = config.train + config.validation + config.test
    random = np.random.default_rng([config.seed, *name.encode()])
    bodies, angles = random.integers(BODIES, size=count), random.uniform(0, np.pi, count)
    return np.stack([trajectory(name, int(b), a, config) for b, a in zip(bodies, angles, strict=True)])


def split(trajectories: np.ndarray, config: Config) -> dict[str, np.ndarray]:
    """The three parts by name."""
    cuts = (config.train, config.train + config.validation)
    return dict(zip(("train", "validation", "test"), np.split(trajectories, cuts), strict=True))


def trajectory(name: str, body: int, angle: float, config: Config) -> np.ndarray:
    """One fall: a force at `angle` acts on a body during the first step; `(steps, 7, 2)` after each step, float32."""
    start = shape(name)
    world = b2World(gravity=(0, GRAVITY))
    disc = b2FixtureDef(shape=b2CircleShape(radius=0.5), density=1.0)
    positions = start.positions * config.length + [0, config.height]
    bodies = [world.CreateDynamicBody(position=(float(x), float(y)), fixtures=disc) for x, y in positions]
    for i, j in start.links:
        world.CreateRopeJoint(
            bodyA=bodies[i],
            bodyB=bodies[j],
            localAnchorA=(0, 0),
            localAnchorB=(0, 0),
            maxLength=config.length,
            collideConnected=True,
        )
    kicked = bodies[body]
    kicked.ApplyForce((config.force * np.cos(angle), config.force * np.sin(angle)), kicked.worldCenter, True)
    path = np.empty((config.steps, BODIES, 2), np.float32)
    for k in range(config.steps):
        world.Step(1 / RATE, *ITERATIONS)
        world.ClearForces()
        path[k] = [b.position.tuple for b in bodies]
    return path

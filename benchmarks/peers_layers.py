"""The layers that `peers` compares, each built from the arrays of a problem and called as its documentation says.

A layer is a function of tensors. What its users compute outside of it is done beforehand, not timed.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from inset import Method
from inset.torch import Projection

from . import peers_conic, peers_pinet, peers_trust_region
from .peers_calls import JaxLayer, TorchLayer
from .peers_sets import Kind, Problem, as_point, as_set, tensor

Layer = TorchLayer | JaxLayer
Build = Callable[[Problem, torch.dtype, str], Layer]
#: Method and strict of inset's layers, by label; every peer takes turns with the first three.
OURS: dict[str, tuple[Method, bool]] = {
    "chord, strict": ("chord", True),
    "chord": ("chord", False),
    "ray, strict": ("ray", True),
    "near, strict": ("near", True),
}
REFERENCES = ("chord, strict", "chord", "ray, strict")


@dataclass(frozen=True)
class Peer:
    """A layer of others: which sets it can do, the modules it needs, and what it computes."""

    title: str
    build: Build
    kinds: tuple[Kind, ...]
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    nearest: bool = True
    """Whether it computes the nearest point, in whatever sense, or the point on a ray."""
    float32: bool = False
    """Whether it is judged in float32 too."""


def ours(label: str) -> Build:
    """A builder of `Projection` with the method of that label."""

    def build(problem: Problem, dtype: torch.dtype, device: str) -> TorchLayer:
        layer = copy.copy(_checked(problem, dtype, device))
        layer.method, layer.strict = OURS[label]
        return TorchLayer((lambda *x: layer(x)) if len(problem.anchor) > 1 else layer, dtype, device)

    return build


@lru_cache(maxsize=1)
def _checked(problem: Problem, dtype: torch.dtype, device: str) -> Projection:
    """One layer to make the others of; it looks at the values of a set, which for large matrices takes a while."""
    return Projection(as_set(problem, dtype, device), as_point(problem.anchor, dtype, device))


def rayen(problem: Problem, dtype: torch.dtype, device: str) -> TorchLayer:
    """RAYEN with the same anchor y0. Its input is v = z - z0, in coordinates of the affine hull."""
    constraints, module = (importlib.import_module(f"rayen.{name}") for name in ("constraints", "constraint_module"))
    a, (anchor,) = problem.arrays, problem.anchor
    given: dict[str, Any] = {}
    if problem.kind in ("polytope", "equality"):
        given["lc"] = constraints.LinearConstraint(a["A"], _column(a["b"]), a.get("E"), _column(a.get("e")))
    elif problem.kind == "quadratic":
        terms = zip(a["P"], a["q"], a["r"], strict=True)
        given["qcs"] = [
            constraints.ConvexQuadraticConstraint(P, _column(q), np.array([[r]]), do_checks_P=False)
            for P, q, r in terms
        ]
    elif problem.kind == "cones":
        terms = zip(a["A"], a["b"], a["z"], a["d"], strict=True)
        given["socs"] = [constraints.SOCConstraint(M, _column(s), _column(c), np.array([[d]])) for M, s, c, d in terms]
    else:
        given["lmic"] = constraints.LMIConstraint([*a["A"], -a["C"]])
    # no row is redundant and the affine hull is known: nothing is left for the preprocessing, one LP per row
    known = constraints.ConvexConstraints(**given, y0=_column(anchor), do_preprocessing_linear=False)
    layer = module.ConstraintModule(known, create_map=False).to(device=device, dtype=dtype)
    basis = known.NA_E
    return TorchLayer(lambda v: layer(v)[..., 0], dtype, device, native=lambda points: ((points[0] - anchor) @ basis,))


def qpth(problem: Problem, dtype: torch.dtype, device: str) -> TorchLayer:
    """The nearest point as a quadratic program, min |y|^2 / 2 - x.y, with qpth's defaults; Q = I needs no check."""
    solve = importlib.import_module("qpth.qp").QPFunction(verbose=-1, check_Q_spd=False)
    Q, A, b, E, e = _program(problem, dtype, device)
    return TorchLayer(lambda x: solve(Q, -x, A, b, E, e), dtype, device)


def proxsuite(problem: Problem, dtype: torch.dtype, device: str) -> TorchLayer:
    """The same by ProxQP's QPLayer with its defaults."""
    solve = importlib.import_module("proxsuite.torch.qplayer").QPFunction()
    Q, A, b, E, e = _program(problem, dtype, device)
    lower = torch.full_like(b, -1e20)  # its infinity
    return TorchLayer(lambda x: solve(Q, -x, E, e, A, lower, b)[0], dtype, device)


def _column(v: np.ndarray | None) -> np.ndarray | None:
    return None if v is None else v[:, None]


def _program(problem: Problem, dtype: torch.dtype, device: str) -> tuple[Tensor, ...]:
    """I, A, b, E, e of the quadratic program; E and e are empty where there are no equations."""
    n = len(problem.anchor[0])
    a = {name: tensor(value, dtype, device) for name, value in problem.arrays.items()}
    none = torch.empty(0, dtype=dtype, device=device)
    return torch.eye(n, dtype=dtype, device=device), a["A"], a["b"], a.get("E", none), a.get("e", none)


LINEAR: tuple[Kind, ...] = ("polytope", "equality")
NORMS: tuple[Kind, ...] = (*LINEAR, "quadratic", "cones")
CONIC: tuple[Kind, ...] = (*NORMS, "lmi", "kl")
PINET = (("pinet",), ("pinet-hcnn",))
PEERS = {
    "near": Peer("inset, near", ours("near, strict"), CONIC, (), (), float32=True),
    "rayen": Peer("RAYEN", rayen, (*NORMS, "lmi"), ("rayen",), ("rayen",), nearest=False, float32=True),
    "pinet": Peer("Pi-net", peers_pinet.default, NORMS, *PINET),
    "pinet-tuned": Peer("Pi-net, tuned", peers_pinet.tuned, NORMS, *PINET),
    "cvxpylayers-diffcp": Peer(
        "cvxpylayers, diffcp", peers_conic.diffcp, CONIC, ("cvxpylayers",), ("cvxpylayers", "diffcp", "scs")
    ),
    "cvxpylayers-moreau": Peer(
        "cvxpylayers, Moreau", peers_conic.moreau, CONIC, ("cvxpylayers", "moreau"), ("cvxpylayers", "moreau")
    ),
    "qpth": Peer("qpth", qpth, LINEAR, ("qpth",), ("qpth",)),
    "proxsuite": Peer("ProxQP layer", proxsuite, LINEAR, ("proxsuite",), ("proxsuite",)),
    "trust-region-layers": Peer(
        "trust-region-layers, formulas", peers_trust_region.layer, ("kl",), (), (), float32=True
    ),
}

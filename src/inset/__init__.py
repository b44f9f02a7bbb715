"""Hard convex constraints for learning systems: keep a network's output in a convex set.

Importing this package imports neither torch nor JAX; the layers are in `inset.torch` and `inset.jax`.
"""

import typing

from ._combine import Intersection, Product
from ._errors import AnchorError, PointShapeError
from ._near import Near
from ._project import Info, Method, project, project_with_info
from ._set import ConvexSet, convex_set, index, static
from .affine import Equality
from .sets.ball import Ball
from .sets.box import Box
from .sets.categorical_entropy import CategoricalEntropy
from .sets.ellipsoid import Ellipsoid
from .sets.exponential_cone import ExponentialCone
from .sets.gaussian_entropy import GaussianEntropy
from .sets.gaussian_kl import GaussianKL
from .sets.lmi import LMI
from .sets.polytope import Polytope
from .sets.power_cone import PowerCone
from .sets.psd import PSD
from .sets.quadratic import Quadratic
from .sets.second_order_cone import SecondOrderCone
from .sets.simplex import Simplex
from .sets.spectral_ball import SpectralBall
from .sets.strings import Strings
from .sets.sublevel import Sublevel

if typing.TYPE_CHECKING:
    from ._anchor import interior_point
    from ._diagnose import Diagnosis, diagnose
    from .descent import IGD, PGD, Radial, Result, Status, SubGD

__version__ = "0.1.0"

__all__ = [
    "IGD",
    "LMI",
    "PGD",
    "PSD",
    "AnchorError",
    "Ball",
    "Box",
    "CategoricalEntropy",
    "ConvexSet",
    "Diagnosis",
    "Ellipsoid",
    "Equality",
    "ExponentialCone",
    "GaussianEntropy",
    "GaussianKL",
    "Info",
    "Intersection",
    "Method",
    "Near",
    "PointShapeError",
    "Polytope",
    "PowerCone",
    "Product",
    "Quadratic",
    "Radial",
    "Result",
    "SecondOrderCone",
    "Simplex",
    "SpectralBall",
    "Status",
    "Strings",
    "SubGD",
    "Sublevel",
    "convex_set",
    "diagnose",
    "index",
    "interior_point",
    "project",
    "project_with_info",
    "static",
]

# What looks for anchors, tests sets and minimises is loaded on first use: `import inset` stays quick.
_LAZY = {"interior_point": "_anchor", "diagnose": "_diagnose", "Diagnosis": "_diagnose"}
_LAZY |= dict.fromkeys(("IGD", "PGD", "Radial", "Result", "Status", "SubGD"), "descent")


def __getattr__(name: str) -> typing.Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'inset' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f"inset.{_LAZY[name]}"), name)
    return value

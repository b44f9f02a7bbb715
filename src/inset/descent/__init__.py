"""Descent methods that stay in a convex set. `inset.torch.minimize` and `inset.jax.minimize` run them."""

from .igd import IGD
from .pgd import PGD
from .radial import Radial
from .result import Result, Status
from .subgd import SubGD

__all__ = ["IGD", "PGD", "Radial", "Result", "Status", "SubGD"]

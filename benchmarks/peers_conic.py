"""cvxpylayers: the nearest point as a problem of CVXPY with one parameter, solved by SCS (diffcp) or by Moreau."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import torch

from .peers_calls import TorchLayer
from .peers_sets import Problem, norm_form


def diffcp(problem: Problem, dtype: torch.dtype, device: str) -> TorchLayer:
    return layer(problem, dtype, device, "DIFFCP")


def moreau(problem: Problem, dtype: torch.dtype, device: str) -> TorchLayer:
    return layer(problem, dtype, device, "MOREAU")


def layer(problem: Problem, dtype: torch.dtype, device: str, solver: str) -> TorchLayer:
    """The layer with the solver's default tolerances."""
    front: Any = importlib.import_module("cvxpylayers.torch")
    program, parameters, variables = nearest_point(problem)
    solve = front.CvxpyLayer(program, parameters=parameters, variables=variables, solver=solver)

    def function(*x: torch.Tensor) -> Any:
        y = solve(*x)
        return y if len(y) > 1 else y[0]

    return TorchLayer(function, dtype, device)


def nearest_point(problem: Problem) -> tuple[Any, list[Any], list[Any]]:
    """The problem of CVXPY min |y - x|^2 over the set, its parameters x and its variables y."""
    cp: Any = importlib.import_module("cvxpy")
    shapes = [leaf.shape for leaf in problem.anchor]
    x, y = [cp.Parameter(shape) for shape in shapes], [cp.Variable(shape) for shape in shapes]
    distance = sum(cp.sum_squares(one - other) for one, other in zip(y, x, strict=True))
    return cp.Problem(cp.Minimize(distance), inequalities(problem, y)), x, y


def inequalities(problem: Problem, y: list[Any]) -> list[Any]:
    """The set in the words of CVXPY."""
    cp: Any = importlib.import_module("cvxpy")
    a = problem.arrays
    if problem.kind == "quadratic":
        return [cp.norm(F @ y[0] - F @ c) <= rho for F, c, rho in norm_form(problem)]
    if problem.kind == "cones":
        terms = zip(a["A"], a["b"], a["z"], a["d"], strict=True)
        return [cp.norm(A @ y[0] + b) <= z @ y[0] + d for A, b, z, d in terms]
    if problem.kind == "lmi":
        n, k, _ = a["A"].shape
        image = cp.reshape(a["A"].reshape(n, k * k).T @ y[0], (k, k), order="C")  # symmetric: either order will do
        return [image - a["C"] >> 0]
    if problem.kind == "kl":
        mean, variance = y
        shift = cp.sum_squares((mean - a["mean"]) / np.sqrt(a["variance"]))
        spread = cp.sum(variance / a["variance"] - cp.log(variance)) + np.log(a["variance"]).sum() - len(a["mean"])
        return [(shift + spread) / 2 <= float(a["epsilon"])]
    equal = [a["E"] @ y[0] == a["e"]] if problem.kind == "equality" else []
    return [a["A"] @ y[0] <= a["b"], *equal]

"""The orthogonal projection by a general solver, as the paper did it: cvxpylayers on a cone program."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..common.store import StoreError

Layer = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


def cone_layer(states: int, actions: int, epsilon: float, **solver: float) -> Layer:
    """(means, variances, old means, old variances) -> the nearest ones with mean KL <= epsilon, differentiable.

    In z = (m - mq) / sq and r = S / Sq, to keep the program disciplined in its parameters:

        min |sq z - (means - mq)|^2 + |Sq r - variances|^2   with   mean_k |z_k|^2 + sum(r - 1 - log r) <= 2 epsilon

    `solver` are arguments of SCS, as eps_abs and eps_rel: its own are 1e-4.
    """
    try:
        import cvxpy as cp
        from cvxpylayers.torch.cvxpylayer import CvxpyLayer
    except ImportError as error:
        raise StoreError(f"trust_region: cvxpylayers is missing: pip install cvxpylayers ({error})") from None
    z, r = cp.Variable((states, actions)), cp.Variable(actions)
    std, old = (cp.Parameter(actions, nonneg=True) for _ in range(2))
    shift, variances = cp.Parameter((states, actions)), cp.Parameter(actions)
    wide = cp.Variable((states, actions))  # sq z, elementwise
    scaled = [wide[:, k] == std[k] * z[:, k] for k in range(actions)]
    objective = cp.sum_squares(wide - shift) + cp.sum_squares(cp.multiply(old, r) - variances)
    kl = cp.sum_squares(z) / states + cp.sum(r - 1) - cp.sum(cp.log(r))
    problem = cp.Problem(cp.Minimize(objective), [*scaled, kl <= 2 * epsilon])
    layer = CvxpyLayer(problem, parameters=[std, old, shift, variances], variables=[wide, r])

    def project(means: Tensor, new: Tensor, old_means: Tensor, old_variances: Tensor) -> tuple[Tensor, Tensor]:
        wide, r = layer(old_variances.sqrt(), old_variances, means - old_means, new, solver_args=solver)
        return old_means + wide, old_variances * r

    return project

"""The PyTorch front-end: the layers `Projection`, for any convex set, and `TrustRegion`, for policies; `minimize`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from . import _fast
from ._anchor import interior_point
from ._check import check_anchor
from ._combine import Intersection
from ._eager.calls import usual
from ._errors import AnchorError
from ._fields import field_leaves, leaves, map_fields, map_point
from ._gaussian import Parameterization
from ._layer import (
    Fields,
    FixedPoint,
    Shortcut,
    allow_nodes,
    replace_nonfinite,
    shortcut,
    traced_projection,
    traced_region,
)
from ._namespace import Point, is_array
from ._project import Info, Method, check_method, project, project_checked, project_with_info
from ._set import ConvexSet
from ._shapes import check_point
from ._trust_region import Layout, check_options, check_policies, trust_region
from .descent._minimize import DEFAULT, Callback, Solver
from .descent._minimize import minimize as _minimize
from .descent.result import Result

__all__ = ["Info", "Projection", "TrustRegion", "minimize", "project", "project_with_info"]


class Projection(nn.Module):
    """The layer g(x) = x0 + eta (x - x0), x itself where h(x) <= 0: its output is in the set. See `inset.project`.

    The set's arrays become buffers (an `nn.Parameter` stays a parameter, the module of a `Sublevel` a submodule), so
    they follow `.to()` and are saved. Without an `anchor` the set's own is used, or `inset.interior_point` finds one
    here, once; sets with learnable fields recompute their closed-form anchor at each call. A `set` or an `anchor`
    that depends on the input is passed in the call.

    What depends on the arrays alone is computed once, and again when they change, in place or by other arrays. A change
    through `.data`, or by a library that was given the memory, does not show. Arrays in memory of NumPy are copied,
    since nobody tells when it changes; in a process group of `torch.distributed` nothing is remembered.

    `nonfinite="propagate"` returns NaN for a sample that holds NaN or inf; `"anchor"` returns the anchor.

    >>> from inset import Ball, Polytope
    >>> safe = Polytope(torch.tensor([[1.0, 1.0]]), torch.tensor([1.0])) & Ball(torch.zeros(2), radius=2.0)
    >>> net = nn.Sequential(nn.Linear(8, 2), Projection(safe))
    >>> bool(safe.contains(net(100 * torch.randn(32, 8))).all())
    True
    """

    _quick: Shortcut | None = None

    def __init__(
        self,
        set: ConvexSet | None = None,
        anchor: Point | None = None,
        *,
        method: Method = "chord",
        strict: bool = True,
        nonfinite: Literal["propagate", "anchor"] = "propagate",
    ) -> None:
        super().__init__()
        check_method("Projection", method, set)
        if nonfinite not in ("propagate", "anchor"):
            raise ValueError(f"Projection(nonfinite={nonfinite!r}): expected 'propagate' or 'anchor'")
        self.method: Method = method
        self.strict = strict
        self.nonfinite = nonfinite
        self.fields = None if set is None else Fields(set)
        self.anchor_point: FixedPoint | None = None
        if set is not None:
            set.check()
            anchor = _find_anchor(self.fields.build()) if anchor is None and self.fields is not None else anchor
        if anchor is not None:
            self.anchor_point = FixedPoint(anchor)
        self._check_anchor()

    @property
    def set(self) -> ConvexSet | None:
        """The set, made of this layer's buffers and parameters."""
        return None if self.fields is None else self.fields.build()

    @property
    def anchor(self) -> Point | None:
        """The fixed anchor, if there is one."""
        return None if self.anchor_point is None else self.anchor_point.build()

    def forward(
        self, x: Point, set: ConvexSet | None = None, anchor: Point | None = None, return_info: bool = False
    ) -> Any:
        """g(x); with `return_info` also an `Info` of eta, active constraint and h(x) per sample."""
        given = anchor
        if set is None and not return_info and not torch.compiler.is_compiling():
            quick = self._quick
            if quick is not None and quick.applies(x, anchor, self._options()):
                return quick.call(x) if anchor is None else quick.call(x, anchor)
        anchor = self.anchor if anchor is None else anchor
        own = self.fields if set is None else None
        if set is None and self.fields is not None:
            kind = self._node(x, anchor) if torch.compiler.is_dynamo_compiling() and not return_info else None
            if kind is not None:
                arrays = self.fields.arrays()
                return traced_projection(kind, arrays, x, anchor, self.method, self.strict, self.nonfinite)
            set = self.fields.build()
        if set is None:
            raise ValueError("Projection() without a set: pass one, layer(x, set=...), or build Projection(set)")
        if anchor is None:
            check_point(set, x)
            anchor = set.anchor(x)
        if self.nonfinite == "anchor":
            x = replace_nonfinite(set, x, anchor)
        if own is not None and not return_info and own.suit(x, anchor):  # what there is to check has been checked
            return self._project(set, x, anchor, given)
        apply = project_with_info if return_info else project
        return apply(set, x, anchor, method=self.method, strict=self.strict)

    def _project(self, set: ConvexSet, x: Point, anchor: Point, given: Point | None) -> Point:
        """g(x), and a `Shortcut` for the next call like this one, in which an anchor was `given` or not."""
        check_method("Projection", self.method, set)
        if given is not None:
            call = partial(_along, _quickest(set, x, given, self.method, self.strict), set, self.method, self.strict)
            self._remember(call, x, given, set.event_ndim)
            return call(x, given)
        for prepared in _fast.PREPARED:
            found: Any = prepared(set, x, anchor, self.method, self.strict) if usual(leaves(x)[0]) else None
            if found is not None and not isinstance(found, (Tensor, tuple)):
                if self.anchor_point is not None:  # one that is made of these points is not that of others
                    self._remember(found, x, None, set.event_ndim)
                found = found(x)
            if found is not None:
                return found
        quick = _quickest(set, x, anchor, self.method, self.strict) if usual(leaves(x)[0]) else None
        if quick is None:
            return project_checked(set, x, anchor, self.method, self.strict, False)[0]
        own = None if self.anchor_point is None else anchor
        self._remember(partial(_alone, quick, set, self.method, self.strict, own), x, None, set.event_ndim)
        return _along(quick, set, self.method, self.strict, x, anchor)

    def _remember(self, call: Callable[..., Point], x: Point, given: Point | None, event: Any) -> None:
        self._quick = None
        if self.nonfinite == "propagate" and usual(leaves(x)[0]):
            self._quick = shortcut(call, x, given, event, self._options(), self._modules)

    def _options(self) -> tuple[Any, ...]:
        """What may be set on a layer at any time."""
        return self.method, self.strict, self.nonfinite

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_quick"}

    def extra_repr(self) -> str:
        return f"{self.set!r}, method={self.method!r}, strict={self.strict}"

    def _node(self, x: Point, anchor: Point | None) -> str | None:
        """The kind of the set if this call is to be one node of a program: not where code of the user's runs."""
        fields = self.fields
        if fields is None or not isinstance(self.method, str) or not fields.fits(x):
            return None
        return fields.kind if anchor is None or fields.fits(anchor) else None

    def _apply(self, fn: Any, recurse: bool = True) -> Projection:
        self._quick = None
        module = super()._apply(fn, recurse)
        self._check_anchor()  # another dtype may have rounded it onto the boundary
        return module

    def _check_anchor(self) -> None:
        if self.fields is not None and self.anchor_point is not None:
            check_anchor(self.fields.build(), self.anchor_point.build(), self.strict)


class TrustRegion(nn.Module):
    """A Gaussian policy near the old one: KL(new | old) <= epsilon, and with `kappa` entropy(new) >= kappa, in nats.

    `layer(new, old)` takes two pairs (mean, covariance) and returns one: `new` where it is inside, else a point on the
    line to it from `old`, a constant; see `inset.project`. The covariance is written as in `GaussianKL`:

    - `parameterization`: "log_std", "cholesky" (standard deviations, or a triangular matrix) or "covariance";
    - `diagonal=True`: a vector `(..., d)`, else a matrix `(..., d, d)`, for which `old` is better given in float64;
    - `average=True`: means `(..., K, d)` of K states with one covariance, one constraint on the mean KL;
      `average=False`: means `(..., d)`, one constraint per state. One covariance for all states is accepted and one
      for each comes back, because each state is moved by a weight of its own.

    With `kappa`, both policies are first made wider by a factor where that is needed: the new one up to the floor, the
    old one a little above it, by a quarter of epsilon at most. A floor that is out of its reach is a `ValueError`, or
    NaN under tracing; to tell, each call with `kappa` looks at one value, and so waits for a GPU.

    >>> region = TrustRegion(epsilon=0.01)
    >>> old = torch.zeros(64, 2), torch.zeros(2)                  # means of 64 states, one log_std
    >>> mean, log_std = region((torch.ones(64, 2), torch.ones(2)), old)
    >>> from torch.distributions import Normal, kl_divergence
    >>> kl = kl_divergence(Normal(mean, log_std.exp()), Normal(old[0], old[1].exp()))
    >>> f"{kl.sum(-1).mean():.5f}"
    '0.01000'

    In a policy update, instead of clipping the ratio; the promise is about what the layer returns:

        old = tuple(v.detach().clone() for v in policy(states))   # once, before the update
        for _ in range(epochs):
            mean, log_std = region(policy(states), old)
            log_prob = Normal(mean, log_std.exp()).log_prob(actions).sum(-1)
            loss = -((log_prob - old_log_prob).exp() * advantages).mean()
    """

    def __init__(
        self,
        epsilon: float = 0.01,
        *,
        kappa: float | None = None,
        average: bool = True,
        diagonal: bool = True,
        parameterization: Parameterization = "log_std",
        method: Method = "ray",
        strict: bool = True,
    ) -> None:
        super().__init__()
        check_options(epsilon, kappa, diagonal, parameterization)
        check_method("TrustRegion", method)
        allow_nodes()
        self.epsilon, self.kappa = epsilon, kappa
        self.layout = Layout(average, diagonal, parameterization)
        self.method: Method = method
        self.strict = strict

    def forward(self, new: tuple[Tensor, Tensor], old: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """(mean, covariance) in the trust region; of the batch and the dtypes of `new`."""
        if torch.compiler.is_dynamo_compiling() and isinstance(self.method, str):
            check_policies(new, old, self.layout)
            return traced_region(new, old, self.epsilon, self.kappa, tuple(self.layout), self.method, self.strict)
        if isinstance(old, tuple):  # views of parameters require a gradient under no_grad too
            old = tuple([v.detach() if isinstance(v, Tensor) and v.requires_grad else v for v in old])  # type: ignore[assignment]
        if self.kappa is None:
            for region in _fast.REGIONS:  # which ask whether these are two policies
                if y := region(new, old, self.epsilon, self.layout, self.method, self.strict):
                    return y
        check_policies(new, old, self.layout)
        set, new, anchor = trust_region(new, old, self.epsilon, self.kappa, self.layout)
        return project(set, new, anchor, method=self.method, strict=self.strict)

    def extra_repr(self) -> str:
        return f"{self.epsilon}, kappa={self.kappa}, {self.layout}, method={self.method!r}, strict={self.strict}"


def _quickest(set: ConvexSet, x: Point, anchor: Point, method: Method, strict: bool) -> Callable[..., Any] | None:
    """A function of points and anchors like these, which is g(x) or None, if there is one."""
    found = (quick(set, x, anchor, method, strict) for quick in _fast.ANCHORED)
    return next((call for call in found if call is not None), None)


def _along(quick: Any, set: ConvexSet, method: Method, strict: bool, x: Point, anchor: Point) -> Point:
    """g(x) for points and an anchor that are known to fit."""
    y = None if quick is None else quick(x, anchor)
    return project_checked(set, x, anchor, method, strict, False)[0] if y is None else y


def _alone(quick: Any, set: ConvexSet, method: Method, strict: bool, anchor: Point | None, x: Point) -> Point:
    """The same with a fixed anchor, or one that the set makes of the points."""
    return _along(quick, set, method, strict, x, set.anchor(x) if anchor is None else anchor)


def _find_anchor(set: ConvexSet) -> Point | None:
    """A fixed anchor of the set, or None if `set.anchor(x)` is to be asked at each call."""
    learnable = any(getattr(v, "requires_grad", False) for _, v, _ in field_leaves(set)) or any(
        p.requires_grad for _, v, _ in field_leaves(set) if isinstance(v, nn.Module) for p in v.parameters()
    )
    try:
        anchor = None if isinstance(set, Intersection) else set.anchor()
    except AnchorError:
        if _answers(set):
            return None
        anchor = None
    if learnable:
        if anchor is None:
            raise AnchorError(
                f"{type(set).__name__} has learnable fields and no closed-form anchor, so one found now would not "
                "stay inside; pass Projection(set, anchor) with a point that remains strictly feasible, or an anchor "
                "in each call"
            )
        return None
    return interior_point(set) if anchor is None else map_point(lambda leaf: leaf, anchor)


def _answers(set: ConvexSet) -> bool:
    """Whether the set builds its anchor from a point (all bodies at their mean, say)."""
    return not isinstance(set, Intersection) and type(set).anchor is not ConvexSet.anchor


def minimize(
    objective: Any,
    set: ConvexSet,
    anchor: Point | None = None,
    solver: Solver = DEFAULT,
    steps: int = 1_000,
    *,
    callback: Callback | None = None,
    progress: bool = False,
) -> Result:
    """The least f(x) over the points x of a set, for a batch of problems at once; every point found is feasible.

    `objective` is a vector c of the shape of a point, for f(x) = c.x, or a differentiable function of a point that
    returns one value per problem. All leading dimensions broadcast: of the objective, the fields of the set, the
    anchor and the solver's step sizes. Without an `anchor`, `inset.interior_point` finds one. Equalities are
    eliminated by the null space. Runs where the anchor is, in its dtype: float64 for more than four digits.

    `solver` is `Radial()` (no parameter; f linear or convex), `IGD(step)`, the paper's, `SubGD(step)` or `PGD(step)`.
    After each recorded step `callback(step, result so far)` may return True to stop; `progress` shows a bar.

    >>> from inset import Ball
    >>> disc = Ball(torch.zeros(2, dtype=torch.float64), radius=2.0)
    >>> minimize(torch.tensor([3.0, 4.0], dtype=torch.float64), disc).value
    tensor(-10.0000, dtype=torch.float64)
    """
    objective = (
        objective if callable(objective) else map_point(lambda v: torch.as_tensor(v) if is_array(v) else v, objective)
    )
    set = map_fields(set, lambda v, role: torch.as_tensor(v) if is_array(v) else v)
    anchor = interior_point(set) if anchor is None else map_point(torch.as_tensor, anchor)
    with torch.no_grad():
        return _minimize(_as_it_is, objective, set, anchor, solver, steps, callback, progress)


def _as_it_is(fn: Any) -> Any:
    """Torch runs the loop eagerly."""
    return fn

"""`Polytope` in plain torch, in few operations: one autograd function in place of a graph of formulas.

With d = -h(x0), the depth of the anchor, s = max_i h_i(x) / d_i is how far x is out, and eta = 1 / (1 + s). With i the
constraint that sets it and t = <g, x - x0> for an incoming g,

    dx = eta g - t / (1 + s)^2 a_i / d_i.

What depends on the set and the anchor alone is computed once. The margin of `strict` is that of `_strict.py`, in which
the greatest error relative to the depth is at most p + q |y|. The formulas of the set are the reference, and what runs
for learned fields, per-sample sets, half precision, under transforms, and for second derivatives.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from ._namespace import exact_arithmetic, reduced_products
from ._project import interpolated
from ._ray import HUGE
from ._set import ConvexSet
from .sets.polytope import Polytope

PLAIN = (Tensor, nn.Parameter)
"""Types that are not those of some tracer."""
LARGEST = 2**27
"""Values of constraints that are held at once; of more the formulas take some samples at a time."""


class _Known(NamedTuple):
    """What is known of a set and an anchor."""

    b: Tensor
    anchor: Tensor
    versions: tuple[int, ...]
    offset: Tensor
    """-b, with `strict` and what rounding adds to it."""
    slope: Tensor
    """By what rounding adds to each constraint per unit of |x|."""
    inverse: Tensor
    """1 / d."""
    p: Tensor
    q: Tensor
    """The error of a constraint at y over the depth of the anchor is at most p + q |y|."""
    size: Tensor
    """|x0|."""


_MEMORY: Any = WeakTensorKeyDictionary()


def fused(set: ConvexSet, x: Any, anchor: Any, method: Any, strict: bool) -> Tensor | None:
    """g(x), or None where this does not apply."""
    if type(set) is not Polytope or method not in ("chord", "ray"):  # the same for affine constraints
        return None
    if transformed() or not _applies(set.A, set.b, x, anchor):
        return None
    with exact_arithmetic(x):
        return _Chord.apply(x, set.A, set.b, anchor, _known(set.A, set.b, anchor), strict)


def _applies(A: Any, b: Any, x: Any, anchor: Any) -> bool:
    fields = (A, b, anchor)
    if any([type(v) not in PLAIN or v.dtype != A.dtype for v in (x, *fields)]):
        return False
    if A.dtype not in (torch.float32, torch.float64) or any([v.requires_grad for v in fields]):
        return False
    if (A.ndim, b.ndim, anchor.ndim) != (2, 1, 1) or x.numel() == 0 or b.numel() == 0:
        return False
    return x.numel() // x.shape[-1] * b.shape[0] <= LARGEST and not reduced_products(x)


def transformed() -> bool:
    """Whether compilers, vmap, torch.func or forward-mode derivatives are at work: there are no rules for them here."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
        return True
    if torch._C._are_functorch_transforms_active():
        return True
    return torch.autograd.forward_ad._current_level >= 0


def _known(A: Tensor, b: Tensor, anchor: Tensor) -> _Known:
    """From memory, if it is about these tensors and they have not changed."""
    fields = (A, b, anchor)
    if any([v.is_inference() for v in fields]):  # which do not say whether they have changed
        return _computed(*fields, ())
    versions, found = tuple([v._version for v in fields]), _MEMORY.get(A)
    if found is None or found.b is not b or found.anchor is not anchor or found.versions != versions:
        found = _computed(*fields, versions)
        _MEMORY[A] = found
    return found


@torch.no_grad()
def _computed(A: Tensor, b: Tensor, anchor: Tensor, versions: tuple[int, ...]) -> _Known:
    u, n = torch.finfo(A.dtype).eps / 2, A.shape[1]
    k = u * (n + 2)
    rows, size = (torch.linalg.vector_norm(v, dim=-1, dtype=torch.float64).to(v.dtype) for v in (A, anchor))
    bound = b.clamp(max=torch.finfo(A.dtype).max / 8)  # finite also for a row that never binds
    length = b.abs().clamp(max=1e30)
    depth = bound - A @ anchor
    fixed = 4 * k * length + rows * ((4 * k + 8 * u) * size)
    left = depth - 2 * fixed
    left = torch.where(left > 0, left, torch.nan)  # the anchor is not certainly inside
    p = ((fixed + 2 * k * length + 4 * u * rows * size) / left).max()
    q = ((2 * k + 4 * u) * rows / left).max()
    inverse = 1 / torch.where(depth > 0, depth, torch.nan)
    return _Known(b, anchor, versions, k * length - bound, k * rows, inverse, p, q, size)


class _Chord(torch.autograd.Function):
    """y, and its derivative by x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, A: Tensor, b: Tensor, anchor: Tensor, known: _Known, strict: bool) -> Tensor:
        points = x.reshape(-1, x.shape[-1])
        far = torch.linalg.vector_norm(points, ord=torch.inf, dim=-1, keepdim=True)
        pulled = (HUGE[torch.finfo(x.dtype).bits] / far).clamp_(max=1)
        points = points * pulled  # which changes none but huge ones
        length = torch.linalg.vector_norm(points, dim=-1, keepdim=True, dtype=torch.float64).to(x.dtype)
        values = torch.addmm(known.offset if strict else -b, points, A.mT)
        values = values.addcmul_(length, known.slope) if strict else values
        out, i = values.mul_(known.inverse).max(-1, keepdim=True)
        raw, inside = 1 / (1 + out), out <= 0  # NaN is not
        eta = torch.where(inside, 1.0, raw)
        if strict:  # |y| <= |x0| + eta |x|; also a point inside is lost if the anchor is not certain, and p is NaN
            eta = torch.where(inside, 1 + 0 * known.p, eta / (1 + known.p + known.q * (known.size + raw * length)))
        ctx.save_for_backward(x, A, b, anchor, points, pulled, eta, raw.masked_fill(inside, 0.0), i)
        ctx.known, ctx.strict = known, strict
        return torch.lerp(anchor, points, eta).reshape(x.shape)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        x, A, b, anchor, points, pulled, eta, raw, i = ctx.saved_tensors
        nothing = (None,) * 5
        if torch.is_grad_enabled():  # the derivative is to be differentiated: through the formulas of the set
            y, _ = interpolated(Polytope(A, b), x, anchor, "chord", ctx.strict)
            return *torch.autograd.grad(y, x, g, create_graph=True), *nothing
        g = g.reshape(points.shape)
        along = torch.linalg.vecdot(g, points - anchor)[:, None]
        back = along * raw * raw * ctx.known.inverse[i]
        dx = eta * g - back * A[i[:, 0]]
        return (dx * pulled).reshape(x.shape), *nothing

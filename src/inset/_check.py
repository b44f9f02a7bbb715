"""Whether an anchor will do: looks at values, never used under tracing."""

from __future__ import annotations

from ._combine import Product, parts
from ._errors import AnchorError
from ._fields import leaves, map_point, working
from ._namespace import Point, is_traced, namespace, stop_gradient
from ._set import ConvexSet
from ._shapes import check_point, side_by_side
from ._strict import Margin, roundoff
from .affine import equalities_hold, onto


def check_anchor(set: ConvexSet, anchor: Point, strict: bool = True) -> None:
    """Raise an `AnchorError` unless h(anchor) < 0 for every sample, and with `strict` by more than rounding."""
    if isinstance(set, Product):
        check_point(set, anchor, "an anchor")
        for block, point in zip(set.blocks, anchor, strict=True):
            check_anchor(block, point, strict)
        return
    check_point(set, anchor, "an anchor")
    if any(is_traced(leaf) for leaf in leaves(anchor)):
        return
    if equalities_hold(set, anchor) is not True and not bool(equalities_hold(set, anchor, 1e-3).all()):
        raise AnchorError(
            f"the anchor of {type(set).__name__} must satisfy its equalities; pass "
            "set.anchor(), inset.interior_point(set), or a point with A x = b"
        )
    kept = anchor
    set, anchor = working(set, anchor)
    anchor = onto(set, anchor)
    values = [part.constraints(anchor) for part in parts(set)]
    worst = stop_gradient(side_by_side(values))
    if worst.shape[-1] == 0:
        return
    xp = namespace(worst)
    flat = xp.reshape(worst, (-1, worst.shape[-1]))
    place = int(xp.argmax(xp.where(xp.isnan(flat), xp.full_like(flat, float("inf")), flat)))
    value, i = float(xp.reshape(flat, (-1,))[place]), place % flat.shape[-1]
    where = f"constraint {i}" + (f" of sample {place // flat.shape[-1]}" if flat.shape[0] > 1 else "")
    if not value < 0:
        raise AnchorError(
            f"the anchor must be strictly inside {type(set).__name__}: {where} is {value:.6g} there, expected < 0. "
            "Leave the anchor out to have one found, or pass inset.interior_point(set)"
        )
    narrow = max(float(xp.finfo(leaf.dtype).eps) / 2 for leaf in leaves(kept))
    narrow = narrow if narrow > roundoff(anchor) else 0.0
    margin = Margin(parts(set), anchor, values, narrow, map_point(lambda leaf: leaf.dtype, kept))
    if strict and not bool(margin.anchor_is_certified().all()):
        raise AnchorError(
            f"the anchor is inside {type(set).__name__} by less than rounding in {leaves(kept)[0].dtype}: {where} is "
            f"{value:.6g} there. Pass a deeper anchor (inset.interior_point(set)), a wider dtype, or strict=False"
        )

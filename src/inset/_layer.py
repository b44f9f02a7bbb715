"""What `inset.torch.Projection` is made of: the arrays it holds, and what `torch.compile` sees of it.

Where Dynamo reads the code of a function it remembers each name that was looked up, and looks all of them up again at
each call: hundreds for `project`, which cost more than the arithmetic does. So the layers put one node into its
program, a function of tensors and constants; AOT autograd and Inductor see the operations within.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ._combine import Product, parts
from ._eager.calls import PLAIN, usual, watchable
from ._fields import HasFields, field_leaves, leaves, map_fields, map_point
from ._namespace import Point, is_array, is_torch, reduced_products
from ._project import Method, project
from ._set import ConvexSet
from ._shapes import event_dims, known_event
from ._traced import gaussian, strings
from ._trust_region import Layout, trust_region

_TEMPLATES: dict[str, ConvexSet] = {}
"""Sets without their arrays, by all that there is to know of them."""


class Fields(nn.Module):
    """The arrays of a set as buffers, parameters and submodules, and the set made of them."""

    def __init__(self, set: ConvexSet) -> None:
        super().__init__()
        self.names: list[str] = []
        held: list[bool] = []
        for path, value, role in field_leaves(set):
            if role == "static":
                continue
            held.append(True)
            if isinstance(value, nn.Parameter):
                self.register_parameter(path, value)
            elif isinstance(value, nn.Module):
                self.add_module(path, value)
            elif is_array(value):
                self.register_buffer(path, _owned(value))
            else:
                held[-1] = False  # numbers and functions stay in the template
            if held[-1]:
                self.names.append(path)
        rest = iter(held)
        self.template = map_fields(set, lambda v, role: ... if next(rest) else v)
        self.kind = _kind(self.template) if all(map(is_array, self.arrays())) else None
        """Its name among the templates, if the set may be one node of a program."""
        self.several = isinstance(set.event_ndim, tuple)
        self.event = known_event(set) if self.kind is not None else ()
        self.shapes = self._shapes() if self.kind is not None else []
        self._remember()

    def arrays(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.names])

    def build(self) -> ConvexSet:
        return _filled(self.template, iter(self.arrays()))

    def fits(self, point: Point) -> bool:
        """Whether this can be seen to be a point of the set from here; otherwise `check_point` is to tell."""
        points = point if isinstance(point, tuple) else (point,)
        if self.kind is None or isinstance(point, tuple) != self.several or len(points) != len(self.event):
            return False
        return all([_fits(leaf, sizes) for leaf, sizes in zip(points, self.event, strict=True)])

    def alike(self, x: Point, anchor: Point) -> bool:
        """Whether two points have the same trailing dimensions, also those that the set leaves open."""
        pairs = zip(leaves(x), leaves(anchor), self.event, strict=True)
        return all([a.shape[a.ndim - len(sizes) :] == b.shape[b.ndim - len(sizes) :] for a, b, sizes in pairs])

    def unchanged(self) -> bool:
        """Whether the arrays have the shapes of those at the beginning."""
        return self.kind is not None and self._shapes() == self.shapes

    def suit(self, x: Point, anchor: Point) -> bool:
        """Whether these can be seen to be points of the set as it was at the beginning, one the anchor of the other."""
        return self.fits(x) and self.fits(anchor) and self.unchanged() and self.alike(x, anchor)

    def _shapes(self) -> list[torch.Size]:
        return [array.shape for array in self.arrays()]

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self._remember()

    def _remember(self) -> None:
        if self.kind is not None:
            _TEMPLATES.setdefault(self.kind, self.template)
            allow_nodes()


class Shortcut:
    """What a layer does with points like those of an earlier call, while it and its arrays are what they were then."""

    def __init__(
        self,
        call: Callable[..., Point],
        x: Point,
        anchor: Point | None,
        event: Any,
        options: tuple[Any, ...],
        held: list[tuple[dict[str, Any], str]],
    ) -> None:
        self.call = call
        """A function of points, and of an anchor if there was one in the call."""
        self.options = options
        self.event = event
        self.like = _like(x, event)
        self.anchor_like = None if anchor is None else _like(anchor, event)
        self.held = [(where, name, where.get(name)) for where, name in held]
        """Modules and arrays, and where they are."""
        self.arrays = [(v, v._version) for _, _, v in self.held if isinstance(v, Tensor)]

    def applies(self, x: Any, anchor: Any, options: tuple[Any, ...]) -> bool:
        if _like(x, self.event) != self.like or options != self.options:
            return False
        if anchor is None or self.anchor_like is None:
            if anchor is not self.anchor_like:
                return False
        elif _like(anchor, self.event) != self.anchor_like:
            return False
        for where, name, value in self.held:
            if where.get(name) is not value:
                return False
        for array, version in self.arrays:
            if array._version != version or array.requires_grad or not watchable(array):
                return False
        leaf = leaves(x)[0] if isinstance(x, tuple) else x
        return usual(leaf) and not (leaf.is_cpu and reduced_products(leaf))


def _like(x: Any, event: Any) -> tuple[Any, ...] | None:
    """What points of one kind have in common; of fewer dimensions than those of an event there are none.

    None for what is no point, or empty, or a tracer's.
    """
    if isinstance(event, int):
        return (x.dtype, x.device, x.shape[-event:]) if type(x) in PLAIN and x.numel() else None
    if type(x) is not tuple or len(x) != len(event):
        return None
    found = [_like(v, k) for v, k in zip(x, event, strict=True)]
    return None if None in found else tuple(found)


def shortcut(
    call: Callable[..., Point],
    x: Point,
    anchor: Any,
    event: Any,
    options: tuple[Any, ...],
    modules: dict[str, Any],
) -> Shortcut | None:
    """For a layer with these modules, and an `anchor` if it was given one; None where a change would not show.

    That is where its arrays are parameters, to which torch may give other numbers without a sign of it, or of
    inference mode.
    """
    if torch.is_inference_mode_enabled() or _like(x, event) is None:  # what is prepared there is not for derivatives
        return None
    held = [(modules["fields"]._buffers, name) for name in modules["fields"].names]
    parts = [(modules, "fields")]
    if anchor is None:
        parts.append((modules, "anchor_point"))
        if (fixed := modules.get("anchor_point")) is not None:  # else the set makes one of the points
            held += [(fixed._buffers, str(k)) for k in range(len(leaves(x)))]
    if any([where.get(name) is None or not watchable(where[name]) for where, name in held]):
        return None
    return Shortcut(call, x, anchor, event, options, [*parts, *held])


class FixedPoint(nn.Module):
    """A point as buffers: one array, or a tuple of them."""

    def __init__(self, point: Point) -> None:
        super().__init__()
        self.structure = map_point(lambda leaf: None, point)
        for k, leaf in enumerate(leaves(point)):
            tensor = leaf if is_torch(leaf) else torch.as_tensor(leaf, dtype=torch.get_default_dtype())
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(str(k), tensor)
            else:
                self.register_buffer(str(k), _owned(tensor))

    def build(self) -> Point:
        if self.structure is None:
            return getattr(self, "0")
        count = iter(range(len(leaves(self.structure))))
        return map_point(lambda _: getattr(self, str(next(count))), self.structure)


def _owned(value: Any) -> Tensor:
    """An array as a tensor whose memory is torch's: NumPy would change it without a sign. What is learned stays."""
    tensor = value if isinstance(value, Tensor) else torch.as_tensor(value)  # which would move it to the default device
    if tensor.requires_grad or not tensor.is_cpu or tensor.untyped_storage().resizable():
        return tensor
    return tensor.clone()


def _filled(template: Any, arrays: Iterator[Any]) -> Any:
    """The set with the next array in each place that waits for one."""
    set = object.__new__(type(template))
    for name, _ in template.roles:
        value = getattr(template, name)
        value = tuple([_fill(v, arrays) for v in value]) if isinstance(value, tuple) else _fill(value, arrays)
        object.__setattr__(set, name, value)
    return set


def _fill(value: Any, arrays: Iterator[Any]) -> Any:
    return next(arrays) if value is ... else _filled(value, arrays) if isinstance(value, HasFields) else value


def replace_nonfinite(set: ConvexSet, x: Point, anchor: Point) -> Point:
    """x with the anchor in place of each sample that is not finite."""
    finite = None
    for leaf, k in zip(leaves(x), event_dims(set), strict=True):
        good = torch.isfinite(leaf)
        good = good.flatten(start_dim=leaf.ndim - k).all(-1) if k else good
        finite = good if finite is None else finite & good
    assert finite is not None
    return map_point(
        lambda leaf, a, k: torch.where(finite[(..., *(None,) * k)], leaf, a.to(leaf.dtype)), x, anchor, set.event_ndim
    )


def _fits(leaf: Any, sizes: tuple[int | None, ...]) -> bool:
    if not isinstance(leaf, Tensor) or not leaf.dtype.is_floating_point or leaf.ndim < len(sizes):
        return False
    received = leaf.shape[leaf.ndim - len(sizes) :]
    return all([known is None or known == size for known, size in zip(sizes, received, strict=True)])


def _kind(template: ConvexSet) -> str | None:
    """What there is to know of a set besides its arrays, if the code of this library is all that it runs."""
    inner = template.blocks if isinstance(template, Product) else parts(template)
    if inner != (template,):
        kinds = [_kind(part) for part in inner]
        return None if None in kinds else f"{type(template).__name__}({', '.join(map(str, kinds))})"
    own = type(template).__module__.startswith(f"{__package__}.")
    plain = all(v is ... or v is None or isinstance(v, (int, float, str)) for _, v, _ in field_leaves(template))
    return repr(template) if own and plain else None


def allow_nodes() -> None:
    """Tell Dynamo about the functions below; otherwise it reads them as it reads the rest.

    When a layer is made, and not before: this imports Dynamo, which takes a second. So does an optimizer.
    """
    if not torch.compiler.is_compiling():
        torch.compiler.allow_in_graph([traced_projection, traced_region])


def traced_projection(
    kind: str, arrays: tuple[Tensor, ...], x: Point, anchor: Point | None, method: Method, strict: bool, nonfinite: str
) -> Point:
    """What a `Projection` returns, as one node of a program; the arrays are those of its set."""
    set = _filled(_TEMPLATES[kind], iter(arrays))
    anchor = set.anchor(x) if anchor is None else anchor
    x = replace_nonfinite(set, x, anchor) if nonfinite == "anchor" else x
    quick = strings.fused(set, x, anchor, method, strict)
    return project(set, x, anchor, method=method, strict=strict) if quick is None else quick


def traced_region(
    new: Point, old: Point, epsilon: float, kappa: float | None, layout: Any, method: Method, strict: bool
) -> Point:
    """What a `TrustRegion` returns, as one node of a program."""
    # numbers that have changed before come as symbols
    epsilon, kappa = float(epsilon), None if kappa is None else float(kappa)
    quick = gaussian.region(new, old, epsilon, Layout(*layout), method, strict) if kappa is None else None
    if quick is not None:
        return quick
    set, new, anchor = trust_region(new, old, epsilon, kappa, Layout(*layout))
    return project(set, new, anchor, method=method, strict=strict)

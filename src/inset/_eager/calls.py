"""What surrounds a call: whether a fast path may run, where its derivative may not, what is remembered for the next."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch._C._functorch import is_legacy_batchedtensor

PLAIN = (Tensor, nn.Parameter)
"""Types that are not those of some tracer."""


def traced() -> bool:
    """Whether torch makes a program of what is called, which is to be that of the formulas."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():  # modes that see every operation
        return True
    return torch._C._get_tracing_state() is not None


def transformed() -> bool:
    """Whether vmap, torch.func or forward-mode derivatives are at work, which fast paths have no rules for."""
    if torch._C._are_functorch_transforms_active():
        return True
    return not torch.compiler.is_compiling() and torch.autograd.forward_ad._current_level >= 0


def usual(x: Tensor) -> bool:
    """Whether torch does one operation after another: nothing is traced, transformed or captured."""
    return not (traced() or transformed() or (x.is_cuda and torch.cuda.is_current_stream_capturing()))


def by_formulas(*g: Tensor) -> bool:
    """Whether a derivative goes through the formulas of the set: if it is to be differentiated, or for batches of g."""
    if torch.is_grad_enabled() or transformed():
        return True
    return not torch.compiler.is_compiling() and any([is_legacy_batchedtensor(v) for v in g])


def differentiated(ctx: Any, formula: Callable[..., Any], inputs: tuple[Tensor, ...], g: Any) -> tuple[Any, ...]:
    """The derivatives of what the formula makes of the inputs, by those that ask for them."""
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        inputs = tuple([v.view_as(v) for v in inputs])  # by each alone, also where one was made of another
        chosen = [v for v, asks in zip(inputs, ctx.needs_input_grad, strict=False) if asks]
        found = iter(torch.autograd.grad(formula(*inputs), chosen, g, create_graph=again, allow_unused=True))
    return tuple([next(found) if asks else None for _, asks in zip(inputs, ctx.needs_input_grad, strict=False)])


def keep(ctx: Any, inputs: tuple[Tensor, ...], found: Any) -> None:
    """For the way back: the inputs, so that a change of them is noticed, and what was found, a `NamedTuple`.

    Tensors are saved where hooks and checkpoints see them, and go when the graph does.
    """
    ctx.save_for_backward(*inputs, *[v if isinstance(v, Tensor) else None for v in found])
    ctx.found = type(found), [None if isinstance(v, Tensor) else v for v in found]


def kept(ctx: Any) -> tuple[tuple[Tensor, ...], Any]:
    """The inputs, and what was found."""
    (kind, rest), saved = ctx.found, ctx.saved_tensors
    count = len(saved) - len(rest)
    return saved[:count], kind(*[w if v is None else v for v, w in zip(saved[count:], rest, strict=True)])


class _Entry(NamedTuple):
    """What was computed for an anchor and a kind of set: of which fields, in which state.

    It refers to none of these tensors, one of which may be the anchor, with which it is to go.
    """

    fields: tuple[Any, ...]
    """Numbers, and functions that return a tensor or, if it is gone, None."""
    versions: tuple[int, ...]
    known: Any


_MEMORY: dict[int, tuple[Any, dict[Any, _Entry]]] = {}
"""By the identity of an anchor, which may be gone: a reference to it, and what is known of its sets."""


def _forget(memory: dict[int, Any], key: int, _: Any) -> None:
    memory.pop(key, None)


def _entries(anchor: Tensor) -> dict[Any, _Entry]:
    key = id(anchor)
    found = _MEMORY.get(key)
    if found is None or found[0]() is not anchor:
        forget = partial(_forget, _MEMORY, key)  # which knows the memory also when the interpreter ends
        found = _MEMORY[key] = (weakref.ref(anchor, forget), {})
    return found[1]


def remembered(kind: Any, fields: tuple[Any, ...], anchor: Tensor) -> Any:
    """From memory, if it is about these fields and nothing has changed."""
    tensors = [anchor, *(v for v in fields if isinstance(v, Tensor))]
    capturing = anchor.is_cuda and torch.cuda.is_current_stream_capturing()  # what a graph computes is the graph's
    if capturing or any([v.is_inference() for v in tensors]):  # which do not say whether they have changed
        return kind.known(*fields, anchor=anchor)
    entries = _entries(anchor)
    versions, found = tuple([v._version for v in tensors]), entries.get(kind)
    watched = all([watchable(v) for v in tensors])
    if watched and found is not None and found.versions == versions and _same(found.fields, fields):
        return found.known
    with torch.inference_mode(False):  # what is known is for every mode
        known = kind.known(*[_alias(v) for v in fields], anchor=_alias(anchor))
    if watched:
        entries[kind] = _Entry(tuple([weakref.ref(v) if isinstance(v, Tensor) else v for v in fields]), versions, known)
    return known


def watchable(v: Tensor) -> bool:
    """Whether the tensor says if it was changed in place: not if others than torch write to its memory, as NumPy may.

    Memory that torch did not allocate cannot be resized; other processes see what is shared. Nor do the collectives of
    `torch.distributed` leave a sign, nor what gives a parameter other numbers: `Module.to`, `vector_to_parameters`.
    """
    if type(v) is nn.Parameter or v.is_inference():
        return False
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return False
    storage = v.untyped_storage()  # of which these are quicker asked than of the tensor
    return not v.is_cpu or (storage.resizable() and not storage.is_shared())


def _alias(v: Any) -> Any:
    """The same memory, and not the same tensor."""
    return v.detach() if isinstance(v, Tensor) else v


def _same(old: tuple[Any, ...], new: tuple[Any, ...]) -> bool:
    """Whether the new ones are the tensors, and equal to the numbers, that are remembered."""
    if len(old) != len(new):
        return False
    pairs = zip(old, new, strict=True)
    return all(
        [a() is b if isinstance(a, weakref.ref) else a is b or (isinstance(a, float) and a == b) for a, b in pairs]
    )

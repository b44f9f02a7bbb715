"""The only core file that names a framework: which arrays these are, and what differs between them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeGuard

# An array of torch, JAX or NumPy. They share no base class, hence `Any`.
Array = Any
# A point is an array, or a tuple of arrays (a Gaussian is `(mean, covariance)`).
Point = Any
# Terms up to which a sum is written out in a program.
FEW = 8


def namespace(x: Array) -> Any:
    """The array-API module of `x`: `array_api_compat.torch`, `jax.numpy` or `numpy`.

    array-api-compat's own lookup is cached by an lru_cache that Dynamo cannot trace, hence this one.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        import array_api_compat.torch as xp

        return xp
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(x, jax.Array):
        return jax.numpy
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, (numpy.ndarray, numpy.generic)):
        return numpy
    raise TypeError(f"expected a torch, JAX or NumPy array, received {type(x).__name__}")


def is_array(x: object) -> TypeGuard[Any]:
    """Whether `x` is an array of one of the three frameworks."""
    if is_torch(x) or is_jax(x):
        return True
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(x, (numpy.ndarray, numpy.generic))


def is_torch(x: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def is_jax(x: object) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def is_floating(x: Array) -> bool:
    """Whether the array holds real floating-point numbers."""
    if is_torch(x):
        return x.dtype.is_floating_point
    xp = namespace(x)
    return bool(xp.issubdtype(x.dtype, xp.floating))


def like(value: Array, x: Array) -> Array:
    """`value` as an array of the framework, dtype and device of `x`."""
    xp = namespace(x)
    return xp.asarray(value, dtype=x.dtype, device=x.device) if is_torch(x) else xp.asarray(value, dtype=x.dtype)


def arange_like(n: int, x: Array) -> Array:
    xp = namespace(x)
    return xp.arange(n, device=x.device) if is_torch(x) else xp.arange(n)


def eye_like(n: int, x: Array) -> Array:
    xp = namespace(x)
    return sys.modules["torch"].eye(n, dtype=x.dtype, device=x.device) if is_torch(x) else xp.eye(n, dtype=x.dtype)


def stop_gradient(x: Array) -> Array:
    """`x` as a constant."""
    if is_torch(x):
        return x.detach()
    if is_jax(x):
        return sys.modules["jax"].lax.stop_gradient(x)
    return x


def is_traced(x: Array) -> bool:
    """Whether the values of `x` cannot be looked at (inside jit, compile, vmap or export)."""
    if is_torch(x):
        if _is_recorded():
            return True
        torch = sys.modules["torch"]
        return torch._C._functorch.is_functorch_wrapped_tensor(x) or x.is_meta
    if is_jax(x):
        return isinstance(x, sys.modules["jax"].core.Tracer)
    return False


def _is_recorded() -> bool:
    """Whether torch makes a program, or a mode of it records operations."""
    torch = sys.modules["torch"]
    return torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0


def is_exporting() -> bool:
    """Whether torch exports a program, whose batch may be of any size: no choice may depend on it."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_exporting()


def exact_arithmetic(x: Array) -> AbstractContextManager[object]:
    """A context for evaluating sets: no autocast in torch, no warnings of guarded branches in NumPy.

    TF32 and other reduced float32 products are a process-wide setting of torch, see `working_dtype`.
    """
    if is_torch(x):
        torch = sys.modules["torch"]
        kind = x.device.type
        return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()
    return nullcontext() if is_jax(x) else namespace(x).errstate(all="ignore")


def reduced_products(x: Array) -> bool:
    """Whether float32 matrix products of `x` may be rounded to TF32 or bfloat16 by the framework's settings."""
    return is_torch(x) and _product_precision(x.device.type) not in ("none", "ieee", "highest")


def _product_precision(device: str) -> str:
    """What torch is set to; a CPU may have short numbers too."""
    torch = sys.modules["torch"]
    backend = torch.backends.mkldnn if device == "cpu" else torch.backends.cuda
    precision = getattr(getattr(backend, "matmul", None), "fp32_precision", None)  # older versions have one for all
    return torch.get_float32_matmul_precision() if precision is None else precision


_product_precision._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as by `assume_constant_result` of torch


def keep(condition: Array, a: Array, other: float) -> Array:
    """a where the condition holds, else the number, in the dtype of a (torch promotes 0-d arrays with numbers)."""
    xp = namespace(a)
    return xp.where(condition, a, xp.full_like(a, other) if a.ndim == 0 else other)


def muladd(a: Array, b: Array, c: Array) -> Array:
    """a + b c, in one pass where the framework has it."""
    return sys.modules["torch"].addcmul(a, b, c) if is_torch(a) else a + b * c


def positive(v: Array) -> Array:
    """v where it is positive, else 0 with derivative 0: one operation in torch."""
    return v.relu() if is_torch(v) else namespace(v).where(v > 0, v, namespace(v).zeros_like(v))


def plus(a: Array, scale: float, b: Array) -> Array:
    """a + scale b: one operation in torch."""
    return sys.modules["torch"].add(a, b, alpha=scale) if is_torch(a) else a + scale * b


def gather(v: Array, i: Array) -> Array:
    """v[..., i], one entry of the last axis per sample."""
    return gather_along(v, i[..., None], -1)[..., 0]


def take(v: Array, i: Array) -> Array:
    """v[i] along the first axis, for an index of any shape."""
    if is_torch(v):
        # a flat index: a 0-d one would be read as a number, which vmap refuses
        return v.index_select(0, i.reshape(-1)).reshape((*i.shape, *v.shape[1:]))
    return namespace(v).take(v, i, axis=0)


def select_along(v: Array, i: Array, axis: int) -> Array:
    """The entries i `(n,)` of an axis, 0 or more each: array-api-compat also looks for negative ones."""
    return v.index_select(axis, i) if is_torch(v) else namespace(v).take(v, i, axis=axis)


def gather_along(v: Array, i: Array, axis: int) -> Array:
    """`take_along_axis` for an index without negative entries; array-api-compat's spends six operations more."""
    return v.gather(axis, i) if is_torch(v) else namespace(v).take_along_axis(v, i, axis=axis)


def total(v: Array) -> Array:
    """The sum over the last axis; of a few numbers term by term where torch makes a program.

    Its compilers fuse that with what comes before and after; each other sum is a loop and an array of its own.
    """
    n = v.shape[-1]
    if is_torch(v) and isinstance(n, int) and 0 < n <= FEW and _is_recorded() and not is_exporting():
        first, *others = v.unbind(-1)
        return sum(others, first)
    return namespace(v).sum(v, axis=-1)


def lerp(a: Array, b: Array, t: Array) -> Array:
    """a + t (b - a): exactly a at t = 0 and exactly b at t = 1, and no overflow between numbers of one sign."""
    if is_torch(b):
        return sys.modules["torch"].lerp(a, b, t)
    far = (b - a) * (1 - t)
    return namespace(b).where(t < 0.5, a + t * (b - a), b - far)


def plain_norm(v: Array) -> Array:
    """sqrt(v.v) over the last axis, where it is not 0; see `_linalg.norm` for v of any size."""
    if is_torch(v):
        return sys.modules["torch"].linalg.vector_norm(v, dim=-1)
    xp = namespace(v)
    return xp.sqrt(xp.sum(v * v, axis=-1))


def length(v: Array) -> Array:
    """|v| over the last axis for rounding bounds, without derivatives and without overflow."""
    xp = namespace(v)
    if is_torch(v) and v.device.type != "mps":
        torch = sys.modules["torch"]
        if v.dtype == torch.float64:
            return torch.linalg.vector_norm(v, dim=-1)
        return torch.linalg.vector_norm(v, dim=-1, dtype=torch.float64).to(v.dtype)
    size = xp.max(abs(v), axis=-1, keepdims=True)
    size = xp.where(size > 0, size, xp.ones_like(size))
    return size[..., 0] * xp.linalg.vector_norm(v / size, axis=-1)


def symmetric_eigen(S: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of finite symmetric matrices; on the CPU where an accelerator's solver gives up."""
    if not is_torch(S):
        return namespace(S).linalg.eigh(S)
    torch = sys.modules["torch"]
    if S.device.type == "cpu" or torch.compiler.is_compiling():
        return torch.linalg.eigh(S)
    try:
        return torch.linalg.eigh(S)
    except torch.linalg.LinAlgError:
        values, V = torch.linalg.eigh(S.cpu())
        return values.to(S.device), V.to(S.device)


def cholesky(S: Array) -> Array:
    """The lower Cholesky factor; NaN, not an error, for each matrix of the batch that is not positive definite."""
    if is_torch(S):
        L, failed = sys.modules["torch"].linalg.cholesky_ex(S)
        return L + sys.modules["torch"].where(failed > 0, float("nan"), 0.0).to(L.dtype)[..., None, None]
    xp = namespace(S)
    if is_jax(S):
        return xp.linalg.cholesky(S)
    try:
        return xp.linalg.cholesky(S)
    except xp.linalg.LinAlgError:
        if S.ndim == 2:
            return xp.full_like(S, float("nan"))
        return xp.stack([cholesky(matrix) for matrix in S])


def host(v: Array) -> Array:
    """The same array, of NumPy if it is in the memory of the host."""
    if is_torch(v):
        v = v.detach()
        return v.numpy() if v.device.type == "cpu" else v
    import numpy as np

    return np.asarray(v)


def jitted(fn: Callable[..., Any], x: Array) -> Callable[..., Any]:
    """`fn` under `jax.jit` if x is an array of JAX, whose eager derivatives are slow; else as it is."""
    return sys.modules["jax"].jit(fn) if is_jax(x) else fn


def widen(v: Array) -> Array:
    """The same array in float64, where the framework and the device have it."""
    xp = namespace(v)
    if is_torch(v):
        return v if v.device.type == "mps" else v.to(xp.float64)
    return xp.astype(v, xp.asarray(0.0).dtype)


def repeat(steps: Any, body: Callable[..., tuple[Any, ...]], state: tuple[Any, ...]) -> tuple[Any, ...]:
    """`state = body(*state)` so many times; one loop instead of many copies of the body where JAX traces.

    The state is a tuple of arrays, or of such tuples.
    """
    first = state[0]
    while isinstance(first, tuple):
        first = first[0]
    if is_jax(first) and is_traced(first):
        return sys.modules["jax"].lax.fori_loop(0, steps, lambda _, state: body(*state), state)
    for _ in range(steps):
        state = body(*state)
    return state


def scan(body: Callable[..., tuple[Any, Any]], state: Any, *columns: list[Any]) -> tuple[Any, Any]:
    """`state, row = body(state, *entries)` over the entries of the columns, as one loop of JAX; also all rows."""
    jax = sys.modules["jax"]
    inputs = tuple([jax.numpy.asarray(column) for column in columns])
    return jax.lax.scan(lambda state, entries: body(state, *entries), state, inputs)


def select(condition: Array, yes: Callable[[Any], Any], no: Callable[[Any], Any], state: Any) -> Any:
    """yes(state) or no(state), where JAX traces the condition."""
    return sys.modules["jax"].lax.cond(condition, yes, no, state)


def value_and_grad(fn: Callable[[Array], Array], x: Array) -> tuple[Array, Array]:
    """Values `fn(x)` of shape `(batch,)` and their gradients of shape `(batch, n)`.

    NumPy has no automatic differentiation: central differences, one batched call.
    """
    if is_torch(x):
        torch = sys.modules["torch"]
        with torch.enable_grad():
            z = x.detach().requires_grad_(True)
            value = fn(z)
            (grad,) = torch.autograd.grad(value.sum(), z)
        return value.detach(), grad
    xp = namespace(x)
    if is_jax(x):
        value, pullback = sys.modules["jax"].vjp(fn, x)
        return value, pullback(xp.ones_like(value))[0]
    n = x.shape[-1]
    step = float(xp.finfo(x.dtype).eps) ** (1 / 3) * xp.maximum(xp.max(xp.abs(x), axis=-1, keepdims=True), 1.0)
    moves = step[..., None] * xp.eye(n, dtype=x.dtype)  # (batch, n, n)
    # the coordinate index leads, so that batched fields of the set still meet the batch of x
    moves = xp.moveaxis(moves, -2, 0)
    difference = fn(x + moves) - fn(x - moves)  # (n, batch)
    return fn(x), xp.moveaxis(difference, 0, -1) / (2 * step)


def put(v: Array, i: Array, row: Array, where: Array) -> Array:
    """v with v[n, i[n]] = row[n] for the samples n of the mask; torch writes into v itself."""
    xp, n = namespace(v), arange_like(v.shape[0], v)
    row = xp.where(where[(..., *(None,) * (row.ndim - 1))], row, v[n, i])
    return v.index_put_((n, i), row) if is_torch(v) else v.at[n, i].set(row)


def running_sum(v: Array) -> Array:
    """Sums of the first entries of the last axis. Torch's own: array-api-compat's looks its namespace up in a cache."""
    return v.cumsum(-1) if is_torch(v) else namespace(v).cumulative_sum(v, axis=-1)

"""`minimize`, without a framework: build the program, let the solver advance it, collect the result."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .._namespace import Array, Point, is_traced, namespace, repeat, scan, select
from .._set import ConvexSet
from ._build import build
from ._program import Program, linear
from ._record import Record
from ._step import step_shape
from .igd import IGD
from .pgd import PGD
from .radial import Radial
from .result import Result
from .subgd import SubGD

Solver = Radial | IGD | SubGD | PGD
DEFAULT = Radial()
Callback = Callable[[int, Result], Any]


def minimize(
    compiled: Callable[[Any], Any],
    objective: Any,
    set: ConvexSet,
    anchor: Point,
    solver: Any,
    steps: int,
    callback: Callback | None = None,
    progress: bool = False,
) -> Result:
    """See `inset.torch.minimize`. `compiled` is what the framework makes of a function that is called often."""
    if steps < 1:
        raise ValueError(f"minimize(steps={steps}): expected at least one step")
    program = build(compiled, objective, set, anchor, step_shape(solver))
    task = compiled(linear)(program) if getattr(solver, "linear", False) else program
    if is_traced(program.offset + program.scale[:, 0]):
        return _traced(program, task, solver, steps)
    state = compiled(_start)(solver, task)
    history: list[Array] = []
    recorded: list[int] = []
    for done in schedule(steps):
        state = compiled(_advance)(solver, task, state, done - (recorded[-1] if recorded else 0))
        history.append(state.record.value)
        recorded.append(done)
        ended = not bool(namespace(state.record.value).any(state.record.running))
        if progress:
            _show(done, steps, state.record)
        if callback is not None:
            ended = bool(callback(done, _result(compiled, program, task, state, history, recorded))) or ended
        if ended:
            break
        if _refreshes(solver, done):
            state = compiled(_refresh)(solver, task, state)
    if progress:
        print(file=sys.stderr)
    result = _result(compiled, program, task, state, history, recorded)
    return solver.certify(task, state, result) if hasattr(solver, "certify") else result


def schedule(steps: int) -> list[int]:
    """The steps that are recorded: the first 100, the powers of 2, about 30 per factor of ten, and the last one."""
    chosen = {*range(1, min(steps, 100) + 1), steps}
    k = 0
    while (at := round(100 * 10 ** (k / 30))) <= steps:
        chosen.add(at)
        k += 1
    chosen.update(2**k for k in range(steps.bit_length()))
    return sorted(chosen)


def _refreshes(solver: Any, done: int) -> bool:
    """After 32, 64, 128, ... steps."""
    return hasattr(solver, "refresh") and done >= 32 and done & (done - 1) == 0


def _start(solver: Any, task: Any) -> Any:
    return solver.start(task)


def _advance(solver: Any, task: Any, state: Any, steps: Any) -> Any:
    return repeat(steps, lambda *entries: solver.advance(task, type(state)(*entries)), state)


def _refresh(solver: Any, task: Any, state: Any) -> Any:
    return solver.refresh(task, state)


def _finish(program: Program, task: Any, state: Any) -> tuple[Any, ...]:
    """The arrays of the result: the best point and the average moved inside strictly, and their values."""
    record, k = state.record, program.anchor.shape[-1]
    xp = namespace(record.value)
    origin = getattr(state, "origin", task.anchor)[:, :k]
    count = xp.astype(record.count, record.value.dtype)[:, None]
    mean = xp.where(count > 0, record.total[:, :k] / xp.where(count > 0, count, xp.ones_like(count)), program.anchor)
    best = _inside(program, record.z[:, :k], origin)
    mean = _inside(program, mean + 0 * best, origin)  # after the best point, not beside it: see there
    best, mean = (xp.where(program.usable[:, None], z, z + float("nan")) for z in (best, mean))
    shaped = [xp.reshape(v, program.at.batch) for v in (program.value(best), record.evaluations, record.status)]
    return program.point(best), program.point(mean), *shaped


def _inside(program: Program, z: Array, origin: Array) -> Array:
    """z moved towards the origin by the second of a few growing shares at which h <= 0: one might be by chance.

    The bound of `strict`, which holds in any precision, would cost more of the objective than descent has left.
    One share after the other: JAX deadlocks on the CPU when one program has several batches of eigenvalues at once.
    """
    xp = namespace(z)

    def grow(share: Array, before: Array, done: Array) -> tuple[Array, Array, Array]:
        inside = xp.all(program.constraints(z + share[:, None] * (origin - z)) <= 0, axis=-1)
        done = done | (inside & before)
        return xp.where(done, share, 16 * share + 4 * float(xp.finfo(z.dtype).eps)), inside, done

    share = xp.zeros_like(z[:, 0])
    state = share, share != 0, share != 0
    if is_traced(z):
        state = repeat(9, grow, state)
    else:
        for _ in range(9):
            state = grow(*state)
            if bool(xp.all(state[2])):
                break
    share = xp.where(state[2], state[0], xp.ones_like(share))
    return z + share[:, None] * (origin - z)


def _result(
    compiled: Any, program: Program, task: Any, state: Any, history: list[Array] | Array, recorded: list[int]
) -> Result:
    x, average, value, evaluations, status = compiled(_finish)(program, task, state)
    xp = namespace(value)
    rows = xp.stack(history) if isinstance(history, list) else history
    stacked = xp.reshape(xp.moveaxis(rows, 0, -1), (*program.at.batch, len(recorded)))
    unknown = xp.full_like(value, -float("inf"))
    return Result(x, value, average, stacked, tuple(recorded), evaluations, unknown, status)


def _traced(program: Program, task: Any, solver: Any, steps: int) -> Result:
    """The same loop as one computation: no callback, no early end, no certificate."""
    plan = schedule(steps)
    lengths = [b - a for a, b in zip([0, *plan], plan, strict=False)]

    def chunk(state: Any, length: Any, refreshes: Any) -> tuple[Any, Array]:
        state = _advance(solver, task, state, length)
        if hasattr(solver, "refresh"):
            state = select(refreshes, lambda s: solver.refresh(task, s), lambda s: s, state)
        return state, state.record.value

    state, history = scan(chunk, solver.start(task), lengths, [_refreshes(solver, done) for done in plan])
    return _result(lambda fn: fn, program, task, state, history, plan)


def _show(done: int, steps: int, record: Record) -> None:
    """A bar on stderr: how far, how many problems still run, the median of the best values."""
    xp = namespace(record.value)
    values = xp.sort(record.value)
    bar = ("#" * (24 * done // steps)).ljust(24, ".")
    running, count = int(xp.sum(xp.astype(record.running, xp.int32))), record.value.shape[0]
    text = f"\r[{bar}] step {done}/{steps}, {running} of {count} running, median value {float(values[count // 2]):.6g}"
    print(text.ljust(100), end="", file=sys.stderr, flush=True)

"""The nearest point at which no string is too long: min |y - x|^2 / 2 with |(A y)_l| <= 1 for each link l.

The conditions of optimality, with t_l the pull of a string, stand at `_solution`. An interior-point method with a
static number of steps solves them, and Newton steps give the solution its derivatives.
"""

from __future__ import annotations

from collections.abc import Callable

from ._linalg import norm, squared_norm
from ._namespace import Array, eye_like, jitted, keep, namespace, repeat, stop_gradient

APPROACH, FINISH, SETTLE = 8, 14, 6  # steps, enough for any violation up to 1e6 lengths
LEAST = 1e-18  # t and slack stay above it, so that their product is not 0 in float32


def shortened(D: Array, lengths: Array, x: Array) -> Array:
    """The nearest y to x, `(..., bodies, d)`, with |(D y)_l| <= length_l; D `(m, bodies)` takes bodies to spans.

    Solved in units of the longest string, around the mean of the bodies that strings hold together.
    """
    xp = namespace(x)
    unit = stop_gradient(xp.max(lengths, axis=-1))[..., None, None]
    middle = _components(D) @ x
    z, A = (x - middle) / unit, D * (unit / lengths[..., None])
    z = z * _shrunk(stop_gradient(z))
    values = stop_gradient(xp.where(xp.isfinite(z), z, xp.zeros_like(z)))
    search = jitted(_solution, x)
    return middle + unit * _attached(A, z, *search(stop_gradient(A), values, stop_gradient(lengths) / unit[..., 0]))


def _components(D: Array) -> Array:
    """The matrix that moves all bodies that strings hold together, by way of others too, to their mean."""
    xp = namespace(D)
    joined = abs(xp.matrix_transpose(D)) @ abs(D) + eye_like(D.shape[-1], D)
    for _ in range(D.shape[-1].bit_length()):  # each time the way may be twice as long
        joined = xp.astype(joined @ joined > 0, D.dtype)
    return joined / xp.sum(joined, axis=-1, keepdims=True)


def _shrunk(x: Array) -> Array:
    """The factor <= 1 that brings each x to |x| <= R: the nearest point to one further away is as good as the same.

    It has moved by about 1 / R, and is rounded to eps |x|. With t <= R, 1 + t is not yet t.
    """
    xp = namespace(x)
    most = float(xp.finfo(x.dtype).eps) ** -0.6
    size = xp.max(abs(x), axis=(-2, -1), keepdims=True)
    return most / keep(size > most, size, most)


def _solution(A: Array, x: Array, shares: Array) -> tuple[Array, ...]:
    """y, t and slack with y - x + A^T diag(t) A y = 0, (|A y|^2 - 1) / 2 + slack = 0, t >= 0, slack >= 0, t slack = 0.

    Far from the solution, near it, and at it three kinds of steps are at their best.
    """
    y, t, _ = repeat(APPROACH, _approaching(A), _start(A, x, shares))
    slack = -_residuals(A, x, y, t)[1]
    state = repeat(FINISH, _finishing(A, x), (y, t, keep(slack > 0, slack, 0.5)))
    new = repeat(SETTLE, _settling(A, x), state)
    return _chosen(_error(A, x, *new) <= _error(A, x, *state), new, state)


def _start(A: Array, x: Array, shares: Array) -> tuple[Array, Array, Array]:
    """y = x - A^T w with |w_l| < t_l and |(A y)_l| <= 1/2.

    No string pulls with more than the sum of all |x_i|, so a t of twice that and in proportion to the lengths will do.
    """
    xp = namespace(x)
    pull = 2 * xp.sum(norm(x), axis=-1)[..., None]
    t = xp.where(pull > 1e-3, pull, xp.zeros_like(pull) + 1e-3) * shares + xp.zeros_like(A[..., 0])
    y = _inverse(A, t) @ x
    return y, t, t[..., None] * (A @ y)


def _approaching(A: Array) -> Callable[..., tuple[Array, ...]]:
    """Steps along the central path, from any distance: (1, A y) and (t, -w) are in the cone {(a, b) : |b| <= a}.

    Both are moved by the direction of Nesterov and Todd, to a tenth of the gap t - w.Ay of before. All else is linear,
    so y = x - A^T w is kept. The path is left where 1 - |A y|^2 would lose its digits.
    """
    xp = namespace(A)

    def step(y: Array, t: Array, w: Array) -> tuple[Array, ...]:
        v = A @ y
        gap = t - xp.sum(v * w, axis=-1)
        room, bound = 1 - squared_norm(v), (t - norm(w)) * (t + norm(w))
        a, b = xp.sqrt(room), xp.sqrt(bound)
        mean, least = xp.mean(gap, axis=-1, keepdims=True) / 10, xp.mean(t, axis=-1, keepdims=True) / 1000
        goal = xp.where(mean > least, mean, least) / room
        axis = v / a[..., None] + w / b[..., None]
        push = goal[..., None] * v - w
        solve = _saddle(A, b / a, axis, (a / b) * (1 + gap / (a * b)))
        dy, along = solve(xp.matrix_transpose(A) @ push, xp.zeros_like(t))
        dv = A @ dy
        dt = goal - t + (1 / a + t / b) * along
        dw = push + (b / a)[..., None] * dv + along[..., None] * axis
        lowest = xp.concat([_lowest(xp.ones_like(t), v, a, xp.zeros_like(t), dv), _lowest(t, w, b, dt, dw)], axis=-1)
        size = _within(lowest, 0.9)
        new = y + size[..., None] * dy, t + size * dt, w + size[..., None] * dw
        return _chosen(xp.isfinite(xp.sum(new[0], axis=(-2, -1))), new, (y, t, w))

    return step


def _finishing(A: Array, x: Array) -> Callable[..., tuple[Array, ...]]:
    """Newton steps with Mehrotra's corrector on the equations of `_solution`: fast near the central path, and exact."""
    xp = namespace(x)

    def step(y: Array, t: Array, slack: Array) -> tuple[Array, ...]:
        solve = _saddle(A, t, A @ y, slack / t)
        off, excess = _residuals(A, x, y, t)
        product = t * slack
        mean = xp.mean(product, axis=-1, keepdims=True)

        def direction(change: Array) -> tuple[Array, Array, Array]:
            """Of y, and of t and the slacks in parts of themselves, which add up to the change of their product."""
            dy, dt = solve(off, excess + slack * (1 + change))
            return dy, dt / t, change - dt / t

        _, up, down = direction(-xp.ones_like(t))
        size = _within(xp.concat([up, down], axis=-1), 1.0)
        left = xp.mean(product * (1 + size * up) * (1 + size * down), axis=-1, keepdims=True) / mean
        dy, up, down = direction(left**3 * mean / product - 1 - up * down)
        # as the products vanish, steps all the way to 0 let them vanish faster
        size = _within(xp.concat([up, down], axis=-1), 1 - xp.where(mean < 0.01, mean, xp.zeros_like(mean) + 0.01))
        moved = (v * (1 + size * part) for v, part in ((t, up), (slack, down)))
        new = y + size[..., None] * dy, *[keep(v > LEAST, v, LEAST) for v in moved]
        return _chosen(xp.isfinite(xp.sum(new[0], axis=(-2, -1))), new, (y, t, slack))

    return step


def _settling(A: Array, x: Array) -> Callable[..., tuple[Array, ...]]:
    """Newton steps on y - x + A^T diag(t) A y = 0 with |A y| = 1 where t > slack (taut), and t = 0 elsewhere.

    They tell taut strings from slack ones where both t and slack are small, for which `_finishing` takes long.
    """
    xp = namespace(x)

    def step(y: Array, t: Array, slack: Array) -> tuple[Array, ...]:
        taut = t > slack
        held = xp.where(taut, t, xp.zeros_like(t))
        off, excess = _residuals(A, x, y, held)
        dy, dt = _taut(A, y, held, taut)(off, xp.where(taut, excess, xp.zeros_like(t)))
        return y + dy, held + dt, -_residuals(A, x, y + dy, t)[1]

    return step


def _error(A: Array, x: Array, y: Array, t: Array, slack: Array) -> Array:
    """How far y, t and slack are from solving the equations."""
    xp = namespace(x)
    off = xp.max(abs(_residuals(A, x, y, t)[0]), axis=(-2, -1))
    return off + xp.max(abs(xp.where(t < slack, t, slack)), axis=-1)


def _taut(A: Array, y: Array, t: Array, taut: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """`_saddle` for the taut strings alone."""
    xp = namespace(y)
    v = A @ y
    w = xp.where(taut, xp.zeros_like(t), xp.ones_like(t))
    return _saddle(A, t, xp.where(taut[..., None], v, xp.zeros_like(v)), w)


def _attached(A: Array, x: Array, y: Array, t: Array, slack: Array) -> Array:
    """The value of y with the first and second derivatives of the solution, by the implicit function theorem.

    Newton steps less their values, on the equations of the taut strings alone, with a constant matrix.
    """
    xp = namespace(x)
    taut = t > slack
    t = xp.where(taut, t, xp.zeros_like(t))
    solve = _taut(stop_gradient(A), y, t, taut)
    for _ in range(2):
        off, excess = _residuals(A, x, y, t)
        excess = xp.where(taut, excess - stop_gradient(excess), xp.zeros_like(excess))
        dy, dt = solve(off - stop_gradient(off), excess)
        y, t = y + dy, t + dt
    return y


def _residuals(A: Array, x: Array, y: Array, t: Array) -> tuple[Array, Array]:
    """y - x + A^T diag(t) A y and (|A y|^2 - 1) / 2."""
    v = A @ y
    return y - x + namespace(x).matrix_transpose(A) @ (t[..., None] * v), (squared_norm(v) - 1) / 2


def _saddle(A: Array, t: Array, v: Array, w: Array) -> Callable[[Array, Array], tuple[Array, Array]]:
    """The function of p, q that solves (I + A^T diag(t) A) y + A^T (z v) = -p and v.(A y) - w z = -q for y and z."""
    xp = namespace(v)
    At, eye = xp.matrix_transpose(A), eye_like(A.shape[-2], v)
    inverse = _inverse(A, t)
    S = (A @ inverse @ At) * (v @ xp.matrix_transpose(v)) + w[..., None] * eye
    scale = 1 / xp.sqrt(xp.sum(S * eye, axis=-1))[..., None]
    # strings may be taut in more ways than bodies can move: the matrix is singular then, but for a little more than eps
    little = A.shape[-2] * float(xp.finfo(v.dtype).eps)
    S = xp.linalg.inv(S * scale * xp.matrix_transpose(scale) + little * eye)

    def solve(p: Array, q: Array) -> tuple[Array, Array]:
        right = q - xp.sum(v * (A @ (inverse @ p)), axis=-1)
        z = (scale * (S @ (scale * right[..., None])))[..., 0]
        return -inverse @ (p + At @ (z[..., None] * v)), z

    return solve


def _inverse(A: Array, t: Array) -> Array:
    """(I + A^T diag(t) A)^-1."""
    xp, eye = namespace(t), eye_like(A.shape[-1], t)
    return xp.linalg.inv(eye + xp.matrix_transpose(A) @ (t[..., None] * A))


def _lowest(a: Array, b: Array, size: Array, da: Array, db: Array) -> Array:
    """The r for which (a, b) + s (da, db) leaves the cone {|b| <= a} at s = -1 / r; size^2 = a^2 - |b|^2."""
    xp = namespace(a)
    a, b, da, db = a / size, b / size[..., None], da / size, db / size[..., None]
    ahead = a * da - xp.sum(b * db, axis=-1)
    return ahead - norm(db - ((ahead + da) / (a + 1))[..., None] * b)


def _within(parts: Array, most: Array | float) -> Array:
    """The step <= 1, `(..., 1)`, at which no 1 + step part falls below 1 - most."""
    xp = namespace(parts)
    fall = xp.max(-parts, axis=-1, keepdims=True)
    limit = xp.zeros_like(fall) + most
    return limit / xp.where(fall > limit, fall, limit)


def _chosen(which: Array, new: tuple[Array, ...], old: tuple[Array, ...]) -> tuple[Array, ...]:
    """The new arrays of the samples for which it holds, the old of the others."""
    xp = namespace(which)
    pairs = zip(new, old, strict=True)
    return tuple([xp.where(which[(..., *(None,) * (v.ndim - which.ndim))], v, u) for v, u in pairs])

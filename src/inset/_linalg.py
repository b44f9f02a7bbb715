"""What several sets share: products with batched matrices, norms, and eigenvalues with their own derivatives."""

from __future__ import annotations

from collections.abc import Callable

from ._namespace import (
    Array,
    cholesky,
    eye_like,
    gather_along,
    is_torch,
    keep,
    length,
    namespace,
    plain_norm,
    stop_gradient,
    symmetric_eigen,
    take,
)

# Arguments of logarithms and powers are cut off here. One number for all dtypes, so that a point judged in float32
# is judged alike in float64; each set says in which direction it errs.
FLOOR = 1e-30


def raised(v: Array) -> Array:
    """v, or `FLOOR` where it is below it. (ONNX's optimizer takes v + 1e-30 for v, so it is never added.)"""
    return keep(~(v < FLOOR), v, FLOOR)


def apply(A: Array, x: Array) -> Array:
    """A x for A of shape `(*batch, m, n)` and x of shape `(*batch, n)`."""
    if A.ndim == 2:
        return x @ A.T
    return (A @ x[..., None])[..., 0]


def affine(A: Array, x: Array, b: Array) -> Array:
    """A x + b: one operation in torch where A is the same for all samples."""
    if is_torch(x) and A.ndim == x.ndim == b.ndim == 2:
        return b.addmm(x, A.T)
    return apply(A, x) + b


def pick(field: Array, i: Array, event: int) -> Array:
    """Entry i of the constraint axis of a field `(*batch, m, ...)` with `event` axes behind it.

    A number is the same for every i.
    """
    if not hasattr(field, "ndim") or field.ndim <= event:
        return field
    xp = namespace(field)
    if field.ndim == event + 1:
        return take(field, i)
    shape = (*i.shape, *field.shape[field.ndim - event - 1 :])
    at = i[(..., *(None,) * (event + 1))]
    at = xp.broadcast_to(at, (*i.shape, 1, *shape[len(i.shape) + 1 :]))
    return gather_along(xp.broadcast_to(field, shape), at, -event - 1).squeeze(-event - 1)


def sign(v: Array) -> Array:
    """-1, 0 or 1 (array-api-compat's own masks NaN by assignment, which vmap refuses)."""
    xp = namespace(v)
    return xp.where(v > 0, xp.ones_like(v), xp.where(v < 0, -xp.ones_like(v), xp.zeros_like(v)))


def unit(v: Array) -> Array:
    """v / |v| over the last axis, 0 for v = 0; without derivatives."""
    size = length(v)[..., None]
    return v / keep(size > 0, size, 1.0)


def squared_norm(v: Array) -> Array:
    """v.v over the last axis."""
    return namespace(v).sum(v * v, axis=-1)


def norm(v: Array) -> Array:
    """|v| over the last axis: no overflow or underflow, and derivative 0 at v = 0 in every framework."""
    size = namespace(v).max(abs(stop_gradient(v)), axis=-1, keepdims=True)
    zero = size <= 0
    v = keep(~zero, v / keep(~zero, size, 1.0), 1.0)  # no root of 0, which has no second derivative
    return size[..., 0] * plain_norm(v)


def root(square: Array) -> Array:
    """sqrt where positive, else 0 with derivative 0. NaN stays NaN."""
    xp = namespace(square)
    flat = square <= 0
    return xp.where(flat, xp.zeros_like(square), xp.sqrt(xp.where(flat, xp.ones_like(square), square)))


def ball_gauge(p: Array, d: Array, radius: Array) -> Array:
    """1/t for the largest t with |p + t d| <= radius, where |p| < radius.

    With a = radius^2 - |p|^2 and b = p.d it is the positive root s of a s^2 - 2 b s - |d|^2 = 0,
    written so that nothing cancels; the factor (radius - |p|)(radius + |p|) keeps a accurate.
    """
    xp = namespace(d)
    length, inner = norm(d), norm(p)
    size = xp.where(length > 0, length, xp.ones_like(length))  # scale out |d|: it may be huge
    b = xp.sum(p * (d / size[..., None]), axis=-1)
    a = (radius - inner) * (radius + inner)
    disc = root(b * b + a * xp.where(length > 0, xp.ones_like(length), xp.zeros_like(length)))
    outward = b > 0
    gauge = xp.where(
        outward,
        (disc + b) / a,
        1 / xp.where(outward | (length == 0), xp.ones_like(b), disc - b),
    )
    return length * gauge


def onto_ball(v: Array, radius: Array | float) -> Array:
    """The nearest point of the ball |v| <= radius around 0."""
    size = norm(v)
    outside = size > radius
    factor = keep(outside, radius / keep(outside, size, 1.0), 1.0)
    return factor[..., None] * v


def onto_cone(v: Array) -> Array:
    """The nearest point of the second-order cone |p| <= a, for v = (p, a)."""
    xp = namespace(v)
    p, a = v[..., :-1], v[..., -1:]
    size = norm(p)[..., None]
    top = keep(size > abs(a), (size + a) / 2, 0.0)
    between = xp.concat([top / keep(size > 0, size, 1.0) * p, top], axis=-1)
    return xp.where(size <= a, v, between)


def orthant_domain(anchor: Array, x: Array) -> Array:
    """The largest t <= 1 with anchor + t (x - anchor) >= 0 in every coordinate, anchor > 0."""
    xp = namespace(x)
    below = x < 0
    steps = xp.where(below, anchor / (anchor - xp.where(below, x, xp.zeros_like(x))), xp.ones_like(x))
    return xp.min(steps, axis=-1)


def symmetric(X: Array) -> Array:
    """(X + X^T) / 2."""
    return (X + namespace(X).matrix_transpose(X)) / 2


def eigh(S: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of symmetric matrices; NaN for one that is not finite, which LAPACK would refuse."""
    xp = namespace(S)
    size = xp.max(abs(S), axis=(-2, -1))[..., None]
    finite = xp.isfinite(size)
    unit = xp.where(finite & (size > 0), size, xp.ones_like(size))
    S = xp.where(finite[..., None], S / unit[..., None], eye_like(S.shape[-1], S))
    # entries far below rounding keep batched solvers on accelerators from converging
    S = xp.where(abs(S) < float(xp.finfo(S.dtype).eps) / 64, xp.zeros_like(S), S)
    values, V = symmetric_eigen(S)
    return xp.where(finite, unit * values, float("nan") * xp.ones_like(values)), V


def frobenius(X: Array) -> Array:
    """|X|_F over the last two axes, for rounding bounds."""
    return length(namespace(X).reshape(X, (*X.shape[:-2], X.shape[-2] * X.shape[-1])))


def positive_part(X: Array) -> Array:
    """The nearest positive semidefinite matrix of a symmetric X, with derivatives that are finite at ties.

    It is (X + |X|) / 2. With X = V diag(l) V^T, V constant, the change B of V^T |X| V that goes with a change E of
    V^T X V follows from |X|^2 = X^2,

        (|l_i| + |l_j|) B_ij = (l_i + l_j) E_ij + (E E - B B)_ij,

    of which two fixed-point steps from B = 0 give the first and second derivatives.
    """
    xp = namespace(X)
    values, V = eigh(stop_gradient(X))
    Vt = xp.matrix_transpose(V)
    W = Vt @ X @ V
    E = W - stop_gradient(W)  # 0: only its derivatives matter
    total = abs(values)[..., :, None] + abs(values)[..., None, :]
    flat = ~(total > 0)
    total = xp.where(flat, xp.ones_like(total), total)
    slope = xp.where(flat, xp.zeros_like(total), (values[..., :, None] + values[..., None, :]) / total)
    B = slope * E
    B = B + xp.where(flat, xp.zeros_like(B), (E @ E - B @ B) / total)
    return symmetric((V * keep(values > 0, values, 0.0)[..., None, :]) @ Vt + V @ ((E + B) / 2) @ Vt)


def semidefinite_gauge(S: Array, D: Array) -> Array:
    """1/t for the largest t with S + t D positive semidefinite, S positive definite: -lambda_min(L^-1 D L^-T)."""
    xp = namespace(D)
    L = cholesky(S)
    size = xp.max(abs(stop_gradient(D)), axis=(-2, -1))
    size = xp.where(size > 0, size, xp.ones_like(size))
    inverse = xp.linalg.inv(L)
    W = inverse @ (D / size[..., None, None]) @ xp.matrix_transpose(inverse)
    return -size * smallest_eigenvalue(symmetric(W))


def smallest_eigenvalue(S: Array) -> Array:
    """lambda_min of a symmetric matrix, with first and second derivatives that are finite at ties.

    With S = V diag(l) V^T and W = V^T S V (V constant), W_00 - sum_j W_0j^2 / (l_j - l_0) has the value and
    the two derivatives of lambda_min; eigenvalues tied with it are left out of the sum.
    """
    xp = namespace(S)
    values, V = eigh(stop_gradient(S))
    v = V[..., :, 0]
    w = (xp.matrix_transpose(V) @ (S @ v[..., None]))[..., 0]
    gap = values - values[..., :1]
    tied = gap <= 1e-6 * xp.max(abs(values), axis=-1, keepdims=True)
    slant = w - stop_gradient(w)  # W_0j: 0 but for rounding; only its derivatives matter
    curve = slant / xp.where(tied, xp.ones_like(gap), gap) * xp.where(tied, xp.zeros_like(w), slant)
    return values[..., 0] + slant[..., 0] - xp.sum(curve, axis=-1)


def spectral_sum(
    S: Array, f: Callable[[Array], Array], slope: Callable[[Array], Array], bend: Callable[[Array], Array]
) -> Array:
    """sum_i f(l_i) over the eigenvalues of S, with first and second derivatives that are finite at ties.

    `slope` and `bend` are f' and f''. The value and derivatives are those of
    sum_i f(W_ii) + 1/2 sum_{i != j} [f'](l_i, l_j) W_ij^2, with W = V^T S V and [f'] the divided difference.
    """
    xp = namespace(S)
    values, V = eigh(stop_gradient(S))
    W = xp.matrix_transpose(V) @ S @ V
    diagonal = xp.sum(xp.where(_eye(W), W, xp.zeros_like(W)), axis=-1)
    diagonal = values + (diagonal - stop_gradient(diagonal))
    left, right = values[..., :, None], values[..., None, :]
    gap = left - right
    tied = xp.abs(gap) <= 1e-6 * (xp.abs(left) + xp.abs(right))
    steep = xp.where(tied, xp.zeros_like(gap), slope(left) - slope(right)) / xp.where(tied, xp.ones_like(gap), gap)
    quotient = xp.where(tied, bend((left + right) / 2), steep)
    slant = xp.where(_eye(W), xp.zeros_like(W), W - stop_gradient(W))  # W_ij: only its derivatives matter
    return xp.sum(f(diagonal), axis=-1) + xp.sum(quotient * slant * slant, axis=(-2, -1)) / 2


def _eye(W: Array) -> Array:
    return eye_like(W.shape[-1], W) > 0

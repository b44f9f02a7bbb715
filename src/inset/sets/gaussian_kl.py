"""`GaussianKL`: a trust region around a Gaussian policy."""

from __future__ import annotations

import math

from .. import _gaussian as gaussian
from .._fields import map_arrays
from .._linalg import apply, eigh, frobenius, root, spectral_sum, symmetric
from .._namespace import Array, cholesky, eye_like, is_array, is_traced, keep, length, namespace, stop_gradient, total
from .._root import attached, convex_root, decreasing_root, lifted, lifted_matrix
from .._set import ConvexSet, convex_set, static
from .._values import require


@convex_set
class GaussianKL(ConvexSet):
    """{(means, covariance) : KL(N(mean, covariance) | N(mean_q, covariance_q)) <= epsilon}.

    h = (tr(Sq^-1 S) - d - log det(Sq^-1 S) + (m - mq).Sq^-1 (m - mq)) / 2 - epsilon,

    with the last term averaged over states when `average`. A point is `(means, covariance)`:

    - `average=True`: means `(..., K, d)` of K states and one covariance, one constraint, as in the paper;
      `average=False`: means `(..., d)`, states are a batch and each has its own constraint;
    - `diagonal=True`: the covariance is a vector `(..., d)`, else a matrix `(..., d, d)`;
    - `parameterization`: "covariance" (variances), "cholesky" (standard deviations, or a lower triangular
      matrix), or "log_std". The KL is convex in each.

    `mean` and `covariance` are those of the old policy q, in the same form, and are the anchor. Where a variance
    falls below a thousandth of the old one (or a log-std rises by 3), far outside of the set, h goes on along its
    tangent: it is finite everywhere, also for negative variances.

    >>> import numpy as np
    >>> region = GaussianKL(np.zeros((1, 2)), np.ones(2), epsilon=0.01)
    >>> means, variances = region.anchor()
    >>> region.h((means + 1.0, variances)).round(6)   # KL = 1 for a shift by one sigma in two dimensions
    np.float64(0.99)
    """

    mean: Array
    covariance: Array
    epsilon: Array | float
    average: bool = static(default=True)
    diagonal: bool = static(default=True)
    parameterization: gaussian.Parameterization = static(default="covariance")

    def __post_init__(self) -> None:
        gaussian.check_layout("GaussianKL", self.parameterization, self.diagonal)
        super().__post_init__()

    @property
    def event_ndim(self) -> tuple[int, int]:  # type: ignore[override]
        return gaussian.event_ndim(self.average, self.diagonal)

    @property
    def shapes(self) -> dict[str, str | tuple[str, ...]]:  # type: ignore[override]
        mean, covariance = "K d" if self.average else "d", "d" if self.diagonal else "d d"
        return {"mean": mean, "covariance": covariance, "epsilon": "", "x": (mean, covariance)}

    def constraints(self, x: tuple[Array, Array]) -> Array:
        xp = namespace(x[0])
        z = self._whiten(x[0])
        shift = xp.sum(z * z, axis=-1)
        shift = xp.mean(shift, axis=-1) if self.average else shift
        return ((self._spread(x[1]) + shift) / 2 - self.epsilon)[..., None]

    def rounding(self, x: tuple[Array, Array], size: tuple[Array, Array], u: float) -> Array:
        xp = namespace(x[0])
        z = abs(self._whiten(x[0]))
        moved = self._whiten_size(size[0])
        square, cross = xp.sum(z * z, axis=-1), xp.sum((z + moved) * moved, axis=-1)
        if self.average:
            square, cross = xp.mean(square, axis=-1), xp.mean(cross, axis=-1)
        count = self.mean.shape[-1] * (self.mean.shape[-2] if self.average else 1) + 8
        stiff = 1 if self.diagonal else self._condition()
        shift = u * (count * stiff * square + 2 * abs(self.epsilon)) + cross
        return (shift + self._spread_rounding(x[1], size[1], u))[..., None]

    def domain(self, anchor: tuple[Array, Array], x: tuple[Array, Array]) -> Array:
        """Squares do not overflow up to 1e8 standard deviations."""
        xp = namespace(x[0])
        far = xp.max(abs(self._whiten(x[0])), axis=(-2, -1) if self.average else -1)
        if self.parameterization == "cholesky":
            M = self._relative(x[1])
            far = xp.maximum(far, xp.max(abs(M), axis=-1 if self.diagonal else (-2, -1)))
        return xp.where(far > 1e8, 1e8 / xp.where(far > 1e8, far, xp.ones_like(far)), xp.ones_like(far))

    def gauge(self, anchor: tuple[Array, Array], direction: tuple[Array, Array]) -> Array | None:
        """1 / t with h(anchor + t direction) = 0, or 1 if that is beyond t = 1; None for matrices.

        On the line h = (q0 + 2 q1 t + q2 t^2 + sum phi(e0 + t e)) / 2 - epsilon, with as many numbers as actions.
        """
        if not self.diagonal:
            return None
        xp, (phi, slope) = namespace(direction[0]), gaussian.CURVES[self.parameterization]
        std = self._std()[..., None, :] if self.average else self._std()
        z0, z = self._whiten(anchor[0]), direction[0] / std
        e0 = self._relative(anchor[1])
        e = direction[1] if self.parameterization == "log_std" else direction[1] / self.covariance

        def total(v: Array) -> Array:
            return xp.mean(xp.sum(v, axis=-1), axis=-1) if self.average else xp.sum(v, axis=-1)

        def h(t: Array, line: tuple[Array, ...]) -> Array:
            q0, q1, q2, e0, e = line
            return (q0 + t * (2 * q1 + t * q2) + xp.sum(phi(xp, e0 + t[..., None] * e), axis=-1)) / 2 - self.epsilon

        def steepness(t: Array) -> Array:
            return q1 + t * q2 + xp.sum(slope(xp, s0 + t[..., None] * s) * s, axis=-1) / 2

        line = (total(z0 * z0), total(z0 * z), total(z * z), e0, e)
        still = tuple([stop_gradient(v) for v in line])
        q1, q2, s0, s = still[1:]
        end = self._end(*still)
        outside = ~(h(xp.ones_like(end), still) <= 0)  # NaN beyond the domain is
        t = keep(outside, convex_root(lambda t: h(t, still), steepness, end), 1.0)
        return (1 / attached(lambda t: h(t, line), t, outside))[..., None]

    def _end(self, q0: Array, q1: Array, q2: Array, e0: Array, e: Array) -> Array:
        """A t <= 1 at which one term of h alone is epsilon: not before the root, since none is negative."""
        xp = namespace(e)
        epsilon = stop_gradient(self.epsilon) if is_array(self.epsilon) else self.epsilon
        wide = epsilon[..., None] if is_array(epsilon) else epsilon
        low, high, cut = (xp.zeros_like(e) + v for v in (*gaussian.limits(self.parameterization, wide), self._cut()))
        if self.parameterization == "log_std":
            high = xp.minimum(high, cut)
        else:  # what is left of the scale has a few digits
            low = xp.clip(xp.maximum(low, cut), -1 + 8 * float(xp.finfo(e.dtype).eps), None)
        moves = e != 0
        ends = xp.where(e > 0, high - e0, low - e0) / keep(moves, e, 1.0)
        end = xp.min(keep(moves & ~(ends > 1), ends, 1.0), axis=-1)
        moves = q2 > 0
        shift = (root(q1 * q1 + q2 * (2 * epsilon - q0)) - q1) / keep(moves, q2, 1.0)
        return xp.minimum(end, keep(moves & ~(shift > 1), shift, 1.0))

    def onto(self, x: tuple[Array, Array]) -> tuple[Array, Array]:
        return gaussian.onto(x, self.parameterization, self.diagonal)

    def anchor(self, x: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """The old policy."""
        return self.mean, self.covariance

    def nearest(self, x: tuple[Array, Array]) -> tuple[Array, Array]:
        """argmin |m - means|^2 + |S - covariance|^2 in the set, by its one-dimensional dual; differentiable.

        For each multiplier t the minimiser is closed form, see `_relaxed`, and its KL decreases in t.
        """
        if self.parameterization != "covariance":
            raise NotImplementedError("GaussianKL.nearest is closed form for parameterization='covariance' only")
        xp = namespace(x[0])
        means, covariance = self.onto(x)
        h = self.constraints((means, covariance))[..., 0]
        outside = h > 0

        still, fixed = map_arrays(self, stop_gradient), (stop_gradient(means), stop_gradient(covariance))
        t = decreasing_root(
            lambda t: self.constraints(self._relaxed(means, covariance, t))[..., 0],
            xp.zeros_like(h),
            outside,
            search=lambda t: still.constraints(still._relaxed(*fixed, t))[..., 0],
        )
        m, S = self._relaxed(means, covariance, xp.where(outside, t, xp.ones_like(t)))
        wide, tall = (outside[(..., *(None,) * k)] for k in self.event_ndim)
        return xp.where(wide, m, means), xp.where(tall, S, covariance)

    def _relaxed(self, means: Array, covariance: Array, t: Array) -> tuple[Array, Array]:
        """argmin |m - means|^2 + |S - covariance|^2 + t KL(m, S), for t > 0 and K states:

        m = mq + Sq (Sq + t/2K)^-1 (means - mq),  and S - C = t/4 S^-1 with C = covariance - t/4 Sq^-1.
        """
        xp = namespace(means)
        shift, Sq = means - self.mean, self.covariance
        share = t / (2 * self.mean.shape[-2] if self.average else 2)
        if self.diagonal:
            q = Sq[..., None, :] if self.average else Sq
            m = shift * (q / (q + share[(..., *(None,) * self.event_ndim[0])]))
            return self.mean + m, lifted(covariance - t[..., None] / 4 / Sq, t[..., None] / 4)
        system = Sq + share[..., None, None] * eye_like(Sq.shape[-1], Sq)
        columns = xp.matrix_transpose(shift if self.average else shift[..., None, :])
        m = xp.matrix_transpose(Sq @ xp.linalg.solve(system, columns))
        S = lifted_matrix(covariance - t[..., None, None] / 4 * xp.linalg.inv(Sq), t / 4)
        return self.mean + (m if self.average else m[..., 0, :]), S

    def check(self) -> None:
        require(self, "epsilon", "positive", lambda xp, epsilon: epsilon > 0)
        if self.diagonal and self.parameterization != "log_std":
            require(self, "covariance", "positive", lambda xp, covariance: covariance > 0)
        if self.diagonal or is_traced(self.covariance):
            return
        triangular = self.parameterization == "cholesky"
        scales = gaussian.diagonal_of(self.covariance) if triangular else eigh(self.covariance)[0]
        lowest = float(namespace(scales).min(scales))
        if not lowest > 0:
            expected, what = (
                ("lower triangular with a positive diagonal", "diagonal entry")
                if triangular
                else ("positive definite", "smallest eigenvalue")
            )
            raise ValueError(f"GaussianKL(covariance=...) must be {expected}; received {lowest:.6g} as {what}")

    # -- the covariance term, sum_i phi(relative change of scale i) ---------------------------------

    def _spread(self, covariance: Array) -> Array:
        xp = namespace(covariance)
        E = self._relative(covariance)
        cut = self._cut()
        f, slope = gaussian.CURVES[self.parameterization]

        def continued(e: Array) -> Array:
            inner, beyond = self._inner(e)
            return f(xp, inner) + xp.where(beyond, slope(xp, inner) * (e - inner), 0 * e)

        if self.diagonal:
            return total(continued(E))
        if self.parameterization == "cholesky":
            diagonal = gaussian.diagonal_of(E)
            square = xp.sum(E * E, axis=(-2, -1)) - xp.sum(diagonal * diagonal, axis=-1)
            return square + xp.sum(continued(diagonal), axis=-1)
        wide = cut[..., None] if is_array(cut) else cut  # for pairs of eigenvalues

        def steepness(e: Array) -> Array:
            return slope(xp, xp.where(e < wide, wide + 0 * e, e))

        def bend(e: Array) -> Array:
            return xp.where(e < wide, 0 * e, 1 / (1 + xp.where(e < wide, 0 * e, e)) ** 2)

        return spectral_sum(E, continued, steepness, bend)

    def _inner(self, e: Array) -> tuple[Array, Array]:
        """e up to the cut, and whether it is beyond."""
        cut, sign = self._cut(), 1 if self.parameterization == "log_std" else -1
        beyond = sign * (e - cut) > 0
        return namespace(e).where(beyond, cut + 0 * e, e), beyond

    def _slopes(self, e: Array) -> Array:
        """phi' of relative changes, beyond the cut that of the tangent."""
        return gaussian.CURVES[self.parameterization][1](namespace(e), self._inner(e)[0])

    def _cut(self) -> Array | float:
        """Where h is continued along its tangent: beyond it KL > epsilon, and the change is thousandfold."""
        if is_array(self.epsilon):
            xp, epsilon = namespace(self.epsilon), self.epsilon[..., None]
            exp, log, smaller, larger, one = xp.exp, xp.log, xp.minimum, xp.maximum, xp.ones_like(epsilon)
        else:
            epsilon, one = self.epsilon, 1.0
            exp, log, smaller, larger = math.exp, math.log, min, max
        if self.parameterization == "covariance":
            return smaller(exp(-1 - 2 * epsilon), 1e-3 * one) - 1
        if self.parameterization == "cholesky":
            return smaller(exp(-0.5 - epsilon), 0.03 * one) - 1
        return larger(log(4 * epsilon + 1.4) / 2, 3 * one)

    def _relative(self, covariance: Array) -> Array:
        """S/Sq - 1, L/Lq - 1 or log_std - log_std_q: 0 at the anchor."""
        xp = namespace(covariance)
        if self.parameterization == "log_std":
            return covariance - self.covariance
        if self.diagonal:
            return (covariance - self.covariance) / self.covariance
        if self.parameterization == "cholesky":
            return self._inverse_factor() @ (covariance - self.covariance)
        inverse = self._inverse_factor()
        return symmetric(inverse @ (covariance - self.covariance) @ xp.matrix_transpose(inverse))

    def _spread_rounding(self, covariance: Array, size: Array, u: float) -> Array:
        """What rounding adds to the covariance term: its slope times how far each relative change is off."""
        xp = namespace(covariance)
        d = self.mean.shape[-1]
        E = self._relative(covariance)
        if self.parameterization == "log_std":
            off = size + 2 * u * (abs(covariance) + abs(self.covariance))
            growth = xp.exp(2 * xp.clip(E + off, -3.0, 3.0))
            return total((d + 8) * u * (growth + 1) * abs(E) + 2 * (growth + 1) * (abs(E) + off) * off)
        if self.diagonal:
            e, off = E, size / self.covariance
        else:
            blur = 8 * d * u * self._condition() * (1 + frobenius(E))
            off = (self._inverse_size() * frobenius(size) + blur)[..., None]
            e = eigh(E)[0] if self.parameterization == "covariance" else gaussian.diagonal_of(E)
        left = xp.clip(1 + e - off, 1e-3, None)  # of the scale, after the displacement
        square = 0 if self.parameterization == "covariance" else 2 + abs(e) + off
        steep = (abs(e) + off) / left * (1 + 2 * square)
        bound = total((d + 8) * u * abs(e) * (2 + square + 1 / left) + steep * off)
        if self.parameterization == "cholesky" and not self.diagonal:
            bound = bound + (2 * d * frobenius(E) + off[..., 0]) * off[..., 0]
        return bound

    # -- the old covariance -------------------------------------------------------------------------

    def _std(self) -> Array:
        xp = namespace(self.covariance)
        if self.parameterization == "log_std":
            return xp.exp(self.covariance)
        return xp.sqrt(self.covariance) if self.parameterization == "covariance" else self.covariance

    def _known_std(self, smallest: float) -> Array:
        """The same, NaN where the number that it is given by is below the smallest normal one: not known well."""
        std = self._std()
        return keep((std if self.parameterization == "log_std" else self.covariance) >= smallest, std, math.nan)

    def _whiten(self, means: Array) -> Array:
        """Lq^-1 (m - mq) for each state."""
        xp = namespace(means)
        shift = means - self.mean
        if self.diagonal:
            std = self._std()
            return shift / (std[..., None, :] if self.average else std)
        if self.average:
            return shift @ xp.matrix_transpose(self._inverse_factor())
        return apply(self._inverse_factor(), shift)

    def _inverse_factor(self) -> Array:
        """Lq^-1 of the full covariance Sq = Lq Lq^T."""
        L = self.covariance if self.parameterization == "cholesky" else cholesky(self.covariance)
        return namespace(L).linalg.inv(L)

    def _whiten_size(self, size: Array) -> Array:
        xp = namespace(size)
        if self.diagonal:
            std = self._known_std(float(xp.finfo(size.dtype).smallest_normal))
            return size / (std[..., None, :] if self.average else std)
        total = length(size)[..., None] + 0 * size
        inverse = self._inverse_size() ** 0.5
        return total * (inverse[..., None, None] if self.average else inverse[..., None])

    def _eigenvalues(self) -> Array:
        """Eigenvalues of the full Sq, ascending."""
        xp = namespace(self.covariance)
        S = self.covariance
        return eigh(S if self.parameterization == "covariance" else S @ xp.matrix_transpose(S))[0]

    def _inverse_size(self) -> Array:
        smallest = self._eigenvalues()[..., 0]
        return 1 / smallest if self.parameterization == "covariance" else smallest**-0.5

    def _condition(self) -> Array:
        values = self._eigenvalues()
        return values[..., -1] / values[..., 0]

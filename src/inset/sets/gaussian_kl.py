"""`GaussianKL`: a trust region around a Gaussian policy."""

from __future__ import annotations

import math

from .. import _gaussian as gaussian
from .._linalg import eigh, length, spectral_sum
from .._namespace import Array, cholesky, is_array, namespace, stop_gradient
from .._root import decreasing_root
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
    average: bool = static(True)
    diagonal: bool = static(True)
    parameterization: gaussian.Parameterization = static("covariance")

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

    def rounding(self, x: tuple[Array, Array], size: tuple[Array, Array]) -> tuple[Array, Array]:
        xp = namespace(x[0])
        z = abs(self._whiten(x[0]))
        moved = self._whiten_size(size[0])
        square, cross = xp.sum(z * z, axis=-1), xp.sum(z * moved, axis=-1)
        if self.average:
            square, cross = xp.mean(square, axis=-1), xp.mean(cross, axis=-1)
        spread, bend = self._spread_rounding(x[1], size[1])
        count = self.mean.shape[-1] * (self.mean.shape[-2] if self.average else 1) + 8
        stiff = 1 if self.diagonal else self._condition()
        evaluation = count * stiff * square + spread + 2 * abs(self.epsilon)
        return evaluation[..., None], (cross + bend)[..., None]

    def domain(self, anchor: tuple[Array, Array], x: tuple[Array, Array]) -> Array:
        """Squares do not overflow up to 1e8 standard deviations."""
        xp = namespace(x[0])
        far = xp.max(abs(self._whiten(x[0])), axis=(-2, -1) if self.average else -1)
        if self.parameterization == "cholesky":
            M = self._relative(x[1])
            far = xp.maximum(far, xp.max(abs(M), axis=-1 if self.diagonal else (-2, -1)))
        return xp.where(far > 1e8, 1e8 / xp.where(far > 1e8, far, xp.ones_like(far)), xp.ones_like(far))

    def onto(self, x: tuple[Array, Array]) -> tuple[Array, Array]:
        return gaussian.onto(x, self.parameterization, self.diagonal)

    def anchor(self, x: tuple[Array, Array] | None = None) -> tuple[Array, Array]:
        """The old policy."""
        return self.mean, self.covariance

    def nearest(self, x: tuple[Array, Array]) -> tuple[Array, Array]:
        """argmin |m - means|^2 + |S - covariance|^2 in the set, by its one-dimensional dual; differentiable.

        For the multiplier t the minimiser is closed form: (I + t/2 Sq^-1 / K) (m - mq) = means - mq, and
        S = (C + sqrt(C^2 + t I)) / 2 with C = covariance - t/4 Sq^-1. KL decreases in t.
        """
        if self.parameterization != "covariance":
            raise NotImplementedError("GaussianKL.nearest is closed form for parameterization='covariance' only")
        xp = namespace(x[0])
        means, covariance = self.onto(x)
        weights, V = self._precision()
        shift = means - self.mean
        shift = shift if self.diagonal else shift @ V
        weights_of = weights[..., None, :] if self.average else weights
        states = self.mean.shape[-2] if self.average else 1

        def minimiser(t: Array) -> tuple[Array, Array, Array]:
            wide = t[..., None, None] if self.average else t[..., None]
            z = shift / (1 + wide * weights_of / (2 * states))
            if self.diagonal:
                C = covariance - t[..., None] * weights / 4
                root = xp.sqrt(C * C + t[..., None])
                # the sum cancels for negative C
                S = xp.where(C > 0, (C + root) / 2, t[..., None] / xp.where(C > 0, xp.ones_like(C), 2 * (root - C)))
                return z, S, xp.zeros_like(S)
            inverse = (V * weights[..., None, :]) @ xp.matrix_transpose(V)
            values, U = eigh(covariance - t[..., None, None] * inverse / 4)
            root = xp.sqrt(values * values + t[..., None])
            lifted = xp.where(values > 0, (values + root) / 2, t[..., None] / (2 * xp.where(values > 0, root, root - values)))
            return z, (U * lifted[..., None, :]) @ xp.matrix_transpose(U), lifted

        def back(z: Array) -> Array:
            return self.mean + (z if self.diagonal else z @ xp.matrix_transpose(V))

        def kl(t: Array) -> Array:
            z, S, _ = minimiser(t)
            return self.constraints((back(z), S))[..., 0]

        start = 0 * self.constraints((means, covariance))[..., 0]
        t = decreasing_root(kl, stop_gradient(start))
        z, S, _ = minimiser(t)
        outside = t > 0
        wide, tall = (outside[..., None, None] if n == 2 else outside[..., None] for n in self.event_ndim)
        return xp.where(wide, back(z), means), xp.where(tall, S, covariance)

    def check(self) -> None:
        require(self, "epsilon", "positive", lambda xp, epsilon: epsilon > 0)
        if self.diagonal and self.parameterization != "log_std":
            require(self, "covariance", "positive", lambda xp, covariance: covariance > 0)

    # -- the covariance term, sum_i phi(relative change of scale i) ---------------------------------

    def _spread(self, covariance: Array) -> Array:
        xp = namespace(covariance)
        E = self._relative(covariance)
        cut = self._cut()
        f, slope = _CURVES[self.parameterization]
        sign = 1 if self.parameterization == "log_std" else -1

        def continued(e: Array) -> Array:
            beyond = sign * (e - cut) > 0
            inner = xp.where(beyond, cut + 0 * e, e)
            return f(xp, inner) + xp.where(beyond, slope(xp, inner) * (e - inner), 0 * e)

        if self.diagonal:
            return xp.sum(continued(E), axis=-1)
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
            return xp.linalg.solve(self.covariance, covariance - self.covariance)
        L = cholesky(self.covariance)
        half = xp.linalg.solve(L, covariance - self.covariance)
        E = xp.linalg.solve(L, xp.matrix_transpose(half))
        return (E + xp.matrix_transpose(E)) / 2

    def _spread_rounding(self, covariance: Array, size: Array) -> tuple[Array, Array]:
        xp = namespace(covariance)
        d = self.mean.shape[-1]
        E = abs(self._relative(covariance))
        if self.parameterization == "log_std":
            growth = xp.exp(2 * xp.where(E < 3, E, 3 + 0 * E))
            return (d + 8) * xp.sum(growth * E + xp.abs(covariance) + abs(self.covariance), axis=-1), xp.sum(growth * E * size, axis=-1)
        if self.diagonal:
            scale = self.covariance
            ratio = abs(covariance) / scale
            terms = E * (2 + E) + abs(xp.log(xp.where(ratio > 1e-3, ratio, 1e-3 + 0 * ratio)))
            steep = E * (1 + 1 / xp.where(ratio > 1e-3, ratio, 1e-3 + 0 * ratio))
            return (d + 8) * xp.sum(terms, axis=-1), 2 * xp.sum(steep * size / scale, axis=-1)
        total = xp.sum(E, axis=(-2, -1))
        spread = 8 * d * (self._condition() * (1 + total) * (1 + total))
        inverse = self._inverse_size()
        return spread, 4 * (1 + total) * total * inverse * length(xp.reshape(size, (*size.shape[:-2], d * d)))

    # -- the old covariance -------------------------------------------------------------------------

    def _std(self) -> Array:
        xp = namespace(self.covariance)
        if self.parameterization == "log_std":
            return xp.exp(self.covariance)
        return xp.sqrt(self.covariance) if self.parameterization == "covariance" else self.covariance

    def _whiten(self, means: Array) -> Array:
        """Lq^-1 (m - mq) for each state."""
        xp = namespace(means)
        shift = means - self.mean
        if self.diagonal:
            std = self._std()
            return shift / (std[..., None, :] if self.average else std)
        L = self.covariance if self.parameterization == "cholesky" else cholesky(self.covariance)
        if self.average:
            return xp.matrix_transpose(xp.linalg.solve(L, xp.matrix_transpose(shift)))
        return xp.linalg.solve(L, shift[..., None])[..., 0]

    def _whiten_size(self, size: Array) -> Array:
        if self.diagonal:
            std = self._std()
            return size / (std[..., None, :] if self.average else std)
        total = length(size)[..., None] + 0 * size
        inverse = self._inverse_size() ** 0.5
        return total * (inverse[..., None, None] if self.average else inverse[..., None])

    def _precision(self) -> tuple[Array, Array]:
        """Eigenvalues and vectors of Sq^-1 (for a diagonal one, the variances' inverses and nothing)."""
        if self.diagonal:
            return 1 / self.covariance, self.covariance
        values, V = eigh(self.covariance)
        return 1 / values, V

    def _eigenvalues(self) -> Array:
        """Eigenvalues of the full Sq, ascending."""
        xp = namespace(self.covariance)
        S = self.covariance
        return eigh(S if self.parameterization == "covariance" else S @ xp.matrix_transpose(S))[0]

    def _inverse_size(self) -> Array:
        smallest = self._eigenvalues()[..., 0]
        return 1 / smallest if self.parameterization == "covariance" else smallest ** -0.5

    def _condition(self) -> Array:
        values = self._eigenvalues()
        return values[..., -1] / values[..., 0]


# phi and phi' of the relative change e, with phi(0) = phi'(0) = 0.
_CURVES = {
    "covariance": (lambda xp, e: e - xp.log1p(e), lambda xp, e: e / (1 + e)),
    "cholesky": (lambda xp, e: e * (2 + e) - 2 * xp.log1p(e), lambda xp, e: 2 * e * (2 + e) / (1 + e)),
    "log_std": (lambda xp, t: xp.expm1(2 * t) - 2 * t, lambda xp, t: 2 * xp.expm1(2 * t)),
}

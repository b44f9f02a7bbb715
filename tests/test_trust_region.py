"""`inset.torch.TrustRegion`: the KL and the entropy by torch.distributions, gradients, transforms, shapes, errors."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

import inset
from inset import GaussianEntropy, GaussianKL
from inset.torch import TrustRegion

EPSILON, D = 0.01, 3
LAYOUTS: Any = (("log_std", True), ("cholesky", True), ("covariance", True), ("cholesky", False), ("covariance", False))
every_layout = pytest.mark.parametrize("parameterization, diagonal", LAYOUTS)
averaged_or_not = pytest.mark.parametrize("average", (True, False), ids=("average", "states"))
every_dtype = pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=("float32", "float64"))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def written(S: Tensor, parameterization: str, diagonal: bool) -> Tensor:
    """The covariance matrices S in the form that a layer takes."""
    if diagonal:
        variances = S.diagonal(dim1=-2, dim2=-1)
        return {"log_std": variances.log() / 2, "cholesky": variances.sqrt(), "covariance": variances}[parameterization]
    return torch.linalg.cholesky(S) if parameterization == "cholesky" else S


def policy(layer: TrustRegion, batch: tuple[int, ...], dtype: torch.dtype, states: int = 5) -> tuple[Tensor, Tensor]:
    """A random mean and a random covariance, of condition below 50, for each constraint."""
    A = torch.linalg.qr(torch.randn(*batch, D, D, dtype=torch.float64))[0] * (0.3 + 1.5 * torch.rand(*batch, 1, D))
    mean = torch.randn(*batch, states, D) if layer.layout.average else torch.randn(*batch, D)
    return mean.to(dtype), written(A @ A.mT, layer.layout.parameterization, layer.layout.diagonal).to(dtype)


def gaussian(layer: TrustRegion, point: tuple[Tensor, Tensor]) -> MultivariateNormal:
    """By torch.distributions in float64, independently of this library."""
    mean, spread = point[0].double(), point[1].double()
    if layer.layout.diagonal:
        std = {"log_std": spread.exp, "cholesky": lambda: spread, "covariance": spread.sqrt}
        L = torch.diag_embed(std[layer.layout.parameterization]())
    else:
        L = spread if layer.layout.parameterization == "cholesky" else torch.linalg.cholesky(spread)
    return MultivariateNormal(mean, scale_tril=L[..., None, :, :] if layer.layout.average else L)


def kl(layer: TrustRegion, new: tuple[Tensor, Tensor], old: tuple[Tensor, Tensor]) -> Tensor:
    """For each constraint."""
    divergence = kl_divergence(gaussian(layer, new), gaussian(layer, old))
    return divergence.mean(-1) if layer.layout.average else divergence


def entropy(layer: TrustRegion, point: tuple[Tensor, Tensor]) -> Tensor:
    value = gaussian(layer, point).entropy()
    return value[..., 0] if layer.layout.average else value


# -- the divergence -------------------------------------------------------------------------------------


@every_layout
@averaged_or_not
@every_dtype
def test_kl(parameterization: Any, diagonal: bool, average: bool, dtype: torch.dtype) -> None:
    """At most epsilon, however far away the new policy is; all of epsilon where it was outside."""
    layer = TrustRegion(EPSILON, parameterization=parameterization, diagonal=diagonal, average=average)
    old = policy(layer, (20,), dtype)
    region = GaussianKL(*old, EPSILON, *layer.layout)
    far = torch.logspace(-1, 8, 20).to(dtype)
    wide, tall = (far[(..., *(None,) * k)] for k in region.event_ndim)
    new = policy(layer, (20,), dtype)
    new = (old[0] + wide * torch.randn_like(old[0]), old[1] + tall.clamp(max=5.0) * (new[1] - old[1]))
    y = layer(new, old)
    assert [leaf.shape for leaf in y] == [leaf.shape for leaf in new]
    assert all(leaf.dtype == dtype for leaf in y)
    used, outside = kl(layer, y, old), ~region.contains(new)
    assert region.contains(y).all() and (used <= EPSILON + 1e-15).all()  # rounding of torch.distributions
    exact = dtype == torch.float64 or diagonal
    assert outside.sum() > 15 and (used[outside] > (0.999 if exact else 0.9) * EPSILON).all()


def test_old_policy_in_float64_saves_epsilon_for_full_covariances() -> None:
    layer = TrustRegion(EPSILON, parameterization="cholesky", diagonal=False)
    old, new = policy(layer, (20,), torch.float32), policy(layer, (20,), torch.float32)
    y = layer(new, (old[0].double(), old[1].double()))
    assert y[0].dtype == y[1].dtype == torch.float32
    used = kl(layer, y, old)
    assert (used <= EPSILON).all() and (used > 0.999 * EPSILON).all()


@every_layout
@averaged_or_not
def test_identity_inside(parameterization: Any, diagonal: bool, average: bool) -> None:
    layout: Any = {"parameterization": parameterization, "diagonal": diagonal, "average": average}
    layer = TrustRegion(EPSILON, kappa=-20.0, method="chord", **layout)
    old = policy(layer, (20,), torch.float32)
    new = (old[0] + 1e-3, old[1] * (1 + 1e-3))
    for point in (new, old):
        y = layer(point, old)
        assert torch.equal(y[0], point[0]) and torch.equal(y[1], point[1])


@pytest.mark.parametrize("method", ("paper", "chord", "ray"))
def test_methods(method: Any) -> None:
    layer = TrustRegion(EPSILON, method=method, average=False)
    old, new = policy(layer, (20,), torch.float64), policy(layer, (20,), torch.float64)
    y = layer(new, old)
    expected = inset.project(GaussianKL(*old, EPSILON, *layer.layout), new, old, method=method)
    assert torch.equal(y[0], expected[0]) and torch.equal(y[1], expected[1])


@pytest.mark.parametrize("parameterization, diagonal", (("log_std", True), ("covariance", False)))
def test_half_precision(parameterization: Any, diagonal: bool) -> None:
    """The old policy is 0.02 above the floor."""
    layer = TrustRegion(EPSILON, kappa=3.0, parameterization=parameterization, diagonal=diagonal)
    old, new = (written(S * torch.eye(D), parameterization, diagonal).bfloat16() for S in (0.4375, 0.0625))
    mean = torch.randn(64, D).bfloat16()
    y = layer((mean + 1, new), (mean, old))
    assert y[0].dtype == y[1].dtype == torch.bfloat16
    assert 0.3 * EPSILON < kl(layer, y, (mean, old)) <= EPSILON and entropy(layer, y) >= 3.0


# -- shapes ---------------------------------------------------------------------------------------------


@every_layout
def test_one_covariance_for_all_states(parameterization: Any, diagonal: bool) -> None:
    """One for each comes back, and each state is as if alone; for new policies inside as well."""
    layout = {"parameterization": parameterization, "diagonal": diagonal, "average": False}
    layer = TrustRegion(EPSILON, kappa=-3.0, method="ray" if diagonal else "chord", **layout)
    old_shared, new_shared = policy(layer, (), torch.float64)[1], policy(layer, (), torch.float64)[1]
    old, new = torch.randn(4, D, dtype=torch.float64), torch.randn(4, D, dtype=torch.float64)
    new[3], new_shared = old[3], old_shared + 1e-4 * (new_shared - old_shared)
    mean, covariance = layer((new, new_shared), (old, old_shared))
    assert torch.equal(mean[3], new[3]) and torch.equal(covariance[3], new_shared)
    assert mean.shape == new.shape and covariance.shape == (4, *new_shared.shape)
    for k in (0, 3):
        alone = layer((new[k], new_shared), (old[k], old_shared))
        torch.testing.assert_close(alone, (mean[k], covariance[k]))


def test_average_is_one_constraint_over_states() -> None:
    """Only the mean of the KL counts: one state may be beyond epsilon."""
    layer = TrustRegion(EPSILON)
    old = (torch.zeros(8, 2), torch.zeros(2))
    shift = torch.zeros(8, 2)
    shift[0] = 5.0
    mean, log_std = layer((shift, torch.zeros(2)), old)
    assert log_std.shape == (2,) and torch.equal(mean[1:], torch.zeros(7, 2))
    assert mean[0].square().sum() / 2 > 7 * EPSILON
    several = layer((torch.stack([shift, 2 * shift]), torch.zeros(2)), old)  # a batch of two, one log_std
    assert several[0].shape == (2, 8, 2) and several[1].shape == (2, 2)
    torch.testing.assert_close(several[0][0], mean)


# -- gradients ------------------------------------------------------------------------------------------


@every_layout
@averaged_or_not
def test_gradients(parameterization: Any, diagonal: bool, average: bool) -> None:
    """Finite and not zero for the new policy, none for the old one, also at the anchor and far away."""
    layer = TrustRegion(EPSILON, kappa=2.0, parameterization=parameterization, diagonal=diagonal, average=average)
    S = (0.55 * torch.eye(D)).expand(4, D, D)  # entropy 3.36
    old = (torch.zeros(4, 5, D) if average else torch.zeros(4, D), written(S, parameterization, diagonal))
    for far in (0.0, 1e4):
        new = [old[0] + far, old[1] * (1 + min(far, 1.0)) - 0.3 * min(far, 1.0)]
        leaves = [leaf.clone().requires_grad_() for leaf in (*new, *old)]
        y = layer((leaves[0], leaves[1]), (leaves[2], leaves[3]))
        weights = [torch.randn_like(leaf) for leaf in y]
        loss = sum((w * leaf).sum() for w, leaf in zip(weights, y, strict=True))
        assert isinstance(loss, Tensor)
        slopes = torch.autograd.grad(loss, leaves, allow_unused=True)
        assert slopes[2] is None and slopes[3] is None
        for slope in slopes[:2]:
            assert slope is not None and torch.isfinite(slope).all() and slope.flatten(1).any(-1).all()


@every_layout
def test_derivatives_are_right(parameterization: Any, diagonal: bool) -> None:
    """First and second ones, with the new policy below the floor and the old one just above it."""
    layout = {"parameterization": parameterization, "diagonal": diagonal}
    ray, chord = (TrustRegion(0.1, kappa=3.3, method=method, strict=False, **layout) for method in ("ray", "chord"))
    A = 0.15 * torch.randn(D, D, dtype=torch.float64)
    S = 0.55 * torch.eye(D, dtype=torch.float64) + A @ A.mT
    old = (torch.randn(2, D, dtype=torch.float64), written(S, parameterization, diagonal))
    new = (old[0] + 0.5 * torch.randn(2, D, dtype=torch.float64), written(0.6 * S, parameterization, diagonal))
    point = [leaf.clone().requires_grad_() for leaf in new]
    assert torch.autograd.gradcheck(lambda *new: ray(new, old), point, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda *new: chord(new, old), point, fast_mode=True)


# -- the entropy floor ----------------------------------------------------------------------------------


@every_layout
@averaged_or_not
@every_dtype
def test_entropy_floor(parameterization: Any, diagonal: bool, average: bool, dtype: torch.dtype) -> None:
    """Holds with the KL, for old policies on the floor and around it; the mean moves on."""
    kappa = 1.0
    layer = TrustRegion(EPSILON, kappa=kappa, parameterization=parameterization, diagonal=diagonal, average=average)
    room = D / 2 * math.log1p(math.sqrt(EPSILON / D))  # the most that the entropy of the anchor is raised
    above = torch.tensor([-0.9 * room, -1e-6, 0.0, 1e-6, 0.3 * room, room, 1.0], dtype=torch.float64)
    old, new = policy(layer, (7,), dtype), policy(layer, (7,), dtype)
    old = (old[0], shifted(layer, old, kappa + above).to(dtype))
    y = layer((new[0], shifted(layer, new, kappa - 2 + 0 * above).to(dtype)), old)
    used = kl(layer, y, old)
    assert (used <= EPSILON + 1e-15).all() and (used > 0.9 * EPSILON).all()
    assert (entropy(layer, y) >= kappa - (1e-14 if dtype == torch.float64 else 0)).all()
    assert (GaussianKL(*old, EPSILON, *layer.layout) & GaussianEntropy(D, kappa, *layer.layout)).contains(y).all()
    still = kl(layer, (old[0], y[1]), old)
    assert (used - still > 0.1 * EPSILON).all()  # what the means have moved


def shifted(layer: TrustRegion, point: tuple[Tensor, Tensor], value: Tensor) -> Tensor:
    """The covariance scaled to this entropy."""
    log_c = 2 / D * (value - entropy(layer, point))
    log_c = log_c[..., None] if layer.layout.diagonal else log_c[..., None, None]
    if layer.layout.parameterization == "log_std":
        return point[1].double() + log_c / 2
    return point[1].double() * (log_c if layer.layout.parameterization == "covariance" else log_c / 2).exp()


def test_floor_that_is_far_away_changes_nothing() -> None:
    layer, free = TrustRegion(EPSILON, kappa=-5.0), TrustRegion(EPSILON)
    old, new = policy(layer, (20,), torch.float64), policy(layer, (20,), torch.float64)
    torch.testing.assert_close(layer(new, old), free(new, old))


@pytest.mark.parametrize("parameterization, diagonal, steps", (("log_std", True, 30), ("cholesky", False, 9)))
def test_walk_along_the_floor(parameterization: Any, diagonal: bool, steps: int) -> None:
    """Updates that want a narrower policy elsewhere: each starts where the last one ended, at the floor."""
    start = (torch.zeros(5, D), written(0.5 * torch.eye(D), parameterization, diagonal))
    kappa = entropy(TrustRegion(parameterization=parameterization, diagonal=diagonal), start).item()
    layer = TrustRegion(EPSILON, kappa=kappa, parameterization=parameterization, diagonal=diagonal)
    narrow = written(1e-4 * torch.eye(D), parameterization, diagonal)
    old = start
    for k in range(steps):
        y = layer((old[0] + (k % 3 > 0), narrow), old)
        assert (-1e-15 if k % 3 == 0 else 0.98 * EPSILON) < kl(layer, y, old) <= EPSILON
        assert kappa <= entropy(layer, y) < kappa + (1e-3 if k % 3 == 0 else 0.1)
        assert torch.equal(y[0], old[0]) if k % 3 == 0 else (y[0] > old[0]).all()
        old = y


@every_layout
def test_new_policy_without_a_covariance(parameterization: Any, diagonal: bool) -> None:
    """Variances of 0 or below, or far too small: the result is in the set, with finite gradients."""
    layer = TrustRegion(EPSILON, kappa=1.0, parameterization=parameterization, diagonal=diagonal)
    old = (torch.zeros(5, D), written(0.5 * torch.eye(D), parameterization, diagonal))
    for scale in (0.0, -1.0, 1e-40):
        covariance = (scale * torch.eye(D) if not diagonal else torch.full((D,), scale)).requires_grad_()
        mean = torch.ones(5, D, requires_grad=True)
        y = layer((mean, covariance - 200 if parameterization == "log_std" else covariance), old)
        assert kl(layer, y, old) <= EPSILON and entropy(layer, y) >= 1.0
        slopes = torch.autograd.grad(y[0].sum() + y[1].sum(), (mean, covariance))
        assert all(torch.isfinite(slope).all() for slope in slopes)


@every_layout
def test_floor_out_of_reach(parameterization: Any, diagonal: bool) -> None:
    """An error, or NaN for that sample where values cannot be looked at."""
    layer = TrustRegion(EPSILON, kappa=3.0, average=False, parameterization=parameterization, diagonal=diagonal)
    S = torch.tensor([0.5, 0.4])[:, None, None] * torch.eye(D)  # entropies 3.22 and 2.88
    old = (torch.zeros(2, D), written(S, parameterization, diagonal))
    with pytest.raises(ValueError, match=r"kappa=3\): the old policy, widened.*entropy 2\.96\d*; expected more than"):
        layer(old, old)
    y = torch.func.vmap(lambda *old: layer(old, old))(*old)
    assert torch.isfinite(y[0][0]).all() and torch.isnan(y[0][1]).all() and torch.isnan(y[1][1]).all()
    bad = (old[0], torch.full_like(old[1], math.nan))
    assert all(torch.isnan(leaf).all() for leaf in layer(old, bad))  # NaN in, NaN out


# -- transforms -----------------------------------------------------------------------------------------


def test_compile() -> None:
    """As eager; and NaN where eager raises, because values cannot be looked at. Tracing a ray takes longer."""
    layer = TrustRegion(EPSILON, kappa=3.0, method="chord")
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    old = (torch.randn(5, D), torch.full((D,), -0.4))
    new = (torch.ones(5, D, requires_grad=True), torch.full((D,), -1.0, requires_grad=True))
    results = []
    for function in (compiled, layer):
        y = function(new, old)
        results.append((*y, *torch.autograd.grad(y[0].sin().sum() + y[1].sin().sum(), new)))
    for given, expected in zip(*results, strict=True):
        torch.testing.assert_close(given, expected)
    assert torch.isnan(compiled(new, (old[0], old[1] - 9))[0]).all()


@pytest.mark.parametrize("parameterization, diagonal, average", (("log_std", True, True), ("covariance", False, False)))
def test_vmap(parameterization: Any, diagonal: bool, average: bool) -> None:
    layer = TrustRegion(EPSILON, kappa=-2.0, parameterization=parameterization, diagonal=diagonal, average=average)
    old, new = policy(layer, (6,), torch.float64), policy(layer, (6,), torch.float64)
    given = torch.func.vmap(lambda *leaves: layer(leaves[:2], leaves[2:]))(*new, *old)
    torch.testing.assert_close(given, layer(new, old))
    first = (old[0][0], old[1][0])
    given = torch.func.vmap(lambda *new: layer(new, first))(*new)
    torch.testing.assert_close(given, layer(new, first))


def test_copies() -> None:
    layer = TrustRegion(0.02, kappa=-3.0, average=False, method="chord")
    old, new = policy(layer, (4,), torch.float32), policy(layer, (4,), torch.float32)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(other(new, old)[0], layer(new, old)[0]) and repr(other) == repr(layer)
    assert "0.02, kappa=-3.0" in repr(layer) and "average=False" in repr(layer) and "chord" in repr(layer)
    assert not layer.state_dict()


# -- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    (
        ({"epsilon": 0.0}, r"TrustRegion\(epsilon=0.0\): expected a positive number"),
        ({"epsilon": math.nan}, r"epsilon=nan\): expected a positive number"),
        ({"kappa": math.inf}, r"kappa=inf\): expected a finite number, or None"),
        ({"method": "nearest"}, r"TrustRegion\(method='nearest'\): expected one of paper, chord, ray"),
        ({"parameterization": "std"}, r"TrustRegion\(parameterization='std'\): expected covariance, cholesky, log_std"),
        ({"diagonal": False}, r"TrustRegion\(parameterization='log_std'\) is for diagonal covariances"),
    ),
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrustRegion(**options)


def mean_and_log_std(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    return tuple(torch.zeros(shape) for shape in shapes)


@pytest.mark.parametrize(
    "average, new, old, message",
    (
        (True, torch.zeros(5, 2), mean_and_log_std((5, 2), (2,)), r"expects new=\(mean, log_std\); received Tensor"),
        (True, mean_and_log_std((5, 2), (2,)), mean_and_log_std((5, 2)), r"expects old=.*received a tuple of 1"),
        (True, mean_and_log_std((2,), (2,)), mean_and_log_std((5, 2), (2,)), r"shape \(..., K, d\); received \(2,\)"),
        (
            True,
            mean_and_log_std((5, 2), (5, 2)),
            mean_and_log_std((5, 2), (2,)),
            r"new mean has shape \(5, 2\), so the new log_std must have shape \(2,\); received \(5, 2\)\. One log_std "
            r"serves all states: pass log_std\[0\].*average=False",
        ),
        (True, mean_and_log_std((5, 2), (3,)), mean_and_log_std((5, 2), (2,)), r"the new log_std.*received \(3,\)"),
        (True, mean_and_log_std((5, 2), (2,)), mean_and_log_std((4, 2), (2,)), r"the old mean.*received \(4, 2\)"),
        (True, mean_and_log_std((5, 2), (2,)), mean_and_log_std((5, 2), (3,)), r"the old log_std.*received \(3,\)"),
        (
            False,
            mean_and_log_std((5, 2), (2,)),
            mean_and_log_std((5, 2), (4, 2)),
            r"the old log_std must have shape \(2,\) or \(5, 2\); received \(4, 2\)",
        ),
        (False, mean_and_log_std((2,), (2,)), mean_and_log_std((5, 2), (2,)), r"old mean.*received \(5, 2\)"),
    ),
)
def test_wrong_shapes(average: bool, new: Any, old: Any, message: str) -> None:
    with pytest.raises(inset.PointShapeError, match=message):
        TrustRegion(average=average)(new, old)


def test_wrong_types() -> None:
    good = (torch.zeros(5, 2), torch.zeros(2))
    with pytest.raises(TypeError, match=r"floating dtype; received torch.int64 as the old mean"):
        TrustRegion()(good, (good[0].long(), good[1]))
    number: Any = 0.0
    with pytest.raises(TypeError, match=r"received float as the new log_std"):
        TrustRegion()((good[0], number), good)


def test_an_old_policy_that_requires_grad_is_a_constant_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a view of a parameter does, also under no_grad; it costs no detour by the formulas."""
    monkeypatch.setattr("inset.torch.trust_region", None)
    layer, log_std = TrustRegion(EPSILON), torch.nn.Parameter(torch.zeros(1, D))
    with torch.no_grad():
        old = torch.zeros(5, D), log_std[0]
    new = torch.ones(5, D, requires_grad=True), torch.ones(D, requires_grad=True)
    assert old[1].requires_grad
    y = layer(new, old)
    assert (kl(layer, y, old) <= EPSILON).all()
    assert torch.autograd.grad(y[0].sum() + y[1].sum(), log_std, allow_unused=True) == (None,)

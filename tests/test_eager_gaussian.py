"""Trust regions of diagonal Gaussians in few operations: the formulas of `GaussianKL` are the reference."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import grad

import inset.torch
from inset import GaussianKL, _fast
from inset._eager import gaussian as eager
from inset._eager import small
from inset._project import interpolated
from inset._trust_region import Layout

KINDS = ("covariance", "cholesky", "log_std")
DTYPES = (torch.float64, torch.float32)
EPSILON, STATES, ACTIONS = 0.01, 6, 3
Pair = tuple[Tensor, Tensor]


@pytest.fixture(params=["lists", "numpy", "torch"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What computes: one sample of few scales, small arrays, or large ones."""
    monkeypatch.setattr(eager, "FEW", 24 if request.param == "lists" else 0)
    monkeypatch.setattr(small, "SMALL", 0 if request.param == "torch" else 2**14)
    return request.param


@pytest.fixture
def hooked() -> Iterator[None]:
    """`project` asks the fast path."""
    before = list(_fast.FUSED)
    _fast.FUSED.insert(0, eager.fused)
    yield
    _fast.FUSED[:] = before


def written(log_std: Tensor, kind: str) -> Tensor:
    return log_std if kind == "log_std" else torch.exp((2 if kind == "covariance" else 1) * log_std)


def made(
    kind: Any, dtype: torch.dtype, average: bool = True, samples: int | None = 12, seed: int = 0, far: float = 0.0
) -> tuple[GaussianKL, Pair]:
    """A region, and points from deep inside to far outside; `far` away is the old mean, and are its logarithms."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    batch = () if samples is None else (samples,)
    states = (STATES,) if average else ()
    size = torch.ones((), dtype=torch.float64) if samples is None else torch.logspace(-2.5, 1.5, samples).double()
    wide, tall = size.reshape(*batch, *(1 for _ in states), 1), size.reshape(*batch, 1)
    mean, log_std = normal(*batch, *states, ACTIONS) + far, 0.4 * normal(*batch, ACTIONS) - far / 100
    means, log_stds = (
        mean + wide * torch.exp(log_std.unsqueeze(-2) if average else log_std) * normal(*mean.shape),
        log_std,
    )
    log_stds = log_stds + 0.5 * tall.clamp(max=4.0) * normal(*log_std.shape)
    region = GaussianKL(mean.to(dtype), written(log_std, kind).to(dtype), EPSILON, average, True, kind)
    return region, (means.to(dtype), written(log_stds, kind).to(dtype))


def fused(set: GaussianKL, x: Any, method: str = "ray", strict: bool = True) -> Pair:
    y = eager.fused(set, x, set.anchor(), method, strict)
    assert y is not None
    return y


def formulas(set: GaussianKL, x: Any, method: Any = "ray", strict: bool = True) -> Pair:
    return interpolated(set, x, set.anchor(), method, strict)[0]


def doubled(set: GaussianKL) -> GaussianKL:
    return GaussianKL(set.mean.double(), set.covariance.double(), set.epsilon, set.average, True, set.parameterization)


def kl(set: GaussianKL, x: Pair) -> Tensor:
    """In float64, less epsilon."""
    return doubled(set).h((x[0].double(), x[1].double()))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("method", ["chord", "ray"])
@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("engine")
def test_is_the_formula(dtype: torch.dtype, kind: str, average: bool, method: str, strict: bool) -> None:
    """Values and derivatives to 64 ulps, and with `strict` to the difference of the margins."""
    ulps = torch.finfo(dtype).eps * (3000 if strict else 64)
    for samples in (None, 12):
        set, x = made(kind, dtype, average, samples)
        found = []
        for apply in (fused, formulas):
            leaves = tuple([v.clone().requires_grad_() for v in x])
            y = apply(set, leaves, method, strict)
            g = [torch.linspace(-1, 1, v.numel(), dtype=dtype).reshape(v.shape) for v in y]
            found.append([*(v.detach() for v in y), *grad(y, leaves, g)])
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=ulps, atol=ulps)
        inside = set.h(x) < -1e-6
        assert samples is None or 0 < inside.sum() < samples
        assert all(torch.equal(a[inside], b[inside]) for a, b in zip(found[0][:2], x, strict=True))


@pytest.mark.parametrize("method", ["paper", "ray"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_strict_holds(dtype: torch.dtype, kind: str, method: str, engine: str) -> None:
    """In its dtype and in float64, sample by sample too; without the margin it does not."""
    broken = 0
    for seed in range(4):
        for average, far in ((True, 0.0), (False, 0.0), (False, 30.0)):
            set, x = made(kind, dtype, average, 200, seed, far)
            y, loose = (fused(set, x, method, strict) for strict in (True, False))
            again = fused(set, loose, method)  # points that may seem to be inside
            for result in (y, again):
                assert (set.h(result) <= 0).all() and (kl(set, result) <= 0).all()
            assert (kl(set, y) > -0.02 * EPSILON).any() or method == "paper"  # no more than is needed
            broken += int((kl(set, loose) > 0).sum())
    assert broken > 0 or method == "paper"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("engine")
def test_strict_holds_for_scales_alone(kind: str) -> None:
    """Where the means are 0 and stay there, for one sample too, and a small epsilon is soon lost to rounding."""
    broken = 0
    for seed in range(30):
        drawn, x = made(kind, torch.float32, False, None if seed % 2 else 50, seed)
        set = GaussianKL(0 * drawn.mean, drawn.covariance, 1e-5, False, True, drawn.parameterization)
        y, loose = (fused(set, (0 * x[0], x[1]), "ray", strict) for strict in (True, False))
        assert (set.h(y) <= 0).all() and (kl(set, y) <= 0).all()
        broken += int((kl(set, loose) > 0).sum())
    assert broken > 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.usefixtures("engine")
def test_strict_holds_on_the_boundary(dtype: torch.dtype, kind: str) -> None:
    """For points a few ulps on either side of it, and for those whose scales have collapsed or exploded."""
    set, x = made(kind, dtype, False, 300, 5)
    edge = formulas(set, x, "ray", False)
    for k in range(-6, 7):
        near = tuple([v + k * torch.finfo(dtype).eps * (v - v0) for v, v0 in zip(edge, set.anchor(), strict=True)])
        assert (kl(set, fused(set, near, "paper")) <= 0).all()
    for shift in (-1e3, -1.0, -1e-3, 1e-7, 20.0, 1e3):
        scaled = (x[0], set.covariance + shift * (1 if kind == "log_std" else set.covariance))
        for method in ("paper", "ray"):
            y = fused(set, scaled, method)
            assert (kl(set, y) <= 0).all() and (set.h(y) <= 0).all()
            torch.testing.assert_close(y, formulas(set, scaled, method), rtol=1e-3, atol=1e-3)
    one = GaussianKL(set.mean[0], set.covariance[0], EPSILON, False, True, set.parameterization)
    for shift in (-1e3, -0.9999, 20.0):  # beyond the cut, h goes on along its tangent
        scaled = (x[0][0], one.covariance + shift * (1 if kind == "log_std" else one.covariance))
        y, expected = (apply(one, scaled, "paper", False) for apply in (fused, formulas))
        torch.testing.assert_close(y[1] - one.covariance, expected[1] - one.covariance, rtol=1e-3, atol=1e-9)


@pytest.mark.parametrize("method", ["paper", "ray"])
def test_epsilons(method: str) -> None:
    """From where rounding is all there is of it, which is left to the formulas, to where KL is far from quadratic."""
    for epsilon in (1e-13, 1e-5, 1e-3, 0.1, 1.0, 3.0):
        for kind in KINDS:
            drawn, x = made(kind, torch.float32)
            set = GaussianKL(drawn.mean, drawn.covariance, epsilon, parameterization=drawn.parameterization)
            y = eager.fused(set, x, set.anchor(), method, True)
            assert (y is None) == (epsilon in (1e-13, 3.0))
            if y is not None:
                assert (kl(set, y) <= 0).all()
                torch.testing.assert_close(y, formulas(set, x, method), rtol=3e-3, atol=3e-3)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["chord", "ray"])
@pytest.mark.usefixtures("hooked")
def test_bad_samples_are_alone(kind: str, method: Any) -> None:
    """NaN gives NaN, and the others are in the set; infinite and huge points too."""
    set, x = made(kind, torch.float32, False)
    for bad in (math.nan, math.inf, 1e30, 1e12, 1e6):
        means = x[0].clone()
        means[3, 1] = bad
        for strict in (True, False):
            assert (eager.fused(set, (means, x[1]), set.anchor(), method, strict) is None) == (bad != 1e6)
        y = inset.project(set, (means, x[1]), set.anchor(), method=method)
        fine = torch.arange(len(means)) != 3
        assert (kl(set, y)[fine] <= 0).all()
        assert bool(y[0][3].isnan().any()) == (not math.isfinite(bad))
        assert not math.isfinite(bad) or kl(set, y)[3] <= 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["chord", "ray"])
def test_second_derivatives(kind: str, method: str) -> None:
    """Are those of the formulas."""
    for samples in (None, 5):
        set, x = made(kind, torch.float64, samples=samples)
        for by in ((True, True), (True, False), (False, True)):  # means, scales
            found = []
            for apply in (fused, formulas):
                point = tuple([v.clone().requires_grad_(wanted) for v, wanted in zip(x, by, strict=True)])
                leaves = [v for v in point if v.requires_grad]
                y = apply(set, point, method, False)
                first = grad((y[0] ** 3).sum() + y[1].sum(), leaves, create_graph=True)
                found.append(grad(torch.stack([v.square().sum() for v in first]).sum(), leaves))
            torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("samples", [None, 4])
def test_gradients_come_in_batches(samples: int | None) -> None:
    """Of one sample, by numbers of Python, and of several, by arrays; both ways that torch has of it."""
    set, x = made("log_std", torch.float64, samples=samples)
    leaves = tuple([v.clone().requires_grad_() for v in x])
    y = fused(set, leaves, "ray", False)
    g = tuple([torch.linspace(-1, 1, 3 * v.numel(), dtype=v.dtype).reshape(3, *v.shape) for v in y])

    def pulled(*g: Tensor) -> Any:
        return grad(y, leaves, g, retain_graph=True)

    expected = [torch.stack(column) for column in zip(*(pulled(*one) for one in zip(*g, strict=True)), strict=True)]
    for found in (grad(y, leaves, g, retain_graph=True, is_grads_batched=True), torch.func.vmap(pulled)(*g)):
        torch.testing.assert_close(list(found), expected, rtol=1e-9, atol=1e-9)


def test_changes_are_noticed() -> None:
    """Of the old policy and of x: before a call they count, between it and the backward pass they are an error."""
    set, x = made("covariance", torch.float64)
    before = fused(set, x)
    set.covariance.mul_(2.0)
    torch.testing.assert_close(fused(set, x), formulas(set, x), rtol=1e-11, atol=1e-11)
    assert not torch.equal(before[1], fused(set, x)[1])
    for changed in (set.mean, set.covariance):
        leaves = tuple([v.clone().requires_grad_() for v in x])
        y = fused(set, leaves)
        changed.add_(1.0)
        with pytest.raises(RuntimeError, match="inplace"):
            y[0].sum().backward()


@pytest.mark.usefixtures("engine")
def test_one_policy_for_all_samples() -> None:
    """Fields and scales without the batch: of the derivative by what is shared, the sum comes back."""
    set, x = made("log_std", torch.float64, False)
    set = GaussianKL(set.mean[0], set.covariance[0], EPSILON, average=False, parameterization="log_std")
    found = []
    for apply in (fused, formulas):
        leaves = (x[0].clone().requires_grad_(), x[1][0].clone().requires_grad_())
        y = apply(set, leaves, "ray", False)
        assert y[1].shape == y[0].shape
        found.append([*y, *grad(y[0].square().sum() + y[1].sum(), leaves)])
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-12)


def test_is_none_elsewhere() -> None:
    """Where the formulas have to do it."""
    set, x = made("covariance", torch.float32)
    old = (set.mean, set.covariance)

    def ask(set: Any, x: Any, anchor: Any = old, method: Any = "ray") -> Any:
        return eager.fused(set, x, anchor, method, True)

    assert ask(set, x) is not None and ask(set, x, (old[0], old[1].clone())) is not None
    assert ask(GaussianKL(nn.Parameter(old[0]), old[1], EPSILON), x) is None
    assert ask(set, x, (old[0].clone().requires_grad_(), old[1])) is None
    assert ask(set, x, (old[0], 1.01 * old[1])) is None
    assert ask(GaussianKL(*old, torch.tensor(EPSILON, requires_grad=True)), x) is None
    assert ask(GaussianKL(*old, torch.full((len(x[0]), 1), EPSILON)), x) is None
    assert ask(GaussianKL(*old, torch.tensor(EPSILON)), x) is not None
    assert ask(set, x, method="near") is None
    assert ask(set, (x[0].double(), x[1])) is None
    half = (old[0].half(), old[1].half())
    assert ask(GaussianKL(*half, EPSILON), (x[0].half(), x[1].half()), half) is None
    full = torch.diag_embed(old[1])
    assert ask(GaussianKL(old[0], full, EPSILON, diagonal=False), (x[0], full), (old[0], full)) is None
    assert ask(inset.Ball(torch.zeros(2), 1.0), x) is None
    layout = Layout(True, True, "covariance")
    assert eager.region(x, (old[0], old[1][0, :2]), EPSILON, layout, "ray", True) is None
    assert eager.region((x[0][0, 0], x[1][0]), old, EPSILON, layout, "ray", True) is None
    one = GaussianKL(old[0][0], old[1][0], EPSILON)
    seen = []

    def mapped(m: Tensor, s: Tensor) -> Tensor:
        seen.append(ask(one, (m, s), one.anchor()))
        return m

    torch.func.vmap(mapped)(*x)
    assert seen == [None]


@pytest.mark.usefixtures("hooked")
def test_layer() -> None:
    """`TrustRegion` and `Projection` give what the formulas do, also without gradients and in inference mode."""
    set, x = made("log_std", torch.float32, samples=None)
    layer = inset.torch.TrustRegion(EPSILON)
    reference = formulas(set, x)
    torch.testing.assert_close(layer(x, set.anchor()), reference, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(inset.torch.Projection(set, method="ray")(x), reference, rtol=1e-3, atol=1e-3)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x, set.anchor()), reference, rtol=1e-3, atol=1e-3)
    short = eager.region(x, set.anchor(), EPSILON, Layout(True, True, "log_std"), "ray", True)
    torch.testing.assert_close(short, layer(x, set.anchor()), rtol=0, atol=0)


@pytest.mark.parametrize("d", [2, 40])
def test_old_scales_below_0_are_no_factor(d: int) -> None:
    """They are left to the formulas, which say so by NaN."""
    region = inset.torch.TrustRegion(0.01, parameterization="cholesky")
    old, new = (torch.zeros(8, d), -torch.ones(d)), (torch.ones(8, d), torch.ones(d))
    assert eager.region(new, old, 0.01, region.layout, "ray", True) is None
    assert region(new, old)[1].isnan().all()


@pytest.mark.parametrize("shape", [(8, 2), (3, 8, 2), (400, 50)])
def test_another_default_device_and_autocast(shape: tuple[int, ...]) -> None:
    """What torch is told elsewhere does not matter here."""
    region, d = inset.torch.TrustRegion(0.01), shape[-1]
    old = torch.zeros(shape), torch.zeros(*shape[:-2], d)
    found = []
    for context in (torch.device("cpu"), torch.device("meta"), torch.autocast("cpu", dtype=torch.bfloat16)):
        new = torch.ones(shape, requires_grad=True), torch.ones(*shape[:-2], d, requires_grad=True)
        old[0].add_(0.1)  # nothing is remembered
        with context:
            y = region(new, old)
            (y[0].sum() + y[1].square().sum()).backward()
        found.append((*y, new[0].grad, new[1].grad))
        old[0].sub_(0.1)
    for others in found[1:]:
        for a, b in zip(found[0], others, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("d", [3, 40])
def test_gradients_that_are_stored_as_their_negatives(d: int) -> None:
    """As those of imaginary parts are."""
    found = []
    for imaginary in (False, True):
        means = torch.linspace(-1, 1, 5 * d).reshape(5, d).requires_grad_()
        y, _ = inset.torch.TrustRegion(0.01)((means, torch.zeros(d)), (torch.zeros(5, d), torch.zeros(d)))
        y = torch.complex(torch.zeros(5, d), y).conj().abs() if imaginary else y.abs()
        found.append(grad(y.square().sum(), means)[0])
    torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("average", [False, True])
def test_gradients_that_are_not_finite(average: bool) -> None:
    """They warn of nothing, and an update that is inside gets them as they are."""
    new = torch.full((4, 3), 0.01).requires_grad_(), torch.zeros((3,) if average else (4, 3), requires_grad=True)
    y = inset.torch.TrustRegion(0.01, average=average)(new, (torch.zeros(4, 3), torch.zeros_like(new[1])))
    g = torch.zeros(4, 3)
    g[0, 0] = math.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        by_means, by_scales = torch.autograd.grad(y[0], new, g)
    assert not average or (torch.equal(by_means, g) and not by_scales.any())
    assert torch.equal(by_means[1:], g[1:])


@pytest.mark.parametrize("d", [3, 40])
def test_memory_can_still_be_resized(d: int) -> None:
    """Torch does not let go of memory that NumPy was told of."""
    given = torch.ones(5, d), torch.ones(d), torch.zeros(5, d), torch.zeros(d)
    inset.torch.TrustRegion(0.01)(given[:2], given[2:])
    for v in given:
        v.untyped_storage().resize_(0)


@pytest.mark.parametrize("shape", [(1, 1), (7, 3), (3, 40), (2, 5, 3), (4,)])
def test_rows_of_arrays(shape: tuple[int, ...]) -> None:
    """As torch has them, NaN included: the largest, sums and products."""
    a = torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for v in (a, torch.where(a == a.max(), torch.nan, a)):
        w = v.numpy()
        for ours, theirs in (
            (small.most(w), small.most(v)), (small.total(w), small.total(v)),
            (small.product(w, 2 * w, 1), small.product(v, 2 * v, 1)),
            *([(small.product(w, 2 * w, 2), small.product(v, 2 * v, 2))] if len(shape) > 1 else []),
        ):  # fmt: skip
            torch.testing.assert_close(torch.from_numpy(ours), theirs, equal_nan=True)
        for ours, theirs in ((small.largest(w), small.largest(v)), (small.smallest(w), small.smallest(v))):
            assert ours == theirs or (math.isnan(ours) and math.isnan(theirs))

"""The closed forms of compiled programs: the numbers of the formulas, the promise of `strict`, and few sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch.fx import GraphModule

from inset import GaussianKL, Strings
from inset._eager.gaussian_line import first, spread
from inset._eager.small import product
from inset._project import interpolated
from inset._traced import gaussian, strings
from inset._trust_region import Layout
from inset.torch import Projection, TrustRegion

KINDS = ("covariance", "cholesky", "log_std")
LINKS = torch.tensor([[0, 1], [1, 2], [2, 3], [0, 3]])
REDUCTIONS = ("sum", "mean", "amax", "amin", "argmax", "max", "min", "prod", "all", "any", "linalg_vector_norm")


def policies(kind: str, average: bool, size: float, d: int = 3) -> tuple[Any, Any]:
    """New policies, the first of which is inside and the last far outside, and old ones."""
    random = torch.Generator().manual_seed(0)
    means = torch.randn(*((6, 5, d) if average else (6, d)), generator=random)
    scales = 0.3 * torch.randn(6, d, generator=random)
    scales = scales if kind == "log_std" else scales.exp()
    far = size * torch.tensor([1e-4, 0.1, 0.3, 1.0, 2.0, 9.0])
    shift = torch.randn(means.shape, generator=random) * far.reshape(-1, *(1,) * (means.ndim - 1))
    turn = torch.randn(6, d, generator=random) * far[:, None].clamp(max=3.0)
    return (means + shift, scales + turn * (1.0 if kind == "log_std" else scales)), (means, scales)


def set_project(set: Any, x: Any, anchor: Any) -> Any:
    """By the formulas."""
    return interpolated(set, x, anchor, "ray", True)[0]


def pulled(y: Any, x: tuple[Tensor, ...], again: bool = False) -> tuple[Tensor, ...]:
    """Derivatives of a function of y by x; with `again` those of the first."""
    y = y if isinstance(y, tuple) else (y,)
    first = torch.autograd.grad(torch.stack([torch.sin(v).sum() for v in y]).sum(), x, create_graph=again)
    return torch.autograd.grad(torch.stack([v.square().sum() for v in first]).sum(), x) if again else first


@pytest.mark.parametrize("strict", (False, True))
@pytest.mark.parametrize("method", ("chord", "paper", "ray"))
@pytest.mark.parametrize("average", (True, False))
@pytest.mark.parametrize("kind", KINDS)
def test_regions_are_those_of_the_formulas(kind: Any, average: bool, method: Any, strict: bool) -> None:
    layout = Layout(average, True, kind)
    for size, epsilon, d in ((1.0, 0.01, 3), (1e4, 0.3, 12), (1e12, 1.0, 3)):
        new, old = policies(kind, average, size, d)
        x = tuple(v.requires_grad_() for v in new)
        y = gaussian.region(x, old, epsilon, layout, method, strict)
        assert y is not None
        expected, _ = interpolated(GaussianKL(old[0], old[1], epsilon, *layout), x, old, method, strict)
        torch.testing.assert_close(y, expected, rtol=1e-4, atol=2e-5)
        if size < 1e8 or method == "ray":  # beyond the domain the factor that leads back to it counts as a constant
            torch.testing.assert_close(pulled(y, x), pulled(expected, x), rtol=1e-3, atol=1e-4)
        if strict:
            for wide in (torch.float32, torch.float64):
                set = GaussianKL(old[0].to(wide), old[1].to(wide), epsilon, *layout)
                assert set.h(tuple(v.detach().to(wide) for v in y)).max() <= 0


def test_regions_whose_points_are_not_finite_or_whose_anchor_is_not_sound() -> None:
    new, old = policies("log_std", False, 1.0)
    layout = Layout(False, True, "log_std")
    for bad in (torch.nan, torch.inf):
        new[0][2, 0] = bad
        y = gaussian.region(new, old, 0.01, layout, "ray", True)
        assert y is not None and y[0][2].isnan().any() and y[0][[0, 1, 3, 4, 5]].isfinite().all()
    far = old[0] + 1e8, old[1]  # where a float32 is off by more than the region is wide
    for shift in (0, 100):
        y = gaussian.region((far[0] + shift, far[1]), far, 0.01, layout, "ray", True)
        assert y is not None and y[0].isnan().all()


@pytest.mark.parametrize("lengths", (1.5, torch.tensor([0.5, 1.0, 1.5, 2.0])))
@pytest.mark.parametrize("strict", (False, True))
def test_strings_are_those_of_the_formulas(strict: bool, lengths: Any) -> None:
    random, set = torch.Generator().manual_seed(0), Strings(LINKS, lengths)
    for size in (0.1, 1.0, 100.0, 1e20):
        x = (size * torch.randn(9, 4, 2, generator=random)).requires_grad_()
        middle = torch.randn(9, 1, 2, generator=random).requires_grad_()
        anchor = middle.expand(x.shape)
        y = strings.fused(set, x, anchor, "chord", strict)
        assert y is not None
        expected, _ = interpolated(set, x, anchor, "chord", strict)
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(pulled(y, (x, middle)), pulled(expected, (x, middle)), rtol=1e-4, atol=1e-5)
        if strict:
            assert set.h(y).max() <= 0
            wide = Strings(LINKS, lengths.double() if isinstance(lengths, Tensor) else lengths)
            assert wide.h(y.double()).max() <= 0


@pytest.mark.parametrize("samples", (1, 50))
@pytest.mark.parametrize(
    "kind, scale",
    [("log_std", -88.0), ("log_std", -100.0), ("log_std", -105.0)]
    + [(kind, scale) for kind in ("cholesky", "covariance") for scale in (1e-38, 1e-40, 1e-44)],
)
def test_regions_of_scales_that_are_hardly_numbers(kind: Any, scale: float, samples: int) -> None:
    """Their float32 says little of what they are: NaN, compiled or not, and by the formulas."""
    layout, random = Layout(False, True, kind), torch.Generator().manual_seed(0)
    old = torch.zeros(samples, 3), torch.full((samples, 3), scale)
    new = old[0] + 1e-38 * torch.randn(samples, 3, generator=random), old[1] + (0.05 if kind == "log_std" else scale)
    set = GaussianKL(*old, 0.01, *layout)
    layer = TrustRegion(average=False, parameterization=kind)
    for y in (gaussian.region(new, old, 0.01, layout, "ray", True), set_project(set, new, old), layer(new, old)):
        assert y is not None and y[0].isnan().all()


@pytest.mark.parametrize("scale", (1.2e-38, 2e-38, 1e-37))
def test_regions_of_the_smallest_scales(scale: float) -> None:
    """Where means are no normal numbers, and as far apart however small they are."""
    epsilon, layout, random = 1e-6, Layout(False, True, "cholesky"), torch.Generator().manual_seed(0)
    old = torch.zeros(3000, 3), torch.full((3000, 3), scale)
    new = scale * 0.005 * torch.randn(3000, 3, generator=random), old[1]
    y = gaussian.region(new, old, epsilon, layout, "ray", True)
    assert y is not None
    for dtype in (torch.float32, torch.float64):
        set = GaussianKL(old[0].to(dtype), old[1].to(dtype), epsilon, *layout)
        assert (set.h((y[0].to(dtype), y[1].to(dtype))) <= 0).all()


@pytest.mark.parametrize("length", (1e-45, 1e-40, 3e-40, 1e-38))
def test_strings_that_are_hardly_numbers(length: float) -> None:
    """A float32 there is off by as much however small it is."""
    set, x = Strings(LINKS, length), 5 * torch.randn(2000, 4, 3, generator=torch.Generator().manual_seed(0))
    y = strings.fused(set, x, torch.zeros(1, 1, 3).expand(x.shape), "chord", True)
    assert y is not None and not (set.h(y.double()) > 0).any() and not (set.h(y) > 0).any()


@pytest.mark.parametrize("strict", (False, True))
def test_strings_whose_anchor_is_not_sound(strict: bool) -> None:
    """NaN, also for points that are inside, or seem to be where the anchor is huge beside them."""
    x = torch.tensor([[0.0, 0.0], [3.0, 0.0], [3.0, 1.0], [3.0, 1.0]])
    origin = torch.zeros(1, 2).expand(x.shape)
    for lengths in (torch.tensor([1.0, -1.0, 1.0, 1.0]), torch.zeros(4), torch.tensor([1.0, torch.nan, 1.0, 1.0])):
        for points in (x, 0 * x):
            y = strings.fused(Strings(LINKS, lengths), points, origin, "chord", strict)
            assert y is not None and y.isnan().all()
    for length in (0.0, -1.0, torch.inf):
        assert strings.fused(Strings(LINKS, length), x, origin, "chord", strict) is None
    loose = Strings(LINKS, torch.tensor([1.0, torch.inf, torch.inf, torch.inf]))
    y = strings.fused(loose, x, origin, "chord", strict)
    assert y is not None
    torch.testing.assert_close(y, x / 3, rtol=1e-5, atol=0)
    if strict:
        for far, set in ((1e20, Strings(LINKS, 1.0)), (1e8, Strings(LINKS, 1e-3))):
            for points in (100 * x, 0 * x):
                y = strings.fused(set, points, torch.full((1, 2), far).expand(x.shape), "chord", strict)
                assert y is not None and y.isnan().all()


def test_second_derivatives_are_those_of_the_formulas() -> None:
    new, old = policies("log_std", True, 1.0)
    x, layout = tuple(v.requires_grad_() for v in new), Layout(True, True, "log_std")
    expected, _ = interpolated(GaussianKL(old[0], old[1], 0.01, *layout), x, old, "ray", False)
    y = gaussian.region(x, old, 0.01, layout, "ray", False)
    torch.testing.assert_close(pulled(y, x, again=True), pulled(expected, x, again=True), rtol=1e-2, atol=1e-3)
    set, point = Strings(LINKS, 1.0), torch.randn(9, 4, 2).requires_grad_()
    anchor = torch.zeros(1, 1, 2).expand(point.shape)
    expected, _ = interpolated(set, point, anchor, "chord", False)
    y = strings.fused(set, point, anchor, "chord", False)
    torch.testing.assert_close(
        pulled(y, (point,), again=True), pulled(expected, (point,), again=True), rtol=1e-3, atol=1e-3
    )


def test_exported_programs_are_the_formulas() -> None:
    """They are differentiated by torch, which takes the derivative of a closed form at its kinks."""

    class Region(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.region = TrustRegion()

        def forward(self, mean: Tensor, log_std: Tensor, *old: Tensor) -> Any:
            return self.region((mean, log_std), old)

    given = torch.zeros(4, 5, 3), torch.ones(4, 3), torch.zeros(4, 5, 3), torch.zeros(4, 3)  # means of 0 have no norm
    wide = torch.export.Dim("actions")
    found = []
    for sizes in (None, ({2: wide}, {1: wide}, ({2: wide}, {1: wide}))):
        for apply in (torch.export.export(Region(), given, dynamic_shapes=sizes, strict=True).module(), Region()):
            x = tuple(v.clone().requires_grad_() for v in given[:2])
            found.append(pulled(apply(*x, *given[2:]), x))
            torch.testing.assert_close(found[-1], found[0], rtol=1e-3, atol=2e-6)
    assert all(v.isfinite().all() for v in found[0])


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)  # pytest's monkeypatch would leave it set
def test_sizes_that_a_program_does_not_know() -> None:
    """Batches of which only the data tell how many there are, and any number of actions."""
    x, some = torch.randn(6, 4, 2), torch.tensor([1, 0, 1, 1, 0, 1]).bool()
    layer, region = Projection(Strings(LINKS, 1.0)), TrustRegion(average=False)

    def both(x: Tensor, some: Tensor) -> Any:
        point = x[some]
        return layer(point), *region((point[..., 0], point[..., 1]), (0 * point[..., 0], 0 * point[..., 1]))

    torch._dynamo.reset()
    found = torch.compile(both, fullgraph=True, backend="aot_eager")(x, some)
    torch.testing.assert_close(found, both(x, some), rtol=1e-4, atol=1e-4)
    new, old = policies("log_std", True, 1.0)
    for v in (*new, *old):
        torch._dynamo.mark_dynamic(v, v.ndim - 1)
    found = torch.compile(TrustRegion(), fullgraph=True, backend="aot_eager")(new, old)
    torch.testing.assert_close(found, TrustRegion()(new, old), rtol=1e-3, atol=1e-3)
    torch._dynamo.reset()


def programs(function: Any, *x: Any) -> list[GraphModule]:
    """What AOT autograd makes of a function: the way there and the way back."""
    found: list[GraphModule] = []

    def keep(graph: GraphModule, _: Any) -> Any:
        found.append(graph)
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    y = torch.compile(function, fullgraph=True, backend=aot_autograd(fw_compiler=keep))(*x)
    torch.stack([v.sum() for v in (y if isinstance(y, tuple) else (y,))]).sum().backward()
    torch._dynamo.reset()
    return found


def sums(graph: GraphModule) -> int:
    return sum(str(node.target).split(".")[1:2] in [[name] for name in REDUCTIONS] for node in graph.graph.nodes)


@pytest.mark.parametrize("method, parameterization", (("paper", "covariance"), ("ray", "log_std")))
def test_compiled_regions_have_few_sums(method: Any, parameterization: Any) -> None:
    """By the formulas there are 26 and 69, and the backward pass reads 33 and 49 arrays."""
    new, old = policies(parameterization, True, 1.0, 4)
    layer, x = TrustRegion(method=method, parameterization=parameterization), tuple(v.requires_grad_() for v in new)
    there, back = programs(layer, x, old)
    assert sums(there) <= 4 and sums(back) <= 2
    assert len([node for node in back.graph.nodes if node.op == "placeholder"]) <= 12


def test_compiled_strings_have_few_sums() -> None:
    """By the formulas there are 25, and the backward pass reads 16 arrays."""
    layer, x = Projection(Strings(LINKS, 1.0)), torch.randn(50, 4, 2).requires_grad_()
    there, back = programs(lambda x: layer(x, anchor=x.detach().mean(-2, keepdim=True).expand(x.shape)), x)
    assert sums(there) <= 8 and sums(back) <= 3
    assert len([node for node in back.graph.nodes if node.op == "placeholder"]) <= 8


@pytest.mark.parametrize("kind", KINDS)
def test_newton_steps_are_enough(kind: Any) -> None:
    """For any changes of means and scales, however many of them there are."""
    random, left = np.random.default_rng(0), []
    for k in range(60):
        epsilon, count, d = float(10 ** random.uniform(-6, 0)), 2000, 1 + k % 5
        sizes = np.exp(random.uniform(-12, 12, (count, 1)) - random.uniform(0, 8, (count, d)))
        e = sizes * (random.standard_normal((count, d)), np.ones((1, d)), -np.ones((1, d)))[k % 3]
        q = np.exp(random.uniform(-40, 20, (count, 1))) * random.integers(0, 2, (count, 1))
        outside = (q + spread(np, e, kind, epsilon)[0])[:, 0] > 2 * epsilon
        e, q = e[outside], q[outside]
        t = np.minimum(first(kind, epsilon, q, product(e, e, 1)), 1.0)
        for _ in range(gaussian.newtons(kind, epsilon)):
            phi, slopes = spread(np, t * e, kind, epsilon)
            t = np.minimum(t - (t * t * q + phi - 2 * epsilon) / (2 * t * q + product(slopes, e, 1)), 1.0)
        over = (t * t * q + spread(np, t * e, kind, epsilon)[0]) / epsilon - 2
        assert over.max() <= 1.01e-9
        left.append(over.max())
    assert max(left) > 1e-10  # no step too many

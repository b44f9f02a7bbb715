"""`Projection` on kernels: after the first call it goes to them directly, while nothing has changed."""

from __future__ import annotations

import copy
import io
from typing import Any, cast

import pytest
import torch
from torch import Tensor

import inset._kernels as kernels
from inset import LMI, Ball, Box, GaussianKL, PointShapeError, Polytope, SecondOrderCone, Strings, _fast
from inset._fields import leaves, map_point
from inset.torch import Projection

pytestmark = pytest.mark.usefixtures("one_program")
A, B, ZERO = torch.tensor([[1.0, 1.0, 0.0], [-1.0, 0.5, 1.0]]), torch.tensor([1.0, 2.0]), torch.zeros(3)
X = torch.tensor([[3.0, 4.0, 5.0], [0.1, 0.1, 0.1]])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """As if the CPU were a GPU; the sets for which a kernel was looked for."""
    seen: list[Any] = []

    def prepared(*call: Any) -> Any:
        seen.append(call[0])
        return kernels.prepared(*call)

    monkeypatch.setattr(kernels, "_on_gpu", lambda x: True)
    monkeypatch.setattr(_fast, "PREPARED", [prepared])
    monkeypatch.setattr(_fast, "FUSED", [kernels.fused, *_fast.FUSED])
    return seen


def polytope() -> Projection:
    return Projection(Polytope(A.clone(), B.clone()), ZERO.clone())


def bounds(layer: Projection) -> Tensor:
    assert layer.fields is not None and isinstance(layer.fields.b, Tensor)
    return layer.fields.b


def fresh(layer: Projection, x: Tensor) -> Tensor:
    """What a layer returns that was never called."""
    return copy.deepcopy(layer)(x)


@pytest.mark.parametrize("set", [Polytope(A, B), Ball(ZERO, 2.0), Box(ZERO - 1, ZERO + 1)])
def test_looks_for_a_kernel_once(set: Any, asked: list[Any]) -> None:
    layer = Projection(set, ZERO)
    first = layer(X)
    expected = {X: first, X[:1]: first[:1], X[0]: first[0], X.expand(2, 2, 3): first.expand(2, 2, 3)}
    for x, y in (expected | {X.T.contiguous().T: first}).items():
        torch.testing.assert_close(layer(x), y)
        assert len(asked) == 1 and set.contains(layer(x)).all()
    x = X.clone().requires_grad_()
    layer(x).sum().backward()
    assert x.grad is not None and len(asked) == 1


def test_notices_what_changes(asked: list[Any]) -> None:
    """Arrays in place, other arrays, and what is asked of the layer."""
    layer = polytope()
    assert layer.fields is not None
    layer(X)
    bounds(layer).mul_(0.5)
    torch.testing.assert_close(layer(X), fresh(layer, X))
    assert (X @ A.T)[0, 0] > 0.5 >= float((layer(X) @ A.T)[0, 0])
    layer.fields.b = torch.tensor([0.2, 2.0])
    assert float((layer(X) @ A.T)[0, 0]) <= 0.2
    layer.load_state_dict(Projection(Polytope(A, 3 * B), ZERO).state_dict())
    assert 2.9 < float((layer(X) @ A.T)[0, 0]) <= 3
    before = len(asked)
    y, info = layer(X, return_info=True)
    assert info.eta.shape == (2,) and torch.equal(y, layer(X)) and len(asked) == before
    moved = layer(X, anchor=ZERO - 0.5)
    assert not torch.equal(moved, layer(X))
    assert torch.equal(layer(X, set=Ball(ZERO, 1e3)), X)


def test_learned_bounds_get_their_derivative(asked: list[Any]) -> None:
    layer = polytope()
    layer(X)
    b = bounds(layer).requires_grad_()
    layer(X).sum().backward()
    assert b.grad is not None and bool((b.grad != 0).any())


def test_other_points_are_looked_at_anew(asked: list[Any]) -> None:
    layer = polytope()
    layer(X)
    assert layer(X.bfloat16()).dtype == torch.bfloat16 and len(asked) == 2
    for wrong in (torch.ones(4), torch.ones(2, 4), torch.tensor(1.0)):
        with pytest.raises(PointShapeError):
            layer(wrong)
    with pytest.raises(TypeError):
        layer(torch.ones(2, 3, dtype=torch.int32))
    assert layer(X[:0]).shape == (0, 3)
    assert layer._quick is not None and not layer._quick.applies(
        X.bfloat16()[:0], None, layer._options()
    )  # a GPU launches nothing for nobody


def test_transforms_do_not_meet_kernels(asked: list[Any]) -> None:
    layer = polytope()
    y = layer(X)
    torch.testing.assert_close(torch.func.vmap(layer)(X), y, rtol=1e-5, atol=1e-5)
    slopes = torch.func.jacrev(layer)(X[0])
    assert slopes.shape == (3, 3) and bool(slopes.isfinite().all())


def test_a_called_layer_is_copied_and_saved(asked: list[Any]) -> None:
    layer = polytope()
    layer(X)
    twin = copy.deepcopy(layer)
    assert twin._quick is None and layer._quick is not None
    bounds(layer).mul_(0.1)
    assert not torch.equal(twin(X), layer(X))
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    torch.testing.assert_close(torch.load(buffer, weights_only=False)(X), layer(X))


def test_no_shortcut_where_a_change_would_not_show(asked: list[Any]) -> None:
    """Parameters, whose numbers torch may replace, tensors of inference mode, and layers that look at each point."""
    frozen = torch.nn.Parameter(B.clone(), requires_grad=False)
    layers = [Projection(Polytope(A, frozen), ZERO), Projection(Polytope(A, B), ZERO, nonfinite="anchor")]
    with torch.inference_mode():
        layers.append(Projection(Polytope(A.clone(), B.clone()), ZERO.clone()))
    for layer in layers:
        layer(X)
        assert layer._quick is None
    frozen.data = 0.5 * B
    assert float((layers[0](X) @ A.T)[0, 0]) <= 0.5


def test_a_first_call_without_derivatives_is_no_obstacle(asked: list[Any]) -> None:
    """As an evaluation before training is; what is prepared in inference mode cannot be saved for a backward pass."""
    cone = SecondOrderCone(torch.eye(3)[None], torch.zeros(1, 3), torch.zeros(1, 3), torch.ones(1))
    sets = (
        Polytope(A, B),
        Box(-1.0, 1.0),
        Ball(torch.zeros(6)[::2], 2.0),
        LMI(torch.stack([torch.eye(2)] * 3), -torch.eye(2)),
    )
    for set in (*sets, cone):
        layer = Projection(set, ZERO.clone())
        with torch.inference_mode():
            layer(X)
        x = X.clone().requires_grad_()
        layer(x).sum().backward()
        assert x.grad is not None and layer._quick is not None


def test_a_batch_of_derivatives(asked: list[Any]) -> None:
    """As `torch.autograd.functional.jacobian` asks for with `vectorize`."""
    layer, x = polytope(), X[0].clone().requires_grad_()
    rows = torch.autograd.grad(layer(x), x, torch.eye(3), is_grads_batched=True)[0]
    each = [torch.autograd.grad(layer(x), x, g)[0] for g in torch.eye(3)]
    torch.testing.assert_close(rows, torch.stack(each), rtol=1e-4, atol=1e-5)


def test_scripts_are_made_of_formulas(asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.jit.trace` makes tensors of sizes, which kernels cannot be launched with."""
    set = Ball(ZERO, 2.0)
    assert kernels.fused(set, X, ZERO, "chord", True) is not None
    monkeypatch.setattr(torch._C, "_get_tracing_state", object)
    assert kernels.fused(set, X, ZERO, "chord", True) is None


def _negated(v: Tensor) -> Tensor:
    """The same numbers, of which torch keeps the negatives, as of imaginary parts of conjugates."""
    negated: Tensor = cast(Any, torch)._neg_view(v.neg().contiguous())
    assert negated.is_neg() and negated.is_contiguous()
    return negated


@pytest.mark.parametrize("kind", ["ball", "box", "strings", "polytope", "cone", "lmi", "gaussian"])
def test_numbers_that_are_stored_as_their_negatives(kind: str) -> None:
    random = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random)

    zero, links = torch.zeros(4), torch.tensor([[0, 1]])
    matrix = torch.stack([m + m.mT for m in normal(4, 3, 3)])
    x: Any = 3 * normal(6, 4)
    made: dict[str, tuple[Any, Any, Any]] = {
        "ball": (lambda v: Ball(v(0.1 + zero), 1.0), x, zero + 0.2),
        "box": (lambda v: Box(v(zero - 1), v(zero + 2)), x, zero + 0.2),
        "strings": (lambda v: Strings(links, v(zero[:1] + 1)), x.reshape(6, 2, 2), torch.full((2, 2), 0.2)),
        "polytope": (lambda v: Polytope(v(normal(5, 4)), v(zero[:1] + 1).expand(5)), x, zero + 0.1),
        "cone": (lambda v: SecondOrderCone(v(normal(2, 3, 4)), v(zero[:3].expand(2, 3)), v(0.1 + zero.expand(2, 4)),
                                           v(torch.ones(2))), x, zero + 0.1),
        "lmi": (lambda v: LMI(v(matrix), v(-9 * torch.eye(3))), x, zero + 0.1),
        "gaussian": (lambda v: GaussianKL(v(0.1 + zero), v(0.3 + zero), 0.05, False), (x, 1 + normal(6, 4).abs()),
                     (zero + 0.1, zero + 0.3)),
    }  # fmt: skip
    make, x, anchor = made[kind]
    found = []
    for turned in (lambda v: v, _negated):
        random.manual_seed(1)
        points, place = map_point(lambda v, to=turned: to(v).requires_grad_(), x), map_point(turned, anchor)
        y = leaves(kernels.projected(make(turned), points, place, "chord", True))
        g = [turned(torch.linspace(-1, 2, v.numel()).reshape(v.shape)) for v in y]
        found.append([*y, *torch.autograd.grad(y, leaves(points), g)])
    for plain, negated in zip(*found, strict=True):
        torch.testing.assert_close(negated, plain)

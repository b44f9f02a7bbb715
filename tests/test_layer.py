"""`inset.torch.Projection`, the layer: anchors, learnable fields, per-call sets, info, dtypes, saving, errors."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import inset
from cases import CASES, Case, convert, log_sum_exp
from inset import AnchorError, Ball, Box, Equality, Polytope, Product, Strings, Sublevel
from inset._fields import leaves
from inset.torch import Projection

every_case = pytest.mark.parametrize("case", CASES, ids=repr)
A = torch.tensor([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
b = torch.tensor([1.0, 0.5, 0.5])


class Bowl(nn.Module):
    """|x - center|^2 - 1, convex, with a parameter."""

    def __init__(self, n: int = 2) -> None:
        super().__init__()
        self.center = nn.Parameter(torch.zeros(n))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.center).square().sum(-1) - 1


# -- end to end -----------------------------------------------------------------------------------------


def test_network_trains_and_stays_inside() -> None:
    torch.manual_seed(0)
    safe = Polytope(A, b) & Ball(torch.zeros(2), radius=2.0)
    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 2), Projection(safe))
    z = 10 * torch.randn(32, 8)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    losses = []
    for _ in range(20):
        y = net(z)
        assert safe.contains(y).all()
        value = (y - torch.tensor([3.0, 0.0])).square().mean()
        optimizer.zero_grad()
        value.backward()
        before = [p.detach().clone() for p in net.parameters()]
        optimizer.step()
        assert all(not torch.equal(p, q) for p, q in zip(net.parameters(), before, strict=True))
        losses.append(value.item())
    assert (~safe.contains(net[:-1](z))).any()  # the layer had something to do
    assert losses[-1] < losses[0] - 0.1


@every_case
@pytest.mark.parametrize("dtype", ("float32", "float64"))
def test_every_set_as_a_layer(case: Case, dtype: str) -> None:
    """The layer equals `project` with the anchor it was given or has found."""
    set, anchor = convert(case.set, "torch", dtype), convert(case.anchor, "torch", dtype)
    x = convert(case.points(np.random.default_rng(0), 16), "torch", dtype)
    y = Projection(set, anchor)(x)
    for given, expected in zip(leaves(y), leaves(inset.project(set, x, anchor)), strict=True):
        assert torch.equal(given, expected)
    if not case.name.startswith(("sublevel", "exponential")):  # those know no dimension, or are given a better one
        y = Projection(set)(x)
        assert set.contains(y).all()
        assert all(leaf.dtype == x.dtype for leaf, x in zip(leaves(y), leaves(x), strict=True))


# -- which anchor ---------------------------------------------------------------------------------------


def test_anchor_of_a_polytope_is_its_centre() -> None:
    layer = Projection(Polytope(A, b))
    assert layer.anchor is not None
    torch.testing.assert_close(layer.anchor, inset.interior_point(Polytope(A, b)))
    depth = (b - A @ layer.anchor) / A.norm(dim=-1)
    torch.testing.assert_close(depth, depth[:1].expand(3))  # the same distance to all three


def test_anchor_of_a_ball_is_its_centre() -> None:
    center = torch.tensor([3.0, 4.0])
    layer = Projection(Ball(center, 1.0))
    assert layer.anchor is not None and torch.equal(layer.anchor, center)


@pytest.mark.parametrize(
    "set, x",
    (
        (Strings(torch.tensor([[0, 1], [1, 2]]), 1.0), 5 * torch.randn(7, 3, 2)),
        (Box(-1.0, 1.0), 5 * torch.randn(7, 4)),
        (Product((Box(-1.0, 1.0), Strings(torch.tensor([[0, 1]]), 1.0))), (5 * torch.ones(7, 3), torch.randn(7, 2, 2))),
    ),
    ids=("strings", "box", "product"),
)
def test_anchor_is_asked_for_at_each_call(set: Any, x: Any) -> None:
    layer = Projection(set)
    assert layer.anchor is None
    assert set.contains(layer(x)).all()
    for given, expected in zip(leaves(layer(x)), leaves(inset.project(set, x, set.anchor(x))), strict=True):
        assert torch.equal(given, expected)


def test_anchor_given_as_numpy_or_learnable() -> None:
    layer = Projection(Ball(torch.zeros(2), 1.0), np.array([0.5, 0.0]))
    assert layer.anchor is not None and layer.anchor.dtype == torch.float32
    start = nn.Parameter(torch.tensor([0.5, 0.0]))
    layer = Projection(Ball(torch.zeros(2), 1.0), start)
    assert any(p is start for p in layer.parameters())
    layer(torch.tensor([0.0, 3.0])).sum().backward()
    assert start.grad is not None and start.grad.abs().sum() > 0


# -- learnable fields -----------------------------------------------------------------------------------


@pytest.mark.parametrize("field", ("radius", "center"))
def test_learnable_ball_keeps_its_anchor_up_to_date(field: str) -> None:
    values: dict[str, Any] = {"radius": torch.tensor(1.0), "center": torch.zeros(2)}
    values[field] = nn.Parameter(values[field])
    layer = Projection(Ball(**values))
    assert layer.anchor is None
    assert [name for name, _ in layer.named_parameters()] == [f"fields.{field}"]
    optimizer = torch.optim.SGD(layer.parameters(), 2.0)
    x = torch.tensor([[30.0, 40.0], [0.0, 90.0]])
    for _ in range(3):
        y = layer(x)
        assert layer.set is not None and layer.set.contains(y).all()
        optimizer.zero_grad()
        (-y.sum()).backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() and p.grad.any() for p in layer.parameters())
        optimizer.step()
    ball: Any = layer.set
    assert ball.radius > 5 or (ball.center > 5).all()  # it moved so far that the first centre is outside by now
    torch.testing.assert_close((layer(x) - ball.center).norm(dim=-1), ball.radius.expand(2), rtol=1e-3, atol=0.0)


def test_learnable_polytope_needs_an_anchor() -> None:
    for set in (
        Polytope(nn.Parameter(A.clone()), b),
        Polytope(A, b) & Ball(torch.zeros(2), nn.Parameter(torch.ones(()))),
    ):
        with pytest.raises(
            AnchorError, match=r"learnable fields and no closed-form anchor.*pass Projection\(set, anchor\)"
        ):
            Projection(set)
    rows = nn.Parameter(A.clone())
    layer = Projection(Polytope(rows, b), torch.zeros(2))
    layer(torch.tensor([5.0, 3.0])).sum().backward()
    assert rows.grad is not None and rows.grad[0].abs().sum() > 0
    assert torch.equal(rows.grad[1:], torch.zeros(2, 2))  # only the active row


def test_sublevel_registers_its_module() -> None:
    bowl = Bowl()
    layer = Projection(Sublevel(bowl, finite=True), torch.zeros(2))
    assert [id(p) for p in layer.parameters()] == [id(bowl.center)]
    layer(torch.tensor([3.0, 4.0])).sum().backward()
    assert bowl.center.grad is not None and bowl.center.grad.abs().sum() > 0
    with pytest.raises(AnchorError, match="learnable"):
        Projection(Sublevel(Bowl(), finite=True))


# -- per call -------------------------------------------------------------------------------------------


def test_set_and_anchor_depend_on_the_input() -> None:
    torch.manual_seed(0)
    rows, bounds = nn.Linear(5, 6), nn.Linear(5, 3)
    layer, z, x = Projection(), torch.randn(9, 5), 10 * torch.randn(9, 2)
    set = Polytope(rows(z).reshape(9, 3, 2), bounds(z).exp())
    anchor = (
        0.1 * torch.tanh(z[:, :2]) * bounds(z).exp().amin(-1, keepdim=True) / (1 + rows(z).norm(dim=-1, keepdim=True))
    )
    y = layer(x, set=set, anchor=anchor)
    assert set.contains(y).all() and y.shape == x.shape
    y.sum().backward()
    for p in (*rows.parameters(), *bounds.parameters()):
        assert p.grad is not None and torch.isfinite(p.grad).all() and p.grad.any()
    for k in range(9):
        alone = layer(x[k], set=Polytope(set.A[k], set.b[k]), anchor=anchor[k])
        torch.testing.assert_close(alone, y[k])


def test_equality_per_sample() -> None:
    z = torch.rand(6, 1, dtype=torch.float64, requires_grad=True)
    set = Box(torch.zeros(4, dtype=torch.float64), torch.ones(4, dtype=torch.float64)) & Equality(
        torch.ones(1, 4, dtype=torch.float64), 1 + z
    )
    y = Projection()(5 * torch.randn(6, 4, dtype=torch.float64), set, ((1 + z) / 4).expand(6, 4))
    assert set.contains(y).all()
    torch.testing.assert_close(y.sum(-1, keepdim=True), 1 + z)
    (slope,) = torch.autograd.grad(y.sum(), z)
    torch.testing.assert_close(slope, torch.ones_like(z))  # the sum of y is 1 + z


def test_call_overrides_what_was_built() -> None:
    layer, x = Projection(Ball(torch.zeros(2), 1.0)), torch.tensor([6.0, 8.0])
    torch.testing.assert_close(layer(x), torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(layer(x, Ball(torch.zeros(2), 2.0)), torch.tensor([1.2, 1.6]))
    up, beside = torch.tensor([0.5, 9.5]), torch.tensor([0.5, 0.0])
    y = layer(up, anchor=beside)
    assert y[0] == 0.5 and 0 < y[1] < 0.87  # on the line from that anchor, not from the centre


def test_bad_anchor_per_call_is_loud() -> None:
    y = Projection()(torch.ones(2, 2), Ball(torch.zeros(2), 1.0), torch.tensor([[0.0, 0.0], [3.0, 0.0]]))
    assert torch.isfinite(y[0]).all() and torch.isnan(y[1]).all()


# -- info and bad samples -------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", (True, False))
def test_info(strict: bool) -> None:
    box = Polytope(torch.cat([torch.eye(2), -torch.eye(2)]), torch.ones(4))
    layer = Projection(box, torch.zeros(2), strict=strict)
    x = torch.tensor([[0.5, 0.2], [0.0, 4.0], [-2.0, 1.0]])
    y, info = layer(x, return_info=True)
    assert torch.equal(y, layer(x))
    assert info.active.tolist() == [-1, 1, 2]
    torch.testing.assert_close(info.eta, torch.tensor([1.0, 0.25, 0.5]))
    assert info.eta[0] == 1
    torch.testing.assert_close(info.h, torch.tensor([-0.5, 3.0, 1.0]))
    _, blocks = Projection(Product((box, Ball(torch.zeros(2), 1.0))), (torch.zeros(2), torch.zeros(2)))(
        (x, x), return_info=True
    )
    assert [active.tolist() for active in blocks.active] == [[-1, 1, 2], [-1, 0, 0]]


def test_eta_has_gradients() -> None:
    x = torch.tensor([[3.0, 0.0]], requires_grad=True)
    _, info = Projection(Ball(torch.zeros(2), 1.0), strict=False)(x, return_info=True)
    (slope,) = torch.autograd.grad((1 - info.eta).sum(), x)
    torch.testing.assert_close(slope, torch.tensor([[1 / 9, 0.0]]))


@pytest.mark.parametrize("bad", (float("nan"), float("inf"), -float("inf")))
def test_nonfinite(bad: float) -> None:
    x = torch.tensor([[5.0, 0.0], [bad, 0.0], [0.1, 0.1]], requires_grad=True)
    anchor = torch.tensor([0.2, 0.3])
    ball = Ball(torch.zeros(2), 1.0)
    y = Projection(ball, anchor)(x)
    assert torch.isfinite(y[[0, 2]]).all() and not torch.isfinite(y[1]).all()
    y = Projection(ball, anchor, nonfinite="anchor")(x)
    torch.testing.assert_close(y[1], anchor)
    assert ball.contains(y).all() and torch.equal(y[2], x[2])
    (slope,) = torch.autograd.grad(y.sum(), x)
    assert torch.isfinite(slope).all() and torch.equal(slope[1], torch.zeros(2))
    pair = Projection(Product((ball, Box(-1.0, 1.0))), (anchor, torch.zeros(3)), nonfinite="anchor")
    first, second = pair((x.detach(), torch.full((3, 3), 7.0)))
    torch.testing.assert_close(first[1], anchor)
    assert torch.isfinite(second).all()


# -- dtypes ---------------------------------------------------------------------------------------------


def test_to_moves_set_and_anchor() -> None:
    layer = Projection(Polytope(A, b) & Ball(torch.zeros(2), 2.0)).double()
    assert layer.anchor is not None and layer.anchor.dtype == torch.float64
    assert all(v.dtype == torch.float64 for v in layer.buffers())
    x = 5 * torch.randn(10, 2, dtype=torch.float64)
    y = layer(x)
    assert y.dtype == torch.float64 and layer.set is not None and layer.set.contains(y).all()
    for half in (torch.float16, torch.bfloat16):
        y = layer.to(half)(x.to(half))
        assert y.dtype == half and layer.set.contains(y).all()


def test_indices_stay_integers() -> None:
    layer = Projection(Strings(torch.tensor([[0, 1]]), torch.ones(1))).half()
    assert layer.fields is not None
    assert layer.fields.links.dtype == torch.int64 and layer.fields.lengths.dtype == torch.float16


@pytest.mark.parametrize("convert_to", (lambda layer: layer.half(), lambda layer: layer.to(torch.bfloat16)))
def test_anchor_rounded_onto_the_boundary(convert_to: Any) -> None:
    """1000.3 <= x <= 1001: the anchor 1000.5 is deep in float32, and in float16 or bfloat16 no longer inside."""
    layer = Projection(Box(torch.tensor([1000.3]), torch.tensor([1000.7])), torch.tensor([1000.5]))
    with pytest.raises(AnchorError, match="anchor"):
        convert_to(layer)


@pytest.mark.parametrize("x_dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64))
@pytest.mark.parametrize("set_dtype", (torch.float32, torch.float64))
def test_dtypes_mix(x_dtype: torch.dtype, set_dtype: torch.dtype) -> None:
    layer = Projection(Polytope(A.to(set_dtype), b.to(set_dtype)))
    x = (5 * torch.randn(20, 2)).to(x_dtype)
    y = layer(x)
    assert y.dtype == x_dtype and layer.set is not None and layer.set.contains(y).all()


def test_a_field_that_changes() -> None:
    """In place, replaced, loaded, in another dtype: the layer is one of the new set."""
    layer, x = Projection(Polytope(A.clone(), b.clone()), torch.zeros(2)), 5 * torch.randn(10, 2)
    assert layer.fields is not None and layer.anchor_point is not None

    def follows(A: torch.Tensor, b: torch.Tensor, anchor: torch.Tensor) -> bool:
        fresh, z = Projection(Polytope(A, b), anchor), x.to(anchor.dtype)
        return torch.equal(layer(z), fresh(z)) and torch.equal(layer(z, return_info=True)[0], fresh(z))

    layer(x)
    layer.get_buffer("fields.b").mul_(0.5)
    assert follows(A, 0.5 * b, torch.zeros(2))
    layer.fields.A = 2 * A
    assert follows(2 * A, 0.5 * b, torch.zeros(2))
    layer.anchor_point.register_buffer("0", torch.full((2,), -0.01))
    assert follows(2 * A, 0.5 * b, torch.full((2,), -0.01))
    layer.double()
    assert follows(2 * A.double(), 0.5 * b.double(), torch.full((2,), -0.01).double())
    layer.load_state_dict(Projection(Polytope(A, b), torch.zeros(2)).state_dict())
    assert follows(A.double(), b.double(), torch.zeros(2).double())


def test_a_field_of_another_shape() -> None:
    """Also one that would broadcast is an error."""
    layer = Projection(Polytope(A, b), torch.zeros(2))
    layer(torch.ones(2))
    assert layer.fields is not None
    for wrong in (torch.ones(7), torch.ones(1), torch.tensor(1.0)):
        layer.fields.b = wrong
        with pytest.raises(inset.PointShapeError, match=r"Polytope\(A=\(3, 2\), b="):
            layer(torch.ones(2))


# -- saving ---------------------------------------------------------------------------------------------


def test_state_dict() -> None:
    layer = Projection(Polytope(A, b) & Ball(torch.zeros(2), torch.tensor(2.0)))
    state = layer.state_dict()
    assert sorted(state) == [
        "anchor_point.0",
        "fields.parts_0_A",
        "fields.parts_0_b",
        "fields.parts_1_center",
        "fields.parts_1_radius",
    ]
    other = Projection(Polytope(2 * A, 3 * b) & Ball(torch.zeros(2), torch.tensor(1.0)))
    x = 5 * torch.randn(10, 2)
    assert not torch.equal(other(x), layer(x))
    other.load_state_dict(state)
    assert torch.equal(other(x), layer(x))


@every_case
def test_pickle_and_deepcopy(case: Case) -> None:
    layer = Projection(convert(case.set, "torch"), convert(case.anchor, "torch"))
    x = convert(case.points(np.random.default_rng(0), 4), "torch")
    for twin in (pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer)):
        assert repr(twin) == repr(layer)
        for given, expected in zip(leaves(twin(x)), leaves(layer(x)), strict=True):
            assert torch.equal(given, expected)


def test_deepcopy_shares_nothing() -> None:
    layer = Projection(Sublevel(Bowl(), finite=True), torch.zeros(2))
    twin = copy.deepcopy(layer)
    with torch.no_grad():
        next(twin.parameters()).add_(0.5)
    x = torch.tensor([3.0, 4.0])
    assert not torch.equal(twin(x), layer(x))


def test_repr() -> None:
    text = repr(nn.Sequential(nn.Linear(2, 2), Projection(Ball(torch.zeros(2), 1.5), method="ray", strict=False)))
    assert "Ball(center=float32[2], radius=1.5, p=2), method='ray', strict=False" in text
    assert "None" in Projection().extra_repr()


# -- errors ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "anchor, words",
    (
        (
            torch.tensor([3.0, 0.0]),
            ("Polytope", "constraint 0 is 2 there", "expected < 0", "inset.interior_point(set)"),
        ),
        (torch.tensor([0.0, -0.5]), ("constraint 2 is 0 there",)),
        (torch.tensor([[0.0, 0.0], [0.0, -2.0]]), ("constraint 2 of sample 1 is 1.5 there",)),
        (torch.tensor([float("nan"), 0.0]), ("constraint", "nan")),
    ),
)
def test_anchor_outside(anchor: torch.Tensor, words: tuple[str, ...]) -> None:
    with pytest.raises(AnchorError) as error:
        Projection(Polytope(A, b), anchor)
    for word in words:
        assert word in str(error.value)


def test_anchor_of_another_shape() -> None:
    with pytest.raises(inset.PointShapeError, match=r"an anchor of shape \(..., 2\); received \(3,\)"):
        Projection(Polytope(A, b), torch.zeros(3))


def test_anchor_off_the_equalities() -> None:
    with pytest.raises(AnchorError, match="must satisfy its equalities"):
        Projection(
            Box(torch.zeros(2), torch.ones(2)) & Equality(torch.ones(1, 2), torch.ones(1)), torch.full((2,), 0.3)
        )


def test_anchor_inside_by_less_than_rounding() -> None:
    ball, anchor = Ball(torch.zeros(2), 1.0), torch.tensor([1 - 1e-7, 0.0])
    with pytest.raises(AnchorError, match=r"less than rounding in torch.float32.*strict=False"):
        Projection(ball, anchor)
    assert torch.isfinite(Projection(ball, anchor, strict=False)(torch.ones(2))).all()


def test_empty_set() -> None:
    with pytest.raises(AnchorError):
        Projection(Polytope(torch.tensor([[1.0], [-1.0]]), torch.tensor([-1.0, -1.0])))


@pytest.mark.parametrize(
    "options, words",
    (
        ({"method": "cord"}, r"Projection\(method='cord'\): expected one of paper, chord, ray"),
        ({"nonfinite": "raise"}, r"Projection\(nonfinite='raise'\): expected 'propagate' or 'anchor'"),
    ),
)
def test_typos(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Projection(Ball(torch.zeros(2), 1.0), **options)


def test_no_set() -> None:
    with pytest.raises(ValueError, match=r"without a set: pass one, layer\(x, set=...\)"):
        Projection()(torch.zeros(2))


@pytest.mark.parametrize(
    "set, words",
    (
        (Ball(torch.zeros(2), -1.0), r"Ball\(radius=...\) must be positive; received -1"),
        (Box(torch.zeros(2), torch.tensor([1.0, -1.0])), r"Box\(upper=...\) must be greater than lower"),
        (
            Ball(torch.zeros(2), 1.0) & Ball(torch.tensor([0.0, float("inf")]), 1.0),
            r"Ball\(center=...\) must be finite",
        ),
        (Product((Ball(torch.zeros(2), 0.0), Box(-1.0, 1.0))), r"Ball\(radius=...\) must be positive; received 0"),
    ),
)
def test_values_are_checked_when_built(set: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Projection(set)


def test_numpy_sets_become_tensors() -> None:
    layer = Projection(Ball(np.zeros(2), 1.0))
    y = layer(torch.tensor([3.0, 4.0], dtype=torch.float64))
    torch.testing.assert_close(y, torch.tensor([0.6, 0.8], dtype=torch.float64))


def test_user_functions() -> None:
    set = Sublevel(log_sum_exp, finite=True)
    layer = Projection(set, torch.zeros(3), method="ray")
    y = layer(10 * torch.randn(50, 3))
    assert set.contains(y).all() and layer.set is not None and list(layer.parameters()) == []

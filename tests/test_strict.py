"""`strict`: the numbers returned are in the set. Zero violations, over millions of points, and not by being timid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import inset
from cases import CASES, CERTIFIED, Case, convert, to_float64
from inset._fields import leaves, map_point
from inset._project import METHODS, interpolated, project_with_info

DTYPES = ("float64", "float32", "bfloat16", "float16")
#: Sets with an eigenvalue problem per evaluation get fewer points.
SLOW = ("psd", "lmi", "spectral-ball", "gaussian-entropy-full", "gaussian-kl-full", "gaussian-kl-cholesky", "product")


def throw(case: Case, count: int, dtype: torch.dtype, seed: int) -> Any:
    """Points at every magnitude from 1e-30 to the largest of the dtype, half of them near 1; a third are sparse."""
    generator = torch.Generator().manual_seed(seed)
    info = torch.finfo(dtype)
    low, high = max(-30.0, math.log10(info.tiny) - 1), math.log10(info.max)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    size = 10 ** (low + (high - low) * uniform(count))
    normal = torch.randn(count, generator=generator, dtype=torch.float64)
    size = torch.where(uniform(count) < 0.5, case.spread * normal.exp(), size)
    sparse = uniform(count) < 0.3

    def leaf(center: np.ndarray, k: int) -> torch.Tensor:
        anchor = torch.as_tensor(center, dtype=torch.float64)
        shape = (count, *anchor.shape[anchor.ndim - k :])
        ones = (1,) * k
        step = torch.randn(shape, generator=generator, dtype=torch.float64)
        step = torch.where(sparse.reshape(count, *ones) & (uniform(*shape) < 0.6), 0.0, step)
        return (anchor + size.reshape(count, *ones) * step).clamp(-info.max, info.max).to(dtype)

    return map_point(leaf, case.anchor, case.set.event_ndim)


def violations(set: Any, y: Any) -> int:
    """How often h(y) > 0 in the dtype of y, in other batch shapes, or in float64 throughout."""
    count = leaves(y)[0].shape[0]
    whole, exact = set.h(y), to_float64(set).h(to_float64(y))
    wrong = int((~(whole <= 0)).sum()) + int((~(exact <= 0)).sum()) + int((~set.contains(y)).sum())
    for rows in (slice(0, 7), 0, slice(count - 1, count)):
        wrong += int((~(set.h(map_point(lambda leaf, rows=rows: leaf[rows], y)) <= 0)).sum())
    folded = map_point(lambda leaf: leaf.reshape(4, count // 4, *leaf.shape[1:]), y)
    return wrong + int((~(set.h(folded) <= 0)).sum())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CERTIFIED, ids=repr)
def test_no_violation(case: Case, dtype: str) -> None:
    set, anchor = convert(case.set, "torch", dtype), convert(case.anchor, "torch", dtype)
    for k, method in enumerate(METHODS):
        count = (400 if method == "ray" else 1200) if case.name in SLOW else (2000 if method == "ray" else 6000)
        x = throw(case, count, getattr(torch, dtype), 10 * k)
        y = inset.project(set, x, anchor, method=method)
        assert all(leaf.dtype == getattr(torch, dtype) for leaf in leaves(y))
        assert violations(set, y) == 0


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
@pytest.mark.parametrize(
    "name", ("box", "lmi", "paraboloid", "second-order-cone", "psd", "exponential-cone", "power-cone")
)
def test_no_violation_for_huge_points_of_unbounded_sets(name: str, dtype: str) -> None:
    """They are pulled back before h is evaluated, and rounded after it, also where they are inside."""
    case = next(case for case in CASES if case.name == name)
    set, anchor = convert(case.set, "torch", dtype), convert(case.anchor, "torch", dtype)
    generator = torch.Generator().manual_seed(6)
    count = 20_000
    size = 10 ** (28 + 10 * torch.rand(count, generator=generator, dtype=torch.float64))
    step = torch.randn(count, *anchor.shape, generator=generator, dtype=torch.float64)
    x = (size.reshape(count, *(1,) * anchor.ndim) * step).clamp(-3e38, 3e38).to(anchor.dtype)
    assert violations(set, inset.project(set, x, anchor)) == 0


@pytest.mark.parametrize(("dtype", "bound", "far"), [(torch.float32, 1e-25, 1e20), (torch.float64, 1e-290, 1e30)])
def test_weights_below_the_smallest_normal_number(dtype: torch.dtype, bound: float, far: float) -> None:
    """They would be off by a large part of themselves."""
    x = torch.linspace(-far, far, 200, dtype=dtype)[:, None]
    set, anchor = (
        inset.Box(torch.full((1,), -bound, dtype=dtype), torch.full((1,), bound, dtype=dtype)),
        torch.zeros_like(x),
    )
    for method in METHODS:
        assert violations(set, inset.project(set, x, anchor, method=method)) == 0


@pytest.mark.parametrize("size", [1e-42, 1e-40, 3e-40, 1e-38])
def test_sets_that_are_hardly_numbers(size: float) -> None:
    """Below the smallest normal number rounding does not become any less."""
    random = torch.Generator().manual_seed(0)
    x, zero, bound = 1e3 * size * torch.randn(500, 12, generator=random), torch.zeros(12), torch.tensor(size)
    rows, links = torch.randn(20, 12, generator=random), torch.tensor([[0, 1], [1, 2], [2, 3]])
    sets = (inset.Ball(zero, bound), inset.Polytope(rows, bound.expand(20)), inset.Box(zero - bound, zero + bound))
    for set in sets:
        assert violations(set, interpolated(set, x, zero.expand(x.shape), "chord", True)[0]) == 0
    strings, bodies = inset.Strings(links, bound.expand(3)), x.reshape(-1, 4, 3)
    assert violations(strings, interpolated(strings, bodies, torch.zeros_like(bodies), "chord", True)[0]) == 0


# -- away from the origin ---------------------------------------------------------------------------


def far_sets(dtype: str) -> list[tuple[str, Any, torch.Tensor]]:
    """Bounded sets around vectors of size 400, stored in `dtype`, and their centres."""
    rng = np.random.default_rng(5)
    n = 8
    c = 400 * rng.normal(size=n) / np.sqrt(n)
    c = np.asarray(torch.as_tensor(c).to(getattr(torch, dtype)).double())  # exact in the dtype
    A = rng.normal(size=(20, n))
    A /= np.linalg.norm(A, axis=-1, keepdims=True)
    P = A.T @ A
    links = np.array([[0, 1], [1, 2], [2, 3]])
    cone = (A[:6].reshape(2, 3, n), -(A[:6].reshape(2, 3, n) @ c), 0.1 * A[6:8], 2 - 0.1 * A[6:8] @ c)
    sets = (
        ("polytope", inset.Polytope(A, A @ c + 1)),
        ("box", inset.Box(c - 1, c + 1)),
        ("ball-1", inset.Ball(c, 1.0, 1)),
        ("ball-2", inset.Ball(c, 1.0)),
        ("ball-inf", inset.Ball(c, 1.0, math.inf)),
        ("ellipsoid", inset.Ellipsoid(c, A[:n].T + np.eye(n))),
        ("quadratic", inset.Quadratic(P, -P @ c, np.array(c @ P @ c / 2 - 100.0))),
        ("second-order-cone", inset.SecondOrderCone(*cone)),
        ("strings", inset.Strings(links, np.array([1.0, 0.8, 1.2]))),
        ("spectral-ball", inset.SpectralBall(c.reshape(4, 2), 1.0)),
    )
    result = []
    for name, set in sets:
        anchor = c.reshape(4, 2) if set.event_ndim == 2 else c
        if name == "strings":
            anchor = np.broadcast_to(c[:2], (4, 2)) + 0.0
        result.append((name, convert(set, "torch", dtype), convert(anchor, "torch", dtype)))
    return result


@pytest.mark.parametrize("name", [name for name, *_ in far_sets("float32")])
@pytest.mark.parametrize("method", METHODS)
def test_no_violation_away_from_the_origin(name: str, method: Any) -> None:
    set, anchor = next((s, a) for n, s, a in far_sets("float32") if n == name)
    generator = torch.Generator().manual_seed(3)
    count = 2000 if name == "spectral-ball" else 20_000
    size = torch.randn(count, generator=generator).exp().reshape(count, *(1,) * anchor.ndim)
    x = anchor + size * torch.randn(count, *anchor.shape, generator=generator)
    y = inset.project(set, x, anchor, method=method)
    assert not torch.isnan(y).any()
    assert violations(set, y) == 0


# -- dtypes that mix, and Python numbers --------------------------------------------------------------


@pytest.mark.parametrize("given, stored", (("bfloat16", "float32"), ("float32", "float64"), ("float64", "float32")))
@pytest.mark.parametrize("case", CERTIFIED, ids=repr)
def test_mixed_dtypes(case: Case, given: str, stored: str) -> None:
    """The result has the dtype of x and is judged against the set as it is stored."""
    set, anchor = convert(case.set, "torch", stored), convert(case.anchor, "torch", stored)
    x = throw(case, 200 if case.name in SLOW else 800, getattr(torch, given), 1)
    for method in METHODS:
        y = inset.project(set, x, anchor, method=method)
        assert all(leaf.dtype == getattr(torch, given) for leaf in leaves(y))
        assert violations(set, y) == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "set",
    (inset.Ball(torch.zeros(3), 0.1), inset.Ball(torch.zeros(3), 0.1, 1), inset.Box(-0.1, 0.1), inset.Box(-0.1, 0.3)),
    ids=repr,
)
def test_python_numbers_are_exact(set: Any, dtype: str) -> None:
    """0.1 is no float32; the result is feasible for the number that was written."""
    set = convert(set, "torch", dtype)
    x = throw(Case("numbers", inset.Ball(np.zeros(3), 0.1), np.zeros(3), 0.2), 20_000, getattr(torch, dtype), 4)
    y = inset.project(set, x, torch.zeros(3, dtype=getattr(torch, dtype)), method="ray")
    assert violations(set, y) == 0


# -- user functions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [case for case in CASES if case.name.startswith("sublevel")], ids=repr)
def test_user_functions_hold_as_evaluated(case: Case, dtype: str) -> None:
    set, anchor = convert(case.set, "torch", dtype), convert(case.anchor, "torch", dtype)
    x = throw(case, 4000, getattr(torch, dtype), 2)
    for method in METHODS:
        y = inset.project(set, x, anchor, method=method)
        assert (set.h(y) <= 0).all()


# -- not timid ------------------------------------------------------------------------------------------


def round_sets(n: int) -> list[tuple[str, Any]]:
    """Well-conditioned sets of size about 1 around the origin."""
    rng = np.random.default_rng(n)
    A = rng.normal(size=(2 * n, n))
    A /= np.linalg.norm(A, axis=-1, keepdims=True)
    cone = (np.eye(n)[None], np.zeros((1, n)), 0.1 * A[:1], np.ones(1))
    return [
        ("ball-1", inset.Ball(np.zeros(n), 1.0, 1)),
        ("ball-2", inset.Ball(np.zeros(n), 1.0)),
        ("ball-inf", inset.Ball(np.zeros(n), 1.0, math.inf)),
        ("box", inset.Box(-np.ones(n), np.ones(n))),
        ("ellipsoid", inset.Ellipsoid(np.zeros(n), np.eye(n) + 0.1 * rng.normal(size=(n, n)) / np.sqrt(n))),
        ("polytope", inset.Polytope(A, np.ones(2 * n))),
        ("quadratic", inset.Quadratic(np.eye(n), 0.1 * A[0], np.array(-0.5))),
        ("second-order-cone", inset.SecondOrderCone(*cone)),
        ("spectral-ball", inset.SpectralBall(np.zeros((n // 4, 4)), 1.0)),
    ]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", (4, 64))
def test_not_timid(n: int, dtype: str) -> None:
    """With `strict` the ray reaches 1 - 4 eps - 64 n eps(float32 or float64) of the exact weight."""
    kind = getattr(torch, dtype)
    wide = torch.float64 if dtype == "float64" else torch.float32
    allowed = 4 * torch.finfo(kind).eps + 64 * n * torch.finfo(wide).eps
    for name, base in round_sets(n):
        set = convert(base, "torch", dtype)
        shape = (n // 4, 4) if name == "spectral-ball" else (n,)
        x = torch.randn(500, *shape, generator=torch.Generator().manual_seed(n)).to(kind) * 3
        zero = torch.zeros(shape, dtype=kind)
        eta = project_with_info(set, x, zero, method="ray")[1].eta.double()
        exact = project_with_info(*map(to_float64, (set, x, zero)), method="ray", strict=False)[1].eta
        outside = exact < 1 - allowed
        assert outside.any(), name
        reached = (eta / exact)[outside].min()
        assert reached >= 1 - allowed, f"{name}: {float(1 - reached):.3g} lost, {allowed:.3g} allowed"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("method", ["chord", "ray"])
def test_a_row_that_never_binds(method: Any, strict: bool) -> None:
    """A bound at infinity changes nothing, also where no other row is violated."""
    A, b = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.array([np.inf, 1.0, 1.0])
    x = np.array([[0.2, 0.3], [5.0, 0.5], [0.0, 7.0]])
    y = inset.project(inset.Polytope(A, b), x, np.zeros(2), method=method, strict=strict)
    assert np.array_equal(y[:2], x[:2])
    np.testing.assert_allclose(y[2], [0.0, 1.0], rtol=1e-12)

"""`diagnose`: finds what is not convex or not strict, and says for each sample what happens, without raising."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import inset
from cases import CASES, Case, convert

SINGLE = tuple(case for case in CASES if case.name != "product")


@pytest.mark.parametrize("case", SINGLE, ids=repr)
@pytest.mark.parametrize("framework", ("numpy", "torch"))
def test_every_case_is_convex_with_a_strict_anchor(case: Case, framework: str) -> None:
    x = convert(case.points(np.random.default_rng(0), 20), framework)
    report = inset.diagnose(convert(case.set, framework), convert(case.anchor, framework), x)
    assert report.convex and report.anchor_strict, str(report)
    assert np.isfinite(report.conditioning) and report.conditioning > 0
    assert report.margin is not None and bool((report.margin >= 0).all())
    assert set(report.status) <= {"inside", "moved"}


def test_nonconvex_function_is_found() -> None:
    def ring(x: Any) -> Any:
        return 0.25 - (x * x).sum(-1)

    report = inset.diagnose(inset.Sublevel(ring), np.array([2.0, 0.0]))
    assert not report.convex and report.nonconvex_constraint == 0 and report.convexity_gap > 0
    assert "NOT CONVEX: constraint 0" in str(report)


def test_conditioning_of_a_ball() -> None:
    """h = |x - c| - 1 has slope 1: H / |h(x0)| is 1 / depth."""
    report = inset.diagnose(inset.Ball(np.zeros(2), 1.0), np.array([0.5, 0.0]))
    assert 0.9 * 2 <= report.conditioning <= 2 * (1 + 1e-9)


def test_one_bad_sample_does_not_raise_for_its_batch() -> None:
    anchors = torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [0.0, 0.0]])
    x = torch.tensor([[0.1, 0.0], [4.0, 0.0], [4.0, 0.0], [float("nan"), 0.0]])
    report = inset.diagnose(inset.Ball(torch.zeros(2), 1.0), anchors, x)
    assert report.status.tolist() == ["inside", "moved", "bad anchor", "not finite"]
    assert report.active is not None and report.active[:2].tolist() == [-1, 0]
    assert not report.anchor_strict and "NOT STRICT" in str(report)


def test_bad_fields_raise() -> None:
    with pytest.raises(ValueError, match=r"radius.*positive.*-1"):
        inset.diagnose(inset.Ball(np.zeros(2), -1.0), np.zeros(2))

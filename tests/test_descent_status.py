"""`minimize` on its way and at its end: what is recorded, what is shown, and what can go wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import inset
import inset.torch
from cases import convert
from inset import IGD, PGD, Radial, Status, SubGD
from inset.descent._minimize import schedule
from problems import Problems, balls, every_solver, polytopes, solve

# -- what happens on the way -------------------------------------------------------------------------


@every_solver
def test_every_recorded_point_is_feasible(solver: Any) -> None:
    """At each recorded step: in the set, the best so far, and no worse than before."""
    problems = polytopes(4, 5, 15)
    set = convert(problems.set, "torch")
    seen: list[tuple[int, Any]] = []

    def look(step: int, result: inset.Result) -> None:
        assert set.contains(result.x).all() and set.contains(result.average).all()
        assert (result.value <= result.history[:, -1] + 1e-12 * abs(result.value)).all()
        seen.append((step, result.value))

    result = solve(problems, solver, 130, callback=look)
    assert tuple(step for step, _ in seen) == result.recorded
    assert (result.history.diff(dim=-1) <= 0).all()


def test_recorded_steps() -> None:
    assert schedule(7) == [1, 2, 3, 4, 5, 6, 7]
    steps = schedule(10_000)
    assert steps[:100] == list(range(1, 101)) and steps[-1] == 10_000 and {128, 1000, 8192} <= {*steps}
    assert len(steps) < 200


def test_a_callback_can_stop() -> None:
    result = solve(polytopes(2, 4, 12), IGD(0.01), 1000, callback=lambda step, result: step >= 17)
    assert result.recorded[-1] == 17 and (result.evaluations == 17).all()
    assert (result.status == Status.OUT_OF_STEPS).all()


def test_progress_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    solve(polytopes(2, 4, 12), IGD(0.01), 30, progress=True)
    out, err = capsys.readouterr()
    assert out == "" and "step 30/30" in err and err.endswith("\n")


def test_results_print_readably() -> None:
    text = str(solve(polytopes(3, 4, 12)))
    assert "3 problems" in text and "3 converged" in text and "median" in text
    alone = str(solve(Problems(np.array([3.0, 4.0]), inset.Ball(np.zeros(2), 2.0), np.zeros(2), np.array(-10.0))))
    assert "converged" in alone and "value -10" in alone and "evaluations" in alone


# -- what can go wrong -------------------------------------------------------------------------------


@every_solver
def test_a_bad_anchor_fails_alone(solver: Any) -> None:
    problems = balls(3, 4)
    anchor = problems.anchor.copy()
    anchor[1] *= 3 / np.linalg.norm(anchor[1])
    result = solve(problems._replace(anchor=anchor), solver, 30)
    assert result.status.tolist()[1] == Status.FAILED_ANCHOR and result.status.tolist()[0] != Status.FAILED_ANCHOR
    assert torch.isnan(result.value[1]) and torch.isnan(result.x[1]).all()
    assert torch.isfinite(result.value[[0, 2]]).all() and torch.isfinite(result.x[[0, 2]]).all()
    assert int(result.evaluations[1]) == 0


def nan_beyond(x: Any, edge: float = 0.5) -> Any:
    """|x|^2 - 1, but NaN where x_0 < -edge: the set is what is left."""
    return torch.where(x[..., 0] < -edge, float("nan"), (x * x).sum(-1) - 1)


@pytest.mark.parametrize("solver", [Radial(), IGD(0.1), IGD(0.1, "ray")], ids=repr)
def test_nan_counts_as_outside(solver: Any) -> None:
    set = inset.Sublevel(nan_beyond)
    c = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    result = inset.torch.minimize(c, set, torch.zeros(2, dtype=torch.float64), solver, 200)
    assert set.contains(result.x).all() and torch.isfinite(result.history).all()
    assert -1 <= float(result.value[1]) < -0.9 and -0.5 <= float(result.value[0]) < -0.2


def test_nan_stops_a_problem_and_says_so() -> None:
    """A gradient that overflows, in one of two problems: it keeps the best point, the other goes on."""
    set = inset.Sublevel(lambda x: torch.exp(x * x).sum(-1) - 5, finite=True)
    c = torch.tensor([[1.0, 0.0], [1e-6, 0.0]], dtype=torch.float64)
    result = inset.torch.minimize(c, set, torch.zeros(2).double(), SubGD(100.0), 50)
    assert result.status.tolist() == [Status.NOT_FINITE, Status.OUT_OF_STEPS]
    assert torch.isfinite(result.history).all() and set.contains(result.x).all()


def test_an_objective_that_is_not_finite_stops_a_problem() -> None:
    """log(x_0 + 0.5) leaves its domain inside of the ball: neither best point nor average takes the NaN."""
    ball = inset.Ball(torch.zeros(2).double(), 1.0)
    result = inset.torch.minimize(lambda x: torch.log(x[..., 0] + 0.5), ball, torch.zeros(2).double(), IGD(0.1), 20)
    assert int(result.status) == Status.NOT_FINITE and int(result.evaluations) < 20
    assert torch.isfinite(result.history).all() and torch.isfinite(result.average).all() and ball.contains(result.x)


def test_the_pool_holds_each_cut_once() -> None:
    from inset.descent._pool import start

    first, second = torch.eye(2).double()[:, None, :].expand(2, 3, 2)
    everywhere = torch.ones(3) > 0
    pool = start(first.clone(), 5)
    for u in (second, 2 * second, second, 2 * second, second):
        pool = pool.add(u.clone(), everywhere)
    assert (pool.cuts == second[:, None]).all(-1).sum(-1).tolist() == [1, 1, 1]
    assert (pool.cuts == first[:, None]).all(-1).any(-1).all()


def test_nothing_to_minimise() -> None:
    problems = polytopes(2, 4, 12)
    result = solve(problems._replace(c=0 * problems.c))
    assert (result.status == Status.CONVERGED).all() and (result.value == 0).all() and (result.lower == 0).all()


def test_one_variable() -> None:
    box = inset.Box(np.array([-2.0]), np.array([3.0]))
    for c, value in ((1.5, -3.0), (-1.0, -3.0)):
        result = solve(Problems(np.array([c]), box, np.array([0.5]), np.array(value)))
        assert float(result.value) == pytest.approx(value, rel=1e-12) and int(result.status) == Status.CONVERGED


def test_errors_say_what_to_do() -> None:
    ball, zero = inset.Ball(torch.zeros(3), 1.0), torch.zeros(3)
    minimize = inset.torch.minimize
    with pytest.raises(ValueError, match="steps=0"):
        minimize(torch.ones(3), ball, zero, steps=0)
    with pytest.raises(ValueError, match=r"IGD\(step=-1\)"):
        IGD(-1)
    with pytest.raises(ValueError, match="expected one of paper, chord, ray"):
        IGD(0.1, "near")  # type: ignore[arg-type]
    with pytest.raises(inset.PointShapeError, match="linear objective"):
        minimize(torch.ones(4), ball, zero)
    with pytest.raises(inset.PointShapeError, match="anchor"):
        minimize(torch.ones(3), ball, torch.zeros(2))
    with pytest.raises(TypeError, match="function of a point"):
        minimize("down", ball, zero)
    with pytest.raises(NotImplementedError, match="PGD needs the nearest point"):
        minimize(torch.ones(2), inset.Polytope(torch.ones(1, 2), torch.ones(1)), torch.zeros(2), PGD(0.1))
    product = inset.Product((ball, ball))
    with pytest.raises(ValueError, match="Product"):
        minimize((torch.ones(3), torch.ones(3)), product, (zero, zero), IGD(0.1, "ray"))


def test_domains_are_entered_on_the_device_of_the_point() -> None:
    """Nothing is made on the default device, which here is none that computes."""
    from inset.descent._build import build

    anchor = torch.tensor([-1.0, 1.0, 1.2]).double()
    program = build(lambda fn: fn, torch.ones(3).double(), inset.ExponentialCone(), anchor, ())
    z = torch.tensor([[0.0, -3.0, 0.0]]).double()
    with torch.device("meta"):
        near, reach = program.enter(z, program.anchor)
    assert near.device.type == "cpu" and 0 < float(reach) < 1

"""Policy updates inside a trust region: the problems, natural gradient, the methods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from experiments.common.store import Arrays
from experiments.trust_region.config import Config
from experiments.trust_region.natural import conjugate_gradient, fisher_product, grad, move, natural_gradient, search
from experiments.trust_region.orthogonal import cone_layer
from experiments.trust_region.policy import SPREAD, begin_linear, begin_network, divergence, log_density
from experiments.trust_region.problem import Problems, pack, stack
from experiments.trust_region.run import improved
from experiments.trust_region.solve import METHODS, Method, Setting, Solver, minibatches

from inset import GaussianKL

CPU = torch.device("cpu")
EPSILON = 0.01


def problem(policy: str, states: int = 120, seed: int = 0, d: int = 5, actions: int = 3) -> Arrays:
    """Advantages that a change of the mean can improve."""
    random = np.random.default_rng(seed)
    s = random.normal(size=(states, d)).astype(np.float32)
    fixed, old = begin_linear(s, actions, 20, random) if policy == "linear" else begin_network(d, actions, 8, random)
    old = {name: (p + 0.1 * random.normal(size=p.shape)).astype(np.float32) for name, p in old.items()}
    bare = stack([pack(fixed, old, s, np.zeros((states, actions), np.float32), np.zeros(states, np.float32))], CPU)
    noise = random.normal(size=(states, actions)).astype(np.float32)
    a = bare.old_means[0].numpy() + np.exp(old[SPREAD]) * noise
    advantages = -np.square(a - np.sin(s[:, :actions])).sum(-1)
    advantages = (advantages - advantages.mean()) / advantages.std()
    return pack(fixed, old, s, a, advantages.astype(np.float32))


@pytest.fixture(scope="module", params=["linear", "network"])
def problems(request: pytest.FixtureRequest) -> Problems:
    """Two of them, one with fewer states."""
    return stack([problem(request.param), problem(request.param, 90, seed=1)], CPU)


def test_divergence_and_density_are_those_of_torch() -> None:
    random = torch.Generator().manual_seed(0)
    mean, old_mean, actions = (torch.randn(2, 7, 3, generator=random, dtype=torch.float64) for _ in range(3))
    log_std, old_log_std = (torch.randn(2, 1, 3, generator=random, dtype=torch.float64) for _ in range(2))
    new, old = torch.distributions.Normal(mean, log_std.exp()), torch.distributions.Normal(old_mean, old_log_std.exp())
    expected = torch.distributions.kl_divergence(new, old).sum(-1)
    torch.testing.assert_close(divergence(mean, log_std, old_mean, old_log_std), expected)
    ratio = log_density(mean, log_std, actions) - log_density(old_mean, old_log_std, actions)
    torch.testing.assert_close(ratio, (new.log_prob(actions) - old.log_prob(actions)).sum(-1))


def test_divergence_is_convex_in_mean_and_variance() -> None:
    random = torch.Generator().manual_seed(1)
    means = torch.randn(2, 500, 3, generator=random, dtype=torch.float64)
    variances = torch.rand(2, 500, 3, generator=random, dtype=torch.float64) * 3 + 0.01

    def kl(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        return divergence(mean, variance.log() / 2, torch.zeros(3), torch.zeros(3))

    ends = (kl(means[0], variances[0]) + kl(means[1], variances[1])) / 2
    assert (kl(means.mean(0), variances.mean(0)) <= ends + 1e-12).all()


def test_padding_changes_nothing() -> None:
    single = stack([problem("network", 90, seed=1)], CPU)
    both = stack([problem("network"), problem("network", 90, seed=1)], CPU)
    new = {name: p + 0.05 for name, p in both.old.items()}
    alone = {name: p[1:] for name, p in new.items()}
    torch.testing.assert_close(both.kl(new)[1:], single.kl(alone))
    torch.testing.assert_close(both.gain(new)[1:], single.gain(alone))
    assert both.counts.tolist() == [120, 90]


def test_gain_is_zero_at_the_old_policy_and_kl_is_that_of_the_set(problems: Problems) -> None:
    torch.testing.assert_close(problems.gain(problems.old), torch.zeros(2), atol=1e-6, rtol=0)
    new = {name: p + 0.03 for name, p in problems.old.items()}
    region = GaussianKL(problems.old_means[0], torch.exp(2 * problems.old[SPREAD][0, 0]), EPSILON)
    h = region.h((problems.means(new)[0], torch.exp(2 * new[SPREAD][0, 0])))
    torch.testing.assert_close(h + EPSILON, problems.kl(new)[0])


def explicit_fisher(problems: Problems, which: int) -> torch.Tensor:
    """E[J^T S^-1 J] from the derivative of every mean, and 2 for each log-std."""
    flat = {n: p[which].double() for n, p in problems.old.items() if n != SPREAD}
    features = problems.features[which : which + 1].double()

    def means(parameters: dict[str, torch.Tensor]) -> torch.Tensor:
        return problems.policy.mean({n: p[None] for n, p in parameters.items()}, features)[0]

    jacobian: dict[str, torch.Tensor] = torch.func.jacrev(means)(flat)  # type: ignore[assignment]
    J = torch.cat([j.flatten(2) for j in jacobian.values()], dim=-1)
    precision = torch.exp(-2 * problems.old[SPREAD][which, 0].double())
    F = torch.einsum("s,sam,a,san->mn", problems.weights[which].double(), J, precision, J)
    return torch.block_diag(F, 2 * torch.eye(len(precision), dtype=torch.float64))


def flattened(parameters: dict[str, torch.Tensor], which: int) -> torch.Tensor:
    order = [n for n in parameters if n != SPREAD] + [SPREAD]
    return torch.cat([parameters[n][which].flatten() for n in order]).double()


def test_natural_gradient_solves_the_fisher_system(problems: Problems) -> None:
    leaves = {n: p.clone().requires_grad_() for n, p in problems.old.items()}
    gradient = grad(problems.gain(leaves), leaves)
    moved = natural_gradient(problems, EPSILON, 200, 0.1)
    for k in range(2):
        F = explicit_fisher(problems, k)
        torch.testing.assert_close(
            flattened(fisher_product(problems)(gradient), k), F @ flattened(gradient, k), rtol=1e-3, atol=1e-5
        )
        x = torch.linalg.solve(F + 0.1 * torch.eye(len(F), dtype=F.dtype), flattened(gradient, k))
        expected = x * torch.sqrt(2 * EPSILON / (x @ F @ x))
        step = flattened(moved, k) - flattened(problems.old, k)
        torch.testing.assert_close(step, expected, rtol=1e-2, atol=1e-4)


def test_fisher_matrix_of_some_states_is_that_of_a_problem_with_those_states() -> None:
    whole, some = problem("network", 120), problem("network", 120)
    some |= {name: some[name][::5] for name in ("states", "actions", "advantages")}
    problems, fewer = stack([whole], CPU), stack([some], CPU)
    v = {name: torch.randn_like(p) for name, p in problems.old.items()}
    expected, found = fisher_product(fewer)(v), fisher_product(problems, every=5)(v)
    for name in v:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-4, atol=1e-6)
    moved = (natural_gradient(problems, EPSILON, 10, 0.1, every) for every in (1, 5))
    assert not torch.equal(*(flattened(p, 0) for p in moved))


def test_conjugate_gradient_needs_as_many_steps_as_there_are_unknowns() -> None:
    random = torch.Generator().manual_seed(2)
    A = torch.randn(2, 4, 4, generator=random, dtype=torch.float64)
    A = A @ A.mT + torch.eye(4)
    b = {"x": torch.randn(2, 4, 1, generator=random, dtype=torch.float64)}
    x = conjugate_gradient(lambda v: {"x": A @ v["x"]}, b, 4)
    torch.testing.assert_close(x["x"], torch.linalg.solve(A, b["x"]))


@pytest.mark.parametrize("factor", [0.9, 0.5])
def test_line_search_takes_the_first_point_within_epsilon(problems: Problems, factor: float) -> None:
    new = {name: p + 0.2 for name, p in problems.old.items()}
    found = search(problems, new, EPSILON, factor)
    t = (found[SPREAD] - problems.old[SPREAD])[:, 0, 0] / 0.2
    powers = torch.log(t) / np.log(factor)
    torch.testing.assert_close(powers, powers.round(), atol=2e-3, rtol=0)
    assert (problems.kl(found) <= EPSILON).all() and (powers.round() > 0).all()
    before = {name: p + t[:, None, None] / factor * 0.2 for name, p in problems.old.items()}
    assert (problems.kl(before) > EPSILON).all()
    near = {name: p + 1e-4 for name, p in problems.old.items()}
    assert all(torch.equal(a, near[name]) for name, a in search(problems, near, EPSILON, factor).items())


def test_line_search_returns_the_old_policy_if_the_new_one_is_not_a_number(problems: Problems) -> None:
    new = {name: p * float("nan") for name, p in problems.old.items()}
    found = search(problems, new, EPSILON, 0.5)
    assert all(torch.equal(found[name], p) for name, p in problems.old.items())
    still = move(problems.old, new, torch.zeros(2))
    assert all(torch.equal(still[name], p) for name, p in problems.old.items())


def test_steps_are_those_of_adam() -> None:
    problems = stack([problem("network")], CPU)
    solver = Solver(problems, problems.old, METHODS["paper"], Setting(50, 1e-2, 3), EPSILON)
    leaves = {name: p.clone().requires_grad_() for name, p in problems.old.items()}
    adam = torch.optim.Adam(leaves.values(), lr=1e-2)
    for rows, active in minibatches(problems.counts, solver.setting, 0):
        solver.rows.copy_(rows)
        solver.active.copy_(active)
        adam.zero_grad()
        (-solver.gain(leaves)).sum().backward()
        solver.step()
        adam.step()
    for name, p in leaves.items():
        torch.testing.assert_close(solver.parameters[name], p.detach(), rtol=1e-4, atol=1e-5)


def test_step_size_falls_to_zero() -> None:
    problems = stack([problem("network")], CPU)
    solver = Solver(problems, problems.old, METHODS["naive"], Setting(50, 1e-2, 3, decay=True), EPSILON)
    rates, step = [], solver.step
    solver.step = lambda: (rates.append(float(solver.rate)), step())[0]
    solver.solve(0)
    np.testing.assert_allclose(rates, 1e-2 * np.array([6, 5, 4, 3, 2, 1]) / 6, rtol=1e-6)
    still = Solver(problems, problems.old, METHODS["naive"], Setting(50, 1e-2, 3), EPSILON)
    moved = {name: p - problems.old[name] for name, p in still.solve(0).items()}
    assert all((p - problems.old[n]).norm() < 0.8 * moved[n].norm() for n, p in solver.parameters.items())


def test_a_problem_without_a_minibatch_waits() -> None:
    problems = stack([problem("network"), problem("network", 90, seed=1)], CPU)
    solver = Solver(problems, problems.old, METHODS["naive"], Setting(50, 1e-2, 3), EPSILON)
    solver.solve(0)
    assert solver.steps.tolist() == [6, 3]
    moved = {name: p.clone() for name, p in solver.parameters.items()}
    moments = {name: torch.stack(pair) for name, pair in solver.moments.items()}
    solver.active.copy_(torch.tensor([True, False]))
    solver.step()
    for name, p in solver.parameters.items():
        assert torch.equal(p[1], moved[name][1]) and not torch.equal(p[0], moved[name][0])
        assert torch.equal(torch.stack(solver.moments[name])[:, 1], moments[name][:, 1])


def test_minibatches_take_every_state_at_most_once_and_no_padding() -> None:
    counts = torch.tensor([120, 90])
    steps = list(minibatches(counts, Setting(25, 1.0, 2), seed=3))
    assert len(steps) == 2 * 4
    for epoch in (steps[:4], steps[4:]):
        for k, size in enumerate([120, 90]):
            seen = torch.cat([rows[k] for rows, active in epoch if active[k]])
            assert len(seen) == size // 25 * 25 == len(seen.unique()) and int(seen.max()) < size
    again = list(minibatches(counts, Setting(25, 1.0, 2), seed=3))
    other = list(minibatches(counts, Setting(25, 1.0, 2), seed=4))
    assert torch.equal(steps[5][0], again[5][0]) and not torch.equal(steps[5][0], other[5][0])


@pytest.mark.parametrize("name", METHODS)
def test_every_method_gains_within_epsilon(problems: Problems, name: str) -> None:
    natural = search(problems, natural_gradient(problems, EPSILON, 15, 1e-3), EPSILON, 0.9)
    new = improved(problems, natural, name, Setting(30, 3e-3, 20), Config(), 0)
    found = search(problems, new, EPSILON, 0.9)
    assert (problems.kl(found) <= EPSILON).all()
    assert (problems.gain(found) > 0).all()
    if name == "started":
        assert (problems.gain(found) >= problems.gain(natural)).all()
        assert (problems.gain(found) > problems.gain(natural)).any()
    if name == "naive":  # it does not know the trust region
        assert (problems.kl(new) > 10 * EPSILON).all()
    else:
        assert (problems.kl(new) < 3 * EPSILON).all()


@pytest.mark.parametrize("layer", ["paper", "ray", "nearest"])
def test_layers_keep_each_minibatch_in_the_region(layer: Any) -> None:
    problems = stack([problem("network")], CPU)
    solver = Solver(problems, problems.old, Method(layer), Setting(50, 1e-2, 1), EPSILON)
    rows, _ = next(minibatches(problems.counts, solver.setting, 0))
    solver.rows.copy_(rows)
    old_means = solver.pick(problems.old_means)
    means, log_std = solver.constrain(old_means + 0.4, problems.old[SPREAD] + 0.1, old_means)
    kl = divergence(means, log_std, old_means, problems.old[SPREAD]).mean()
    assert kl <= EPSILON * (1 + 1e-4)
    if layer != "paper":  # which stops short of the boundary
        assert kl >= EPSILON * (1 - 1e-3)


def test_orthogonal_projection_agrees_with_a_cone_solver() -> None:
    random = torch.Generator().manual_seed(0)
    old_means, shift = (torch.randn(16, 4, generator=random, dtype=torch.float64) for _ in range(2))
    old, growth = (torch.rand(4, generator=random, dtype=torch.float64) for _ in range(2))
    old = 0.3 + old
    means, variances = old_means + 0.5 * shift, old * (1 + 0.5 * growth)
    layer = cone_layer(16, 4, EPSILON, eps_abs=1e-9, eps_rel=1e-9)
    ours, theirs = [], []
    for found, fn in ((ours, GaussianKL(old_means, old, EPSILON).nearest), (theirs, None)):
        m, v = means.clone().requires_grad_(), variances.clone().requires_grad_()
        a, b = fn((m, v)) if fn else layer(m, v, old_means, old)
        weights = torch.linspace(-1, 1, a.numel(), dtype=a.dtype).reshape(a.shape)
        found += [a, b, *torch.autograd.grad((weights * a).sum() + b.square().sum(), (m, v))]
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5 if k < 2 else 1e-3)
    assert (ours[0] - means).abs().max() > 0.1

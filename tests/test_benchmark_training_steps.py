"""The part `training` of the benchmark `overhead`: steps that differ in the layer alone, and how they are shown."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from benchmarks import overhead
from benchmarks.__main__ import main
from benchmarks.training_steps import BARE, BY_HAND, GOALS, LOOSE, RAY, STEPS, STRICT, WITHOUT, Trainees, build
from torch import Tensor

SIZES = {
    "policy": {"states": 8, "size": 3, "actions": 2, "width": 4},
    "dynamics": {"windows": 3, "horizon": 6, "width": 8},
    "images": {"batch": 8, "pixels": 12, "width": 8, "outputs": 4, "rows": 6},
}
TINY = ["overhead", "--parts", "training", "--rounds", "2"]


def tiny(name: str, mode: str = "eager") -> Trainees:
    return build(name, mode, "cpu", **SIZES[name])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command with small steps and short rounds."""
    for name, step in list(STEPS.items()):
        monkeypatch.setitem(STEPS, name, partial(step, **SIZES[name]))
    monkeypatch.setattr(overhead, "LONG_ROUND", 1e-4)


@pytest.mark.parametrize("name", STEPS)
def test_the_layer_keeps_the_constraint_and_is_the_only_difference(name: str) -> None:
    trainees = tiny(name)
    assert list(trainees) == [WITHOUT, STRICT, LOOSE, *([RAY] if name == "policy" else []), BY_HAND, BARE]
    weights = [list(trainee.network.parameters()) for trainee in trainees.values()]
    for others in weights[1:]:
        assert len(others) == len(weights[0])
        assert all(torch.equal(p, q) and p is not q for p, q in zip(weights[0], others, strict=True))
    set = trainees[WITHOUT].set
    assert not bool(set.contains(trainees[WITHOUT].outputs(), tol=1e-3).all())
    # the policy's variances become log-stds behind the layer
    assert bool(set.contains(trainees[STRICT].outputs(), tol=1e-6 if name == "policy" else 0.0).all())
    for label in list(trainees)[2:-1]:
        assert bool(set.contains(trainees[label].outputs(), tol=1e-5).all())


@pytest.mark.parametrize("name", STEPS)
def test_the_least_that_a_layer_takes_is_a_mean(name: str) -> None:
    """Of the anchor and of what the network gives without a layer, at least in the first step of a dynamics model."""
    trainees = tiny(name)
    found: list[Any] = [trainees[label].outputs() for label in (WITHOUT, BARE)]
    x, y = found
    if name == "dynamics":
        x, y = x[:, 0], y[:, 0]
        start = (2 * y - x).std(-2)  # all bodies are at one place in the anchor
        torch.testing.assert_close(start, torch.zeros_like(start), atol=1e-5, rtol=0)
    elif name == "images":
        torch.testing.assert_close(y, x / 2)
    else:
        old = trainees[WITHOUT].set.anchor()
        torch.testing.assert_close(y, tuple((a + b) / 2 for a, b in zip(old, x, strict=True)))


@pytest.mark.parametrize("name", STEPS)
def test_the_formula_by_hand_is_that_of_the_layer(name: str) -> None:
    """Without its margin, derivatives included: a step with it is one that does the same.

    Coordinates near 0 are rounded as those of others in the same array.
    """
    found: list[list[Tensor]] = []
    for label in (LOOSE, BY_HAND):
        trainee = tiny(name)[label]
        with torch.no_grad():
            for p in trainee.network.parameters():  # away from the old policy, and from no last layer
                p += 0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(0))
        y = trainee.outputs()
        loss = trainee.loss()
        loss.backward()
        slopes = [p.grad for p in trainee.network.parameters() if p.grad is not None]
        found.append([*(y if isinstance(y, tuple) else (y,)), loss.detach(), *slopes])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=5e-5 * b.detach().abs().max().item())


@pytest.mark.parametrize("name", STEPS)
def test_strict_is_further_in(name: str) -> None:
    trainees = tiny(name)
    tight, loose = (trainees[label].set.h(trainees[label].outputs()).max() for label in (STRICT, LOOSE))
    assert bool(tight < loose)


@pytest.mark.parametrize("name", STEPS)
def test_a_step_has_gradients_and_moves_nothing(name: str) -> None:
    """Else the points that are timed would come inside, or leave for infinity."""
    for trainee in tiny(name).values():
        before = [p.detach().clone() for p in trainee.network.parameters()]
        for _ in range(3):
            trainee()
        for p, old in zip(trainee.network.parameters(), before, strict=True):
            assert p.grad is not None and bool(torch.isfinite(p.grad).all()) and torch.equal(p, old)
        assert any(bool((p.grad != 0).any()) for p in trainee.network.parameters() if p.grad is not None)


@pytest.mark.parametrize("name", STEPS)
def test_what_is_compiled(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loss, or of a dynamics model one step, with the shapes as they are; the same for every variant."""
    seen: list[bool] = []

    def fake(function: Callable[..., Any], dynamic: bool, fullgraph: bool) -> Callable[..., Any]:
        assert fullgraph and not dynamic
        return lambda *inputs: (seen.append(len(inputs) == 1), function(*inputs))[1]

    monkeypatch.setattr(torch, "compile", fake)
    for compiled, eager in zip(tiny(name, "compiled").values(), tiny(name).values(), strict=True):
        seen.clear()
        torch.testing.assert_close(compiled.loss(), eager.loss())
        assert seen == ([True] * SIZES[name]["horizon"] if name == "dynamics" else [False])


@pytest.mark.filterwarnings("ignore:.* should not be instantiated:DeprecationWarning")  # which Dynamo does, and
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # looks at all attributes
@pytest.mark.parametrize("name", STEPS)
def test_every_variant_compiles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    compiled, eager = tiny(name, "compiled"), tiny(name)
    for label in eager:
        torch.testing.assert_close(compiled[label].loss(), eager[label].loss(), rtol=1e-3, atol=1e-3)
    torch._dynamo.reset()


@pytest.mark.usefixtures("small")
def test_ratios_stand_beside_their_goals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*TINY, "--no-compile"]) == 0
    text = capsys.readouterr().out
    titles = [line.split("  ")[0] for line in text.splitlines() if ", eager" in line]
    assert titles == ["policy, eager (paper 1.5)", "dynamics, eager (paper 1.2)", "images, eager"]
    rows = [line for line in text.splitlines() if line.startswith(("  with it", "  TrustRegion()"))]
    assert len(rows) == 7 and all(row.endswith(f"<= {GOALS['eager']}") for row in rows)
    assert "compiled" not in text


@pytest.mark.usefixtures("small")
def test_a_failed_compilation_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("No working C++ compiler found\nand much more")

    monkeypatch.setattr(torch, "compile", lambda function, **options: fail)
    assert main([*TINY, "--steps", "images"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "images, compiled: RuntimeError: No working C++ compiler found"


@pytest.mark.usefixtures("small")
def test_a_stopped_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, command = tmp_path / "overhead.json", [*TINY, "--no-compile", "--steps", "images"]
    assert main([*command, "--json", str(file)]) == 0
    (cell,) = json.loads(file.read_text())["cells"].values()
    assert list(cell) == [WITHOUT, STRICT, LOOSE, BY_HAND, BARE] and all(len(seconds) == 2 for seconds in cell.values())
    monkeypatch.setattr(overhead, "timed", lambda *a: pytest.fail("measured again"))
    assert main([*command, "--json", str(file)]) == 0


def test_long_rounds_are_few() -> None:
    def slow() -> None:
        torch.mm(torch.randn(300, 300), torch.randn(300, 300))

    few = overhead.timed({"slow": slow}, 50, turn=0.0, most=0.0)
    assert len(few["slow"]) == overhead.FEWEST and len(overhead.timed({"slow": slow}, 7, turn=0.0)["slow"]) == 7


@pytest.mark.parametrize(
    ("option", "known"), [("steps", "policy,dynamics,images"), ("parts", "formulas,dependent,networks,training")]
)
def test_unknown_names_are_told(option: str, known: str) -> None:
    with pytest.raises(SystemExit, match=f"--{option} polcy: expected some of {known}"):
        main(["overhead", f"--{option}", "polcy"])


def test_no_gpu_is_told() -> None:
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit, match="--device cuda: torch sees no GPU here"):
            main(["overhead", "--device", "cuda"])

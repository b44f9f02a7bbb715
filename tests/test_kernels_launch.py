"""How kernels are launched: compiled once for each kind of call, and then called without Triton's own bookkeeping."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import inset.torch  # noqa: F401  the kernels are part of this front-end
from inset._kernels import _launch, _operator
from inset._kernels._launch import common, launched, rows, stride
from inset._kernels._operator import constant

H200 = SimpleNamespace(
    multi_processor_count=132,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    shared_memory_per_multiprocessor=233472,
)


class Compiled:
    """What Triton returns from a launch: on a grid it is a function of all arguments."""

    n_regs, metadata = 90, SimpleNamespace(num_warps=1, shared=0)

    def __init__(self, calls: list[Any]) -> None:
        self.calls = calls

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((grid, arguments))


class Kernel:
    """A kernel that writes down how it is launched."""

    def __init__(self) -> None:
        self.arg_names = ["x", "y", "N", "D", "B", "EPS"]
        self.first: list[Any] = []
        self.later: list[Any] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Compiled]:
        def launch(*arguments: Any, **options: Any) -> Compiled:
            self.first.append((grid, arguments, options))
            return Compiled(self.later)

        return launch


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    monkeypatch.setattr(_launch, "_direct", lambda kernel: True)
    monkeypatch.setattr(_launch, "_LAUNCHES", {})
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # tensors of the CPU have no index
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: H200)
    return Kernel()


def run(kernel: Any, x: torch.Tensor, y: torch.Tensor, d: int = 4, **sizes: Any) -> None:
    launched(kernel, True, x, 4, x, y, D=d, **sizes)


def test_a_second_call_is_that_of_the_first(kernel: Kernel) -> None:
    x, y, other = (torch.zeros(8, 4) for _ in range(3))
    run(kernel, x, y)
    run(kernel, other, y)
    assert len(kernel.first) == 1
    (grid, arguments, options), (again, later) = kernel.first[0], kernel.later[0]
    assert grid == again and later[0] is other and later[1] is y
    named = dict(zip(kernel.arg_names[2:], later[2:], strict=True))
    assert named == {"N": arguments[2], **{name: options[name] for name in ("D", "B", "EPS")}}
    assert named["N"] == 8 and named["EPS"] == torch.finfo(torch.float32).eps


@pytest.mark.parametrize("what", ["samples", "constant", "dtype", "of y", "address", "block", "registers", "kernel"])
def test_what_is_compiled_anew(kernel: Kernel, what: str) -> None:
    """Whatever the code of a kernel depends on; a wrong one would read what is not there."""
    x, y = torch.zeros(8, 4), torch.zeros(8, 4)
    run(kernel, x, y)
    other = Kernel()
    if what == "samples":
        run(kernel, x[:7], y)
    elif what == "constant":
        run(kernel, x, y, d=3)
    elif what == "dtype":
        run(kernel, x.bfloat16(), y)
    elif what == "of y":
        run(kernel, x, y.double())
    elif what == "address":
        run(kernel, torch.zeros(40)[1:33].view(8, 4), y)
    elif what == "block":
        run(kernel, x, y, block=2)
    elif what == "registers":
        run(kernel, x, y, registers=96)
        assert kernel.first[1][2]["maxnreg"] == 96 and "maxnreg" not in kernel.first[0][2]
    else:
        run(other, x, y)
    assert len(kernel.first) + len(other.first) == 2 and not kernel.later


def test_few_samples_have_more_warps(kernel: Kernel) -> None:
    """With little else to do, the time of a GPU is that of one program."""
    warps = []
    for samples, width in ((1, 512), (264, 512), (5000, 512), (1, 64), (1, 8192)):
        x = torch.zeros(samples, width)
        launched(kernel, True, x, width, x, x, D=width)
        warps.append(kernel.first[-1][2]["num_warps"])
    assert warps == [8, 8, 1, 1, 16]


@pytest.mark.parametrize(
    ("registers", "warps", "shared", "at_once"),
    [(90, 1, 0, 20), (97, 1, 0, 16), (64, 1, 0, 32), (16, 1, 0, 32), (32, 8, 0, 8), (32, 1, 40_000, 5)],
)
def test_the_last_programs_fill_the_gpu(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch, registers: int, warps: int, shared: int, at_once: int
) -> None:
    """A later call has a multiple of the programs that run at once, which is known once the kernel is compiled."""
    monkeypatch.setattr(Compiled, "n_regs", registers)
    monkeypatch.setattr(Compiled, "metadata", SimpleNamespace(num_warps=warps, shared=shared))
    x = torch.empty(1, 1).expand(3_000_000, 64)
    for _ in range(2):
        launched(kernel, True, x, 64, x, x, D=64)
    (first, _, _), (later, _) = kernel.first[0], kernel.later[0]
    assert later[0] % (132 * at_once) == 0 and abs(later[0] - first[0]) <= 132 * at_once / 2
    few = torch.empty(1000, 64)
    for _ in range(2):
        launched(kernel, True, few, 64, few, few, D=64)
    assert kernel.later[-1][0] == kernel.first[-1][0] == (1000, 1, 1)


def test_programs_take_some_turns_before_they_are_more(kernel: Kernel) -> None:
    """What a program begins with is paid for once, and more with long samples."""
    grids = []
    for samples, width in ((2000, 64), (100_000, 64), (10**6, 64), (10**7, 64), (10**5, 1024)):
        x = torch.empty(1, 1).expand(samples, width)
        launched(kernel, True, x, width, x, x, D=width)
        grids.append(kernel.first[-1][0][0])
    assert grids == [2000, 2112, 10**6 // 8 // 14, 6 * 2112, 10**5 // 28]


def test_constants_that_there_are_serve_in_a_graph_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made while a graph is captured belongs to it, and costs a kernel each time it runs."""
    known = torch.tensor(0.5)
    monkeypatch.setattr(_operator, "_CONSTANTS", {(0.5, torch.float32, torch.device("cuda", 0)): known})
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert constant(0.5, torch.float32, torch.device("cuda", 0)) is known


def test_memory_of_launches_is_bounded(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_launch, "MOST", 3)
    for n in range(1, 9):
        run(kernel, torch.zeros(n, 4), torch.zeros(n, 4))
    assert len(kernel.first) == 8 and len(_launch._LAUNCHES) <= 3


def test_a_kernel_runs_on_the_device_of_its_points(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[Any] = []

    class Device:
        def __init__(self, device: Any) -> None:
            self.device = device

        def __enter__(self) -> None:
            entered.append(self.device)
            monkeypatch.setattr(torch.cuda, "current_device", lambda: self.device.index)

        def __exit__(self, *_: object) -> None:
            entered.append("left")

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    x = torch.zeros(8, 4)
    run(kernel, x, x)
    assert entered == [x.device, "left"] and len(kernel.first) == 1


def test_fields_of_all_samples_and_of_each() -> None:
    shared, each = torch.zeros(3), torch.zeros(5, 3)
    assert rows(shared, (5,), 1).shape == (3,) and stride(rows(shared, (5,), 1), 1) == 0
    assert rows(each, (2, 5), 1).shape == (10, 3) and stride(rows(each, (2, 5), 1), 1) == 3
    assert rows(shared.clone().requires_grad_(), (5,), 1).shape == (5, 3)  # each sample has a derivative
    assert stride(torch.zeros(()), 0) == 0 and stride(torch.zeros(4), 0) == 1 and stride(torch.zeros(1, 3), 1) == 0


def test_common_shape() -> None:
    assert common((5,), (), ()) == (5,) and common((), (4, 5)) == (4, 5)
    assert common((4, 1), (5,), ()) == (4, 5)
    with pytest.raises(RuntimeError):
        common((4,), (5,))

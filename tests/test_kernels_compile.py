"""The kernels are compiled for a GPU that is not there: the interpreter takes what Triton's compiler does not."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

TENSORS = {"torch.float32": "*fp32", "torch.bfloat16": "*bf16", "torch.int64": "*i64", "torch.int32": "*i32"}


def test_every_kernel_compiles() -> None:
    """In a process of its own, since Triton decides for or against its interpreter once."""
    environment = {name: v for name, v in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    modules = ("norms", "bounds", "gaussians", "links", "products", "cones", "matrices")
    assert {line.split(".")[0] for line in run.stdout.splitlines()} == set(modules), run.stdout


def compile_all() -> None:
    """Project points of each kind, there and back, with every launch replaced by a compilation."""
    import torch

    import inset.torch  # noqa: F401  the kernels are part of this front-end
    from inset._kernels import _launch, projected

    done: set[tuple[Any, ...]] = set()

    class Compiler:
        """In the place of a kernel: compiles it for the arguments it is launched with."""

        def __init__(self, kernel: Any) -> None:
            self.kernel, self.arg_names = kernel, kernel.arg_names

        def __getitem__(self, grid: Any) -> Any:
            return self.compile

        def compile(self, *arguments: Any, num_warps: int, num_stages: int, **numbers: Any) -> None:
            names = self.arg_names
            types = [TENSORS[str(v.dtype)] for v in arguments[:-1]]
            key = (self.kernel.__module__, self.kernel.__name__, *types, *numbers.values())
            if key not in done:
                done.add(key)
                _compile(self.kernel, dict(zip(names, types, strict=False)), numbers, num_warps, num_stages)
                print(f"{self.kernel.__module__.rsplit('.', 1)[-1]}.{self.kernel.__name__}")

    launch = _launch._launch
    _launch._launch = lambda kernel, *rest: launch(Compiler(kernel), *rest)
    _launch._direct = lambda kernel: False
    for x, anchor, s, method in _cases(torch):
        leaves = x if isinstance(x, tuple) else (x,)
        for leaf in leaves:
            leaf.requires_grad_()
        y = projected(s, x, anchor, method, True)
        torch.autograd.grad(y, leaves, tuple(torch.ones_like(leaf) for leaf in leaves))


def _compile(kernel: Any, types: dict[str, str], numbers: dict[str, Any], warps: int, stages: int) -> None:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr" if name in numbers else "i32") for name in names}
    constants = {(k,): numbers[name] for k, name in enumerate(names) if name in numbers}
    source = ASTSource(kernel, signature, constexprs=constants)
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": stages})


def _cases(torch: Any) -> list[Any]:
    from inset import LMI, Ball, Box, GaussianKL, Polytope, SecondOrderCone, Strings

    def normal(*shape: int, dtype: Any = None) -> Any:
        return torch.randn(*shape, dtype=dtype)

    zero, half = torch.zeros(64), torch.ones(64, dtype=torch.bfloat16)
    links = torch.stack([torch.arange(31), torch.arange(1, 32)], -1)
    cones = SecondOrderCone(normal(2, 4, 64), torch.zeros(2, 4), torch.zeros(2, 64), torch.ones(2))
    region = GaussianKL(zero, zero, 0.05, False, parameterization="log_std")
    matrices = normal(8, 8, 8)
    return [
        (normal(4096, 64), zero, Ball(zero, 1.0), "chord"),
        (normal(4096, 64, dtype=torch.bfloat16), zero.bfloat16(), Box(-half, half), "chord"),
        ((normal(4096, 64), normal(4096, 64)), (zero, zero), region, "chord"),
        (normal(4096, 32, 2), torch.zeros(1, 2).expand(32, 2), Strings(links, 1.0), "chord"),
        (normal(64, 32, 2, dtype=torch.bfloat16), normal(64, 32, 2), Strings(links[:9], torch.ones(64, 9)), "chord"),
        (normal(4096, 64), zero, Polytope(normal(256, 64), torch.ones(256)), "chord"),
        (normal(4096, 64, dtype=torch.bfloat16), zero, Polytope(normal(64, 64).bfloat16(), half), "chord"),
        (normal(4096, 64), zero, cones, "chord"),
        (normal(4096, 8), zero[:8], LMI(matrices + matrices.mT, -20 * torch.eye(8)), "chord"),
    ]


if __name__ == "__main__":
    compile_all()

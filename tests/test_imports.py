"""What importing does and does not do, and what the public names promise: docstrings and type hints."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing

import pytest

import inset


def python(code: str, *options: str) -> str:
    """What a fresh interpreter prints when it runs the code."""
    done = subprocess.run([sys.executable, *options, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def imported(statement: str, *modules: str) -> list[str]:
    """Which of the modules are loaded after the statement."""
    code = f"import sys\n{statement}\nprint(*[m for m in {modules!r} if m in sys.modules])"
    return python(code, "-W", "error").split()


def test_import_is_light() -> None:
    heavy = ("torch", "jax", "jaxlib", "matplotlib", "cvxpy", "scipy", "numpy", "array_api_compat", "tensorflow")
    assert imported("import inset", *heavy) == []


def test_import_is_fast() -> None:
    """Under 100 ms beyond what the interpreter takes to start, at best: a busy machine only adds."""
    code = "import time; start = time.process_time(); import inset; print(time.process_time() - start)"
    assert min(float(python(code)) for _ in range(5)) < 0.1


def test_front_ends_do_not_import_each_other() -> None:
    assert imported("import inset.torch", "torch", "jax", "jaxlib", "matplotlib") == ["torch"]
    assert imported("import inset.jax", "torch", "jax", "matplotlib") == ["jax"]


def test_projecting_numpy_imports_no_framework() -> None:
    work = "import numpy as np, inset; inset.project(inset.Ball(np.zeros(2), 1.0), np.ones(2), np.zeros(2))"
    assert imported(work, "torch", "jax") == []


def test_default_device_at_import() -> None:
    """It is not that of what fast paths keep, which are for a CPU."""
    work = "torch.set_default_device('meta'); import inset.torch; torch.set_default_device(None)"
    call = "inset.project(inset.Ball(torch.zeros(2), 1.0), torch.full((3, 2), 4.0), torch.zeros(2))"
    assert python(f"import torch, inset; {work}; print({call}.device)") == "cpu"


def test_tensors_go_the_fast_paths_without_the_front_end() -> None:
    """They are loaded with the first call, be it in a program that is compiled."""
    call = "import torch, inset\nx = torch.full((3, 2), 4.0, requires_grad=True)\n"
    call += "def go(x): return inset.project(inset.Ball(torch.zeros(2), 1.0), x, torch.zeros(2))\n"
    assert imported(f"{call}go(x)", "inset._eager.lines", "inset.torch", "torch._dynamo") == ["inset._eager.lines"]
    assert python(f"{call}print(go(x).grad_fn.name())") == "_LineBackward"
    program = "torch.compile(go, fullgraph=True, backend='eager')"
    assert python(f"{call}print(torch.allclose({program}(x), go(x)))") == "True"


def test_public_names() -> None:
    """`__all__` is sorted, complete, and what `from inset import *` gives."""
    assert len(inset.__all__) == len(set(inset.__all__))
    namespace: dict[str, object] = {}
    exec("from inset import *", namespace)
    assert set(inset.__all__) <= set(namespace)
    public = {
        name
        for name, value in vars(inset).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert public == set(inset.__all__)


def functions() -> list[tuple[str, typing.Any]]:
    """Public functions, and public methods of public classes that are defined in this package."""
    import inset.jax
    import inset.torch

    found: dict[str, typing.Any] = {}
    for module in (inset, inset.torch, inset.jax):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isfunction(value):
                found[name] = value
            elif inspect.isclass(value):
                for method, member in vars(value).items():
                    if inspect.isfunction(member) and not method.startswith("_"):
                        found[f"{name}.{method}"] = member
    return sorted(found.items())


@pytest.mark.parametrize("name", inset.__all__)
def test_public_names_are_documented(name: str) -> None:
    value = getattr(inset, name)
    if typing.get_origin(value) is not None:
        return  # an alias of a type cannot hold a docstring
    doc = inspect.getdoc(value)
    assert doc and not doc.startswith(f"{name}("), "a dataclass writes such a signature where no docstring is"


@pytest.mark.parametrize("name", [name for name, _ in functions()])
def test_public_functions_have_type_hints(name: str) -> None:
    signature = inspect.signature(dict(functions())[name])
    assert signature.return_annotation is not inspect.Signature.empty
    for parameter in signature.parameters.values():
        assert parameter.name in ("self", "cls") or parameter.annotation is not inspect.Parameter.empty, parameter


def test_package_is_typed() -> None:
    from importlib.resources import files

    assert files("inset").joinpath("py.typed").is_file()

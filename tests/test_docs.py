"""What the documentation shows runs: doctests, the README's code blocks, the examples and the demonstration."""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import inset

ROOT = Path(__file__).parent.parent
MODULES = ["inset", *sorted(m.name for m in pkgutil.walk_packages(inset.__path__, "inset."))]
EXPERIMENTS = ["experiments.strings.objects", "experiments.strings.trainee"]
EXAMPLES = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", [*MODULES, *EXPERIMENTS])
def test_doctests(name: str) -> None:
    module = importlib.import_module(name)
    results = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


def test_every_experiment_with_an_example_is_listed() -> None:
    shown = [path for path in (ROOT / "experiments").rglob("*.py") if ">>>" in path.read_text()]
    assert sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in shown) == EXPERIMENTS


def test_every_set_has_an_example() -> None:
    for name in inset.__all__:
        value = getattr(inset, name)
        if isinstance(value, type) and issubclass(value, inset.ConvexSet) and value is not inset.ConvexSet:
            assert ">>>" in (value.__doc__ or ""), f"{name} has no doctest"


def test_readme(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """All Python blocks, top to bottom, in one namespace; a failure shows the line of the README."""
    readme = ROOT / "README.md"
    text = readme.read_text()
    blocks = list(BLOCK.finditer(text))
    assert blocks, "README.md has no python block"
    assert len(blocks) == text.count("```python"), "a python block of README.md is not closed or is indented"
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    namespace: dict[str, Any] = {"__name__": "readme"}
    for block in blocks:
        line = text.count("\n", 0, block.start(1))
        exec(compile("\n" * line + block.group(1), str(readme), "exec"), namespace)


def run(script: str, cwd: Path, *arguments: str) -> list[str]:
    """The lines that an example prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    environment.pop("XLA_FLAGS", None)  # JAX compiles as it does for a user
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / script), *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()


def test_there_are_examples() -> None:
    assert "demo.py" in EXAMPLES and len(EXAMPLES) > 1


@pytest.mark.parametrize("script", [name for name in EXAMPLES if name != "demo.py"])
def test_examples(script: str, tmp_path: Path) -> None:
    lines = run(script, tmp_path)
    assert any(line.strip() for line in lines)


def test_demo(tmp_path: Path) -> None:
    """The last line is the path of a report that exists and stands alone."""
    lines = run("demo.py", tmp_path, "--quick")
    report = tmp_path / lines[-1].strip()
    assert report.is_file()
    page = report.read_text()
    assert "</html>" in page and "<svg" in page
    assert not re.search(r"(src|href)=[\"']?(?!#|data:|https?:)[\w./]", page), "the report refers to another file"

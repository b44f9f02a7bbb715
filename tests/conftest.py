"""Settings for every test: 64-bit JAX, warnings as errors, and two threads at most."""

from __future__ import annotations

import hypothesis
import jax
import pytest
import torch

jax.config.update("jax_enable_x64", True)
torch.set_num_threads(2)
# reproducible: the same examples on each run, and no stopwatch
hypothesis.settings.register_profile("inset", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("inset")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "error")
    # torch.func.jvp scripts its decompositions on first use, and torch itself calls that deprecated
    config.addinivalue_line("filterwarnings", "ignore:.torch.jit.script. is deprecated:DeprecationWarning")

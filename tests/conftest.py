"""Settings for every test: 64-bit JAX, one thread per worker, and the same Hypothesis examples on each run."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from importlib.util import find_spec

os.environ["TRITON_INTERPRET"] = "1"  # kernels run without a GPU; Triton asks when it is imported
# XLA's older generator of fused code takes half the time; `test_jax.py` and the examples compile with the default one
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()

import hypothesis
import jax
import numpy as np
import pytest
import torch

jax.config.update("jax_enable_x64", True)
torch.set_num_threads(1)
hypothesis.settings.register_profile("inset", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("inset")

gc.freeze()  # what is imported stays
# Tracing makes millions of small objects, and a seventh of its time went into collecting them.
gc.set_threshold(50_000, 20, 20)


def _round_as_a_gpu_does() -> None:
    """Triton's interpreter cuts off the lower half of a number that becomes a bfloat16; a GPU rounds it."""
    import triton.language as tl
    from triton.runtime import interpreter

    converted = interpreter._convert_float

    def convert(v: np.ndarray, given: object, wanted: object, mode: object) -> np.ndarray:
        if (given, wanted) != (tl.float32, tl.bfloat16):
            return converted(v, given, wanted, mode)
        return torch.from_numpy(np.ascontiguousarray(v)).bfloat16().view(torch.int16).numpy().view(np.uint16)

    interpreter._convert_float = convert


if find_spec("triton") is not None:
    _round_as_a_gpu_does()


@pytest.fixture
def one_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For kernels: one program takes some tiles in turn, since the interpreter takes its time for each.

    And NumPy does not warn of what is not finite, as a GPU does not.
    """
    from inset._kernels import _launch

    monkeypatch.setattr(_launch, "PROGRAMS", 1)
    monkeypatch.setattr(_launch, "MORE", 1)
    monkeypatch.setattr(_launch, "HELD", 32)
    with np.errstate(all="ignore"):
        yield

"""Settings for every test: 64-bit JAX, one thread per worker, and the same Hypothesis examples on each run."""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"  # kernels run without a GPU; Triton asks when it is imported

import hypothesis
import jax
import torch

jax.config.update("jax_enable_x64", True)
torch.set_num_threads(1)
hypothesis.settings.register_profile("inset", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("inset")

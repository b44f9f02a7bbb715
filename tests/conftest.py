"""Settings for every test: 64-bit JAX, one thread per worker, and the same Hypothesis examples on each run."""

from __future__ import annotations

import gc
import os

os.environ["TRITON_INTERPRET"] = "1"  # kernels run without a GPU; Triton asks when it is imported
# XLA's older generator of fused code takes half the time; `test_jax.py` and the examples compile with the default one
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false".strip()

import hypothesis
import jax
import torch

jax.config.update("jax_enable_x64", True)
torch.set_num_threads(1)
hypothesis.settings.register_profile("inset", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("inset")

gc.freeze()  # what is imported stays
# Tracing makes millions of small objects, and a seventh of its time went into collecting them.
gc.set_threshold(50_000, 20, 20)

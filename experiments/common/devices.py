"""Where an experiment computes."""

from __future__ import annotations

import torch

from .store import StoreError


def pick(experiment: str, device: str) -> torch.device:
    """The device that was asked for: cpu, cuda, or auto, which is cuda where there is one."""
    cuda = torch.cuda.is_available()
    if device not in ("auto", "cpu", "cuda") or (device == "cuda" and not cuda):
        known = f"cpu, auto{', or cuda' if cuda else '; there is no cuda'}"
        raise StoreError(f"{experiment}: device {device}: expected {known}")
    return torch.device("cuda" if cuda and device != "cpu" else "cpu")

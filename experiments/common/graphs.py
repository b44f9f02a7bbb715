"""What a GPU is asked to do again and again, as one CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

Result = TypeVar("Result")


def replayed(function: Callable[[], Result], stream: torch.cuda.Stream | None) -> Callable[[], Result]:
    """The function, as one CUDA graph that is replayed on the stream; without a stream, the function itself.

    It is called twice here. What it reads and writes later are the tensors that it reads and writes now.
    """
    if stream is None:
        return function
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        function()  # compiles what is to be compiled
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = function()
    torch.cuda.synchronize()

    def replay() -> Result:
        with torch.cuda.stream(stream):
            graph.replay()
        return result

    return replay

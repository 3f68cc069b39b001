"""The part of a drop-in module that replays CUDA graphs of a kernel's launches, where a user asks
for it. `kernel_module` copies the text between the two marks, which uses nothing of sketchc, into
the drop-ins of kernels on NVIDIA GPUs that read nothing back to the host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

# ---- copied from here ----
#: Graphs that are kept; each keeps the memory of its workspaces.
MOST_GRAPHS = 64


class Graphs:
    """CUDA graphs of the launches of `run`, for calls that read and write the same memory again.

    A graph is of one stream, of tensors at their addresses, `out` among them, and of the values of
    the params; nothing is copied. A first call of that kind goes to `run`, which may compile; the
    second is captured; later ones are replayed. Calls whose results are new tensors
    (`makes_results` and no `out`), that need copies, or are captured by others, go to `run`.
    """

    def __init__(self, run: Callable[..., Any], makes_results: bool) -> None:
        self.run, self.makes_results = run, makes_results
        self.lock = threading.Lock()
        #: The graph of a kind of call, and which of its tensors the results are; None after the
        #: first call.
        self.known: dict[tuple[Any, ...], tuple[Any, list[int]] | None] = {}

    def __call__(self, *tensors: torch.Tensor | None, out: Any = None, **numbers: Any) -> Any:
        """What `run` returns for these arguments."""
        spots = [] if out is None else list(out) if isinstance(out, (tuple, list)) else [out]
        named = numbers if out is None else {**numbers, "out": out}
        given = [*tensors, *spots]
        first = next((tensor for tensor in given if tensor is not None), None)
        if (
            first is None
            or not first.is_cuda
            or (self.makes_results and not spots)
            or not all(tensor is None or tensor.is_contiguous() for tensor in given)
            or torch.cuda.is_current_stream_capturing()
        ):
            return self.run(*tensors, **named)
        told = [
            None if tensor is None else (tensor.data_ptr(), tensor.dtype, tensor.shape)
            for tensor in given
        ]
        stream = torch.cuda.current_stream(first.device)
        values = (one.hex() if isinstance(one, float) else one for one in numbers.values())
        kind = (first.device, stream.cuda_stream, *told, *values)
        with self.lock:
            if kind not in self.known:
                self.forget()
                found = self.run(*tensors, **named)
                self.known[kind] = None
                return found
            graph, places = self.known[kind] or self.captured(kind, given, tensors, named)
            graph.replay()
        results = [given[place] for place in places]
        return results[0] if len(results) == 1 else tuple(results)

    def captured(
        self,
        kind: tuple[Any, ...],
        given: list[Any],
        tensors: tuple[Any, ...],
        named: dict[str, Any],
    ) -> tuple[Any, list[int]]:
        """A new graph of a call, which does not run here, and where `given` has its results."""
        graph = torch.cuda.CUDAGraph()
        device = kind[0]
        with (
            torch.cuda.device(device),
            torch.cuda.graph(graph, capture_error_mode="thread_local"),
        ):
            found = self.run(*tensors, **named)
        results = list(found) if isinstance(found, (tuple, list)) else [found]
        places = [next(n for n, one in enumerate(given) if one is result) for result in results]
        self.known[kind] = graph, places
        return graph, places

    def forget(self) -> None:
        """Make room for another graph: forget all where there are too many. They may still run."""
        if len(self.known) >= MOST_GRAPHS:
            torch.cuda.synchronize()
            self.known.clear()


# ---- to here ----

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

#: Kinds of calls without a graph that are remembered.
MOST_KINDS = 1024

#: A process may have one capture underway, whichever drop-in's: all drop-ins share this lock.
LOCK = vars(torch).setdefault("_sketchc_graphs_lock", threading.Lock())


class Graphs:
    """CUDA graphs of the launches of `run`, for calls that read and write the same memory again.

    A graph is of one stream, of tensors at their addresses, `out` among them, and of the values of
    the params; nothing is copied. A first call of that kind goes to `run`, which may compile; the
    second is captured; later ones are replayed. Calls whose results are new tensors
    (`makes_results` and no `out`), that need copies, or are captured by others, go to `run`, as do
    kinds of calls that cannot be captured, or whose graph made room for another.
    """

    def __init__(self, run: Callable[..., Any], makes_results: bool) -> None:
        self.run, self.makes_results = run, makes_results
        #: The graph of a kind of call, and which of its tensors the results are.
        self.graphs: dict[tuple[Any, ...], tuple[Any, list[int]]] = {}
        #: Whether the next call of a kind without a graph is captured.
        self.met: dict[tuple[Any, ...], bool] = {}
        #: The stream that captures on a device: torch's own is of one device in all the process.
        self.streams: dict[Any, Any] = {}

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
        with LOCK:
            if self.met.get(kind):
                self.capture(kind, given, tensors, named)
            if kind not in self.graphs:
                found = self.run(*tensors, **named)
                self.met.setdefault(kind, True)
                if len(self.met) > MOST_KINDS:
                    del self.met[next(iter(self.met))]
                return found
            graph, places = self.graphs[kind]
            graph.replay()
        results = [given[place] for place in places]
        return results[0] if len(results) == 1 else tuple(results)

    def capture(
        self,
        kind: tuple[Any, ...],
        given: list[Any],
        tensors: tuple[Any, ...],
        named: dict[str, Any],
    ) -> None:
        """Make the graph of a call, which does not run here, unless it cannot be captured."""
        self.met[kind] = False
        device = kind[0]
        try:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.device(device):
                if device not in self.streams:
                    self.streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
                stream = self.streams[device]
                # A capture that fails leaves its stream the current one: the outer context ends it.
                with (
                    torch.cuda.stream(stream),
                    torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"),
                ):
                    found = self.run(*tensors, **named)
            results = list(found) if isinstance(found, (tuple, list)) else [found]
            places = [next(n for n, one in enumerate(given) if one is each) for each in results]
        except Exception:  # `run` says what is wrong, if anything is
            return
        del self.met[kind]
        self.graphs[kind] = graph, places
        if len(self.graphs) > MOST_GRAPHS:
            oldest = next(iter(self.graphs))
            torch.cuda.synchronize(oldest[0])  # which may still run
            del self.graphs[oldest]
            self.met[oldest] = False  # kinds that take turns would be captured at each call


# ---- to here ----

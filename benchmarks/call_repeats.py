"""What calls cost that repeat on a GPU: as launches and as CUDA graphs, and in what torch compiles.

    python benchmarks/call_repeats.py [--target triton_cuda|cuda_c] [--calls N]

The first table has the drop-in's function with the same tensors each time, with and without
`use_graphs()`: microseconds of the host for a call, the median of `N` and the minimum behind it,
and of the whole for one of `N` calls behind each other. The second has functions that torch
compiles, of one and of eleven calls of `relu` under `torch.no_grad()`, and what a further call
costs. Sizes are small; `heat` has a loop of the host around two launches.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from call_overhead import build, microseconds

#: Sketches, the shape of the tensor that each takes, params, and launches of a call.
CASES: list[tuple[str, tuple[int, ...], dict[str, int], int]] = [
    ("relu", (4, 64), {}, 1),
    ("cumsum_two_phase", (4, 64), {}, 2),
    ("heat", (64, 64), {"steps": 4}, 8),
    ("heat", (64, 64), {"steps": 20}, 40),
]
CHAIN = 11


def whole(call: Callable[[], Any], calls: int) -> float:
    """The microseconds of one of many calls behind each other, the device's work included."""
    import torch

    for _ in range(10):
        call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls * 1e6


def show_graphs(calls: int) -> None:
    """Print the table of calls as launches and as graphs."""
    import torch

    print("| kernel | launches | as | host | whole |\n|---|---|---|---|---|")
    for name, shape, params, launches in CASES:
        dropin = importlib.import_module(f"{name}_dropin")
        function, tensor = getattr(dropin, name), torch.randn(shape, device="cuda")
        named = params if dropin.KERNEL.updates else {**params, "out": torch.empty_like(tensor)}

        def call(function: Any = function, tensor: Any = tensor, named: Any = named) -> Any:
            return function(tensor, **named)

        for graph in (False, True):
            dropin.use_graphs(graph)
            median, least = microseconds(call, calls)
            kind = "graph" if graph else "launches"
            told = f"| {name} | {launches} | {kind} | {median:.1f} ({least:.1f}) |"
            print(f"{told} {whole(call, calls):.1f} |", flush=True)


def show_compiled(calls: int) -> None:
    """Print what calls cost in compiled functions."""
    import torch

    relu = importlib.import_module("relu_dropin").relu
    tensor = torch.randn(4, 64, device="cuda")

    def chain(length: int) -> Callable[[], Any]:
        def function(x: Any) -> Any:
            for _ in range(length):
                x = relu(x)
            return x

        compiled = torch.compile(function, fullgraph=True)
        return lambda: compiled(tensor)

    print("\n| compiled calls of relu | host |\n|---|---|")
    with torch.no_grad():
        one, many = (microseconds(chain(length), calls) for length in (1, CHAIN))
    further = [(last - first) / (CHAIN - 1) for first, last in zip(one, many, strict=True)]
    for what, (median, least) in (("1", one), (str(CHAIN), many), ("each further one", further)):
        print(f"| {what} | {median:.1f} ({least:.1f}) |", flush=True)


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="triton_cuda", choices=["triton_cuda", "cuda_c"])
    parser.add_argument("--calls", type=int, default=300)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        for name in dict.fromkeys(name for name, *_ in CASES):
            build(Path(place), name, options.target)
        sys.path.insert(0, place)
        show_graphs(options.calls)
        show_compiled(options.calls)


if __name__ == "__main__":
    main()

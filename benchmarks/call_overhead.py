"""What a call of a generated C++ kernel costs at sizes where the work itself is small.

    python benchmarks/call_overhead.py [NAME ...] [--threads 1,2] [--calls N]

Builds the modules of some examples and of one whose results are made in two phases, then calls each
in a process of its own for each number of threads of OpenMP. Each number is the median of many
calls in microseconds, its minimum behind it: of the importable module (`NAME_module`) with tensors
of torch, with arrays of NumPy, with tensors and `out=`, and of the drop-in's function
(`NAME_dropin`, which `sketchc.kernel` calls) with tensors, without and with `out=`. Calls follow
each other at once, when OpenMP's threads still spin; "rested" ones, of the module with tensors,
come 2 ms apart, when its threads sleep.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"

#: The name of the sketch in each file, the shapes of its inputs, and its params.
KERNELS: dict[str, tuple[str, list[tuple[int, ...]], dict[str, float]]] = {
    "relu": ("relu", [(4, 64)], {}),
    "softmax": ("softmax", [(4, 64)], {}),
    "rms": ("rms_norm", [(1, 4, 4, 16)], {"eps": 1e-5}),
    "layer_norm": ("layer_norm", [(4, 64), (64,), (64,)], {"eps": 1e-5}),
    "matmul": ("matmul_blocked", [(32, 32), (32, 32)], {}),
    "cumsum_two_phase": ("cumsum_two_phase", [(4, 64)], {}),
}
WAYS = ("torch", "NumPy", "out=", "drop-in", "drop-in, out=", "torch, rested")


def microseconds(
    call: Callable[[], Any], calls: int, rest: float | None = None
) -> tuple[float, float]:
    """The median and the minimum of many calls, after some that are not counted, with a rest of
    some seconds before each."""
    for _ in range(min(calls, 100)):
        call()
    clock, spent = time.perf_counter_ns, []
    for _ in range(calls):
        if rest is not None:
            time.sleep(rest)
        start = clock()
        call()
        spent.append(clock() - start)
    return statistics.median(spent) / 1000, min(spent) / 1000


def measure(folder: Path, name: str, calls: int) -> list[tuple[float, float]]:
    """Median and minimum of a call in each of the `WAYS`, in this process."""
    import torch

    sys.path.insert(0, str(folder))
    sketch, shapes, params = KERNELS[name]
    module = getattr(importlib.import_module(f"{sketch}_module"), sketch)
    dropin = getattr(importlib.import_module(f"{sketch}_dropin"), sketch)
    tensors = [torch.randn(shape) for shape in shapes]
    arrays = [tensor.numpy().copy() for tensor in tensors]
    out = torch.empty_like(module(*tensors, **params))
    ways = [
        lambda: module(*tensors, **params),
        lambda: module(*arrays, **params),
        lambda: module(*tensors, **params, out=out),
        lambda: dropin(*tensors, **params),
        lambda: dropin(*tensors, **params, out=out),
    ]
    found = [microseconds(way, calls) for way in ways]
    return [*found, microseconds(ways[0], calls // 10, rest=0.002)]


def build(folder: Path, name: str) -> None:
    """Put the module and the drop-in of an example into a folder."""
    command = [sys.executable, "-m", "sketchc", "lower", str(EXAMPLES / f"{name}.sketch")]
    command += ["--target", "cpp", "--module", str(folder), "-o", os.devnull]
    subprocess.run(command, check=True, env=dict(os.environ), stderr=subprocess.DEVNULL)


def in_process(folder: Path, name: str, threads: str, calls: int) -> Sequence[tuple[float, float]]:
    """`measure` in a process in which OpenMP has this number of threads."""
    command = [sys.executable, __file__, name, "--folder", str(folder), "--calls", str(calls)]
    environment = {**os.environ, "OMP_NUM_THREADS": threads}
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE, text=True)
    found: list[tuple[float, float]] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the table, or, with a folder, what `measure` finds there as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(KERNELS))
    parser.add_argument("--threads", default="1,2", help="numbers of threads of OpenMP")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        print(json.dumps(measure(options.folder, options.names[0], options.calls)))
        return
    print(f"| kernel | threads | {' | '.join(WAYS)} |\n|---|---{'|---' * len(WAYS)}|")
    with tempfile.TemporaryDirectory() as place:
        for name in options.names or KERNELS:
            folder = Path(place) / name
            build(folder, name)
            for threads in options.threads.split(","):
                found = in_process(folder, name, threads, options.calls)
                cells = (f"{median:.1f} ({least:.1f})" for median, least in found)
                print(f"| {name} | {threads} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

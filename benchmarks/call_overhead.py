"""What a call of a generated kernel costs at sizes where the work itself is small.

    python benchmarks/call_overhead.py [NAME ...] [--threads 1,2] [--calls N]
    python benchmarks/call_overhead.py --target cuda_c|tilelang_cuda|triton_cuda [NAME ...]

In C++: builds the modules of some examples and of one whose results are made in two phases, then
calls each in a process of its own for each number of threads of OpenMP. Each number is the median
of many calls in microseconds, its minimum behind it: of the importable module (`NAME_module`) with
tensors of torch, with arrays of NumPy, with tensors and `out=`, and of the drop-in's function
(`NAME_dropin`, which `sketchc.kernel` calls) with tensors, without and with `out=`. Calls follow
each other at once, when OpenMP's threads still spin; "rested" ones, of the module with tensors,
come 2 ms apart, when its threads sleep.

On a GPU, for each of the kernels two lines. "host": microseconds of the host's time at the same
small sizes, median and minimum. "queued": microseconds of the device's time for one of `QUEUED`
calls at large sizes, all of them behind a kernel that waits until the host has made them, so that
they hold nothing of the host's time; "product" is one of 4096^3 in f16. Each is measured of the
launches alone (with the arguments that the module has given them), of the module's function, which
checks its arguments and makes its outputs, and of the drop-in's function, both also with `out=`.
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

#: The shapes of the inputs of kernels on a GPU in whose queue calls stand.
LARGE: dict[str, list[tuple[int, ...]]] = {
    "relu": [(65536, 4096)],
    "softmax": [(65536, 4096)],
    "layer_norm": [(65536, 4096), (4096,), (4096,)],
    "product": [(4096, 4096), (4096, 4096)],
}
ON_GPUS = ("launch", "module", "module, out=", "drop-in", "drop-in, out=")
#: What launches a kernel on each target: a class by its module, and its method.
LAUNCHERS = {
    "cuda_c": ("{}_dropin", "CudaModule", "launch"),
    "tilelang_cuda": ("tilelang.jit.kernel", "JITKernel", "__call__"),
    "triton_cuda": ("triton.runtime.jit", "JITFunction", "run"),
}
#: Calls in the queue, how often they are measured, and cycles of the device's clock (some 3 ms)
#: that it waits at first.
QUEUED, ROUNDS, CYCLES = 10, 10, 5_000_000


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


# ---------------------------------------------------------------- on a GPU


def launches(owner: Any, method: str, call: Callable[[], Any]) -> list[Callable[[], Any]]:
    """The launches that `call` makes by this method of the class `owner`, to be made again."""
    found: list[Callable[[], Any]] = []
    real = getattr(owner, method)

    def noting(*given: Any, **named: Any) -> Any:
        found.append(lambda: real(*given, **named))
        return real(*given, **named)

    setattr(owner, method, noting)
    try:
        call()
    finally:
        setattr(owner, method, real)
    return found


def queued(call: Callable[[], Any]) -> tuple[float, float]:
    """The median and the minimum of the microseconds of the device's time that one of `QUEUED`
    calls takes, none of which waits for the host."""
    import torch

    def once(cycles: int) -> float | None:
        """None where the device has not waited until all calls were made."""
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(cycles)
        first.record()
        for _ in range(QUEUED):
            call()
        last.record()
        waited = not first.query()
        torch.cuda.synchronize()
        return float(first.elapsed_time(last)) * 1000 / QUEUED if waited else None

    cycles, spent = CYCLES, list[float]()
    for _ in range(3):
        call()
    while len(spent) < ROUNDS:
        found = once(cycles)
        if found is None:
            cycles *= 2
        else:
            spent.append(found)
    return statistics.median(spent), min(spent)


def measure_on_gpu(
    folder: Path, name: str, target: str, calls: int
) -> dict[str, list[tuple[float, float]]]:
    """Medians and minima of "host" and "queued" of the ways `ON_GPUS`, where there are sizes."""
    import torch

    sys.path.insert(0, str(folder))
    sketch, small, params = KERNELS.get(name, (name, [], {}))
    dropin = importlib.import_module(f"{sketch}_dropin")
    place, owner, method = LAUNCHERS[target]
    launcher = getattr(importlib.import_module(place.format(sketch)), owner)
    kinds = [dtype for _, dtype, _, _ in dropin.KERNEL.tensors]

    def ways(shapes: Sequence[tuple[int, ...]]) -> list[Callable[[], Any]]:
        """The calls at these sizes, in the order of `ON_GPUS`."""
        function, kernel = getattr(dropin, sketch), dropin.run
        tensors = [
            torch.randn(shape, device="cuda").to(kind)
            for shape, kind in zip(shapes, kinds, strict=True)
        ]
        out = torch.empty_like(kernel(*tensors, **params))
        made = launches(launcher, method, lambda: kernel(*tensors, **params, out=out))
        return [
            lambda: [launch() for launch in made],
            lambda: kernel(*tensors, **params),
            lambda: kernel(*tensors, **params, out=out),
            lambda: function(*tensors, **params),
            lambda: function(*tensors, **params, out=out),
        ]

    found = {}
    if small:
        found["host"] = [microseconds(way, calls) for way in ways(small)]
    if name in LARGE:
        found["queued"] = [queued(way) for way in ways(LARGE[name])]
    return found


def show_on_gpu(names: Sequence[str], target: str, calls: int) -> None:
    """Print the table of a target on the GPU."""
    print(f"| kernel | time | {' | '.join(ON_GPUS)} |\n|---|---{'|---' * len(ON_GPUS)}|")
    with tempfile.TemporaryDirectory() as place:
        for name in names or dict.fromkeys([*KERNELS, *LARGE]):
            folder = Path(place) / name
            folder.mkdir()
            build(folder, name, target)
            command = [sys.executable, __file__, name, "--folder", str(folder)]
            command += ["--calls", str(calls), "--target", target]
            environment = dict(os.environ)
            done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
            for told, times in json.loads(done.stdout.splitlines()[-1]).items():
                cells = " | ".join(f"{median:.1f} ({least:.1f})" for median, least in times)
                print(f"| {name} | {told} | {cells} |", flush=True)


# ---------------------------------------------------------------- what both need


def build(folder: Path, name: str, target: str = "cpp") -> None:
    """Put the module and the drop-in of an example, or of the product, into a folder."""
    path = EXAMPLES / f"{name}.sketch"
    if not path.is_file():
        import loop_drop_ins

        path = folder / f"{name}.sketch"
        path.write_text(loop_drop_ins.PRODUCT, "utf-8")
    command = [sys.executable, "-m", "sketchc", "lower", str(path)]
    command += ["--target", target, "--module", str(folder), "-o", os.devnull]
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
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join({**KERNELS, **LARGE}))
    parser.add_argument("--target", default="cpp", choices=["cpp", *LAUNCHERS])
    parser.add_argument("--threads", default="1,2", help="numbers of threads of OpenMP")
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.target != "cpp":
        if options.folder:
            given = (options.folder, options.names[0], options.target, options.calls)
            print(json.dumps(measure_on_gpu(*given)))
        else:
            show_on_gpu(options.names, options.target, options.calls)
        return
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

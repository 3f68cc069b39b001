"""Cubins of TileLang kernels for a GPU machine that has no TileLang, made without a GPU.

    python tests/device/build_cubins.py FOLDER [NAME ...] [--features] [--jobs N]

NAME is an example, or a sketch of `triton_sketches.py`; without one, all examples are built, or
with `--features` all of these sketches. FOLDER/NAME gets the cubins for sm_90a, `launches.json`
(the wrapper's launches at a few sizes, as TileLang's host code makes them) and `arrays.npz` (the
buffers before the launches, and the interpreter's outputs). A name that is there already is not
built again. `test_cubins.py` launches what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch
from cpp_cases import NAMES, PARAMS, TILES, Array, example, inputs, reference, sizes
from example_sizes import params_for, sizes_for
from tilelang_launches import host_launches
from triton_cases import lower
from triton_sketches import SKETCHES

from sketchc.lowering.abi import passed
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.guards.placement import tensor_of
from sketchc.runtime.sandbox.confine import import_file
from sketchc.runtime.toolchains.guarded_call import entry_of
from sketchc.runtime.toolchains.launching import call_request
from sketchc.runtime.toolchains.tilelang_cuda import execution, worker
from sketchc.runtime.toolchains.tilelang_cuda.toolchain import environment
from sketchc.runtime.toolchains.tracer import Tracer, bound_call, names_of

TARGET, ARCHITECTURE = "tilelang_cuda", "sm_90a"
#: Of the sizes that `cpp_cases.sizes` tells: T, T + 1, and primes.
_SIZES = slice(2, 5)
#: Further sizes of three symbols, for products: several steps, lines of multiples of 16 bytes.
_DEEP = (40, 72, 104)
#: From this extent on inputs are moderate.
_LONG = 64


class Recorder:
    """Notes the kernels that a wrapper makes, and their launches in `tracer`."""

    def __init__(self) -> None:
        self.kernels: list[execution.Traced] = []
        self.tracer: Tracer
        self._numbers: dict[int, int] = {}

    def note(self, traced: execution.Traced) -> None:
        """A traced kernel; its scalars get names of their own, as in `execution.Compiled`."""
        number = self._numbers[id(traced)] = len(self.kernels)
        function = execution.named_apart(traced.function)
        self.kernels.append(attrs.evolve(traced, name=f"{traced.name}_{number}", function=function))

    def launched(self, traced: execution.Traced, *passed: Any) -> None:
        """A call of a traced kernel."""
        number = self._numbers[id(traced)]
        values = execution.values_of(self.kernels[number].function, passed)
        told = {
            name: self.tracer.argument(value, "") if isinstance(value, torch.Tensor) else value
            for name, value in values.items()
        }
        self.tracer.launch({"kernel": number, "values": told})


def recorded(
    kernel: Kernel, assignments: Iterable[Mapping[str, int]], params: Mapping[str, Any]
) -> tuple[list[execution.Traced], list[dict[str, Any]], dict[str, Any]]:
    """The kernels of a generated wrapper, a case for each assignment of sizes, and the cases'
    arrays. Raises `NotImplementedError` where the wrapper reads what its launches have written."""
    recorder, cases, arrays = Recorder(), [], {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernel.py"
        source.write_text(kernel.source, "utf-8")
        with execution.replaced(execution.recording(recorder.note, recorder.launched)):
            module = import_file(str(source), "generated_kernel")
        for number, symbols in enumerate(assignments):
            given = inputs(kernel.sketch, symbols, params, number)
            if max(symbols.values(), default=0) >= _LONG:
                given = {name: moderate(array) for name, array in given.items()}
            expected = reference(kernel.sketch, given, symbols, params)
            request = call_request(kernel, source, symbols, params)
            # Copies begin on borders as memory of a GPU does.
            tensors = {name: tensor_of(array).clone() for name, array in given.items()}
            tracer = recorder.tracer = Tracer(tensors, [])
            call = bound_call(entry_of(module, request), request, tensors)
            done, contents = tracer.trace(call, names_of(request, "out", "inout"))
            if not done:
                msg = "the wrapper reads or writes what its launches have written"
                raise NotImplementedError(msg)
            arrays |= {f"{number}/before/{name}": data for name, data in contents.items()}
            arrays |= {f"{number}/after/{name}": raw(data) for name, data in expected.items()}
            cases.append({"symbols": dict(symbols), "launches": tracer.launches})
    return recorder.kernels, cases, arrays


def moderate(array: Array) -> Array:
    """Numbers of size 1 at most: powers of more leave the range of f32 where loops are long."""
    if array.dtype.kind in "biu":
        return array
    largest = np.max(np.abs(array), initial=0.0)
    return array / largest if largest > 1 else array


def raw(array: Array) -> Array:
    """The bytes of an array."""
    return np.frombuffer(array.tobytes(), np.uint8)


def build(name: str, folder: Path, pool: ThreadPoolExecutor) -> None:
    """Build an example or a feature into `folder`."""
    if name in NAMES:
        kernel = lower(example(name), TARGET, TILES.get(name, {}))[1]
        params = PARAMS.get(name) or params_for(kernel.sketch)
        assignments = sizes(kernel, params)[_SIZES]
        if len(kernel.sketch.symbols) == len(_DEEP):
            assignments.append(sizes_for(kernel.sketch, _DEEP, params))
    else:
        text, assignments, params = SKETCHES[name]
        kernel = lower(text, TARGET)[1]
    kernels, cases, arrays = recorded(kernel, assignments, params)
    lowered = []
    compiled: list[Future[dict[str, Any]]] = []
    for traced in kernels:
        lowered.append(worker.lowered(traced, ARCHITECTURE))
        told = (traced.name, str(lowered[-1].kernel_source), ARCHITECTURE, folder)
        compiled.append(pool.submit(worker.built_cubin, *told))
    cubins = [Path(each.result()["cubin"]).name for each in compiled]
    for text in folder.glob("*.cu"):
        text.unlink()
    for case in cases:
        case["launches"] = [
            {"cubin": cubins[call["kernel"]], **launch}
            for call in case["launches"]
            for launch in host_launches(lowered[call["kernel"]], call["values"])
        ]
    tensors = {
        tensor.name: {"role": tensor.role.value, "dtype": tensor.dtype.value}
        for tensor in passed(kernel.sketch)
    }
    np.savez_compressed(folder / "arrays.npz", **arrays)
    (folder / "launches.json").write_text(json.dumps({"tensors": tensors, "cases": cases}))


def main() -> int:
    """Build what the command line names; returns how many there are that could not be built."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--features", action="store_true", help="sketches of triton_sketches.py")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_intermixed_args()
    os.environ.update(environment())
    worker.prepare()
    worker.pretend(ARCHITECTURE)
    failed = 0
    with ThreadPoolExecutor(given.jobs) as pool:
        for name in given.names or [*(SKETCHES if given.features else NAMES)]:
            place = given.folder / name
            if place.exists():
                continue
            unfinished = given.folder / f"{name}.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            try:
                build(name, unfinished, pool)
            except (execution.CompilationError, NotImplementedError) as error:
                failed += 1
                print(f"{name}: {error}", flush=True)
            else:
                unfinished.rename(place)
    return failed


if __name__ == "__main__":
    sys.exit(main())

"""Calls of Python wrappers, and launches of the kernels that this project lowered.

Two processes share the work: one traces the wrapper (`tracer`) and records what it launches; the
other, the launcher, executes the launches on the tensors, and loads no Python but its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from sketchc.base.types import numpy_dtype
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import host_sample, sample_extents
from sketchc.lowering.abi import passed
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.python_host.expressions import Names
from sketchc.lowering.registry import load_target
from sketchc.lowering.workspaces import shared_memory
from sketchc.runtime.cases.sizes import (
    choose,
    example_params,
    fixed_elements,
    refusal,
    tensor_shapes,
)
from sketchc.runtime.sandbox.worker import WorkerResult
from sketchc.runtime.toolchains.base import (
    Arrays,
    Params,
    Sizes,
    Tensors,
    ToolchainError,
    last_lines,
    place,
    reply_of,
)

Reply = tuple[Mapping[str, Any], Arrays]
#: (part of the request, arrays, timeout in seconds) -> reply and arrays. Raises `ToolchainError`.
Call = Callable[[Mapping[str, Any], Arrays, float], Reply]
#: The most times that a wrapper's own code may access what its launches wrote.
_MOST_STOPS = 10_000
#: Sizes that example launches try for all symbols together, then for each on its own.
_SIZES = (256, 64, 48, 16, 8, 4, 2, 1, 1024)
_LARGEST_EXAMPLE = 1 << 24  # elements of one tensor


def placed(kernel: Kernel, folder: Path) -> Path:
    """Write the source of a kernel into `folder`; returns the file."""
    return place(kernel, folder, f"{kernel.name}.{kernel.target}.py")


def built_folder(folder: Path) -> Path:
    """The subfolder, made if missing, that only the compiler writes to."""
    built = folder / "built"
    built.mkdir(parents=True, exist_ok=True)
    return built


def wrapper_reply(
    result: WorkerResult, stage: str, timeout: float, compiler_errors: Collection[str]
) -> dict[str, Any]:
    """The reply of a worker that compiles for a wrapper or calls it. Raises `ToolchainError` where
    there is none, or for a failure reply: at `stage`, or "compile" for exceptions of the types
    `compiler_errors`."""
    log = last_lines(result)
    kind, _, message = result.error.partition(": ")
    if kind in ("WrapperError", "LaunchError"):
        if kind == "WrapperError":
            message = message.removeprefix("LaunchError: ")
        raise ToolchainError("launch", message, log, result.kinds)
    # Where a compiler or a kernel crashes, the source that it was given is held responsible.
    return reply_of(result, timeout, log, "compile" if kind in compiler_errors else stage)


def call_request(kernel: Kernel, source: Path, symbols: Sizes, params: Params) -> dict[str, Any]:
    """The JSON-able request by which a worker calls the wrapper in the Python file `source`."""
    values = host_sample(kernel.sketch, symbols, params)
    # A param called `len` is `len_` in Python.
    names = Names(kernel.sketch, load_target(kernel.target).reserved)
    return {
        "source": str(source),
        "entry": kernel.entry,
        "foreign": kernel.foreign,
        "params": {names[name]: value for name, value in params.items()},
        "tensors": [
            {
                "name": tensor.name,
                "role": tensor.role.value,
                "dtype": tensor.dtype.value,
                "extents": sample_extents(tensor, values),
            }
            for tensor in passed(kernel.sketch)
        ],
    }


def run_launches(
    sketch: ir.Sketch, tensors: Arrays, trace: Call, launch: Call, timeout: float
) -> Arrays:
    """Run a kernel once; returns its out and inout tensors.

    `trace` is asked with {"states": how many}, and answers {"launches", "done"} with the contents
    of buffers; `launch` is asked with {"launches", "unchanged": names} and these contents, and
    answers with the contents of all other buffers afterwards. Raises `ToolchainError`.
    """
    deadline = time.monotonic() + timeout
    roles = {tensor.name: tensor.role for tensor in sketch.tensors}
    unchanged = [name for name, role in roles.items() if role is ir.Role.IN]
    states: Arrays = {}
    for count in range(_MOST_STOPS):
        asked = {"states": count}
        reply, contents = trace(asked, {**tensors, **states}, deadline - time.monotonic())
        if reply["launches"]:
            request = {"launches": reply["launches"], "unchanged": unchanged}
            _, written = launch(request, contents, deadline - time.monotonic())
            contents = {**contents, **written}
        if reply["done"]:
            return {
                name: contents[name].view(array.dtype).reshape(array.shape)
                for name, array in tensors.items()
                if roles[name] in (ir.Role.OUT, ir.Role.INOUT)
            }
        states |= {f"{count}/{name}": array for name, array in contents.items()}
    msg = f"the wrapper waits for its launches more than {_MOST_STOPS} times"
    raise ToolchainError(stage="timeout", message=msg)


def workspace_bytes(sketch: ir.Sketch, symbols: Sizes, params: Params) -> int:
    """The bytes of the workspaces that a kernel's wrapper allocates."""
    values, sharing = host_sample(sketch, symbols, params), shared_memory(sketch)
    return sum(
        math.prod(max(0, extent) for extent in sample_extents(tensor, values))
        * numpy_dtype(tensor.dtype).itemsize
        for tensor in sketch.tensors
        if tensor.role is ir.Role.WORKSPACE and tensor.name not in sharing
    )


def complete(sketch: ir.Sketch, symbols: Sizes, params: Params, given: Tensors) -> Arrays:
    """An array for every tensor parameter: the `given` one, else ones for tensors that are read and
    poison for outputs, so that an element that is not written shows. Optional tensors that are not
    given are left out where any are given."""
    import numpy as np

    from sketchc.runtime.tasks.inputs import poison

    # Extents that have no value, or a negative one, are refused by the wrapper's checks.
    values = host_sample(sketch, symbols, params)
    arrays: Arrays = {}
    for tensor in passed(sketch):
        if tensor.name in given:
            arrays[tensor.name] = given[tensor.name]
            continue
        if tensor.optional and given:
            continue  # absent
        shape = tuple(max(0, extent) for extent in sample_extents(tensor, values))
        ones = np.ones(shape, numpy_dtype(tensor.dtype))
        arrays[tensor.name] = poison(tensor.dtype, shape) if tensor.role is ir.Role.OUT else ones
    return arrays


def example_values(
    sketch: ir.Sketch,
) -> tuple[dict[str, int], dict[str, int | float | bool]]:
    """Symbols and params at which the wrapper's checks pass, for a launch that only compiles.

    Raises `ToolchainError` when none of the sizes tried satisfies the sketch's requires.
    """
    params = example_params(sketch)
    names = [symbol.name for symbol in sketch.symbols]

    most = {t.name: max(_LARGEST_EXAMPLE, fixed_elements(t)) for t in sketch.tensors}

    def accepted(symbols: Sizes) -> bool:
        if refusal(sketch, symbols, params):
            return False
        shapes = tensor_shapes(sketch, symbols, params).items()
        return all(0 < math.prod(shape) <= most[name] for name, shape in shapes)

    alike = [dict.fromkeys(names, size) for size in _SIZES]
    for symbols in alike:
        if accepted(symbols):
            return symbols, params
    found = choose(dict.fromkeys(names, _SIZES), accepted)
    if found is None:
        message = "no example sizes satisfy the sketch's requires"
        raise ToolchainError(stage="compile", message=message)
    return found, params

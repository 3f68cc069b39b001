"""In a worker: launch cubins through the CUDA driver, on guarded buffers.

Needs only ctypes and the driver: no Python of a kernel, no torch and no Triton is ever loaded here,
and what a launch computes comes from the cubin alone.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

from sketchc.runtime.process.messages import Raw, failure
from sketchc.runtime.toolchains.cuda_driver import (
    CudaError,
    DeviceBuffer,
    Driver,
    collected,
    driver,
)

_SCALARS: dict[str, Any] = {
    "i1": ctypes.c_int8,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "fp32": ctypes.c_float,
}


def serve(request: dict[str, Any], raws: dict[str, Raw]) -> tuple[dict[str, Any], dict[str, Raw]]:
    """The worker's handler. {"describe": true} is answered with {"capability"}; else "launches"
    (see `tracer`) are executed one after the other, and all buffers but "unchanged" come back.

    {"failure": {"stage", "message", "kinds"}} reports an error; the process must not be used
    afterwards.
    """
    try:
        cuda = driver()
        if request.get("describe"):
            return {"capability": cuda.capability()}, {}
        return _execute(cuda, request, raws)
    except CudaError as error:
        return error.reply(), {}


serve.takes_raw = True  # type: ignore[attr-defined]


def _execute(
    cuda: Driver, request: Mapping[str, Any], raws: Mapping[str, Raw]
) -> tuple[dict[str, Any], dict[str, Raw]]:
    buffers = {name: DeviceBuffer(cuda, raw) for name, raw in raws.items()}
    for launch in request["launches"]:
        _launch(cuda, launch, buffers)
    wrong, found = collected(buffers, raws, request["unchanged"])
    if wrong:
        return failure("illegal_access", wrong), {}
    return {}, {name: Raw("uint8", (len(data),), memoryview(data)) for name, data in found.items()}


def _launch(cuda: Driver, launch: Mapping[str, Any], buffers: Mapping[str, DeviceBuffer]) -> None:
    """Execute one launch and wait for its end. Raises `CudaError`."""
    artefact, grid = launch["artefact"], launch["grid"]
    function = cuda.function(artefact)
    values = [_value(argument, buffers) for argument in launch["arguments"]]
    # After the kernel's own arguments: scratch memory, and memory for profiling, which is unused.
    scratch = None
    if artefact["scratch"]:
        scratch = cuda.allocate(artefact["scratch"] * math.prod(grid))
    values += [scratch or ctypes.c_uint64(0), ctypes.c_uint64(0)]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    doing = f"launch of {launch['kernel']}"
    extents: Sequence[int] = (*grid, artefact["threads"], 1, 1, artefact["shared"])
    words = map(ctypes.c_uint, extents)
    cuda.check("cuLaunchKernel", function, *words, None, pointers, None, doing=doing)
    cuda.synchronize(doing)
    if scratch is not None:
        cuda.free(scratch)


def _value(argument: Mapping[str, Any], buffers: Mapping[str, DeviceBuffer]) -> Any:
    if "buffer" in argument:
        return ctypes.c_uint64(buffers[argument["buffer"]].start + argument["offset"])
    return _SCALARS[argument["scalar"]](argument["value"])

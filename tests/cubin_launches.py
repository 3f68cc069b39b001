"""In a worker: launches of a folder that `device/build_cubins.py` made, on guarded buffers. Needs
ctypes and the CUDA driver alone: no TileLang, no compiler, no torch."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from sketchc.runtime.process.messages import Raw, failure
from sketchc.runtime.toolchains.cuda_driver import (
    CudaError,
    DeviceBuffer,
    Driver,
    collected,
    driver,
)

#: How C holds what TVM calls by these names.
SCALARS: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
#: Bytes of a tensor's map (CUtensorMap), and of the border that it begins on.
MAP_BYTES, _MAP_BORDER = 128, 64


def serve(request: dict[str, Any], raws: dict[str, Raw]) -> tuple[dict[str, Any], dict[str, Raw]]:
    """Execute "launches" one after the other; all buffers but "unchanged" come back as bytes.
    {"failure"} reports an error; the process must not be used afterwards."""
    try:
        cuda = driver()
        buffers = {name: DeviceBuffer(cuda, raw) for name, raw in raws.items()}
        for launch in request["launches"]:
            _launch(cuda, launch, buffers)
        wrong, found = collected(buffers, raws, request["unchanged"])
    except CudaError as error:
        return error.reply(), {}
    if wrong:
        return failure("illegal_access", wrong), {}
    return {}, {name: Raw("uint8", (len(data),), memoryview(data)) for name, data in found.items()}


serve.takes_raw = True  # type: ignore[attr-defined]


def _launch(cuda: Driver, launch: Mapping[str, Any], buffers: Mapping[str, DeviceBuffer]) -> None:
    doing = f"launch of {launch['cubin']}"
    values = [_value(cuda, argument, buffers) for argument in launch["arguments"]]
    pointers = (ctypes.c_void_p * len(values))(*(address for address, _ in values))
    words = map(ctypes.c_uint, (*launch["grid"], *launch["block"], launch["shared"]))
    function = cuda.function(launch)
    cuda.check("cuLaunchKernel", function, *words, None, pointers, None, doing=doing)
    cuda.synchronize(doing)


def _value(
    cuda: Driver, argument: Mapping[str, Any], buffers: Mapping[str, DeviceBuffer]
) -> tuple[int, Any]:
    """The address of an argument's value in the host's memory, and the memory's owner."""
    if "map" in argument:
        return _encoded(cuda, argument["map"], buffers)
    if "buffer" in argument:
        value = ctypes.c_uint64(_address(argument, buffers))
    else:
        value = SCALARS[argument["scalar"]](argument["value"])
    return ctypes.addressof(value), value


def _address(place: Mapping[str, Any], buffers: Mapping[str, DeviceBuffer]) -> int:
    return int(buffers[place["buffer"]].start + place["offset"])


def _encoded(
    cuda: Driver, told: Mapping[str, Any], buffers: Mapping[str, DeviceBuffer]
) -> tuple[int, Any]:
    memory = ctypes.create_string_buffer(MAP_BYTES + _MAP_BORDER)
    address = ctypes.addressof(memory)
    address += -address % _MAP_BORDER
    rank = len(told["extents"])
    cuda.check(
        "cuTensorMapEncodeTiled",
        ctypes.c_void_p(address),
        ctypes.c_int(told["element"]),
        ctypes.c_uint32(rank),
        ctypes.c_void_p(_address(told["place"], buffers)),
        (ctypes.c_uint64 * rank)(*told["extents"]),
        (ctypes.c_uint64 * (rank - 1))(*told["steps"]),
        (ctypes.c_uint32 * rank)(*told["box"]),
        (ctypes.c_uint32 * rank)(*told["each"]),
        *map(ctypes.c_int, told["kinds"]),
    )
    return address, memory

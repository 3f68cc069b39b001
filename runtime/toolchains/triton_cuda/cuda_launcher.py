"""In a worker: launch cubins through the CUDA driver, on guarded buffers.

Needs only ctypes and the driver: no Python of a kernel, no torch and no Triton is ever loaded here,
and what a launch computes comes from the cubin alone. Source of the functions: CUDA Driver API,
"Module Management", "Memory Management" and "Execution Control".
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sketchc.runtime.process.messages import Raw, failure

_GUARD_BYTES = 4096
_PATTERN = 0xA5
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
#: Bytes of dynamic shared memory that a kernel may have without setting an attribute.
_FREE_SHARED = 48 << 10
_SCALARS: dict[str, Any] = {
    "i1": ctypes.c_int8,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "fp32": ctypes.c_float,
}
#: The driver's errors for a kernel's illegal accesses, and those for a lack of resources.
_ACCESS = frozenset(
    {"CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_INVALID_PC"}
)
_WANT = frozenset({"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"})


class CudaError(Exception):
    """The driver reported an error; `name` is the driver's name of that error."""

    def __init__(self, name: str, doing: str) -> None:
        self.name = name
        super().__init__(f"{doing}: {name}")


class Driver:
    """The CUDA driver with a context on the first GPU."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self.check("cuInit", 0)
        device = ctypes.c_int()
        self.check("cuDeviceGet", ctypes.byref(device), 0)
        self._device = device
        self._context = ctypes.c_void_p()
        self.check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self.check("cuCtxSetCurrent", self._context)
        self._functions: dict[tuple[str, str], ctypes.c_void_p] = {}

    def check(self, function: str, *arguments: Any, doing: str = "") -> None:
        """Call a function of the driver. Raises `CudaError`."""
        status = getattr(self._cuda, function)(*arguments)
        if status:
            name = ctypes.c_char_p()
            self._cuda.cuGetErrorName(status, ctypes.byref(name))
            raise CudaError((name.value or b"an unknown error").decode(), doing or function)

    def capability(self) -> int:
        """The compute capability of the GPU, such as 90 for 9.0."""
        found = []
        for attribute in (_MAJOR, _MINOR):
            value = ctypes.c_int()
            self.check("cuDeviceGetAttribute", ctypes.byref(value), attribute, self._device)
            found.append(value.value)
        return 10 * found[0] + found[1]

    def function(self, artefact: Mapping[str, Any]) -> ctypes.c_void_p:
        """The kernel of an artefact's cubin, loaded once, and allowed the shared memory that it
        needs."""
        key = artefact["cubin"], artefact["function"]
        if key not in self._functions:
            module, function = ctypes.c_void_p(), ctypes.c_void_p()
            image = Path(artefact["cubin"]).read_bytes()
            self.check("cuModuleLoadData", ctypes.byref(module), image)
            name = artefact["function"].encode()
            self.check("cuModuleGetFunction", ctypes.byref(function), module, name)
            if artefact["shared"] > _FREE_SHARED:
                size = ctypes.c_int(artefact["shared"])
                self.check("cuFuncSetAttribute", function, _DYNAMIC_SHARED, size)
            self._functions[key] = function
        return self._functions[key]

    def allocate(self, size: int) -> ctypes.c_uint64:
        """Allocate `size` bytes of device memory, filled with `_PATTERN`."""
        place = ctypes.c_uint64()
        self.check("cuMemAlloc_v2", ctypes.byref(place), ctypes.c_size_t(size))
        self.check("cuMemsetD8_v2", place, ctypes.c_ubyte(_PATTERN), ctypes.c_size_t(size))
        return place

    def free(self, place: ctypes.c_uint64) -> None:
        """Free memory of the GPU."""
        self.check("cuMemFree_v2", place)

    def to_device(self, place: int, data: memoryview) -> None:
        """Copy the bytes `data` to the address `place` in the GPU's memory."""
        source = (ctypes.c_char * data.nbytes).from_buffer(data)
        size = ctypes.c_size_t(data.nbytes)
        self.check("cuMemcpyHtoD_v2", ctypes.c_uint64(place), source, size)

    def from_device(self, place: int, size: int) -> bytearray:
        """Copy `size` bytes from the address `place` in the GPU's memory."""
        data = bytearray(size)
        if size:
            target = (ctypes.c_char * size).from_buffer(data)
            source = ctypes.c_uint64(place)
            self.check("cuMemcpyDtoH_v2", target, source, ctypes.c_size_t(size))
        return data


class _Buffer:
    """A copy of the bytes of `raw` on the device, with a guard of a pattern on either side."""

    def __init__(self, driver: Driver, raw: Raw) -> None:
        self._driver, self.size = driver, raw.data.nbytes
        self._whole = driver.allocate(self.size + 2 * _GUARD_BYTES)
        self.start = self._whole.value + _GUARD_BYTES
        if self.size:
            driver.to_device(self.start, raw.data)

    def stray(self) -> str:
        """The side on which a guard was overwritten, "before" or "after"; "" for none."""
        guard = bytearray([_PATTERN]) * _GUARD_BYTES
        places = {"before": self._whole.value, "after": self.start + self.size}
        read = {side: self._driver.from_device(at, _GUARD_BYTES) for side, at in places.items()}
        return next((side for side, found in read.items() if found != guard), "")

    def contents(self) -> bytearray:
        return self._driver.from_device(self.start, self.size)

    def close(self) -> None:
        self._driver.free(self._whole)


@functools.cache
def _driver() -> Driver:
    """The process's `Driver`, made once: a context takes a second."""
    return Driver()


def serve(request: dict[str, Any], raws: dict[str, Raw]) -> tuple[dict[str, Any], dict[str, Raw]]:
    """The worker's handler. {"describe": true} is answered with {"capability"}; else "launches"
    (see `tracer`) are executed one after the other, and all buffers but "unchanged" come back.

    {"failure": {"stage", "message", "kinds"}} reports an error; the process must not be used
    afterwards.
    """
    try:
        driver = _driver()
        if request.get("describe"):
            return {"capability": driver.capability()}, {}
        return _execute(driver, request, raws)
    except CudaError as error:
        stage = "illegal_access" if error.name in _ACCESS else "launch"
        kinds = ["OutOfResources"] if error.name in _WANT else []
        return failure(stage, str(error), kinds), {}


serve.takes_raw = True  # type: ignore[attr-defined]


def _execute(
    driver: Driver, request: Mapping[str, Any], raws: Mapping[str, Raw]
) -> tuple[dict[str, Any], dict[str, Raw]]:
    buffers = {name: _Buffer(driver, raw) for name, raw in raws.items()}
    for launch in request["launches"]:
        _launch(driver, launch, buffers)
    found = {}
    for name, buffer in buffers.items():
        if side := buffer.stray():
            return failure("illegal_access", f"memory {side} {name} was overwritten"), {}
        contents = buffer.contents()
        if name in request["unchanged"]:
            if contents != raws[name].data:
                return failure("illegal_access", f"the input {name} was changed"), {}
        else:
            found[name] = Raw("uint8", (buffer.size,), memoryview(contents))
    for buffer in buffers.values():
        buffer.close()
    return {}, found


def _launch(driver: Driver, launch: Mapping[str, Any], buffers: Mapping[str, _Buffer]) -> None:
    """Execute one launch and wait for its end. Raises `CudaError`."""
    artefact, grid = launch["artefact"], launch["grid"]
    function = driver.function(artefact)
    values = [_value(argument, buffers) for argument in launch["arguments"]]
    # After the kernel's own arguments: scratch memory, and memory for profiling, which is unused.
    scratch = None
    if artefact["scratch"]:
        scratch = driver.allocate(artefact["scratch"] * math.prod(grid))
    values += [scratch or ctypes.c_uint64(0), ctypes.c_uint64(0)]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
    doing = f"launch of {launch['kernel']}"
    extents: Sequence[int] = (*grid, artefact["threads"], 1, 1, artefact["shared"])
    words = map(ctypes.c_uint, extents)
    driver.check("cuLaunchKernel", function, *words, None, pointers, None, doing=doing)
    driver.check("cuCtxSynchronize", doing=doing)
    if scratch is not None:
        driver.free(scratch)


def _value(argument: Mapping[str, Any], buffers: Mapping[str, _Buffer]) -> Any:
    if "buffer" in argument:
        return ctypes.c_uint64(buffers[argument["buffer"]].start + argument["offset"])
    return _SCALARS[argument["scalar"]](argument["value"])

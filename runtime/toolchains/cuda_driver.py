"""The CUDA driver, through ctypes alone: modules, memory with guards, launches.

Source of the functions: CUDA Driver API, "Module Management", "Memory Management" and "Execution
Control".
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from sketchc.runtime.process.messages import Raw, failure

_GUARD_BYTES = 4096
_PATTERN = 0xA5
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
#: The driver's errors for a kernel's illegal accesses, and those for a lack of resources.
_ACCESS = frozenset(
    {"CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_INVALID_PC"}
)
_WANT = frozenset({"CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"})


def nvidia_gpu() -> bool:
    """Whether an NVIDIA driver's device is here, and not hidden from it by an empty list."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1")
    return Path("/dev/nvidiactl").exists() and not hidden


class CudaError(Exception):
    """The driver reported an error; `name` is the driver's name of that error."""

    def __init__(self, name: str, doing: str) -> None:
        self.name = name
        super().__init__(f"{doing}: {name}")

    def reply(self) -> dict[str, Any]:
        """A worker's reply that reports the error; its process must not be used afterwards."""
        stage = "illegal_access" if self.name in _ACCESS else "launch"
        return failure(stage, str(self), ["OutOfResources"] if self.name in _WANT else [])


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
            # A kernel's own (static) shared memory counts towards the 48 KiB that need no asking.
            if artefact["shared"]:
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

    def synchronize(self, doing: str = "") -> None:
        """Wait for all launches. Raises `CudaError`."""
        self.check("cuCtxSynchronize", doing=doing)

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


class DeviceBuffer:
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
        """The bytes between the guards."""
        return self._driver.from_device(self.start, self.size)

    def close(self) -> None:
        """Free the memory."""
        self._driver.free(self._whole)


@functools.cache
def driver() -> Driver:
    """The process's `Driver`, made once: a context takes a second."""
    return Driver()


def collected(
    buffers: Mapping[str, DeviceBuffer], raws: Mapping[str, Raw], unchanged: Collection[str]
) -> tuple[str, dict[str, bytearray]]:
    """What was written that must not be ("" for nothing): a guard, or one of the buffers
    `unchanged`, which are copies of `raws`; and the contents of the other buffers. All are freed.
    """
    found = {}
    for name, buffer in buffers.items():
        if side := buffer.stray():
            return f"memory {side} {name} was overwritten", {}
        contents = buffer.contents()
        if name not in unchanged:
            found[name] = contents
        elif contents != raws[name].data:
            return f"the input {name} was changed", {}
    for buffer in buffers.values():
        buffer.close()
    return "", found

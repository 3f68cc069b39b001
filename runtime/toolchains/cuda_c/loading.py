"""Functions that a drop-in with CUDA-C kernels contains: they load machine code and launch kernels
through the driver, so that neither nvcc nor CUDA's libraries are needed. The text between the two
marks is copied into the drop-in, so it imports nothing of sketchc.
"""

from __future__ import annotations

import ctypes
import struct
from functools import cache
from pathlib import Path
from typing import Any

import torch

# ---- copied from here ----
#: Bytes of shared memory that a kernel has without asking, and the attribute by which it asks.
_FREE_BYTES, _DYNAMIC_BYTES = 48 * 1024, 8
#: Pieces of scratch memory begin on such borders.
_LINE_BYTES = 128


@cache
def cuda_driver() -> Any:
    """The driver's library. Raises `RuntimeError` where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise RuntimeError("there is no CUDA driver here") from None


def cuda_call(name: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises `RuntimeError` for an error, with its name."""
    status = getattr(cuda_driver(), name)(*arguments)
    if status:
        raise_error(name, status)


def raise_error(name: str, status: int) -> None:
    """Raise the `RuntimeError` for the status that a function of the driver has returned."""
    told = ctypes.c_char_p()
    cuda_driver().cuGetErrorName(status, ctypes.byref(told))
    raise RuntimeError(f"{name}: {(told.value or b'unknown error').decode()}")


@cache
def launcher() -> Any:
    """The driver's function that launches a kernel; it takes plain numbers."""
    pointer, extent = ctypes.c_void_p, ctypes.c_uint
    return ctypes.CFUNCTYPE(ctypes.c_int, pointer, *[extent] * 7, *[pointer] * 3)(
        ("cuLaunchKernel", cuda_driver())
    )


def stream_of(place: int) -> int:
    """The current stream of a device, as the driver knows it."""
    return int(torch.cuda.current_stream(place).cuda_stream)


#: `stream_of`, without the object that torch makes of a stream.
STREAM = getattr(torch._C, "_cuda_getCurrentRawStream", stream_of)


class Packed:
    """Memory for the arguments of a launch, and where each lies."""

    def __init__(self, kinds: str) -> None:
        self.layout = struct.Struct(kinds)
        self.values = ctypes.create_string_buffer(self.layout.size)
        start = ctypes.addressof(self.values)
        ends = [start + struct.calcsize(kinds[: count + 1]) for count in range(len(kinds))]
        sizes = [struct.calcsize(kind) for kind in kinds]
        places = [end - size for end, size in zip(ends, sizes, strict=True)]
        self.pointers = (ctypes.c_void_p * len(kinds))(*places)


@cache
def room_for(kinds: str) -> list[Packed]:
    """Memory for such arguments that no launch uses now: threads may launch at a time."""
    return []


class CudaModule:
    """The kernels of a file of machine code, loaded for a device when one is launched there."""

    def __init__(self, path: Path) -> None:
        self.code = path.read_bytes()
        self.modules: dict[int, Any] = {}
        self.functions: dict[tuple[int, str], Any] = {}
        self.allowed: dict[tuple[int, str], int] = {}

    def function(self, device: int, name: str, shared: int) -> Any:
        """The kernel of that name on a device, which may have so many bytes of shared memory."""
        found = self.functions.get((device, name))
        if found is None:
            if device not in self.modules:
                module = ctypes.c_void_p()
                cuda_call("cuModuleLoadData", ctypes.byref(module), self.code)
                self.modules[device] = module
            found = ctypes.c_void_p()
            told = (ctypes.byref(found), self.modules[device], name.encode())
            cuda_call("cuModuleGetFunction", *told)
            self.functions[device, name] = found
        if shared > self.allowed.get((device, name), _FREE_BYTES):
            cuda_call("cuFuncSetAttribute", found, _DYNAMIC_BYTES, shared)
            self.allowed[device, name] = shared
        return found

    def pieces(self, *sizes: int) -> list[int]:
        """The bytes of all pieces of scratch memory together, and where each begins."""
        places, end = [], 0
        for size in sizes:
            places.append(end)
            end += -(-size // _LINE_BYTES) * _LINE_BYTES
        return [end, *places]

    def scratch(self, pieces: list[int], blocks: int, device: torch.device) -> torch.Tensor:
        """Scratch memory of all blocks that run at a time."""
        return torch.empty(pieces[0] * blocks, dtype=torch.uint8, device=device)

    def launch(
        self,
        device: torch.device,
        name: str,
        blocks: int,
        threads: int,
        shared: int,
        kinds: str,
        *given: Any,
    ) -> None:
        """Launch a kernel on the current stream of a device. `kinds` are how C holds the values
        `given`, a letter each: "P" an address, "q" an integer, "d" a double, "?" a truth value."""
        current = torch.cuda.current_device()
        place = current if device.index is None else device.index
        if place != current:
            with torch.cuda.device(place):
                self.launch(device, name, blocks, threads, shared, kinds, *given)
            return
        function = self.function(place, name, shared)
        room = room_for(kinds)
        try:
            packed = room.pop()
        except IndexError:
            packed = Packed(kinds)
        packed.layout.pack_into(packed.values, 0, *given)
        stream, pointers = STREAM(place), packed.pointers
        status = launcher()(function, blocks, 1, 1, threads, 1, 1, shared, stream, pointers, None)
        room.append(packed)
        if status:
            raise_error("cuLaunchKernel", status)


# ---- to here ----

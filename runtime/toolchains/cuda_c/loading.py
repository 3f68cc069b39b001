"""Functions that a drop-in with CUDA-C kernels contains: they load machine code and launch kernels
through the driver, so that neither nvcc nor CUDA's libraries are needed. The text between the two
marks is copied into the drop-in, so it imports nothing of sketchc.
"""

from __future__ import annotations

import ctypes
import math
import struct
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

# ---- copied from here ----
#: Bytes of shared memory that a kernel has without asking, and the attribute by which it asks.
_FREE_BYTES, _DYNAMIC_BYTES = 48 * 1024, 8
#: Pieces of scratch memory begin on such borders.
_LINE_BYTES = 128
#: Bytes of a tensor's map, and the border on which one lies where the driver makes it.
_MAP_BYTES, _MAP_BORDER = 128, 64
#: The status of the driver's functions in a thread that has no context.
_NO_CONTEXT = 201


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


@cache
def context_of(place: int) -> Any:
    """The context of a device that torch uses, too. Raises `RuntimeError`."""
    device, context = ctypes.c_int(), ctypes.c_void_p()
    cuda_call("cuDeviceGet", ctypes.byref(device), place)
    cuda_call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return context


def require_context(place: int) -> None:
    """See to it that this thread has a context: torch gives a new thread one when it launches
    something there, but not for asking which device is current. Raises `RuntimeError`."""
    current = ctypes.c_void_p()
    cuda_call("cuCtxGetCurrent", ctypes.byref(current))
    if not current:
        cuda_call("cuCtxSetCurrent", context_of(place))


def stream_of(place: int) -> int:
    """The current stream of a device, as the driver knows it."""
    return int(torch.cuda.current_stream(place).cuda_stream)


#: `stream_of`, without the object that torch makes of a stream.
STREAM = getattr(torch._C, "_cuda_getCurrentRawStream", stream_of)


class Packed:
    """Memory for the arguments of a launch, and where each lies."""

    def __init__(self, kinds: str) -> None:
        formats = [f"{_MAP_BYTES}s" if kind == "T" else kind for kind in kinds]
        self.layout = struct.Struct("".join(formats))
        self.values = ctypes.create_string_buffer(self.layout.size)
        start, sizes = ctypes.addressof(self.values), list(map(struct.calcsize, formats))
        ends = [start + struct.calcsize("".join(formats[: n + 1])) for n in range(len(formats))]
        places = [end - size for end, size in zip(ends, sizes, strict=True)]
        self.pointers = (ctypes.c_void_p * len(kinds))(*places)


@cache
def room_for(kinds: str) -> list[Packed]:
    """Memory for such arguments that no launch uses now: threads may launch at a time."""
    return []


@lru_cache(maxsize=256)
def encoded_map(place: int, element: int, lines: int, extents: tuple[int, ...]) -> bytes:
    """See `CudaModule.described`, of a tensor at a place. Raises `RuntimeError`."""
    memory = ctypes.create_string_buffer(_MAP_BYTES + _MAP_BORDER)
    offset = -ctypes.addressof(memory) % _MAP_BORDER
    made = ctypes.byref(memory, offset)
    sizes = (ctypes.c_uint64 * 4)(*extents)
    steps = (ctypes.c_uint64 * 3)(*(2 * math.prod(extents[: axis + 1]) for axis in range(3)))
    box, each = (ctypes.c_uint32 * 4)(64, 1, lines, 1), (ctypes.c_uint32 * 4)(1, 1, 1, 1)
    # Elements together, chunks moved within 128 bytes, 256 bytes fetched at a time, zeros beyond.
    kinds = map(ctypes.c_int, (0, 3, 3, 0))
    told = (ctypes.c_int(element), ctypes.c_uint32(4), ctypes.c_void_p(place), sizes, steps)
    cuda_call("cuTensorMapEncodeTiled", made, *told, box, each, *kinds)
    return memory.raw[offset : offset + _MAP_BYTES]


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
            require_context(device)
            if device not in self.modules:
                module = ctypes.c_void_p()
                cuda_call("cuModuleLoadData", ctypes.byref(module), self.code)
                self.modules[device] = module
            found = ctypes.c_void_p()
            told = (ctypes.byref(found), self.modules[device], name.encode())
            cuda_call("cuModuleGetFunction", *told)
            self.functions[device, name] = found
        if shared > self.allowed.get((device, name), _FREE_BYTES):
            require_context(device)
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

    def described(
        self, tensor: torch.Tensor | None, element: int, lines: int, *extents: int
    ) -> bytes | None:
        """How the copy engine finds a dense tensor of 16-bit elements, which have this number for
        the driver: see `described_tensor` in the library of CUDA-C. None where it cannot."""
        if tensor is None:
            return bytes(_MAP_BYTES)  # a map that nobody copies by
        place = tensor.data_ptr()
        fits = place % 16 == 0 and extents[0] * 2 % 16 == 0
        if not fits or not all(0 < each < 2**31 for each in extents):
            return None
        try:
            return encoded_map(place, element, lines, extents)
        except RuntimeError:  # steps too long for the engine
            return None

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
        `given`, a letter each: "P" an address, "q" an integer, "d" a double, "?" a truth value, "T"
        a tensor's map."""
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
        extents, stream = (blocks, 1, 1, threads, 1, 1, shared), STREAM(place)
        status = launcher()(function, *extents, stream, packed.pointers, None)
        if status == _NO_CONTEXT:
            require_context(place)
            status = launcher()(function, *extents, stream, packed.pointers, None)
        room.append(packed)
        if status:
            raise_error("cuLaunchKernel", status)


# ---- to here ----

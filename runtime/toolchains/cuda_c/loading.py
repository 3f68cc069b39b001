"""Functions that a drop-in with CUDA-C kernels contains: they load machine code and launch kernels
through the driver, so that neither nvcc nor CUDA's libraries are needed. The text between the two
marks is copied into the drop-in, so it imports nothing of sketchc.
"""

from __future__ import annotations

import ctypes
import math
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

# ---- copied from here ----
#: Bytes of shared memory that a kernel has without asking, and the attribute by which it asks.
_FREE_BYTES, _DYNAMIC_BYTES = 48 * 1024, 8
#: Pieces of scratch memory begin on such borders.
_LINE_BYTES = 128
#: Bytes of a tensor's map, and the border on which one lies.
_MAP_BYTES, _MAP_BORDER = 128, 64


def tensor_map(made: Any = None) -> Any:
    """The map of a tensor that is made already, or memory for one."""
    if made is not None:
        return made
    memory = (ctypes.c_uint64 * ((_MAP_BYTES + _MAP_BORDER) // 8))()
    offset = -ctypes.addressof(memory) % _MAP_BORDER
    return (ctypes.c_uint64 * (_MAP_BYTES // 8)).from_buffer(memory, offset)


_TYPES = {
    "P": ctypes.c_void_p,
    "q": ctypes.c_int64,
    "d": ctypes.c_double,
    "?": ctypes.c_bool,
    "T": tensor_map,
}


@cache
def cuda_driver() -> Any:
    """The driver's library. Raises `RuntimeError` where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise RuntimeError("there is no CUDA driver here") from None


def cuda_call(name: str, *arguments: Any) -> None:
    """Call a function of the driver. Raises `RuntimeError` for an error, with its name."""
    driver = cuda_driver()
    status = getattr(driver, name)(*arguments)
    if status:
        told = ctypes.c_char_p()
        driver.cuGetErrorName(status, ctypes.byref(told))
        raise RuntimeError(f"{name}: {(told.value or b'unknown error').decode()}")


@lru_cache(maxsize=256)
def encoded_map(place: int, element: int, lines: int, extents: tuple[int, ...]) -> Any:
    """See `CudaModule.described`, of a tensor at a place. Raises `RuntimeError`."""
    sizes = (ctypes.c_uint64 * 4)(*extents)
    steps = (ctypes.c_uint64 * 3)(*(2 * math.prod(extents[: axis + 1]) for axis in range(3)))
    box, each = (ctypes.c_uint32 * 4)(64, 1, lines, 1), (ctypes.c_uint32 * 4)(1, 1, 1, 1)
    # Elements together, chunks moved within 128 bytes, 256 bytes fetched at a time, zeros beyond.
    kinds = map(ctypes.c_int, (0, 3, 3, 0))
    made, data = tensor_map(), ctypes.c_void_p(place)
    told = (ctypes.c_int(element), ctypes.c_uint32(4), data, sizes, steps, box, each, *kinds)
    cuda_call("cuTensorMapEncodeTiled", made, *told)
    return made


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

    def described(
        self, tensor: torch.Tensor | None, element: int, lines: int, *extents: int
    ) -> Any:
        """How the copy engine finds a dense tensor of 16-bit elements, which have this number for
        the driver: see `described_tensor` in the library of CUDA-C. None where it cannot."""
        if tensor is None:
            return tensor_map()  # one that nobody copies by
        place = tensor.data_ptr()
        fits = place % 16 == 0 and extents[0] * 2 % 16 == 0
        if not fits or not all(0 < each < 2**31 for each in extents):
            return None
        try:
            return encoded_map(place, element, lines, extents)
        except RuntimeError:  # steps too long for the engine
            return None

    def launch(
        self, device: torch.device, name: str, blocks: int, threads: int, shared: int, *given: Any
    ) -> None:
        """Launch a kernel on the current stream of a device; `given` are pairs of how C holds a
        value and the value, a tensor or None for a pointer."""
        values = [
            _TYPES[kind](value.data_ptr() if isinstance(value, torch.Tensor) else value)
            for kind, value in given
        ]
        pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        with torch.cuda.device(device):
            place = torch.cuda.current_device()
            function = self.function(place, name, shared)
            stream = ctypes.c_void_p(torch.cuda.current_stream(place).cuda_stream)
            extents = map(ctypes.c_uint, (blocks, 1, 1, threads, 1, 1, shared))
            cuda_call("cuLaunchKernel", function, *extents, stream, pointers, None)


# ---- to here ----

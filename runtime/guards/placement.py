"""Places a worker's tensors so that stray accesses are found: between forbidden pages on the CPU,
between patterns on a GPU; and conversions between arrays, tensors and bytes."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sketchc.runtime.guards.pages import GuardedBuffer

_GUARD_BYTES = 4096
_PATTERN = 0xA5


@dataclass(eq=False)
class Placement:
    """One array as `tensor` on a device, with guards around it."""

    array: Any
    tensor: torch.Tensor
    buffer: GuardedBuffer | None = None
    whole: torch.Tensor | None = None

    def stray(self, name: str, *, unchanged: bool) -> str:
        """A sentence on a write around the tensor, or into it where it must be `unchanged`; "" if
        none is found. `name` is the tensor's name in that sentence."""
        if self.buffer is not None and not self.buffer.intact():
            return f"memory before {name} was overwritten"
        if self.whole is not None:
            bytes_now = self.whole.cpu().numpy()
            if (bytes_now[:_GUARD_BYTES] != _PATTERN).any():
                return f"memory before {name} was overwritten"
            if (bytes_now[-_GUARD_BYTES:] != _PATTERN).any():
                return f"memory after {name} was overwritten"
        if unchanged and raw_bytes(self.tensor.cpu()).numpy().tobytes() != self.array.tobytes():
            return f"the input {name} was changed"
        return ""


def placement(array: Any, device: str) -> Placement:
    """A guarded copy of `array` on "cpu" or "cuda". On the CPU, an access past its end faults."""
    dtype = torch_dtype(array.dtype)
    if array.nbytes == 0:
        return Placement(array, torch.empty(array.shape, dtype=dtype, device=device))
    if device == "cpu":
        buffer = GuardedBuffer(array.ctypes.data, array.nbytes)
        memory = (ctypes.c_uint8 * array.nbytes).from_address(buffer.start)
        raw = torch.from_numpy(np.frombuffer(memory, np.uint8))
        return Placement(array, raw.view(dtype).reshape(array.shape), buffer)
    size = array.nbytes + 2 * _GUARD_BYTES
    whole = torch.full((size,), _PATTERN, dtype=torch.uint8, device=device)
    inner = whole[_GUARD_BYTES:-_GUARD_BYTES]
    inner.copy_(torch.from_numpy(array.reshape(-1).view(np.uint8)))
    return Placement(array, inner.view(dtype).reshape(array.shape), whole=whole)


def poison(tensor: torch.Tensor) -> torch.Tensor:
    """Fill `tensor` with a value that kernels do not compute (NaN, or a large integer), so that
    elements that are not written show; bool and complex tensors stay as they are. Returns it."""
    if tensor.is_floating_point():
        return tensor.fill_(float("nan"))
    if tensor.dtype in (torch.bool, torch.complex64, torch.complex128):
        return tensor
    return tensor.fill_(torch.iinfo(tensor.dtype).max - 21)


def tensor_of(array: Any) -> torch.Tensor:
    """The contiguous `array` as a tensor that shares its memory."""
    dtype = torch_dtype(array.dtype)
    if not array.size:
        return torch.empty(array.shape, dtype=dtype)
    return torch.from_numpy(array.reshape(-1).view(np.uint8)).view(dtype).reshape(array.shape)


def torch_dtype(dtype: Any) -> torch.dtype:
    """torch's dtype for a NumPy dtype, including the bf16 of ml_dtypes."""
    found: torch.dtype = getattr(torch, dtype.name)
    return found


def raw_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of `tensor`, row-major, as a uint8 tensor.

    A tensor with axes of extent 1 is contiguous whatever the strides of these axes are, and
    `reshape(-1)` keeps them; `view` takes a stride of 1 only.
    """
    if tensor.numel() == 0:
        return torch.empty(0, dtype=torch.uint8, device=tensor.device)
    plain = tensor.detach().contiguous()
    return plain.as_strided((plain.numel(),), (1,)).view(torch.uint8)

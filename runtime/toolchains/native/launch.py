"""Call a compiled native kernel in this process, on torch tensors of its target's device."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sketchc.base.types import numpy_dtype
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import host_values, sample_extents
from sketchc.lowering.abi import passed
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.registry import load_target
from sketchc.runtime.guards.placement import poison
from sketchc.runtime.tasks.worker.torch_worker import DTYPES
from sketchc.runtime.toolchains.base import CandidateError, Params, PreparedLaunch, Sizes
from sketchc.runtime.toolchains.native.session import signature
from sketchc.runtime.toolchains.native.worker import call


class NativeLaunch(PreparedLaunch):
    """A launch that calls the entry point of a kernel's shared library on torch tensors."""

    def __init__(self, kernel: Kernel, library: Path, symbols: Sizes, params: Params) -> None:
        self._library = ctypes.CDLL(str(library))
        self._kernel, self._symbols, self._params = kernel, symbols, params
        self._tensors = passed(kernel.sketch)
        self._device = load_target(kernel.target).device
        values = host_values(kernel.sketch, symbols, params)
        self._shapes = {t.name: sample_extents(t, values) for t in self._tensors}
        self._requests: dict[frozenset[str], dict[str, Any]] = {}
        self._prepared: dict[str, torch.Tensor] = {}

    def prepare(self) -> None:
        """See `PreparedLaunch`."""
        for tensor in self._tensors:
            if tensor.role is ir.Role.OUT:
                self._prepared[tensor.name] = poison(self._allocate(tensor))

    def __call__(self, given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Run the kernel; returns the outputs in call order. Raises `CandidateError`."""
        outputs: list[torch.Tensor] = []
        pointers: list[int | None] = []
        for tensor in self._tensors:
            array = given.get(tensor.name)
            match tensor.role:
                case ir.Role.IN:
                    pass
                case ir.Role.INOUT:
                    assert array is not None
                    array = array.clone()
                    outputs.append(array)
                case _:
                    allocated = self._allocate(tensor)
                    array = self._prepared.pop(tensor.name, allocated)
                    outputs.append(array)
            pointers.append(None if array is None else array.data_ptr())
        status = call(self._library, self._request(frozenset(given)), pointers)
        if status:
            raise CandidateError(f"it refused its arguments with status {status}")
        return outputs

    def _allocate(self, tensor: ir.Tensor) -> torch.Tensor:
        dtype = DTYPES[tensor.dtype.value]
        return torch.empty(self._shapes[tensor.name], dtype=dtype, device=self._device)

    def _request(self, given: frozenset[str]) -> dict[str, Any]:
        """The signature of a call with the tensors named in `given`; other optional tensors are
        absent."""
        if given not in self._requests:
            # Arrays without memory, for the checks of shapes and types alone.
            there = {
                t.name: np.broadcast_to(np.empty((), numpy_dtype(t.dtype)), self._shapes[t.name])
                for t in self._tensors
                if not t.optional or t.name in given
            }
            self._requests[given] = signature(self._kernel, self._symbols, self._params, there)
        return self._requests[given]


#: The function `launcher` of `base.Toolchain.launcher`.
launcher = NativeLaunch

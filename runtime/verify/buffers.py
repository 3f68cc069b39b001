"""Fresh buffers for one run: guard zones around every tensor, outputs poisoned, inputs on record.

A toolchain that runs the kernel in this process hands these very addresses to it; one that runs it
in a worker copies them, and keeps guard zones of its own there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from sketchc.base.types import numpy_dtype
from sketchc.ir import nodes as ir
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.inputs import poison

#: Bytes on either side of every tensor, and what they hold. 128 keeps the tensor aligned.
_GUARD_BYTES = 4096
_PATTERN = 0xA5


class Buffers:
    """The tensors of one run. `tensors` maps in, inout (filled) and out (poisoned) by name."""

    def __init__(
        self,
        binding: Binding,
        symbols: Mapping[str, int],
        values: Mapping[str, Array],
        second: bool = False,
    ) -> None:
        """`values` are the in and inout tensors that are given; `second`: the other poison."""
        shapes = binding.shapes(symbols)
        self.tensors: dict[str, Array] = {}
        self._whole: dict[str, npt.NDArray[np.uint8]] = {}
        self._inputs: dict[str, Array] = {}
        for tensor in binding.sketch.tensors:
            if tensor.role is ir.Role.WORKSPACE:
                continue
            if tensor.name in values:
                content = values[tensor.name]
            elif tensor.role is ir.Role.IN:
                continue  # an optional tensor that is absent
            else:
                content = poison(tensor.dtype, shapes[tensor.name], second=second)
            self.tensors[tensor.name] = self._guarded(tensor, content)
            if tensor.name in values:
                # The kernel never sees `values`: whatever differs from it later was written.
                self._inputs[tensor.name] = content

    def _guarded(self, tensor: ir.Tensor, content: Array) -> Array:
        whole = np.full(content.nbytes + 2 * _GUARD_BYTES, _PATTERN, np.uint8)
        self._whole[tensor.name] = whole
        inner = whole[_GUARD_BYTES : _GUARD_BYTES + content.nbytes]
        array = inner.view(numpy_dtype(tensor.dtype)).reshape(content.shape)
        array[...] = content
        return array

    def stray_writes(self) -> str:
        """What the kernel wrote where it must not, as a sentence; "" for nothing.

        A toolchain returns inout tensors as copies, so these buffers too must be unchanged.
        """
        for name, whole in self._whole.items():
            before, after = whole[:_GUARD_BYTES], whole[whole.size - _GUARD_BYTES :]
            if (before != _PATTERN).any():
                return f"memory before {name} was overwritten"
            if (after != _PATTERN).any():
                return f"memory after {name} was overwritten"
        for name, content in self._inputs.items():
            if not np.array_equal(_bits(self.tensors[name]), _bits(content)):
                return f"the input {name} was changed"
        return ""


def _bits(array: Array) -> npt.NDArray[np.uint8]:
    """The bytes of an array, so that NaNs compare equal to themselves."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

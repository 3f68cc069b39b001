"""Calling a compiled C++ kernel through ctypes, in this process or in a worker.

The arguments are those of `lowering/kernel.py`: pointers of the non-workspace tensors, symbols,
params, then the actual extents of axes that may broadcast (`X[M|1]`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import host_sample, sample_extents
from sketchc.launch.conditions import may_repeat
from sketchc.launch.symbol_sources import absent_symbols
from sketchc.runtime.toolchains.base import ToolchainError

if TYPE_CHECKING:
    import numpy as np

    from sketchc.lowering.kernel import Kernel

Arrays = Mapping[str, "np.ndarray[Any, Any]"]


def signature(
    kernel: Kernel,
    symbols: Mapping[str, int],
    params: Mapping[str, int | float | bool],
    tensors: Arrays,
) -> dict[str, Any]:
    """Everything a worker needs for one call, JSON-able.

    Raises `ToolchainError` ("launch") for a missing param, or a tensor with another shape or type.
    """
    sketch = kernel.sketch
    symbols = {**symbols, **absent_symbols(sketch, tensors)}
    scalars: list[list[Any]] = [["i", int(symbols[symbol.name])] for symbol in sketch.symbols]
    for param in sketch.params:
        given = params.get(param.name, param.default)
        if given is None:
            msg = f"param {param.name} has no value"
            raise ToolchainError(stage="launch", message=msg)
        floats = param.dtype.is_float
        scalars.append(["f", float(given)] if floats else ["i", int(given)])
    # What has no value, or a negative one, is for the entry point's checks to refuse.
    values = host_sample(sketch, symbols, params)
    shapes: list[list[Any]] = []
    for tensor in sketch.tensors:
        if tensor.role is ir.Role.WORKSPACE:
            continue
        shape = sample_extents(tensor, values)
        array = tensors.get(tensor.name)
        if array is None and tensor.optional:
            scalars += [["i", 1] for repeats in tensor.broadcast if repeats]
            shapes.append([tensor.name, "absent", [], tensor.dtype.numpy_name])
            continue
        actual = [max(0, n) for n in shape] if array is None else list(array.shape)
        _check(sketch, tensor, array, shape)
        for axis, repeats in enumerate(tensor.broadcast):
            if repeats:
                scalars.append(["i", actual[axis]])
        shapes.append([tensor.name, tensor.role.value, actual, tensor.dtype.numpy_name])
    return {"entry": kernel.entry, "tensors": shapes, "scalars": scalars}


def _check(
    sketch: ir.Sketch, tensor: ir.Tensor, array: np.ndarray[Any, Any] | None, shape: list[int]
) -> None:
    if array is None:
        if tensor.role is ir.Role.OUT:
            return
        msg = f"tensor {tensor.name} was not given"
        raise ToolchainError(stage="launch", message=msg)
    fits = len(array.shape) == len(shape) and all(
        actual == extent or (actual == 1 and may_repeat(sketch, tensor, axis))
        for axis, (actual, extent) in enumerate(zip(array.shape, shape, strict=True))
    )
    if not fits or array.dtype.name != tensor.dtype.numpy_name:
        msg = (
            f"{tensor.name} must be {tensor.dtype.numpy_name} of shape {tuple(shape)},"
            f" not {array.dtype.name} of shape {tuple(array.shape)}"
        )
        raise ToolchainError(stage="launch", message=msg)


class NativeKernel:
    """A kernel of this process: `kernel(tensors, symbols, params)` writes the given arrays."""

    def __init__(self, kernel: Kernel, library: Path) -> None:
        self.kernel = kernel
        self._library = ctypes.CDLL(str(library))

    def bind(
        self,
        tensors: Arrays,
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool] | None = None,
    ) -> BoundCall:
        """A call with all arguments fixed, for timing. Every tensor must be given, contiguous, but
        for optional ones."""
        request = signature(self.kernel, symbols, params or {}, tensors)
        for name, array in tensors.items():
            if not array.flags.c_contiguous:
                msg = f"{name} must be contiguous"
                raise ToolchainError(stage="launch", message=msg)
        names = [entry[0] for entry in request["tensors"]]
        return BoundCall(self._library, request, [tensors.get(name) for name in names])

    def __call__(
        self,
        tensors: Arrays,
        symbols: Mapping[str, int],
        params: Mapping[str, int | float | bool] | None = None,
    ) -> int:
        """Run once; returns the entry point's status."""
        return self.bind(tensors, symbols, params)()


class BoundCall:
    """One call with prepared arguments; calling it returns the status."""

    def __init__(
        self,
        library: ctypes.CDLL,
        request: Mapping[str, Any],
        arrays: list[np.ndarray[Any, Any] | None],
    ) -> None:
        self._arrays = arrays  # keeps the memory alive
        self._function = getattr(library, request["entry"])
        self._function.restype = ctypes.c_int64
        arguments: list[Any] = [
            ctypes.c_void_p(None if array is None else array.ctypes.data) for array in arrays
        ]
        for kind, value in request["scalars"]:
            arguments.append(ctypes.c_double(value) if kind == "f" else ctypes.c_int64(value))
        self._arguments = arguments

    def __call__(self) -> int:
        return int(self._function(*self._arguments))

"""Call a compiled kernel in this process, on torch tensors, by the contract of `Kernel`."""

from __future__ import annotations

import ctypes
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from sketchc import ir
from sketchc.evaluate import evaluate, host_values
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.bench.timing import as_sequence
from sketchc.runtime.frontends.arrays import numpy_dtype
from sketchc.runtime.frontends.torch_worker import DTYPES
from sketchc.runtime.toolchains.cpp_calls import call, signature

Scalar = int | float | bool
Launch = Callable[[Mapping[str, torch.Tensor]], list[torch.Tensor]]


def launcher(
    kernel: Kernel, code: Path, symbols: Mapping[str, int], params: Mapping[str, Scalar]
) -> Launch:
    """A function from in and inout tensors (by name) to new outputs, in call order.

    `code` is the shared library (C++) or the Python file. Outputs are allocated by torch at each
    call, as eager's are.
    """
    if kernel.language == "c++":
        return _native(kernel, code, symbols, params)
    return _python(kernel, code, params)


def _native(
    kernel: Kernel, library: Path, symbols: Mapping[str, int], params: Mapping[str, Scalar]
) -> Launch:
    loaded = ctypes.CDLL(str(library))
    sketch = kernel.sketch
    tensors = [tensor for tensor in sketch.tensors if tensor.role is not ir.Role.WORKSPACE]
    values = host_values(sketch, symbols, params)
    shapes = {t.name: [int(evaluate(e, values)) for e in t.extents] for t in tensors}
    # Arrays without memory, for the checks of shapes and types alone.
    stand_ins = {
        t.name: np.broadcast_to(np.empty((), numpy_dtype(t.dtype)), shapes[t.name]) for t in tensors
    }
    request = signature(kernel, symbols, params, stand_ins)

    def launch(given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        outputs, pointers = [], []
        for tensor in tensors:
            match tensor.role:
                case ir.Role.IN:
                    array = given[tensor.name]
                case ir.Role.INOUT:
                    array = given[tensor.name].clone()
                    outputs.append(array)
                case _:
                    array = torch.empty(shapes[tensor.name], dtype=DTYPES[tensor.dtype.value])
                    outputs.append(array)
            pointers.append(array.data_ptr())
        status = call(loaded, request, pointers)
        if status:
            msg = f"the kernel refused its arguments with status {status}"
            raise RuntimeError(msg)
        return outputs

    return launch


def _python(kernel: Kernel, path: Path, params: Mapping[str, Scalar]) -> Launch:
    specification = importlib.util.spec_from_file_location(f"sketchc_{kernel.name}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    wrapper = getattr(module, kernel.entry)
    roles = (ir.Role.IN, ir.Role.INOUT)
    names = [tensor.name for tensor in kernel.sketch.tensors if tensor.role in roles]

    def launch(given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        return list(as_sequence(wrapper(*(given[name] for name in names), **params)))

    return launch

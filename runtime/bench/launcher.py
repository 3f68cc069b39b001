"""Call a compiled kernel in this process, on torch tensors, by the contract of `Kernel`."""

from __future__ import annotations

import ctypes
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sketchc.base.types import numpy_dtype
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import host_values, sample_extents
from sketchc.lowering.abi import passed
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.registry import load_language
from sketchc.runtime.bench.child import Scalar, StateMismatchError
from sketchc.runtime.bench.timing import as_sequence
from sketchc.runtime.guards.placement import poison
from sketchc.runtime.sandbox.confine import import_file
from sketchc.runtime.tasks.worker.torch_worker import DTYPES, state
from sketchc.runtime.toolchains.cpp.toolchain import signature
from sketchc.runtime.toolchains.cpp.worker import call

Launch = Callable[[Mapping[str, torch.Tensor]], list[torch.Tensor]]

#: The class with the interface of the task's Model, where a file defines one.
MODEL = "ModelNew"

#: Of every model, as in the process that makes references.
SEED = 0


class CandidateError(Exception):
    """The candidate cannot be called, or raised."""


def launcher(
    kernel: Kernel, code: Path, symbols: Mapping[str, int], params: Mapping[str, Scalar]
) -> Launch:
    """A function from in and inout tensors (by name) to new outputs, in call order.

    `code` is the shared library (C++) or the Python file. Outputs are allocated by torch at each
    call, as eager's are.
    """
    if not load_language(kernel.language).hosted:
        return NativeLaunch(kernel, code, symbols, params)
    return _python(kernel, code, params)


def model_launcher(
    code: Path,
    device: str,
    init_inputs: Sequence[Any],
    states: Mapping[str, torch.Tensor] | None,
    call: Callable[[Callable[..., Any], Mapping[str, torch.Tensor]], Any],
) -> Launch:
    """A function that calls `ModelNew(*init_inputs)`, which has the parameters and buffers of the
    task's model by name; its own, with `states` None. `call` runs a model on given tensors.

    Raises `StateMismatchError` where the names or shapes do not agree.
    """
    made = getattr(import_file(code, f"sketchc_{code.stem}"), MODEL)
    torch.manual_seed(SEED)
    model = made(*init_inputs)
    if not isinstance(model, torch.nn.Module):
        raise CandidateError(f"{MODEL} is no torch.nn.Module")
    model = model.eval().to(device)
    own = state(model)
    if states is not None:
        shapes = {name: tensor.shape for name, tensor in states.items()}
        if shapes != {name: tensor.shape for name, tensor in own.items()}:
            raise StateMismatchError
        for name, tensor in states.items():
            own[name].data = tensor

    def launch(given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        return list(as_sequence(call(model, given)))

    return launch


class NativeLaunch:
    """A function of a shared library. `prepare` allocates and poisons the outputs of the next call,
    which then pays for an allocation all the same, as eager does."""

    def __init__(
        self,
        kernel: Kernel,
        library: Path,
        symbols: Mapping[str, int],
        params: Mapping[str, Scalar],
    ) -> None:
        self._library = ctypes.CDLL(str(library))
        self._kernel, self._symbols, self._params = kernel, symbols, params
        self._tensors = passed(kernel.sketch)
        values = host_values(kernel.sketch, symbols, params)
        self._shapes = {t.name: sample_extents(t, values) for t in self._tensors}
        self._requests: dict[frozenset[str], dict[str, Any]] = {}
        self._prepared: dict[str, torch.Tensor] = {}

    def prepare(self) -> None:
        """See the class."""
        for tensor in self._tensors:
            if tensor.role is ir.Role.OUT:
                self._prepared[tensor.name] = poison(self._allocate(tensor))

    def __call__(self, given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """The outputs in call order. Raises `CandidateError`."""
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
        return torch.empty(self._shapes[tensor.name], dtype=DTYPES[tensor.dtype.value])

    def _request(self, given: frozenset[str]) -> dict[str, Any]:
        """The call with these tensors; optional ones that are not among them are absent."""
        if given not in self._requests:
            # Arrays without memory, for the checks of shapes and types alone.
            there = {
                t.name: np.broadcast_to(np.empty((), numpy_dtype(t.dtype)), self._shapes[t.name])
                for t in self._tensors
                if not t.optional or t.name in given
            }
            self._requests[given] = signature(self._kernel, self._symbols, self._params, there)
        return self._requests[given]


def _python(kernel: Kernel, path: Path, params: Mapping[str, Scalar]) -> Launch:
    wrapper = getattr(import_file(path, f"sketchc_{path.stem}"), kernel.entry)
    roles = (ir.Role.IN, ir.Role.INOUT)
    names = [tensor.name for tensor in kernel.sketch.tensors if tensor.role in roles]
    outs = [t for t in kernel.sketch.tensors if t.role is ir.Role.OUT]
    needed = inspect.signature(wrapper).parameters.get("out")
    if outs and needed is not None and needed.default is inspect.Parameter.empty:
        msg = f"{kernel.entry} must be callable without `out` to be timed: eager allocates, too"
        raise CandidateError(msg)

    def launch(given: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        return list(as_sequence(wrapper(*(given.get(name) for name in names), **params)))

    return launch

"""Call a kernel or model in this process, on torch tensors, by the contract of `Kernel`."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from sketchc.ir import nodes as ir
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.registry import load_language
from sketchc.runtime.bench.child import MODEL, Scalar, StateMismatchError
from sketchc.runtime.bench.timing import as_sequence
from sketchc.runtime.sandbox.confine import import_file
from sketchc.runtime.tasks.worker.module_state import state
from sketchc.runtime.toolchains.base import CandidateError, Launch, toolchain

#: The seed of every model, as in the process that makes references.
SEED = 0


def native(kernel: Kernel) -> ModuleType | None:
    """The module that calls a kernel's compiled library; None where its host code is Python."""
    if load_language(kernel.language).hosted:
        return None
    return importlib.import_module(toolchain(kernel.target).launcher)


def launcher(
    kernel: Kernel, code: Path, symbols: Mapping[str, int], params: Mapping[str, Scalar]
) -> Launch:
    """A function from in and inout tensors (by name) to new outputs, in call order.

    `code` is the shared library or the Python file. Outputs are allocated by torch at each
    call, as in eager mode.
    """
    if (own := native(kernel)) is None:
        return _python(kernel, code, params)
    launch: Launch = own.launcher(kernel, code, symbols, params)
    return launch


def model_launcher(
    code: Path,
    device: str,
    init_inputs: Sequence[Any],
    states: Mapping[str, torch.Tensor] | None,
    call: Callable[[Callable[..., Any], Mapping[str, torch.Tensor]], Any],
) -> Launch:
    """A function that calls the model `ModelNew(*init_inputs)`, which gets `states`, the parameters
    and buffers of the task's model by name (None: it keeps its own). `call` runs a model on given
    tensors.

    Raises `StateMismatchError` where the names or shapes do not agree, and `CandidateError`.
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

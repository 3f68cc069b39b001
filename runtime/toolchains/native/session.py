"""Runs of native kernels: shared libraries whose function takes pointers (`lowering.kernel`), in a
worker process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import host_sample, sample_extents
from sketchc.launch.conditions import launch_conditions, may_repeat, refusal
from sketchc.launch.inputs import absent_symbols
from sketchc.lowering.abi import passed
from sketchc.lowering.kernel import Kernel
from sketchc.runtime.sandbox.worker import Limits, PersistentWorker, Worker
from sketchc.runtime.toolchains.base import (
    Arrays,
    Artefact,
    Params,
    Session,
    Sizes,
    Tensors,
    ToolchainError,
    reply_of,
)

if TYPE_CHECKING:
    import numpy as np

#: Bytes of address space of a run, for threads' stacks and scratch memory, besides
#: `_BYTES_PER_BYTE` for each byte of its tensors.
RUN_BYTES = 4 << 30
_BYTES_PER_BYTE = 16

#: The status of a kernel one of whose launches failed.
FAILED = -2

_HANDLER = "sketchc.runtime.toolchains.native.worker:execute"

#: The environment of runs that are not timed: threads that wait sleep, since other runs may need
#: the processor.
UNHURRIED = {"OMP_WAIT_POLICY": "passive"}


class NativeSession(Session):
    """Runs of one kernel in one worker, which keeps the kernel's library loaded. Its handler is
    `handler`, or `native.worker.execute`; with `bounded` false, it may have all address space, as a
    driver needs that reserves some for all of a device's memory."""

    def __init__(self, artefact: Artefact, handler: str = _HANDLER, bounded: bool = True) -> None:
        self._artefact = artefact
        self._module, self._bounded = handler.partition(":")[0], bounded
        self._worker = PersistentWorker(handler, self._make)
        self.workers = (self._worker,)

    def run(
        self, tensors: Tensors, symbols: Sizes, params: Params, timeout: float = 300.0
    ) -> Arrays:
        """Call the kernel once in the worker; returns its out and inout tensors by name. Raises
        `ToolchainError`."""
        request = {
            "library": str(self._artefact.library),
            "signature": signature(self._artefact.kernel, symbols, params, tensors),
        }
        result = self._worker.call(request, tensors, timeout)
        try:
            reply = reply_of(result, timeout, result.traceback or result.output)
        except ToolchainError:
            self._worker.close()  # a context of a device is unusable after an error
            raise
        if "missing" in reply:
            msg, kinds = str(reply["missing"]), ("MissingEntryError",)
            raise ToolchainError(stage="compile", message=msg, kinds=kinds)
        status = int(reply["status"])
        if status == FAILED:
            said = (result.output or "").strip().splitlines() or ["a launch failed"]
            raise ToolchainError(stage="launch", message=said[-1])
        _check_status(self._artefact.kernel, status, symbols, params)
        if reply["stray"]:
            raise ToolchainError(stage="illegal_access", message=str(reply["stray"]))
        return dict(result.arrays)

    def _make(self, tensor_bytes: int, file_bytes: int) -> Worker:
        assert self._artefact.library is not None
        memory = RUN_BYTES + _BYTES_PER_BYTE * tensor_bytes if self._bounded else None
        return Worker(
            limits=Limits(memory, file_bytes=file_bytes),
            preload=(self._module,),
            environment=UNHURRIED,
            readable=[self._artefact.library],
        )


def _check_status(kernel: Kernel, status: int, symbols: Sizes, params: Params) -> None:
    """Raise `ToolchainError` for the entry point's `status`, unless it is 0."""
    if status == 0:
        return
    if status == -1:
        msg = "the kernel could not allocate its scratch memory"
        raise ToolchainError(stage="launch", message=msg, kinds=("MemoryError",))
    broken = [c for c in launch_conditions(kernel.sketch) if c.number == status]
    if not broken:
        msg = f"the entry point returned {status}, which is no number of a launch condition"
        raise ToolchainError(stage="launch", message=msg)
    msg = refusal(kernel.sketch, broken[0], symbols, params)
    raise ToolchainError(stage="launch", message=msg, kinds=("LaunchError",))


def signature(kernel: Kernel, symbols: Sizes, params: Params, tensors: Tensors) -> dict[str, Any]:
    """Everything a worker needs for one call, JSON-able: pointers of the non-workspace tensors,
    symbols, params, then the actual extents of axes that may broadcast (`X[M|1]`).

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
    # Extents that have no value, or a negative one, are refused by the entry point's checks.
    values = host_sample(sketch, symbols, params)
    shapes: list[list[Any]] = []
    for tensor in passed(sketch):
        shape = sample_extents(tensor, values)
        array = tensors.get(tensor.name)
        if array is None and tensor.optional:
            scalars += [["i", 1] for repeats in tensor.broadcast if repeats]
            shapes.append([tensor.name, "absent", [], tensor.dtype.numpy_name])
            continue
        actual = [max(0, n) for n in shape] if array is None else list(array.shape)
        _check_tensor(sketch, tensor, array, shape)
        for axis, repeats in enumerate(tensor.broadcast):
            if repeats:
                scalars.append(["i", actual[axis]])
        shapes.append([tensor.name, tensor.role.value, actual, tensor.dtype.numpy_name])
    return {"entry": kernel.entry, "tensors": shapes, "scalars": scalars}


def _check_tensor(
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

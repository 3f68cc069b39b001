"""Handlers of the worker processes of `triton_cuda`: compile a generated file, or run it.

Generated code is only ever imported here, in a process of its own.
"""

from __future__ import annotations

import inspect
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from sketchc.base.types import DType
from sketchc.runtime.guards.host_limit import HOST_SECONDS, HostTimeoutError, host_limit
from sketchc.runtime.guards.placement import placement
from sketchc.runtime.process.array_types import Arrays
from sketchc.runtime.sandbox.inside import import_file
from sketchc.runtime.toolchains.triton_cuda.launches import Launch, TuningError, record_launches

INDEX_WIDTHS = ("int32", "int64")
#: Shared memory that one block may have, by architecture (vendor's CUDA guide, technical
#: specifications per compute capability).
_SHARED_BYTES = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448}
_LARGEST_BLOCK = 1024  # threads


class MissingEntryError(Exception):
    """The file has no function of the wrapper's name."""


class WrapperError(Exception):
    """The wrapper raised, not the compiler."""


def run_kernel(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Call the wrapper on the arrays; returns all out and inout tensors by name.

    The reply is {"device"}, or {"failure": {"stage", "message"}}. With `request["foreign"]` the
    wrapper is watched (`wrapper_guard`).
    """
    import torch

    from sketchc.runtime.guards import torch_state, wrapper_guard
    from sketchc.runtime.toolchains.triton_cuda import interpreter

    gpu = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
    if not gpu:
        os.environ["TRITON_INTERPRET"] = "1"
        interpreter.mend()
    watch = wrapper_guard.Watch() if request.get("foreign") else None
    if watch is not None:
        _count_launches(watch)  # of this call: the one before has ended
        watch.theirs = (request["source"],)
    before = None if watch is None else torch_state.first_state()
    device = "cuda" if gpu else "cpu"
    placed = {name: placement(array, device) for name, array in arrays.items()}
    tensors = request["tensors"]
    # An optional tensor that is not given is None.
    given = [placed.get(t["name"]) for t in tensors if t["role"] != "out"]
    inputs = [None if buffer is None else buffer.tensor for buffer in given]
    outs = [t["name"] for t in tensors if t["role"] == "out"]
    names = [t["name"] for t in tensors if t["role"] in ("out", "inout")]
    try:
        with wrapper_guard.watched(watch):
            wrapper = entry_of(loaded(request["source"]), request["entry"])
            keywords = dict(request["params"])
            if outs and all(name in placed for name in outs) and wrapper_guard.takes_out(wrapper):
                filled = tuple(placed[name].tensor for name in outs)
                keywords["out"] = filled if len(filled) > 1 else filled[0]
            returned = wrapper(*inputs, **keywords)
            if gpu:
                torch.cuda.synchronize()
    except Exception:
        if watch is not None and watch.refused:
            return _failed("policy", watch.verdict(0)), {}
        raise
    if before is not None and (changes := before.changes()):
        return _failed("policy", "; ".join(changes)), {}
    try:
        outputs = wrapper_guard.named_outputs(names, returned)
        found = {name: wrapper_guard.to_numpy(name, value) for name, value in outputs.items()}
    except wrapper_guard.WrongOutputsError as error:
        return _failed("wrong_shape", str(error)), {}
    elements = sum(array.size for array in found.values())
    if watch is not None and (against := watch.verdict(elements)):
        return _failed("policy", against), {}
    read = [t["name"] for t in tensors if t["role"] == "in"]
    for name, buffer in placed.items():
        if stray := buffer.stray(name, unchanged=name in read):
            return _failed("illegal_access", stray), {}
    return {"device": device}, found


def _failed(stage: str, message: str) -> dict[str, Any]:
    return {"failure": {"stage": stage, "message": message}}


def entry_of(module: ModuleType, name: str) -> Callable[..., Any]:
    """The wrapper. Raises `MissingEntryError`."""
    found = getattr(module, name, None)
    if not callable(found):
        msg = f"the file defines no function `{name}`"
        raise MissingEntryError(msg)
    function: Callable[..., Any] = found
    return function


def _count_launches(watch: Any) -> None:
    """Let the watch see every launch, in Triton's interpreter and on a GPU."""
    from triton.runtime.interpreter import GridExecutor
    from triton.runtime.jit import JITFunction

    # As Triton made them, however often this was done before in this process.
    interpreted = _PLAIN.setdefault("call", GridExecutor.__call__)
    compiled = _PLAIN.setdefault("run", JITFunction.run)

    def of_the_wrapper(grid: Any) -> Any:
        if not callable(grid):
            return grid

        def extents(*arguments: Any) -> Any:
            with watch.outside():
                return grid(*arguments)

        return extents

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        self.grid = of_the_wrapper(self.grid)
        with watch.launch():
            return interpreted(self, *arguments, **keywords)

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> Any:
        if warmup:
            return compiled(self, *arguments, grid=grid, warmup=warmup, **keywords)
        with watch.launch():
            grid = of_the_wrapper(grid)
            return compiled(self, *arguments, grid=grid, warmup=warmup, **keywords)

    GridExecutor.__call__ = call
    JITFunction.run = run


#: Triton's own ways to launch, by name.
_PLAIN: dict[str, Any] = {}
_NAME = "generated_kernel"
#: Files that this process has imported, for all runs that it serves.
_MODULES: dict[str, ModuleType] = {}


def loaded(path: str) -> ModuleType:
    """A generated file as a module, imported once."""
    if path not in _MODULES:
        _MODULES[path] = import_file(path, _NAME)
    return _MODULES[path]


# ---------------------------------------------------------------- compile


def compile_kernels(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Build every launch of the wrapper for every architecture; no GPU is touched."""
    del arrays
    try:
        return {"kernels": _compile_all(request)}, {}
    except HostTimeoutError:
        message = f"the wrapper took more than {HOST_SECONDS:g} s without its kernels"
        return _failed("timeout", message), {}


def _compile_all(request: dict[str, Any]) -> list[dict[str, Any]]:
    import torch

    with host_limit(HOST_SECONDS):
        module = import_file(request["source"], _NAME)
    wrapper = entry_of(module, request["entry"])
    examples = {
        t["name"]: torch.ones(t["extents"], dtype=getattr(torch, DType(t["dtype"]).numpy_name))
        for t in request["tensors"]
    }
    inputs = [examples[t["name"]] for t in request["tensors"] if t["role"] != "out"]
    keywords = dict(request["params"])
    parameters = inspect.signature(wrapper).parameters
    if "out" in parameters and parameters["out"].default is inspect.Parameter.empty:
        outs = tuple(examples[t["name"]] for t in request["tensors"] if t["role"] == "out")
        keywords["out"] = outs if len(outs) > 1 else outs[0]
    try:
        with host_limit(HOST_SECONDS):
            launches = record_launches(module, lambda: wrapper(*inputs, **keywords))
    except TuningError:
        raise
    except Exception as error:
        msg = f"{type(error).__name__}: {error}"
        raise WrapperError(msg) from error
    kernels = []
    for launch in launches:
        for wide in launch.index_widths(request.get("index_widths", INDEX_WIDTHS)):
            for architecture in request["architectures"]:
                own = f"sm_{architecture}" == request.get("chip")
                folder = Path(request["folder"])
                kernels.append(build(launch, wide, architecture, folder, own))
    return kernels


def build(
    launch: Launch, wide: str | None, architecture: int, folder: Path, own: bool
) -> dict[str, Any]:
    """Compile one variant; returns what people want to know about the cubin. `own`: the kernel
    was planned for this architecture, and must fit it."""
    import triton.language as tl
    from triton.runtime.errors import OutOfResources

    constants = {
        parameter.name: launch.arguments[parameter.name]
        for parameter in launch.function.params
        if parameter.is_constexpr
    }
    if wide is not None:
        constants["INDEX"] = getattr(tl, wide)
    compiled = launch.compile(constants, architecture)
    threads = 32 * compiled.metadata.num_warps
    if own and threads > _LARGEST_BLOCK:
        raise OutOfResources(threads, _LARGEST_BLOCK, "threads")
    limit = _SHARED_BYTES.get(architecture)
    if own and limit is not None and compiled.metadata.shared > limit:
        raise OutOfResources(compiled.metadata.shared, limit, "shared memory")
    name = f"{launch.function.__name__}.{wide or 'fixed'}.sm_{architecture}"
    cubin, ptx = folder / f"{name}.cubin", folder / f"{name}.ptx"
    cubin.write_bytes(compiled.asm["cubin"])
    ptx.write_text(compiled.asm["ptx"])
    return {
        "kernel": launch.function.__name__,
        "architecture": f"sm_{architecture}",
        "index": wide or "int32",
        "num_warps": compiled.metadata.num_warps,
        "num_stages": compiled.metadata.num_stages,
        "shared_bytes": compiled.metadata.shared,
        "cubin": str(cubin),
        "ptx": str(ptx),
        **_resources(cubin),
    }


def _resources(cubin: Path) -> dict[str, int]:
    """Registers per thread and bytes of local memory (spills), as the driver will see them."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    command = [str(tool), "--dump-resource-usage", str(cubin)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        return {}
    return {"registers": int(found[1]), "spill_bytes": int(found[2])}

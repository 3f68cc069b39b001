"""Handlers of the worker processes of `triton_cuda`: compile a generated file, or run it.

Generated code is only ever imported here, in a process of its own.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from sketchc.runtime.toolchains.host_limit import HOST_SECONDS, HostTimeoutError, host_limit
from sketchc.runtime.toolchains.placement import placement
from sketchc.runtime.worker_child import Arrays

_TORCH = {
    "f64": "float64",
    "f32": "float32",
    "bf16": "bfloat16",
    "f16": "float16",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "u32": "uint32",
    "bool": "bool",
}
INDEX_WIDTHS = ("int32", "int64")
_LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")
#: Shared memory that one block may have, by architecture (vendor's CUDA guide, technical
#: specifications per compute capability).
_SHARED_BYTES = {80: 166_912, 86: 101_376, 89: 101_376, 90: 232_448}
_LARGEST_GRID = (2**31 - 1, 65535, 65535)
_LARGEST_BLOCK = 1024  # threads
_ALIGNMENT = 16


class MissingEntryError(Exception):
    """The file has no function of the wrapper's name."""


class TuningError(Exception):
    """The file tunes itself."""


class WrapperError(Exception):
    """The wrapper raised, not the compiler."""


def run_kernel(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Call the wrapper on the arrays; returns all out and inout tensors by name.

    The reply is {"device"}, or {"failure": {"stage", "message"}}. With `request["foreign"]` the
    wrapper is watched (`wrapper_guard`).
    """
    import torch

    from sketchc.runtime.toolchains import triton_interpreter, wrapper_guard

    gpu = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
    if not gpu:
        os.environ["TRITON_INTERPRET"] = "1"
        triton_interpreter.mend()
    watch = wrapper_guard.Watch() if request.get("foreign") else None
    if watch is not None:
        _count_launches(watch)
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
            wrapper = entry_of(_load(request["source"]), request["entry"])
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

    interpreted, compiled = GridExecutor.__call__, JITFunction.run

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


def _load(path: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location("generated_kernel", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["generated_kernel"] = module
    specification.loader.exec_module(module)
    return module


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
        module = _load(request["source"])
    wrapper = entry_of(module, request["entry"])
    examples = {
        t["name"]: torch.ones(t["extents"], dtype=getattr(torch, _TORCH[t["dtype"]]))
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
                kernels.append(_build(launch, wide, architecture, folder, own))
    return kernels


class Launch:
    """One recorded launch: the kernel and its bound arguments."""

    def __init__(self, function: Any, arguments: dict[str, Any], options: dict[str, Any]) -> None:
        self.function = function
        self.arguments = arguments
        self.options = options

    def index_widths(self, wanted: Sequence[str]) -> Sequence[str | None]:
        """The index types to build: those wanted where the wrapper chooses, else the kernel's."""
        return wanted if "INDEX" in self.arguments else (None,)


def check_grid(kernel: str, grid: Any) -> None:
    """Raise `LaunchError` for a launch grid that CUDA refuses."""
    places = grid if isinstance(grid, tuple | list) else (grid,)
    whole = all(isinstance(n, int) and not isinstance(n, bool) for n in places)
    fits = whole and all(0 <= n <= most for n, most in zip(places, _LARGEST_GRID, strict=False))
    if not 0 < len(places) <= len(_LARGEST_GRID) or not fits:
        limits = ", ".join(map(str, _LARGEST_GRID))
        msg = f"launch of {kernel}: the grid {grid} is not up to three integers, at most {limits}"
        raise LaunchError(msg)


class LaunchError(ValueError):
    """A launch that CUDA would refuse."""


class _Recorder:
    """Stands in for a kernel: `kernel[grid](...)` is noted, not run."""

    def __init__(self, function: Any, launches: list[Launch]) -> None:
        self.function = function
        self.launches = launches

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(*args: Any, **kwargs: Any) -> None:
            options = {k: kwargs.pop(k) for k in _LAUNCH_OPTIONS if k in kwargs}
            try:
                bound = self.function.signature.bind(*args, **kwargs)
            except TypeError as error:
                msg = f"launch of {self.function.__name__}: {error}"
                raise TypeError(msg) from None
            bound.apply_defaults()
            arguments = dict(bound.arguments)
            check_grid(self.function.__name__, grid(arguments) if callable(grid) else grid)
            self.launches.append(Launch(self.function, arguments, options))

        return launch


def record_launches(module: ModuleType, call: Callable[[], object]) -> list[Launch]:
    """The launches that `call` makes of the module's kernels, none of them executed."""
    launches: list[Launch] = []
    with _recording(module, launches):
        call()
    return launches


@contextmanager
def _recording(module: ModuleType, launches: list[Launch]) -> Iterator[None]:
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    for name, value in vars(module).items():
        if isinstance(value, Autotuner | Heuristics):
            msg = f"{name}: triton.autotune and triton.heuristics are not supported; choose values"
            raise TuningError(msg)
    kernels = {
        name: value for name, value in vars(module).items() if isinstance(value, JITFunction)
    }
    try:
        for name, function in kernels.items():
            setattr(module, name, _Recorder(function, launches))
        yield
    finally:
        # Kernels find the device functions that they call in the module.
        for name, function in kernels.items():
            setattr(module, name, function)


def _build(
    launch: Launch, wide: str | None, architecture: int, folder: Path, own: bool
) -> dict[str, Any]:
    """Compile one variant; returns what people want to know about the cubin. `own`: the kernel
    was planned for this architecture, and must fit it."""
    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.runtime.errors import OutOfResources

    constants = {
        parameter.name: launch.arguments[parameter.name]
        for parameter in launch.function.params
        if parameter.is_constexpr
    }
    if wide is not None:
        constants["INDEX"] = getattr(tl, wide)
    signature: dict[str, str] = {}
    aligned: dict[tuple[int], list[list[Any]]] = {}
    for position, name in enumerate(launch.function.arg_names):
        if name in constants:
            signature[name] = "constexpr"
            continue
        signature[name], is_aligned = _argument_type(launch.arguments[name])
        if is_aligned:
            aligned[(position,)] = [["tt.divisibility", _ALIGNMENT]]
    source = ASTSource(launch.function, signature, constants, aligned)
    target = GPUTarget("cuda", architecture, 32)
    compiled = triton.compile(source, target=target, options=launch.options)
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


def _argument_type(value: Any) -> tuple[str, bool]:
    """Triton's name of a run-time argument's type, and whether it is a multiple of 16."""
    match value:
        case bool():
            return "i1", False
        case int():
            narrow = -(2**31) <= value < 2**31
            return "i32" if narrow else "i64", value % _ALIGNMENT == 0
        case float():
            return "fp32", False
        case _:
            from triton.runtime.jit import type_canonicalisation_dict

            name = str(value.dtype).removeprefix("torch.")
            return f"*{type_canonicalisation_dict[name]}", True


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

"""Handlers of the worker processes of `triton_cuda`: compile a generated file, run it, or trace it.

Generated code is imported only here, in a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import torch

from sketchc.base.types import DType
from sketchc.runtime.guards.host_limit import HOST_SECONDS, HostTimeoutError, host_limit
from sketchc.runtime.guards.placement import tensor_of
from sketchc.runtime.process.messages import Arrays, failure
from sketchc.runtime.sandbox.confine import import_file
from sketchc.runtime.toolchains.guarded_call import entry_of, guarded_call, watch_of
from sketchc.runtime.toolchains.tracer import Tracer, bound_call, names_of, states_of

#: Compile options that a launch may have besides the kernel's arguments.
_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "enable_fp_fusion")
_LARGEST_GRID = (2**31 - 1, 65535, 65535)
ALIGNMENT = 16


class TuningError(Exception):
    """The kernel's file has a `triton.autotune` or `triton.heuristics`."""


@attrs.frozen
class Launch:
    """One recorded launch: the kernel, its bound arguments, compile options, and the grid's extents
    as one number or a sequence."""

    function: Any
    arguments: dict[str, Any]
    options: dict[str, Any]
    grid: Any

    def types(
        self, constants: Mapping[str, Any]
    ) -> tuple[dict[str, str], dict[tuple[int], list[list[Any]]]]:
        """The parameters' types by name ("constexpr" for those in `constants`), and by position the
        attribute of those that are multiples of 16, as `triton.compiler.ASTSource` takes both."""
        signature: dict[str, str] = {}
        aligned: dict[tuple[int], list[list[Any]]] = {}
        for position, name in enumerate(self.function.arg_names):
            if name in constants:
                signature[name] = "constexpr"
                continue
            value = self.arguments[name]
            signature[name], is_aligned = argument_type(value)
            if isinstance(value, torch.Tensor):
                # Buffers themselves are aligned to far more than 16 bytes.
                is_aligned = value.storage_offset() * value.element_size() % ALIGNMENT == 0
            if is_aligned:
                aligned[(position,)] = [["tt.divisibility", ALIGNMENT]]
        return signature, aligned

    def compile(self, constants: Mapping[str, Any], architecture: int) -> Any:
        """The kernel as Triton compiles it for sm_`architecture` and the values `constants`."""
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        signature, aligned = self.types(constants)
        source = ASTSource(self.function, signature, constants, aligned)
        target = GPUTarget("cuda", architecture, 32)
        return triton.compile(source, target=target, options=self.options)

    def index_widths(self, wanted: Sequence[str]) -> Sequence[str | None]:
        """The index types to build: `wanted` where the wrapper passes the kernel an `INDEX` type,
        else (None,), which is the kernel's own."""
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


def bound_launch(
    function: Any, given: Sequence[Any], keywords: Mapping[str, Any], grid: Any
) -> Launch:
    """One launch of a jitted function with its arguments bound and its grid evaluated. Raises
    `TypeError` for arguments that do not fit, and `LaunchError`."""
    options = {name: value for name, value in keywords.items() if name in _OPTIONS}
    named = {name: value for name, value in keywords.items() if name not in _OPTIONS}
    try:
        bound = function.signature.bind(*given, **named)
    except TypeError as error:
        raise TypeError(f"launch of {function.__name__}: {error}") from None
    bound.apply_defaults()
    arguments = dict(bound.arguments)
    places = grid(arguments) if callable(grid) else grid
    check_grid(function.__name__, places)
    return Launch(function, arguments, options, places)


@contextmanager
def recording(module: ModuleType, note: Callable[[Launch], None]) -> Iterator[None]:
    """Pass launches to `note` instead of executing them. Raises `TuningError` for a `module` with
    autotuned kernels."""
    from triton.runtime.autotuner import Autotuner, Heuristics

    for name, value in vars(module).items():
        if isinstance(value, Autotuner | Heuristics):
            msg = f"{name}: triton.autotune and triton.heuristics are not supported; choose values"
            raise TuningError(msg)
    with noting(note):
        yield


@contextmanager
def noting(note: Callable[[Launch], None]) -> Iterator[None]:
    """Pass launches of jitted functions to `note` instead of executing them."""
    from triton.runtime.jit import JITFunction

    def run(self: Any, *arguments: Any, grid: Any, warmup: bool, **keywords: Any) -> None:
        note(bound_launch(self, arguments, keywords, grid))

    real, JITFunction.run = JITFunction.run, run
    try:
        yield
    finally:
        JITFunction.run = real


def argument_type(value: Any) -> tuple[str, bool]:
    """Triton's name of a run-time argument's type, and whether it is a multiple of 16."""
    match value:
        case bool():
            return "i1", False
        case int():
            narrow = -(2**31) <= value < 2**31
            return "i32" if narrow else "i64", value % ALIGNMENT == 0
        case float():
            return "fp32", False
        case _:
            from triton.runtime.jit import type_canonicalisation_dict

            name = str(value.dtype).removeprefix("torch.")
            return f"*{type_canonicalisation_dict[name]}", True


INDEX_WIDTHS = ("int32", "int64")
_LARGEST_BLOCK = 1024  # threads


class WrapperError(Exception):
    """The wrapper, not the compiler, raised an exception."""


def run_kernel(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Call the wrapper on the arrays; returns all out and inout tensors by name.

    The reply is {"device"}, or {"failure": {"stage", "message"}}. With `request["foreign"]` the
    wrapper is watched (`wrapper_guard`).
    """
    from sketchc.runtime.toolchains.triton_cuda import interpreter

    gpu = torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1"
    if not gpu:
        os.environ["TRITON_INTERPRET"] = "1"
        interpreter.mend()
    watch = watch_of(request)
    if watch is not None:
        _count_launches(watch)  # replaces the watch of the previous call
    device = "cuda" if gpu else "cpu"
    return guarded_call(request, arrays, device, watch, lambda: loaded(request["source"]))


def _count_launches(watch: Any) -> None:
    """Report every launch to `watch`, in Triton's interpreter and on a GPU, there also of what was
    compiled before."""
    from triton.compiler import CompiledKernel
    from triton.runtime.interpreter import GridExecutor
    from triton.runtime.jit import JITFunction

    # Triton's own functions, even where this process has replaced them before.
    interpreted = _PLAIN.setdefault("call", GridExecutor.__call__)
    compiled = _PLAIN.setdefault("run", JITFunction.run)
    launcher = _PLAIN.setdefault("launcher", CompiledKernel.__getitem__)
    # A module keeps the launchers that it got in one request for those behind it.
    _PLAIN["watch"] = watch

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

    def launcher_of(self: Any, grid: Any) -> Any:
        launch = launcher(self, grid)

        def again(*arguments: Any, **keywords: Any) -> Any:
            with _PLAIN["watch"].launch():
                return launch(*arguments, **keywords)

        return again

    GridExecutor.__call__ = call
    JITFunction.run = run
    CompiledKernel.__getitem__ = launcher_of


#: Triton's own functions that launch a kernel: "call" (interpreted), "run" (compiled), and
#: "launcher" (compiled before); and the "watch" of the present request.
_PLAIN: dict[str, Any] = {}
_NAME = "generated_kernel"
#: Files that this process has imported, for all runs that it serves.
_MODULES: dict[str, ModuleType] = {}


def loaded(path: str) -> ModuleType:
    """The generated file at `path` as a module, imported once per process."""
    if path not in _MODULES:
        _MODULES[path] = import_file(path, _NAME)
    return _MODULES[path]


# ---------------------------------------------------------------- compile


def prepare() -> None:
    """In the template: have Triton hash all its own files, once, for the keys of its cache."""
    with suppress(ImportError):  # other versions have it in another module
        from triton.runtime.cache import triton_key

        triton_key()


def compile_kernels(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Compile every launch of the wrapper for every architecture, without a GPU. The reply is
    {"kernels"} (see `build`) or {"failure"}."""
    try:
        return {"kernels": _compile_all(request)}, {}
    except HostTimeoutError:
        message = f"the wrapper took more than {HOST_SECONDS:g} s without its kernels"
        return failure("timeout", message), {}


def _compile_all(request: dict[str, Any]) -> list[dict[str, Any]]:
    with host_limit(HOST_SECONDS):
        module = import_file(request["source"], _NAME)
    wrapper = entry_of(module, request)
    examples = {
        t["name"]: torch.ones(t["extents"], dtype=getattr(torch, DType(t["dtype"]).numpy_name))
        for t in request["tensors"]
    }
    call = bound_call(wrapper, request, examples, needed=True)
    try:
        launches: list[Launch] = []
        with host_limit(HOST_SECONDS), recording(module, launches.append):
            call()
    except TuningError:
        raise
    except Exception as error:
        raise WrapperError(f"{type(error).__name__}: {error}") from error
    kernels = []
    for launch in launches:
        for wide in launch.index_widths(request.get("index_widths", INDEX_WIDTHS)):
            for architecture in request["architectures"]:
                own = f"sm_{architecture}" == request.get("chip")
                shared = request["shared"] if own else None
                folder = Path(request["folder"])
                kernels.append(build(launch, wide, architecture, folder, shared))
    return kernels


def build(
    launch: Launch, wide: str | None, architecture: int, folder: Path, shared: int | None
) -> dict[str, Any]:
    """Compile one variant of a launch, with the index type `wide`, into `folder`; returns facts on
    the cubin for the user. `shared`: the kernel was planned for a chip of this architecture, with
    so many bytes of shared memory for a block, and must fit it: raises `OutOfResources` where it
    does not."""
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
    if shared is not None and threads > _LARGEST_BLOCK:
        raise OutOfResources(threads, _LARGEST_BLOCK, "threads")
    if shared is not None and compiled.metadata.shared > shared:
        raise OutOfResources(compiled.metadata.shared, shared, "shared memory")
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
    """Registers per thread and bytes of local memory (spills) of a cubin, by cuobjdump."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    command = [str(tool), "--dump-resource-usage", str(cubin)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    if found is None:
        return {}
    return {"registers": int(found[1]), "spill_bytes": int(found[2])}


# ---------------------------------------------------------------- trace
# Launches are specialised (alignment, arguments that are 1) as by Triton's own launcher
# (triton.runtime.jit), so that the code that runs is the code that users will run.


#: The artefacts built in this process (see `built_launch`), by a hash of all that they depend on.
_BUILT: dict[str, dict[str, Any]] = {}


def trace(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """The worker's handler that records a wrapper's launches and compiles them: see `tracer`.
    `request` is that of `run_kernel`, with "states" (how many are among `arrays`), "architecture"
    (90 for sm_90) and "folder" (for cubins). The reply is {"launches", "done"}; the returned arrays
    are the contents of buffers."""
    given, states = states_of(arrays, request["states"])
    tensors = {name: tensor_of(array) for name, array in given.items()}
    module = loaded(request["source"])
    call = bound_call(entry_of(module, request), request, tensors)
    tracer = Tracer(tensors, states)

    def note(launch: Launch) -> None:
        record = _written(launch, tracer)
        if all(record["grid"]):
            tracer.launch({**record, "launch": launch})

    with recording(module, note):
        done, contents = tracer.trace(call, names_of(request, "out", "inout"))
    for record in tracer.launches:
        launch = record.pop("launch")
        record["artefact"] = built_launch(launch, request["architecture"], Path(request["folder"]))
    return {"launches": tracer.launches, "done": done}, contents


def _written(launch: Launch, tracer: Tracer) -> dict[str, Any]:
    places = launch.grid if isinstance(launch.grid, tuple | list) else (launch.grid,)
    constants, arguments = constants_of(launch), []
    for name, value in launch.arguments.items():
        if name not in constants:
            kind, _ = argument_type(value)
            arguments.append({"name": name, **tracer.argument(value, kind)})
    return {
        "kernel": launch.function.__name__,
        "grid": [*places, 1, 1][:3],
        "arguments": arguments,
    }


def constants_of(launch: Launch) -> dict[str, Any]:
    """The parameters whose values are compiled into the code: constexprs, None, and integers 1."""
    found = {}
    for parameter in launch.function.params:
        value = launch.arguments[parameter.name]
        one = type(value) is int and value == 1 and not parameter.do_not_specialize
        if parameter.is_constexpr or value is None or one:
            found[parameter.name] = value
    return found


def built_launch(launch: Launch, architecture: int, folder: Path) -> dict[str, Any]:
    """Compile a launch, once per process; returns {"cubin": file, "function": its name in the file,
    "threads": per block, "shared": bytes per block, "scratch": bytes of scratch memory per
    program}."""
    constants = constants_of(launch)
    types = launch.types(constants)
    parts = (launch.function.__name__, constants, *types, launch.options, architecture)
    key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
    if key not in _BUILT:
        compiled = launch.compile(constants, architecture)
        metadata = compiled.metadata
        if getattr(metadata, "num_ctas", 1) != 1:
            msg = f"{launch.function.__name__}: clusters of blocks are not launched"
            raise NotImplementedError(msg)
        cubin = folder / f"{launch.function.__name__}.{key}.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        _BUILT[key] = {
            "cubin": str(cubin),
            "function": metadata.name,
            "threads": 32 * metadata.num_warps,
            "shared": metadata.shared,
            "scratch": getattr(metadata, "global_scratch_size", 0),
        }
    return _BUILT[key]

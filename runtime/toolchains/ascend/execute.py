"""Run a generated wrapper with its launches going through the Ascend front end and this CPU.

`execute` is the handler of a worker process (`runtime.worker`). The wrapper is the real one, on
torch's CPU tensors; the module `triton` is a stand-in that compiles and runs each launch.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import random
import sys
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sketchc.runtime.toolchains import wrapper_guard
from sketchc.runtime.toolchains.ascend import frontend, standin
from sketchc.runtime.toolchains.ascend.buffers import GuardedBuffer
from sketchc.runtime.toolchains.ascend.environment import cache_folder, find_tools
from sketchc.runtime.toolchains.ascend.library import UnsupportedLinalgError
from sketchc.runtime.toolchains.ascend.linalg import Function
from sketchc.runtime.toolchains.ascend.pipeline import BuildError, build
from sketchc.runtime.toolchains.host_limit import (
    HOST_SECONDS,
    HostTimeoutError,
    host_limit,
    off_the_clock,
)
from sketchc.runtime.worker import run_worker
from sketchc.runtime.worker_child import exception_kinds

_POINTERS: dict[torch.dtype, str] = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.int16: "*i16",
    torch.int8: "*i8",
    torch.uint8: "*u8",
    torch.uint32: "*u32",
    torch.bool: "*i1",
}
_SCALARS: dict[str, Any] = {
    "i1": ctypes.c_bool,
    "i8": ctypes.c_int8,
    "i16": ctypes.c_int16,
    "i32": ctypes.c_int32,
    "i64": ctypes.c_int64,
    "f32": ctypes.c_float,
    "f64": ctypes.c_double,
}
FRONTEND_TIMEOUT = 120.0


class CompileError(Exception):
    """The front end refuses a kernel; `kinds` are the types of its exceptions."""

    def __init__(self, message: str, kinds: tuple[str, ...] = ()) -> None:
        self.kinds = kinds
        super().__init__(message)


class FrontEndTimeoutError(Exception):
    """The front end takes too long."""


class MissingEntryError(Exception):
    """The file has no function of the wrapper's name."""


class IllegalAccessError(Exception):
    """A kernel wrote before the start of a buffer."""


class Machine:
    """Compiles launches and, unless `dry`, runs them.

    `order` of a launch's programs is "forward", "reversed" or "shuffled" (by a fixed seed): the
    results may not depend on it.
    """

    def __init__(self, source: Path, python: str, chip: str, order: str, dry: bool) -> None:
        tools = find_tools()
        if tools is None:
            message = "the MLIR tools have gone"
            raise RuntimeError(message)
        self.source, self.python, self.chip = source, python, chip
        self.order, self.dry, self.tools = order, dry, tools
        self.text = source.read_text()
        self.launches: list[dict[str, Any]] = []

    def launch(self, launch: standin.Launch) -> None:
        """Compile and run one launch."""
        reply = self.front_end(launch)
        library, function = build(reply["linalg"], self.tools)
        record: dict[str, Any] = {"kernel": launch.kernel, "grid": launch.grid}
        if reply["rewritten"]:
            record["blocks read and written back"] = reply["rewritten"]
        if not self.dry and launch.grid[0] * launch.grid[1] * launch.grid[2] > 0:
            arguments = {name: launch.arguments[name] for name in reply["arguments"]}
            record["bytes"] = run_library(library, function, arguments, launch.grid, self.order)
        self.launches.append(record)

    def front_end(self, launch: standin.Launch) -> dict[str, Any]:
        """The front end's reply for a launch (`frontend.compile_kernel`), kept in the cache."""
        request = {
            "file": str(self.source),
            "kernel": launch.kernel,
            "chip": self.chip,
            "options": {k: v for k, v in launch.options.items() if k == "multibuffer"},
            "arguments": [(k, *_specialise(k, v)) for k, v in launch.arguments.items()],
            "constants": {k: _constant(v) for k, v in launch.constants.items()},
        }
        version = Path(frontend.__file__).read_text()
        parts = (self.text, json.dumps({**request, "file": ""}), version, self.python)
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        kept = cache_folder() / "linalg" / key[:2] / f"{key}.json"
        if kept.exists():
            reply: dict[str, Any] = json.loads(kept.read_text())
        else:
            handler = f"{frontend.__file__}:compile_kernel"
            result = run_worker(
                handler,
                request,
                python=self.python,
                timeout=FRONTEND_TIMEOUT,
                own_group=False,
                # Whatever the user's is: it must compile here.
                environment={"TRITON_INTERPRET": "0"},
            )
            if result.timed_out:
                message = f"the triton-ascend front end took more than {FRONTEND_TIMEOUT:g} s"
                raise FrontEndTimeoutError(message)
            if result.reply is None:
                words = f"{result.describe()}\n{result.output}".strip()
                message = f"the triton-ascend front end refuses {launch.kernel}: {words}"
                raise CompileError(message, result.kinds)
            reply = dict(result.reply)
            kept.parent.mkdir(parents=True, exist_ok=True)
            partial = kept.with_suffix(f".{launch.kernel}.{id(self)}.part")
            partial.write_text(json.dumps(reply))
            partial.replace(kept)
        return reply


def _specialise(name: str, value: Any) -> tuple[str, Any]:
    """(type, representative value) of an argument, as Triton's launcher sees it."""
    match value:
        case torch.Tensor():
            return _POINTERS[value.dtype], None
        case bool():
            return "i1", False
        case int():
            kind = "i32" if -(2**31) <= value < 2**31 else "i64"
            return kind, 1 if value == 1 else 16 if value % 16 == 0 else 3
        case float():
            return "fp32", 0.5
        case None:
            return "*i8", None
    message = f"the launch passes {name} = {type(value).__name__}"
    raise standin.LaunchError(message)


def _constant(value: Any) -> Any:
    return {"tl": value.name} if isinstance(value, standin.Named) else value


def run_library(
    library: Path,
    function: Function,
    arguments: Mapping[str, Any],
    grid: tuple[int, int, int],
    order: str,
) -> int:
    """Run a built kernel over its grid; returns the most bytes that one program held.

    Raises `IllegalAccessError`; a fault behind a buffer ends the process, with a line that says so.
    """
    code = ctypes.CDLL(str(library))
    code.sketchc_launch.restype = ctypes.c_int64
    guards: dict[int, tuple[str, GuardedBuffer]] = {}
    pointers = (ctypes.c_void_p * max(1, len(arguments)))()
    lengths = (ctypes.c_int64 * max(1, len(arguments)))()
    keep = []
    if len(arguments) != len(function.arguments):
        message = f"{function.name} takes {len(function.arguments)} arguments, not {len(arguments)}"
        raise RuntimeError(message)
    try:
        for i, (name, value) in enumerate(arguments.items()):
            if function.arguments[i].buffer:
                guard = _guard(guards, name, value)
                offset = value.data_ptr() - guard.source
                pointers[i] = guard.start + offset
                lengths[i] = (guard.size - offset) // value.element_size()
            else:
                scalar = _SCALARS[function.arguments[i].element](value)
                keep.append(scalar)
                pointers[i] = ctypes.addressof(scalar)
        _name_buffers(code, guards)
        count = grid[0] * grid[1] * grid[2]
        numbers = (ctypes.c_int64 * count)(*_ordered(count, order))
        extents = (ctypes.c_int32 * 3)(*grid)
        held = int(code.sketchc_launch(pointers, lengths, numbers, ctypes.c_int64(count), extents))
        for name, guard in guards.values():
            if not guard.intact():
                message = f"{function.name} writes before the start of {name}"
                raise IllegalAccessError(message)
            guard.copy_back()
        return held
    finally:
        for _, guard in guards.values():
            guard.close()


def _guard(
    guards: dict[int, tuple[str, GuardedBuffer]], name: str, tensor: torch.Tensor
) -> GuardedBuffer:
    """The guarded copy of a tensor's storage; tensors that share a storage share the copy."""
    storage = tensor.untyped_storage()
    key = storage.data_ptr()
    if key == 0 or storage.nbytes() == 0:
        key = -len(guards) - 1
    if key not in guards:
        guards[key] = name, GuardedBuffer(storage.data_ptr(), storage.nbytes())
    return guards[key][1]


def _name_buffers(code: ctypes.CDLL, guards: Mapping[int, tuple[str, GuardedBuffer]]) -> None:
    code.sketchc_forget_buffers()
    for name, guard in guards.values():
        start, end = ctypes.c_size_t(guard.start), ctypes.c_size_t(guard.start + guard.size)
        code.sketchc_name_buffer(start, end, name.encode())


def _ordered(count: int, order: str) -> list[int]:
    numbers = list(range(count))
    match order:
        case "forward":
            pass
        case "reversed":
            numbers.reverse()
        case "shuffled":
            random.Random(0).shuffle(numbers)
        case _:
            message = f"unknown program order {order!r}"
            raise ValueError(message)
    return numbers


def _load(request: Mapping[str, Any], watch: wrapper_guard.Watch | None) -> tuple[Any, Machine]:
    source = Path(request["source"])
    machine = Machine(source, request["python"], request["chip"], request["order"], request["dry"])

    def launch(launched: standin.Launch) -> None:
        around = nullcontext() if watch is None else watch.launch()
        with around, off_the_clock():
            machine.launch(launched)

    standin.install(launch)
    namespace: dict[str, Any] = {"__name__": "generated", "__file__": str(source)}
    sys.path.insert(0, str(source.parent))
    exec(compile(machine.text, str(source), "exec"), namespace)
    wrapper = namespace.get(request["entry"])
    if not callable(wrapper):
        message = f"the file defines no function `{request['entry']}`"
        raise MissingEntryError(message)
    return wrapper, machine


def execute(
    request: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]
) -> tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Run the wrapper once.

    `request`: "source" (file), "entry", "python" (of the front end), "chip", "order", "dry" (stop
    at building the kernels), "foreign" (watch the wrapper, see `wrapper_guard`), "params", and
    names of tensors in call order: "inputs" (in and inout), "outputs" (out), "results" (out and
    inout), "unchanged" (in). `arrays` holds them all.

    The reply tells the launches, or {"failure": {"stage", "message", "log", "kinds"}}. Arrays come
    back for every result, unless dry.
    """
    torch.set_num_threads(1)
    tensors = {name: _tensor(array) for name, array in arrays.items()}
    before = {name: tensors[name].clone() for name in request["unchanged"] if name in tensors}
    watch = wrapper_guard.Watch() if request.get("foreign") and not request["dry"] else None
    clock = host_limit(HOST_SECONDS) if request["dry"] else nullcontext()
    try:
        with wrapper_guard.watched(watch), clock:
            wrapper, machine = _load(request, watch)
            # An optional tensor that is not given is None.
            inputs = [tensors.get(name) for name in request["inputs"]]
            returned = wrapper(*inputs, **_keywords(request, tensors, wrapper))
        results = {} if request["dry"] else _results(request["results"], returned)
    except HostTimeoutError:
        message = f"the wrapper took more than {HOST_SECONDS:g} s without its kernels"
        return {"failure": _told("timeout", message)}, {}
    except Exception as error:
        if watch is not None and watch.refused:
            return {"failure": _told("policy", watch.verdict(0))}, {}
        return {"failure": _failure(error)}, {}
    elements = sum(array.size for array in results.values())
    if watch is not None and (against := watch.verdict(elements)):
        return {"failure": _told("policy", against)}, {}
    changed = [n for n, old in before.items() if not torch.equal(_bits(old), _bits(tensors[n]))]
    if changed:
        message = f"the kernel changes its input {', '.join(changed)}"
        return {"failure": _told("launch", message, kinds=["IllegalAccessError"])}, {}
    return {"launches": machine.launches}, results


def _keywords(
    request: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], wrapper: Any
) -> dict[str, Any]:
    """Params, and the poisoned outputs where the wrapper takes some."""
    outputs = tuple(tensors[name] for name in request["outputs"])
    keywords = dict(request["params"])
    # A dry run makes its own outputs where it can, as most callers of a wrapper will.
    if outputs and wrapper_guard.takes_out(wrapper, needed=request["dry"]):
        keywords["out"] = outputs if len(outputs) > 1 else outputs[0]
    return keywords


def _results(names: list[str], returned: Any) -> dict[str, np.ndarray[Any, Any]]:
    """What a wrapper returns, by name. Raises `wrapper_guard.WrongOutputsError`."""
    outputs = wrapper_guard.named_outputs(names, returned)
    return {name: wrapper_guard.to_numpy(name, value) for name, value in outputs.items()}


def _told(
    stage: str, message: str, log: str = "", kinds: list[str] | None = None
) -> dict[str, Any]:
    return {"stage": stage, "message": message, "log": log, "kinds": kinds or []}


def _failure(error: Exception) -> dict[str, Any]:
    """What an exception in the wrapper or below it means, for `ToolchainError`."""
    log = traceback.format_exc()
    name = f"{type(error).__name__}: "
    stage = "launch"
    kinds = exception_kinds(error)
    match error:
        case CompileError():
            stage, name = "compile", ""
            kinds = [*error.kinds, *kinds]
        case BuildError():
            stage, name, log = "compile", "", f"{error.log}\n{log}"
        case UnsupportedLinalgError():
            stage, name = "compile", ""
        case FrontEndTimeoutError():
            stage, name, log = "timeout", "", ""
        case wrapper_guard.WrongOutputsError():
            stage, name, log = "wrong_shape", "", ""
        case SyntaxError() | MissingEntryError():
            stage = "compile"
        case standin.LaunchError() | IllegalAccessError() | ValueError():
            name = ""
        case _:
            pass
    return _told(stage, f"{name}{error}", log, kinds)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes, so that NaN equals itself."""
    if tensor.numel() == 0:
        return torch.empty(0, dtype=torch.uint8)
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)

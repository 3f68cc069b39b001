"""Run a generated wrapper whose launches the Ascend front end compiles and this CPU executes.

`execute` is the handler of a worker process (`runtime.sandbox`). The wrapper is the real one, on
torch's CPU tensors; the module `triton` is a stand-in that compiles and runs each launch.
"""

from __future__ import annotations

import hashlib
import json
import sys
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from sketchc.base.types import DType
from sketchc.runtime.guards import wrapper_guard
from sketchc.runtime.guards.host_limit import (
    HOST_SECONDS,
    HostTimeoutError,
    host_limit,
    off_the_clock,
)
from sketchc.runtime.guards.placement import raw_bytes, tensor_of
from sketchc.runtime.guards.torch_state import TorchState, first_state
from sketchc.runtime.process.messages import Arrays, failure
from sketchc.runtime.sandbox.confine import exception_kinds
from sketchc.runtime.sandbox.worker import run_inside
from sketchc.runtime.toolchains.tracer import (
    MissingEntryError,
    Tracer,
    bound_call,
    names_of,
    require_entry,
    states_of,
)
from sketchc.runtime.toolchains.triton_ascend import frontend, standin
from sketchc.runtime.toolchains.triton_ascend.environment import cache_folder, find_tools
from sketchc.runtime.toolchains.triton_ascend.launch import Buffer, IllegalAccessError, run_library
from sketchc.runtime.toolchains.triton_ascend.linalg import (
    BuildError,
    UnsupportedLinalgError,
    build,
)

_POINTERS: dict[torch.dtype, str] = {
    getattr(torch, dtype.numpy_name): "*" + dtype.value.replace("f", "fp") for dtype in DType
} | {torch.bfloat16: "*bf16", torch.bool: "*i1"}
FRONTEND_TIMEOUT = 120.0


class CompileError(Exception):
    """The front end refuses a kernel; `kinds` are the types of the front end's exceptions."""

    def __init__(self, message: str, kinds: tuple[str, ...] = ()) -> None:
        self.kinds = kinds
        super().__init__(message)


class FrontEndTimeoutError(Exception):
    """The front end takes too long."""


class Machine:
    """Compiles launches and, unless `dry`, runs them, or records them in `tracer` if there is one.

    `order`, in which a launch's programs run, is "forward", "reversed" or "shuffled" (by a fixed
    seed): the results may not depend on it.
    """

    def __init__(
        self,
        source: Path,
        python: str,
        chip: str,
        order: str,
        dry: bool,
        tracer: Tracer | None = None,
    ) -> None:
        tools = find_tools()
        if tools is None:
            raise RuntimeError("the MLIR tools have gone")
        self.source, self.python, self.chip = source, python, chip
        self.order, self.dry, self.tools, self.tracer = order, dry, tools, tracer
        self.text = source.read_text()
        self.launches: list[dict[str, Any]] = []
        #: The libraries that were built from kernels and loaded into this process.
        self.loaded: list[str] = []

    def launch(self, launch: standin.Launch) -> None:
        """Compile one launch, then run it, record it in the tracer, or (dry) do neither."""
        reply = self.front_end(launch)
        library, function = build(reply["linalg"], self.tools)
        record: dict[str, Any] = {"kernel": launch.kernel, "grid": launch.grid}
        if reply["rewritten"]:
            record["blocks read and written back"] = reply["rewritten"]
        if not self.dry and launch.grid[0] * launch.grid[1] * launch.grid[2] > 0:
            arguments = {name: launch.arguments[name] for name in reply["arguments"]}
            if len(arguments) != len(function.arguments):
                expected = len(function.arguments)
                message = f"{function.name} takes {expected} arguments, not {len(arguments)}"
                raise RuntimeError(message)
            pairs = zip(function.arguments, arguments.items(), strict=True)
            if self.tracer is None:
                bound = [
                    _buffer(name, value) if argument.buffer else (argument.element, value)
                    for argument, (name, value) in pairs
                ]
                told = (str(library), function.name, bound, launch.grid, self.order)
                self.loaded.append(str(library.resolve()))
                record["bytes"] = run_library(*told)
            else:
                written = [
                    {"name": name, **self.tracer.argument(value, argument.element)}
                    for argument, (name, value) in pairs
                ]
                noted = {"kernel": function.name, "library": str(library), "grid": launch.grid}
                self.tracer.launch({**noted, "arguments": written})
        self.launches.append(record)

    def front_end(self, launch: standin.Launch) -> dict[str, Any]:
        """The front end's reply for a launch (`frontend.compile_kernel`), kept in the cache."""
        request = {
            "file": str(self.source),
            "kernel": launch.kernel,
            "chip": self.chip,
            "options": {k: v for k, v in launch.options.items() if k == "multibuffer"},
            "arguments": [
                (k, *_specialise(k, v, k in launch.general)) for k, v in launch.arguments.items()
            ],
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
            result = run_inside(
                handler,
                request,
                python=self.python,
                timeout=FRONTEND_TIMEOUT,
                # Whatever the user's setting is: the kernel must be compiled here.
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


def _specialise(name: str, value: Any, general: bool) -> tuple[str, Any]:
    """(type, representative value) of an argument, as Triton's launcher specialises it; with
    `general`, not by its value. Raises `standin.LaunchError` for other types."""
    match value:
        case torch.Tensor():
            return _POINTERS[value.dtype], None
        case bool():
            return "i1", False
        case int():
            kind = "i32" if -(2**31) <= value < 2**31 else "i64"
            return kind, 3 if general else 1 if value == 1 else 16 if value % 16 == 0 else 3
        case float():
            return "fp32", 0.5
        case None:
            return "*i8", None
    raise standin.LaunchError(f"the launch passes {name} = {type(value).__name__}")


def _constant(value: Any) -> Any:
    return {"tl": value.name} if isinstance(value, standin.Named) else value


def _buffer(name: str, value: torch.Tensor) -> Buffer:
    storage = value.untyped_storage()
    start = storage.data_ptr()
    offset = value.data_ptr() - start
    return Buffer(name, start, storage.nbytes(), offset, value.element_size())


def _load(
    request: Mapping[str, Any], watch: wrapper_guard.Watch | None, tracer: Tracer | None = None
) -> tuple[Any, Machine]:
    source = Path(request["source"])
    told = (request["python"], request["chip"], request["order"], request["dry"])
    machine = Machine(source, *told, tracer)

    def launch(launched: standin.Launch) -> None:
        around = nullcontext() if watch is None else watch.launch()
        with around, off_the_clock():
            machine.launch(launched)

    standin.install(launch)
    namespace: dict[str, Any] = {"__name__": "generated", "__file__": str(source)}
    sys.path.insert(0, str(source.parent))
    exec(compile(machine.text, str(source), "exec"), namespace)
    return require_entry(namespace.get(request["entry"]), request["entry"]), machine


def execute(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Run the wrapper once.

    `request`: that of `launching.call_request` (with "foreign", the wrapper is watched, see
    `wrapper_guard`), "python" (of the front end), "chip", "order", and "dry" (build the kernels
    without running them). `arrays` holds all tensors.

    The reply is {"launches"}, or {"failure": {"stage", "message", "log", "kinds"}}. Unless dry, the
    arrays of all out and inout tensors come back.
    """
    torch.set_num_threads(1)
    tensors = {name: tensor_of(array) for name, array in arrays.items()}
    before = {name: tensors[name].clone() for name in names_of(request, "in") if name in tensors}
    watch = wrapper_guard.Watch() if request.get("foreign") and not request["dry"] else None
    clock = host_limit(HOST_SECONDS) if request["dry"] else nullcontext()
    torch_before = None if watch is None else TorchState(first_state())
    try:
        with wrapper_guard.watched(watch), clock:
            wrapper, machine = _load(request, watch)
            # A dry run makes its own outputs where it can, as most callers of a wrapper will.
            returned = bound_call(wrapper, request, tensors, needed=request["dry"])()
        results = {} if request["dry"] else _results(names_of(request, "out", "inout"), returned)
    except HostTimeoutError:
        message = f"the wrapper took more than {HOST_SECONDS:g} s without its kernels"
        return failure("timeout", message), {}
    except Exception as error:
        if watch is not None and watch.refused:
            return failure("policy", watch.verdict(0)), {}
        return _failure(error), {}
    if torch_before is not None and (changes := torch_before.changes(loaded=machine.loaded)):
        return failure("policy", "; ".join(changes)), {}
    elements = sum(array.size for array in results.values())
    if watch is not None and (against := watch.verdict(elements)):
        return failure("policy", against), {}
    changed = [
        n for n, old in before.items() if not torch.equal(raw_bytes(old), raw_bytes(tensors[n]))
    ]
    if changed:
        message = f"the kernel changes its input {', '.join(changed)}"
        return failure("launch", message, ["IllegalAccessError"]), {}
    return {"launches": machine.launches}, results


def trace(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Record what the wrapper launches, without running the launches; see `tracer`.

    `request` is that of `execute`, with "states", the number of states among `arrays`. The reply is
    {"launches", "done"}, or {"failure"} as in `execute`; the contents of buffers come back.
    """
    torch.set_num_threads(1)
    given, states = states_of(arrays, request["states"])
    tensors = {name: tensor_of(array) for name, array in given.items()}
    tracer = Tracer(tensors, states)
    try:
        wrapper, _ = _load(request, None, tracer)
        call = bound_call(wrapper, request, tensors)
        done, contents = tracer.trace(call, names_of(request, "out", "inout"))
    except Exception as error:
        return _failure(error), {}
    return {"launches": tracer.launches, "done": done}, contents


def _results(names: list[str], returned: Any) -> Arrays:
    """The tensors that a wrapper `returned`, as arrays by name. Raises
    `wrapper_guard.WrongOutputsError`."""
    outputs = wrapper_guard.named_outputs(names, returned)
    return {name: wrapper_guard.to_numpy(name, value) for name, value in outputs.items()}


def _failure(error: Exception) -> dict[str, Any]:
    """The failure reply for an exception of the wrapper or of a function that it calls."""
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
    return failure(stage, f"{name}{error}", kinds, log)

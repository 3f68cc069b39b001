"""The handlers of the worker process that runs a `ModelNew`: one process for all cases of a file.

`load` writes the file into the worker's own folder, imports it under the guard and builds a model;
`forward` runs the model for one case. Models are kept by their init inputs, and tensors by their
shapes, so that later cases have other contents at the same addresses: a model that reuses results
of earlier calls returns wrong ones. The process holds the inputs of one case at a time, and no
expected outputs.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
import tempfile
import traceback
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from sketchc.runtime.guards import wrapper_guard
from sketchc.runtime.guards.host_limit import HOST_SECONDS, HostTimeoutError, host_limit
from sketchc.runtime.guards.module_guard import Guard, building
from sketchc.runtime.guards.placement import Placement, placement, tensor_of
from sketchc.runtime.process.messages import failure
from sketchc.runtime.sandbox.confine import import_file
from sketchc.runtime.tasks.layout import rebuild
from sketchc.runtime.tasks.worker.module_state import load_state, state

CLASS = "ModelNew"
#: The kind of a failure: forward tried to start a compiler.
BUILDS = "BuildsInForwardError"
#: Seed of every model, as in the process that runs the task.
SEED = 0
#: The stages of a `ToolchainError`.
COMPILE, LAUNCH, POLICY = "compile", "launch", "policy"
SHAPE, ACCESS = "wrong_shape", "illegal_access"
Arrays = dict[str, Any]
_BUILD_LOG = 20_000


class LoadedModule:
    """The loaded file with its guard, and the models and tensors that are kept between calls."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.device = "cpu"
        self.path = Path(tempfile.gettempdir()) / f"{request['name']}.py"
        self.path.write_bytes(request["source"].encode("utf-8", "replace"))
        self.guard = Guard(str(self.path), request["forbidden"], request["extensions"])
        #: The names of exceptions that compilers raise for a kernel that they refuse.
        self.refusals = frozenset(request["refusals"])
        self.module: ModuleType | None = None
        self.models: dict[str, Any] = {}
        #: With Triton, a `triton_cuda.models.Turns`, which chooses tuned kernels' configurations.
        self.turns: Any = None
        self.placed: dict[tuple[Any, ...], Placement] = {}

    def model(self, init: list[Any]) -> Any:
        """The model for the inputs `init`, built once, with the seed that the task's model has."""
        key = repr(init)
        if key not in self.models:
            torch.manual_seed(SEED)
            with self.guard.loading():
                model = getattr(self.module, CLASS)(*init)
                self.models[key] = model.eval().to(self.device)
        return self.models[key]


#: The loaded file of this process: empty until `load`, then with one element.
SESSIONS: list[LoadedModule] = []


def load(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Import the file and build a model.

    `request`: "source", "name", "init" (Python text of the init inputs), "forbidden" (files),
    "extensions" (see `Guard`), "prepare" with what `ModelRun.told` holds, "refusals"
    (`base.ModelRun`), and "dry" (launches will only be recorded). The reply holds "state" (shapes
    of the model's parameters and buffers), "device" and "tuned", or {"failure"}.
    """
    _prepare_environment(request["source"])
    session = LoadedModule(request)
    SESSIONS[:] = [session]
    if request["prepare"]:  # so that the guard sees launches, however the target executes them
        module, _, name = request["prepare"].partition(":")
        getattr(importlib.import_module(module), name)(session, request)
    session.guard.install()
    try:
        with session.guard.loading():
            session.module = import_file(session.path, session.path.stem)
            if not isinstance(getattr(session.module, CLASS, None), type):
                message = f"the file defines no class {CLASS}"
                return failure(COMPILE, message, ["MissingEntryError"]), {}
    except BaseException as error:
        return raised(session, COMPILE, error), {}
    try:
        model = session.model(literals(request["init"]))
        shapes = {name: list(value.shape) for name, value in state(model).items()}
    except BaseException as error:
        return raised(session, LAUNCH, error), {}
    if against := session.guard.verdict(0):
        return failure(POLICY, against), {}
    tuned = {} if session.turns is None else session.turns.tuned(session.module)
    return {"state": shapes, "device": session.device, "tuned": tuned}, {}


def _prepare_environment(source: str) -> None:
    """Set the folder in which torch builds extensions, and a PATH with the tools that it needs."""
    os.environ["TORCH_EXTENSIONS_DIR"] = str(Path(tempfile.gettempdir()) / "extensions")
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    if "cpp_extension" in source:
        # Imported before the guard is installed, which replaces functions of this module.
        importlib.import_module("torch.utils.cpp_extension")


def literals(texts: list[str]) -> list[Any]:
    """The values of Python texts: literals, or torch's dtypes."""
    return [_literal(text) for text in texts]


def _literal(text: str) -> Any:
    """The value of Python text: a literal, or a dtype of torch, such as "torch.float16"."""
    module, _, name = text.partition(".")
    dtype = getattr(torch, name, None) if module == "torch" else None
    return dtype if isinstance(dtype, torch.dtype) else ast.literal_eval(text)


def plain(value: dict[str, Any]) -> Any:
    """The value of an input that is no tensor, given as {"value"} or {"text"}."""
    return _literal(value["text"]) if "text" in value else value["value"]


def recorded(request: dict[str, Any], noting: AbstractContextManager[None]) -> dict[str, Any]:
    """Import the file, and run forward once within `noting`, which notes launches instead of
    executing them.

    `request`: that of `load`, "inputs" (per position {"shape", "dtype"} with torch's name of the
    type, {"value"} or {"text"}) and "layout" (how forward takes them). Returns {}, or {"failure"}.
    """
    reply, _ = load(request, {})
    if "failure" in reply:
        return reply
    session = SESSIONS[0]
    inputs = [
        torch.ones(value["shape"], dtype=getattr(torch, value["dtype"]))
        if "shape" in value
        else plain(value)
        for value in request["inputs"]
    ]
    try:
        with noting:
            model = session.model(literals(request["init"]))
            with torch.no_grad(), host_limit(HOST_SECONDS):
                model(*rebuild(request["layout"], inputs))
    except HostTimeoutError:
        text = f"forward took more than {HOST_SECONDS:g} s without its kernels"
        return failure("timeout", text)
    except Exception as error:
        return raised(session, LAUNCH, error)
    return {}


# ---------------------------------------------------------------- one case


def construct(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Build a model for "init", which may start a compiler, before forward gets its inputs. The
    reply is {} or {"failure"}."""
    session = SESSIONS[0]
    session.guard.shut = False
    try:
        session.model(literals(request["init"]))
    except BaseException as error:
        return raised(session, LAUNCH, error), {}
    return {}, {}


def forward(request: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """Run forward once.

    `request`: "init", "inputs" (per position {"array": name}, {"value"} or {"text"}), "layout" (how
    forward takes them), "state" (names; their arrays are called "state.NAME"), "outputs" (names),
    "fresh" (use no address again), "strided" (make inputs that are not contiguous), "turn" (the
    number of the case), "judge_writes" (outputs must be written by launches) and "shut" (no program
    can be started: the failure is of the kind `BUILDS` where forward tries to start a compiler).
    The reply is {} or {"failure"}; the returned arrays are the outputs.
    """
    guard = SESSIONS[0].guard
    guard.shut, guard.building = request["shut"], ""
    reply, outputs = _forward(SESSIONS[0], request, arrays)
    if guard.building and not guard.sentences:
        return failure(POLICY, building(guard.building), [BUILDS]), {}
    return reply, outputs


def _forward(
    session: LoadedModule, request: dict[str, Any], arrays: Arrays
) -> tuple[dict[str, Any], Arrays]:
    guard = session.guard
    guard.launches = 0
    if session.turns is not None:
        session.turns.number = request["turn"]
    try:
        model = session.model(literals(request["init"]))
        if request["state"]:
            given = {n: tensor_of(arrays[f"state.{n}"].copy()) for n in request["state"]}
            with guard.loading():
                load_state(model, given)
        inputs, held = _inputs(session, request, arrays)
        with torch.no_grad(), guard.running():
            returned = model(*rebuild(request["layout"], inputs))
            if session.device == "cuda":
                torch.cuda.synchronize()
    except BaseException as error:
        return raised(session, LAUNCH, error), {}
    try:
        # Flattened like the outputs of the task: containers in order.
        outputs = wrapper_guard.named_outputs(request["outputs"], _results(returned))
        _require_plain(outputs)
        found = {name: wrapper_guard.to_numpy(name, value) for name, value in outputs.items()}
    except wrapper_guard.WrongOutputsError as error:
        return failure(SHAPE, str(error).replace("the wrapper", "forward")), {}
    if against := guard.verdict(sum(array.size for array in found.values())):
        return failure(POLICY, against), {}
    if request["judge_writes"] and (idle := guard.writes.unwritten(outputs, inputs)):
        text = f"no launch and no library has written {', '.join(idle)}: only copies were made"
        return failure(POLICY, text), {}
    for name, placed in held.items():
        if stray := placed.stray(f"input {name}", unchanged=True):
            return failure(ACCESS, stray.replace("the input input", "input")), {}
    # Copies: the model may write into its buffers again.
    return {}, {name: array.copy() for name, array in found.items()}


def _results(returned: Any) -> tuple[Any, ...]:
    """The results of forward, with nested containers flattened in order. Methods that the file's
    own container classes define are not called: their code would run unguarded."""
    kind = type(returned)
    if issubclass(kind, dict):
        parts = list(dict.values(returned))
    elif issubclass(kind, tuple):
        parts = list(tuple.__iter__(returned))
    elif issubclass(kind, list):
        parts = list(list.__iter__(returned))
    else:
        return (returned,)
    return tuple(result for part in parts for result in _results(part))


def _require_plain(outputs: dict[str, torch.Tensor]) -> None:
    """Raise `WrongOutputsError` for a subclass of `Tensor`: its code could run when it is read."""
    for name, value in outputs.items():
        if type(value) not in (torch.Tensor, torch.nn.Parameter):
            msg = f"the wrapper returns a {type(value).__name__} for {name}, not a plain tensor"
            raise wrapper_guard.WrongOutputsError(msg)


def _inputs(
    session: LoadedModule, request: dict[str, Any], arrays: Arrays
) -> tuple[list[Any], dict[str, Placement]]:
    """Forward's inputs, and by number the placements of those that are checked afterwards for stray
    writes (not the strided ones)."""
    inputs: list[Any] = []
    held: dict[str, Placement] = {}
    for position, value in enumerate(request["inputs"]):
        if "array" not in value:
            inputs.append(plain(value))
            continue
        array = arrays[value["array"]]
        if request["strided"]:
            inputs.append(_strided(tensor_of(array.copy()).to(session.device)))
            continue
        placed = _placed(session, position, array, fresh=request["fresh"])
        held[str(position + 1)] = placed
        inputs.append(placed.tensor)
    return inputs, held


def _placed(session: LoadedModule, position: int, array: Any, *, fresh: bool) -> Placement:
    """`array` in the guarded buffer kept for its position, shape and type; in a new one if there is
    none yet, or with `fresh`."""
    key = (position, array.shape, array.dtype.name)
    kept = session.placed.get(key)
    if kept is not None and not fresh:
        kept.tensor.copy_(tensor_of(array))
        kept.array = array
        return kept
    made = placement(array, session.device)
    session.placed.setdefault(key, made)
    return made


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """`tensor` in a layout that is not contiguous: the last two axes swapped in memory, or with
    gaps between the elements of a vector."""
    if tensor.dim() >= 2:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    if tensor.dim() == 1:
        spread = torch.stack((tensor, tensor), dim=1).contiguous()
        return spread[:, 0]
    return tensor


# ---------------------------------------------------------------- failures


def raised(session: LoadedModule, stage: str, error: BaseException) -> dict[str, Any]:
    """The failure reply for an exception `error` of the file; a verdict of the guard's takes
    precedence over it."""
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        raise error
    if against := session.guard.verdict(0):
        return failure(POLICY, against)
    from sketchc.runtime.sandbox.confine import exception_kinds

    log = traceback.format_exc()[-_BUILD_LOG:]
    message = f"{type(error).__name__}: {error}"
    found = re.search(r"^.*\berror: .*$", str(error), re.MULTILINE)
    if found is not None:  # a compiler's error, in the message of the function that called it
        stage, message = COMPILE, found[0].strip()
    kinds = [*getattr(error, "kinds", ()), *exception_kinds(error)]
    if session.refusals.intersection(kinds):
        stage = COMPILE
    # "InterpreterError" only wraps the kernel's own exception: drop it where others are known.
    kinds = [kind for kind in kinds if kind != "InterpreterError"] or kinds
    return failure(stage, message, kinds, log)

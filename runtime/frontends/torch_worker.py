"""The process that runs a PyTorch task: it loads the user's file and answers requests about it.

Started for `torch_task.TorchTask`, as a fork of `torch_server`, never imported by it: a task may
print, hang, or end the process. Requests and replies are JSON lines over two pipes of their own;
arrays travel as raw files. The task's own stdout and stderr go to a log file.
"""

from __future__ import annotations

import copy
import importlib.util
import inspect
import json
import linecache
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sketchc.runtime.frontends.determinism import difference, random_operation
from sketchc.runtime.worker_child import die_with_parent

#: spelling in a sketch -> torch type
DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "u32": torch.uint32,
    "bool": torch.bool,
}
SPELLINGS = {dtype: name for name, dtype in DTYPES.items()}


class TaskError(Exception):
    """The task is not what it should be; the message is for the user."""


class Raised(Exception):
    """The task's own code raised: where, what, and the line it happened on."""

    def __init__(self, where: str, error: BaseException, path: Path) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if frame.filename == str(path)]
        line, text = 0, ""
        if own:
            line, text = own[-1].lineno or 0, own[-1].line or ""
        elif isinstance(error, SyntaxError):
            line, text = error.lineno or 0, (error.text or "").strip()
        message = str(error).strip().split("\n")[0]
        if isinstance(error, SyntaxError):
            message = error.msg
        elif isinstance(error, SystemExit):
            message = f"the task ends the process with status {error.code}"
        self.report = {
            "where": where,
            "type": type(error).__name__,
            "message": message[:500],
            "line": line,
            "text": text[:200],
        }
        super().__init__(message)


@contextmanager
def _user_code(where: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (TaskError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Raised(where, error, path) from None


def load_tensor(description: dict[str, Any]) -> torch.Tensor:
    """The tensor in a file written by `arrays.write_array`."""
    data = torch.from_numpy(np.fromfile(description["file"], np.uint8))
    if not data.numel():
        return torch.empty(description["shape"], dtype=DTYPES[description["dtype"]])
    return data.view(DTYPES[description["dtype"]]).reshape(description["shape"])


def save_tensor(path: str, tensor: torch.Tensor) -> dict[str, Any]:
    """Write a tensor for `arrays.read_array`."""
    plain = tensor.detach().cpu().contiguous()
    if plain.numel():
        plain.reshape(-1).view(torch.uint8).numpy().tofile(path)
    else:
        Path(path).write_bytes(b"")
    return {"file": path, "dtype": SPELLINGS[plain.dtype], "shape": list(plain.shape)}


def _describe(value: object) -> dict[str, Any]:
    if isinstance(value, torch.Tensor):
        if value.dtype not in SPELLINGS:
            msg = f"a tensor of {value.dtype} has no counterpart in a sketch"
            raise TaskError(msg)
        return {"dtype": SPELLINGS[value.dtype], "shape": list(value.shape)}
    if isinstance(value, bool | int | float):
        return {"value": value}
    return {"repr": repr(value)[:200], "type": type(value).__name__}


def as_outputs(result: object) -> list[torch.Tensor]:
    """What `forward` returned, as a list of tensors."""
    outputs = []
    for value in result if isinstance(result, tuple | list) else [result]:
        if not isinstance(value, torch.Tensor):
            kind = type(value).__name__
            msg = f"Model.forward must return a tensor or several, and returns {kind}"
            raise TaskError(msg)
        outputs.append(value)
    return outputs


class Task:
    """One loaded task file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        specification = importlib.util.spec_from_file_location("sketchc_user_task", path)
        if specification is None or specification.loader is None:
            msg = "it is not a Python file (its name must end in .py)"
            raise TaskError(msg)
        self.module = importlib.util.module_from_spec(specification)
        sys.modules["sketchc_user_task"] = self.module
        sys.path.append(str(path.parent))
        with _user_code("loading the file", path):
            specification.loader.exec_module(self.module)
        self.model_class = self._attribute("Model", "class Model(torch.nn.Module)")
        if not (
            isinstance(self.model_class, type) and issubclass(self.model_class, torch.nn.Module)
        ):
            msg = "Model must be a class derived from torch.nn.Module"
            raise TaskError(msg)
        self._attribute("get_inputs", "def get_inputs(): the list of forward's inputs")
        self.returns = "tensor"
        #: Elements of all inputs, outputs, parameters and buffers, once the task was described.
        self.elements: int | None = None

    def _attribute(self, name: str, wanted: str) -> Any:
        if not hasattr(self.module, name):
            msg = f"it defines no `{name}`; a task has `{wanted}`"
            raise TaskError(msg)
        return getattr(self.module, name)

    def init_inputs(self) -> list[Any]:
        """What `get_init_inputs` gives; nothing when the task has none."""
        if not hasattr(self.module, "get_init_inputs"):
            return []
        with _user_code("get_init_inputs", self.path):
            values = self.module.get_init_inputs()
        if not isinstance(values, list | tuple):
            msg = f"get_init_inputs must return a list, and returns {type(values).__name__}"
            raise TaskError(msg)
        return list(values)

    def model(self, substitutes: dict[str, int]) -> torch.nn.Module:
        """A fresh model; `substitutes` maps positions of init inputs to other sizes."""
        values = self.init_inputs()
        for position, value in substitutes.items():
            values[int(position)] = value
        with _user_code("Model.__init__", self.path):
            model: torch.nn.Module = self.model_class(*values)
        return model.eval()

    def inputs(self, seed: int) -> list[Any]:
        """The inputs that `get_inputs` gives after seeding."""
        torch.manual_seed(seed)
        with _user_code("get_inputs", self.path):
            values = self.module.get_inputs()
        if not isinstance(values, list | tuple):
            msg = f"get_inputs must return a list, and returns {type(values).__name__}"
            raise TaskError(msg)
        return list(values)

    def forward(self, model: torch.nn.Module, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """The outputs, without gradients; `returns` keeps what held them."""
        with _user_code("Model.forward", self.path), torch.no_grad():
            result = model(*inputs)
            kinds = {"tuple": tuple, "list": list}
            self.returns = next((n for n, k in kinds.items() if isinstance(result, k)), "tensor")
            return as_outputs(result)


def state(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters in their order, then buffers, by dotted name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


#: Up to so many elements of inputs and state, a run takes less than finding its shapes without.
_SMALL_ELEMENTS = 1 << 16


def _describe_task(task: Task, request: dict[str, Any]) -> dict[str, Any]:
    """Shapes and dtypes of everything; those of a large task without making its data."""
    torch.manual_seed(request["seed"])
    model = task.model({})
    ran = _run_on_meta(task, model, request["seed"])
    if ran is None:
        inputs = task.inputs(request["seed"])
        ran = inputs, task.forward(copy.deepcopy(model), inputs)
    inputs, outputs = ran
    task.elements = _elements([*inputs, *outputs, *state(model).values()])
    scalars = {
        name: value
        for name, value in vars(model).items()
        if isinstance(value, bool | int | float) and not name.startswith("_") and name != "training"
    }
    return {
        "inputs": [_describe(value) for value in inputs],
        "init_inputs": [_describe(value) for value in task.init_inputs()],
        "state": [{"name": name, **_describe(value)} for name, value in state(model).items()],
        "scalars": scalars,
        "outputs": [_describe(value) for value in outputs],
        "returns": task.returns,
        "defaults": _left_out(model),
        "corrects": hasattr(model, "valid_inputs"),
    }


def _run_on_meta(
    task: Task, model: torch.nn.Module, seed: int
) -> tuple[list[Any], list[torch.Tensor]] | None:
    """Inputs and outputs as meta tensors, which have no data. None for a task that looks at values
    or whose code is wrong, since only real tensors tell which, and for a small one: torch imports
    much for the first run without data."""
    try:
        with torch.device("meta"):
            inputs = task.inputs(seed)
            if _elements([*inputs, *state(model).values()]) <= _SMALL_ELEMENTS:
                return None
            return inputs, task.forward(copy.deepcopy(model).to("meta"), inputs)
    except Exception:
        return None


def _elements(values: Sequence[object]) -> int:
    return sum(value.numel() for value in values if isinstance(value, torch.Tensor))


def _left_out(model: torch.nn.Module) -> list[int]:
    """Positions of forward's parameters that are None by default."""
    known = inspect.signature(model.forward).parameters.values()
    return [place for place, one in enumerate(known) if one.default is None]


def _own_inputs(task: Task, request: dict[str, Any]) -> dict[str, Any]:
    values = task.inputs(request["seed"])
    replies = []
    for position, value in enumerate(values):
        if isinstance(value, torch.Tensor):
            replies.append(save_tensor(f"{request['folder']}/input_{position}.bin", value))
        else:
            replies.append(_describe(value))
    return {"inputs": replies}


def _valid_inputs(task: Task, request: dict[str, Any]) -> dict[str, Any]:
    """What the model makes of random inputs, so that forward takes them; shapes and types stay."""
    model = task.model(request["substitutes"])
    given = _given(request)
    with _user_code("Model.valid_inputs", task.path), torch.no_grad():
        found = model.valid_inputs(given)  # type: ignore[operator]
    replies = []
    for position, (before, after) in enumerate(zip(given, found, strict=True)):
        if not isinstance(before, torch.Tensor):
            replies.append({"value": before})
            continue
        if after.shape != before.shape or after.dtype != before.dtype:
            msg = f"Model.valid_inputs changes the shape or type of input {position + 1}"
            raise TaskError(msg)
        replies.append(save_tensor(f"{request['folder']}/valid_{position}.bin", after))
    return {"inputs": replies}


def _given(request: dict[str, Any]) -> list[Any]:
    """The inputs of a request: tensors, numbers and None."""
    return [load_tensor(v) if "file" in v else v["value"] for v in request["inputs"]]


def _shapes(task: Task, request: dict[str, Any]) -> dict[str, Any]:
    """The shapes of the parameters of a model built with other sizes."""
    model = task.model(request["substitutes"])
    return {"state": {name: list(value.shape) for name, value in state(model).items()}}


def _double(value: Any) -> Any:
    """A floating-point tensor in float64; everything else as it is."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def _reference(task: Task, request: dict[str, Any]) -> dict[str, Any]:
    """Outputs on given inputs, in float64 where `double` is asked for."""
    torch.manual_seed(request["seed"])
    model = task.model(request["substitutes"])
    own = state(model)
    for name, description in request["state"].items():
        own[name].data = load_tensor(description)
    inputs = _given(request)
    if request["double"]:
        model = model.double()
        inputs = [_double(value) for value in inputs]
    outputs = task.forward(model, inputs)
    if request["double"]:
        outputs = [_double(value) for value in outputs]
    return {
        "outputs": [
            save_tensor(f"{request['folder']}/output_{position}.bin", value)
            for position, value in enumerate(outputs)
        ]
    }


#: Elements up to which a probe may use real tensors where meta tensors do not do.
_PROBE_ELEMENTS = 1 << 22


def _probe(task: Task, request: dict[str, Any]) -> dict[str, Any]:
    """Shapes of outputs and parameters for inputs of other shapes; no data where possible."""

    def shapes(device: str) -> dict[str, Any]:
        with torch.device(device):
            model = task.model(request["substitutes"])
            inputs = [
                torch.ones(value["shape"], dtype=DTYPES[value["dtype"]])
                if "shape" in value
                else value["value"]
                for value in request["inputs"]
            ]
        outputs = task.forward(model, inputs)
        return {
            "outputs": [_describe(value) for value in outputs],
            "state": {name: list(value.shape) for name, value in state(model).items()},
        }

    elements = sum(math.prod(v["shape"]) for v in request["inputs"] if "shape" in v)
    try:
        return shapes("meta")
    except Exception:
        # The task looks at values, or does not take these shapes: real tensors tell which.
        if elements > _PROBE_ELEMENTS:
            raise
        return shapes("cpu")


#: Elements up to which a task is run twice; the cost grows with more than the elements.
_TWICE_ELEMENTS = 1 << 22
_NOT_DETERMINISTIC = (
    "the task is not deterministic: {why}; a kernel can be judged only against a task that gives "
    "the same outputs on the same inputs"
)


def _determinism(task: Task, request: dict[str, Any]) -> dict[str, Any]:
    """Refuse a task whose outputs differ from run to run.

    Small tasks are run twice on their own inputs. Others run on meta tensors, where drawing with
    torch shows; what a large task draws elsewhere (NumPy, `random`), and what one that needs real
    data draws, is not looked for: two runs could take longer than the verification.
    """
    if task.elements is None:
        _describe_task(task, request)
    assert task.elements is not None
    if task.elements <= _TWICE_ELEMENTS:
        found = difference(*_two_runs(task, request["seed"]))
        why = f"two runs on the same inputs differ ({found})"
    else:
        found = _drawn(task, request["seed"])
        why = f"forward draws random numbers ({found}), so two runs on the same inputs differ"
    if found:
        raise TaskError(_NOT_DETERMINISTIC.format(why=why))
    return {}


def _two_runs(task: Task, seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Outputs of two fresh models with the same parameters on the same inputs, in float64 as the
    references are; each run finds torch's random numbers elsewhere."""
    inputs = task.inputs(seed)
    models = []
    for _ in range(2):
        torch.manual_seed(seed)
        models.append(task.model({}))
    given = state(models[0])
    for name, value in state(models[1]).items():
        if name in given:
            value.data = given[name].detach().clone()
    runs = []
    for number, model in enumerate(models):
        own = [v.clone() if isinstance(v, torch.Tensor) else v for v in inputs]
        torch.manual_seed(seed + number)
        runs.append(task.forward(model.double(), [_double(value) for value in own]))
    return runs[0], runs[1]


def _drawn(task: Task, seed: int) -> str:
    """The operation with which `forward` draws random numbers; "" where none was seen."""
    try:
        torch.manual_seed(seed)
        model = copy.deepcopy(task.model({})).to("meta")
        with torch.device("meta"):
            inputs = task.inputs(seed)
            return random_operation(lambda: task.forward(model, inputs))
    except Exception:
        return ""  # it needs real data


COMMANDS: dict[str, Callable[[Task, dict[str, Any]], dict[str, Any]]] = {
    "describe": _describe_task,
    "inputs": _own_inputs,
    "valid": _valid_inputs,
    "shapes": _shapes,
    "reference": _reference,
    "probe": _probe,
    "determinism": _determinism,
}


def _answer(task: Task | None, request: dict[str, Any]) -> tuple[Task | None, dict[str, Any]]:
    try:
        if request["command"] == "load":
            return Task(Path(request["path"])), {}
        if task is None:
            msg = "no task is loaded"
            raise TaskError(msg)
        return task, COMMANDS[request["command"]](task, request)
    except TaskError as error:
        return task, {"refused": str(error)}
    except Raised as error:
        return task, {"raised": error.report}
    except (RuntimeError, MemoryError, OSError, ValueError, KeyError) as error:
        return task, {"refused": f"{type(error).__name__}: {str(error).split(chr(10))[0]}"}
    finally:
        linecache.clearcache()


def main(read_from: int, write_to: int) -> None:
    """Serve requests until the pipe closes."""
    task: Task | None = None
    with os.fdopen(read_from) as requests, os.fdopen(write_to, "w") as replies:
        for line in requests:
            task, reply = _answer(task, json.loads(line))
            replies.write(json.dumps(reply) + "\n")
            replies.flush()


if __name__ == "__main__":
    die_with_parent()
    main(int(sys.argv[1]), int(sys.argv[2]))

"""A PyTorch task in KernelBench's format: `Model`, `get_inputs`, `get_init_inputs` in one file.

The file is the user's code, so it runs in a process of its own (`torch_worker`), which this module
starts, asks and ends. What comes back is plain data: shapes, numbers, and reference outputs in
float64. Whatever goes wrong in the task becomes one `TaskFailure` with the user's own line.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from sketchc.diagnostics import UsageError
from sketchc.runtime.frontends.arrays import Array, dtype_of, read_array, write_array
from sketchc.runtime.frontends.torch_template import COMMAND, TaskProcess, TemplateError, start
from sketchc.runtime.worker import python_environment
from sketchc.types import DType

Scalar = int | float | bool
#: Seconds that loading may take at least: it imports torch, which no limit on a run should bound.
LOAD_TIMEOUT = 120.0


class TaskFailure(UsageError):
    """The task's file, or its code, does not do what a task must do."""


@attrs.frozen
class TensorSpec:
    """A tensor of the task: its name (parameters and buffers only), dtype and shape."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


@attrs.frozen
class OtherSpec:
    """A value that is neither a tensor nor a number, as text, with its type's name."""

    text: str
    type: str


@attrs.frozen
class TaskDescription:
    """What a task consists of, at its own sizes.

    `inputs` are those of `forward`, by position; `state` the parameters and then the buffers;
    `scalars` the numbers among the model's attributes; `returns` says what holds the outputs:
    "tensor", "tuple" or "list". `defaults` holds the positions of inputs that forward takes as None
    when they are left out; `corrects`: the model has `valid_inputs`.
    """

    path: Path
    inputs: tuple[TensorSpec | Scalar | OtherSpec, ...]
    init_inputs: tuple[TensorSpec | Scalar | OtherSpec, ...]
    state: tuple[TensorSpec, ...]
    scalars: Mapping[str, Scalar]
    outputs: tuple[TensorSpec, ...]
    returns: str = "tensor"
    defaults: frozenset[int] = frozenset()
    corrects: bool = False


class TorchTask:
    """One task in its worker process; use as a context manager.

    `timeout` bounds each request to it, in seconds; loading the file, which imports torch, may take
    `LOAD_TIMEOUT` where that is longer. See `frontends.task.Task`.
    """

    is_sketch = False

    def __init__(self, path: Path, timeout: float = 300.0) -> None:
        """Start the worker and load the file. Raises `TaskFailure`."""
        self.path = path
        self.timeout = timeout
        self._deterministic = False
        if not path.is_file():
            msg = f"there is no task file {path}"
            raise TaskFailure(msg)
        self.folder = Path(tempfile.mkdtemp(prefix="sketchc-task-"))
        try:
            self._start()
            self._ask({"command": "load", "path": str(path.resolve())})
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        worker_reads, self._to_worker = os.pipe()
        self._from_worker, worker_writes = os.pipe()
        self._pending = b""
        self.process: subprocess.Popen[bytes] | TaskProcess
        with (self.folder / "log.txt").open("wb") as log:
            try:
                self.process = start(worker_reads, worker_writes, log.fileno())
            except TemplateError:
                # By itself it says why: torch cannot be imported.
                self.process = subprocess.Popen(
                    [*COMMAND, str(worker_reads), str(worker_writes)],
                    env=python_environment({}),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(worker_reads, worker_writes),
                    start_new_session=True,
                )
        os.close(worker_reads)
        os.close(worker_writes)

    def __enter__(self) -> TorchTask:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker and remove its files."""
        if hasattr(self, "process"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            for descriptor in (self._to_worker, self._from_worker):
                with contextlib.suppress(OSError):
                    os.close(descriptor)
        shutil.rmtree(self.folder, ignore_errors=True)

    # ------------------------------------------------------------ requests

    def describe(self, seed: int = 0) -> TaskDescription:
        """Shapes and dtypes at the task's own sizes, made without the data where possible."""
        reply = self._ask({"command": "describe", "seed": seed})
        return TaskDescription(
            self.path,
            tuple(_specification(value) for value in reply["inputs"]),
            tuple(_specification(value) for value in reply["init_inputs"]),
            tuple(_tensor(value) for value in reply["state"]),
            reply["scalars"],
            tuple(_tensor(value) for value in reply["outputs"]),
            reply["returns"],
            frozenset(reply["defaults"]),
            reply["corrects"],
        )

    def require_deterministic(self, seed: int = 0) -> None:
        """Raises `TaskFailure` where the outputs differ between two runs on the same inputs.

        Differences up to a millionth of an output's largest value pass: threads may add in another
        order. Tasks with millions of elements are not run, but looked at for random operations of
        torch. The answer is kept, so that asking again costs nothing.
        """
        if not self._deterministic:
            self._ask({"command": "determinism", "seed": seed})
            self._deterministic = True

    def own_inputs(self, seed: int) -> list[Array | Scalar | None]:
        """What the task's `get_inputs` gives after seeding; None for what is not a number."""
        reply = self._ask({"command": "inputs", "seed": seed, "folder": str(self.folder)})
        return [
            read_array(value) if "file" in value else value.get("value")
            for value in reply["inputs"]
        ]

    def valid_inputs(
        self, inputs: Sequence[Array | Scalar | None], substitutes: Mapping[int, int]
    ) -> list[Array | Scalar | None]:
        """What the model's `valid_inputs` makes of these; its init inputs as in `reference`."""
        described = [self._send(f"given_{i}", value) for i, value in enumerate(inputs)]
        request = {"command": "valid", "inputs": described, "substitutes": dict(substitutes)}
        reply = self._ask({**request, "folder": str(self.folder)})
        return [read_array(v) if "file" in v else v.get("value") for v in reply["inputs"]]

    def state_shapes(self, substitutes: Mapping[int, int]) -> dict[str, tuple[int, ...]]:
        """Shapes of parameters and buffers when init inputs (by position) have other values."""
        reply = self._ask({"command": "shapes", "substitutes": dict(substitutes)})
        return {name: tuple(shape) for name, shape in reply["state"].items()}

    def probe(
        self,
        inputs: Sequence[TensorSpec | Scalar],
        substitutes: Mapping[int, int],
    ) -> tuple[tuple[TensorSpec, ...], dict[str, tuple[int, ...]]]:
        """The outputs, and the shapes of parameters and buffers by name, for inputs of other shapes
        and init inputs (by position) of other values; made without data where possible.

        Raises `TaskFailure` when the task does not take them.
        """
        described = [
            {"dtype": value.dtype.value, "shape": list(value.shape)}
            if isinstance(value, TensorSpec)
            else {"value": value}
            for value in inputs
        ]
        request = {"command": "probe", "inputs": described, "substitutes": dict(substitutes)}
        reply = self._ask(request)
        states = {name: tuple(shape) for name, shape in reply["state"].items()}
        return tuple(_tensor(value) for value in reply["outputs"]), states

    def reference(
        self,
        inputs: Sequence[Array | Scalar | None],
        state: Mapping[str, Array] | None = None,
        substitutes: Mapping[int, int] | None = None,
        double: bool = True,
    ) -> list[Array]:
        """The model's outputs on `inputs`, with parameters and buffers replaced by `state`.

        With `double`, floating-point inputs, parameters and outputs are float64.
        """
        described = [self._send(f"given_{i}", value) for i, value in enumerate(inputs)]
        states = {
            name: self._send(f"state_{i}", value)
            for i, (name, value) in enumerate((state or {}).items())
        }
        reply = self._ask(
            {
                "command": "reference",
                "inputs": described,
                "state": states,
                "substitutes": dict(substitutes or {}),
                "double": double,
                "seed": 0,
                "folder": str(self.folder),
            }
        )
        return [read_array(value) for value in reply["outputs"]]

    def _send(self, name: str, value: Array | Scalar | None) -> dict[str, Any]:
        if value is None or isinstance(value, bool | int | float):
            return {"value": value}
        dtype = dtype_of(value)
        assert dtype is not None, value.dtype
        return write_array(self.folder / f"{name}.bin", value, dtype)

    # ------------------------------------------------------------ the channel

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One request and its reply. Raises `TaskFailure`."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._to_worker, json.dumps(request).encode() + b"\n")
        line = self._read_line(str(request["command"]))
        reply: dict[str, Any] = json.loads(line)
        if "refused" in reply:
            msg = f"{self.path}: {reply['refused']}"
            raise TaskFailure(msg)
        if "raised" in reply:
            raise TaskFailure(_raised(self.path, reply["raised"]))
        return reply

    def _read_line(self, command: str) -> bytes:
        limit = max(self.timeout, LOAD_TIMEOUT) if command == "load" else self.timeout
        deadline = time.monotonic() + limit
        while b"\n" not in self._pending:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._from_worker], [], [], left)[0]:
                msg = f"{self.path}: no answer within {limit:g} s ({_DOING[command]})"
                raise TaskFailure(msg)
            chunk = os.read(self._from_worker, 1 << 16)
            if not chunk:
                raise TaskFailure(self._ended(command))
            self._pending += chunk
        line, self._pending = self._pending.split(b"\n", 1)
        return line

    def _ended(self, command: str) -> str:
        """Why the worker is gone, in one line."""
        status = self.process.wait()
        how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        log = (self.folder / "log.txt").read_text(errors="replace").strip().split("\n")
        said = f"; its last line: {log[-1][:300]}" if log[-1] else ""
        return f"{self.path}: the task ended its process ({how}, {_DOING[command]}){said}"


_DOING = {
    "load": "while the file was loaded",
    "describe": "while the model and its inputs were made and forward was run on them",
    "inputs": "in get_inputs",
    "valid": "in Model.valid_inputs",
    "shapes": "in Model.__init__",
    "reference": "in Model.forward",
    "probe": "while it was run at other sizes",
    "determinism": "while forward was run twice on the same inputs",
}


def _raised(path: Path, report: Mapping[str, Any]) -> str:
    """One line for an exception of the task's own code."""
    line = f" (line {report['line']}: {report['text']})" if report["line"] else ""
    said = f": {report['message']}" if report["message"] else ""
    return f"{path}: {report['where']} raised {report['type']}{said}{line}"


def _tensor(value: Mapping[str, Any]) -> TensorSpec:
    shape = tuple(int(extent) for extent in value["shape"])
    return TensorSpec(value.get("name", ""), DType(value["dtype"]), shape)


def _specification(value: Mapping[str, Any]) -> TensorSpec | Scalar | OtherSpec:
    if "dtype" in value:
        return _tensor(value)
    if "value" in value:
        number: Scalar = value["value"]
        return number
    return OtherSpec(value["repr"], value["type"])

"""`Task`, the interface of a reference to verification: a task, or a sketch where there is none;
the tasks of each framework, and `load_task`.

The process of a PyTorch task is a fork of one that has imported torch (`process.templates`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Protocol, Self

from sketchc.runtime.process.arrays import Array
from sketchc.runtime.process.peer import Process, Start, python_environment
from sketchc.runtime.process.templates import HUGE_PAGES, TemplateError, forking
from sketchc.runtime.tasks.client import TaskClient
from sketchc.runtime.tasks.description import (
    NONE,
    Built,
    Inits,
    Scalar,
    State,
    TaskDescription,
    Values,
    fail,
)
from sketchc.runtime.tasks.mindspore_environment import INSTALL_LINE, MINDSPORE
from sketchc.runtime.tasks.outline import read_outline

_WORKERS = "sketchc.runtime.tasks.worker"
_TORCH_WORKER = f"{_WORKERS}.torch_worker"
#: Modules that torch imports, for a second, when a task is traced; the template imports them from
#: its second process on, since the first task may be the only one, and be verified alone.
_LATER = ("torch._dynamo",)


class Task(Protocol):
    """A reference that can be run at many sizes: a `TaskClient`, or what stands for one where there
    is none, a `SketchTask` or a `KernelTask`; a context manager.

    `path` is its name in messages, `specification` the file as the user named it; `is_sketch` says
    that the reference is the sketch's own interpretation, so that code that differs from it is to
    blame; `slow`, that a run of it takes far longer than one of a kernel does. A sketch has no
    parameters, and its numbers are inputs: there is nothing to build otherwise, and nothing to
    correct.
    """

    path: Path
    specification: str
    is_sketch: bool
    slow: bool

    def __enter__(self) -> Self:
        """The task itself."""

    def __exit__(self, *_: object) -> None:
        """End its processes."""

    def require_deterministic(self, seed: int = 0, *, wait: bool = True) -> None:
        """Raises `TaskFailure` where two runs on the same inputs differ; `wait`: see `client`."""

    def describe(self, seed: int = 0) -> TaskDescription:
        """Shapes and dtypes at the task's own sizes."""

    def own_inputs(self, seed: int, variant: int = 0) -> list[Array | Scalar | None]:
        """The inputs at the task's own sizes, by position; None for what is neither tensor nor
        number. `variant` counts the further lists of `TaskDescription.others`."""

    def valid_inputs(self, inputs: Values, substitutes: Inits) -> list[Array | Scalar | None]:
        """The inputs, made such that the task takes them; called only where it `corrects`."""
        return list(inputs)

    def built(self, substitutes: Inits) -> Built:
        """What is known of a model whose init inputs have other values. Raises `TaskFailure`."""
        return Built()

    def reference(
        self, inputs: Values, state: State = NONE, substitutes: Inits = NONE, double: bool = True
    ) -> list[Array]:
        """The outputs, floats in float64. Raises `TaskFailure`."""


class NumpyTask(TaskClient):
    """One NumPy task in its worker process; use as a context manager."""

    framework: ClassVar[str] = "numpy"
    serving: ClassVar[str] = f"{_WORKERS}.numpy_worker:main"


class MindsporeTask(TaskClient):
    """One MindSpore task in its worker process; use as a context manager."""

    framework: ClassVar[str] = "mindspore"
    serving: ClassVar[str] = f"{_WORKERS}.mindspore_worker:main"

    def python(self) -> str:
        """The interpreter of MindSpore's own environment. Raises `TaskFailure` without one."""
        python = MINDSPORE.python()
        if python is None:
            fail(f"{self.path} is a MindSpore task, and MindSpore is not installed: {INSTALL_LINE}")
        return str(python)

    def environment(self) -> dict[str, str]:
        """Only errors in the log (GLOG_v), and no cache of Python's bytecode beside the task."""
        return {**super().environment(), "GLOG_v": "3", "PYTHONDONTWRITEBYTECODE": "1"}


class TorchTask(TaskClient):
    """One PyTorch task in its worker process; use as a context manager."""

    framework: ClassVar[str] = "torch"
    serving: ClassVar[str] = f"{_TORCH_WORKER}:main"

    def prepare_beside(self, hash_seed: str) -> None:
        """Start the template of processes with this hash seed."""
        self._forking({"PYTHONHASHSEED": hash_seed})

    def _start(self) -> Start:
        alone = super()._start()

        def start(channel: int, output: int) -> Process:
            try:
                return self._forking(self.environment())(channel, output)
            except TemplateError as error:
                if self.beside is not None:
                    fail(f"{self.path}: no other process could be started to run it in", error)
                # A process of its own says why: torch cannot be imported.
                return alone(channel, output)

        return start

    def _forking(self, more: Mapping[str, str]) -> Start:
        modules = [f"{_TORCH_WORKER}:prepare"]
        environment = {**HUGE_PAGES, **python_environment(more)}
        _, start = forking(self.serving, sys.executable, modules, environment, _LATER)
        return start


_KINDS: dict[str, type[TaskClient]] = {
    kind.framework: kind for kind in (TorchTask, NumpyTask, MindsporeTask)
}


def task_path(specification: str) -> tuple[Path, str]:
    """The file and the name of `FILE.py` or `FILE.py:NAME`; "" for no name."""
    path, separator, name = specification.rpartition(":")
    if separator and path.endswith(".py") and name.isidentifier():
        return Path(path), name
    return Path(specification), ""


def load_task(specification: str, timeout: float = 300.0) -> TaskClient:
    """The task of `FILE.py` or `FILE.py:NAME`, in a process of its own; a context manager.

    The framework follows from what the file defines. `timeout` (seconds) bounds each request to the
    task. Raises `TaskFailure` for a file that is no task, or whose code raises.
    """
    path, name = task_path(specification)
    outline = read_outline(path, name)
    task = _KINDS[outline.framework](path, timeout, outline)
    task.specification = specification
    return task

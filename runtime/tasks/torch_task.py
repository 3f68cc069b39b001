"""A PyTorch task: KernelBench's `Model`, another `nn.Module`, or a function on tensors.

Its process is a fork of one that has imported torch (`process.templates`). The names that describe
a task are here, too, for whoever speaks of PyTorch tasks alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from sketchc.runtime.process.environment import python_environment
from sketchc.runtime.process.peer import Process, Start
from sketchc.runtime.process.templates import Template, TemplateError, template
from sketchc.runtime.tasks.client import WorkerTask
from sketchc.runtime.tasks.description import (
    OtherSpec,
    Scalar,
    TaskDescription,
    TaskFailure,
    TensorSpec,
)

__all__ = ["OtherSpec", "Scalar", "TaskDescription", "TaskFailure", "TensorSpec", "TorchTask"]

_WORKER = "sketchc.runtime.tasks.worker.torch_worker"
#: What torch imports when a model first runs without data, for seconds. In the template from the
#: second task on: the first may be the only one, and too small to need it.
_LAZY = ("torch.fx.experimental.symbolic_shapes", "torch._dynamo")
_FOLDER = "XDG_"


class TorchTask(WorkerTask):
    """One PyTorch task in its worker process; use as a context manager."""

    framework: ClassVar[str] = "torch"
    serving: ClassVar[str] = f"{_WORKER}:main"

    def prepare_beside(self, hash_seed: str) -> None:
        _template({"PYTHONHASHSEED": hash_seed})

    def _start(self) -> Start:
        alone = super()._start()

        def start(channel: int, output: int) -> Process:
            try:
                found, folders = _template(self.environment())
                message = {"place": str(Path.cwd()), "environment": folders}
                lazy = _LAZY if found.forks else ()
                return found.start(f"{_WORKER}:serve_apart", message, (channel, output), lazy)
            except TemplateError as error:
                if self.beside is not None:
                    msg = f"{self.path}: no other process could be started to run it in"
                    raise TaskFailure(msg) from error
                # By itself it says why: torch cannot be imported.
                return alone(channel, output)

        return start


def _template(more: dict[str, str]) -> tuple[Template, dict[str, str]]:
    """The template of the environment of now and `more`, without waiting until it has imported
    anything, and the variables that it does not know."""
    environment = python_environment(more)
    # Where folders of the user are is read when they are used: no reason for another template.
    folders = {
        name: environment.pop(name) for name in tuple(environment) if name.startswith(_FOLDER)
    }
    return template(sys.executable, [_WORKER], environment, bound=True), folders

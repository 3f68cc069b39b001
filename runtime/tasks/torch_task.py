"""A PyTorch task: KernelBench's `Model`, another `nn.Module`, or a function on tensors.

Its process is a fork of one that has imported torch (`torch_template`). The names that describe a
task are here, too, for whoever speaks of PyTorch tasks alone.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from typing import ClassVar

from sketchc.runtime.tasks.client import Process, WorkerTask
from sketchc.runtime.tasks.description import (
    OtherSpec,
    Scalar,
    TaskDescription,
    TaskFailure,
    TensorSpec,
)
from sketchc.runtime.tasks.torch_template import (
    COMMAND,
    TaskProcess,
    TemplateError,
    start,
    template_of,
)

__all__ = ["OtherSpec", "Scalar", "TaskDescription", "TaskFailure", "TensorSpec", "TorchTask"]


class TorchTask(WorkerTask):
    """One PyTorch task in its worker process; use as a context manager."""

    framework: ClassVar[str] = "torch"
    process: subprocess.Popen[bytes] | TaskProcess

    def command(self) -> Sequence[str]:
        return COMMAND

    def prepare_beside(self, hash_seed: str) -> None:
        template_of({"PYTHONHASHSEED": hash_seed})

    def _spawn(self, reads: int, writes: int, log: int) -> Process:
        try:
            return start(reads, writes, log, self.environment())
        except TemplateError as error:
            if self.beside is not None:
                msg = f"{self.path}: no other process could be started to run it in"
                raise TaskFailure(msg) from error
            # By itself it says why: torch cannot be imported.
            return super()._spawn(reads, writes, log)

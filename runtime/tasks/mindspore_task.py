"""A MindSpore task: a cell or a function. Its process runs in an environment of its own."""

from __future__ import annotations

from typing import ClassVar

from sketchc.runtime.tasks.client import WorkerTask
from sketchc.runtime.tasks.description import TaskFailure
from sketchc.runtime.tasks.mindspore_environment import INSTALL_LINE, mindspore_python


class MindsporeTask(WorkerTask):
    """One MindSpore task in its worker process; use as a context manager."""

    framework: ClassVar[str] = "mindspore"
    serving: ClassVar[str] = "sketchc.runtime.tasks.worker.mindspore_worker:main"

    def python(self) -> str:
        python = mindspore_python()
        if python is None:
            msg = f"{self.path} is a MindSpore task, and MindSpore is not installed: {INSTALL_LINE}"
            raise TaskFailure(msg)
        return str(python)

    def environment(self) -> dict[str, str]:
        """Errors alone in the log (GLOG_v), and no cache of compiled kernels beside the task."""
        return {**super().environment(), "GLOG_v": "3", "PYTHONDONTWRITEBYTECODE": "1"}

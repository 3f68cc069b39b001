"""A NumPy task: a function of arrays, or a class that can be called. Its process has no torch."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import ClassVar

from sketchc.runtime.tasks.client import WorkerTask


class NumpyTask(WorkerTask):
    """One NumPy task in its worker process; use as a context manager."""

    framework: ClassVar[str] = "numpy"

    def command(self) -> Sequence[str]:
        return (sys.executable, "-P", "-m", "sketchc.runtime.tasks.worker.numpy_worker")

"""A NumPy task: a function of arrays, or a class that can be called. Its process has no torch."""

from __future__ import annotations

from typing import ClassVar

from sketchc.runtime.tasks.client import WorkerTask


class NumpyTask(WorkerTask):
    """One NumPy task in its worker process; use as a context manager."""

    framework: ClassVar[str] = "numpy"
    serving: ClassVar[str] = "sketchc.runtime.tasks.worker.numpy_worker:main"

"""What verification asks of a reference: a task, or a sketch where there is none; `load_task`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from sketchc.runtime.tasks.description import Readings, Thresholds

if TYPE_CHECKING:
    from sketchc.runtime.process.arrays import Array
    from sketchc.runtime.tasks.client import WorkerTask
    from sketchc.runtime.tasks.description import Scalar, TaskDescription


class Task(Protocol):
    """A reference that can be run at many sizes. A `WorkerTask` and a `SketchTask` are two.

    `path` names it to people; `is_sketch` says that the reference is the sketch's own
    interpretation, so that code that differs from it is to blame. What is not asked of a sketch (it
    has no parameters, its numbers are inputs, it is as exact as code should be) has nothing to say.
    """

    path: Path
    is_sketch: bool

    def describe(self, seed: int = 0) -> TaskDescription:
        """Shapes and dtypes at the task's own sizes."""

    def own_inputs(self, seed: int, variant: int = 0) -> list[Array | Scalar | None]:
        """The inputs at its own sizes, by position; None for what is neither tensor nor number.
        `variant` counts the further lists of `TaskDescription.others`."""

    def valid_inputs(
        self, inputs: Sequence[Array | Scalar | None], substitutes: Mapping[int, Scalar]
    ) -> list[Array | Scalar | None]:
        """The inputs, made such that the task takes them; asked for only where it `corrects`."""
        del substitutes
        return list(inputs)

    def state_shapes(self, substitutes: Mapping[int, Scalar]) -> dict[str, tuple[int, ...]]:
        """Shapes of parameters and buffers when init inputs (by position) have other values."""
        del substitutes
        return {}

    def state_scales(self, substitutes: Mapping[int, Scalar]) -> Mapping[str, float]:
        """The root mean square of parameters and buffers as initialised; 0 for integers."""
        del substitutes
        return {}

    def scalars_of(self, substitutes: Mapping[int, Scalar]) -> Mapping[str, Scalar]:
        """The numbers among the model's attributes when init inputs (by position) have other
        values. Raises `TaskFailure`."""
        del substitutes
        return {}

    def reference(
        self,
        inputs: Sequence[Array | Scalar | None],
        state: Mapping[str, Array] | None = None,
        substitutes: Mapping[int, Scalar] | None = None,
        double: bool = True,
    ) -> list[Array]:
        """The outputs, floats in float64. Raises `TaskFailure`."""

    def readings(
        self,
        inputs: Sequence[Array | Scalar | None],
        state: Mapping[str, Array] | None = None,
        substitutes: Mapping[int, Scalar] | None = None,
        rtol: float = 0.0,
    ) -> Readings:
        """What else it may give on these inputs; what it rounds counts as off by `rtol`."""
        del inputs, state, substitutes, rtol
        return Readings()

    def thresholds(
        self,
        inputs: Sequence[Array | Scalar | None],
        state: Mapping[str, Array] | None = None,
        substitutes: Mapping[int, Scalar] | None = None,
    ) -> Thresholds:
        """The numbers at which its results may bend, seen on these inputs. Raises `TaskFailure`."""
        del inputs, state, substitutes
        return Thresholds()


#: framework -> the class of its tasks.
_KINDS = {
    "torch": "sketchc.runtime.tasks.torch_task:TorchTask",
    "numpy": "sketchc.runtime.tasks.numpy_task:NumpyTask",
    "mindspore": "sketchc.runtime.tasks.mindspore_task:MindsporeTask",
}


def task_path(specification: str) -> tuple[Path, str]:
    """The file and the name of `FILE.py` or `FILE.py:NAME`; "" for no name."""
    path, separator, name = specification.rpartition(":")
    if separator and path.endswith(".py") and name.isidentifier():
        return Path(path), name
    return Path(specification), ""


def load_task(specification: str, timeout: float = 300.0) -> WorkerTask:
    """The task of `FILE.py` or `FILE.py:NAME`, in a process of its own; a context manager.

    The framework follows from what the file defines. `timeout` (seconds) bounds each request to the
    task. Raises `TaskFailure` for a file that is no task, or whose code raises.
    """
    from importlib import import_module

    from sketchc.runtime.tasks.outline import read_outline

    path, name = task_path(specification)
    outline = read_outline(path, name)
    module, _, kind = _KINDS[outline.framework].partition(":")
    chosen: type[WorkerTask] = getattr(import_module(module), kind)
    task = chosen(path, timeout, outline)
    task.specification = specification
    return task

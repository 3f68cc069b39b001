"""What verification asks of a reference: a PyTorch task, or a sketch where there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sketchc.runtime.frontends.arrays import Array
    from sketchc.runtime.frontends.torch_task import Scalar, TaskDescription


class Task(Protocol):
    """A reference that can be run at many sizes. `TorchTask` and `SketchTask` are the two.

    `path` names it to people; `is_sketch` says that the reference is the sketch's own
    interpretation, so that code that differs from it is to blame.
    """

    path: Path
    is_sketch: bool

    def describe(self, seed: int = 0) -> TaskDescription:
        """Shapes and dtypes at the task's own sizes."""

    def own_inputs(self, seed: int) -> list[Array | Scalar | None]:
        """The inputs at its own sizes, by position; None for what is neither tensor nor number."""

    def valid_inputs(
        self, inputs: Sequence[Array | Scalar | None], substitutes: Mapping[int, int]
    ) -> list[Array | Scalar | None]:
        """The inputs, made such that the task takes them; asked for only where it `corrects`."""

    def state_shapes(self, substitutes: Mapping[int, int]) -> dict[str, tuple[int, ...]]:
        """Shapes of parameters and buffers when init inputs (by position) have other values."""

    def reference(
        self,
        inputs: Sequence[Array | Scalar | None],
        state: Mapping[str, Array] | None = None,
        substitutes: Mapping[int, int] | None = None,
        double: bool = True,
    ) -> list[Array]:
        """The outputs, floats in float64. Raises `TaskFailure`."""

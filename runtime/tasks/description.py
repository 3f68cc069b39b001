"""What a task consists of, as plain data: the same for every framework."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import attrs

from sketchc.base.diagnostics import UsageError
from sketchc.base.types import DType
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.layout import Layout

if TYPE_CHECKING:
    from sketchc.runtime.tasks.outline import Hint

Scalar = int | float | bool
#: Inputs by position (None is neither a tensor nor a number), parameters and buffers by name, and
#: init inputs that have other values, by position.
Values: TypeAlias = Sequence[Array | Scalar | None]
State: TypeAlias = Mapping[str, Array]
Inits: TypeAlias = Mapping[int, Scalar]
#: No parameters, and no init inputs.
NONE: Mapping[Any, Any] = MappingProxyType({})


class TaskFailure(UsageError):
    """The task's file, or its code, does not do what a task must do."""


def fail(text: str, cause: BaseException | None = None) -> NoReturn:
    """Raises `TaskFailure` with this text."""
    raise TaskFailure(text) from cause


class TaskKilledError(TaskFailure):
    """The task's process was killed from outside, twice: that says nothing about the task."""


class HintError(TaskFailure):
    """A hint that cannot be read, or does not fit the task."""


@attrs.frozen
class TensorSpec:
    """A tensor of the task: its name (parameters and buffers only), dtype and shape; of a tensor
    without axes that is an input, the `value`, too."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    value: Scalar | None = None


@attrs.frozen
class OtherSpec:
    """A value that is neither a tensor nor a number, as text, with its type's name."""

    text: str
    type: str

    @property
    def is_none(self) -> bool:
        """Whether the value is None: an absent optional tensor, or a constant like others."""
        return self.type == "NoneType"


InputSpec = TensorSpec | Scalar | OtherSpec
#: Inputs of other shapes, by position.
Specs: TypeAlias = Sequence[TensorSpec | Scalar | None]
#: (position of an input, its axis)
Axis = tuple[int, int]


def number_name(position: int) -> str:
    """The name of the param for the number at `position` of forward's inputs."""
    return f"number_{position + 1}"


@attrs.frozen
class Built:
    """A model built with other values of its init inputs: the `shapes` of parameters and buffers,
    their `scales` as initialised (the root mean square; 0 for integers), the half-open `ranges` of
    those that are integers, `scalars`, the numbers among the model's attributes, and the names of
    floats that are `positive`: none below 0, and not all equal."""

    shapes: Mapping[str, tuple[int, ...]] = attrs.field(factory=dict)
    scales: Mapping[str, float] = attrs.field(factory=dict)
    ranges: Mapping[str, tuple[int, int]] = attrs.field(factory=dict)
    scalars: Mapping[str, Scalar] = attrs.field(factory=dict)
    positive: frozenset[str] = frozenset()


@attrs.frozen
class NamedPlaces:
    """The operand `values` of an operation that gave indices (argmax, topk, sort), and whether it
    is `exact`: made of elements of inputs."""

    values: Array = attrs.field(eq=False)
    exact: bool = False


@attrs.frozen
class Readings:
    """Other outputs that a task may give on the inputs of a reference, all in float64.

    `runs`: its outputs, run again as before, and with another number of threads. `moved`: with all
    values before roundings moved down, and up, by a tolerance. `rounded` are these values, in the
    order of the run, `places` the operands of operations that gave indices. Only a framework that
    shows its operations has `moved`, `rounded` and `places`.
    """

    runs: tuple[tuple[Array, ...], ...] = ()
    moved: tuple[tuple[Array, ...], ...] = ()
    rounded: tuple[Array, ...] = ()
    places: tuple[NamedPlaces, ...] = ()


@attrs.frozen
class Thresholds:
    """The `numbers` that a task compares with, clamps to or takes beside its inputs. `selects`: the
    task does nothing but select, compare and copy. `shown`: its operations were seen; else the
    numbers are those of its file."""

    numbers: tuple[int | float, ...] = ()
    selects: bool = False
    shown: bool = False

    def joined(self, other: Thresholds) -> Thresholds:
        """The thresholds that two runs of a task showed, together."""
        if not self.numbers and not self.shown:
            return other
        numbers = dict.fromkeys([*self.numbers, *other.numbers])
        return Thresholds(tuple(numbers), self.selects and other.selects, self.shown)


@attrs.frozen
class TaskDescription:
    """What a task consists of, at its own sizes.

    `inputs` are the arguments of the call, by position (keyword-only ones last); `state` the
    parameters, then the buffers, then other tensors among the attributes of modules, whose names
    are `unregistered`; `scalars` the numbers among the model's attributes; `returns` says what
    holds the outputs: "tensor", "tuple", "list", "dict", "nested", "none" (the inputs that were
    written are the outputs) or "changes" (what is returned, and then the inputs that were written).
    `defaults` holds the positions of inputs that are None when they are left out; `corrects`: the
    model has `valid_inputs`. `written` are the positions of inputs that the task writes into.
    `others` are further lists of inputs (`get_inputs_dyn_list`). `hints` restrict sizes and values;
    `axes` say which axes a size of the hints stands for. `layout` says how forward's inputs hold
    the tensors (`layout`), and `lists` are the titles of the lists of inputs, first of `inputs`,
    then of `others`. `constants` are those of the model's parts (`norm.eps`), and its own that are
    no numbers, as text. `between`: the most elements of intermediate tensors of a large task that
    are alive at once; 0 where that was not seen. `subject` is the name of what is run, `kind` says
    whether it is a "class", an "instance" of one or a "function" of `framework`.
    """

    path: Path
    inputs: tuple[InputSpec, ...]
    init_inputs: tuple[InputSpec, ...]
    state: tuple[TensorSpec, ...]
    scalars: Mapping[str, Scalar]
    outputs: tuple[TensorSpec, ...]
    returns: str = "tensor"
    defaults: frozenset[int] = frozenset()
    corrects: bool = False
    names: tuple[str, ...] = ()
    written: frozenset[int] = frozenset()
    others: tuple[tuple[InputSpec, ...], ...] = ()
    hints: tuple[Hint, ...] = ()
    axes: Mapping[str, tuple[Axis, ...]] = attrs.field(factory=dict)
    framework: str = "torch"
    subject: str = "Model"
    kind: str = "class"
    layout: Layout = attrs.field(factory=list)
    lists: tuple[str, ...] = ()
    constants: Mapping[str, str] = attrs.field(factory=dict)
    between: int = 0
    unregistered: frozenset[str] = frozenset()

    @property
    def elements(self) -> int:
        """Elements of inputs, parameters, buffers and outputs together."""
        tensors = (*self.inputs, *self.state, *self.outputs)
        return sum(prod(one.shape) for one in tensors if isinstance(one, TensorSpec))

    def positions_of(self, name: str) -> tuple[int, ...]:
        """The inputs that an argument consists of: one, or the parts of a container."""
        return tuple(
            position
            for position, known in enumerate(self.names)
            if known == name or known.startswith(f"{name}[")
        )

    def name_of(self, position: int) -> str:
        """The name of an input in messages: "input 2 (`bias`)"."""
        name = f" (`{self.names[position]}`)" if position < len(self.names) else ""
        return f"input {position + 1}{name}"

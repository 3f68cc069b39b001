"""The inputs of one case: what the sketch's tensors hold, and what the task's forward gets.

Values are drawn at random, except at the task's own sizes with the task's own inputs. Integers stay
in the range of the task's own (an index must not exceed what it indexes: the range shrinks with the
symbol that it seems to follow, and with the axes that the sketch subscripts with it). What a hint
of the task says of an input's values comes before the range of its own. A model that
defines `valid_inputs(inputs)` has the last word: it gets what was drawn and returns what forward
takes. Optional tensors are absent in every second case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import attrs
import numpy as np

from sketchc.index_ranges import index_ranges
from sketchc.interpreter_inputs import into_range
from sketchc.runtime.frontends.arrays import Array, numpy_dtype
from sketchc.runtime.frontends.binding import Binding, TensorSource
from sketchc.runtime.frontends.task import Task
from sketchc.runtime.frontends.torch_task import Scalar
from sketchc.runtime.frontends.values import within
from sketchc.runtime.verify.free import receiving
from sketchc.runtime.verify.inputs import generate
from sketchc.runtime.verify.shapes import ShapeCase

Argument: TypeAlias = "Array | Scalar | None"


@attrs.frozen
class Inputs:
    """`values`: the in and inout tensors that are given, by name; `arguments`: forward's inputs by
    position; `state`: parameters and buffers by the model's names."""

    values: dict[str, Array]
    arguments: list[Argument]
    state: dict[str, Array]


def draw(
    binding: Binding,
    task: Task,
    case: ShapeCase,
    kind: str,
    seed: int,
    substitutes: Mapping[int, int],
) -> Inputs:
    """The inputs of `case`; `substitutes` are the model's init inputs at these sizes."""
    random = np.random.default_rng(seed)
    shapes = binding.shapes(case.symbols)
    own = _own_inputs(binding, task, case, kind, seed)
    scales: Mapping[str, float] = {}
    if any(source.state is not None for source in binding.tensors):
        scales = task.state_scales(substitutes)
    arguments: dict[int, Argument] = dict.fromkeys(binding.nothing)
    state: dict[str, Array] = {}
    found: dict[str, Array] = {}
    for source in binding.tensors:
        tensor = source.tensor
        given = own[source.position] if own and source.position is not None else None
        if source.position is not None:
            arguments[source.position] = None
        if tensor.name in case.absent:
            continue
        if kind == "task" and given is not None:
            assert isinstance(given, np.ndarray)
            array = np.ascontiguousarray(given, numpy_dtype(tensor.dtype)).reshape(given.shape)
        else:
            chosen = _kind(source, kind)
            array = generate(chosen, tensor.dtype, shapes[tensor.name], random)
            array = _as_initialised(array, source, scales)
            domain = None if source.position is None else binding.values.get(source.position)
            if domain is not None:
                array = within(array, domain, tensor.dtype)
            elif isinstance(given, np.ndarray) and given.size and tensor.dtype.is_integer:
                array = into_range(array, *_own_range(given, binding, case))
        found[tensor.name] = array
    if kind != "task":
        _keep_indices(binding, case, found)
    for source in binding.tensors:
        if source.position is not None and source.tensor.name in found:
            arguments[source.position] = found[source.tensor.name]
        elif source.state is not None and source.tensor.name in found:
            state[source.state] = found[source.tensor.name]
    for position in binding.param_inputs:
        arguments[position] = binding.number(position)
    arguments |= receiving(binding, shapes)
    ordered = [arguments[position] for position in sorted(arguments)]
    if kind != "task" and binding.description.corrects:
        ordered = _corrected(binding, task, ordered, substitutes, found)
    return Inputs(found, ordered, state)


def _own_inputs(
    binding: Binding, task: Task, case: ShapeCase, kind: str, seed: int
) -> list[Argument]:
    """The task's own inputs where they are wanted; none elsewhere."""
    if kind != "task" and not _bounded(binding):
        return []
    if case.variant:
        return task.own_inputs(seed % (1 << 31), case.variant)
    return task.own_inputs(seed % (1 << 31))


def _bounded(binding: Binding) -> bool:
    """Whether the task's own inputs are needed to know which integers are valid."""
    return not binding.description.corrects and any(
        source.position is not None and source.tensor.dtype.is_integer for source in binding.tensors
    )


def _kind(source: TensorSource, kind: str) -> str:
    """Parameters and buffers are of one scale; a variance is not negative."""
    if source.state is None:
        return kind
    if source.state.endswith("var"):
        return "non_negative"
    return "normal" if kind == "task" else kind


def _as_initialised(array: Array, source: TensorSource, scales: Mapping[str, float]) -> Array:
    """Parameters and buffers at the scale of the model's own initialisation: a recurrence with
    weights of scale 1 amplifies rounding errors as the task never does. What starts as zeros (a
    bias) gets the largest scale of the others, at most 1: all zeros would hide that it is used."""
    if source.state is None or not source.tensor.dtype.is_float:
        return array
    others = [scale for scale in scales.values() if scale]
    scale = scales.get(source.state, 0.0) or min(max(others, default=1.0), 1.0)
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(np.float64) * scale, array.dtype)


def _own_range(own: Array, binding: Binding, case: ShapeCase) -> tuple[int, int]:
    """The half-open range of the task's own values, scaled where it seems to follow a symbol: one
    that it fills by more than half."""
    lower, upper = int(own.min()), int(own.max()) + 1
    fitting = [(size, name) for name, size in binding.symbols.items() if upper <= size < 2 * upper]
    if lower >= 0 and fitting:
        size, name = min(fitting)
        upper = max(1, min(upper, upper * case.symbols[name] // size))
        lower = min(lower, upper - 1)
    return lower, upper


def _keep_indices(binding: Binding, case: ShapeCase, found: dict[str, Array]) -> None:
    """Move elements that the sketch uses as indices into their axes."""
    ranges = index_ranges(binding.sketch, case.symbols, binding.params)
    for name, (lower, upper) in ranges.items():
        if name in found:
            found[name] = into_range(found[name], lower, upper)


def _corrected(
    binding: Binding,
    task: Task,
    arguments: list[Argument],
    substitutes: Mapping[int, int],
    found: dict[str, Array],
) -> list[Argument]:
    """What the model makes of the arguments; `found` follows."""
    corrected = task.valid_inputs(arguments, substitutes)
    for source in binding.tensors:
        if source.position is None or source.tensor.name not in found:
            continue
        array = corrected[source.position]
        assert isinstance(array, np.ndarray)
        dtype = numpy_dtype(source.tensor.dtype)
        found[source.tensor.name] = np.ascontiguousarray(array, dtype).reshape(array.shape)
    return list(corrected)

"""The inputs of one case: what the sketch's tensors hold, and what the task's forward gets.

Values are drawn at random, except at the task's own sizes with the task's own inputs. Integers stay
in the range of the task's own (an index must not exceed what it indexes: the range shrinks with the
symbol that it seems to follow, and with the axes that the sketch subscripts with it). What a hint
of the task says of an input's values comes before the range of its own. A model that
defines `valid_inputs(inputs)` has the last word: it gets what was drawn and returns what forward
takes. Optional tensors are absent in every second case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

import attrs
import numpy as np

from sketchc.base.types import DType, numpy_dtype
from sketchc.interpreter.inputs import into_range
from sketchc.launch.index_inputs import index_ranges
from sketchc.runtime.cases.binding import Binding, TensorSource
from sketchc.runtime.cases.free import receiving
from sketchc.runtime.cases.planting import Plants, plant_floats, plant_integers
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.hints import Domain
from sketchc.runtime.tasks.inputs import LIKE, generate
from sketchc.runtime.tasks.task import Task
from sketchc.runtime.tasks.torch_task import Scalar
from sketchc.runtime.tasks.values import within

Argument: TypeAlias = "Array | Scalar | None"

#: Kinds in which values are planted, and those that may hold the extremes of a type.
PLANTED = frozenset({"normal", "mixed_scale", "large", "non_negative", LIKE})
EXTREMES = frozenset({"mixed_scale", "large"})
#: Sets what is planted apart from what is drawn, which comes from the same seed.
_STREAM = 0x9A1


#: Kinds of input are "KIND/rising" where elements are in order.
RISING = "rising"


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
    substitutes: Mapping[int, Scalar],
    plants: Plants | None = None,
    *,
    rising: bool = False,
) -> Inputs:
    """The inputs of `case`; `substitutes` are the model's init inputs at these sizes, `plants`
    what is planted among random elements. With `rising`, floats stand in the order of their
    magnitudes, so that extremes lie in last tiles."""
    shapes = binding.shapes(case.symbols)
    found = _drawn(binding, task, case, kind, seed, substitutes, plants)
    if rising:
        found = {name: _risen(array) for name, array in found.items()}
    arguments: dict[int, Argument] = dict.fromkeys(binding.nothing)
    arguments |= dict.fromkeys(s.position for s in binding.tensors if s.position is not None)
    state: dict[str, Array] = {}
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


def _risen(array: Array) -> Array:
    if array.dtype.kind in "iub":
        return array
    flat = array.reshape(-1)
    order = np.argsort(np.abs(flat.astype(np.float64)), kind="stable")
    return np.ascontiguousarray(flat[order].reshape(array.shape))


def _drawn(
    binding: Binding,
    task: Task,
    case: ShapeCase,
    kind: str,
    seed: int,
    substitutes: Mapping[int, Scalar],
    plants: Plants | None,
) -> dict[str, Array]:
    """The tensors that are given, by name."""
    random = np.random.default_rng(seed)
    shapes = binding.shapes(case.symbols)
    own = _own_inputs(binding, task, case, kind, seed)
    scales: Mapping[str, float] = {}
    if any(source.state is not None for source in binding.tensors):
        scales = task.state_scales(substitutes)
    found: dict[str, Array] = {}
    ranges: dict[str, tuple[int, int]] = {}
    for source in binding.tensors:
        tensor = source.tensor
        if tensor.name in case.absent:
            continue
        given = own[source.position] if own and source.position is not None else None
        owned = isinstance(given, np.ndarray) and given.size and tensor.dtype.is_integer
        if owned:
            ranges[tensor.name] = _own_range(np.asarray(given), binding, case)
        if kind in ("task", LIKE) and isinstance(given, np.ndarray):
            array = np.ascontiguousarray(given, numpy_dtype(tensor.dtype)).reshape(given.shape)
            array = array if kind == "task" else fitted(array, shapes[tensor.name])
        else:
            chosen = _kind(source, kind)
            array = generate(chosen, tensor.dtype, shapes[tensor.name], random)
            array = _as_initialised(array, source, scales)
        domain = None if source.position is None else binding.values.get(source.position)
        if kind == "task":
            pass
        elif domain is not None:
            array = within(array, domain, tensor.dtype)
        elif owned:
            array = into_range(array, *ranges[tensor.name])
        found[tensor.name] = array
    if kind != "task":
        _keep_indices(binding, case, found, ranges)
    if plants is not None:
        planted = np.random.default_rng([seed, _STREAM])
        _plant(binding, plants, kind, found, ranges, planted)
    return found


def _plant(
    binding: Binding,
    plants: Plants,
    kind: str,
    found: dict[str, Array],
    ranges: Mapping[str, tuple[int, int]],
    random: np.random.Generator,
) -> None:
    """Plant into forward's tensors, of values that a kind and the task's hints allow."""
    if kind not in PLANTED:
        return
    others: list[Array] = []
    for source in binding.tensors:
        name, dtype = source.tensor.name, source.tensor.dtype
        if source.position is None or name not in found or not found[name].size:
            continue
        array, domain = found[name], binding.values.get(source.position)
        if dtype.is_integer and dtype is not DType.BOOL:
            if domain is not None and domain.choices:
                continue
            lower, upper = ranges.get(name, (int(array.min()), int(array.max()) + 1))
            if domain is not None:
                lower, upper = max(lower, int(array.min())), min(upper, int(array.max()) + 1)
            found[name] = plant_integers(array, plants, lower, upper, random)
        elif dtype.is_float:
            holds = _allowed(array, kind, domain)
            extremes = kind in EXTREMES and domain is None
            found[name] = plant_floats(
                array, dtype, plants, others, holds, random, extremes=extremes
            )
            others.append(found[name])


def _allowed(array: Array, kind: str, domain: Domain | None) -> Callable[[float], bool]:
    """Which values may be planted among those of a kind."""
    if domain is not None:
        return domain.holds
    if kind == "non_negative":
        return lambda value: math.copysign(1.0, value) > 0
    if kind == LIKE:
        finite = array[np.isfinite(array)].astype(np.float64)
        low, high = float(finite.min(initial=0.0)), float(finite.max(initial=0.0))
        if finite.size:
            low, high = float(finite.min()), float(finite.max())
        return lambda value: low <= value <= high
    return lambda value: True


def fitted(array: Array, shape: tuple[int, ...]) -> Array:
    """An array of another shape that looks alike: the start of each axis, and over again where it
    is too short. Masks stay triangular, rows stay sorted as far as they go."""
    for axis, extent in enumerate(shape):
        if array.shape[axis] and array.shape[axis] != extent:
            array = np.take(array, np.arange(extent), axis=axis, mode="wrap")
    return np.ascontiguousarray(array).reshape(shape)


def _own_inputs(
    binding: Binding, task: Task, case: ShapeCase, kind: str, seed: int
) -> list[Argument]:
    """The task's own inputs where they are wanted; none elsewhere."""
    if kind not in ("task", LIKE) and not _bounded(binding):
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
    return "normal" if kind in ("task", LIKE) else kind


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


def _keep_indices(
    binding: Binding,
    case: ShapeCase,
    found: dict[str, Array],
    ranges: dict[str, tuple[int, int]],
) -> None:
    """Move elements that the sketch uses as indices into their axes; `ranges` follow."""
    for name, (lower, upper) in index_ranges(binding.sketch, case.symbols, binding.params).items():
        if name in found:
            found[name] = into_range(found[name], lower, upper)
            low, high = ranges.get(name, (lower, upper))
            both = max(low, lower), min(high, upper)
            ranges[name] = both if both[0] < both[1] else (lower, upper)


def _corrected(
    binding: Binding,
    task: Task,
    arguments: list[Argument],
    substitutes: Mapping[int, Scalar],
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

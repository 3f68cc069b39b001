"""The inputs of one case: what the sketch's tensors hold, and what the task's forward gets.

Values are drawn at random, except at the task's own sizes with the task's own inputs. Integers stay
in the range of the task's own (an index must not exceed what it indexes: the range shrinks with the
symbol that it seems to follow, and with the axes that the sketch subscripts with it). A hint of the
task on an input's values takes precedence over the range of the own values. A model that defines
`valid_inputs(inputs)` has the last word: it gets the drawn inputs and returns those that forward
takes. Optional tensors are absent in every second case, of several in turn.

Values at which results change abruptly are planted among the drawn elements. A histogram with `lt`
for `le` at its upper bound, `gt` for `ge`, a missing clamp of the last bin: random floats hardly
ever equal a bound. So some elements are set to the numbers that the task and the sketch compare
with, clamp to or take beside their inputs, to their neighbours in the type, to sums and differences
of two, to zeros of both signs, and to elements of other inputs. A task that does nothing but select
gets the extremes of the type, too: elsewhere they would overflow, also in the framework's own
kernels. Most elements stay as they were drawn.

A kernel that recognises an input by a part or a property of it (its corners, its sum) returns the
result of another input. So the last of the ragged cases is run twice more (`neighbour`): with one
element changed, and with two elements exchanged, which leaves sums as they are.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np

from sketchc.base.types import DType, numpy_dtype
from sketchc.interpreter.inputs import into_range
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value
from sketchc.ir.walk import children
from sketchc.launch.inputs import index_ranges
from sketchc.runtime.cases.binding import Binding, TensorSource
from sketchc.runtime.cases.marks import marked
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import Built, Scalar, Thresholds
from sketchc.runtime.tasks.inputs import LARGE, LIKE, generate, within
from sketchc.runtime.tasks.outline import Domain
from sketchc.runtime.tasks.task import Task

#: The most numbers to plant, and the number of these whose sums and differences are planted.
_MOST, _PAIRED = 32, 6
#: At most one in so many elements is planted.
_SHARE = 4
#: At most so many elements are copied from another input of the same shape.
_EQUAL = 32
#: Inputs of up to so many elements give numbers to plant, as the task does.
_FEW = 64
#: In arrays of up to so many elements, the places to plant at are distinct.
_SHUFFLED = 1 << 12


class Plants(Thresholds):
    """The values to plant among drawn elements, from `numbers` of the task and the sketch."""

    def floats(self, dtype: DType, more: Sequence[float] = ()) -> list[float]:
        """The values to plant in tensors of a type, those of the numbers themselves first."""
        most = LARGE.get(dtype, 1e3)
        numbers = [float(n) for n in self.numbers] + list(more)
        pairs = itertools.permutations(numbers[:_PAIRED], 2)
        sums = [value for one, other in pairs for value in (one - other, one + other)]
        found: dict[float, None] = {}
        for number in (*numbers, *(-n for n in numbers), *sums):
            with np.errstate(over="ignore"):
                value = np.asarray(number, np.float64).astype(numpy_dtype(dtype))
            if not math.isfinite(number) or not abs(float(value)) <= most:
                continue
            if float(value) != number and not self.shown:
                continue  # the reference compares with what the type cannot hold
            beside = np.nextafter(value, np.asarray([-np.inf, np.inf]).astype(value.dtype))
            found |= dict.fromkeys(map(float, (value, *beside)))
        return list(found)

    def extremes(self, dtype: DType) -> list[float]:
        """The largest and smallest normal magnitudes of a type; none if the task computes."""
        if not self.selects:
            return []
        if dtype is DType.BF16:
            largest, tiny = 3.3895313892515355e38, 2.0**-126
        else:
            information = np.finfo(dtype.numpy_name)
            largest, tiny = float(information.max), float(information.tiny)
        return [largest, -largest, tiny, -tiny]

    def integers(self, lower: int, upper: int) -> list[int]:
        """The integers to plant in the half-open range from `lower` to `upper`, with its ends."""
        whole = [int(n) for n in self.numbers if float(n).is_integer()]
        pairs = itertools.permutations(whole[:_PAIRED], 2)
        wanted = [*whole, *(-n for n in whole), *(v for a, b in pairs for v in (a - b, a + b))]
        near = [value + step for value in wanted for step in (0, -1, 1)]
        found = dict.fromkeys([lower, upper - 1, *(v for v in near if lower <= v < upper)])
        return list(found) if lower < upper else []


def plants_of(sketch: ir.Sketch, params: Mapping[str, Value], task: Thresholds) -> Plants:
    """The `Plants` of a task: the params' numbers first, then the task's, then the sketch's."""
    given = [value for value in params.values() if not isinstance(value, bool)]
    numbers = dict.fromkeys([*given, *task.numbers, *literals(sketch)])
    finite = [number for number in numbers if math.isfinite(number)]
    return Plants(tuple(finite[:_MOST]), task.selects, task.shown)


def literals(sketch: ir.Sketch) -> Iterator[Value]:
    """The numbers that a sketch computes and compares with: not those of loops and slices."""
    constants = {constant.name: constant.value for constant in sketch.constants}
    pending: list[ir.Expr] = [let.value for let in sketch.lets]
    for phase in sketch.phases:
        for statement in walk.statements(phase.body):
            match statement:
                case ir.Compute(operands=operands):
                    pending += [o.value for o in operands if not isinstance(o, ir.TileOperand)]
                    attributes = statement.attributes.values()
                    yield from (v for v in attributes if isinstance(v, float))
                case ir.If(condition=condition):
                    pending.append(condition)
                case (
                    ir.Load(where=ir_where) | ir.Store(where=ir_where) | ir.Atomic(where=ir_where)
                ) if ir_where is not None:
                    pending.append(ir_where)
    while pending:
        part = pending.pop(0)
        match part:
            case ir.Literal(value) if not isinstance(value, bool):
                yield value
            case ir.Ref(name, ir.NameKind.CONSTANT) if not isinstance(constants[name], bool):
                yield constants[name]
            case _:
                pending.extend(children(part))


def plant_floats(
    array: Array,
    dtype: DType,
    plants: Plants,
    others: Sequence[Array],
    holds: Callable[[float], bool],
    random: np.random.Generator,
    *,
    extremes: bool,
) -> Array:
    """The array with planted values that `holds` allows; `others` are further float inputs whose
    elements are planted, too, and `extremes` says whether the extremes of the type may be
    planted."""
    small = [float(v) for o in others if o.size <= _FEW for v in o.reshape(-1)[:_PAIRED]]
    wanted = [*plants.floats(dtype, small), 0.0, -0.0]
    wanted += plants.extremes(dtype) if extremes else []
    found = planted(array, [v for v in wanted if holds(v)], random)
    for other in others:
        if other.shape == found.shape and other.dtype == found.dtype and found.size > 1:
            places = random.integers(0, found.size, min(_EQUAL, found.size // _SHARE))
            same = other.reshape(-1)[places]
            kept = np.array([holds(float(value)) for value in same], bool)
            found.reshape(-1)[places[kept]] = same[kept]
    return found


def planted(array: Array, values: Sequence[float | int], random: np.random.Generator) -> Array:
    """`array` with up to a quarter of its elements (of less than 4, one or none) from `values`."""
    count = min(array.size // _SHARE, 2 * len(values))
    if not count and array.size and values:
        count = int(random.random() < array.size / _SHARE)
    if not count:
        return array
    if array.size <= _SHUFFLED:
        places = random.permutation(array.size)[:count]
    else:
        places = random.integers(0, array.size, count)
    order = random.permutation(len(values))
    chosen = [values[order[number % len(values)]] for number in range(count)]
    found = array.copy()
    found.reshape(-1)[places] = np.asarray(chosen).astype(array.dtype)
    return found


Argument: TypeAlias = "Array | Scalar | None"

#: Kinds in which values are planted, and those that may hold the extremes of a type.
PLANTED = frozenset({"normal", "mixed_scale", "large", "non_negative", LIKE})
EXTREMES = frozenset({"mixed_scale", "large"})
#: Separates the random numbers for planting from those for drawing, which have the same seed.
_STREAM = 0x9A1


#: Kinds of input are "KIND/rising" where elements are in the order of their magnitudes.
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
    """The inputs of `case`; `substitutes` are the model's init inputs at these sizes, `plants` the
    values to plant among random elements. With `rising`, floats are sorted by magnitude, so that
    extremes lie in last tiles."""
    drawing = _Drawing(binding, task, case, kind, seed, substitutes)
    found = drawing.values(plants)
    if rising:
        found = {name: _risen(array) for name, array in found.items()}
    inputs = arranged(binding, found, binding.shapes(case.symbols))
    if kind != "task" and binding.description.corrects:
        return drawing.corrected(inputs)
    return inputs


def arranged(
    binding: Binding, values: dict[str, Array], shapes: Mapping[str, tuple[int, ...]]
) -> Inputs:
    """The inputs of the task where the sketch's tensors have these `values`, by name."""
    arguments: dict[int, Argument] = dict.fromkeys(binding.nothing)
    state: dict[str, Array] = {}
    for source in binding.tensors:
        if source.position is not None:
            arguments[source.position] = values.get(source.tensor.name)
        elif source.state is not None and source.tensor.name in values:
            state[source.state] = values[source.tensor.name]
    for position in binding.param_inputs:
        arguments[position] = binding.number(position)
    arguments |= _receiving(binding, shapes)
    return Inputs(values, [arguments[position] for position in sorted(arguments)], state)


def _risen(array: Array) -> Array:
    if array.dtype.kind in "iub":
        return array
    flat = array.reshape(-1)
    order = np.argsort(np.abs(flat.astype(np.float64)), kind="stable")
    return flat[order].reshape(array.shape)


@attrs.define
class _Drawing:
    """Draws the inputs of one case; `ranges` are those of integers, by tensor name."""

    binding: Binding
    task: Task
    case: ShapeCase
    kind: str
    seed: int
    substitutes: Mapping[int, Scalar]
    ranges: dict[str, tuple[int, int]] = attrs.field(factory=dict)

    def values(self, plants: Plants | None) -> dict[str, Array]:
        """The values of the tensors that the case has, by name, with `plants` among them."""
        random = np.random.default_rng(self.seed)
        shapes = self.binding.shapes(self.case.symbols)
        own = self._own_inputs()
        built = Built()
        if any(source.state is not None for source in self.binding.tensors):
            built = self.task.built(self.substitutes)
        found: dict[str, Array] = {}
        for source in self.binding.tensors:
            if source.tensor.name in self.case.absent:
                continue
            given = own[source.position] if own and source.position is not None else None
            shape = shapes[source.tensor.name]
            found[source.tensor.name] = self._one(source, given, shape, built, random)
        if self.kind != "task":
            self._keep_indices(found)
        if plants is not None and self.kind in PLANTED:
            self._plant(plants, found, np.random.default_rng([self.seed, _STREAM]))
        return found

    def _one(
        self,
        source: TensorSource,
        given: Argument,
        shape: tuple[int, ...],
        built: Built,
        random: np.random.Generator,
    ) -> Array:
        """The values of one tensor, of which `given` are the task's own, if they are known."""
        name, dtype = source.tensor.name, source.tensor.dtype
        marks = () if source.position is None else self.binding.marks.get(source.position, ())
        if source.state is not None and source.state in built.ranges:
            # A table of indices, for example: only integers in the range of the model's are valid.
            self.ranges[name] = built.ranges[source.state]
        if isinstance(given, np.ndarray) and given.size and dtype.is_integer:
            others = given[~np.isin(given, marks)] if marks else given
            self.ranges[name] = _own_range(
                others if others.size else given, self.binding, self.case
            )
        if self.kind in ("task", LIKE) and isinstance(given, np.ndarray):
            array = np.ascontiguousarray(given, numpy_dtype(dtype)).reshape(given.shape)
            array = array if self.kind == "task" else fitted(array, shape)
        else:
            array = generate(_kind(source, self.kind, built), dtype, shape, random)
            array = _as_initialised(array, source, built.scales)
        domain = None if source.position is None else self.binding.values.get(source.position)
        if self.kind == "task" and source.state is None:
            return array
        if domain is not None:
            return within(array, domain, dtype)
        moved = into_range(array, *self.ranges[name]) if name in self.ranges else array
        if not marks or not isinstance(given, np.ndarray):
            return moved
        if self.kind == LIKE:
            return np.where(np.isin(array, marks), array, moved)
        return marked(moved, given, marks, random)

    def _own_inputs(self) -> list[Argument]:
        """The task's own inputs where this kind of case needs them; else an empty list."""
        # Other kinds need them to know which integers are valid.
        bounded = not self.binding.description.corrects and any(
            source.position is not None and source.tensor.dtype.is_integer
            for source in self.binding.tensors
        )
        if self.kind not in ("task", LIKE) and not bounded:
            return []
        return self.task.own_inputs(self.seed % (1 << 31), self.case.variant)

    def _plant(self, plants: Plants, found: dict[str, Array], random: np.random.Generator) -> None:
        """Plant values in forward's tensors, as the case's kind and the task's hints allow."""
        others: list[Array] = []
        for source in self.binding.tensors:
            name, dtype = source.tensor.name, source.tensor.dtype
            if source.position is None or name not in found or not found[name].size:
                continue
            array, domain = found[name], self.binding.values.get(source.position)
            if dtype.is_integer and dtype is not DType.BOOL:
                if domain is not None and domain.choices:
                    continue
                lower, upper = self.ranges.get(name, (int(array.min()), int(array.max()) + 1))
                if domain is not None:
                    lower, upper = max(lower, int(array.min())), min(upper, int(array.max()) + 1)
                found[name] = planted(array, plants.integers(lower, upper), random)
            elif dtype.is_float:
                holds = _allowed(array, self.kind, domain)
                extremes = self.kind in EXTREMES and domain is None
                found[name] = plant_floats(
                    array, dtype, plants, others, holds, random, extremes=extremes
                )
                others.append(found[name])

    def _keep_indices(self, found: dict[str, Array]) -> None:
        """Move elements that serve as indices into the range of their axes; narrow `ranges`."""
        indices = index_ranges(self.binding.sketch, self.case.symbols, self.binding.params)
        for name, (lower, upper) in indices.items():
            if name in found:
                found[name] = into_range(found[name], lower, upper)
                low, high = self.ranges.get(name, (lower, upper))
                both = max(low, lower), min(high, upper)
                self.ranges[name] = both if both[0] < both[1] else (lower, upper)

    def corrected(self, inputs: Inputs) -> Inputs:
        """The inputs as the model's `valid_inputs` corrects them."""
        found = dict(inputs.values)
        arguments = list(self.task.valid_inputs(inputs.arguments, self.substitutes))
        for source in self.binding.tensors:
            if source.position is not None and source.tensor.name in found:
                array = arguments[source.position]
                assert isinstance(array, np.ndarray)
                dtype = numpy_dtype(source.tensor.dtype)
                found[source.tensor.name] = np.ascontiguousarray(array, dtype).reshape(array.shape)
        return attrs.evolve(inputs, values=found, arguments=arguments)


def _allowed(array: Array, kind: str, domain: Domain | None) -> Callable[[float], bool]:
    """A predicate: whether a value may be planted in an `array` of this kind and domain."""
    if domain is not None:
        return domain.holds
    if kind == "non_negative":
        return lambda value: math.copysign(1.0, value) > 0
    if kind == LIKE:
        finite = array[np.isfinite(array)].astype(np.float64)
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
        return lambda value: low <= value <= high
    return lambda value: True


def fitted(array: Array, shape: tuple[int, ...]) -> Array:
    """`array` in another shape: each axis is cut, or repeated where it is too short. Masks stay
    triangular, and rows stay sorted up to the first repetition."""
    for axis, extent in enumerate(shape):
        if array.shape[axis] and array.shape[axis] != extent:
            array = np.take(array, np.arange(extent), axis=axis, mode="wrap")
    return np.ascontiguousarray(array).reshape(shape)


def _kind(source: TensorSource, kind: str, built: Built) -> str:
    """The kind of values for `source`: `kind` for forward's inputs; for parameters and buffers one
    of one scale. Variances, and state that is `positive` in a new model, are non-negative."""
    if source.state is None:
        return kind
    if source.state.endswith("var") or source.state in built.positive:
        return "non_negative"
    return "normal" if kind in ("task", LIKE) else kind


def _as_initialised(array: Array, source: TensorSource, scales: Mapping[str, float]) -> Array:
    """`array`, if it is a parameter or buffer, at the scale of the model's own initialisation: a
    recurrence with weights of scale 1 amplifies rounding errors as the task never does. State that
    starts as zeros (a bias) gets the largest scale of the others, at most 1: zeros would hide its
    use."""
    if source.state is None or not source.tensor.dtype.is_float:
        return array
    others = [scale for scale in scales.values() if scale]
    scale = scales.get(source.state, 0.0) or min(max(others, default=1.0), 1.0)
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(np.float64) * scale, array.dtype)


def _own_range(own: Array, binding: Binding, case: ShapeCase) -> tuple[int, int]:
    """The half-open range of the task's own values, scaled if it seems to follow a symbol: one
    whose size it fills by more than half."""
    lower, upper = int(own.min()), int(own.max()) + 1
    fitting = [(size, name) for name, size in binding.symbols.items() if upper <= size < 2 * upper]
    if lower >= 0 and fitting:
        size, name = min(fitting)
        upper = max(1, min(upper, upper * case.symbols[name] // size))
        lower = min(lower, upper - 1)
    return lower, upper


#: Kinds of input are "KIND/changed" and "KIND/swapped".
CHANGED, SWAPPED = "changed", "swapped"


def with_neighbours(
    cases: list[tuple[ShapeCase, str]],
) -> list[tuple[ShapeCase, str]]:
    """The cases, with two neighbours behind the last one that does not have the task's own sizes,
    or behind the last of all where every case has the task's sizes."""
    if not cases:
        return cases
    ragged = [place for place, (case, _) in enumerate(cases) if not case.own]
    place = ragged[-1] if ragged else len(cases) - 1
    case, kind = cases[place]
    near = [(case, f"{kind}/{change}") for change in (CHANGED, SWAPPED)]
    return [*cases[: place + 1], *near, *cases[place + 1 :]]


def is_neighbour(kind: str) -> bool:
    """Whether inputs of this kind are, but for a change, those of the case before."""
    return "/" in kind


def base_kind(kind: str) -> str:
    """The kind of the case that a neighbour of this `kind` repeats; any other kind is its own."""
    return kind.partition("/")[0]


def neighbour(inputs: Inputs, kind: str, seed: int) -> Inputs:
    """The inputs with one element replaced by the one of the largest magnitude, or swapped with it,
    in each float tensor with two different elements, so that a result that stays the same shows."""
    _, _, change = kind.partition("/")
    if not change:
        return inputs
    random = np.random.default_rng(seed + 1)
    moved = {
        id(array): _moved(array, change, random)
        for array in [*inputs.values.values(), *inputs.arguments, *inputs.state.values()]
        if isinstance(array, np.ndarray)
    }

    def new(value: Any) -> Any:
        return moved.get(id(value), value)

    return attrs.evolve(
        inputs,
        values={name: new(array) for name, array in inputs.values.items()},
        arguments=[new(argument) for argument in inputs.arguments],
        state={name: new(array) for name, array in inputs.state.items()},
    )


def _moved(array: Array, change: str, random: np.random.Generator) -> Array:
    flat = np.asarray(array, np.float64).reshape(-1)
    if array.dtype.kind in "iub" or not flat.size:
        return array
    largest = int(np.argmax(np.abs(flat)))
    others = np.flatnonzero(flat != flat[largest])
    if not others.size:
        return array
    place = int(random.choice(others))
    found = array.copy()
    elements = found.reshape(-1)
    elements[place] = array.reshape(-1)[largest]
    if change == SWAPPED:
        elements[largest] = array.reshape(-1)[place]
    return found


def _receiving(binding: Binding, shapes: Mapping[str, tuple[int, ...]]) -> dict[int, Array]:
    """Random numbers for the inputs that the task only writes into, by position: they show in the
    outputs if the task reads them."""
    dtypes = {tensor.name: tensor.dtype for tensor in binding.outputs}
    random = np.random.default_rng(0)
    return {
        position: generate("normal", dtypes[name], shapes[name], random)
        for position, name in binding.receivers.items()
    }

"""How many elements of an input can reach one element of an output, found by running the task.

Where no sketch says what is added up, the tolerance follows from this number: no sum has more terms
than elements that reach it. A task is run at two sets of small sizes, once with each plane of each
input replaced (by NaN, where it holds floats); the outputs that change are those that the plane
reaches. The planes along one axis that reach an output element are counted: where the counts at
both sets of sizes agree, the count is that of a window (1 for an axis that is mapped element by
element), else the whole axis may be added up. Elements that reach lie in the product of such
planes.

Few runs settle most axes: where the first and the last plane reach one element, the whole axis
counts; where the two halves of the axis, split by each binary digit of the index, reach disjoint
elements, each is reached by single planes. Only windows are counted plane by plane. Every doubt
counts as reach: what is too costly to run, what the task refuses, and, where integers may choose
what is added, any count but 0 and 1.

Which symbols may be tried at other sizes than the task's is found by running it, too
(`find_freedom`). A model's parameters tie symbols to its init inputs. Init inputs that equal a
symbol's value may stand for that symbol; which of them do is found by building and running the
model at other sizes. Symbols of parameters that cannot be followed keep the task's size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice, product

import attrs
import numpy as np

from sketchc.base.diagnostics import UsageError
from sketchc.base.types import numpy_dtype
from sketchc.runtime.cases.binding import Binding, TensorSource
from sketchc.runtime.cases.drawing import Inputs, arranged, draw
from sketchc.runtime.cases.shapes import ShapeCase
from sketchc.runtime.cases.sizes import nearest
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import Scalar, TaskFailure
from sketchc.runtime.tasks.task import Task

#: Distinct sizes to probe with.
_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41)
_MOST_TRIES = 64
#: How many assignments that give the right shapes are run.
_MOST_RUNS = 8


@attrs.frozen
class Freedom:
    """The `free` symbols, and the symbol that each init input (by position) follows."""

    free: frozenset[str]
    follows: Mapping[int, str]

    def substitutes(self, symbols: Mapping[str, int]) -> dict[int, int]:
        """The values of the init inputs at the sizes `symbols`, by position."""
        return {position: symbols[name] for position, name in self.follows.items()}


def find_freedom(binding: Binding, task: Task) -> Freedom:
    """The symbols that may have other sizes, found by probing the task's model.

    Of the ways to let init inputs follow symbols, the one that ties the fewest is taken that gives
    the parameters the shapes that the sketch wants, and the outputs theirs: a kernel size that
    happens to equal the batch size stays as it is.
    """
    names = frozenset(binding.symbols)
    tied = Freedom(names - _state_symbols(binding), {})
    probe = _probe_sizes(binding)
    if len(probe) < len(names):
        return tied
    wanted = {
        source.state: binding.shapes(probe)[source.tensor.name]
        for source in binding.tensors
        if source.state is not None
    }
    fitting: list[Freedom] = []
    for follows in islice(_assignments(binding), _MOST_TRIES):
        freedom = Freedom(names, follows)
        try:
            shapes = task.built(freedom.substitutes(probe)).shapes
        except TaskFailure:
            continue
        if all(shapes.get(name) == shape for name, shape in wanted.items() if name):
            fitting.append(freedom)
    runs = (freedom for freedom in fitting[:_MOST_RUNS] if _runs(binding, task, freedom, probe))
    return next(runs, fitting[0] if fitting else tied)


def _probe_sizes(binding: Binding) -> dict[str, int]:
    """A size for each symbol within the task's hints, distinct where that is possible."""
    found: dict[str, int] = {}
    for name, prime in zip(binding.symbols, _PRIMES, strict=False):
        domain = binding.domain(name)
        size = domain.near(prime)
        while name in binding.sizes and size in found.values():
            following = domain.at_least(size + 1)
            if following is None:
                break
            size = following
        found[name] = size
    # As near as the sketch may be launched: else neither it nor the task may give shapes at all.
    near = nearest(binding.sketch, found, binding.params, least=1)
    if (
        near is None
        or not binding.allows(near)
        or len(set(near.values())) < len(set(found.values()))
    ):
        return found
    return near


def _runs(binding: Binding, task: Task, freedom: Freedom, probe: Mapping[str, int]) -> bool:
    """Whether the task, built with the init inputs of `freedom`, runs at the sizes `probe` and
    returns outputs of the shapes that the sketch has there."""
    shapes = binding.shapes(probe)
    ones = {
        source.tensor.name: np.ones(shapes[source.tensor.name], numpy_dtype(source.tensor.dtype))
        for source in binding.tensors
    }
    inputs = arranged(binding, ones, shapes)
    try:
        outputs = task.reference(inputs.arguments, inputs.state, freedom.substitutes(probe))
    except TaskFailure:
        return False
    return [o.shape for o in outputs] == [shapes[tensor.name] for tensor in binding.outputs]


def _state_symbols(binding: Binding) -> frozenset[str]:
    """The symbols in the shapes of tensors that are parameters or buffers of the model."""
    names = [source.tensor.name for source in binding.tensors if source.state is not None]
    own = binding.symbols
    before = binding.shapes(own)
    return frozenset(
        symbol
        for symbol, size in own.items()
        if any(binding.shapes({**own, symbol: size + 1})[name] != before[name] for name in names)
    )


def _assignments(binding: Binding) -> list[dict[int, str]]:
    """Ways to let init inputs follow symbols of the same value, those that tie the fewest first."""
    choices: list[list[tuple[int, str | None]]] = []
    for position, value in enumerate(binding.description.init_inputs):
        if isinstance(value, bool) or not isinstance(value, int):
            continue
        names = [name for name, size in binding.symbols.items() if size == value]
        if names:
            choices.append([*((position, name) for name in names), (position, None)])
    found = [
        {position: name for position, name in combination if name is not None}
        for combination in islice(product(*choices), _MOST_TRIES)
    ]
    return sorted(found, key=len)


def tied_note(binding: Binding, freedom: Freedom) -> str:
    """A note on the symbols that keep the task's size; "" when all are free."""
    tied = [s.name for s in binding.sketch.symbols if s.name not in freedom.free]
    if not tied:
        return ""
    return f"{', '.join(tied)} kept at the task's size: the model's parameters fix it"


#: Pairs of sizes for the first symbol; each further one is one larger. Windows must fit into them.
_POINTS = ((5, 9), (16, 25), (40, 59))
#: Axes up to this extent are tested plane by plane.
_PLANES = 96
#: Elements over all tensors times runs at one set of sizes.
_MOST = 1 << 27
#: A note for where the task does not say.
UNKNOWN_REACH = (
    "the task does not run at small sizes: the tolerance allows for sums over the largest input"
)


@attrs.frozen
class Reach:
    """For each tensor and axis: how many planes reach one output element, None for all of them."""

    planes: Mapping[str, tuple[int | None, ...]]

    def length(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """The most elements of one tensor that reach one output element, at these shapes."""
        found = 1
        for name, counts in self.planes.items():
            within = (
                extent if count is None else min(count, extent)
                for extent, count in zip(shapes[name], counts, strict=True)
            )
            found = max(found, math.prod(within))
        return found


def find_reach(binding: Binding, task: Task, freedom: Freedom) -> Reach | None:
    """The reach, found by running the task; None where it refuses small sizes or gives NaN."""
    for pair in _POINTS:
        points = [_point(binding, freedom, first) for first in pair]
        found = [
            counts
            for point in points
            if point is not None and (counts := _counts(binding, task, freedom, point)) is not None
        ]
        if len(found) == len(points):
            return _joined(binding, [point for point in points if point is not None], found)
    return None


def _point(binding: Binding, freedom: Freedom, first: int) -> dict[str, int] | None:
    """Small sizes for all free symbols; None where the sketch or the hints allow none nearby."""
    symbols = dict(binding.symbols)
    for place, name in enumerate(name for name in symbols if name in freedom.free):
        symbols[name] = binding.domain(name).near(first + place)
    found = nearest(binding.sketch, symbols, binding.params, freedom.free, least=1)
    return found if found is not None and binding.allows(found) else None


def _joined(
    binding: Binding,
    points: list[dict[str, int]],
    found: list[dict[str, tuple[int | None, ...]]],
) -> Reach:
    """The reach that the counts `found` at two sets of sizes (`points`) show together."""
    first, second = (binding.shapes(point) for point in points)
    chosen = any(not source.tensor.dtype.is_float for source in binding.tensors)
    planes: dict[str, tuple[int | None, ...]] = {}
    for source in binding.tensors:
        name = source.tensor.name
        joined: list[int | None] = []
        for axis, (one, other) in enumerate(zip(found[0][name], found[1][name], strict=True)):
            fixed = first[name][axis] == second[name][axis]
            if one is None or other is None or (chosen and max(one, other) > 1):
                joined.append(None)
            elif fixed:
                joined.append(max(one, other))
            else:
                joined.append(one if one == other else None)
        planes[name] = tuple(joined)
    return Reach(planes)


def _counts(
    binding: Binding, task: Task, freedom: Freedom, symbols: Mapping[str, int]
) -> dict[str, tuple[int | None, ...]] | None:
    """How many planes reach one output element, by tensor and axis; None for all planes of an axis
    and where counting is too costly. None altogether where the outputs do not show it."""
    substitutes = freedom.substitutes(symbols)
    case = ShapeCase("reach", symbols)
    for kind in ("normal", "non_negative"):
        try:
            inputs = draw(binding, task, case, kind, 0, substitutes)
            outputs = _outputs(task, inputs, substitutes)
        except UsageError:
            return None
        if not np.isnan(outputs).any():
            break
    else:
        return None
    size = max(sum(array.size for array in inputs.values.values()), 1)
    asked = _Asked(task, inputs, substitutes, outputs, _MOST // size)
    by_size = sorted(binding.tensors, key=lambda source: inputs.values[source.tensor.name].size)
    return {
        source.tensor.name: tuple(
            asked.along(source, axis) for axis in range(len(source.tensor.extents))
        )
        for source in by_size
    }


def _outputs(task: Task, inputs: Inputs, substitutes: Mapping[int, Scalar]) -> Array:
    """The elements of all float outputs of the task, concatenated."""
    arrays = task.reference(inputs.arguments, inputs.state, substitutes)
    floats = [array.reshape(-1) for array in arrays if array.dtype.kind not in "iub"]
    return np.concatenate([np.zeros(0), *floats])


@attrs.define
class _Asked:
    """One set of sizes: its inputs, the task's outputs on them, and how many runs are left."""

    task: Task
    inputs: Inputs
    substitutes: Mapping[int, Scalar]
    outputs: Array
    left: int

    def along(self, source: TensorSource, axis: int) -> int | None:
        """The most planes along an axis that reach one output element; None for all of them, and
        where that cannot be determined."""
        extent = self.inputs.values[source.tensor.name].shape[axis]
        places = np.arange(extent)
        if extent > 1:
            both = self._counted(source, axis, [places[:1], places[-1:]])
            if both is None or both.max(initial=0) == 2:
                return None
        product = np.ones(self.outputs.size, np.int64)
        for digit in range(max(extent - 1, 1).bit_length()):
            halves = [places[places >> digit & 1 == bit] for bit in (0, 1)]
            counted = self._counted(source, axis, halves)
            if counted is None:
                return None
            product *= counted
        if (most := int(product.max(initial=0))) <= 1:
            return most
        planes = [places[place : place + 1] for place in places] if extent <= _PLANES else []
        counted = self._counted(source, axis, planes) if planes else None
        return None if counted is None else int(counted.max(initial=0))

    def _counted(self, source: TensorSource, axis: int, groups: list[Array]) -> Array | None:
        """For each output element, how many of the `groups` reach it; None if a run fails."""
        array = self.inputs.values[source.tensor.name]
        counted = np.zeros(self.outputs.size, np.int64)
        for places in groups:
            self.left -= 1
            changed = _replaced(array, axis, places) if self.left >= 0 else None
            if changed is None:
                return None
            try:
                after = _outputs(self.task, _with(self.inputs, source, changed), self.substitutes)
            except UsageError:
                return None
            if after.shape != self.outputs.shape:
                return None
            counted += ~((after == self.outputs) & ~np.isnan(after))
        return counted


def _replaced(array: Array, axis: int, places: Array) -> Array | None:
    """`array` with other values in the planes `places`; None if its integers are all equal."""
    found = array.copy()
    planes = np.moveaxis(found, axis, 0)
    if array.dtype.kind == "b":
        planes[places] = ~planes[places]
    elif array.dtype.kind in "iu":
        values = np.unique(array)
        if values.size < 2:
            return None
        following = (np.searchsorted(values, planes[places]) + 1) % values.size
        planes[places] = values[following]
    else:
        planes[places] = np.nan
    return found


def _with(inputs: Inputs, source: TensorSource, array: Array) -> Inputs:
    """The inputs with `array` as the values of the tensor from `source`."""
    if source.position is not None:
        arguments = list(inputs.arguments)
        arguments[source.position] = array
        return attrs.evolve(inputs, arguments=arguments)
    assert source.state is not None
    return attrs.evolve(inputs, state={**inputs.state, source.state: array})

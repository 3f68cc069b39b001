"""Elements at the values where results bend: planted among those that were drawn.

A histogram with `lt` for `le` at its upper bound, `gt` for `ge`, a missing clamp of the last bin:
random floats hardly ever equal a bound. So some elements are set to the numbers that the task and
the sketch compare with, clamp to or take beside their inputs, to their neighbours in the type, to
sums and differences of two, to zeros of both signs, and to elements of other inputs. A task that
does nothing but select gets the extremes of the type, too: elsewhere they would overflow, also in
the framework's own kernels. Most elements stay as they were drawn.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs
import numpy as np

from sketchc.base.types import DType, numpy_dtype
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value
from sketchc.ir.walk import children
from sketchc.runtime.process.arrays import Array
from sketchc.runtime.tasks.description import Thresholds
from sketchc.runtime.tasks.inputs import LARGE

#: So many numbers count, and of the first of them sums and differences.
_MOST, _PAIRED = 32, 6
#: At most one of so many elements is planted.
_SHARE = 4
#: So many elements are those of another input of the same shape.
_EQUAL = 32
#: Elements up to which another input's elements are numbers like the task's own.
_FEW = 64
#: Elements up to which places are distinct.
_SHUFFLED = 1 << 12


@attrs.frozen
class Plants:
    """What is planted: `numbers` of the task and the sketch; see `description.Thresholds`."""

    numbers: tuple[Value, ...] = ()
    selects: bool = False
    shown: bool = False

    def floats(self, dtype: DType, more: Sequence[float] = ()) -> list[float]:
        """The values for tensors of a type, those of the numbers themselves first."""
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
            found |= dict.fromkeys(float(one) for one in _with_neighbours(value))
        return list(found)

    def extremes(self, dtype: DType) -> list[float]:
        """The largest and the smallest values of a type, where no result can overflow."""
        if not self.selects:
            return []
        if dtype is DType.BF16:
            largest, tiny = 3.3895313892515355e38, 2.0**-126
        else:
            information = np.finfo(dtype.numpy_name)
            largest, tiny = float(information.max), float(information.tiny)
        return [largest, -largest, tiny, -tiny]

    def integers(self, lower: int, upper: int) -> list[int]:
        """The whole numbers in a half-open range, with its ends."""
        whole = [int(n) for n in self.numbers if float(n).is_integer()]
        pairs = itertools.permutations(whole[:_PAIRED], 2)
        wanted = [*whole, *(-n for n in whole), *(v for a, b in pairs for v in (a - b, a + b))]
        near = [value + step for value in wanted for step in (0, -1, 1)]
        found = dict.fromkeys([lower, upper - 1, *(v for v in near if lower <= v < upper)])
        return list(found) if lower < upper else []


def plants_of(sketch: ir.Sketch, params: Mapping[str, Value], task: Thresholds) -> Plants:
    """The numbers of the params first, then the task's, then the sketch's."""
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
                case _:
                    pass
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
    """The array with elements planted that `holds` allows; `others` are further float inputs, and
    `extremes` says whether values of any magnitude may be among them."""
    small = [float(v) for o in others if o.size <= _FEW for v in o.reshape(-1)[:_PAIRED]]
    wanted = [*plants.floats(dtype, small), 0.0, -0.0]
    wanted += plants.extremes(dtype) if extremes else []
    found = _planted(array, [v for v in wanted if holds(v)], random)
    for other in others:
        if other.shape == found.shape and other.dtype == found.dtype and found.size > 1:
            places = random.integers(0, found.size, min(_EQUAL, found.size // _SHARE))
            same = other.reshape(-1)[places]
            kept = np.array([holds(float(value)) for value in same], bool)
            found.reshape(-1)[places[kept]] = same[kept]
    return found


def plant_integers(
    array: Array, plants: Plants, lower: int, upper: int, random: np.random.Generator
) -> Array:
    """The array with elements planted in a half-open range, its ends among them."""
    return _planted(array, plants.integers(lower, upper), random)


def _planted(array: Array, values: Sequence[float | int], random: np.random.Generator) -> Array:
    """The array with some of its elements replaced; of few elements, sometimes none."""
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


def _with_neighbours(value: Array) -> list[Array]:
    """A value of a type, and the next ones below and above."""
    infinity = np.asarray(np.inf).astype(value.dtype)
    return [value, np.nextafter(value, -infinity), np.nextafter(value, infinity)]

"""Random inputs for an execution: signed, of mixed scales, exact in the tensor's type.

Where a sketch takes a promise about its inputs, inputs are drawn that keep it: indices in range,
and for stores with `unique=True` or `covers=True` indices that are distinct, or complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

import numpy as np

from sketchc.base import records
from sketchc.base.types import DType, numpy_dtype
from sketchc.interpreter.api import Result
from sketchc.interpreter.memory import STRAY
from sketchc.interpreter.tiles import Array, to_tensor
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value
from sketchc.launch.inputs import Promise, index_ranges, promises, solve_symbols


@records.frozen
class Drawing:
    """How inputs are drawn. `floats` is the range of floats, and `largest` the largest of integers,
    which are then positive; None: see `random_array`. `places` selects one of the ways in which
    promised indices can be distinct."""

    floats: tuple[float, float] | None = None
    largest: int | None = None
    places: int = 0


#: Draws to try one after the other where results come out as NaN or Inf, an operation has no value,
#: or a promise turns out broken: few functions are defined in none of these ranges.
DRAWINGS = (
    Drawing(),
    Drawing((0.25, 1.0), 3, 1),
    Drawing((1.5, 4.0), 2, 2),
    Drawing((-1.0, -0.25), 1, 3),
)


def random_array(
    generator: np.random.Generator,
    shape: tuple[int, ...],
    dtype: DType,
    drawing: Drawing = DRAWINGS[0],
) -> Array:
    """An array of `dtype`: floats are normal times 10**u with u in [-2, 1], integers mostly small
    with some larger ones, both signed where the type is, unless the drawing says other ranges;
    booleans are fair coins."""
    if dtype is DType.BOOL:
        return generator.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_float and drawing.floats is not None:
        return to_tensor(generator.uniform(*drawing.floats, shape), dtype)
    if dtype.is_integer and drawing.largest is not None:
        return generator.integers(1, drawing.largest + 1, shape).astype(numpy_dtype(dtype))
    if dtype.is_float:
        scale = 10.0 ** generator.uniform(-2.0, 1.0, shape)
        return to_tensor(generator.standard_normal(shape) * scale, dtype)
    small = generator.integers(-9, 10, shape)
    large = generator.integers(-100, 101, shape)
    values = np.where(generator.random(shape) < 0.8, small, large)
    return (values if dtype.is_signed else np.abs(values)).astype(numpy_dtype(dtype))


def random_inputs(
    sketch: ir.Sketch,
    shapes: Mapping[str, tuple[int, ...]],
    generator: np.random.Generator,
    params: Mapping[str, Value] | None = None,
    drawing: Drawing = DRAWINGS[0],
) -> dict[str, Array]:
    """A random array for every in and inout tensor of `sketch`, by name. Tensors of indices hold
    valid ones, which keep the promises of stores where that is possible; `params` (else defaults)
    matter for the ranges of indices alone."""
    arrays = {
        tensor.name: random_array(generator, shapes[tensor.name], tensor.dtype, drawing)
        for tensor in sketch.tensors
        if tensor.role in (ir.Role.IN, ir.Role.INOUT)
    }
    ranges = _ranges(sketch, shapes, params)
    for name, (lower, upper) in ranges.items():
        if drawing.largest is not None:
            lower = max(lower, 0) if upper > 0 else lower
            upper = min(upper, lower + drawing.largest)
        arrays[name] = into_range(arrays[name], lower, upper)
    for promise in promises(sketch):
        ways = list(_ways(promise, shapes, ranges))
        if ways:
            axes = ways[drawing.places % len(ways)]
            arrays |= _promised(promise, axes, arrays, ranges, generator)
    return arrays


def _ways(
    promise: Promise,
    shapes: Mapping[str, tuple[int, ...]],
    ranges: Mapping[str, tuple[int, int]],
) -> Iterator[tuple[int, ...]]:
    """The axes along which the indices of a promise can be distinct, or complete: all axes of
    their tensors, the last ones, the first ones, as far as there are enough values."""
    found = {shapes[name] for name in promise.tensors}
    if len(found) > 1:
        return
    (shape,) = found
    spans = [ranges[name] for name in promise.tensors]
    places = prod(max(0, upper - lower) for lower, upper in spans)
    rank = len(shape)
    axes = [tuple(range(first, rank)) for first in range(rank)]
    axes += [tuple(range(last)) for last in range(rank - 1, 0, -1)]
    for some in axes:
        count = prod(shape[axis] for axis in some)
        enough = count <= places if promise.unique else True
        if enough and (count >= places or not promise.covers):
            yield some


def _promised(
    promise: Promise,
    axes: tuple[int, ...],
    arrays: Mapping[str, Array],
    ranges: Mapping[str, tuple[int, int]],
    generator: np.random.Generator,
) -> dict[str, Array]:
    """The arrays of a promise with indices that are distinct, or complete, along `axes`; they are
    drawn anew for each position on the other axes."""
    shape = arrays[promise.tensors[0]].shape
    others = tuple(axis for axis in range(len(shape)) if axis not in axes)
    count = prod(shape[axis] for axis in axes)
    lowers = [ranges[name][0] for name in promise.tensors]
    sizes = [ranges[name][1] - ranges[name][0] for name in promise.tensors]
    places = prod(sizes)
    blocks = []
    for _ in range(prod(shape[axis] for axis in others)):
        chosen = generator.choice(places, min(count, places), replace=False)
        if count > places:
            again = generator.integers(0, places, count - places)
            chosen = generator.permutation(np.concatenate([chosen, again]))
        blocks.append(chosen)
    flat = np.array(blocks, np.int64).reshape(
        [shape[axis] for axis in others] + [shape[axis] for axis in axes]
    )
    flat = np.transpose(flat, np.argsort((*others, *axes)))
    parts = np.unravel_index(flat, sizes) if flat.size else [flat] * len(sizes)
    return {
        name: (part + lower).astype(arrays[name].dtype)
        for name, part, lower in zip(promise.tensors, parts, lowers, strict=True)
    }


def indices_exist(
    sketch: ir.Sketch,
    shapes: Mapping[str, tuple[int, ...]],
    params: Mapping[str, Value] | None = None,
) -> bool:
    """Whether valid indices exist for every tensor of indices that has elements, and keep the
    promises of stores."""
    ranges = _ranges(sketch, shapes, params)
    if not all(lower < upper or 0 in shapes[name] for name, (lower, upper) in ranges.items()):
        return False
    return all(
        len({shapes[name] for name in promise.tensors}) > 1
        or any(True for _ in _ways(promise, shapes, ranges))
        for promise in promises(sketch)
    )


def _ranges(
    sketch: ir.Sketch, shapes: Mapping[str, tuple[int, ...]], params: Mapping[str, Value] | None
) -> dict[str, tuple[int, int]]:
    """The half-open range of valid indices for each tensor of indices, by name."""
    given = {p.name: p.default if p.default is not None else 1 for p in sketch.params}
    return index_ranges(sketch, solve_symbols(sketch, shapes, {}), {**given, **(params or {})})


def into_range(array: Array, lower: int, upper: int) -> Array:
    """An integer array with the values outside [lower, upper) moved into that range. An array of
    other types, and any array where the range is empty, is returned unchanged."""
    if upper <= lower or array.dtype.kind not in "iu":
        return array
    outside = (array < lower) | (array >= upper)
    if not outside.any():
        return array
    moved = lower + (array.astype(np.int64) - lower) % (upper - lower)
    return np.where(outside, moved, array).astype(array.dtype)


#: Most runs for the inputs of one call, and most elements of an input to search values for.
MOST_RUNS = 80
MOST_ELEMENTS = 256
#: Most rounds to find out which lanes an element decides, each of one run per binary digit, and
#: most runs in a row that bring values for no more elements.
CODED_ROUNDS = 6
PATIENCE = 16
#: More than any position in one tensor.
_BLOCK = 2**40

#: A run on the given inputs with `Options.places`; None where the run has no result.
Trial = Callable[[Mapping[str, Array]], Result | None]
#: Values of one element: one for each tensor searched.
Values = tuple[int, ...]
Places = frozenset[int]


def keeping_inputs(
    sketch: ir.Sketch,
    arrays: Mapping[str, Array],
    trial: Trial,
    numbers: Sequence[int],
    generator: np.random.Generator,
    most_runs: int = MOST_RUNS,
) -> dict[str, Array] | None:
    """`arrays` with other values in integer inputs, such that a run breaks no promise; None where
    none are found. `numbers`: sizes and params, near which, as near the integers written in the
    sketch, values are tried, too."""
    left = most_runs

    def run(inputs: Mapping[str, Array]) -> Result | None:
        nonlocal left
        left -= 1
        return trial(inputs) if left >= 0 else None

    numbers = (*numbers, *_literals(sketch))
    for names in _groups(sketch, arrays):
        search = _Search(names, dict(arrays), run, numbers, generator)
        for found in search.candidates():
            result = run(found)
            if result is not None and not any(v.promised for v in result.violations):
                return found
    return None


def _groups(sketch: ir.Sketch, arrays: Mapping[str, Array]) -> list[tuple[str, ...]]:
    """The integer inputs that can hold indices, grouped by shape: a search changes one group."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for tensor in sketch.tensors:
        array = arrays.get(tensor.name)
        if array is None or not tensor.dtype.is_integer or tensor.dtype is DType.BOOL:
            continue
        if 0 < array.size <= MOST_ELEMENTS:
            groups.setdefault(array.shape, []).append(tensor.name)
    return [tuple(names) for names in groups.values()]


def _literals(sketch: ir.Sketch) -> list[int]:
    """The integer literals in computations of values and of store indices, and their negatives."""
    found: dict[int, None] = {}
    for statement in walk.in_phases(sketch.phases):
        for part in (part for value in _computed(statement) for part in walk.parts(value)):
            match part:
                case ir.Literal(bool()):
                    pass
                case ir.Literal(int(number)) if abs(number) > 1:
                    found |= dict.fromkeys((number, -number))
    return list(found)


def _computed(statement: ir.Statement) -> list[ir.Expr]:
    """The scalar operands of a computation, the value of a binding, the indices of a store."""
    match statement:
        case ir.Compute(operands=operands):
            return [one.value for one in operands if isinstance(one, ir.ScalarOperand)]
        case ir.Bind(value=value):
            return [value]
        case ir.Store(access=access):
            return [
                subscript.value if isinstance(subscript, ir.IndexSubscript) else subscript.index
                for subscript in access.subscripts
                if not isinstance(subscript, ir.SliceSubscript)
            ]
        case _:
            return []


class _Search:
    """A search for values of the inputs `names`, which have one shape."""

    def __init__(
        self,
        names: tuple[str, ...],
        arrays: dict[str, Array],
        run: Trial,
        numbers: tuple[int, ...],
        generator: np.random.Generator,
    ) -> None:
        self.names = names
        self.arrays = arrays
        self.run = run
        self.generator = generator
        self.count = arrays[names[0]].size
        self.limits = [np.iinfo(arrays[name].dtype) for name in names]
        self.numbers = numbers or (1,)
        self.shape: tuple[tuple[int, str, int], ...] | None = None
        self.source = np.zeros(0, np.int64)  # the element that decides a lane; -1: none
        self.open = np.zeros(0, np.bool_)  # lanes that some element decides, or may
        self.unique = False
        self.room = 0
        self.seen: list[tuple[Array, Array]] = []
        self.known: list[dict[Values, Places | None]] = [{} for _ in range(self.count)]
        self.good: dict[Values, None] = {}
        self.matching = _Matching(self.known, generator)

    def candidates(self) -> Iterator[dict[str, Array]]:
        """Inputs that keep the promises as far as the runs so far tell."""
        rounds, patience, most = CODED_ROUNDS, PATIENCE, 0
        while patience > 0:
            if rounds > 0 and (not self.seen or (self.open & (self.source < 0)).any()):
                rounds -= 1
                if not self._attribute():
                    return
                continue
            deciding = self._deciding()
            if not deciding or self._too_many(deciding):
                return
            chosen = self.matching.chosen(deciding, self.unique)
            matched = len(self.matching.values)
            patience = PATIENCE if matched > most else patience - 1
            most = max(most, matched)
            if chosen is not None:
                yield self._arrays(self._with(chosen))
                self.matching.release()
            if self._observe(self._draw()) is None:
                return
            self._learn()

    def _too_many(self, deciding: Sequence[int]) -> bool:
        """Whether the elements need more distinct places than there are, as far as is known."""
        if not self.unique:
            return False
        needed = 0
        for element in deciding:
            counts = [len(p) for p in self.known[element].values() if p is not None]
            needed += min(counts, default=0)
        return needed > self.room

    # ------------------------------------------------------------ runs

    def _observe(self, values: Array) -> Array | None:
        """The places of all lanes in a run with `values`; None where the run has no result, or
        other stores than the first run."""
        result = self.run(self._arrays(values))
        if result is None or not result.places:
            return None
        shape = tuple((p.launch, p.tensor, p.positions.size) for p in result.places)
        if self.shape is None:
            self.shape = shape
            self.unique = any(places.unique for places in result.places)
            rooms = {(p.launch, p.tensor): p.size for p in result.places}
            self.room = sum(rooms.values())
        if shape != self.shape:
            return None
        blocks = {key: n for n, key in enumerate(dict.fromkeys(part[:2] for part in shape))}
        lanes = [
            np.where(p.positions < 0, p.positions, p.positions + blocks[part[:2]] * _BLOCK)
            for p, part in zip(result.places, shape, strict=True)
        ]
        found: Array = np.concatenate(lanes)
        if not self.seen:
            self.source, self.open = np.full(found.size, -1), np.zeros(found.size, np.bool_)
        self.seen.append((values, found))
        self.open = self.open | (found == STRAY) | (found != self.seen[0][1])
        return found

    def _arrays(self, values: Array) -> dict[str, Array]:
        """The inputs with `values`, which has one row for each of the searched tensors."""
        changed = {
            name: row.reshape(self.arrays[name].shape).astype(self.arrays[name].dtype)
            for name, row in zip(self.names, values, strict=True)
        }
        return {**self.arrays, **changed}

    def _with(self, chosen: Mapping[int, Values]) -> Array:
        values = np.array([self.arrays[name].reshape(-1) for name in self.names], np.int64)
        for element, some in chosen.items():
            values[:, element] = some
        return values

    # ------------------------------------------------------------ what decides a lane

    def _attribute(self) -> bool:
        """Find out which element decides each lane: one run for each binary digit gives another
        value to the elements whose number has that digit. False where a run cannot be compared. A
        lane that changes in none of these runs may do so with other values."""
        numbers = np.arange(1, self.count + 1)
        first, other = self._draw(), self._draw()
        before = self._observe(first)
        if before is None:
            return False
        codes = np.zeros(before.size, np.int64)
        for digit in range(self.count.bit_length()):
            after = self._observe(np.where(numbers >> digit & 1, other, first))
            if after is None:
                return False
            codes |= (after != before).astype(np.int64) << digit
        new = (self.source < 0) & (codes > 0) & (codes <= self.count)
        self.source = np.where(new, codes - 1, self.source)
        self._learn(anew=True)
        return True

    def _deciding(self) -> list[int]:
        """The elements that are known to decide some lane."""
        return [int(element) for element in np.unique(self.source) if element >= 0]

    def _learn(self, anew: bool = False) -> None:
        """Note the places to which values led, from the last run or, with `anew`, from all."""
        order = np.argsort(self.source, kind="stable")
        elements, starts = np.unique(self.source[order], return_index=True)
        if anew:
            self.matching.forget()
        for values, lanes in self.seen if anew else self.seen[-1:]:
            for element, part in zip(elements, np.split(lanes[order], starts[1:]), strict=True):
                places = frozenset(part[part >= 0].tolist())
                if element < 0:
                    continue
                value = tuple(values[:, element].tolist())
                stray = bool((part == STRAY).any())
                self.known[element][value] = None if stray else places
                if not stray:
                    self.good[value] = None
        lanes = self.seen[-1][1][~self.open & (self.source < 0)]
        self.matching.taken = frozenset(lanes[lanes >= 0].tolist())

    # ------------------------------------------------------------ values to try

    def _draw(self) -> Array:
        """Random values for all elements: values that led inside the tensor for other elements and
        are new for this one, values near those, and any others."""
        drawn = self._anywhere()
        if self.good:
            good = np.array(list(self.good), np.int64).T
            lower, upper = good.min(axis=1, keepdims=True), good.max(axis=1, keepdims=True)
            spread = (upper - lower) // 2 + 2
            near = self.generator.integers(lower - spread, upper + spread + 1, drawn.shape)
            drawn = np.where(self.generator.random(self.count) < 0.7, near, drawn)
            for element in np.flatnonzero(self.generator.random(self.count) < 0.6):
                new = [value for value in self.good if value not in self.known[element]]
                if new:
                    drawn[:, element] = new[int(self.generator.integers(len(new)))]
        for row, limit in zip(drawn, self.limits, strict=True):
            np.clip(row, max(limit.min, -(2**40)), min(limit.max, 2**40), out=row)
        return drawn

    def _anywhere(self) -> Array:
        """Random values of all magnitudes up to the sizes of tensors, most of them positive, some
        near one of `numbers`, and some from the given inputs."""
        draw, shape = self.generator, (len(self.names), self.count)
        largest = max(self.room, *(array.size for array in self.arrays.values()))
        scaled = np.floor(2.0 ** draw.uniform(0.0, np.log2(2.0 * largest + 2.0), shape)) - 1
        even = draw.integers(0, 2 * largest + 1, shape)
        near = draw.choice(self.numbers, shape) + draw.integers(0, largest + 1, shape)
        given = np.array([self.arrays[name].reshape(-1) for name in self.names], np.int64)
        given = draw.permuted(given, axis=1)
        kind = draw.random(shape)
        drawn = np.select([kind < 0.35, kind < 0.5, kind < 0.7], [scaled, even, near], given)
        return np.where(draw.random(shape) < 0.1, -drawn, drawn).astype(np.int64)


@records.define(eq=False)
class _Matching:
    """Values for elements such that no two of them lead to one place. `known` says where the values
    of each element lead (None: out of the tensor); it may grow between calls."""

    known: list[dict[Values, Places | None]]
    generator: np.random.Generator
    taken: Places = frozenset()  # places that no element decides
    values: dict[int, Values] = records.field(factory=dict)
    owner: dict[int, int] = records.field(factory=dict)

    def forget(self) -> None:
        """Drop the matching, and all that is known of where values lead: it is out of date."""
        for known in self.known:
            known.clear()
        self.release()

    def release(self) -> None:
        """Drop the matching, but keep what is known of where values lead."""
        self.values.clear()
        self.owner.clear()

    def chosen(self, elements: Sequence[int], unique: bool) -> dict[int, Values] | None:
        """A value for each of `elements`; None where the known values do not suffice. Unless
        `unique`, elements that find no place of their own share one."""
        rest = {}
        for element in self.generator.permutation(elements).tolist():
            if element in self.values or self._put(element, set()):
                continue
            options = [v for v, places in self.known[element].items() if places is not None]
            if options and not unique:
                rest[element] = options[int(self.generator.integers(len(options)))]
        found = {**rest, **self.values}
        return found if len(found) == len(elements) else None

    def _put(self, element: int, tried: set[Places]) -> bool:
        """Find a value for an element, with other values for the elements that hold its places;
        returns whether there is one."""
        options = [
            (value, places)
            for value, places in self.known[element].items()
            if places is not None and places.isdisjoint(self.taken)
        ]
        options = [options[place] for place in self.generator.permutation(len(options)).tolist()]
        options.sort(key=lambda option: not option[1])  # rather some place than none
        for value, places in options:
            if self.owner.keys().isdisjoint(places):
                self._take(element, value, places)
                return True
        for value, places in options:
            if places in tried:
                continue
            tried.add(places)
            holders = {self.owner[place] for place in places if place in self.owner}
            if (
                element not in holders
                and len(holders) == 1
                and self._move(holders.pop(), places, tried)
            ):
                self._take(element, value, places)
                return True
        return False

    def _move(self, holder: int, wanted: Places, tried: set[Places]) -> bool:
        """Free the places `wanted` by another value for `holder`, which holds some of them."""
        value = self.values[holder]
        if not self._put(holder, tried):
            return False
        if self.owner.keys().isdisjoint(wanted):
            return True
        held = self.known[holder][value]
        if held is not None and self.owner.keys() & held <= {
            place for place in held if self.owner[place] == holder
        }:
            self._take(holder, value, held)
        return False

    def _take(self, element: int, value: Values, places: Places) -> None:
        for place in [place for place, owner in self.owner.items() if owner == element]:
            del self.owner[place]
        self.values[element] = value
        self.owner.update(dict.fromkeys(places, element))

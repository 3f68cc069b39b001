"""The tile operations of the interpreter: values and valid lanes of one Compute statement.

Element-wise results are valid where all tile operands are (R2); reductions and matrix products
see the identity at void lanes (R3). Floats are evaluated in float64, integers in the width of the
statement's type, where they wrap (R6).

There are two ways to leave void lanes out, and they must agree: operate on the valid box alone, or
(`whole=True`, the physical-extent mode) on whole arrays with poison in them, selecting identities
before each cross-lane operation as generated code does (LOWERING 4 and 19).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import numpy as np

from sketchc.base import records
from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType, numpy_dtype
from sketchc.interpreter.tiles import (
    Array,
    Box,
    Extents,
    TileValue,
    box_shape,
    broadcast_extents,
    common_box,
    full_box,
    intersect,
    is_empty,
    lanes,
    meeting,
    operand_box,
    relative,
    select,
    tile_dtype,
    to_tensor,
    to_tile,
    with_part,
)
from sketchc.ir.walk import kept_axes
from sketchc.ops.table import Category, Fact, Layout, Op, Partial, Result, identity_value


@records.frozen
class Outcome:
    """Values over `box` of the destination's extents."""

    values: Array
    box: Box


@records.define(eq=False)
class OperationError(Exception):
    """An operation without meaning on a valid lane; `kind` as in `Violation`, `lane` in the
    destination's extents, `box` the lanes on which the result would be valid."""

    text: str
    kind: str
    lane: tuple[int, ...]
    box: Box


@records.frozen
class Operation:
    """One Compute statement's operation with all that is static about it.

    `dtype` is the type of evaluation, `destination` the destination's type.
    """

    row: Op
    dtype: DType
    destination: DType
    attributes: Mapping[str, Any]
    whole: bool = False

    def apply(
        self, operands: Sequence[TileValue], destinations: Sequence[TileValue]
    ) -> tuple[Outcome, ...]:
        """The results for the destinations; operations that accumulate use the destinations'
        values, all others only their extents.

        Raises `OperationError` for integer operations and conversions without meaning.
        """
        target = destinations[0].extents
        match self.row.category:
            case Category.REDUCTION:
                return (self._reduce(operands[0], len(target)),)
            case Category.MATRIX:
                product = self._product(*operands)
                return (_added(product, destinations[0]) if self.row.accumulates else product,)
            case Category.SORTING if self.row.accumulates:
                return self._topk(*operands, *destinations)
            case Category.SORTING:
                return self._sort(*operands)
            case Category.ELEMENTWISE:
                return (self._elementwise(operands, target),)
            case Category.SCAN:
                return (self._scan(operands[0]),)
            case Category.INDEX:
                return (self._extremum(operands[0], len(target)),)
            case Category.LAYOUT:
                return (self._rearranged(operands, target),)
            case Category.RANDOM:
                return (self._random(operands[0], operands[1], target),)
            case Category.COMPOSITE:
                msg = f"{self.row.name} is expanded before it is executed"
                raise InternalError(msg)
            case _:
                assert_never(self.row.category)

    def _axis(self, rank: int) -> int:
        """The one axis of an operation, from 0."""
        axis = self.attributes["axis"]
        return int(axis[0] if isinstance(axis, tuple) else axis) % rank

    # ------------------------------------------------------------ lanes in an order, or moved
    #
    # These see the valid lanes alone (R3), so void ones need no identity: a scan skips them, an
    # extremum ignores them, and in an order they come after everything.

    def _scan(self, source: TileValue) -> Outcome:
        """A running sum or product, in the type of accumulation."""
        array = convert(source.array, source.dtype, self._reduction_dtype(source.dtype))
        flags = {name: bool(self.attributes.get(name)) for name in ("reverse", "exclusive")}
        axis = self._axis(array.ndim)
        values = self.row.reference(np, array[lanes(source.valid)], axis=axis, **flags)
        return Outcome(values, source.valid)

    def _extremum(self, source: TileValue, rank: int) -> Outcome:
        """The lane, counted from the tile's first, of the extremum; -1 where no lane is valid."""
        axis, box = self._axis(len(source.extents)), source.valid
        array = source.array[lanes(box)]
        first, last = box[axis]
        if first >= last:
            values = np.full([1 if a == axis else n for a, n in enumerate(array.shape)], -1)
        else:
            values = self.row.reference(np, array, axis=axis) + first
        kept = with_part(box, axis, (0, 1))
        if rank < len(source.extents):
            values = np.squeeze(values, axis)
            kept = (*kept[:axis], *kept[axis + 1 :])
        return Outcome(values.astype(np.int64), kept)

    def _sort(self, source: TileValue, indices: TileValue) -> tuple[Outcome, Outcome]:
        """Values in order with their indices; void lanes come after everything."""
        axis = self._axis(len(source.extents))
        box = intersect(source.valid, operand_box(indices, source.extents))
        if box[axis][0] > 0 and not is_empty(box):
            msg = "the valid lanes to sort do not start at the first one"
            raise InternalError(msg)
        places = np.broadcast_to(select(indices, source.extents, box), box_shape(box))
        descending = bool(self.attributes.get("descending", False))
        values, found = self.row.reference(
            np, source.array[lanes(box)], places, axis=axis, descending=descending
        )
        return Outcome(values, box), Outcome(found, box)

    def _topk(
        self, source: TileValue, indices: TileValue, best: TileValue, places: TileValue
    ) -> tuple[Outcome, Outcome]:
        """The best of what the destinations hold and the source's valid lanes. The lanes are first
        rounded to the first destination's type, so that the result does not depend on how many are
        merged at a time."""
        axis = self._axis(len(source.extents))
        candidates = convert(source.array, source.dtype, self.destination)
        if self.destination.is_float:
            candidates = to_tile(candidates, self.destination)
        held = intersect(best.valid, places.valid)
        box = intersect(source.valid, operand_box(indices, source.extents))
        shared = with_part(intersect(box, held), axis, box[axis])
        kept = with_part(shared, axis, held[axis])
        index = np.broadcast_to(select(indices, source.extents, shared), box_shape(shared))
        values = np.concatenate((best.array[lanes(kept)], candidates[lanes(shared)]), axis)
        named = np.concatenate(
            (places.array[lanes(kept)].astype(np.int64), index.astype(np.int64)), axis
        )
        largest = bool(self.attributes.get("largest", True))
        values, named = self.row.reference(np, values, named, axis=axis, largest=largest)
        first = lanes(with_part(full_box(values.shape), axis, (0, best.extents[axis])))
        return Outcome(values[first], kept), Outcome(named[first], kept)

    def _rearranged(self, operands: Sequence[TileValue], target: Extents) -> Outcome:
        source = operands[0]
        match self.row.layout:
            case Layout.PERMUTED:
                axes = tuple(axis % len(source.extents) for axis in self.attributes["axes"])
                values = self.row.reference(np, source.array[lanes(source.valid)], axes)
                return Outcome(values, tuple(source.valid[axis] for axis in axes))
            case Layout.RESHAPED:
                return self._reshape(source, target)
            case Layout.JOINED:
                return self._concat(source, operands[1], self._axis(len(target)))
            case Layout.TRANSPOSED:
                array, box = _oriented(source, True)
                return Outcome(array[lanes(box)], box)
            case _:
                return self._elementwise(operands, target)

    def _reshape(self, source: TileValue, target: Extents) -> Outcome:
        """Axes that map one to one keep their valid lanes; those that are split or merged must be
        fully valid (all void goes through, too)."""
        extents, box = source.extents, source.valid
        places = kept_axes(extents, target, 1)
        lost = [axis for axis, place in enumerate(places) if place is None]
        result = full_box(target)
        for axis, place in enumerate(places):
            if place is not None:
                result = with_part(result, place, box[axis])
        void = any(box[axis] != (0, extents[axis]) for axis in lost)
        if void:
            if not is_empty(tuple(box[axis] for axis in lost)):
                msg = f"an axis of {extents} that is split or merged has void lanes: {box}"
                raise InternalError(msg)
            result = ((0, 0),) * len(target)
        if void or is_empty(result):
            return Outcome(np.zeros(box_shape(result), source.array.dtype), result)
        return Outcome(self.row.reference(np, source.array[lanes(box)], box_shape(result)), result)

    def _concat(self, left: TileValue, right: TileValue, axis: int) -> Outcome:
        """The valid lanes of `left`, then those of `right`, along `axis`."""
        size = left.extents[axis]
        (start, stop), (begin, end) = left.valid[axis], right.valid[axis]
        if begin >= end:
            joined = (start, stop)
        elif start >= stop:
            joined = (size + begin, size + end)
        else:
            joined = (start, size + end)
            if stop != size or begin != 0:
                msg = "concat would leave void lanes between its operands' valid ones"
                raise InternalError(msg)
        both = intersect(left.valid, right.valid)
        parts = (
            convert(tile.array, tile.dtype, self.dtype)[lanes(with_part(both, axis, part))]
            for tile, part in ((left, (start, stop)), (right, (begin, end)))
        )
        return Outcome(self.row.reference(np, *parts, axis), with_part(both, axis, joined))

    def _random(self, seed: TileValue, offset: TileValue, target: Extents) -> Outcome:
        """Random numbers at the valid lanes of `offset`; a scalar offset gives all lanes one."""
        box = operand_box(offset, target)
        values = self.row.reference(np, seed.array, select(offset, target, box))
        return Outcome(np.broadcast_to(values, box_shape(box)), box)

    # ------------------------------------------------------------ element-wise

    def _elementwise(self, operands: Sequence[TileValue], target: Extents) -> Outcome:
        extents = broadcast_extents((target, *[operand.extents for operand in operands]))
        box = common_box(operands, extents)
        if self.whole:
            arrays = [operand.array for operand in operands]
        else:
            arrays = [select(operand, extents, box) for operand in operands]
        arrays = [
            self._converted(array, operand.dtype, position)
            for position, (array, operand) in enumerate(zip(arrays, operands, strict=True))
        ]
        shape = box_shape(box)
        self._reject_undefined(operands, extents, box)
        values = self._evaluate(self._safe(arrays))
        if self.whole:
            values = _cut(np.asarray(values), extents, box)
        return Outcome(values if np.shape(values) == shape else np.broadcast_to(values, shape), box)

    def _converted(self, array: Array, dtype: DType, position: int) -> Array:
        """An operand in the type of evaluation; floats stay float64, rounded exactly."""
        if Fact.CONVERTS in self.row.facts:
            return array
        if self.row.asks(position):
            return array.astype(np.bool_, copy=False)
        return convert(array, dtype, self.dtype)

    def _safe(self, arrays: list[Array]) -> list[Array]:
        """Void lanes never trap: divisors of 0 and shift counts out of range become harmless."""
        if self.dtype.is_float or not self.whole:
            return arrays
        match self.row.partial:
            case Partial.QUOTIENT | Partial.REMAINDER:
                arrays[1] = np.where(arrays[1] == 0, 1, arrays[1])
            case Partial.POWER:
                arrays[1] = np.maximum(arrays[1], 0)
            case Partial.SHIFT:
                arrays[1] = arrays[1] & (self.dtype.bytes * 8 - 1)
            case None:
                pass
        return arrays

    def _reject_undefined(self, operands: Sequence[TileValue], extents: Extents, box: Box) -> None:
        """Raise `OperationError` for integer division by zero, negative powers, shift counts out of
        range, and casts of floats that do not fit, on valid lanes only."""
        converts = Fact.CONVERTS in self.row.facts
        partial = None if self.dtype.is_float else self.row.partial
        if not (converts or partial) or is_empty(box):
            return
        if converts:
            self._reject_conversion(operands[0], extents, box)
        elif partial is not None:
            right = convert(select(operands[1], extents, box), operands[1].dtype, self.dtype)
            text, rejects = _UNDEFINED[partial]
            bad = np.broadcast_to(rejects(right, self.dtype.bytes * 8), box_shape(box))
            if bad.any():
                raise OperationError(text, "arithmetic", _lane(bad, box), box)

    def _reject_conversion(self, source: TileValue, extents: Extents, box: Box) -> None:
        saturates = bool(self.attributes.get("sat", False))
        if saturates or not source.dtype.is_float or not self.destination.is_integer:
            return
        values = np.broadcast_to(select(source, extents, box), box_shape(box))
        rounded = _ROUNDING[str(self.attributes.get("round", "nearest"))](values)
        bad = np.logical_not(_fits(rounded, self.destination))
        if bad.any():
            text = f"{values[bad].flat[0]:g} does not fit {self.destination.value}"
            raise OperationError(text, "conversion", _lane(bad, box), box)

    def _evaluate(self, arrays: list[Array]) -> Array:
        if Fact.CONVERTS in self.row.facts:
            return cast(arrays[0], self.destination, self.attributes)
        given = {key: value for key, value in self.attributes.items() if value is not None}
        result: Array = self.row.reference(np, *arrays, **given)
        return result

    # ------------------------------------------------------------ cross-lane

    def _reduce(self, source: TileValue, rank: int) -> Outcome:
        axes: tuple[int, ...] = tuple(self.attributes["axis"])
        box = source.valid
        dtype = self._reduction_dtype(source.dtype)
        unit = tile_dtype(dtype).type(identity_value(self.row.identity or "zero", dtype))
        array = convert(source.array, source.dtype, dtype)
        if self.whole:
            valid = np.zeros(array.shape, np.bool_)
            valid[lanes(box)] = True
            array = np.where(valid, array, unit)
        else:
            array = array[lanes(box)]
        if any(array.shape[axis] == 0 for axis in axes):
            shape = [1 if axis in axes else size for axis, size in enumerate(array.shape)]
            values = np.full(shape, unit)
        else:
            values = self.row.reference(np, array, axis=axes)
        kept = tuple((0, 1) if axis in axes else part for axis, part in enumerate(box))
        if self.whole:
            values = values[lanes(kept)]
        if rank < len(source.extents):
            values = values.reshape([n for a, n in enumerate(values.shape) if a not in axes])
            kept = tuple(part for axis, part in enumerate(kept) if axis not in axes)
        return Outcome(values, kept)

    def _reduction_dtype(self, source: DType) -> DType:
        """The type in which lanes are combined: sums of integers take the destination's (R6)."""
        if self.row.truth:
            return DType.BOOL
        if self.row.result is Result.SAME or source.is_float:
            return source
        return self.destination if not self.destination.is_float else DType.F64

    def _product(self, a: TileValue, b: TileValue) -> Outcome:
        left, left_box = _oriented(a, bool(self.attributes.get("trans_a")))
        right, right_box = _oriented(b, bool(self.attributes.get("trans_b")))
        floats = self.destination.is_float
        dtype = DType.F64 if floats else self.destination
        left = left.astype(np.float64) if floats else convert(left, a.dtype, dtype)
        right = right.astype(np.float64) if floats else convert(right, b.dtype, dtype)
        inner = intersect((left_box[-1],), (right_box[-2],))[0]
        rows, columns = left_box[-2], right_box[-1]
        outer = intersect(left_box[:-2], right_box[:-2])
        if self.whole:
            left = _only(left, -1, inner)
            right = _only(right, -2, inner)
            values = np.matmul(left, right)[lanes((*outer, rows, columns))]
        else:
            values = np.matmul(
                left[lanes((*outer, rows, inner))], right[lanes((*outer, inner, columns))]
            )
        return Outcome(values, (*outer, rows, columns))


def _added(product: Outcome, tile: TileValue) -> Outcome:
    """The product added to the values of the destination `tile`, on the lanes valid in both."""
    box = intersect(product.box, tile.valid)
    part = lanes(relative(box, product.box))
    return Outcome(tile.array[lanes(box)] + product.values[part], box)


def _oriented(tile: TileValue, transposed: bool) -> tuple[Array, Box]:
    box = tile.valid
    if not transposed:
        return tile.array, box
    return np.swapaxes(tile.array, -1, -2), (*box[:-2], box[-1], box[-2])


def _only(array: Array, axis: int, part: tuple[int, int]) -> Array:
    """`array` with zeros outside `part` of an axis."""
    lane = np.arange(array.shape[axis])
    keep = (lane >= part[0]) & (lane < part[1])
    return np.where(keep if axis == -1 else keep[:, None], array, np.zeros((), array.dtype))


def _cut(values: Array, extents: Extents, box: Box) -> Array:
    """The part in `box` of an array that spans all physical lanes, or 1 where it broadcasts."""
    return values[meeting(values.shape, extents, box)]


def convert(array: Array, source: DType, target: DType) -> Array:
    """`array` of a `source` tile as an operand evaluated in `target`: integers rounded to a
    target float exactly once, floats unchanged, integers wrapped to the target's width."""
    if target.is_float:
        if source.is_float:
            return array
        return array.astype(numpy_dtype(target.compute)).astype(np.float64)
    if target is DType.BOOL:
        return np.not_equal(array, 0)
    return array.astype(numpy_dtype(target), copy=False)


_ROUNDING = {"nearest": np.rint, "down": np.floor, "up": np.ceil, "zero": np.trunc}


def cast(source: Array, target: DType, attributes: Mapping[str, Any]) -> Array:
    """`source` in the target type, still float64 for floats (the write rounds to nearest).

    A float that does not fit an integer type gives the nearest one with `sat`, else 0 (void lanes:
    a valid one was rejected before); NaN gives 0.
    """
    mode = str(attributes.get("round", "nearest"))
    if target is DType.BOOL:
        return np.not_equal(source, 0)
    if target.is_float:
        values = source.astype(np.float64) if target is DType.F64 else source
        return values if mode == "nearest" else _directed(values.astype(np.float64), target, mode)
    limits = np.iinfo(numpy_dtype(target))
    saturate = bool(attributes.get("sat", False))
    if source.dtype.kind != "f":
        wide = np.clip(source, limits.min, limits.max) if saturate else source
        return wide.astype(numpy_dtype(target))
    rounded = _ROUNDING[mode](source)
    fits = _fits(rounded, target)
    result = np.where(fits, rounded, 0.0).astype(numpy_dtype(target))
    if saturate:
        result = np.where(rounded >= float(limits.max) + 1.0, limits.max, result)
        result = np.where(rounded < float(limits.min), limits.min, result)
    return result.astype(numpy_dtype(target))


def _fits(rounded: Array, target: DType) -> Array:
    """Which integral floats an integer type holds. 2**63 is exact in float64 while the largest i64
    is not, hence the half-open upper bound."""
    limits = np.iinfo(numpy_dtype(target))
    return np.logical_and(rounded >= float(limits.min), rounded < float(limits.max) + 1.0)


def _directed(values: Array, target: DType, mode: str) -> Array:
    """float64 values rounded to `target` downwards, upwards or towards zero."""
    if target is DType.F64:
        return values
    kind = numpy_dtype(target)
    nearest = to_tensor(values, target)
    back = nearest.astype(np.float64)
    upwards = values < 0 if mode == "zero" else np.full(values.shape, mode == "up")
    wrong: Array = np.where(upwards, back < values, back > values)
    step: Array = np.where(upwards, math.inf, -math.inf).astype(kind)
    return np.where(wrong, np.nextafter(nearest, step), nearest).astype(np.float64)


def _lane(bad: Array, box: Box) -> tuple[int, ...]:
    found = np.argwhere(bad)[0] if bad.ndim else ()
    return tuple(int(i) + start for i, (start, _) in zip(found, box, strict=True))


#: Integer operations that have no meaning for some right operands.
_UNDEFINED: dict[Partial, tuple[str, Any]] = {
    Partial.QUOTIENT: ("integer division by zero", lambda right, bits: right == 0),
    Partial.REMAINDER: ("integer remainder by zero", lambda right, bits: right == 0),
    Partial.POWER: ("an integer to a negative power", lambda right, bits: right < 0),
    Partial.SHIFT: ("shift count out of range", lambda right, bits: (right < 0) | (right >= bits)),
}

"""Tile values of the interpreter: an array, its logical extents, and which lanes are valid.

Every valid region that the language can express is a box (slices, `iota` bounds and their
intersections are intervals on each axis), so validity is one half-open interval per axis. Lanes
outside the box are void; the array holds poison there.

Float tiles are kept as float64 arrays whose values are already rounded to the tile's type, so that
operations read exact inputs without a conversion (R6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from sketchc.base import records
from sketchc.base.types import DType, numpy_dtype

Array: TypeAlias = NDArray[Any]
Box: TypeAlias = tuple[tuple[int, int], ...]
Extents: TypeAlias = tuple[int, ...]

#: What void and unwritten integers hold: the low bits of this, in the width at hand.
INTEGER_POISON = 0x5AFE_DEAD_5AD0_BAD5


def tile_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy type in which the interpreter keeps a tile of `dtype`."""
    return np.dtype(np.float64) if dtype.is_float else numpy_dtype(dtype)


def poison(dtype: DType, pattern: float) -> Any:
    """The value of an element that nobody wrote, as a NumPy scalar; `pattern` for floats."""
    if dtype.is_float:
        return np.float64(pattern)
    if dtype is DType.BOOL:
        return np.bool_(True)
    return np.array(INTEGER_POISON, np.int64).astype(numpy_dtype(dtype))[()]


def round_bfloat16(values: Array) -> Array:
    """Round float64 to bfloat16, nearest even, in one rounding.

    A plain conversion goes through float32 and rounds twice. Rounding to float32 *to odd* first
    makes the second rounding exact (Boldo and Melquiond, "When double rounding is odd", 2005).
    """
    with np.errstate(over="ignore"):
        nearest = np.asarray(values.astype(np.float32), order="C")
    inexact = (nearest != values) & ~np.isnan(values)
    bits = nearest.view(np.uint32).copy()
    bits -= (inexact & (np.abs(nearest) > np.abs(values))).astype(np.uint32)
    bits |= inexact.astype(np.uint32)
    return bits.view(np.float32).astype(numpy_dtype(DType.BF16))


def to_tensor(values: Array, dtype: DType) -> Array:
    """`values` (float64, integer or bool) in the storage type of `dtype`, rounded nearest even;
    floats that are too large for the type become infinite."""
    if dtype is DType.BF16:
        return round_bfloat16(values.astype(np.float64, copy=False))
    with np.errstate(over="ignore"):
        return values.astype(numpy_dtype(dtype))


def to_tile(values: Array, dtype: DType) -> Array:
    """`values` as a tile of `dtype` keeps them: rounded, floats as float64."""
    if not dtype.is_float:
        return values.astype(numpy_dtype(dtype), copy=False)
    if dtype is DType.F64:
        return values.astype(np.float64, copy=False)
    return to_tensor(values, dtype).astype(np.float64)


#: Tiles of one execution have few extents and boxes: functions of them alone keep their results.
_kept = lru_cache(maxsize=1 << 12)


@_kept
def full_box(extents: Extents) -> Box:
    """The box that holds all lanes of a tile."""
    return tuple((0, extent) for extent in extents)


#: Axes that an array may have, and bytes: NumPy refuses more, for an array without elements too.
_MOST_AXES = 32
_MOST_BYTES = 2**62


@_kept
def fits_an_array(shape: Extents, itemsize: int) -> bool:
    """Whether NumPy can make an array of this shape, were there memory for it. An extent of 0
    counts as 1, because strides follow from the other extents also in an empty array."""
    steps = math.prod(max(1, extent) for extent in shape)
    return len(shape) <= _MOST_AXES and steps * itemsize < _MOST_BYTES


def is_empty(box: Box) -> bool:
    """Whether a box has no lanes."""
    return any(start >= stop for start, stop in box)


def same_lanes(left: Box, right: Box) -> bool:
    """Whether two boxes hold the same lanes (all empty boxes do)."""
    return left == right or (is_empty(left) and is_empty(right))


@_kept
def intersect(left: Box, right: Box) -> Box:
    """The lanes of both boxes; an axis may come to end before it starts."""
    return tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(left, right, strict=True))


def relative(box: Box, origin: Box) -> Box:
    """`box` in the coordinates of an array that starts where `origin` does."""
    return tuple(
        (start - base, stop - base) for (start, stop), (base, _) in zip(box, origin, strict=True)
    )


def with_part(box: Box, axis: int, part: tuple[int, int]) -> Box:
    """`box` with the lanes `part` on one axis, counted from 0."""
    return (*box[:axis], part, *box[axis + 1 :])


@_kept
def lanes(box: Box) -> tuple[slice, ...]:
    """The basic index that selects the lanes of `box` in an array."""
    return tuple(slice(start, max(start, stop)) for start, stop in box)


@_kept
def box_shape(box: Box) -> tuple[int, ...]:
    """How many lanes a box has on each axis."""
    return tuple(max(0, stop - start) for start, stop in box)


@_kept
def physical_shape(extents: Extents, padding: int) -> tuple[int, ...]:
    """The shape of a tile's array: `padding` more lanes on every axis that is not of extent 1."""
    return tuple(extent if extent == 1 else extent + padding for extent in extents)


@records.define
class TileValue:
    """A tile (or an index tile) at one moment.

    `box` is None while nothing was assigned; `fixed` is the domain for life of an `init=` tile.
    """

    name: str
    dtype: DType
    extents: Extents
    array: Array
    box: Box | None
    fixed: Box | None = None

    @property
    def valid(self) -> Box:
        """The valid lanes: `box`, or all lanes while nothing was assigned."""
        return full_box(self.extents) if self.box is None else self.box


def lay_out(tile: TileValue, layout: tuple[bool, ...]) -> TileValue:
    """`tile` with its own axes where `layout` is True, and new axes of extent 1 elsewhere."""
    if layout == (True,) * len(tile.extents):
        return tile
    extents, shape, box = _laid_out(layout, tile.extents, tile.array.shape, tile.valid)
    return TileValue(tile.name, tile.dtype, extents, tile.array.reshape(shape), box)


@_kept
def _laid_out(
    layout: tuple[bool, ...], extents: Extents, shape: tuple[int, ...], valid: Box
) -> tuple[Extents, tuple[int, ...], Box]:
    axes = iter(zip(extents, shape, valid, strict=True))
    placed = [next(axes) if own else (1, 1, (0, 1)) for own in layout]
    return (
        tuple(extent for extent, _, _ in placed),
        tuple(length for _, length, _ in placed),
        tuple(part for _, _, part in placed),
    )


def joint(left: TileValue, right: TileValue) -> tuple[Extents, Box]:
    """The extents of an operation on two tiles, and the lanes at which both are valid."""
    if not left.extents:
        return right.extents, right.valid
    if not right.extents or (left.extents == right.extents and left.valid == right.valid):
        return left.extents, left.valid
    extents = broadcast_extents((left.extents, right.extents))
    return extents, common_box((left, right), extents)


def common_box(operands: Sequence[TileValue], extents: Extents) -> Box:
    """The lanes of `extents` at which all operands, broadcast to them, are valid."""
    box = full_box(extents)
    for operand in operands:
        box = intersect(box, operand_box(operand, extents))
    return box


@_kept
def broadcast_extents(shapes: tuple[Extents, ...]) -> Extents:
    """The right-aligned broadcast of extents; 1 gives way to anything, 0 included."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for axis in range(-rank, 0):
        found = [shape[axis] for shape in shapes if len(shape) >= -axis]
        wide = [extent for extent in found if extent != 1]
        result.append(wide[0] if wide else 1)
    return tuple(result)


def operand_box(operand: TileValue, extents: Extents) -> Box:
    """The lanes of `extents` at which `operand`, broadcast to them, is valid.

    An axis of extent 1 that is repeated is valid everywhere or nowhere.
    """
    return _repeated(operand.extents, operand.valid, extents)


@_kept
def _repeated(sizes: Extents, valid: Box, extents: Extents) -> Box:
    missing = len(extents) - len(sizes)
    result = list(full_box(extents[:missing]))
    for own, (start, stop), extent in zip(sizes, valid, extents[missing:], strict=True):
        if own == 1 and extent != 1:
            result.append((0, extent) if start < stop else (0, 0))
        else:
            result.append((start, stop))
    return tuple(result)


def select(operand: TileValue, extents: Extents, box: Box) -> Array:
    """The part of `operand` that meets `box` of `extents`; broadcasts against its shape."""
    return operand.array[meeting(operand.extents, extents, box)]


@_kept
def meeting(sizes: Extents, extents: Extents, box: Box) -> tuple[slice, ...]:
    """The index of the part of an array that meets `box` of `extents`, to which the array, of the
    extents `sizes`, broadcasts."""
    missing = len(extents) - len(sizes)
    return tuple(
        slice(0, 1) if own == 1 and extent != 1 else part
        for own, extent, part in zip(sizes, extents[missing:], lanes(box)[missing:], strict=True)
    )

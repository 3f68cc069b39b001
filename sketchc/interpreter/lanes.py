"""The interpreter's operations that order, scan or move lanes: values and valid lanes.

They see the valid lanes alone (R3), so void ones need no identity here: a scan skips them, an
extremum ignores them, and in an order they come after everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from sketchc.base.diagnostics import InternalError
from sketchc.interpreter.tiles import (
    Array,
    Box,
    Extents,
    TileValue,
    box_shape,
    full_box,
    intersect,
    is_empty,
    lanes,
    operand_box,
    select,
)
from sketchc.ir.lanes import kept_axes
from sketchc.ops.references import Reference


@attrs.frozen
class Outcome:
    """Values over `box` of the destination's extents."""

    values: Array
    box: Box


def box_of(tile: TileValue) -> Box:
    return full_box(tile.extents) if tile.box is None else tile.box


def valid_lanes(tile: TileValue) -> Array:
    return tile.array[lanes(box_of(tile))]


def axis_of(attributes: Mapping[str, Any], rank: int) -> int:
    """The one axis of an operation, from 0."""
    axis = attributes["axis"]
    return int(axis[0] if isinstance(axis, tuple) else axis) % rank


def scan(
    reference: Reference,
    source: TileValue,
    array: Array,
    axis: int,
    attributes: Mapping[str, Any],
) -> Outcome:
    """A running sum or product; `array` is the source in the type of accumulation."""
    box = box_of(source)
    flags = {name: bool(attributes.get(name, False)) for name in ("reverse", "exclusive")}
    values = reference(np, array[lanes(box)], axis=axis, **flags)
    return Outcome(values, box)


def extremum(reference: Reference, source: TileValue, axis: int, rank: int) -> Outcome:
    """The lane, counted from the tile's first, of the extremum; -1 where no lane is valid."""
    box = box_of(source)
    array = valid_lanes(source)
    first, last = box[axis]
    if first >= last:
        values = np.full([1 if a == axis else n for a, n in enumerate(array.shape)], -1)
    else:
        values = reference(np, array, axis=axis) + first
    kept = (*box[:axis], (0, 1), *box[axis + 1 :])
    if rank < len(source.extents):
        values = np.squeeze(values, axis)
        kept = (*kept[:axis], *kept[axis + 1 :])
    return Outcome(values.astype(np.int64), kept)


def sort(
    reference: Reference,
    source: TileValue,
    indices: TileValue,
    axis: int,
    attributes: Mapping[str, Any],
) -> tuple[Outcome, Outcome]:
    """Values in order with their indices; void lanes come after everything."""
    box = intersect(box_of(source), operand_box(indices, source.extents))
    if box[axis][0] > 0 and not is_empty(box):
        msg = "the valid lanes to sort do not start at the first one"
        raise InternalError(msg)
    places = np.broadcast_to(select(indices, source.extents, box), box_shape(box))
    descending = bool(attributes.get("descending", False))
    values, found = reference(
        np, source.array[lanes(box)], places, axis=axis, descending=descending
    )
    return Outcome(values, box), Outcome(found, box)


def topk(
    reference: Reference,
    source: TileValue,
    indices: TileValue,
    destinations: Sequence[TileValue],
    axis: int,
    attributes: Mapping[str, Any],
    candidates: Array,
) -> tuple[Outcome, Outcome]:
    """The best of what the destinations hold and the source's valid lanes.

    `candidates` is the source rounded to the first destination's type already, so that the result
    does not depend on how many are merged at a time.
    """
    best, places = destinations
    held = intersect(box_of(best), box_of(places))
    count = best.extents[axis]
    box = intersect(box_of(source), operand_box(indices, source.extents))
    shared = tuple(
        part if n == axis else intersect((part,), (held[n],))[0] for n, part in enumerate(box)
    )
    kept = tuple(held[axis] if n == axis else part for n, part in enumerate(shared))
    index = np.broadcast_to(select(indices, source.extents, shared), box_shape(shared))
    values = np.concatenate((best.array[lanes(kept)], candidates[lanes(shared)]), axis)
    named = np.concatenate(
        (places.array[lanes(kept)].astype(np.int64), index.astype(np.int64)), axis
    )
    largest = bool(attributes.get("largest", True))
    values, named = reference(np, values, named, axis=axis, largest=largest)
    first = tuple(slice(0, count) if n == axis else slice(None) for n in range(values.ndim))
    return Outcome(values[first], kept), Outcome(named[first], kept)


def permute(reference: Reference, source: TileValue, axes: tuple[int, ...]) -> Outcome:
    axes = tuple(axis % len(source.extents) for axis in axes)
    box = box_of(source)
    return Outcome(reference(np, valid_lanes(source), axes), tuple(box[axis] for axis in axes))


def reshape(reference: Reference, source: TileValue, target: Extents) -> Outcome:
    """Axes that map one to one keep their valid lanes; those that are split or merged must be
    fully valid (all void goes through, too)."""
    extents, box = source.extents, box_of(source)
    places = kept_axes(extents, target, 1)
    lost = [axis for axis, place in enumerate(places) if place is None]
    result = list(full_box(target))
    for axis, place in enumerate(places):
        if place is not None:
            result[place] = box[axis]
    if any(box[axis] != (0, extents[axis]) for axis in lost):
        if not is_empty(tuple(box[axis] for axis in lost)):
            msg = f"an axis of {extents} that is split or merged has void lanes: {box}"
            raise InternalError(msg)
        return Outcome(np.zeros([0] * len(target), source.array.dtype), ((0, 0),) * len(target))
    if is_empty(tuple(result)):
        return Outcome(np.zeros(box_shape(tuple(result)), source.array.dtype), tuple(result))
    values = reference(np, valid_lanes(source), box_shape(tuple(result)))
    return Outcome(values, tuple(result))


def concat(
    reference: Reference, left: TileValue, right: TileValue, arrays: Sequence[Array], axis: int
) -> Outcome:
    """The left's lanes, then the right's; `arrays` are theirs in the type of evaluation."""
    first, second = box_of(left), box_of(right)
    size = left.extents[axis]
    others = tuple(
        part if n == axis else intersect((part,), (second[n],))[0] for n, part in enumerate(first)
    )
    tail = tuple(second[axis] if n == axis else part for n, part in enumerate(others))
    start, stop = first[axis]
    begin, end = second[axis]
    if begin >= end:
        joined = (start, stop)
    elif start >= stop:
        joined = (size + begin, size + end)
    else:
        joined = (start, size + end)
        if stop != size or begin != 0:
            msg = "concat would leave void lanes between its operands' valid ones"
            raise InternalError(msg)
    values = reference(np, arrays[0][lanes(others)], arrays[1][lanes(tail)], axis)
    return Outcome(values, tuple(joined if n == axis else p for n, p in enumerate(others)))


def random(reference: Reference, seed: TileValue, offset: TileValue, target: Extents) -> Outcome:
    """Numbers at the offsets' valid lanes, one for all lanes of a scalar offset."""
    box = operand_box(offset, target)
    values = reference(np, seed.array, select(offset, target, box))
    return Outcome(np.broadcast_to(values, box_shape(box)), box)

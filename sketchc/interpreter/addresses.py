"""Where an access of any form goes: the element of each lane, and the lanes that have one.

This is the general path, over `walk.element_indices`; the machine takes a short cut for plain
slices. Nothing here looks at inferred domains: validity follows from slices, index tiles, tensor
bounds and `where=` as they are at run time (R1, R5, R13), which is what checks the inference.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from sketchc.base import records
from sketchc.base.diagnostics import InternalError
from sketchc.interpreter.expressions import (
    Axes,
    IndexCompiler,
    IndexFunction,
    Values,
    compile_scalar,
)
from sketchc.interpreter.memory import MASKED, STRAY, Index, Window
from sketchc.interpreter.tiles import (
    Array,
    Box,
    Extents,
    TileValue,
    box_shape,
    full_box,
    intersect,
    lanes,
    operand_box,
    relative,
    select,
    with_part,
)
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.symbolic import conjuncts


@records.frozen
class Addresses:
    """The elements `chosen` are named by the lanes of `box`, in row-major order: by all of them, or
    by those for which `mask` holds. `placed` are the positions in storage of all lanes, with what
    `Places` has for lanes without one.

    `stray`: the first element that a loaded index names outside the tensor, if any.
    `wrong`: the first element that a scalar subscript names outside, if any."""

    box: Box
    chosen: Index
    mask: Array | None = None
    placed: Array | None = None
    stray: tuple[tuple[int, ...], int] | None = None
    wrong: tuple[tuple[int, ...], int] | None = None

    def places(self, window: Window) -> Array:
        """What `placed` is, also where a short cut left it out."""
        if self.wrong is not None:
            return np.full(box_shape(self.box), STRAY)
        if self.placed is not None:
            return self.placed
        data = window.memory.data
        return window.part(np.arange(data.size).reshape(data.shape), self.chosen)


#: A lane predicate: its index tile, and the axes on which it can vary.
Condition: TypeAlias = tuple[TileValue, Axes]


@records.frozen
class _Slice:
    """A slice's axis of the tile (from 0), its subscript's place, and its three parts."""

    axis: int
    place: int
    lower: Callable[[Values], float]
    upper: Callable[[Values], float]
    step: Callable[[Values], float]


@records.frozen
class Compiled:
    """An access compiled for the general path."""

    slices: tuple[_Slice, ...]
    indices: tuple[IndexFunction, ...]
    axes: tuple[Axes, ...]
    kinds: tuple[type, ...]
    loaded: tuple[bool, ...]
    wheres: tuple[tuple[IndexFunction, Axes], ...]

    def lanes_of(
        self, values: Values, extents: Extents, too_long: Callable[[int, int, int], None]
    ) -> tuple[Box, tuple[TileValue, ...]]:
        """The lanes inside all slices and index tiles, and the element index of each dimension.

        `too_long` is told the place, the length and the lanes of a slice that has too few of them.
        Raises `ZeroDivisionError` for a step of 0.
        """
        box = list(full_box(extents))
        for part in self.slices:
            lower, upper = int(part.lower(values)), int(part.upper(values))
            count = max(0, -(-(upper - lower) // int(part.step(values))))
            if count > extents[part.axis]:
                too_long(part.place, count, extents[part.axis])
            box[part.axis] = (0, min(count, extents[part.axis]))
        tiles = tuple(index(values) for index in self.indices)
        result = tuple(box)
        for tile in tiles:
            result = intersect(result, operand_box(tile, extents))
        return result, tiles


def compile_access(
    access: ir.Access, extents: tuple[ir.Expr, ...], where: ir.Expr | None, indices: IndexCompiler
) -> Compiled:
    """The access of a tile with these extents; `where` is its lane predicate."""
    slices = []
    axis = 0
    for place, part in enumerate(access.subscripts):
        if isinstance(part, ir.SliceSubscript):
            bounds = (compile_scalar(e) for e in (part.lower, part.upper, part.step))
            slices.append(_Slice(axis, place, *bounds))
        axis += isinstance(part, ir.SliceSubscript) or (
            isinstance(part, ir.IndexSubscript) and part.axis is not None
        )
    elements = walk.element_indices(access, extents)
    conditions = () if where is None else tuple(conjuncts(where))
    return Compiled(
        tuple(slices),
        tuple(map(indices.compile, elements)),
        tuple(map(indices.axes, elements)),
        tuple(map(type, access.subscripts)),
        tuple(isinstance(p, ir.IndexSubscript) and p.loaded for p in access.subscripts),
        tuple((indices.compile(part), indices.axes(part)) for part in conditions),
    )


@records.frozen
class Locator:
    """Locates the lanes of one access at run time.

    `shape` and `steps` are those of the tensor's window; `padded` says that lanes without an
    element keep their place in the box (a load with pad=, a store), not that they lose it;
    `fills`, that pad= also stands for the elements that a scalar subscript names outside."""

    compiled: Compiled
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    padded: bool
    fills: bool = False

    def reach(self, values: Values, extents: Extents, box: Box, tiles: Tiles) -> Addresses:
        """What the lanes of `box` reach; `tiles` are the element indices."""
        wheres = [(function(values), axes) for function, axes in self.compiled.wheres]
        for tile, _ in wheres:
            box = intersect(box, operand_box(tile, extents))
        inside, loaded = self._bounds(tiles)
        conditions = (*wheres, *inside)
        if not self.padded:
            for condition in conditions:
                box = _narrowed(box, extents, condition)
        wanted = np.ones(box_shape(box), np.bool_)
        for tile, _ in conditions:
            wanted = wanted & holds(tile, extents, box)
        if not self.padded and not wanted.all():
            msg = "the valid lanes of a load without pad= are not intervals"
            raise InternalError(msg)
        wrong = self._outside(tiles, extents, box, wanted, ir.ScalarSubscript)
        mask = wanted
        for tile in loaded:
            mask = mask & holds(tile, extents, box)
        stray = None
        if loaded:
            stray = self._outside(tiles, extents, box, wanted, ir.IndexSubscript)
        positions = np.zeros(mask.shape, np.int64)
        for tile, step in zip(tiles, self.steps, strict=True):
            positions = positions + select(tile, extents, box).astype(np.int64) * step
        placed = np.where(mask, positions, np.where(wanted, STRAY, MASKED))
        return Addresses(box, positions[mask], mask, placed, stray, wrong)

    def _bounds(self, tiles: Tiles) -> tuple[list[Condition], list[TileValue]]:
        """That each index lies in the tensor: computed ones, and loaded ones."""
        inside: list[Condition] = []
        loaded: list[TileValue] = []
        facts = zip(
            tiles,
            self.shape,
            self.compiled.axes,
            self.compiled.kinds,
            self.compiled.loaded,
            strict=True,
        )
        for tile, size, axes, kind, from_memory in facts:
            if kind is ir.ScalarSubscript and not self.fills:
                continue
            array = np.logical_and(tile.array >= 0, tile.array < size)
            condition = records.evolve(tile, array=array)
            if from_memory:
                loaded.append(condition)
            else:
                inside.append((condition, axes))
        return inside, loaded

    def _outside(
        self, tiles: Tiles, extents: Extents, box: Box, wanted: Array, kind: type
    ) -> tuple[tuple[int, ...], int] | None:
        """The first wanted element out of range in a dimension subscripted in this way."""
        shape = wanted.shape
        for axis, (tile, size) in enumerate(zip(tiles, self.shape, strict=True)):
            if self.compiled.kinds[axis] is not kind:
                continue
            index = np.broadcast_to(select(tile, extents, box), shape)
            bad = wanted & ((index < 0) | (index >= size))
            if bad.any():
                lane = tuple(int(n) for n in np.argwhere(bad)[0]) if bad.ndim else ()
                parts = (np.broadcast_to(select(t, extents, box), shape)[lane] for t in tiles)
                return tuple(int(part) for part in parts), axis
        return None


Tiles: TypeAlias = tuple[TileValue, ...]


def holds(tile: TileValue, extents: Extents, box: Box) -> Array:
    """Where a predicate is valid and true, over the lanes of `box`."""
    result = np.zeros(box_shape(box), np.bool_)
    common = intersect(box, operand_box(tile, extents))
    found = np.broadcast_to(select(tile, extents, common), box_shape(common))
    result[lanes(relative(common, box))] = found
    return result


def _narrowed(box: Box, extents: Extents, condition: Condition) -> Box:
    """The part of `box` at which a condition holds: an interval of the axis on which it varies.

    One that varies on none decides for all lanes. One that varies on several usually holds
    everywhere; otherwise the lanes at which it does must form a box.
    """
    tile, axes = condition
    rank = len(extents)
    if len(axes) == 1:
        (own,) = axes
        return _with(box, own + rank, _line(box, extents, tile, own))
    found = holds(tile, extents, box)
    if found.all():
        return box
    if not found.any():
        return tuple((start, start) for start, _ in box)
    result = box
    for axis in range(rank):
        others = tuple(n for n in range(rank) if n != axis)
        result = _with(result, axis, np.flatnonzero(found.any(axis=others)))
    return result


def _line(box: Box, extents: Extents, tile: TileValue, own: int) -> Array:
    """Where a predicate holds along the one axis on which it varies, counted from the box's start;
    the other axes may have no lanes."""
    parts = tile.valid
    if any(start >= stop for start, stop in (*parts[:own], *parts[own:][1:])):
        return np.zeros(0, np.int64)
    alone = TileValue("", tile.dtype, (tile.extents[own],), tile.array.reshape(-1), (parts[own],))
    return np.flatnonzero(holds(alone, (extents[own],), (box[own],)))


def _with(box: Box, axis: int, found: Array) -> Box:
    """`box` with the lanes `found`, counted from its start, on one axis."""
    start, _ = box[axis]
    part = (start, start)
    if found.size:
        first, last = int(found[0]), int(found[-1])
        if last - first + 1 != found.size:
            msg = "the valid lanes of a load without pad= are not an interval"
            raise InternalError(msg)
        part = (start + first, start + last + 1)
    return with_part(box, axis, part)

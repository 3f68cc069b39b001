"""Loads, stores, atomics and fetches of the interpreter, compiled to closures.

Where an access goes is found at run time: the element of each lane, and the lanes that have one.
Plain slices take a short cut over NumPy's basic indexing; every other form goes lane by lane
(`Locator`). Validity follows from slices, index tiles, tensor bounds and `where=` as they are (R1,
R5, R13), not from inferred domains; with `check_domains`, the lanes found are compared with the
domains and guards that the checker inferred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, assert_never

import numpy as np

from sketchc.base import records
from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType
from sketchc.interpreter.expressions import (
    Axes,
    IndexFunction,
    ScalarFunction,
    Values,
    compile_domain,
    compile_scalar,
)
from sketchc.interpreter.memory import MASKED, STRAY, Action, Index, Places, Site, State, Window
from sketchc.interpreter.operations import Outcome, convert
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
    poison,
    relative,
    select,
    tile_dtype,
    to_tensor,
    with_part,
)
from sketchc.interpreter.violations import launch_error
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import assignments, element_text
from sketchc.ir.symbolic import conjuncts


@records.frozen
class Addresses:
    """The elements of a tensor that an access reaches. The lanes of `box` (or only those for which
    `mask` holds) access the elements `chosen`, in row-major order. `placed` holds the storage
    position of every lane of `box`, or `MASKED` or `STRAY` as in `Places`.

    `stray`: the first element that a loaded index names outside the tensor, with the axis.
    `wrong`: the first element that a scalar subscript names outside, with the axis."""

    box: Box
    chosen: Index
    mask: Array | None = None
    placed: Array | None = None
    stray: tuple[tuple[int, ...], int] | None = None
    wrong: tuple[tuple[int, ...], int] | None = None

    def places(self, window: Window) -> Array:
        """`placed`, computed where the short cut left it out; all `STRAY` with `wrong`."""
        if self.wrong is not None:
            return np.full(box_shape(self.box), STRAY)
        if self.placed is not None:
            return self.placed
        data = window.memory.data
        return window.part(np.arange(data.size).reshape(data.shape), self.chosen)


#: A lane predicate: its index tile, and the axes on which it can vary.
Condition: TypeAlias = tuple[TileValue, Axes]
Tiles: TypeAlias = tuple[TileValue, ...]


@records.frozen
class _Dimension:
    """One dimension of an accessed tensor: the `kind` of its subscript, whether that is an index
    from memory, the element `index` of each lane and the `axes` on which it varies, the dimension's
    size and stride (`step`). `parts` are a slice's bounds and step, `axis` the tile axis."""

    kind: type
    loaded: bool
    index: IndexFunction
    axes: Axes
    size: int
    step: int
    parts: tuple[ScalarFunction, ...]
    axis: int


@records.frozen
class Locator:
    """Locates the lanes of one access at run time: the general path.

    `wheres` are the conjuncts of the lane predicate. `padded`: lanes without an element stay in the
    box (a load with pad=, a store); otherwise the box is narrowed to exclude them. `fills`: pad=
    also stands for elements that a scalar subscript names outside the tensor."""

    dimensions: tuple[_Dimension, ...]
    wheres: tuple[tuple[IndexFunction, Axes], ...]
    padded: bool
    fills: bool = False

    def reach(
        self,
        values: Values,
        extents: Extents,
        valid: Box,
        too_long: Callable[[int, int, int], None],
    ) -> Addresses:
        """The elements that the valid lanes of a tile reach, as far as the lanes are inside all
        slices and index tiles.

        `too_long` is called with the dimension, the length and the tile extent of a slice that is
        longer than its tile axis. Raises `ZeroDivisionError` for a step of 0.
        """
        box = full_box(extents)
        for place, dimension in enumerate(self.dimensions):
            if dimension.parts:
                lower, upper, step = (int(part(values)) for part in dimension.parts)
                count, extent = max(0, -(-(upper - lower) // step)), extents[dimension.axis]
                if count > extent:
                    too_long(place, count, extent)
                box = with_part(box, dimension.axis, (0, min(count, extent)))
        tiles = tuple(dimension.index(values) for dimension in self.dimensions)
        wheres = [(function(values), axes) for function, axes in self.wheres]
        for tile in (*tiles, *(tile for tile, _ in wheres)):
            box = intersect(box, operand_box(tile, extents))
        box = intersect(box, valid)
        doubtful = [
            place
            for place, dimension in enumerate(self.dimensions)
            if not _all_within(tiles[place].array, dimension.size)
        ]
        inside, loaded = self._bounds(tiles, doubtful)
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
        wrong = self._outside(tiles, doubtful, extents, box, wanted, ir.ScalarSubscript)
        positions = self._positions(tiles, extents, box)
        if not conditions and not loaded:  # all lanes have an element
            return Addresses(box, positions.reshape(-1), wanted, positions, None, wrong)
        mask = wanted
        for tile in loaded:
            mask = mask & holds(tile, extents, box)
        stray = None
        if loaded:
            stray = self._outside(tiles, doubtful, extents, box, wanted, ir.IndexSubscript)
        placed = np.where(mask, positions, np.where(wanted, STRAY, MASKED))
        return Addresses(box, positions[mask], mask, placed, stray, wrong)

    def _positions(self, tiles: Tiles, extents: Extents, box: Box) -> Array:
        """The storage positions of all lanes of a box, as if every index were in range."""
        known = 0
        varying = []
        for tile, dimension in zip(tiles, self.dimensions, strict=True):
            if tile.array.size == 1:
                known += int(tile.array.item()) * dimension.step
            else:
                varying.append((tile, dimension.step))
        # A position that leaves 64 bits belongs to a lane out of range, and is not used.
        positions = np.full(box_shape(box), (known + 2**63) % 2**64 - 2**63, np.int64)
        for tile, step in varying:
            positions += select(tile, extents, box).astype(np.int64, copy=False) * step
        return positions

    def _bounds(
        self, tiles: Tiles, doubtful: Iterable[int]
    ) -> tuple[list[Condition], list[TileValue]]:
        """The conditions that computed indices, and those that loaded indices, lie in the tensor,
        for the dimensions `doubtful`, in which some lane's may not."""
        inside: list[Condition] = []
        loaded: list[TileValue] = []
        for place in doubtful:
            tile, dimension = tiles[place], self.dimensions[place]
            if dimension.kind is ir.ScalarSubscript and not self.fills:
                continue
            array = np.logical_and(tile.array >= 0, tile.array < dimension.size)
            condition = records.evolve(tile, array=array)
            if dimension.loaded:
                loaded.append(condition)
            else:
                inside.append((condition, dimension.axes))
        return inside, loaded

    def _outside(
        self,
        tiles: Tiles,
        doubtful: Iterable[int],
        extents: Extents,
        box: Box,
        wanted: Array,
        kind: type,
    ) -> tuple[tuple[int, ...], int] | None:
        """The first wanted element out of range in a doubtful dimension whose subscript is of the
        type `kind`, with that dimension; None where there is none."""
        shape = wanted.shape
        for axis in doubtful:
            dimension = self.dimensions[axis]
            if dimension.kind is not kind:
                continue
            index = np.broadcast_to(select(tiles[axis], extents, box), shape)
            bad = wanted & ((index < 0) | (index >= dimension.size))
            if bad.any():
                lane = tuple(int(n) for n in np.argwhere(bad)[0]) if bad.ndim else ()
                parts = (np.broadcast_to(select(t, extents, box), shape)[lane] for t in tiles)
                return tuple(int(part) for part in parts), axis
        return None


def _all_within(indices: Array, size: int) -> bool:
    """Whether `indices` is not empty and all of it, void lanes included, lies in [0, size)."""
    if indices.size == 1:
        return bool(0 <= indices.item() < size)
    return indices.size > 0 and indices.min() >= 0 and bool(indices.max() < size)


def holds(tile: TileValue, extents: Extents, box: Box) -> Array:
    """Which lanes of `box` a predicate is valid and true on, as a bool array over the box."""
    result = np.zeros(box_shape(box), np.bool_)
    common = intersect(box, operand_box(tile, extents))
    found = np.broadcast_to(select(tile, extents, common), box_shape(common))
    result[lanes(relative(common, box))] = found
    return result


def _narrowed(box: Box, extents: Extents, condition: Condition) -> Box:
    """The part of `box` on which a condition holds: an interval of the axis on which it varies.

    A condition that varies on no axis decides for all lanes. One that varies on several usually
    holds everywhere; otherwise the lanes on which it holds must form a box.
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
    """The lanes, counted from the box's start, at which a predicate holds on the one axis on which
    it varies; none where it has no valid lanes on its other axes."""
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


#: A basic index of a tensor.
BasicIndex: TypeAlias = tuple[int | slice, ...]
#: Gives the elements of an access for a tile of given extents and the lanes considered; where
#: `Addresses.wrong` is set, the scalar subscript out of range has been reported.
Addressing: TypeAlias = Callable[[Extents, Box], Addresses]

#: The statements that move elements between a tensor and a tile.
Moved: TypeAlias = ir.Load | ir.Store | ir.Atomic

_COMBINE: dict[str, Any] = {"add": np.add, "max": np.maximum, "min": np.minimum}


def _pad_value(pad: int | float | bool | ir.ScalarOperand | None) -> ir.Expr:
    """The value of lanes outside the tensor; 0 for a load without `pad=`, which does not use it."""
    return pad.value if isinstance(pad, ir.ScalarOperand) else ir.Literal(0 if pad is None else pad)


class Accesses(State):
    """The statements that read and write tensors."""

    def _site(self, statement: ir.Statement) -> Site:
        return Site(statement.span, self.loops)

    # ------------------------------------------------------------ where an access goes

    def _sliced(self, access: ir.Access, site: Site) -> Addressing:
        """The short cut for scalars and slices of step 1: a basic index of the tensor."""
        window = self.windows[access.tensor]
        promised = self._promised(access)
        parts: list[tuple[Any, Any]] = []
        for subscript in access.subscripts:
            match subscript:
                case ir.ScalarSubscript(index):
                    parts.append((compile_scalar(index), None))
                case ir.SliceSubscript(lower, upper):
                    parts.append((compile_scalar(lower), compile_scalar(upper)))
                case ir.IndexSubscript():
                    msg = "index tiles go lane by lane"
                    raise InternalError(msg)
                case _:
                    assert_never(subscript)

        def addressing(extents: Extents, valid: Box) -> Addresses:
            index: list[int | slice] = []
            box: list[tuple[int, int]] = []
            bad = None
            for axis, (first_of, last_of) in enumerate(parts):
                first = int(first_of(self.values))
                size = window.shape[axis]
                if last_of is None:
                    index.append(first)
                    bad = axis if not 0 <= first < size else bad
                    continue
                length = int(last_of(self.values)) - first
                if length > extents[len(box)]:
                    self._slice_too_long(window, site, axis, length, extents[len(box)])
                start = max(0, -first)
                stop = max(start, min(length, size - first, extents[len(box)]))
                index.append(slice(first + start, first + stop))
                box.append((start, stop))
            here = tuple(box) if box else full_box((1,) * len(extents))
            if bad is not None:
                element = tuple(p.start if isinstance(p, slice) else p for p in index)
                self._out_of_range(window, site, element, bad, promised)
                return Addresses(here, tuple(index), wrong=(element, bad))
            within = intersect(here, valid)
            return Addresses(within, _narrow(tuple(index), here, within))

        return addressing

    def _addressing(
        self, statement: Moved, site: Site, *, padded: bool, fills: bool = False
    ) -> Addressing:
        """The general path, over `walk.element_indices`."""
        access, where = statement.access, statement.where
        window = self.windows[access.tensor]
        dimensions = []
        axis = 0
        elements = walk.element_indices(access, self.declared[statement.tile].extents)
        known = zip(access.subscripts, elements, window.shape, window.steps(), strict=True)
        for part, element, size, step in known:
            parts: tuple[ScalarFunction, ...] = ()
            if isinstance(part, ir.SliceSubscript):
                parts = tuple(map(compile_scalar, (part.lower, part.upper, part.step)))
            by_tile = part if isinstance(part, ir.IndexSubscript) else None
            loaded = by_tile is not None and by_tile.loaded
            index, axes = self.indices.compile(element), self.indices.axes(element)
            dimensions.append(_Dimension(type(part), loaded, index, axes, size, step, parts, axis))
            axis += bool(parts) or (by_tile is not None and by_tile.axis is not None)
        wheres = () if where is None else tuple(conjuncts(where))
        predicate = tuple((self.indices.compile(part), self.indices.axes(part)) for part in wheres)
        locator = Locator(tuple(dimensions), predicate, padded, fills)
        promised = self._promised(access)

        def addressing(actual: Extents, valid: Box) -> Addresses:
            def too_long(place: int, length: int, extent: int) -> None:
                self._slice_too_long(window, site, place, length, extent)

            try:
                reach = locator.reach(self.values, actual, valid, too_long)
            except ZeroDivisionError as error:
                msg = f"the step of a slice of {window.name} is 0"
                raise launch_error(msg, site.span) from error
            if reach.wrong is not None:
                self._out_of_range(window, site, *reach.wrong, promised)
            return reach

        return addressing

    def _slice_too_long(
        self, window: Window, site: Site, axis: int, length: int, extent: int
    ) -> None:
        text = f"the slice of axis {axis} of {window.name} has {length} lanes, the tile {extent}"
        self.shadow.told("slice-fits", window.name, (), text, site)

    def _promised(self, access: ir.Access) -> bool:
        """Whether a scalar subscript comes from memory: its range is the caller's promise."""
        return any(
            self.is_from_memory(part.index)
            for part in access.subscripts
            if isinstance(part, ir.ScalarSubscript)
        )

    def _out_of_range(
        self, window: Window, site: Site, element: tuple[int, ...], axis: int, promised: bool
    ) -> None:
        text = (
            f"{element_text(window.name, element)} is out of range: axis {axis} has "
            f"{window.shape[axis]} elements"
        )
        self.shadow.told("in-bounds", window.name, element, text, site, promised=promised)

    def _report_stray(self, reach: Addresses, window: Window, site: Site) -> bool:
        """Report a loaded index outside the tensor (R13); returns whether there was one."""
        if reach.stray is not None:
            self._out_of_range(window, site, *reach.stray, promised=True)
        return reach.stray is not None

    def _require_present(self, window: Window, site: Site) -> None:
        if not window.memory.present:
            msg = f"line {site.span.line} accesses {window.name}, which was not given"
            raise InternalError(msg)

    def _expected_mask(
        self, domain: ir.Domain, guards: tuple[ir.Expr, ...], site: Site, what: str
    ) -> Callable[[Addresses, Extents], None]:
        """A closure that compares, lane by lane, an inferred domain and its guards with the lanes
        found; it does nothing unless `Options.check_domains`."""
        if not self.options.check_domains or not domain:
            return lambda reach, extents: None
        domain_of = compile_domain(domain)
        functions = tuple(self.indices.compile(guard) for guard in guards)

        def expect(reach: Addresses, extents: Extents) -> None:
            if reach.mask is None:
                return  # a box, which has its own comparison
            static = np.zeros(extents, np.bool_)
            static[lanes(domain_of(self.values, extents))] = True
            for function in functions:
                static &= holds(function(self.values), extents, full_box(extents))
            found = np.zeros(extents, np.bool_)
            found[lanes(reach.box)] = reach.mask
            if not np.array_equal(static, found):
                lane = tuple(int(n) for n in np.argwhere(static != found)[0])
                verb = "holds" if static[lane] else "does not hold"
                msg = (
                    f"{what} at line {site.span.line}: lane {lane} of {extents} is wrong: the "
                    f"inferred condition {verb}, "
                    f"iteration {assignments(site.iteration(self.values))}"
                )
                raise InternalError(msg)

        return expect

    # ------------------------------------------------------------ loads

    def _load(self, statement: ir.Load) -> Action:
        site = self._site(statement)
        padded = statement.pad is not None
        plain = walk.is_plain(statement.access) and not padded and statement.where is None
        if plain:
            addressing = self._sliced(statement.access, site)
        else:
            addressing = self._addressing(statement, site, padded=padded, fills=padded)
        window = self.windows[statement.access.tensor]
        source = window.memory.tensor.dtype
        what = f"load of {statement.tile}"
        fill_of = compile_scalar(_pad_value(statement.pad))
        expect = self.expected(statement.domain, site, what)
        expect_read = self._expected_mask(statement.read, statement.guards, site, what)
        note = self.noted_write(statement.tile, site)

        def load() -> None:
            self._require_present(window, site)
            tile = self.tiles[statement.tile]
            note()
            reach = addressing(tile.extents, full_box(tile.extents))
            if self.options.places and not padded:
                alone = np.array([MASKED if reach.wrong is None else STRAY])
                self._note_places(statement, window, alone if plain else reach.places(window))
            if reach.wrong is not None:
                self.poisoned(tile, reach.box)
                return
            # A lane without pad= whose index is astray stays poisoned.
            if padded or not self._report_stray(reach, window, site):
                expect_read(reach, tile.extents)
            self.shadow.read(window, reach.chosen, site)
            read = window.part(window.memory.data, reach.chosen).astype(tile_dtype(source))
            values = read
            if tile.dtype is not source:
                values = self.rounded(convert(read, source, tile.dtype), tile.dtype)
            if reach.mask is None:
                values = values.reshape(box_shape(reach.box))
            elif values.size == reach.mask.size:
                values = values.reshape(reach.mask.shape)
            else:
                fill = fill_of(self.values) if padded else poison(tile.dtype, self.options.poison)
                whole = np.full(reach.mask.shape, self.rounded(np.asarray(fill), tile.dtype))
                whole[reach.mask] = values
                values = whole
            self.assign(tile, Outcome(values, reach.box))
            if plain or tile.fixed is None:
                expect(tile.box, tile.extents)

        return load

    # ------------------------------------------------------------ stores

    def _write(self, window: Window, index: Index, values: Array, dtype: DType) -> None:
        """Write a tile's values, of the type `dtype`, to a tensor, rounded to the tensor's type."""
        memory = window.memory
        target = memory.tensor.dtype
        values = convert(values, dtype, target)
        if memory.wide is not None:
            window.put(memory.wide, index, values)
        if memory.data.dtype != np.float64:
            values = to_tensor(values, target)
        window.put(memory.data, index, values)

    def _leaving(
        self, statement: ir.Store | ir.Atomic, site: Site, what: str
    ) -> Callable[[], tuple[Addresses, Array, DType] | None]:
        """A closure that gives the elements that a store or an atomic writes, the tile's values for
        them, and the tile's type; None where nothing is to be written."""
        plain = walk.is_plain(statement.access) and statement.where is None
        if plain and isinstance(statement, ir.Store):
            addressing = self._sliced(statement.access, site)
        else:
            addressing = self._addressing(statement, site, padded=True)
        window = self.windows[statement.access.tensor]
        expect_box = self.expected(statement.domain, site, what)
        expect = self._expected_mask(statement.domain, statement.guards, site, what)

        def leaving() -> tuple[Addresses, Array, DType] | None:
            tile = self.tiles[statement.tile]
            reach = addressing(tile.extents, self.read(tile, site))
            if reach.mask is None and reach.wrong is None:
                expect_box(reach.box, tile.extents)
                if is_empty(reach.box):
                    return None
            if self.options.places:
                self._note_places(statement, window, reach.places(window))
            if reach.wrong is not None:
                return None
            values = tile.array[lanes(reach.box)]
            if reach.mask is None:
                sizes = [part.stop - part.start for part in reach.chosen if isinstance(part, slice)]
                return reach, values.reshape(sizes), tile.dtype
            if not self._report_stray(reach, window, site):
                expect(reach, tile.extents)
            return reach, values[reach.mask], tile.dtype

        return leaving

    def _note_places(self, statement: Moved, window: Window, positions: Array) -> None:
        """With `Options.places`, note where a store with a promise writes; of other accesses
        through indices from memory, only which lanes leave the tensor."""
        if not self.options.places:
            return
        unique = False
        if isinstance(statement, ir.Store) and (statement.unique or statement.covers):
            unique = statement.unique
        elif self._promised(statement.access) or any(
            isinstance(part, ir.IndexSubscript) and part.loaded
            for part in statement.access.subscripts
        ):
            positions = np.where(positions == STRAY, STRAY, MASKED)
        else:
            return
        memory, launch = window.memory, self.shadow.launches
        name, lanes_of = memory.tensor.name, positions.reshape(-1)
        self.places.append(Places(launch, name, memory.data.size, unique, lanes_of))

    def _store(self, statement: ir.Store) -> Action:
        site = self._site(statement)
        leaving = self._leaving(statement, site, f"store of {statement.tile}")
        window = self.windows[statement.access.tensor]
        indexed = any(isinstance(s, ir.IndexSubscript) for s in statement.access.subscripts)

        def store() -> None:
            found = leaving()
            if found is None:
                return
            reach, values, dtype = found
            if indexed:
                self.shadow.write_lanes(window, np.asarray(reach.chosen), site, statement.unique)
            self.shadow.write(window, reach.chosen, site, statement.unique)
            self._write(window, reach.chosen, values, dtype)

        return store

    # ------------------------------------------------------------ atomics and fetches

    def _atomic(self, statement: ir.Atomic) -> Action:
        site = self._site(statement)
        what = f"atomic_{statement.operation} of {statement.tile}"
        leaving = self._leaving(statement, site, what)
        window = self.windows[statement.access.tensor]

        def atomic() -> None:
            found = leaving()
            if found is None:
                return
            reach, values, dtype = found
            self.shadow.update(window, reach.chosen, site, statement.operation)
            self._combine(window, np.asarray(reach.chosen), values, dtype, statement.operation)

        return atomic

    def _combine(
        self, window: Window, positions: Array, values: Array, dtype: DType, operation: str
    ) -> None:
        """Combine lanes with elements; additions of floats are kept in float64 until the phase
        ends, so that their order does not show, and rounded for every reader."""
        memory = window.memory
        target = memory.tensor.dtype
        values = convert(values, dtype, target)
        if target.is_float:
            values = self.rounded(values, target)
        data = memory.data.reshape(-1)
        touched = np.unique(positions)
        if memory.wide is not None:
            wide = memory.wide.reshape(-1)
            _COMBINE[operation].at(wide, positions, values)
            data[touched] = (
                to_tensor(wide[touched], target) if data.dtype != wide.dtype else wide[touched]
            )
            return
        held = data[touched].astype(tile_dtype(target))
        _COMBINE[operation].at(held, np.searchsorted(touched, positions), values)
        data[touched] = held if data.dtype == held.dtype else to_tensor(held, target)

    def _fetch(self, statement: ir.Fetch) -> Action:
        """A closure that fetches a scalar, as a Python number; 0 for an element out of range."""
        site = self._site(statement)
        self.from_memory.add(statement.name)
        addressing = self._sliced(statement.access, site)
        window = self.windows[statement.access.tensor]
        kind = window.memory.tensor.dtype

        def fetch() -> None:
            self._require_present(window, site)
            reach = addressing((), ())
            number: Any = np.zeros((), tile_dtype(kind))
            if reach.wrong is None:
                self.shadow.read(window, reach.chosen, site)
                number = window.part(window.memory.data, reach.chosen)
            if kind.is_float:
                number = number.astype(np.float64)
            self.values[statement.name] = number.item()

        return fetch


def _narrow(index: BasicIndex, reach: Box, box: Box) -> BasicIndex:
    """The tensor index of the lanes `box`, where `index` is that of the lanes `reach`."""
    axes = iter(zip(reach, box, strict=True))
    result: list[int | slice] = []
    for part in index:
        if isinstance(part, slice):
            (origin, _), (start, stop) = next(axes)
            first = part.start - origin
            result.append(slice(first + start, first + max(start, stop)))
        else:
            result.append(part)
    return tuple(result)

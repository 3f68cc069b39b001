"""Loads, stores, atomics and fetches of the interpreter, compiled to closures.

Plain slices take a short cut over NumPy's basic indexing; every other form goes lane by lane
(`interpreter.addresses`). With `check_domains`, the lanes found are compared with the domains and
guards that the checker inferred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, assert_never

import numpy as np

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType
from sketchc.interpreter.addresses import Addresses, Locator, compile_access, holds
from sketchc.interpreter.expressions import compile_domain, compile_scalar
from sketchc.interpreter.memory import MASKED, STRAY, Action, Index, Places, Site, State, Window
from sketchc.interpreter.operations import Outcome, convert
from sketchc.interpreter.tiles import (
    Array,
    Box,
    Extents,
    box_shape,
    full_box,
    intersect,
    is_empty,
    lanes,
    poison,
    tile_dtype,
    to_tensor,
)
from sketchc.interpreter.violations import launch_error, show_element, show_values
from sketchc.ir import nodes as ir

#: A basic index of a tensor.
BasicIndex: TypeAlias = tuple[int | slice, ...]
#: Where an access goes, for a tile of given extents and the lanes considered; `Addresses.wrong`
#: says that a scalar subscript was out of range, which has been told.
Addressing: TypeAlias = Callable[[Extents, Box], Addresses]

#: What moves elements between a tensor and a tile.
Moved: TypeAlias = ir.Load | ir.Store | ir.Atomic

_COMBINE: dict[str, Any] = {"add": np.add, "max": np.maximum, "min": np.minimum}


def _pad_value(pad: int | float | bool | ir.ScalarOperand | None) -> ir.Expr:
    """What lanes outside the tensor hold; a load without `pad=` has no use for it."""
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
        """The general path."""
        access, where = statement.access, statement.where
        window = self.windows[access.tensor]
        extents = self.declared[statement.tile].extents
        compiled = compile_access(access, extents, where, self.indices)
        locator = Locator(compiled, window.shape, window.steps(), padded, fills)
        promised = self._promised(access)

        def addressing(actual: Extents, valid: Box) -> Addresses:
            def too_long(place: int, length: int, extent: int) -> None:
                self._slice_too_long(window, site, place, length, extent)

            try:
                box, tiles = compiled.lanes_of(self.values, actual, too_long)
            except ZeroDivisionError as error:
                msg = f"the step of a slice of {window.name} is 0"
                raise launch_error(msg, site.span) from error
            reach = locator.reach(self.values, actual, intersect(box, valid), tiles)
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
            f"{show_element(window.name, element)} is out of range: axis {axis} has "
            f"{window.shape[axis]} elements"
        )
        self.shadow.told("in-bounds", window.name, element, text, site, promised=promised)

    def _report_stray(self, reach: Addresses, window: Window, site: Site) -> bool:
        """R13: an index that was loaded and lies outside; True when there was one."""
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
        """The comparison of an inferred domain with guards and the lanes found one by one."""
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
                    f"iteration {show_values(site.iteration(self.values))}"
                )
                raise InternalError(msg)

        return expect

    # ------------------------------------------------------------ loads

    def _load(self, statement: ir.Load) -> Action:
        site = self._site(statement)
        padded = statement.pad is not None
        plain = _plain(statement.access) and not padded and statement.where is None
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
            values = self._entering(read, source, tile.dtype)
            if reach.mask is None:
                values = values.reshape(box_shape(reach.box))
            else:
                fill = fill_of(self.values) if padded else poison(tile.dtype, self.options.poison)
                whole = np.full(reach.mask.shape, self.rounded(np.asarray(fill), tile.dtype))
                whole[reach.mask] = values
                values = whole
            self.assign(tile, Outcome(values, reach.box))
            if plain or tile.fixed is None:
                expect(tile.box, tile.extents)

        return load

    def _entering(self, values: Array, source: DType, dtype: DType) -> Array:
        """Elements of a tensor as a tile of another type keeps them."""
        if dtype is source:
            return values
        return self.rounded(convert(values, source, dtype), dtype)

    # ------------------------------------------------------------ stores

    def _write(self, window: Window, index: Index, values: Array, dtype: DType) -> None:
        """Values of a tile, rounded to the tensor's type."""
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
        """The way out of a tile: where its lanes go, and what they hold; None for nowhere."""
        plain = _plain(statement.access) and statement.where is None
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
                return reach, values.reshape(_shape(reach.chosen)), tile.dtype
            if not self._report_stray(reach, window, site):
                expect(reach, tile.extents)
            return reach, values[reach.mask], tile.dtype

        return leaving

    def _note_places(self, statement: Moved, window: Window, positions: Array) -> None:
        """Note where a store with a promise goes, if anyone asks; of other accesses through indices
        from memory, only which lanes leave the tensor."""
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

    def _fetch(self, statement: ir.Fetch, site: Site) -> Action:
        """A scalar, as a Python number; 0 for an element out of range."""
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


def _plain(access: ir.Access) -> bool:
    """Scalars and slices with step 1."""
    return all(
        isinstance(part, ir.ScalarSubscript)
        or (isinstance(part, ir.SliceSubscript) and part.step == ir.Literal(1))
        for part in access.subscripts
    )


def _shape(index: Index) -> tuple[int, ...]:
    """The shape of what a basic index of slices in bounds selects."""
    return tuple(part.stop - part.start for part in index if isinstance(part, slice))


def _narrow(index: BasicIndex, reach: Box, box: Box) -> BasicIndex:
    """The tensor index of the lanes `box`, given that `index` is that of the lanes `reach`."""
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

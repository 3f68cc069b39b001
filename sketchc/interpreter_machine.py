"""The interpreter's machine: statements compiled to closures over tiles, tensors and scalars.

`Machine.run` executes every phase. Static domains are not used to decide which lanes are valid
(but for `init=` tiles, R4); with `check_domains` each of them is compared with the lanes that the
actual slices and tensor bounds give, which checks the checker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, assert_never

import numpy as np

from sketchc import ir
from sketchc.diagnostics import InternalError, UsageError
from sketchc.interpreter_expressions import (
    Values,
    compile_domain,
    compile_scalar,
    is_index,
    wrapped,
)
from sketchc.interpreter_memory import (
    Index,
    Site,
    Window,
)
from sketchc.interpreter_operations import Operation, OperationError, Outcome, convert
from sketchc.interpreter_state import State, relative
from sketchc.interpreter_tiles import (
    Box,
    Extents,
    TileValue,
    box_shape,
    full_box,
    intersect,
    is_empty,
    lanes,
    physical_shape,
    poison,
    same_lanes,
    tile_dtype,
    to_tensor,
)
from sketchc.interpreter_violations import (
    Violation,
    launch_error,
    show_element,
)
from sketchc.ops import OPS, Result
from sketchc.types import DType, promote

Action: TypeAlias = Callable[[], None]
#: Where an access goes for a tile of given extents: the tensor's index and the tile's lanes, or
#: None when a scalar subscript is out of range.
Locate: TypeAlias = Callable[[Extents], tuple[Index, Box] | None]


class Machine(State):
    """Compiles statements to closures over the state, and runs them."""

    def run(self) -> None:
        """Execute all phases in order."""
        for phase in self.sketch.phases:
            loaded, stored = _accessed(phase.body)
            for memory in self.memories.values():
                used = {window.name for window in self.windows.values() if window.memory is memory}
                memory.begin_phase(bool(loaded & used), bool(stored & used))
            action = self._block(phase.body)
            self.shadow.enter(())
            action()

    # ------------------------------------------------------------ statements

    def _block(self, body: tuple[ir.Statement, ...]) -> Action:
        actions = tuple(self._statement(statement) for statement in body)

        def block() -> None:
            for action in actions:
                action()

        return block

    def _statement(self, statement: ir.Statement) -> Action:
        match statement:
            case ir.Alloc():
                return self._alloc(statement)
            case ir.Load():
                return self._load(statement)
            case ir.Store():
                return self._store(statement)
            case ir.Compute():
                return self._compute(statement)
            case ir.Bind():
                return self._bind(statement)
            case ir.For():
                return self._for(statement)
            case _:
                assert_never(statement)

    def _site(self, statement: ir.Statement) -> Site:
        return Site(statement.span, self.loops)

    def _for(self, loop: ir.For) -> Action:
        start_of, stop_of = compile_scalar(loop.start), compile_scalar(loop.stop)
        step_of = compile_scalar(loop.step)
        variable = loop.variable
        number = self.loop_count = self.loop_count + 1
        outer = self.loops
        self.loops = (*outer, variable)
        self.parallel_depth += loop.parallel
        body = self._block(loop.body)
        self.parallel_depth -= loop.parallel
        self.loops = outer
        tracked = loop.parallel or _has_parallel(loop.body)
        shuffled = loop.parallel and self.options.shuffle is not None
        values, shadow = self.values, self.shadow

        def run() -> None:
            step = int(step_of(values))
            if step == 0:
                msg = f"the step of the loop over {variable} is 0"
                raise launch_error(msg, loop.span)
            iterations: Any = range(int(start_of(values)), int(stop_of(values)), step)
            if shuffled:
                iterations = self.order.permutation(np.array(iterations, np.int64)).tolist()
            path = shadow.paths[shadow.current]
            for iteration in iterations:
                values[variable] = iteration
                if tracked:
                    level = (number, variable, iteration, loop.parallel)
                    before = shadow.enter((*path, level))
                    body()
                    shadow.current = before
                else:
                    body()

        return run

    def _bind(self, statement: ir.Bind) -> Action:
        name, values = statement.name, self.values
        function: Callable[[Values], Any]
        if is_index(statement.value, self.indices.bindings):
            function = self.indices.compile(statement.value)
            self.indices.bindings.add(name)
        else:
            function = compile_scalar(statement.value)

        def bind() -> None:
            values[name] = function(values)

        return bind

    def _alloc(self, statement: ir.Alloc) -> Action:
        declared = self.declared[statement.tile]
        name, dtype, options = declared.name, declared.dtype, self.options
        extents_of = tuple(compile_scalar(extent) for extent in declared.extents)
        domain_of = None
        if declared.domain is not None and len(declared.domain) == len(declared.extents):
            domain_of = compile_domain(declared.domain)
        self.alloc_depth[name] = self.parallel_depth
        kind = tile_dtype(dtype)

        def alloc() -> None:
            extents = tuple(int(extent(self.values)) for extent in extents_of)
            if min(extents, default=0) < 0:
                msg = f"tile {declared.source_name} has a negative extent: {list(extents)}"
                raise launch_error(msg, statement.span)
            shape = physical_shape(extents, options.padding)
            self._refuse_large(declared, shape, kind.itemsize)
            array = np.full(shape, poison(dtype, options.poison), kind)
            tile = TileValue(name, dtype, extents, array, None)
            self.tile_writers.pop(name, None)
            if declared.initial is not None:
                fixed = full_box(extents)
                if domain_of is not None:
                    fixed = domain_of(self.values, extents)
                initial = self.rounded(np.asarray(declared.initial), dtype)
                array[lanes(fixed)] = initial
                tile.box = tile.fixed = fixed
            self.tiles[name] = tile

        return alloc

    def _refuse_large(self, tile: ir.Tile, shape: Extents, itemsize: int) -> None:
        size = itemsize
        for extent in shape:
            size *= extent
        if size > self.options.memory_limit:
            msg = (
                f"tile {tile.source_name} of extents {list(shape)} would take "
                f"{size / 2**30:.1f} GiB; choose smaller constants"
            )
            raise UsageError(msg)

    # ------------------------------------------------------------ memory

    def _locate(self, access: ir.Access, site: Site) -> Locate:
        window = self.windows[access.tensor]
        parts: list[tuple[Any, Any]] = []
        for subscript in access.subscripts:
            match subscript:
                case ir.ScalarSubscript(index):
                    parts.append((compile_scalar(index), None))
                case ir.SliceSubscript(lower, upper):
                    parts.append((compile_scalar(lower), compile_scalar(upper)))
                case _:
                    assert_never(subscript)

        def locate(extents: Extents) -> tuple[Index, Box] | None:
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
            if bad is not None:
                self._out_of_range(window, site, index, bad)
                return None
            return tuple(index), tuple(box) if box else full_box((1,) * len(extents))

        return locate

    def _slice_too_long(
        self, window: Window, site: Site, axis: int, length: int, extent: int
    ) -> None:
        text = f"the slice of axis {axis} of {window.name} has {length} lanes, the tile {extent}"
        where = (site.iteration(self.values),)
        self.violations.add(Violation("slice-fits", window.name, (), where, text, site.span))

    def _out_of_range(
        self, window: Window, site: Site, index: list[int | slice], axis: int
    ) -> None:
        element = tuple(part.start if isinstance(part, slice) else part for part in index)
        text = (
            f"{show_element(window.name, element)} is out of range: axis {axis} has "
            f"{window.shape[axis]} elements"
        )
        where = (site.iteration(self.values),)
        self.violations.add(Violation("in-bounds", window.name, element, where, text, site.span))

    def _load(self, statement: ir.Load) -> Action:
        site = self._site(statement)
        locate = self._locate(statement.access, site)
        window = self.windows[statement.access.tensor]
        source = window.memory.tensor.dtype
        data = window.of(window.memory.data)
        expect = self.expected(statement.domain, site, f"load of {statement.tile}")
        note = self.noted_write(statement.tile, site)

        def load() -> None:
            tile = self.tiles[statement.tile]
            note()
            found = locate(tile.extents)
            if found is None:
                self.poisoned(tile)
                return
            index, box = found
            if is_empty(box):
                values = np.zeros(box_shape(box), tile_dtype(source))
            else:
                self.shadow.read(window, index, site)
                values = np.asarray(data[index]).reshape(box_shape(box))
                values = values.astype(tile_dtype(source))
            if tile.dtype is not source:
                values = self.rounded(convert(values, source, tile.dtype), tile.dtype)
            self.assign(tile, Outcome(values, box))
            expect(tile.box, tile.extents)

        return load

    def _store(self, statement: ir.Store) -> Action:
        site = self._site(statement)
        locate = self._locate(statement.access, site)
        window = self.windows[statement.access.tensor]
        target = window.memory.tensor.dtype
        data = window.of(window.memory.data)
        expect = self.expected(statement.domain, site, f"store of {statement.tile}")

        def store() -> None:
            tile = self.tiles[statement.tile]
            valid = self.read(tile, site)
            found = locate(tile.extents)
            if found is None:
                return
            index, reach = found
            box = intersect(valid, reach)
            expect(box, tile.extents)
            if is_empty(box):
                return
            index = _narrow(index, reach, box)
            self.shadow.write(window, index, site)
            values = convert(tile.array[lanes(box)], tile.dtype, target)
            if data.dtype != np.float64:
                values = to_tensor(values, target)
            data[index] = values.reshape(data[index].shape)

        return store

    # ------------------------------------------------------------ computation

    def _operand(self, operand: ir.Operand, dtype: DType, site: Site) -> Callable[[], TileValue]:
        match operand:
            case ir.TileOperand(name, domain):
                expect = self.expected(domain, site, f"read of {name}")

                def read() -> TileValue:
                    tile = self.tiles[name]
                    expect(self.read(tile, site), tile.extents)
                    return tile

                return read
            case ir.ScalarOperand(value, own):
                function = compile_scalar(value)
                kind = dtype if dtype.is_float else own

                def scalar() -> TileValue:
                    number = np.asarray(wrapped(function(self.values)))
                    if kind.is_float:
                        number = self.rounded(number.astype(np.float64), kind.compute)
                    return TileValue("", kind, (), number, ())

                return scalar
            case ir.IndexOperand(value, _, _, domain):
                index_of = self.indices.compile(value)
                expect = self.expected(domain, site, "index tile")

                def index() -> TileValue:
                    tile = index_of(self.values)
                    expect(tile.box, tile.extents)
                    return tile

                return index
            case _:
                assert_never(operand)

    def _compute(self, statement: ir.Compute) -> Action:
        site = self._site(statement)
        row = OPS[statement.operation]
        destination = self.declared[statement.destination]
        dtype = self._evaluation_type(statement)
        operation = Operation(
            row, dtype, destination.dtype, dict(statement.attributes), self.options.padding > 0
        )
        operands = tuple(self._operand(operand, dtype, site) for operand in statement.operands)
        expect = self.expected(statement.domain, site, f"result in {destination.name}")
        written = statement.written if statement.masked else ()
        expect_written = self.expected(written, site, f"update of {destination.name}")
        note = self.noted_write(destination.name, site)

        def compute() -> None:
            tile = self.tiles[destination.name]
            note()
            try:
                outcome = operation.apply([operand() for operand in operands], tile.extents)
            except OperationError as error:
                where = (site.iteration(self.values),)
                text = f"{error.text} in lane {list(error.lane)} of {destination.source_name}"
                name = destination.source_name
                self.violations.add(Violation(error.kind, name, error.lane, where, text, site.span))
                self.poisoned(tile)
                return
            if row.accumulates:
                outcome = _accumulated(outcome, tile, self.read(tile, site))
            outcome = Outcome(self.rounded(outcome.values, tile.dtype), outcome.box)
            if tile.fixed is not None:
                self._check_update(statement, tile, outcome, expect_written)
            self.assign(tile, outcome)
            expect(tile.box, tile.extents)

        return compute

    def _evaluation_type(self, statement: ir.Compute) -> DType:
        """The statement's type; for comparisons of other things, that of their operands."""
        row = OPS[statement.operation]
        if statement.dtype is not DType.BOOL or row.result is not Result.BOOL:
            return statement.dtype
        found = [
            self.declared[operand.tile].dtype
            if isinstance(operand, ir.TileOperand)
            else operand.dtype
            for operand in statement.operands
        ]
        result = found[0]
        for dtype in found[1:]:
            result = promote(result, dtype)
        return result.compute

    def _check_update(
        self,
        statement: ir.Compute,
        tile: TileValue,
        outcome: Outcome,
        expect: Callable[[Box | None, Extents], None],
    ) -> None:
        if not self.options.check_domains or tile.fixed is None:
            return
        changed = intersect(outcome.box, tile.fixed)
        if statement.masked:
            expect(changed, tile.extents)
        elif not same_lanes(changed, tile.fixed):
            msg = (
                f"{statement.operation} at line {statement.span.line} is not masked, yet writes "
                f"{changed} of {tile.name}, whose domain is {tile.fixed}"
            )
            raise InternalError(msg)


def _accumulated(outcome: Outcome, tile: TileValue, valid: Box) -> Outcome:
    """The product added to what the destination holds."""
    box = intersect(outcome.box, valid)
    new = outcome.values[lanes(relative(box, outcome.box))]
    return Outcome(tile.array[lanes(box)] + new, box)


def _narrow(index: Index, reach: Box, box: Box) -> Index:
    """The tensor index of the lanes `box`, given that `index` is that of the lanes `reach`."""
    axes = iter(zip(reach, box, strict=True))
    result: list[int | slice] = []
    for part in index:
        if isinstance(part, slice):
            (origin, _), (start, stop) = next(axes)
            result.append(slice(part.start + start - origin, part.start + stop - origin))
        else:
            result.append(part)
    return tuple(result)


def _has_parallel(body: tuple[ir.Statement, ...]) -> bool:
    return any(
        isinstance(statement, ir.For) and (statement.parallel or _has_parallel(statement.body))
        for statement in body
    )


def _accessed(body: tuple[ir.Statement, ...]) -> tuple[set[str], set[str]]:
    """The names (tensors and views) that a body loads and stores."""
    loaded: set[str] = set()
    stored: set[str] = set()
    for statement in body:
        match statement:
            case ir.Load(access):
                loaded.add(access.tensor)
            case ir.Store(_, access):
                stored.add(access.tensor)
            case ir.For():
                inner_loaded, inner_stored = _accessed(statement.body)
                loaded |= inner_loaded
                stored |= inner_stored
            case ir.Alloc() | ir.Compute() | ir.Bind():
                pass
            case _:
                assert_never(statement)
    return loaded, stored

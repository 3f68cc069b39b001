"""The interpreter's machine: host steps, statements and operations compiled to closures.

Static domains are not used to decide which lanes are valid (but for `init=` tiles, R4); with
`check_domains` each of them is compared with the lanes that the actual slices and tensor bounds
give, which checks the checker.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, assert_never

import numpy as np

from sketchc.base import records
from sketchc.base.diagnostics import InternalError, UsageError
from sketchc.base.types import DType, promote
from sketchc.interpreter.accesses import Accesses
from sketchc.interpreter.expressions import (
    Values,
    compile_domain,
    compile_scalar,
    is_index,
    wrapped,
)
from sketchc.interpreter.launch import check_condition
from sketchc.interpreter.memory import Action, Site
from sketchc.interpreter.operations import Operation, OperationError, Outcome
from sketchc.interpreter.tiles import (
    Box,
    Extents,
    TileValue,
    fits_an_array,
    full_box,
    intersect,
    lanes,
    lay_out,
    physical_shape,
    poison,
    same_lanes,
    tile_dtype,
)
from sketchc.interpreter.violations import launch_error
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.launch.conditions import fetched_conditions
from sketchc.launch.magnitudes import has_parallel
from sketchc.ops.table import OPS, Category, Result


class Machine(Accesses):
    """Compiles statements to closures over the state, and runs them."""

    def run(self) -> None:
        """Do what the host does, in order."""
        self._steps(self.sketch.steps)()

    # ------------------------------------------------------------ host steps

    def _steps(self, steps: tuple[ir.HostStep, ...]) -> Action:
        actions = tuple(self._step(step) for step in steps)

        def run() -> None:
            for action in actions:
                action()

        return run

    def _step(self, step: ir.HostStep) -> Action:
        match step:
            case ir.Launch(index):
                return self._launch(self.sketch.phases[index])
            case ir.HostFor():
                return self._host_for(step)
            case ir.HostIf():
                condition = compile_scalar(step.condition)
                body, orelse = self._steps(step.body), self._steps(step.orelse)
                return self._choice(step, condition, body, orelse)
            case ir.Fetch():
                return self._host_fetch(step)
            case ir.Bind():
                return self._bind(step)
            case _:
                assert_never(step)

    def _host_fetch(self, step: ir.Fetch) -> Action:
        """The number, and what must hold of it."""
        action = self._fetch(step, Site(step.span, self.loops))
        condition = fetched_conditions(self.sketch).get(step.name)
        if condition is None:
            return action

        def fetch() -> None:
            action()
            known = {n: v for n, v in self.values.items() if not isinstance(v, TileValue)}
            check_condition(condition, known)

        return fetch

    def _launch(self, phase: ir.Phase) -> Action:
        """One launch: shadow memory starts afresh, for launches come one after another."""
        use = Use.of(phase.body)
        action = self._block(phase.body)
        windows = self.windows.values()
        named = [
            (memory, {window.name for window in windows if window.memory is memory})
            for memory in self.memories.values()
        ]

        def launch() -> None:
            for memory, names in named:
                updates = {name for tensor, name in use.updated if tensor in names}
                memory.begin_phase(
                    bool(use.loaded & names), bool(use.stored & names), sorted(updates)
                )
            self.shadow.restart()
            action()
            for memory, _ in named:
                memory.begin_phase(loaded=False, stored=False)

        return launch

    def _host_for(self, loop: ir.HostFor) -> Action:
        range_of = self._range(loop)
        outer = self.loops
        self.loops = (*outer, loop.variable)
        body = self._steps(loop.body)
        self.loops = outer

        def run() -> None:
            for iteration in range_of():
                self.values[loop.variable] = iteration
                body()

        return run

    def _spread_memory(self, name: str, *values: ir.Expr) -> None:
        """Note that a scalar comes from memory where one of the values that make it does."""
        if any(map(self.is_from_memory, values)):
            self.from_memory.add(name)

    def _range(self, loop: ir.For | ir.HostFor) -> Callable[[], range]:
        """The iterations of a loop; its step may be negative but not 0."""
        self._spread_memory(loop.variable, loop.start, loop.stop, loop.step)
        start_of, stop_of = compile_scalar(loop.start), compile_scalar(loop.stop)
        step_of = compile_scalar(loop.step)
        values, place, reached = self.values, loop.span.start, self.reached

        def range_of() -> range:
            step = int(step_of(values))
            if step == 0:
                msg = f"the step of the loop over {loop.variable} is 0"
                raise launch_error(msg, loop.span)
            found = range(int(start_of(values)), int(stop_of(values)), step)
            reached.loop(place, len(found))
            return found

        return range_of

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
            case ir.Atomic():
                return self._atomic(statement)
            case ir.Fetch():
                return self._fetch(statement, self._site(statement))
            case ir.Compute():
                return self._compute(statement)
            case ir.Bind():
                return self._bind(statement)
            case ir.For():
                return self._for(statement)
            case ir.If():
                return self._if(statement)
            case _:
                assert_never(statement)

    def _if(self, statement: ir.If) -> Action:
        condition = compile_scalar(statement.condition)
        body, orelse = self._block(statement.body), self._block(statement.orelse)
        return self._choice(statement, condition, body, orelse)

    def _choice(
        self,
        branch: ir.If | ir.HostIf,
        condition: Callable[[Values], Any],
        body: Action,
        orelse: Action,
    ) -> Action:
        place, reached = branch.span.start, self.reached

        def choose() -> None:
            taken = bool(condition(self.values))
            reached.branch(place, taken)
            if taken:
                body()
            else:
                orelse()

        return choose

    def _for(self, loop: ir.For) -> Action:
        range_of = self._range(loop)
        variable = loop.variable
        number = self.loop_count = self.loop_count + 1
        outer = self.loops
        self.loops = (*outer, variable)
        self.parallel_depth += loop.parallel
        body = self._block(loop.body)
        self.parallel_depth -= loop.parallel
        self.loops = outer
        tracked = loop.parallel or has_parallel(loop.body)
        shuffled = loop.parallel and self.options.shuffle is not None
        values, shadow = self.values, self.shadow

        def run() -> None:
            iterations: Any = range_of()
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
        self._spread_memory(name, statement.value)
        function: Callable[[Values], Any]
        if is_index(statement.value, self.indices.bindings):
            function = self.indices.compile(statement.value)
            self.indices.bindings[name] = self.indices.axes(statement.value)
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
        size = itemsize * prod(shape)
        if size > self.options.memory_limit or not fits_an_array(shape, itemsize):
            msg = (
                f"tile {tile.source_name} of extents {list(shape)} would take "
                f"{size / 2**30:.1f} GiB; choose smaller constants"
            )
            raise UsageError(msg)

    # ------------------------------------------------------------ computation

    def _operand(
        self, operand: ir.Operand, dtype: DType, site: Site, *, directed: bool = False
    ) -> Callable[[], TileValue]:
        """What reads an operand: scalars in the type of evaluation, unless a conversion is to round
        them in a direction: once, then, from their own type."""
        match operand:
            case ir.TileOperand(name, domain, layout):
                expect = self.expected(domain, site, f"read of {name}")

                def read() -> TileValue:
                    tile = self.tiles[name]
                    self.read(tile, site)
                    if layout is not None:
                        tile = lay_out(tile, layout)
                    expect(tile.box, tile.extents)
                    return tile

                return read
            case ir.ScalarOperand(value, own):
                function = compile_scalar(value)
                kind = dtype if dtype.is_float and not directed else own

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
        kind = DType.I64 if row.category is Category.RANDOM else dtype  # seeds stay integers
        directed = statement.attributes.get("round", "nearest") != "nearest"
        operands = tuple(
            self._operand(operand, kind, site, directed=directed) for operand in statement.operands
        )
        writes = tuple(self._written(statement, name, site) for name in statement.destinations)

        def compute() -> None:
            tiles = [self.tiles[name] for name in statement.destinations]
            arguments = [operand() for operand in operands]
            if row.accumulates:
                for tile in tiles:
                    self.read(tile, site)
            try:
                outcomes = operation.apply(arguments, tiles)
            except OperationError as error:
                name = destination.source_name
                text = f"{error.text} in lane {list(error.lane)} of {name}"
                self.shadow.told(error.kind, name, error.lane, text, site)
                for tile in tiles:
                    self.poisoned(tile, error.box)
                return
            for write, tile, outcome in zip(writes, tiles, outcomes, strict=True):
                write(tile, outcome)

        return compute

    def _written(
        self, statement: ir.Compute, name: str, site: Site
    ) -> Callable[[TileValue, Outcome], None]:
        """The write of one result, with its checks."""
        expect = self.expected(statement.domain, site, f"result in {name}")
        written = statement.written if statement.masked else ()
        expect_written = self.expected(written, site, f"update of {name}")
        note = self.noted_write(name, site)

        def write(tile: TileValue, outcome: Outcome) -> None:
            note()
            outcome = Outcome(self.rounded(outcome.values, tile.dtype), outcome.box)
            if tile.fixed is not None:
                self._check_update(statement, tile, outcome, expect_written)
            self.assign(tile, outcome)
            expect(tile.box, tile.extents)

        return write

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


@records.frozen
class Use:
    """The names (tensors and views) that a phase loads, stores, and updates by which atomics."""

    loaded: set[str]
    stored: set[str]
    updated: set[tuple[str, str]]

    @classmethod
    def of(cls, body: tuple[ir.Statement, ...]) -> Use:
        use = cls(set(), set(), set())
        for statement in walk.statements(body):
            match statement:
                case ir.Load(access) | ir.Fetch(_, access):
                    use.loaded.add(access.tensor)
                case ir.Store(_, access):
                    use.stored.add(access.tensor)
                case ir.Atomic(operation, _, access):
                    use.updated.add((access.tensor, operation))
                case _:
                    pass
        return use

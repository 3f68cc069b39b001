"""The interpreter's machine: host steps, statements and operations compiled to closures.

Static domains are not used to decide which lanes are valid (but for `init=` tiles, R4); with
`check_domains` each of them is compared with the lanes that the actual slices and tensor bounds
give, which checks the checker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Any, assert_never

import numpy as np

from sketchc.base.diagnostics import InternalError, MemoryLimitError
from sketchc.base.types import DType, promote, wrapped
from sketchc.interpreter.accesses import Accesses
from sketchc.interpreter.expressions import (
    Values,
    compile_domain,
    compile_scalar,
    is_index,
)
from sketchc.interpreter.launch import check_condition
from sketchc.interpreter.memory import Action, Site
from sketchc.interpreter.operations import Operation, OperationError, Outcome
from sketchc.interpreter.tiles import (
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
        """Run the host steps of the sketch, in order."""
        self._block(self.sketch.steps)()

    def _block(
        self, steps: tuple[ir.HostStep | ir.Statement, ...], launched: bool = False
    ) -> Action:
        """A closure that runs host steps, or the statements of a launch, in order."""
        actions = tuple(self._step(step, launched) for step in steps)

        def block() -> None:
            for action in actions:
                action()

        return block

    def _step(self, step: ir.HostStep | ir.Statement, launched: bool) -> Action:
        match step:
            case ir.Launch(index):
                return self._launch(self.sketch.phases[index])
            case ir.For() | ir.HostFor():
                return self._for(step, launched)
            case ir.If() | ir.HostIf():
                return self._if(step, launched)
            case ir.Fetch():
                fetch = self._fetch(step)
                return fetch if launched else self._checked(step, fetch)
            case ir.Bind():
                return self._bind(step)
            case ir.Alloc():
                return self._alloc(step)
            case ir.Load():
                return self._load(step)
            case ir.Store():
                return self._store(step)
            case ir.Atomic():
                return self._atomic(step)
            case ir.Compute():
                return self._compute(step)
            case _:
                assert_never(step)

    def _checked(self, step: ir.Fetch, action: Action) -> Action:
        """A closure for a fetch of the host, with a check of the condition on its value."""
        condition = fetched_conditions(self.sketch).get(step.name)
        if condition is None:
            return action

        def fetch() -> None:
            action()
            known = {n: v for n, v in self.values.items() if not isinstance(v, TileValue)}
            check_condition(condition, known)

        return fetch

    def _launch(self, phase: ir.Phase) -> Action:
        """A closure for one launch. Shadow memory starts afresh: launches run one after another."""
        used: dict[str, set[str]] = {name: set() for name in self.memories}
        for statement in walk.statements(phase.body):
            match statement:
                case ir.Load(access=access) | ir.Fetch(access=access):
                    use = "load"
                case ir.Store(access=access):
                    use = "store"
                case ir.Atomic(use, access=access):
                    pass
                case _:
                    continue
            used[self.windows[access.tensor].memory.tensor.name].add(use)
        action = self._block(phase.body, launched=True)

        def launch() -> None:
            for name, memory in self.memories.items():
                memory.begin_phase(used[name])
            self.shadow.restart()
            action()
            for memory in self.memories.values():
                memory.begin_phase(())

        return launch

    def _spread_memory(self, name: str, *values: ir.Expr) -> None:
        """Note that the scalar `name` comes from memory if one of the expressions `values` does."""
        if any(map(self.is_from_memory, values)):
            self.from_memory.add(name)

    def _range(self, loop: ir.For | ir.HostFor) -> Callable[[], range]:
        """A closure that gives the iterations of a loop; its step may be negative but not 0."""
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

    def _if(self, branch: ir.If | ir.HostIf, launched: bool) -> Action:
        condition = compile_scalar(branch.condition)
        body, orelse = self._block(branch.body, launched), self._block(branch.orelse, launched)
        place, reached = branch.span.start, self.reached

        def choose() -> None:
            taken = bool(condition(self.values))
            reached.branch(place, taken)
            if taken:
                body()
            else:
                orelse()

        return choose

    def _for(self, loop: ir.For | ir.HostFor, launched: bool) -> Action:
        range_of = self._range(loop)
        variable = loop.variable
        number = self.loop_count = self.loop_count + 1
        parallel = isinstance(loop, ir.For) and loop.parallel
        outer = self.loops
        self.loops = (*outer, variable)
        self.parallel_depth += parallel
        body = self._block(loop.body, launched)
        self.parallel_depth -= parallel
        self.loops = outer
        tracked = parallel or (isinstance(loop, ir.For) and has_parallel(loop.body))
        shuffled = parallel and self.options.shuffle is not None
        values, shadow = self.values, self.shadow

        def run() -> None:
            iterations: Any = range_of()
            if shuffled:
                iterations = self.order.permutation(np.array(iterations, np.int64)).tolist()
            path = shadow.paths[shadow.current]
            for iteration in iterations:
                values[variable] = iteration
                if tracked:
                    level = (number, variable, iteration, parallel)
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
            size = kind.itemsize * prod(shape)
            if size > options.memory_limit or not fits_an_array(shape, kind.itemsize):
                msg = (
                    f"tile {declared.source_name} of extents {list(shape)} would take "
                    f"{size / 2**30:.1f} GiB; choose smaller constants"
                )
                raise MemoryLimitError(msg)
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

    # ------------------------------------------------------------ computation

    def _operand(
        self, operand: ir.Operand, dtype: DType, site: Site, *, directed: bool = False
    ) -> Callable[[], TileValue]:
        """A closure that reads an operand. A scalar beside float evaluation is rounded to the type
        `dtype`, unless `directed`: then the conversion rounds it, once, from its own type."""
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
                    number = np.asarray(wrapped(function(self.values), DType.I64))
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
        """A closure that writes one result of a computation to its tile, with the checks."""
        expect = self.expected(statement.domain, site, f"result in {name}")
        written = statement.written if statement.masked else ()
        expect_written = self.expected(written, site, f"update of {name}")
        note = self.noted_write(name, site)

        def write(tile: TileValue, outcome: Outcome) -> None:
            note()
            outcome = Outcome(self.rounded(outcome.values, tile.dtype), outcome.box)
            if tile.fixed is not None and self.options.check_domains:
                changed = intersect(outcome.box, tile.fixed)
                if statement.masked:
                    expect_written(changed, tile.extents)
                elif not same_lanes(changed, tile.fixed):
                    msg = (
                        f"{statement.operation} at line {statement.span.line} is not masked, yet "
                        f"writes {changed} of {tile.name}, whose domain is {tile.fixed}"
                    )
                    raise InternalError(msg)
            self.assign(tile, outcome)
            expect(tile.box, tile.extents)

        return write

    def _evaluation_type(self, statement: ir.Compute) -> DType:
        """The type in which a statement is evaluated; where the result and the statement's type are
        bool, the common type of the operands."""
        row = OPS[statement.operation]
        if statement.dtype is not DType.BOOL or row.result is not Result.BOOL:
            return statement.dtype
        tile = self.declared.__getitem__
        found = (walk.operand_dtype(operand, tile) for operand in statement.operands)
        return reduce(promote, found).compute

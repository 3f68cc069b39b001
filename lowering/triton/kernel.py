"""One `@triton.jit` function: signature, prologue, program decode, body.

A kernel computes in 32 bits where its integers stay below 2^31 (R10). Loaded integers have no
bound: a kernel holds them in 64 bits, and promotes what is computed from them.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from fractions import Fraction
from typing import assert_never

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import range_arguments, show
from sketchc.ir.walk import references
from sketchc.launch.magnitudes import (
    Magnitudes,
    Polynomial,
    add,
    constant,
    multiply,
    never_negative,
    see_body,
)
from sketchc.launch.magnitudes import show as show_bound
from sketchc.lowering.launches import GROUP, runs_in_groups, stages_of
from sketchc.lowering.plan import GridAxis, PhasePlan, Plan, carried, float_parts
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.expressions import Names, is_literal
from sketchc.lowering.python_host.wrapping import WIDTH, PythonLines
from sketchc.lowering.triton.compute import compute
from sketchc.lowering.triton.dialect import Dialect
from sketchc.lowering.triton.hazards import Hazards
from sketchc.lowering.triton.memory import atomic, fetch, load, store
from sketchc.lowering.triton.scope import Scope, index_shape, kernel_expression
from sketchc.lowering.triton.tuning import divisors, unrolled
from sketchc.lowering.triton.values import fill_code, full


@attrs.define
class BodyEmitter(PythonLines):
    """Writes a phase body."""

    scope: Scope
    hazards: Hazards
    _position: int = 0  # of the next statement, in pre-order

    def emit(self, body: tuple[ir.Statement, ...]) -> None:
        """Append the lines of `body`."""
        for statement in body:
            position = self._position
            self._position += 1
            with self.tracing(statement.span):
                self._statement(statement, position)

    def line(self, text: str, deeper: str = "") -> None:
        """Append the assignments that are pending in the scope, then a statement."""
        pending, self.scope.pending = self.scope.pending, []
        for assignment in pending:
            super().line(assignment)
        super().line(text, deeper)

    def _statement(self, statement: ir.Statement, position: int) -> None:
        scope = self.scope
        key = (scope.phase.index, position)
        if position in self.hazards.before:
            self.comment("Threads wait: what follows touches memory that others have touched.")
            self.line("tl.debug_barrier()")
        match statement:
            case ir.Alloc(tile):
                self._alloc(scope.tile(tile))
            case ir.Load(tile=tile, text=text):
                self.comment(text)
                fill = scope.plan.fills.get(key)
                self.line(f"{scope.names[tile]} = {load(statement, fill, scope)}")
            case ir.Store(text=text):
                self.comment(text)
                self.line(str(store(statement, scope)))
            case ir.Atomic(text=text):
                self.comment(text)
                for condition, update in atomic(statement, scope):
                    if condition is None:
                        self.line(update)
                        continue
                    self.line(f"if {condition}:")
                    self.line(update, "    ")
            case ir.Fetch(name, text=text):
                self.comment(text)
                self.line(f"{scope.names[name]} = {fetch(statement, scope)}")
            case ir.Compute(text=text):
                self.comment(text)
                neutral = scope.plan.neutral.get(key, frozenset())
                for name, code in compute(statement, neutral, scope):
                    self.line(f"{name} = {code}")
            case ir.Bind(name, value=bound, text=text):
                self.comment(text)
                scope.known[name] = scope.non_negative(bound)
                scope.lanes_of[name] = index_shape(bound, scope)
                self.line(f"{scope.names[name]} = {kernel_expression(bound, scope)}")
            case ir.For():
                self._loop(statement, position)
            case ir.If():
                self._branch(statement)
            case _:
                assert_never(statement)

    def _alloc(self, tile: ir.Tile) -> None:
        """Write the initial value of a tile, which must exist before loops update it."""
        if tile.initial is None:
            return
        extents = ", ".join(show(extent) for extent in tile.extents)
        value = fill_code(tile.initial, tile.dtype)
        self.comment(f"{tile.source_name} = alloc([{extents}], {tile.dtype.value}, init={value})")
        initial = full(self.scope.shape(tile.name), value, tile.dtype)
        self.line(f"{self.scope.names[tile.name]} = {initial}")

    def _branch(self, branch: ir.If) -> None:
        """Write an `if`; Triton asks for one type of what a branch changes, and tiles have one."""
        self.comment(branch.text)
        match branch.condition:
            case ir.Unary("not", ir.Ref(kind=ir.NameKind.PRESENT) as given):
                # Settled when the kernel is compiled.
                asked = PYTHON.unary("not", kernel_expression(given, self.scope))
            case condition:
                asked = kernel_expression(condition, self.scope)
        self.line(f"if {asked}:")
        self._block(branch.body)
        if branch.orelse:
            self.line("else:")
            self._block(branch.orelse)

    def _block(self, body: tuple[ir.Statement, ...]) -> None:
        with self.block():
            self.emit(body)

    def _loop(self, loop: ir.For, position: int) -> None:
        scope = self.scope
        downward = loop_step(loop, scope)
        scope.known[loop.variable] = _never_negative(loop, downward, scope)
        if downward is None:
            self._counted(loop)
            return
        arguments = range_arguments(loop, lambda each: kernel_expression(each, scope))
        if scope.wide_literals and scope.constant(loop.stop) is not None:
            # A loop over constants would count in 32 bits.
            start = PYTHON.call("tl.cast", kernel_expression(loop.start, scope), "INDEX")
            arguments = [str(start), *(arguments[1:] or arguments)]
        stages = stages_of(scope.plan, loop, position in self.hazards.loops)
        function = "range"
        options = [] if stages is None else [f"num_stages={stages}"]
        unroll = unrolled(scope.plan, loop)
        options += [] if unroll is None else [f"loop_unroll_factor={unroll}"]
        if options and scope.dialect.launch_options:
            function = "tl.range"
            arguments += options
        iterations = PYTHON.call(function, *arguments)
        header = f"for {scope.names[loop.variable]} in {iterations}:"
        if loop.text != header:
            self.comment(loop.text)
        self.line(header)
        self._block(loop.body)

    def _counted(self, loop: ir.For) -> None:
        """Write a loop by its number of iterations, where the sign of its step is not known at
        compile time: Triton takes a run-time step for positive."""
        scope = self.scope
        variable = scope.names[loop.variable]
        count, turn = scope.names.fresh(f"{variable}_count"), scope.names.fresh(f"{variable}_turn")
        self.comment(loop.text)
        trips = ir.Binary("cdiv", ir.Binary("-", loop.stop, loop.start), loop.step)
        self.line(f"{count} = {kernel_expression(trips, scope)}")
        self.line(f"for {turn} in range({count}):")
        value = iterate(loop, Code(turn), scope)
        self.line(f"{variable} = {value}", "    ")
        self._block(loop.body)

    # ------------------------------------------------------------ program decode

    def decode(self) -> None:
        """Write the grid variables, from the one-dimensional program number, outermost slowest."""
        scope, grid = self.scope, self.scope.phase.grid
        persistent = scope.plan.capabilities.persistent_grid
        grouped = scope.dialect.grouped_order and runs_in_groups(scope.phase)
        # The outermost count is needed for the total and for the groups only.
        counts = self._counts(grid, persistent or (grouped and len(grid) == 2))
        if not grid:
            return
        if persistent:
            total = PYTHON.fold("*", counts)
            first, step = "tl.program_id(0)", "tl.num_programs(0)"
            self.comment("Each core takes every num_programs-th program.")
            self.line(f"for program in range({first}, {total}, {step}):")
            self.indent += "    "
            if scope.guarded:
                self.line("index = tl.cast(program, INDEX)")
        else:
            number = "tl.program_id(0)"
            self.line(f"program = {f'tl.cast({number}, INDEX)' if scope.guarded else number}")
        for axis in grid:
            with self.tracing(axis.span):
                self.comment(axis.text)
        if grouped:
            self._grouped(grid, counts)
            return
        program = Code("index" if persistent and scope.guarded else "program")
        for position, axis in enumerate(grid):
            self._bind_axis(axis, _number(program, position, counts))

    def _counts(self, grid: tuple[GridAxis, ...], outermost: bool) -> list[Code]:
        """The axes' numbers of iterations; a computed one gets a name. The first is left empty
        unless `outermost`."""
        counts = []
        names = self.scope.names
        for position, axis in enumerate(grid):
            if position == 0 and not outermost:
                counts.append(Code(""))
                continue
            code = kernel_expression(axis.count, self.scope)
            if not isinstance(axis.count, ir.Ref | ir.Literal) and len(grid) > 1:
                name = names.fresh(f"{names[axis.variable]}_count")
                self.line(f"{name} = {code}")
                code = Code(name)
            counts.append(code)
        return counts

    def _bind_axis(self, axis: GridAxis, index: Code) -> None:
        with self.tracing(axis.span):
            value = iterate(axis, index, self.scope)
            self.line(f"{self.scope.names[axis.variable]} = {value}")

    def _grouped(self, grid: tuple[GridAxis, ...], counts: list[Code]) -> None:
        """The two innermost axes run in groups of `GROUP` rows, so that the programs at work share
        rows and columns in the cache."""
        rows, columns = counts[-2:]
        *outer, row, column = grid
        self.comment(f"Groups of {GROUP} rows of blocks: neighbouring programs share operands.")
        names = self.scope.names
        plane = "program"
        if outer:
            plane = names.fresh("plane")
            self.line(f"{plane} = program % ({rows} * {columns})")
        group_start, group_rows = names.fresh("group_start"), names.fresh("group_rows")
        self.line(f"{group_start} = {plane} // ({GROUP} * {columns}) * {GROUP}")
        self.line(f"{group_rows} = tl.minimum({rows} - {group_start}, {GROUP})")
        in_group = Code(f"{plane} % ({GROUP} * {columns})", PYTHON.binary_levels["%"])
        for position, axis in enumerate(outer):
            self._bind_axis(axis, _number(Code("program"), position, counts))
        within = PYTHON.binary("%", in_group, Code(group_rows))
        self._bind_axis(row, PYTHON.binary("+", Code(group_start), within))
        self._bind_axis(column, PYTHON.binary("//", in_group, Code(group_rows)))


def _number(program: Code, position: int, counts: list[Code]) -> Code:
    """The number of the iteration of axis `position` that a program runs."""
    index = program
    if inner := counts[position + 1 :]:
        index = PYTHON.binary("//", index, PYTHON.fold("*", inner))
    return PYTHON.binary("%", index, counts[position]) if position > 0 else index


def iterate(loop: ir.For | GridAxis, index: Code, scope: Scope) -> Code:
    """The value of a loop's variable in iteration number `index`."""
    value = index
    if not is_literal(loop.step, 1):
        value = PYTHON.binary("*", value, kernel_expression(loop.step, scope))
    if not is_literal(loop.start, 0):
        value = PYTHON.binary("+", kernel_expression(loop.start, scope), value)
    return value


def loop_step(loop: ir.For, scope: Scope) -> bool | None:
    """True for a loop that goes down, False for one that goes up, None if only a run can tell."""
    value = scope.constant(loop.step)
    if value is not None:
        return value < 0
    return False if scope.non_negative(loop.step) else None


def _never_negative(loop: ir.For, downward: bool | None, scope: Scope) -> bool:
    """Whether the loop's variable is provably >= 0: it stays between start and stop."""
    if downward is False:
        return scope.non_negative(loop.start)
    below = scope.constant(loop.stop)
    ends = scope.non_negative(loop.stop) or (below is not None and below >= -1)
    return ends and (downward is True or scope.non_negative(loop.start))


#: 32-bit signed integers hold magnitudes below this.
LIMIT = 2**31


def phase_magnitudes(plan: Plan, phase: PhasePlan) -> list[Polynomial] | None:
    """Bounds, the largest of which holds for every integer that the kernel of `phase` computes;
    None where some integer has no bound."""
    sketch = plan.sketch
    seen = Magnitudes({c.name: c.value for c in sketch.constants})
    total = constant(1)
    for axis in phase.grid:
        count = seen.see(axis.count)
        span = multiply(seen.see(axis.step), count)
        seen.variables[axis.variable] = seen.note(add(seen.see(axis.start), span))
        total = multiply(total, add(count, constant(1)))
    seen.note(total)
    see_body(sketch, phase.body, seen)
    return None if seen.unbounded else seen.largest


#: What a launch passes for the type of indices, which the host has named `index`.
INDEX_GIVEN = "INDEX=index"


@attrs.frozen
class KernelText:
    """One kernel's source and what its launch must do.

    `parameters` are those of the kernel as they are declared, each with what a launch passes.
    `in_memory` are the float scalars that travel through memory. No index exceeds the host
    expression `index_bound`; None: 32 bits always do. `origins` are lines of the sketch by line of
    this kernel, 1-based.
    """

    scope: Scope
    name: str
    lines: tuple[str, ...]
    parameters: tuple[tuple[str, str], ...]
    in_memory: tuple[str, ...]
    index_bound: str | None
    origins: Mapping[int, tuple[int, ...]]


def emit_phase(plan: Plan, phase: PhasePlan, dialect: Dialect, names: Names) -> KernelText:
    """The kernel of one launch."""
    magnitudes = phase_magnitudes(plan, phase)
    guarded = magnitudes is None or not all(_fits(plan, bound) for bound in magnitudes)
    constants = [LIMIT] if magnitudes is None else [bound.get((), 0) for bound in magnitudes]
    scope = Scope(
        plan,
        dialect,
        phase,
        names,
        guarded,
        wide_literals=guarded and max(constants, default=0) >= LIMIT,
        memory_scalars=_takes_f64_scalars(phase),
    )
    _learn(plan, scope)
    emitter = BodyEmitter(scope, Hazards(plan.sketch).find(phase.body))
    emitter.decode()
    emitter.emit(phase.body)
    return _assemble(scope, emitter, magnitudes)


def _fits(plan: Plan, magnitude: Polynomial) -> bool:
    """True where the magnitude stays within 32 bits even at the symbols' upper bounds."""
    bounds = plan.sketch.symbol_bounds
    total = Fraction(0)
    for monomial, coefficient in magnitude.items():
        term = coefficient
        for atom in monomial:
            bound = bounds.get(atom)
            if bound is None:
                return False
            term *= bound
        total += term
    return total < LIMIT


def _takes_f64_scalars(phase: PhasePlan) -> bool:
    """True where an f32 argument would not hold what the kernel computes with: an f64 that meets a
    tile, or comes from the host."""
    for statement in walk.statements(phase.body):
        found = [ref.dtype for part in float_parts(statement) for ref in references(part)]
        if isinstance(statement, ir.Compute):
            tiles = any(isinstance(operand, ir.TileOperand) for operand in statement.operands)
            found += [operand.dtype for operand in carried(statement)]
            found += [statement.dtype] if tiles else []
        if DType.F64 in found:
            return True
    return False


def _learn(plan: Plan, scope: Scope) -> None:
    """Record which host scalars and grid variables are never negative."""
    scope.known |= {one.name: one.value >= 0 for one in plan.sketch.constants}
    for let in plan.sketch.lets:
        scope.known[let.name] = never_negative(let.value, scope.known)
    for step in walk.around(plan.sketch.steps, scope.phase.index):
        match step:
            case ir.HostFor(variable, start, _, stride):
                scope.known[variable] = scope.non_negative(start) and scope.non_negative(stride)
            case ir.Bind(name, value):
                scope.known[name] = scope.non_negative(value)
    for axis in scope.phase.grid:
        scope.known[axis.variable] = scope.non_negative(axis.start) and scope.non_negative(
            axis.step
        )


# ---------------------------------------------------------------- assembly


def _decorator(scope: Scope, scalars: list[str]) -> list[str]:
    """`@triton.jit`, without specialisation on sizes where the target's compiler fails on that."""
    integers = [scope.names[name] for name in scalars if not scope.dtypes[name].is_float]
    general = [*(name for _, name in sorted(scope.strides.items())), *integers]
    if scope.dialect.specialises or not general:
        return ["@triton.jit"]
    listed = ", ".join(f'"{name}"' for name in general)
    if len(listed) < WIDTH - 34:
        return [f"@triton.jit(do_not_specialize=[{listed}])"]
    return [
        "@triton.jit(",
        "    do_not_specialize=[",
        *(f'        "{name}",' for name in general),
        "    ]",
        ")",
    ]


def _parameters(
    scope: Scope, scalars: list[str], in_memory: Container[str], compiled: Container[str]
) -> Iterator[tuple[str, str]]:
    """The parameters as they are declared, each with what a launch passes; code is compiled for the
    values of the scalars in `compiled`."""
    sketch, names = scope.plan.sketch, scope.names

    def dense(tensor: str) -> str:
        return names[f"{tensor}_dense"]

    for tensor in sketch.tensors:
        if tensor.name in scope.tensors:
            yield names[f"{tensor.name}_ptr"], dense(tensor.name)
    for (name, kind), pointer in scope.bit_pointers.items():
        yield pointer, f"{dense(name)}.view(torch.{kind})"
    for (name, axis), stride in sorted(scope.strides.items()):
        one = f"{dense(name)}.shape[{axis}] == 1"
        yield stride, f"0 if {one} else {dense(name)}.stride({axis})"
    for name in scalars:
        scalar = names[f"{name}_ptr"] if name in in_memory else names[name]
        declared = f"{scalar}: tl.constexpr" if name in compiled else scalar
        yield declared, f"int({scalar})" if scope.dtypes[name] is DType.BOOL else scalar
    known = [
        names[constant.name] for constant in sketch.constants if constant.name in scope.scalars
    ]
    known += [names[bucket] for bucket in scope.buckets]
    known += [names.given(tensor.name) for tensor in sketch.tensors if tensor.name in scope.given]
    for name in known:
        yield f"{name}: tl.constexpr", f"{name}={name}"
    if scope.guarded:
        yield "INDEX: tl.constexpr", INDEX_GIVEN


def _assemble(
    scope: Scope, emitter: BodyEmitter, magnitudes: list[Polynomial] | None
) -> KernelText:
    sketch, names, guarded = scope.plan.sketch, scope.names, scope.guarded
    order = [
        *(d.name for d in sketch.symbols),
        *(d.name for d in sketch.lets),
        *(d.name for d in sketch.params),
        *walk.bound_names(walk.statements(sketch.schedule)),
    ]
    scalars = [name for name in order if name in scope.scalars]
    floats = [name for name in scalars if scope.dtypes[name].is_float]
    in_memory = tuple(sorted(floats)) if scope.memory_scalars else ()
    name = names.fresh(f"{scope.phase.name}_kernel")
    compiled = divisors(scope.phase) if scope.dialect.specialises else frozenset[str]()
    parameters = tuple(_parameters(scope, scalars, in_memory, compiled))
    lines = [*_decorator(scope, scalars), f"def {name}("]
    lines += [f"    {parameter}," for parameter, _ in parameters]
    lines.append("):")
    varying = [name for name in scalars if name not in compiled]
    integers = [names[n] for n in varying if scope.dtypes[n].is_integer]
    if guarded and integers:
        lines += ["    # Indices are as wide as the wrapper found necessary."]
        lines += [f"    {integer} = tl.cast({integer}, INDEX)" for integer in integers]
    # A bool as an argument fails in Triton's interpreter; a cast keeps 1 from being a constant.
    truths = [names[n] for n in scalars if scope.dtypes[n] is DType.BOOL]
    lines += ["    # Bools arrive as integers."] if truths else []
    lines += [f"    {truth} = tl.cast({truth}, tl.int1)" for truth in truths]
    for scalar in floats if in_memory else ():
        lines.append(f"    {names[scalar]} = tl.load({names[f'{scalar}_ptr']})")
    for extent, lane in scope.lanes.items():
        if extent not in scope.read_lanes:
            continue
        arange = f"tl.arange(0, {extent})"
        lines.append(f"    {lane} = {arange}.to(INDEX)" if guarded else f"    {lane} = {arange}")
    origins = emitter.carried_out(len(lines))
    lines += emitter.lines
    if not scope.phase.body:
        lines.append("    pass")
    bound = None
    if guarded:
        bounds = [show_bound(each, names.__getitem__) for each in magnitudes or ()] or [str(LIMIT)]
        bound = bounds[0] if len(bounds) == 1 else f"max({', '.join(bounds)})"
    return KernelText(scope, name, tuple(lines), parameters, in_memory, bound, origins)

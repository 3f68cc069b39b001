"""The body of one kernel: statements in order, each led by the sketch's own text as a comment."""

from __future__ import annotations

from typing import assert_never

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.show import range_arguments, show
from sketchc.lowering.plan import GridAxis
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host.expressions import is_literal
from sketchc.lowering.python_host.wrapping import PythonLines
from sketchc.lowering.triton.compute import compute
from sketchc.lowering.triton.hazards import Hazards
from sketchc.lowering.triton.memory import atomic, convert, fetch, fill_code, load, store
from sketchc.lowering.triton.scope import Scope, index_shape, kernel_expression
from sketchc.lowering.triton.tuning import stages_of, unrolled
from sketchc.lowering.triton.values import full, scalar_value


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
        """Append a statement, behind the assignments that wait for it."""
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
                value = load(statement, fill, self._moving_pad(statement), scope)
                self.line(f"{scope.names[tile]} = {value}")
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

    def _moving_pad(self, statement: ir.Load) -> Code | None:
        """A padding that is known at run time, in the tile's type."""
        pad = statement.pad
        if not isinstance(pad, ir.ScalarOperand):
            return None
        dtype = self.scope.tile(statement.tile).dtype
        value = scalar_value(pad.value, pad.dtype, dtype, self.scope)
        if value.dtype is None or value.dtype is dtype:
            return value.code
        return convert(value.code, value.dtype, dtype)

    def _alloc(self, tile: ir.Tile) -> None:
        """Only an initialised tile is code: it must exist before loops update it."""
        if tile.initial is None:
            return
        extents = ", ".join(show(extent) for extent in tile.extents)
        value = fill_code(tile.initial, tile.dtype)
        self.comment(f"{tile.source_name} = alloc([{extents}], {tile.dtype.value}, init={value})")
        initial = full(self.scope.shape(tile.name), value, tile.dtype)
        self.line(f"{self.scope.names[tile.name]} = {initial}")

    def _branch(self, branch: ir.If) -> None:
        """Every tile that a branch leaves changed has one type throughout, as Triton asks for."""
        self.comment(branch.text)
        self.line(f"if {condition(branch.condition, self.scope)}:")
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
        """A loop whose step's sign the kernel's compiler does not see: Triton takes a run-time step
        for positive."""
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


def iterate(loop: ir.For | GridAxis, index: Code, scope: Scope) -> Code:
    """The value of the variable in the iteration of a number."""
    value = index
    if not is_literal(loop.step, 1):
        value = PYTHON.binary("*", value, kernel_expression(loop.step, scope))
    if not is_literal(loop.start, 0):
        value = PYTHON.binary("+", kernel_expression(loop.start, scope), value)
    return value


def condition(expression: ir.Expr, scope: Scope) -> Code:
    """The condition of a branch; one on presence alone is settled when the kernel is compiled."""
    match expression:
        case ir.Unary("not", ir.Ref(kind=ir.NameKind.PRESENT) as inner):
            return PYTHON.unary("not", kernel_expression(inner, scope))
        case _:
            return kernel_expression(expression, scope)


def loop_step(loop: ir.For, scope: Scope) -> bool | None:
    """True for a loop that goes down, False for one that goes up, None if only a run tells."""
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

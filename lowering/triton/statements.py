"""The body of one kernel: statements in order, each led by the sketch's own text as a comment."""

from __future__ import annotations

from typing import assert_never

import attrs

from sketchc import ir
from sketchc.lowering.plan import walk
from sketchc.lowering.precedence import PYTHON
from sketchc.lowering.triton import layout
from sketchc.lowering.triton.compute import compute, full
from sketchc.lowering.triton.expressions import is_literal, kernel_expression
from sketchc.lowering.triton.hazards import Hazards
from sketchc.lowering.triton.memory import fill_code, load, store
from sketchc.lowering.triton.pipelining import loop_stages
from sketchc.lowering.triton.scope import Scope
from sketchc.symbolic import show


@attrs.define
class BodyEmitter:
    """Writes a phase body; `lines` grows, `indent` is the current one."""

    scope: Scope
    hazards: Hazards
    indent: str = "    "
    lines: list[str] = attrs.field(factory=list)

    def emit(self, body: tuple[ir.Statement, ...], position: int = 0) -> None:
        """Append the lines of `body`, whose first statement has this pre-order position."""
        for statement in body:
            self._statement(statement, position)
            position += 1
            if isinstance(statement, ir.For):
                position += len(walk(statement.body))

    def comment(self, text: str) -> None:
        if text:
            self.lines += layout.comment(text, self.indent)

    def line(self, text: str) -> None:
        self.lines += layout.statement(text, self.indent)

    def _statement(self, statement: ir.Statement, position: int) -> None:
        scope = self.scope
        key = (scope.phase.index, position)
        if position in self.hazards.before:
            self.comment("Threads wait: what follows touches memory that others have touched.")
            self.line("tl.debug_barrier()")
        match statement:
            case ir.Alloc(tile):
                self._alloc(scope.plan.sketch.tile(tile))
            case ir.Load(tile=tile, text=text):
                self.comment(text)
                value = load(statement, scope.plan.fills.get(key), scope)
                self.line(f"{scope.names[tile]} = {value}")
            case ir.Store(text=text):
                self.comment(text)
                self.line(str(store(statement, scope)))
            case ir.Compute(destination=destination, text=text):
                self.comment(text)
                neutral = scope.plan.neutral.get(key, frozenset())
                value = compute(statement, neutral, scope)
                self.line(f"{scope.names[destination]} = {value}")
            case ir.Bind(name, value=bound, text=text):
                self.comment(text)
                scope.known[name] = scope.non_negative(bound)
                self.line(f"{scope.names[name]} = {kernel_expression(bound, scope)}")
            case ir.For():
                self._loop(statement, position)
            case _:
                assert_never(statement)

    def _alloc(self, tile: ir.Tile) -> None:
        """Only an initialised tile is code: it must exist before loops update it."""
        if tile.initial is None:
            return
        extents = ", ".join(show(extent) for extent in tile.extents)
        value = fill_code(tile.initial, tile.dtype)
        self.comment(f"{tile.source_name} = alloc([{extents}], {tile.dtype.value}, init={value})")
        initial = full(self.scope.shape(tile.name), value, tile.dtype)
        self.line(f"{self.scope.names[tile.name]} = {initial}")

    def _loop(self, loop: ir.For, position: int) -> None:
        scope = self.scope
        start, stop, step = (
            kernel_expression(e, scope) for e in (loop.start, loop.stop, loop.step)
        )
        scope.known[loop.variable] = scope.non_negative(loop.start) and scope.non_negative(
            loop.step
        )
        # A loop over constants would count in 32 bits.
        widen = scope.wide_literals and scope.constant(loop.stop) is not None
        if widen:
            start = PYTHON.call("tl.cast", start, "INDEX")
        arguments = [str(stop)]
        if widen or not is_literal(loop.start, 0) or not is_literal(loop.step, 1):
            arguments.insert(0, str(start))
        if not is_literal(loop.step, 1):
            arguments.append(str(step))
        stages = loop.stages if loop.stages is not None else loop_stages(scope.plan, loop)
        if position in self.hazards.loops:
            stages = 1
        function = "range"
        if stages is not None and scope.dialect.launch_options:
            function = "tl.range"
            arguments.append(f"num_stages={stages}")
        iterations = PYTHON.call(function, *arguments)
        header = f"for {scope.names[loop.variable]} in {iterations}:"
        if loop.text != header:
            self.comment(loop.text)
        self.line(header)
        outer, self.indent = self.indent, self.indent + "    "
        length = len(self.lines)
        self.emit(loop.body, position + 1)
        if len(self.lines) == length or all(
            line.lstrip().startswith("#") for line in self.lines[length:]
        ):
            self.line("pass")
        self.indent = outer

"""Prints the statements of loop programs as C++ does, whatever runs them."""

from __future__ import annotations

import textwrap

import attrs

from sketchc.ir import nodes as ir
from sketchc.lowering.c_source.expressions import PROMOTED, Expressions, broken
from sketchc.lowering.loops import nodes
from sketchc.lowering.precedence import CPP, Code
from sketchc.lowering.source_map import TracedLines

INDENT = "    "
WIDTH = 100

#: How a reduction row combines two values: an operator, or a function of the library.
COMBINERS = {
    "reduce_sum": "+",
    "reduce_prod": "*",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_any": "||",
    "reduce_all": "&&",
}


@attrs.define
class Printer(Expressions, TracedLines):
    """Prints statements at a depth of indentation, one after the other. A target prints those that
    its threads share: lane loops, streamed loops and launches."""

    depth: int = 0

    def line(self, text: str) -> None:
        """One logical line, wrapped at 100 columns."""
        pad = INDENT * self.depth
        if not text or len(pad) + len(text) <= WIDTH or text.startswith("//"):
            self.lines.append(f"{pad}{text}".replace("\u00a0", " ").rstrip())
            return
        wrapped = textwrap.wrap(
            text,
            WIDTH,
            initial_indent=pad,
            subsequent_indent=pad + INDENT,
            break_long_words=False,
            break_on_hyphens=False,
        )
        self.lines += [line.replace("\u00a0", " ") for line in wrapped]

    def comment(self, text: str) -> None:
        """A comment, one line for each line of the text."""
        for part in text.splitlines():
            # A backslash at a line's end would swallow the next line.
            self.line(f"// {part.rstrip(chr(92))}".rstrip())

    def open(self, text: str) -> None:
        """Opens a block behind `text`, such as the head of a loop."""
        # A no-break space keeps the brace on the line of the last word.
        self.line(f"{text}\u00a0{{" if text else "{")
        self.depth += 1

    def close(self) -> None:
        """Closes the block that was opened last."""
        self.depth -= 1
        self.line("}")

    def statements(self, body: tuple[nodes.Statement, ...]) -> None:
        """Prints statements in order."""
        for statement in body:
            self.statement(statement)

    def statement(self, statement: nodes.Statement) -> None:
        """Prints one statement with what is inside, and marks where its lines come from."""
        with self.tracing(*statement.origins):
            self._statement(statement)

    def _statement(self, statement: nodes.Statement) -> None:
        match statement:
            case nodes.Note(text):
                self.comment(text)
            case nodes.Define(name, dtype, initial, mutable, spare):
                kind = self.kind(dtype) if mutable else f"const {self.kind(dtype)}"
                told = "[[maybe_unused]] " if spare else ""
                self.line(f"{told}{kind} {self.name(name)} = {self.value(initial)};")
            case nodes.Assign(name, new):
                self.line(f"{self.name(name)} = {self.value(new)};")
            case nodes.Write(buffer, index, new):
                self.line(f"{self.name(buffer)}[{self.scalar(index)}] = {self.value(new)};")
            case nodes.AtomicUpdate(operation, buffer, index, new):
                place = f"&{self.name(buffer)}[{self.scalar(index)}]"
                self.line(f"{self.helper(f'atomic_{operation}', place, self.value(new))};")
            case nodes.Accumulate():
                self._accumulate(statement)
            case nodes.Call():
                self._call(statement)
            case nodes.Loop(variable, lower, upper, body, step):
                turns = ir.Literal(step)
                self._serial(nodes.SerialLoop(variable, lower, upper, turns, body))
            case nodes.SerialLoop():
                self._serial(statement)
            case nodes.Branch():
                self._branch(statement)
            case nodes.Refusal(condition):
                self.open(f"if ({broken(condition, self)})")
                self.line(f"return {condition.number};")
                self.close()
            case _:
                raise AssertionError(f"{type(statement).__name__} is printed by the target")

    def _row(self, row: nodes.Row) -> None:
        kind = self.kind(row.dtype) if row.writable else f"const {self.kind(row.dtype)}"
        start = self._offset(row.buffer, row.base)
        with self.tracing(*row.origins):
            self.line(f"{kind} *const {self.name(row.name)} = {start};")

    def _serial(self, loop: nodes.SerialLoop) -> None:
        if loop.text:
            self.comment(loop.text)
        self.open(self._serial_head(loop))
        self.statements(loop.body)
        self.close()

    def _branch(self, branch: nodes.Branch) -> None:
        if branch.text:
            self.comment(branch.text)
        self.open(f"if ({self.scalar(branch.condition)})")
        self.statements(branch.body)
        if branch.orelse:
            self.depth -= 1
            self.open("} else")
            self.statements(branch.orelse)
        self.close()

    def _accumulate(self, statement: nodes.Accumulate) -> None:
        target = self.value(statement.target)
        new = self.value(statement.value)
        promoted = statement.target.dtype in PROMOTED
        match COMBINERS[statement.operation]:
            case "+" | "*" as operator if not promoted:
                self.line(f"{target} {operator}= {new};")
                return
            case "max" | "min" as combiner:
                total = self.helper(combiner, target, new)
            case operator:
                total = CPP.binary(operator, target, new)
                if promoted and operator in ("+", "*"):
                    total = CPP.call(f"static_cast<{self.kind(statement.target.dtype)}>", total)
        self.line(f"{target} = {total};")

    def _call(self, call: nodes.Call) -> None:
        """A call with one argument a line."""
        parameters = f"<{', '.join(call.parameters)}>" if call.parameters else ""
        arguments = self._arguments(call)
        self.line(f"{self.library(call.name)}{parameters}(")
        self.depth += 1
        for text in arguments[:-1]:
            self.line(f"{text},")
        self.line(f"{arguments[-1]});")
        self.depth -= 1

    def _arguments(self, call: nodes.Call) -> list[str]:
        """What a call is given, one text a line."""
        arguments = [self.listed(call.extents)] if call.extents else []
        arguments += map(self._view, call.views)
        kept = {keeping.pack: keeping for keeping in call.kept}
        arguments += [self._panels(pack, kept.get(pack)) for pack in call.packs]
        return arguments

    def _panels(self, pack: str, keeping: nodes.Keeping | None) -> str:
        """The memory that a product packs panels into: a slot where they are kept."""
        if keeping is None:
            return f"{{{self.name(pack)}}}"
        return f"{self.name(pack)}_kept.at({self.scalar(keeping.number)})"

    def _serial_head(self, loop: nodes.SerialLoop) -> str:
        """The head of a sequential loop."""
        name, step, stop = self.name(loop.variable), self.scalar(loop.step), self.scalar(loop.stop)
        turn = f"++{name}" if loop.step == ir.Literal(1) else f"{name} += {step}"
        upwards, downwards = f"{name} < {stop}", f"{name} > {stop}"
        more = {1: upwards, -1: downwards, 0: f"{step} > 0 ? {upwards} : {downwards}"}
        start = self.scalar(loop.start)
        return f"for (int64_t {name} = {start}; {more[loop.direction]}; {turn})"

    # ------------------------------------------------------------ views

    def _offset(self, buffer: str, base: ir.Expr) -> str:
        """A pointer to an element of a buffer."""
        return str(CPP.binary("+", Code(self.name(buffer)), self.scalar(base)))

    def _view(self, view: nodes.MatrixView | nodes.TileView) -> str:
        """A tile as `sketch::tile<type, rank>{data, {lower}, {upper}, {strides}}`, a matrix as
        `sketch::matrix<type>{data, row, column}`."""
        kind = f"{'' if view.writable else 'const '}{self.kind(view.dtype)}"
        data = self.name(view.buffer)
        if isinstance(view, nodes.TileView):
            shown = [f"{{{self.listed(p)}}}" for p in (view.lower, view.upper, view.strides)]
            kind = f"{self.library('tile')}<{kind}, {len(view.lower)}>"
            return f"{kind}{{{', '.join((data, *shown))}}}"
        if view.origin != ir.Literal(0):
            data += f" + {self.scalar(view.origin)}"
        steps = self.listed((view.row, view.column))
        return f"{self.library('matrix')}<{kind}>{{{data}, {steps}}}"

"""C++ text of loop programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import assert_never

import attrs

from sketchc.base.diagnostics import Span
from sketchc.ir import nodes as ir
from sketchc.lowering.cpp.expressions import PROMOTED, Expressions, broken
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.transformations import streamed_tensors
from sketchc.lowering.plan import Storage
from sketchc.lowering.precedence import CPP, Code
from sketchc.lowering.source_map import Marks

INDENT = "    "
WIDTH = 100

#: How a reduction row combines lanes, as an OpenMP reduction: (float, integer or bool).
_CLAUSES = {
    "reduce_sum": ("+", "+"),
    "reduce_prod": ("*", "*"),
    "reduce_max": ("propagating_max", "max"),
    "reduce_min": ("propagating_min", "min"),
    "reduce_any": ("||", "||"),
    "reduce_all": ("&&", "&&"),
}


@attrs.define
class Printer(Expressions):
    """Prints statements at a depth of indentation."""

    lines: list[str] = attrs.field(factory=list)
    depth: int = 0
    marks: Marks = attrs.field(factory=Marks)

    @contextmanager
    def tracing(self, *origins: Span) -> Iterator[None]:
        """What is printed inside carries out what stands at `origins`."""
        first = len(self.lines)
        yield
        self.marks.add(first, len(self.lines), origins)

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

    def pragma(self, text: str) -> None:
        """A directive to OpenMP."""
        self.lines.append(f"{INDENT * self.depth}#pragma omp {text}")

    def comment(self, text: str) -> None:
        """A comment, one line for each of the text."""
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
            case nodes.MatrixProduct():
                self._product(statement)
            case nodes.TileCall():
                self._call(statement)
            case nodes.Loop(variable, lower, upper, body, step, unrolled):
                if unrolled:
                    self.lines.append(f"{INDENT * self.depth}#pragma GCC unroll 16")
                turns = ir.Literal(step)
                self._serial(nodes.SerialLoop(variable, lower, upper, turns, body))
            case nodes.LaneLoop():
                self._lanes(statement)
            case nodes.StreamedLoop():
                self._streamed(statement)
            case nodes.SerialLoop():
                self._serial(statement)
            case nodes.Branch():
                self._branch(statement)
            case nodes.Refusal(condition):
                self.open(f"if ({broken(condition, self)})")
                self.line(f"return {condition.number};")
                self.close()
            case nodes.Launch():
                self._launch(statement)
            case _:
                assert_never(statement)

    def _row(self, row: nodes.Row) -> None:
        kind = self.kind(row.dtype) if row.writable else f"const {self.kind(row.dtype)}"
        start = self._offset(row.buffer, row.base)
        with self.tracing(*row.origins):
            self.line(f"{kind} *const {self.name(row.name)} = {start};")

    def _lanes(self, loop: nodes.LaneLoop) -> None:
        for row in loop.rows:
            self._row(row)
        clauses: dict[str, list[str]] = {}
        for reduction in loop.reductions:
            clause = _CLAUSES[reduction.operation][0 if reduction.dtype.is_float else 1]
            clauses.setdefault(clause, []).append(self.name(reduction.name))
            if clause.startswith("propagating"):
                self.used.add(clause)
        text = "".join(f" reduction({c} : {', '.join(n)})" for c, n in clauses.items())
        self.pragma(f"simd{text}")
        bounds = (loop.lower, loop.upper, ir.Literal(1))
        self._serial(nodes.SerialLoop(loop.variable, *bounds, loop.body))

    def _streamed(self, streamed: nodes.StreamedLoop) -> None:
        """Blocks of lanes; those of large outputs are written from a buffer, past the caches."""
        for row in streamed.others:
            self._row(row)
        loop, name, end = streamed.loop, self.name(streamed.variable), streamed.end
        first = ir.Ref(streamed.variable, ir.NameKind.LOOP)
        last = ir.Binary("+", first, ir.Literal(streamed.size))
        bounds = (loop.lower, loop.upper, ir.Literal(streamed.size))
        self.open(self._serial_head(nodes.SerialLoop(streamed.variable, *bounds, ())))
        self.line(f"const int64_t {end} = {self.scalar(ir.Binary('min', loop.upper, last))};")
        for each in streamed.rows:
            row, kind = each.row, self.kind(each.row.dtype)
            self.line(f"alignas(64) {kind} {each.block}[{streamed.size}];")
            self.line(
                f"{kind} *const {self.name(row.name)} = {streams_name(row.buffer)} ?"
                f" {each.block} : {self._offset(row.buffer, ir.Binary('+', row.base, first))};"
            )
        self._lanes(attrs.evolve(loop, lower=first, upper=ir.Ref(end, ir.NameKind.LOOP)))
        for each in streamed.rows:
            place = self._offset(each.row.buffer, ir.Binary("+", each.row.base, first))
            self.open(f"if ({streams_name(each.row.buffer)})")
            self.line(f"{self.helper('stream', place, each.block, f'{end} - {name}')};")
            self.close()
        self.close()

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
        match _CLAUSES[statement.operation][1]:
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

    def _product(self, product: nodes.MatrixProduct) -> None:
        extents = (product.rows, product.columns, product.depth)
        arguments = [
            self.listed(extents),
            self._view(product.left, True),
            self._view(product.right, True),
            self._view(product.destination, False),
            ", ".join(self.name(name) for name in product.packs),
        ]
        self._arguments(self.library("multiply"), arguments)

    def _call(self, call: nodes.TileCall) -> None:
        parameters = f"<{', '.join(call.parameters)}>" if call.parameters else ""
        arguments = [
            self._tile(view, number not in call.written) for number, view in enumerate(call.tiles)
        ]
        self._arguments(f"{self.library(call.name)}{parameters}", arguments)

    def _arguments(self, function: str, arguments: list[str]) -> None:
        """A call with one argument a line."""
        self.line(f"{function}(")
        self.depth += 1
        for text in arguments[:-1]:
            self.line(f"{text},")
        self.line(f"{arguments[-1]});")
        self.depth -= 1

    def _serial_head(self, loop: nodes.SerialLoop) -> str:
        """The head of a sequential loop."""
        name, step, stop = self.name(loop.variable), self.scalar(loop.step), self.scalar(loop.stop)
        turn = f"++{name}" if loop.step == ir.Literal(1) else f"{name} += {step}"
        upwards, downwards = f"{name} < {stop}", f"{name} > {stop}"
        more = {1: upwards, -1: downwards, 0: f"{step} > 0 ? {upwards} : {downwards}"}
        start = self.scalar(loop.start)
        return f"for (int64_t {name} = {start}; {more[loop.direction]}; {turn})"

    # ------------------------------------------------------------ launches

    def _launch(self, launch: nodes.Launch) -> None:
        arenas = [s for s in launch.program.storages if s.memory == "arena"]
        scoped = not launch.alone or bool(arenas) or not launch.grid
        if scoped:
            self.open("")
        if arenas:
            self.comment("Scratch memory of each thread.")
            self.reserve("arena", arenas, "omp_get_max_threads()" if launch.grid else "1")
        streams = bool(streamed_tensors(launch.program.body))
        region = bool(launch.grid) and (bool(arenas) or streams)
        if region:
            self.pragma("parallel")
            self.open("")
        thread = "omp_get_thread_num()" if launch.grid else "0"
        for storage in arenas:
            kind, name = self.kind(storage.dtype), self.name(storage.name)
            memory = f"arena.at<{kind}>({name}_place, {thread})"
            self.line(f"{kind} *const __restrict {name} = {memory};")
        self._programs(launch, region)
        if streams:
            self.line(f"{self.helper('end_streams')};")
        for _ in range(region + scoped):
            self.close()

    def _programs(self, launch: nodes.Launch, region: bool) -> None:
        """The loops over the grid, in a parallel `region` or with one of their own."""
        if launch.grid:
            collapse = f" collapse({len(launch.grid)})" if len(launch.grid) > 1 else ""
            self.pragma(f"{'' if region else 'parallel '}for{collapse} schedule(static)")
        for loop in launch.grid:
            with self.tracing(*loop.origins):
                self.open(self._serial_head(loop))
        self.statements(launch.variables)
        for storage in launch.program.storages:
            if storage.memory == "stack":
                kind, name = self.kind(storage.dtype), self.name(storage.name)
                count = CPP.fold("*", [self.scalar(extent) for extent in storage.extents])
                self.line(f"alignas(64) {kind} {name}[{count}];")
        self.statements(launch.program.body)
        for _ in launch.grid:
            self.close()

    def reserve(
        self, arena: str, items: Sequence[ir.Tensor] | Sequence[Storage], threads: str
    ) -> None:
        """An arena with memory for tensors or storages, for so many threads."""
        self.line(f"{self.library('arena')} {arena};")
        for item in items:
            size = f"sizeof({self.kind(item.dtype)}), {{{self.listed(item.extents)}}}"
            self.line(f"const int64_t {self.name(item.name)}_place = {arena}.add({size});")
        self.open(f"if (!{arena}.allocate({threads}))")
        self.line("return -1;")
        self.close()

    # ------------------------------------------------------------ views

    def _tile(self, view: nodes.TileView, constant: bool) -> str:
        """A tile as `sketch::tile<type, rank>{data, {lower}, {upper}, {strides}}`."""
        qualifier = "const " if constant else ""
        shown = (f"{{{self.listed(parts)}}}" for parts in (view.lower, view.upper, view.strides))
        kind = f"{self.library('tile')}<{qualifier}{self.kind(view.dtype)}, {len(view.lower)}>"
        return f"{kind}{{{self.name(view.buffer)}, {', '.join(shown)}}}"

    def _offset(self, buffer: str, base: ir.Expr) -> str:
        """A pointer to an element of a buffer."""
        return str(CPP.binary("+", Code(self.name(buffer)), self.scalar(base)))

    def _view(self, view: nodes.MatrixView, constant: bool) -> str:
        kind = f"{self.library('matrix')}<{'const ' if constant else ''}{self.kind(view.dtype)}>"
        data = self.name(view.buffer)
        if view.origin != ir.Literal(0):
            data += f" + {self.scalar(view.origin)}"
        return f"{kind}{{{data}, {self.scalar(view.row)}, {self.scalar(view.column)}}}"


def streams_name(tensor: str) -> str:
    """The host scalar that is true where a tensor is larger than the caches."""
    return f"{tensor}_streams"

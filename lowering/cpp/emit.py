"""Emits C++: one C++17 file with OpenMP threads, SIMD loops and a plain C entry point.

Takes a finished plan, returns a `Kernel`. `lowering/loops` makes the loop programs of the phases,
`expressions` the text of what is in their statements, and `library` has what generated files carry;
this file prints statements and the host function around the phases.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import assert_never

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.launch.conditions import Kind, launch_conditions, launch_steps
from sketchc.lowering.abi import params_to_round, passed
from sketchc.lowering.cpp.abi import actual_extents, scalars
from sketchc.lowering.cpp.expressions import PROMOTED, Expressions, broken, entry_name, identifier
from sketchc.lowering.cpp.library.texts import include_lines, library_text, used_pieces
from sketchc.lowering.cpp.python_module import module_source
from sketchc.lowering.cpp.target import RESERVED
from sketchc.lowering.kernel import Kernel, LibraryPart
from sketchc.lowering.loops import build, nodes
from sketchc.lowering.loops.nests import step_name
from sketchc.lowering.loops.transformations import streamed_tensors
from sketchc.lowering.plan import Plan, Storage
from sketchc.lowering.precedence import CPP, Code
from sketchc.lowering.source_map import TracedLines
from sketchc.lowering.workspaces import shared_memory

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
class Printer(Expressions, TracedLines):
    """Prints statements at a depth of indentation."""

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

    def pragma(self, text: str) -> None:
        """A directive to OpenMP."""
        self.lines.append(f"{INDENT * self.depth}#pragma omp {text}")

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
        loop, name, end = streamed.loop, self.name(streamed.variable), streamed.end
        for row in loop.rows:
            if not row.block:
                self._row(row)
        first = ir.Ref(streamed.variable, ir.NameKind.LOOP)
        last = ir.Binary("+", first, ir.Literal(streamed.size))
        bounds = (loop.lower, loop.upper, ir.Literal(streamed.size))
        self.open(self._serial_head(nodes.SerialLoop(streamed.variable, *bounds, ())))
        self.line(f"const int64_t {end} = {self.scalar(ir.Binary('min', loop.upper, last))};")
        rows = [row for row in loop.rows if row.block]
        places = [self._offset(row.buffer, ir.Binary("+", row.base, first)) for row in rows]
        for row, place in zip(rows, places, strict=True):
            kind, large = self.kind(row.dtype), streams_name(row.buffer)
            self.line(f"alignas(64) {kind} {row.block}[{streamed.size}];")
            start = f"{large} ? {row.block} : {place}"
            self.line(f"{kind} *const {self.name(row.name)} = {start};")
        after = ir.Ref(end, ir.NameKind.LOOP)
        self._lanes(attrs.evolve(loop, lower=first, upper=after, rows=()))
        for row, place in zip(rows, places, strict=True):
            self.open(f"if ({streams_name(row.buffer)})")
            self.line(f"{self.helper('stream', place, row.block, f'{end} - {name}')};")
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

    def _call(self, call: nodes.Call) -> None:
        """A call with one argument a line."""
        parameters = f"<{', '.join(call.parameters)}>" if call.parameters else ""
        arguments = [self.listed(call.extents)] if call.extents else []
        arguments += map(self._view, call.views)
        arguments += [", ".join(map(self.name, call.packs))] if call.packs else []
        self.line(f"{self.library(call.name)}{parameters}(")
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
        """An arena with memory for tensors or storages, once for each of `threads` threads."""
        self.line(f"{self.library('arena')} {arena};")
        for item in items:
            size = f"sizeof({self.kind(item.dtype)}), {{{self.listed(item.extents)}}}"
            self.line(f"const int64_t {self.name(item.name)}_place = {arena}.add({size});")
        self.open(f"if (!{arena}.allocate({threads}))")
        self.line("return -1;")
        self.close()

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


def streams_name(tensor: str) -> str:
    """The host scalar that is true where a tensor is larger than the caches."""
    return f"{tensor}_streams"


def emit(plan: Plan) -> Kernel:
    """The C++ source for a finished plan; deterministic."""
    sketch = plan.sketch
    host = _Host(plan=plan)
    body = host.function()
    used = host.used
    library = library_text(used)
    parts = [
        f"// {sketch.name}: a C++ kernel for {plan.hardware.name}, made from a sketch.",
        include_lines(used),
        library,
        body,
    ]
    source = "\n\n".join(part for part in parts if part) + "\n"
    entry = entry_name(sketch.name)
    above = source.count("\n") - len(host.lines) - 1  # the body's last line closes it
    return Kernel(
        "cpp",
        plan.hardware.name,
        sketch.name,
        entry,
        "c++",
        source,
        sketch,
        extras=((f"{sketch.name}_module.cpp", module_source(sketch, entry)),),
        source_map=tuple(sorted(host.carried_out(above).items())),
        library=(LibraryPart(tuple(used_pieces(used)), library),) if library else (),
    )


#: Kinds of conditions that can be checked only after a `fetch` of the host.
_LATE = (Kind.FETCH, Kind.FETCHED)


@attrs.define
class _Host(Printer):
    """Prints the exported function."""

    plan: Plan = attrs.field(kw_only=True)

    @property
    def sketch(self) -> ir.Sketch:
        """The sketch of the plan."""
        return self.plan.sketch

    def function(self) -> str:
        """The exported function with all phases."""
        steps = build.host_program(self.plan, RESERVED)
        self.depth = 1
        self._round_params()
        # Checks and host values; nothing is written before all conditions hold.
        for step in launch_steps(self.sketch):
            if isinstance(step, ir.Let):
                with self.tracing(step.span):
                    self._let(step)
            else:
                self.statement(nodes.Refusal(step, origins=(step.span,)))
        for actual, tensor, axis in actual_extents(self.sketch):
            step_of, given = step_name(tensor.name, axis), self.name(actual)
            self.line(f"[[maybe_unused]] const int64_t {step_of} = {given} == 1 ? 0 : 1;")
        self._workspace()
        self._initial_values()
        self._streams(steps)
        self.statements(steps)
        self.line("return 0;")
        body = "\n".join(self.lines)
        return f"{self._contract()}{self._signature()}\n{{\n{self._constants()}{body}\n}}"

    # ------------------------------------------------------------ the host's part

    def _signature(self) -> str:
        """The head of the function; unused parameters are only named in comments."""
        parameters = []
        for tensor in passed(self.sketch):
            kind = self.kind(tensor.dtype)
            constant = "const " if tensor.role is ir.Role.IN else ""
            parameters.append((f"{constant}{kind} *__restrict ", tensor.name))
        parameters += [(f"{kind} ", name) for kind, name in scalars(self.sketch)]
        shown = [
            kind + (identifier(name) if name in self.names else f"/* {name} */")
            for kind, name in parameters
        ]
        start = f'extern "C" int64_t {entry_name(self.sketch.name)}('
        text = ", ".join(shown)
        if len(start) + len(text) < 99:
            return f"{start}{text})"
        indent = " " * 4
        rest = textwrap.fill(f"{text})", 98, initial_indent=indent, subsequent_indent=indent)
        return f"{start}\n{rest}"

    def _constants(self) -> str:
        lines = []
        for constant in self.sketch.constants:
            if constant.name not in self.names:
                continue
            dtype = DType.F64 if constant.dtype.is_float else constant.dtype
            kind = "int64_t" if dtype.is_integer else self.kind(dtype)
            text = self.constant(constant.value, dtype)
            lines.append(f"    constexpr {kind} {identifier(constant.name)} = {text};\n")
        return "".join(lines) + ("\n" if lines else "")

    def _round_params(self) -> None:
        """Round params to their types: they arrive in 64 bits."""
        for param in params_to_round(self.sketch):
            name = self.name(param.name)
            self.comment(f"{param.name} is of type {param.dtype.value}.")
            self.line(f"{name} = {self.rounded(Code(name), param.dtype)};")

    def _let(self, let: ir.Let) -> None:
        kind = {DType.I64: "int64_t", DType.BOOL: "bool"}.get(let.dtype, "double")
        value = self.scalar(let.value)
        if kind == "double":
            value = CPP.call("static_cast<double>", value)
        self.line(f"[[maybe_unused]] const {kind} {identifier(let.name)} = {value};")

    def _contract(self) -> str:
        """The comment above the function that says what it returns."""
        conditions = launch_conditions(self.sketch)
        returns = ["0 when done"]
        if "arena" in self.used:
            returns.append("-1 when memory could not be had")
        if conditions:
            late = any(condition.kind in _LATE for condition in conditions)
            before = "" if late else ", before anything is written,"
            returns.append(f"and otherwise{before} the number of the condition that does not hold:")
        text = f"// Returns {', '.join(returns)}"
        lines = textwrap.wrap(text, 98, subsequent_indent="// ")
        width = len(str(max((condition.number for condition in conditions), default=0)))
        for condition in conditions:
            late_one = ", known when it is fetched" if condition.kind in _LATE else ""
            item = f"//   {condition.number:{width}}  {condition.text}{late_one}"
            lines += textwrap.wrap(item, 98, subsequent_indent=f"//     {' ' * width}  ")
        return "".join(f"{line}\n" for line in lines)

    def _workspace(self) -> None:
        tensors = [t for t in self.sketch.tensors if t.role is ir.Role.WORKSPACE]
        if not tensors:
            return
        self.comment("Memory shared by the phases.")
        owners = shared_memory(self.sketch)
        self.reserve("workspace", [t for t in tensors if t.name not in owners], "1")
        for tensor in tensors:
            kind, name = self.kind(tensor.dtype), identifier(tensor.name)
            place = identifier(owners.get(tensor.name, tensor.name))
            self.line(f"{kind} *const {name} = workspace.at<{kind}>({place}_place, 0);")

    def _streams(self, steps: tuple[nodes.Statement, ...]) -> None:
        """Define, for each streamed output, whether it is too large for the caches."""
        names = streamed_tensors(steps)
        for tensor in self.sketch.tensors:
            if tensor.name in names:
                size = f"sizeof({self.kind(tensor.dtype)})"
                large = self.helper("streams", size, f"{{{self.listed(tensor.extents)}}}")
                self.line(f"const bool {streams_name(tensor.name)} = {large};")

    def _initial_values(self) -> None:
        names = {*RESERVED, *walk.declared_names(self.sketch)}
        for tensor in self.sketch.tensors:
            if tensor.initial is None:
                continue
            extents = [Code("1"), *(self.scalar(extent) for extent in tensor.extents)]
            while len(extents) > 1 and extents[0] == Code("1"):
                del extents[0]
            count = CPP.fold("*", extents)
            self.comment(f"{tensor.name} starts as {tensor.initial}.")
            self.pragma("parallel for simd schedule(static)")
            variable = "element"
            while variable in names:
                variable += "_"
            self.open(f"for (int64_t {variable} = 0; {variable} < {count}; ++{variable})")
            value = self.number_literal(tensor.initial, tensor.dtype)
            self.line(f"{self.name(tensor.name)}[{variable}] = {value};")
            self.close()

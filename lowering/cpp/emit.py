"""Emits C++: one C++17 file with OpenMP threads, SIMD loops and a plain C entry point.

Takes a finished plan, returns a `Kernel`. `lowering/loops` makes the loop programs of the phases,
`lowering/c_source` prints what is C++ on any machine, and `library` has what generated files carry;
this file prints what the threads of a CPU do: lane loops, streamed loops and launches.
"""

from __future__ import annotations

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.c_source.expressions import entry_name
from sketchc.lowering.c_source.host import HostPrinter
from sketchc.lowering.c_source.printer import COMBINERS, INDENT
from sketchc.lowering.cpp.library.texts import LIBRARY, include_lines, library_text
from sketchc.lowering.cpp.python_module import module_source
from sketchc.lowering.cpp.target import RESERVED
from sketchc.lowering.kernel import Kernel, LibraryPart
from sketchc.lowering.loops import build, nodes
from sketchc.lowering.loops.panels import programs
from sketchc.lowering.loops.reads import by_constant
from sketchc.lowering.loops.transformations import streamed_tensors
from sketchc.lowering.plan import ARENA, Plan, Storage
from sketchc.lowering.precedence import CPP, Code

#: Reductions of OpenMP that have another name for floats: its own ignore NaN.
_OF_FLOATS = {"max": "propagating_max", "min": "propagating_min"}


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
        library=(LibraryPart(tuple(LIBRARY.used(used)), library),) if library else (),
    )


@attrs.define
class _Host(HostPrinter):
    """Prints the exported function, with the loops of the phases in it; `in_lanes`: in the body of
    a loop over lanes; `kept`: the storages that keep panels in the launch that is printed."""

    in_lanes: bool = False
    kept: dict[str, nodes.Keeping] = attrs.field(factory=dict)

    def launches(self) -> None:
        """The phases; their loops write large outputs past the caches."""
        steps = build.host_program(self.plan)
        self._streams(steps)
        self.statements(steps)

    def pragma(self, text: str) -> None:
        """A directive to OpenMP."""
        self.lines.append(f"{INDENT * self.depth}#pragma omp {text}")

    def _statement(self, statement: nodes.Statement) -> None:
        match statement:
            case nodes.Loop(unrolled=True):
                self.lines.append(f"{INDENT * self.depth}#pragma GCC unroll 16")
                HostPrinter._statement(self, statement)
            case nodes.LaneLoop():
                self._lanes(statement)
            case nodes.StreamedLoop():
                self._streamed(statement)
            case nodes.Launch():
                self._launch(statement)
            case _:
                HostPrinter._statement(self, statement)

    def _lanes(self, loop: nodes.LaneLoop) -> None:
        for row in loop.rows:
            self._row(row)
        clauses: dict[str, list[str]] = {}
        for reduction in loop.reductions:
            clause = COMBINERS[reduction.operation]
            if reduction.dtype.is_float:
                clause = _OF_FLOATS.get(clause, clause)
            clauses.setdefault(clause, []).append(self.name(reduction.name))
            if clause.startswith("propagating"):
                self.used.add(clause)
        text = "".join(f" reduction({c} : {', '.join(n)})" for c, n in clauses.items())
        self.pragma(f"simd{text}")
        bounds = (loop.lower, loop.upper, ir.Literal(1))
        # The head is no vector code.
        self.open(self._serial_head(nodes.SerialLoop(loop.variable, *bounds, ())))
        self.in_lanes = True
        self.statements(loop.body)
        self.in_lanes = False
        self.close()

    def division(self, name: str, divisor: ir.Expr) -> str:
        """See `Expressions`: loops over lanes have divisions that become vector code."""
        return f"lane_{name}" if self.in_lanes and not by_constant(divisor) else name

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

    def _launch(self, launch: nodes.Launch) -> None:
        arenas = [s for s in launch.program.storages if s.memory == ARENA]
        scoped = not launch.alone or bool(arenas) or not launch.grid
        if scoped:
            self.open("")
        threads, clause = self._threads(launch)
        if arenas:
            self.comment("Scratch memory of each thread.")
            self._keep(launch, threads)
            self.reserve("arena", arenas, threads)
        streams = bool(streamed_tensors(launch.program.body))
        region = bool(launch.grid) and (bool(arenas) or streams)
        if region:
            self.pragma(f"parallel{clause}")
            self.open("")
        thread = "omp_get_thread_num()" if launch.grid else "0"
        for storage in arenas:
            kind, name = self.kind(storage.dtype), self.name(storage.name)
            memory = f"arena.at<{kind}>({name}_place, {thread})"
            self.line(f"{kind} *const __restrict {name} = {memory};")
            if storage.name in self.kept:
                panels = f"{self.library('kept_panels')}<{kind}> {name}_kept"
                self.line(f"const {panels}({name}, {name}_keeping);")
        self._programs(launch, region, clause)
        if streams:
            self.line(f"{self.helper('end_streams')};")
        for _ in range(region + scoped):
            self.close()

    def _keep(self, launch: nodes.Launch, threads: str) -> None:
        """Define how many slots there are for the panels that a launch keeps."""
        calls = (each for each in nodes.walk(launch.program.body) if isinstance(each, nodes.Call))
        self.kept = {keeping.pack: keeping for call in calls for keeping in call.kept}
        for storage in launch.program.storages:
            if storage.name in self.kept:
                keeping = self.kept[storage.name]
                again = self._met_again(launch, keeping, threads)
                size = f"sizeof({self.kind(storage.dtype)})"
                extents = self.listed((keeping.slots, keeping.depth, storage.extents[1]))
                slots = f"{self.library('keeping')} {self.name(storage.name)}_keeping"
                self.line(f"const {slots}({again}, {size}, {extents});")

    def _met_again(self, launch: nodes.Launch, keeping: nodes.Keeping, threads: str) -> Code:
        """Whether a thread runs enough programs to meet kept panels again."""
        match keeping.between:
            case ir.Literal(0):
                return Code("true")
            case ir.Literal(1):
                between = Code(threads)
            case many:
                between = CPP.binary("*", Code(threads), self.scalar(many))
        return CPP.binary(">", self.scalar(programs(launch.grid)), between)

    def room(self, item: ir.Tensor | Storage) -> str:
        """See `HostPrinter`."""
        if item.name in self.kept:
            return f"{self.name(item.name)}_keeping.elements()"
        return HostPrinter.room(self, item)

    def _threads(self, launch: nodes.Launch) -> tuple[str, str]:
        """How many threads a launch takes, and the clause that says so to OpenMP."""
        work = next(phase.work for phase in self.plan.phases if phase.index == launch.phase)
        if not launch.grid:
            return "1", ""
        if work is None:
            return "omp_get_max_threads()", ""
        self.line(f"const int threads = {self.helper('threads_for', self.scalar(work))};")
        return "threads", " num_threads(threads)"

    def _programs(self, launch: nodes.Launch, region: bool, clause: str) -> None:
        """The loops over the grid, in a parallel `region` or with one of their own, which has this
        `clause`."""
        if launch.grid:
            collapse = f" collapse({len(launch.grid)})" if len(launch.grid) > 1 else ""
            own = "for" if region else f"parallel for{clause}"
            self.pragma(f"{own}{collapse} schedule(static)")
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

    def _streams(self, steps: tuple[nodes.Statement, ...]) -> None:
        """Define, for each streamed output, whether it is too large for the caches."""
        names = streamed_tensors(steps)
        for tensor in self.sketch.tensors:
            if tensor.name in names:
                size = f"sizeof({self.kind(tensor.dtype)})"
                large = self.helper("streams", size, f"{{{self.listed(tensor.extents)}}}")
                self.line(f"const bool {streams_name(tensor.name)} = {large};")

    def fill(self, tensor: ir.Tensor, count: Code, value: Code) -> None:
        """See `HostPrinter`."""
        names = {*RESERVED, *walk.declared_names(self.sketch)}
        threads = self.helper("threads_for", CPP.binary("*", count, Code(str(tensor.dtype.bytes))))
        self.pragma(f"parallel for simd num_threads({threads}) schedule(static)")
        variable = "element"
        while variable in names:
            variable += "_"
        self.open(f"for (int64_t {variable} = 0; {variable} < {count}; ++{variable})")
        self.line(f"{self.name(tensor.name)}[{variable}] = {value};")
        self.close()

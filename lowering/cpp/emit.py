"""Emits C++: one C++17 file with OpenMP threads, SIMD loops and a plain C entry point.

Takes a finished plan, returns a `Kernel`. `lowering/loops` makes the loop programs of the phases,
`printer` and `expressions` make their text, and `library` has what generated files carry; this file
writes the host function around the phases, and says what became of hints.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.launch.conditions import (
    Condition,
    Kind,
    fetch_conditions,
    fetched_conditions,
    launch_conditions,
    launch_steps,
)
from sketchc.lowering.abi import params_to_round, passed
from sketchc.lowering.cpp.abi import actual_extents
from sketchc.lowering.cpp.expressions import broken, entry_name, identifier, literal
from sketchc.lowering.cpp.library.texts import include_lines, library_text, used_pieces
from sketchc.lowering.cpp.printer import Printer, streams_name
from sketchc.lowering.cpp.python_module import module_source
from sketchc.lowering.kernel import Kernel, LibraryPart
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.build import (
    BuiltPhase,
    build_phases,
    grid_loop,
    step_sign,
    stream_outputs,
)
from sketchc.lowering.loops.build import placements as loop_placements
from sketchc.lowering.loops.nodes import scalar_dtype
from sketchc.lowering.loops.reads import fetch, host_element
from sketchc.lowering.loops.tiles import step_name
from sketchc.lowering.loops.transformations import streamed_tensors
from sketchc.lowering.plan import HintAnswer, PhasePlan, Plan, has_product, source_loops, subject
from sketchc.lowering.precedence import CPP, Code
from sketchc.lowering.source_map import source_map

_LANES = ("vectorize", "simd", "warp", "threadidx")


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order."""
    found = [answer for loop in source_loops(plan) for answer in _loop(plan, loop)]
    for tile in plan.sketch.tiles:
        for hint in tile.hints:
            if hint == "tensor_core":
                became = ("vector multiply-adds", "this target has no matrix unit")
                found.append(HintAnswer(hint, f"tile {tile.name}", *became))
            elif hint == "async":
                found.append(HintAnswer(hint, f"tile {tile.name}", "not used", _OVERLAP))
    return tuple(found)


_OVERLAP = "the core's out-of-order execution and its prefetchers overlap loads with work"


def _loop(plan: Plan, loop: ir.For) -> Iterator[HintAnswer]:
    for hint in loop.hints:
        match hint.split(".")[0]:
            case "pipeline" | "async":
                yield HintAnswer(hint, subject(plan, loop), "not used", _OVERLAP)
            case "tensor_core":
                yield HintAnswer(hint, subject(plan, loop), *_products(loop))
            case "unroll":
                why = "the C++ compiler unrolls where its cost model says so"
                yield HintAnswer(hint, subject(plan, loop), "left to the C++ compiler", why)
            case word if word in _LANES:
                why = "tiles are the vectors here: their innermost axis is an `omp simd` loop"
                yield HintAnswer(hint, subject(plan, loop), "a loop over vectorised tiles", why)
            case _:
                pass


def _products(loop: ir.For) -> tuple[str, str]:
    if not has_product(loop.body):
        return "not used", "there is no matrix product in it"
    return "packed panels and vector multiply-adds", "this target has no matrix unit"


@attrs.define
class Steps:
    """Prints the host's steps; `launches` has the phases that are launched by their numbers."""

    sketch: ir.Sketch
    launches: Mapping[int, BuiltPhase]
    out: Printer

    def steps(self, steps: tuple[ir.HostStep, ...]) -> None:
        """Prints steps in order."""
        for step in steps:
            match step:
                case ir.Launch(index):
                    if index in self.launches:
                        self._phase(self.launches[index])
                case _:
                    with self.out.tracing(step.span):
                        self._step(step)

    def _step(self, step: ir.HostFor | ir.HostIf | ir.Fetch | ir.Bind) -> None:
        match step:
            case ir.HostFor():
                self._loop(step)
            case ir.HostIf():
                self._branch(step)
            case ir.Fetch():
                self._comment(step.text)
                for condition in fetch_conditions(self.sketch).get(step.name, ()):
                    refuse_unless(condition, self.out)
                element = host_element(self.sketch, step.access)
                self._define(fetch(step.name, step.dtype, element))
                after = fetched_conditions(self.sketch).get(step.name)
                if after is not None:
                    refuse_unless(after, self.out)
            case ir.Bind(name, bound):
                self._comment(step.text)
                dtype = scalar_dtype(bound)
                self._define(nodes.Define(name, dtype, nodes.Scalar(bound, dtype)))
            case _:
                assert_never(step)

    def _define(self, scalar: nodes.Define) -> None:
        kind, name = self.out.kind(scalar.dtype), identifier(scalar.name)
        self.out.line(f"[[maybe_unused]] const {kind} {name} = {self.out.value(scalar.value)};")

    def _comment(self, text: str) -> None:
        if text:
            self.out.comment(text)

    def _loop(self, step: ir.HostFor) -> None:
        self._comment(step.text)
        direction = step_sign(step.step, self.sketch)
        bounds = (step.start, step.stop, step.step)
        loop = nodes.SerialLoop(step.variable, *bounds, (), direction=direction)
        self.out.open(self.out.serial_head(loop))
        self.steps(step.body)
        self.out.close()

    def _branch(self, step: ir.HostIf) -> None:
        self._comment(step.text)
        self.out.open(f"if ({self.out.scalar(step.condition)})")
        self.steps(step.body)
        if step.orelse:
            self.out.otherwise()
            self.steps(step.orelse)
        self.out.close()

    # ------------------------------------------------------------ launches

    def _phase(self, built: BuiltPhase) -> None:
        out, phase, program = self.out, built.plan, built.program
        several = len(self.launches) > 1
        if several:
            out.comment(f"Phase {phase.index + 1} of {len(self.launches)}.")
        arenas = [s for s in program.storages if s.memory == "arena"]
        scoped = several or bool(arenas) or not phase.grid
        if scoped:
            out.open("")
        if arenas:
            out.comment("Scratch memory of each thread.")
            reserve("arena", arenas, "omp_get_max_threads()" if phase.grid else "1", out)
        if phase.grid:
            self._parallel(phase, program, arenas)
        else:
            self._thread_storage(arenas, "0")
            self._stack(program)
            out.statements(program.body)
            if streamed_tensors(program.body):
                out.line(f"{out.helper('end_streams')};")
        if scoped:
            out.close()

    def _parallel(
        self, phase: PhasePlan, program: nodes.Program, arenas: list[nodes.Storage]
    ) -> None:
        out = self.out
        collapse = f" collapse({len(phase.grid)})" if len(phase.grid) > 1 else ""
        streams = bool(streamed_tensors(program.body))
        region = bool(arenas) or streams
        if region:
            out.pragma("parallel")
            out.open("")
            self._thread_storage(arenas, "omp_get_thread_num()")
        out.pragma(f"{'' if region else 'parallel '}for{collapse} schedule(static)")
        grid = [
            grid_loop(axis, self.sketch, f"{identifier(axis.variable)}_index")
            for axis in phase.grid
        ]
        for axis, (loop, _) in zip(phase.grid, grid, strict=True):
            with out.tracing(axis.span):
                out.open(out.serial_head(loop))
        for axis, (_, variable) in zip(phase.grid, grid, strict=True):
            if variable is not None:
                with out.tracing(axis.span):
                    out.statement(variable)
        self._stack(program)
        out.statements(program.body)
        for _ in phase.grid:
            out.close()
        if streams:
            out.line(f"{out.helper('end_streams')};")
        if region:
            out.close()

    def _thread_storage(self, arenas: list[nodes.Storage], thread: str) -> None:
        for storage in arenas:
            kind, name = self.out.kind(storage.dtype), identifier(storage.name)
            self.out.line(
                f"{kind} *const __restrict {name} = arena.at<{kind}>({name}_place, {thread});"
            )

    def _stack(self, program: nodes.Program) -> None:
        for storage in program.storages:
            if storage.memory == "stack":
                kind, name = self.out.kind(storage.dtype), identifier(storage.name)
                count = CPP.fold("*", [self.out.scalar(extent) for extent in storage.extents])
                self.out.line(f"alignas(64) {kind} {name}[{count}];")


def reserve(
    arena: str, items: Sequence[ir.Tensor] | Sequence[nodes.Storage], threads: str, out: Printer
) -> None:
    """An arena with memory for tensors or storages, for so many threads."""
    out.line(f"{out.library('arena')} {arena};")
    for item in items:
        size = f"sizeof({out.kind(item.dtype)}), {{{out.listed(item.extents)}}}"
        out.line(f"const int64_t {identifier(item.name)}_place = {arena}.add({size});")
    out.open(f"if (!{arena}.allocate({threads}))")
    out.line("return -1;")
    out.close()


def refuse_unless(condition: Condition, out: Printer) -> None:
    """Leaves the function with the condition's number unless it holds."""
    out.open(f"if ({broken(condition, out)})")
    out.line(f"return {condition.number};")
    out.close()


def emit(plan: Plan) -> Kernel:
    """The C++ source for a finished plan; deterministic."""
    sketch = plan.sketch
    host = _Host(plan)
    body = host.function()
    used = host.out.used
    library = library_text(used)
    parts = [
        f"// {sketch.name}: a C++ kernel for {plan.hardware.name}, made from a sketch.",
        include_lines(used),
        library,
        body,
    ]
    source = "\n\n".join(part for part in parts if part) + "\n"
    entry = entry_name(sketch.name)
    above = source.count("\n") - len(host.out.lines) - 1  # the body's last line closes it
    return Kernel(
        "cpp",
        plan.hardware.name,
        sketch.name,
        entry,
        "c++",
        source,
        sketch,
        extras=((f"{sketch.name}_module.cpp", module_source(sketch, entry)),),
        source_map=source_map(host.out.marks.lines(above)),
        library=(LibraryPart(tuple(used_pieces(used)), library),) if library else (),
    )


#: Names of the generated function beside those of the sketch.
_RESERVED = ("arena", "workspace")


def placements(plan: Plan) -> nodes.Placements:
    """Where each tile of the sketch really lives after fusion, and what each phase reserves; for a
    plan whose phases are mapped."""
    return loop_placements(plan, _RESERVED)


#: The conditions that are known when the host has fetched something.
_LATE = (Kind.FETCH, Kind.FETCHED)


@attrs.define
class _Host:
    plan: Plan
    out: Printer = attrs.field(factory=Printer)

    @property
    def sketch(self) -> ir.Sketch:
        """The sketch of the plan."""
        return self.plan.sketch

    def function(self) -> str:
        """The exported function with all phases."""
        phases = stream_outputs(self.sketch, build_phases(self.plan, _RESERVED))
        self.out.depth = 1
        self._round_params()
        self._launch_steps()
        self._broadcasts()
        self._workspace()
        self._initial_values()
        self._streams(phases)
        launches = {phase.plan.index: phase for phase in phases}
        Steps(self.sketch, launches, self.out).steps(self.sketch.steps)
        self.out.line("return 0;")
        body = "\n".join(self.out.lines)
        constants = self._constants(body)
        head = self._signature(body + constants)
        return f"{self._contract(body)}{head}\n{{\n{constants}{body}\n}}"

    # ------------------------------------------------------------ the host's part

    def _signature(self, body: str) -> str:
        """The head of the function; unused parameters are only named in comments."""
        parameters = []
        for tensor in passed(self.sketch):
            kind = self.out.kind(tensor.dtype)
            constant = "const " if tensor.role is ir.Role.IN else ""
            parameters.append((f"{constant}{kind} *__restrict ", tensor.name))
        parameters += [("int64_t ", symbol.name) for symbol in self.sketch.symbols]
        for param in self.sketch.params:
            parameters.append(("double " if param.dtype.is_float else "int64_t ", param.name))
        parameters += [("int64_t ", name) for name, _, _ in actual_extents(self.sketch)]
        used = set(re.findall(r"\w+", _without_comments(body)))
        shown = [
            kind + (identifier(name) if identifier(name) in used else f"/* {name} */")
            for kind, name in parameters
        ]
        start = f'extern "C" int64_t {entry_name(self.sketch.name)}('
        text = ", ".join(shown)
        if len(start) + len(text) < 99:
            return f"{start}{text})"
        return (
            start
            + "\n"
            + textwrap.fill(text + ")", 98, initial_indent="    ", subsequent_indent="    ")
        )

    def _constants(self, body: str) -> str:
        used = set(re.findall(r"\w+", _without_comments(body)))
        lines = []
        for constant in self.sketch.constants:
            name = identifier(constant.name)
            if name not in used:
                continue
            dtype = DType.F64 if constant.dtype.is_float else constant.dtype
            kind = "int64_t" if dtype.is_integer else self.out.kind(dtype)
            value = constant.value
            text = self.out.number_literal(value, dtype) if dtype.is_float else literal(value)
            lines.append(f"    constexpr {kind} {name} = {text};\n")
        return "".join(lines) + ("\n" if lines else "")

    def _broadcasts(self) -> None:
        for actual, tensor, axis in actual_extents(self.sketch):
            step = step_name(tensor.name, axis)
            self.out.line(f"[[maybe_unused]] const int64_t {step} = {actual} == 1 ? 0 : 1;")

    def _round_params(self) -> None:
        """Params as numbers of their types: they arrive in 64 bits."""
        for param in params_to_round(self.sketch):
            name = identifier(param.name)
            self.out.comment(f"{param.name} is of type {param.dtype.value}.")
            self.out.line(f"{name} = {self.out.rounded(Code(name), param.dtype)};")

    def _launch_steps(self) -> None:
        """Checks and host values; nothing is written before all conditions hold."""
        for step in launch_steps(self.sketch):
            with self.out.tracing(step.span):
                if isinstance(step, ir.Let):
                    self._let(step)
                else:
                    refuse_unless(step, self.out)

    def _let(self, let: ir.Let) -> None:
        kind = {DType.I64: "int64_t", DType.BOOL: "bool"}.get(let.dtype, "double")
        value = self.out.scalar(let.value)
        if kind == "double":
            value = CPP.call("static_cast<double>", value)
        self.out.line(f"[[maybe_unused]] const {kind} {identifier(let.name)} = {value};")

    def _contract(self, body: str) -> str:
        """What the function returns, for those who call it."""
        conditions = launch_conditions(self.sketch)
        returns = ["0 when done"]
        if "return -1;" in body:
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
        self.out.comment("Memory shared by the phases.")
        reserve("workspace", tensors, "1", self.out)
        for tensor in tensors:
            kind, name = self.out.kind(tensor.dtype), identifier(tensor.name)
            self.out.line(f"{kind} *const {name} = workspace.at<{kind}>({name}_place, 0);")

    def _streams(self, phases: tuple[BuiltPhase, ...]) -> None:
        """Which outputs are too large for the caches."""
        names = {name for phase in phases for name in streamed_tensors(phase.program.body)}
        for tensor in self.sketch.tensors:
            if tensor.name in names:
                size = f"sizeof({self.out.kind(tensor.dtype)})"
                large = self.out.helper("streams", size, f"{{{self.out.listed(tensor.extents)}}}")
                self.out.line(f"const bool {streams_name(tensor.name)} = {large};")

    def _initial_values(self) -> None:
        names = {*_RESERVED, *walk.declared_names(self.sketch)}
        for tensor in self.sketch.tensors:
            if tensor.initial is None:
                continue
            extents = [Code("1"), *(self.out.scalar(extent) for extent in tensor.extents)]
            while len(extents) > 1 and extents[0] == Code("1"):
                del extents[0]
            count = CPP.fold("*", extents)
            self.out.comment(f"{tensor.name} starts as {tensor.initial}.")
            self.out.pragma("parallel for simd schedule(static)")
            variable = "element"
            while variable in names:
                variable += "_"
            self.out.open(f"for (int64_t {variable} = 0; {variable} < {count}; ++{variable})")
            value = self.out.number_literal(tensor.initial, tensor.dtype)
            self.out.line(f"{identifier(tensor.name)}[{variable}] = {value};")
            self.out.close()


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)

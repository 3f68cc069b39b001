"""Emits C++: one C++17 file with OpenMP threads, SIMD loops and a plain C entry point.

Takes a finished plan, returns a `Kernel`. `lowering/loops` makes the loop programs of the phases,
`printer` and `expressions` make their text, and `library` has what generated files carry; this file
writes the host function around the phases, and says what became of hints.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.launch.conditions import Kind, launch_conditions, launch_steps
from sketchc.lowering.abi import params_to_round, passed
from sketchc.lowering.cpp.abi import actual_extents, scalars
from sketchc.lowering.cpp.expressions import entry_name, identifier, literal
from sketchc.lowering.cpp.library.texts import include_lines, library_text, used_pieces
from sketchc.lowering.cpp.printer import Printer, streams_name
from sketchc.lowering.cpp.python_module import module_source
from sketchc.lowering.kernel import Kernel, LibraryPart
from sketchc.lowering.loops import build, nodes
from sketchc.lowering.loops.tiles import step_name
from sketchc.lowering.loops.transformations import streamed_tensors
from sketchc.lowering.plan import HintAnswer, Plan, Storage, has_product, source_loops, subject
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
                became = ("not used", "there is no matrix product in it")
                if has_product(loop.body):
                    no_unit = "this target has no matrix unit"
                    became = ("packed panels and vector multiply-adds", no_unit)
                yield HintAnswer(hint, subject(plan, loop), *became)
            case "unroll":
                why = "the C++ compiler unrolls where its cost model says so"
                yield HintAnswer(hint, subject(plan, loop), "left to the C++ compiler", why)
            case word if word in _LANES:
                why = "tiles are the vectors here: their innermost axis is an `omp simd` loop"
                yield HintAnswer(hint, subject(plan, loop), "a loop over vectorised tiles", why)
            case _:
                pass


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


def storages(plan: Plan) -> tuple[tuple[Storage, ...], ...]:
    """What each phase reserves for one program after fusion; for a plan whose phases are mapped."""
    return build.storages(plan, _RESERVED)


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
        steps = build.host_program(self.plan, _RESERVED)
        self.out.depth = 1
        self._round_params()
        # Checks and host values; nothing is written before all conditions hold.
        for step in launch_steps(self.sketch):
            if isinstance(step, ir.Let):
                with self.out.tracing(step.span):
                    self._let(step)
            else:
                self.out.statement(nodes.Refusal(step, origins=(step.span,)))
        for actual, tensor, axis in actual_extents(self.sketch):
            step_of, given = step_name(tensor.name, axis), self.out.name(actual)
            self.out.line(f"[[maybe_unused]] const int64_t {step_of} = {given} == 1 ? 0 : 1;")
        self._workspace()
        self._initial_values()
        self._streams(steps)
        self.out.statements(steps)
        self.out.line("return 0;")
        body = "\n".join(self.out.lines)
        return f"{self._contract()}{self._signature()}\n{{\n{self._constants()}{body}\n}}"

    # ------------------------------------------------------------ the host's part

    def _signature(self) -> str:
        """The head of the function; unused parameters are only named in comments."""
        parameters = []
        for tensor in passed(self.sketch):
            kind = self.out.kind(tensor.dtype)
            constant = "const " if tensor.role is ir.Role.IN else ""
            parameters.append((f"{constant}{kind} *__restrict ", tensor.name))
        parameters += [(f"{kind} ", name) for kind, name in scalars(self.sketch)]
        shown = [
            kind + (identifier(name) if name in self.out.names else f"/* {name} */")
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
            if constant.name not in self.out.names:
                continue
            dtype = DType.F64 if constant.dtype.is_float else constant.dtype
            kind = "int64_t" if dtype.is_integer else self.out.kind(dtype)
            value = constant.value
            text = self.out.number_literal(value, dtype) if dtype.is_float else literal(value)
            lines.append(f"    constexpr {kind} {identifier(constant.name)} = {text};\n")
        return "".join(lines) + ("\n" if lines else "")

    def _round_params(self) -> None:
        """Params as numbers of their types: they arrive in 64 bits."""
        for param in params_to_round(self.sketch):
            name = self.out.name(param.name)
            self.out.comment(f"{param.name} is of type {param.dtype.value}.")
            self.out.line(f"{name} = {self.out.rounded(Code(name), param.dtype)};")

    def _let(self, let: ir.Let) -> None:
        kind = {DType.I64: "int64_t", DType.BOOL: "bool"}.get(let.dtype, "double")
        value = self.out.scalar(let.value)
        if kind == "double":
            value = CPP.call("static_cast<double>", value)
        self.out.line(f"[[maybe_unused]] const {kind} {identifier(let.name)} = {value};")

    def _contract(self) -> str:
        """What the function returns, for those who call it."""
        conditions = launch_conditions(self.sketch)
        returns = ["0 when done"]
        if "arena" in self.out.used:
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
        self.out.reserve("workspace", tensors, "1")
        for tensor in tensors:
            kind, name = self.out.kind(tensor.dtype), identifier(tensor.name)
            self.out.line(f"{kind} *const {name} = workspace.at<{kind}>({name}_place, 0);")

    def _streams(self, steps: tuple[nodes.Statement, ...]) -> None:
        """Which outputs are too large for the caches."""
        names = streamed_tensors(steps)
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
            self.out.line(f"{self.out.name(tensor.name)}[{variable}] = {value};")
            self.out.close()

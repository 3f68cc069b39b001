"""Prints the exported function of a kernel in C++ or a language like it: checks, host values, and
the launches of the phases."""

from __future__ import annotations

import textwrap
from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.launch.conditions import Kind, launch_conditions, launch_steps
from sketchc.lowering.abi import params_to_round, passed
from sketchc.lowering.c_source.abi import actual_extents, scalars
from sketchc.lowering.c_source.expressions import entry_name, identifier
from sketchc.lowering.c_source.printer import INDENT, Printer
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.nests import step_name
from sketchc.lowering.plan import Plan, Storage
from sketchc.lowering.precedence import CPP, Code
from sketchc.lowering.workspaces import shared_memory

#: Kinds of conditions that can be checked only after a `fetch` of the host.
_LATE = (Kind.FETCH, Kind.FETCHED)


@attrs.define
class HostPrinter(Printer, ABC):
    """Prints the exported function of a plan. A target prints the steps with their launches, and
    what must be there before them: memory that the phases share, and initial values."""

    plan: Plan = attrs.field(kw_only=True)

    @abstractmethod
    def launches(self) -> None:
        """Prints all that follows the checks."""

    @abstractmethod
    def fill(self, tensor: ir.Tensor, count: Code, value: Code) -> None:
        """Prints what gives all `count` elements of a tensor one value."""

    @property
    def sketch(self) -> ir.Sketch:
        """The sketch of the plan."""
        return self.plan.sketch

    def function(self) -> str:
        """The exported function with all phases."""
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
        self.launches()
        self.line("return 0;")
        constants = "".join(f"{INDENT}{line}\n" for line in constant_lines(self.sketch, self))
        above = f"{constants}\n" if constants else ""
        body = "\n".join(self.lines)
        return f"{self._contract()}{self._signature()}\n{{\n{above}{body}\n}}"

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

    def reserve(
        self, arena: str, items: Sequence[ir.Tensor] | Sequence[Storage], threads: str
    ) -> None:
        """An arena with memory for tensors or storages, once for each of `threads` threads."""
        self.line(f"{self.library('arena')} {arena};")
        self.placed(arena, items)
        self.open(f"if (!{arena}.allocate({threads}))")
        self.line("return -1;")
        self.close()

    def placed(self, layout: str, items: Sequence[ir.Tensor] | Sequence[Storage]) -> list[str]:
        """The names of the places of tensors or storages in a layout, which are defined here."""
        places = []
        for item in items:
            size = f"sizeof({self.kind(item.dtype)}), {{{self.room(item)}}}"
            places.append(f"{self.name(item.name)}_place")
            self.line(f"const int64_t {places[-1]} = {layout}.add({size});")
        return places

    def room(self, item: ir.Tensor | Storage) -> str:
        """The elements that a tensor or storage takes: factors, with commas between them."""
        return self.listed(item.extents)

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

    def _initial_values(self) -> None:
        for tensor in self.sketch.tensors:
            if tensor.initial is None:
                continue
            extents = [Code("1"), *(self.scalar(extent) for extent in tensor.extents)]
            while len(extents) > 1 and extents[0] == Code("1"):
                del extents[0]
            self.comment(f"{tensor.name} starts as {tensor.initial}.")
            value = self.number_literal(tensor.initial, tensor.dtype)
            self.fill(tensor, CPP.fold("*", extents), value)


def constant_lines(sketch: ir.Sketch, printer: Printer) -> list[str]:
    """The definitions of those constants of the sketch that a printer has named."""
    lines = []
    for constant in sketch.constants:
        if constant.name in printer.names:
            dtype = DType.F64 if constant.dtype.is_float else constant.dtype
            kind = "int64_t" if dtype.is_integer else printer.kind(dtype)
            text = printer.constant(constant.value, dtype)
            lines.append(f"constexpr {kind} {identifier(constant.name)} = {text};")
    return lines

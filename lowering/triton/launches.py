"""What the host does once its arguments are ready: loops, branches, scalar reads, launches."""

from __future__ import annotations

import re
from typing import assert_never

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.launch.conditions import (
    Condition,
    Kind,
    fetch_conditions,
    fetched_conditions,
    mentioned,
    refusal_text,
)
from sketchc.launch.index_width import power_text
from sketchc.lowering.launch_limits import bucket_limit, program_limit, programs
from sketchc.lowering.plan import PhasePlan, Plan, has_product
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.python_host import wrapping
from sketchc.lowering.python_host.names import Names
from sketchc.lowering.triton.atomics import needs_canonical_nan
from sketchc.lowering.triton.dialect import Dialect
from sketchc.lowering.triton.expressions import host_expression, is_literal
from sketchc.lowering.triton.kernel import KernelText
from sketchc.lowering.triton.tuning import launch_options


def dense_name(tensor: ir.Tensor, names: Names) -> str:
    """The wrapper's name for a tensor's row-major memory."""
    return names[f"{tensor.name}_dense"]


def refusal_line(sketch: ir.Sketch, condition: Condition, names: Names) -> str:
    """The statement that refuses a launch unless a condition holds."""
    text = _escaped(refusal_text(condition))
    shown = ", ".join(f"{name} = {{{names[name]}}}" for name in mentioned(sketch, condition))
    message = f'f"{text.replace("{", "{{").replace("}", "}}")} ({shown})"'
    if not shown or len(message) > wrapping.WIDTH - 10:
        message = f'"{text}"'
    return f"require({_holds(condition, names)}, {message})"


def width_lines(sketch: ir.Sketch, condition: Condition, names: Names) -> list[str]:
    """The statements that refuse a launch whose integers may leave 64 bits; a long sum is one of
    its own."""
    match condition.holds:
        case ir.Binary("<", total, ir.Literal(int(limit))) if (
            len(_holds(condition, names)) > wrapping.WIDTH - 20
        ):
            name = names.fresh("largest")
            text = _escaped(refusal_text(condition))
            return [
                f"{name} = {host_expression(total, names)}",
                f'require({name} < {power_text(limit)}, "{text}")',
            ]
        case _:
            return [refusal_line(sketch, condition, names)]


def _holds(condition: Condition, names: Names) -> str:
    match condition:
        case Condition(
            kind=Kind.WIDTH | Kind.FETCHED,
            holds=ir.Binary(left=total, right=ir.Literal(int(limit))),
        ):
            return f"{host_expression(total, names)} < {power_text(limit)}"
        case _:
            return str(host_expression(condition.holds, names))


def _escaped(text: str) -> str:
    return text.replace(chr(34), chr(39))


@attrs.define
class HostEmitter:
    """Writes the host's steps; `lines` grows, `indent` is the current one."""

    plan: Plan
    dialect: Dialect
    names: Names
    kernels: tuple[KernelText, ...]
    lines: list[str] = attrs.field(factory=list)
    indent: str = "    "

    def line(self, text: str, deeper: str = "") -> None:
        self.lines += wrapping.statement(text, self.indent + deeper)

    def host(self, expression: ir.Expr) -> Code:
        return host_expression(expression, self.names)

    def dense(self, name: str) -> str:
        return dense_name(self.plan.sketch.tensor(name), self.names)

    def emit(self) -> list[str]:
        """All lines."""
        self._steps(self.plan.sketch.steps)
        return self.lines

    # ------------------------------------------------------------ steps

    def _steps(self, steps: tuple[ir.HostStep, ...]) -> None:
        for step in steps:
            match step:
                case ir.Launch(phase):
                    for kernel in self.kernels:
                        if kernel.phase.index == phase:
                            self._launch(kernel)
                case ir.HostFor():
                    self._loop(step)
                case ir.HostIf(condition, body, orelse, text):
                    self._comment(text)
                    self.line(f"if {self.host(condition)}:")
                    self._block(body)
                    if orelse:
                        self.line("else:")
                        self._block(orelse)
                case ir.Fetch():
                    self._fetch(step)
                case ir.Bind(name, value, text):
                    self._comment(text)
                    self.line(f"{self.names[name]} = {self.host(value)}")
                case _:
                    assert_never(step)

    def _comment(self, text: str) -> None:
        self.lines.append("")
        if text:
            self.lines += wrapping.comment(text, self.indent)

    def _block(self, body: tuple[ir.HostStep, ...]) -> None:
        outer, self.indent = self.indent, self.indent + "    "
        length = len(self.lines)
        self._steps(body)
        while length < len(self.lines) and not self.lines[length]:
            del self.lines[length]  # no blank line right behind the header
        if len(self.lines) == length:
            self.line("pass")
        self.indent = outer

    def _loop(self, loop: ir.HostFor) -> None:
        arguments = [str(self.host(loop.stop))]
        if not is_literal(loop.start, 0) or not is_literal(loop.step, 1):
            arguments.insert(0, str(self.host(loop.start)))
        if not is_literal(loop.step, 1):
            arguments.append(str(self.host(loop.step)))
        name = self.names[loop.variable]
        place = len(self.lines)
        self._block(loop.body)
        body, self.lines = self.lines[place:], self.lines[:place]
        if not any(re.search(rf"\b{name}\b", text.partition("#")[0]) for text in body):
            name = "_"  # it only counts
        header = f"for {name} in range({', '.join(arguments)}):"
        self._comment("" if loop.text == header else loop.text)
        self.line(header)
        self.lines += body

    def _fetch(self, fetch: ir.Fetch) -> None:
        """A scalar read; what was fetched before may point anywhere (R13)."""
        self._comment(fetch.text)
        for condition in fetch_conditions(self.plan.sketch).get(fetch.name, ()):
            self.line(refusal_line(self.plan.sketch, condition, self.names))
        offset: ir.Expr = ir.Literal(0)
        extents = self.plan.sketch.extents(fetch.access.tensor)
        for extent, subscript in zip(extents, fetch.access.subscripts, strict=True):
            assert isinstance(subscript, ir.ScalarSubscript)
            index = subscript.index
            if not is_literal(offset, 0):
                offset = ir.Binary("*", offset, extent)
            offset = index if is_literal(offset, 0) else ir.Binary("+", offset, index)
        elements = f"{self.dense(fetch.access.tensor)}.view(-1)[{self.host(offset)}]"
        self.line(f"{self.names[fetch.name]} = {elements}.item()")
        after = fetched_conditions(self.plan.sketch).get(fetch.name)
        if after is not None:
            for text in width_lines(self.plan.sketch, after, self.names):
                self.line(text)

    # ------------------------------------------------------------ launches

    def _launch(self, kernel: KernelText) -> None:
        self.lines.append("")
        for name, value in kernel.buckets:
            power = PYTHON.call("triton.next_power_of_2", self.host(value))
            least = 1
            if has_product(kernel.phase.body):
                # High enough for the depth of every matrix product.
                least = max(self.plan.capabilities.matrix_minimum.values(), default=1)
            self.line(f"{self.names[name]} = max({power}, {least})")
            limit = bucket_limit(self.plan, value)
            if limit is not None:
                self.line(refusal_line(self.plan.sketch, limit, self.names))
        self._host_scalars(kernel)
        self._canonical(kernel)
        if kernel.index_bound is not None:
            # Every index of the kernel, lanes that overshoot included, stays below this.
            self.lines += wrapping.comment(
                "No index of the kernel exceeds this, overshooting lanes included.", self.indent
            )
            self.line(f"index_bound = {kernel.index_bound}")
        self._programs(kernel.phase)
        self.line("if programs > 0:")
        deeper = "    "
        if self.dialect.device_guard:
            self.line(f"with {self.dialect.device_guard}({self.dense(kernel.tensors[0])}):", deeper)
            deeper += "    "
        grid = "(programs,)"
        if self.plan.capabilities.persistent_grid:
            grid = f"(min(programs, {self.plan.cores(kernel.phase)}),)"
        self.line(f"{kernel.name}[{grid}]({', '.join(self._call(kernel))})", deeper)

    def _programs(self, phase: PhasePlan) -> None:
        """How many programs a launch has, within what the target takes."""
        self.line(f"programs = {self.host(programs(self.plan, phase))}")
        limit = program_limit(self.plan, phase)
        if limit is not None:
            bits = self.plan.capabilities.program_bits
            message = f'f"{refusal_text(limit)}, not {{programs}}"'
            self.line(f"require(programs < 2**{bits}, {message})")

    def _host_scalars(self, kernel: KernelText) -> None:
        for name, value in kernel.hoisted:
            self.line(f"{self.names[name]} = {self.host(value)}")
        for name in sorted(kernel.in_memory):
            pointer, scalar = self.names[f"{name}_ptr"], self.names[name]
            call = f"torch.tensor([{scalar}], dtype=torch.float64, device=device)"
            self.line(f"{pointer} = {call}")

    def _canonical(self, kernel: KernelText) -> None:
        """NaN in the form that wins an atomic maximum or minimum, where some may be there."""
        sketch = self.plan.sketch
        stored = {
            sketch.tensor(s.access.tensor).name
            for s in walk.in_phases(sketch.phases)
            if isinstance(s, ir.Store)
        }
        forms: dict[str, str] = {}
        for statement in walk.statements(kernel.phase.body):
            if isinstance(statement, ir.Atomic) and needs_canonical_nan(statement, sketch):
                tensor = sketch.tensor(statement.access.tensor)
                if (
                    tensor.initial is None
                    or tensor.name in stored
                    or tensor.initial != tensor.initial
                ):
                    sign = "-" if statement.operation == "min" else ""
                    forms[tensor.name] = f'{sign}float("nan")'
        for name, nan in forms.items():
            dense = self.dense(name)
            self.line(f"{dense}.masked_fill_({dense}.isnan(), {nan})")

    def _call(self, kernel: KernelText) -> list[str]:
        arguments = [self.dense(name) for name in kernel.tensors]
        arguments += [
            f"{self.dense(name)}.view(torch.{kind})" for name, kind in kernel.bit_pointers
        ]
        for name, axis in kernel.strides:
            dense = self.dense(name)
            arguments.append(f"0 if {dense}.shape[{axis}] == 1 else {dense}.stride({axis})")
        for name in (*kernel.scalars, *(name for name, _ in kernel.hoisted)):
            argument = kernel.pointer_or_name(name)
            arguments.append(f"int({argument})" if name in kernel.truths else argument)
        for name in (*kernel.constants, *(name for name, _ in kernel.buckets)):
            arguments.append(f"{self.names[name]}={self.names[name]}")
        for name in kernel.given:
            arguments.append(f"{self.names.given(name)}={self.names.given(name)}")
        if kernel.index_bound is not None:
            arguments.append("INDEX=tl.int64 if index_bound >= 2**31 else tl.int32")
        if self.dialect.launch_options:
            arguments += launch_options(self.plan, kernel, self.names)
        return arguments

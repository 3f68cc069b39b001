"""The host wrapper: checks its arguments, makes them dense, picks widths and tuning, launches."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from sketchc import ir
from sketchc.lowering.plan import Plan
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.triton import layout
from sketchc.lowering.triton.bounds import never_negative
from sketchc.lowering.triton.dialect import TORCH, Dialect
from sketchc.lowering.triton.expressions import host_expression, literal, names_in
from sketchc.lowering.triton.kernel import KernelText, has_product
from sketchc.lowering.triton.scope import Names
from sketchc.lowering.triton.tuning import launch_options
from sketchc.symbolic import equal, show
from sketchc.types import DType

#: What every generated file defines for its wrapper.
HOST_HELPERS = '''\
class LaunchError(ValueError):
    """The arguments do not fit the kernel."""


def require(holds: bool, message: str) -> None:
    """Raise `LaunchError` unless `holds`."""
    if not holds:
        raise LaunchError(message)


def check_tensor(
    name: str,
    tensor: torch.Tensor,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    device: torch.device,
) -> None:
    """Raise `LaunchError` unless the tensor has this type and shape and lies on this device."""
    if tensor.dtype != dtype:
        require(False, f"{name} has type {tensor.dtype}; the kernel takes {dtype}")
    if tuple(tensor.shape) != shape:
        require(False, f"{name} has shape {tuple(tensor.shape)}; the kernel takes {shape}")
    if tensor.device != device:
        require(False, f"{name} is on {tensor.device}, other arguments on {device}")
'''

ROW_MAJOR_HELPER = '''\
def row_major(output: torch.Tensor) -> torch.Tensor:
    """The output itself where it is dense, else a dense buffer to copy back from."""
    if output.is_contiguous():
        return output
    return torch.empty_like(output, memory_format=torch.contiguous_format)
'''

OVERLAP_HELPER = '''\
def check_overlap(outputs: dict[str, torch.Tensor], inputs: dict[str, torch.Tensor]) -> None:
    """Raise `LaunchError` where an output shares memory with another argument."""
    spans = {}
    for name, tensor in (*outputs.items(), *inputs.items()):
        reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        start = tensor.data_ptr()
        stop = start + (reach + 1) * tensor.element_size() if tensor.numel() else start
        for other, (low, high) in spans.items():
            if (other in outputs or name in outputs) and start < high and low < stop:
                require(False, f"{name} overlaps {other} in memory")
        spans[name] = (start, stop)
'''


@attrs.define
class WrapperEmitter:
    """Writes the wrapper of one sketch."""

    plan: Plan
    dialect: Dialect
    names: Names
    kernels: tuple[KernelText, ...]
    lines: list[str] = attrs.field(factory=list)

    # ------------------------------------------------------------ pieces

    def line(self, text: str, indent: str = "    ") -> None:
        self.lines += layout.statement(text, indent)

    def host(self, expression: ir.Expr) -> Code:
        return host_expression(expression, self.names)

    def shape(self, tensor: ir.Tensor) -> str:
        """The expected shape as a tuple; a broadcast axis may have extent 1."""
        parts = []
        for axis, extent in enumerate(tensor.extents):
            code = str(self.host(extent))
            if tensor.broadcast and tensor.broadcast[axis]:
                name = self.names[tensor.name]
                code = f"1 if {name}.shape[{axis}] == 1 else {code}"
            parts.append(code)
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"

    def _by_role(self, *roles: ir.Role) -> list[ir.Tensor]:
        return [tensor for tensor in self.plan.sketch.tensors if tensor.role in roles]

    @property
    def inputs(self) -> list[ir.Tensor]:
        return self._by_role(ir.Role.IN, ir.Role.INOUT)

    @property
    def outputs(self) -> list[ir.Tensor]:
        return self._by_role(ir.Role.OUT)

    @property
    def results(self) -> list[ir.Tensor]:
        return self._by_role(ir.Role.OUT, ir.Role.INOUT)

    def _bound_symbols(self, tensors: Sequence[ir.Tensor]) -> set[str]:
        return {
            extent.name
            for tensor in tensors
            for axis, extent in enumerate(tensor.extents)
            if isinstance(extent, ir.Ref)
            and extent.kind is ir.NameKind.SYMBOL
            and not (tensor.broadcast and tensor.broadcast[axis])
        }

    @property
    def needs_out(self) -> bool:
        """True where the shapes or the device are known from the outputs only."""
        if not self.outputs:
            return False
        wanted = {symbol.name for symbol in self.plan.sketch.symbols}
        return not self.inputs or not wanted <= self._bound_symbols(self.inputs)

    # ------------------------------------------------------------ the whole

    def emit(self) -> list[str]:
        """All lines of the wrapper."""
        self._signature()
        self._bind_symbols()
        self._lets_and_requires()
        self._arguments()
        self._dense()
        for kernel in self.kernels:
            self._launch(kernel)
        for tensor in self.results:
            name, dense = self.names[tensor.name], self._dense_name(tensor)
            self.line(f"if {dense} is not {name}:")
            self.line(f"{name}.copy_({dense})", "        ")
        returned = ", ".join(self.names[tensor.name] for tensor in self.results)
        self.line(f"return {returned}")
        return self.lines

    def _signature(self) -> None:
        sketch = self.plan.sketch
        tensor_type = "torch.Tensor"
        parameters = [f"{self.names[tensor.name]}: {tensor_type}" for tensor in self.inputs]
        keywords = []
        for param in sketch.params:
            kind = "float" if param.dtype.is_float else "int"
            kind = "bool" if param.dtype is DType.BOOL else kind
            default = "" if param.default is None else f" = {literal(param.default)}"
            keywords.append(f"{self.names[param.name]}: {kind}{default}")
        if self.outputs:
            kind = "tuple[torch.Tensor, ...]" if len(self.outputs) > 1 else tensor_type
            keywords.append(f"out: {kind}" if self.needs_out else f"out: {kind} | None = None")
        parameters += ["*", *keywords] if keywords else []
        result = "tuple[torch.Tensor, ...]" if len(self.results) > 1 else tensor_type
        name = self.names[f"{sketch.name}"]
        one_line = f"def {name}({', '.join(parameters)}) -> {result}:"
        if len(one_line) <= layout.WIDTH:
            self.lines.append(one_line)
        else:
            self.lines.append(f"def {name}(")
            self.lines += [f"    {parameter}," for parameter in parameters]
            self.lines.append(f") -> {result}:")
        self._docstring()

    def _docstring(self) -> None:
        sketch = self.plan.sketch
        lines = [f'    """The sketch `{sketch.name}`.', ""]
        for tensor in (*self.inputs, *self.outputs):
            extents = ", ".join(show(extent) for extent in tensor.extents)
            text = f"{self.names[tensor.name]}: [{extents}] {tensor.dtype.value}"
            text += {ir.Role.INOUT: ", updated in place", ir.Role.OUT: ", returned"}.get(
                tensor.role, ""
            )
            lines.append(f"    {text}")
        if self.outputs:
            lines.append("    `out` takes the result's place where it is given.")
        lines += ["    Raises `LaunchError` for arguments that do not fit.", '    """']
        self.lines += lines

    def _bind_symbols(self) -> None:
        """Symbols from shapes, in call order; ranks are checked first."""
        given = [*self.inputs]
        if self.needs_out:
            self._unpack_out()
            given += self.outputs
        for tensor in given:
            name, rank = self.names[tensor.name], len(tensor.extents)
            extents = ", ".join(show(extent) for extent in tensor.extents)
            axes = "1 axis" if rank == 1 else f"{rank} axes"
            message = f'"{tensor.name} has {axes}: [{extents}]"'
            self.line(f"require({name}.dim() == {rank}, {message})")
        bound: set[str] = set()
        for tensor in given:
            names = [self._free_symbol(tensor, axis, bound) for axis in range(len(tensor.extents))]
            if all(names) and len(set(names)) == len(names):
                targets = ", ".join(self.names[n] for n in names if n)
                targets = f"({targets},)" if len(names) == 1 else targets
                self.line(f"{targets} = {self.names[tensor.name]}.shape")
                bound |= {n for n in names if n}
                continue
            for axis in range(len(names)):
                free = self._free_symbol(tensor, axis, bound)
                if free:
                    self.line(f"{self.names[free]} = {self.names[tensor.name]}.shape[{axis}]")
                    bound.add(free)
        for symbol in self.plan.sketch.symbols:
            if symbol.upper_bound is not None:
                name = self.names[symbol.name]
                text = f"{symbol.name} <= {symbol.upper_bound}"
                self.line(
                    f"require({name} <= {symbol.upper_bound}, "
                    f'f"the sketch needs {text}, not {{{name}}}")'
                )

    def _unpack_out(self) -> None:
        targets = ", ".join(self.names[tensor.name] for tensor in self.outputs)
        self.line(f"{targets} = out")

    def _free_symbol(self, tensor: ir.Tensor, axis: int, bound: set[str]) -> str | None:
        match tensor.extents[axis]:
            case ir.Ref(name, ir.NameKind.SYMBOL) if name not in bound:
                broadcast = bool(tensor.broadcast) and tensor.broadcast[axis]
                return None if broadcast else name
            case _:
                return None

    def _lets_and_requires(self) -> None:
        for let in self.plan.sketch.lets:
            for divisor in _divisors(let.value):
                self.line(f'require({self.host(divisor)} > 0, "{show(divisor)} must be positive")')
            for divisor in _divisors(let.value, ("/",)):
                self.line(f'require({self.host(divisor)} != 0, "{show(divisor)} must not be 0")')
            self.line(f"{self.names[let.name]} = {self.host(let.value)}")
        for condition in self.plan.sketch.requires:
            values = sorted(
                name
                for name in names_in(condition.condition)
                if name not in {c.name for c in self.plan.sketch.constants}
            )
            shown = ", ".join(f"{name} = {{{self.names[name]}}}" for name in values)
            text = condition.text.replace("{", "{{").replace("}", "}}").replace('"', "'")
            prefix = "f" if shown else ""
            tail = f" ({shown})" if shown else ""
            message = f'{prefix}"the sketch needs {text}{tail}"'
            self.line(f"require({self.host(condition.condition)}, {message})")

    def _arguments(self) -> None:
        """Types and shapes of what is given, outputs allocated, overlaps refused."""
        source = (self.inputs or self.outputs)[0]
        self.line(f"device = {self.names[source.name]}.device")
        for tensor in self.inputs:
            self._check(tensor)
        known: dict[str, bool] = {c.name: c.value >= 0 for c in self.plan.sketch.constants}
        for tensor in (*self.outputs, *self._by_role(ir.Role.WORKSPACE)):
            for extent in tensor.extents:
                if not never_negative(extent, known):
                    text = f'"the extent {show(extent)} of {tensor.name} is negative"'
                    self.line(f"require({self.host(extent)} >= 0, {text})")
        if self.needs_out:
            for tensor in self.outputs:
                self._check(tensor)
        elif self.outputs:
            self.line("if out is None:")
            for tensor in self.outputs:
                self._allocate(tensor, "torch.empty", "        ")
            self.line("else:")
            targets = ", ".join(self.names[tensor.name] for tensor in self.outputs)
            self.line(f"{targets} = out", "        ")
            for tensor in self.outputs:
                self._check(tensor, "        ")
        if len(self.results) and len(self.inputs) + len(self.outputs) > 1:
            outputs = ", ".join(f'"{t.name}": {self.names[t.name]}' for t in self.results)
            inputs = [t for t in self.inputs if t.role is ir.Role.IN]
            others = ", ".join(f'"{t.name}": {self.names[t.name]}' for t in inputs)
            call = f"check_overlap({{{outputs}}}, {{{others}}})"
            if self.needs_out or any(t.role is ir.Role.INOUT for t in self.results):
                self.line(call)
            else:
                self.line(call, "        ")

    def _check(self, tensor: ir.Tensor, indent: str = "    ") -> None:
        name, dtype = self.names[tensor.name], TORCH[tensor.dtype]
        shape = self.shape(tensor)
        self.line(f'check_tensor("{tensor.name}", {name}, {dtype}, {shape}, device)', indent)

    def _allocate(self, tensor: ir.Tensor, function: str, indent: str = "    ") -> None:
        shape = self.shape(tensor)
        call = f"{function}({shape}, dtype={TORCH[tensor.dtype]}, device=device)"
        self.line(f"{self.names[tensor.name]} = {call}", indent)

    def _dense_name(self, tensor: ir.Tensor) -> str:
        return self.names[f"{tensor.name}_dense"]

    def _dense(self) -> None:
        """Row-major copies where an argument is not; workspace; initial values."""
        for tensor in self.inputs:
            self.line(f"{self._dense_name(tensor)} = {self.names[tensor.name]}.contiguous()")
        for tensor in self.outputs:
            name, dense = self.names[tensor.name], self._dense_name(tensor)
            self.line(f"{dense} = row_major({name})")
        for tensor in self._by_role(ir.Role.WORKSPACE):
            self._allocate(tensor, "torch.empty")
            self.line(f"{self._dense_name(tensor)} = {self.names[tensor.name]}")
        for tensor in self.plan.sketch.tensors:
            if tensor.initial is not None:
                self.line(f"{self._dense_name(tensor)}.fill_({literal(tensor.initial)})")
        for view in self.plan.sketch.views:
            base = self.plan.sketch.tensor(view.base)
            if not equal(_product(view.extents), _product(base.extents)):
                size = self.host(_product(view.extents))
                text = f'"the view {view.name} has another number of elements than {base.name}"'
                self.line(f"require({size} == {self._dense_name(base)}.numel(), {text})")

    # ------------------------------------------------------------ launches

    def _launch(self, kernel: KernelText) -> None:
        known: dict[str, bool] = {c.name: c.value >= 0 for c in self.plan.sketch.constants}
        counts = []
        for axis in kernel.phase.grid:
            code = self.host(axis.count)
            if not never_negative(axis.count, known):
                code = PYTHON.call("max", code, "0")
            counts.append(code)
        programs = PYTHON.fold("*", counts) if counts else Code("1")
        self.lines.append("")
        for name, value in kernel.buckets:
            power = PYTHON.call("triton.next_power_of_2", self.host(value))
            least = 1
            if has_product(kernel.phase):
                # High enough for the depth of every matrix product.
                least = max(self.plan.capabilities.matrix_minimum.values(), default=1)
            self.line(f"{self.names[name]} = max({power}, {least})")
            limit = self.plan.capabilities.maximum_elements
            if not self._bounded(value, limit):
                text = f'"{show(value)} is too large for a tile"'
                self.line(f"require({self.names[name]} <= {limit}, {text})")
        self._host_scalars(kernel)
        if kernel.index_bound is not None:
            # Every index of the kernel, lanes that overshoot included, stays below this.
            self.lines.append(
                "    # No index of the kernel exceeds this, overshooting lanes included."
            )
            self.line(f"index_bound = {kernel.index_bound}")
        self.line(f"programs = {programs}")
        self.line('require(programs < 2**31, "too many programs for one launch")')
        self.line("if programs > 0:")
        indent = "        "
        if self.dialect.device_guard:
            first = self._dense_name(self.plan.sketch.tensor(kernel.tensors[0]))
            self.line(f"with {self.dialect.device_guard}({first}):", indent)
            indent += "    "
        grid = "(programs,)"
        if self.plan.capabilities.persistent_grid:
            grid = f"(min(programs, {_cores(self.plan, kernel)}),)"
        self.line(f"{kernel.name}[{grid}]({', '.join(self._call(kernel))})", indent)

    def _bounded(self, expression: ir.Expr, limit: int) -> bool:
        bounds = {s.name: s.upper_bound for s in self.plan.sketch.symbols}
        match expression:
            case ir.Ref(name):
                bound = bounds.get(name)
                return bound is not None and bound <= limit
            case _:
                return False

    def _host_scalars(self, kernel: KernelText) -> None:
        for name, value in kernel.hoisted:
            self.line(f"{self.names[name]} = {self.host(value)}")
        for name in sorted(kernel.in_memory):
            pointer, scalar = self.names[f"{name}_ptr"], self.names[name]
            call = f"torch.tensor([{scalar}], dtype=torch.float64, device=device)"
            self.line(f"{pointer} = {call}")

    def _call(self, kernel: KernelText) -> list[str]:
        sketch = self.plan.sketch
        arguments = [self._dense_name(sketch.tensor(name)) for name in kernel.tensors]
        for name, axis in kernel.strides:
            dense = self._dense_name(sketch.tensor(name))
            arguments.append(f"0 if {dense}.shape[{axis}] == 1 else {dense}.stride({axis})")
        for name in (*kernel.scalars, *(name for name, _ in kernel.hoisted)):
            arguments.append(kernel.pointer_or_name(name))
        for name in (*kernel.constants, *(name for name, _ in kernel.buckets)):
            arguments.append(f"{self.names[name]}={self.names[name]}")
        if kernel.index_bound is not None:
            arguments.append("INDEX=tl.int64 if index_bound >= 2**31 else tl.int32")
        if self.dialect.launch_options:
            arguments += launch_options(self.plan, kernel, self.names)
        return arguments


def _cores(plan: Plan, kernel: KernelText) -> int:
    return plan.hardware.matrix_cores if has_product(kernel.phase) else plan.hardware.cores


def _product(extents: tuple[ir.Expr, ...]) -> ir.Expr:
    total: ir.Expr = ir.Literal(1)
    for extent in extents:
        total = ir.Binary("*", total, extent)
    return total


_INTEGER = ("//", "%", "cdiv")


def _divisors(expression: ir.Expr, operators: tuple[str, ...] = _INTEGER) -> list[ir.Expr]:
    """Divisors by one of these operators in a host expression that are not literals."""
    match expression:
        case ir.Unary(_, operand):
            return _divisors(operand, operators)
        case ir.Binary(operator, left, right):
            found = _divisors(left, operators) + _divisors(right, operators)
            if operator in operators and not isinstance(right, ir.Literal):
                found.append(right)
            return found
        case ir.Function(_, arguments):
            return [divisor for argument in arguments for divisor in _divisors(argument, operators)]
        case _:
            return []

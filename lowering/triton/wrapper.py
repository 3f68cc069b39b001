"""The host wrapper: checks its arguments, makes them dense, picks widths and tuning, launches."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from sketchc.base.types import FORMATS, DType
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.launch.conditions import Condition, Kind, launch_steps, may_repeat, solved_sizes
from sketchc.launch.symbol_sources import SymbolSource, sources_of
from sketchc.lowering.param_types import params_to_round
from sketchc.lowering.plan import Plan
from sketchc.lowering.precedence import Code
from sketchc.lowering.python_host import wrapping
from sketchc.lowering.python_host.names import TORCH, Names, literal
from sketchc.lowering.triton.dialect import Dialect
from sketchc.lowering.triton.expressions import host_expression
from sketchc.lowering.triton.kernel import KernelText
from sketchc.lowering.triton.launches import HostEmitter, dense_name, refusal_line, width_lines

#: What every generated file defines for its wrapper.
HOST_HELPERS = '''\
class LaunchError(ValueError):
    """The arguments do not fit the kernel."""


def require(holds: bool, message: str) -> None:
    """Raise `LaunchError` unless `holds`."""
    if not holds:
        raise LaunchError(message)


def check_elements(name: str, shape: tuple[int, ...]) -> None:
    """Raise `LaunchError` for more elements than memory has, an extent of 0 counted as 1."""
    elements = 1
    for extent in shape:
        elements *= max(extent, 1)
    require(elements < 2**48, f"{name} of shape {shape} is too large")


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
    check_elements(name, shape)
'''

ALLOCATE_HELPER = '''\
def allocate(
    name: str, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A new tensor. Raise `LaunchError` for a shape that no memory holds."""
    check_elements(name, shape)
    return torch.empty(shape, dtype=dtype, device=device)
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


ELEMENT_HELPER = '''\
def with_an_element(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a substitute for one without elements: void lanes read at its start."""
    return tensor if tensor.numel() else tensor.new_zeros(1)
'''


ABSENT_HELPER = '''\
def absent(dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """What a kernel takes in place of a tensor that is not given; it is never read."""
    return torch.empty(1, dtype=dtype, device=device)
'''

PLAIN_HELPER = '''\
def plain(value: object) -> object:
    """The Python number that a scalar of NumPy or PyTorch is; anything else as it is."""
    try:
        return value.item()
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return value
'''

NUMBER_HELPER = '''\
def check_number(name: str, value: object) -> float:
    """The float that an argument is. Raise `LaunchError` for what is no number."""
    number = plain(value)
    require(isinstance(number, int | float), f"{name} = {value!r} is no number")
    fits = isinstance(number, float) or abs(number) < 2**1024 - 2**970
    require(fits, f"{name} = {value!r} is no float")
    return float(number)
'''

INTEGER_HELPER = '''\
def check_integer(name: str, value: object) -> int:
    """The integer that an argument is; a bool is 0 or 1. Raise `LaunchError` for anything else, and
    for more than 64 bits."""
    number = plain(value)
    require(isinstance(number, int), f"{name} = {value!r} is no integer")
    require(-(2**63) <= number < 2**63, f"{name} = {value!r} does not fit 64 bits")
    return int(number)
'''

BOOL_HELPER = '''\
def check_bool(name: str, value: object) -> bool:
    """The bool that an argument is, also as 0 or 1. Raise `LaunchError` for anything else."""
    number = plain(value)
    require(isinstance(number, int) and 0 <= number <= 1, f"{name} = {value!r} is no bool")
    return bool(number)
'''

#: What a float param narrower than f64 means: significant bits, smallest exponent, limit.
ROUNDED_HELPER = '''\
def rounded(value: float, bits: int, least: int, limit: float) -> float:
    """The nearest number of `bits` significant bits that is a multiple of 2**least."""
    if not 0 < abs(value) < math.inf:
        return value
    unit = max(math.frexp(value)[1] - bits, least)
    within = abs(value) < limit
    nearest = math.ldexp(round(math.ldexp(value, -unit)), unit) if within else math.inf
    return math.copysign(nearest if abs(nearest) < limit else math.inf, value)
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
        self.lines += wrapping.statement(text, indent)

    def host(self, expression: ir.Expr) -> Code:
        return host_expression(expression, self.names)

    def shape(self, tensor: ir.Tensor) -> str:
        """The expected shape as a tuple; a broadcast axis may have extent 1."""
        parts = []
        for axis, extent in enumerate(tensor.extents):
            code = str(self.host(extent))
            if may_repeat(self.plan.sketch, tensor, axis):
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

    @property
    def needs_out(self) -> bool:
        """True where the device may be known from the outputs only."""
        return bool(self.outputs) and all(tensor.optional for tensor in self.inputs)

    # ------------------------------------------------------------ the whole

    def emit(self) -> list[str]:
        """All lines of the wrapper."""
        self._signature()
        self._check_params()
        self._round_params()
        self._bind_symbols()
        self._launch_steps()
        self._arguments()
        self._dense()
        self.lines += HostEmitter(self.plan, self.dialect, self.names, self.kernels).emit()
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
        parameters = []
        last = max((i for i, t in enumerate(self.inputs) if not t.optional), default=-1)
        for index, tensor in enumerate(self.inputs):
            kind = f"{tensor_type} | None" if tensor.optional else tensor_type
            kind += " = None" if index > last else ""
            parameters.append(f"{self.names[tensor.name]}: {kind}")
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
        if len(one_line) <= wrapping.WIDTH:
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
            text += " or None" if tensor.optional else ""
            text += {ir.Role.INOUT: ", updated in place", ir.Role.OUT: ", returned"}.get(
                tensor.role, ""
            )
            lines.append(f"    {text}")
        if self.outputs:
            lines.append("    `out` takes the result's place where it is given.")
        lines += ["    Raises `LaunchError` for arguments that do not fit.", '    """']
        self.lines += lines

    def _check_params(self) -> None:
        """Params as Python's numbers, so that no check below meets anything else."""
        for param in self.plan.sketch.params:
            name, dtype = self.names[param.name], param.dtype
            check = "check_number" if dtype.is_float else "check_integer"
            check = "check_bool" if dtype is DType.BOOL else check
            self.line(f'{name} = {check}("{param.name}", {name})')

    def _round_params(self) -> None:
        """Params as numbers of their types: a host computes with more digits."""
        for param in params_to_round(self.plan.sketch):
            name = self.names[param.name]
            bits, least, limit = FORMATS[param.dtype]
            self.lines += wrapping.comment(f"{param.name} is of type {param.dtype.value}.", "    ")
            self.line(f"{name} = rounded({name}, {bits}, {least}, 2.0**{limit})")

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
            holds = f"{name}.dim() == {rank}"
            if tensor.optional:
                self.line(f"{self.names.given(tensor.name)} = {name} is not None")
                holds = f"{name} is None or {holds}"
            self.line(f"require({holds}, {message})")
        bound: set[str] = set()
        for tensor in given:
            if tensor.optional or not tensor.extents:
                continue
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
        for wanted, sources in sources_of(self.plan.sketch).items():
            if wanted not in bound:
                self._solve(wanted, sources)

    def _solve(self, symbol: str, sources: Sequence[SymbolSource]) -> None:
        """A symbol that stands by itself in no input that is always given."""
        value = "0"
        for source in reversed(sources):
            name = self.names[source.tensor.name]
            size = f"{name}.shape[{source.axis}]"
            if source.offset != ir.Literal(0):
                size = f"({size} - ({self.host(source.offset)}))"
            size += f" // {source.step}" if source.step > 1 else ""
            value = f"{size} if {name} is not None else {value}" if source.tensor.optional else size
        self.line(f"{self.names[symbol]} = {value}")

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

    def _launch_steps(self) -> None:
        """The conditions of the launch, and host values as soon as they are sure to have one."""
        for step in launch_steps(self.plan.sketch):
            match step:
                case ir.Let():
                    self.line(f"{self.names[step.name]} = {self.host(step.value)}")
                case Condition(kind=Kind.REPEAT | Kind.ELEMENTS):
                    pass  # `check_tensor` looks at shapes
                case Condition(kind=Kind.WIDTH):
                    for text in width_lines(self.plan.sketch, step, self.names):
                        self.line(text)
                case Condition():
                    sketch = self.plan.sketch
                    told = solved_sizes(sketch, step) if step.kind is Kind.SIZE else step
                    if told is not None:
                        self.line(refusal_line(sketch, told, self.names))

    def _arguments(self) -> None:
        """Types and shapes of what is given, outputs allocated, overlaps refused."""
        source = next(t for t in (*self.inputs, *self.outputs) if not t.optional)
        self.line(f"device = {self.names[source.name]}.device")
        for tensor in self.inputs:
            self._check(tensor)
        if self.needs_out:
            for tensor in self.outputs:
                self._check(tensor)
        elif self.outputs:
            self.line("if out is None:")
            for tensor in self.outputs:
                self._allocate(tensor, "        ")
            self.line("else:")
            targets = ", ".join(self.names[tensor.name] for tensor in self.outputs)
            self.line(f"{targets} = out", "        ")
            for tensor in self.outputs:
                self._check(tensor, "        ")
        if len(self.results) and len(self.inputs) + len(self.outputs) > 1:
            outputs = ", ".join(f'"{t.name}": {self.names[t.name]}' for t in self.results)
            inputs = [t for t in self.inputs if t.role is ir.Role.IN]
            others = ", ".join(self._entry(t) for t in inputs)
            call = f"check_overlap({{{outputs}}}, {{{others}}})"
            if self.needs_out or any(t.role is ir.Role.INOUT for t in self.results):
                self.line(call)
            else:
                self.line(call, "        ")

    def _check(self, tensor: ir.Tensor, indent: str = "    ") -> None:
        name, dtype = self.names[tensor.name], TORCH[tensor.dtype]
        shape = self.shape(tensor)
        if tensor.optional:
            self.line(f"if {self.names.given(tensor.name)}:", indent)
            indent += "    "
        self.line(f'check_tensor("{tensor.name}", {name}, {dtype}, {shape}, device)', indent)

    def _entry(self, tensor: ir.Tensor) -> str:
        """One item of a dictionary of tensors by name."""
        item = f'"{tensor.name}": {self.names[tensor.name]}'
        if not tensor.optional:
            return item
        return f"**({{{item}}} if {self.names.given(tensor.name)} else {{}})"

    def _allocate(self, tensor: ir.Tensor, indent: str = "    ") -> None:
        shape = self.shape(tensor)
        call = f'allocate("{tensor.name}", {shape}, {TORCH[tensor.dtype]}, device)'
        self.line(f"{self.names[tensor.name]} = {call}", indent)

    def _dense_name(self, tensor: ir.Tensor) -> str:
        return dense_name(tensor, self.names)

    def _dense(self) -> None:
        """Row-major copies where an argument is not; workspace; initial values."""
        for tensor in self.inputs:
            dense = f"{self.names[tensor.name]}.contiguous()"
            if tensor.optional:
                absent = f"absent({TORCH[tensor.dtype]}, device)"
                dense = f"{dense} if {self.names.given(tensor.name)} else {absent}"
            self.line(f"{self._dense_name(tensor)} = {dense}")
        for tensor in self.outputs:
            name, dense = self.names[tensor.name], self._dense_name(tensor)
            self.line(f"{dense} = row_major({name})")
        for tensor in self._by_role(ir.Role.WORKSPACE):
            self._allocate(tensor)
            self.line(f"{self._dense_name(tensor)} = {self.names[tensor.name]}")
        for tensor in self.plan.sketch.tensors:
            if tensor.initial is not None:
                self.line(f"{self._dense_name(tensor)}.fill_({literal(tensor.initial)})")
        anyway = {name for kernel in self.kernels for name in kernel.read_anyway}
        for tensor in self.plan.sketch.tensors:
            if tensor.name in anyway:
                dense = self._dense_name(tensor)
                self.line(f"{dense} = with_an_element({dense})")

"""The host wrapper: checks its arguments, makes them dense, loops and branches, and launches.

What follows from types, shapes, devices and params alone is found out once for arguments of a kind:
checks, sizes, numbers of programs. A later call of that kind finds these in a plan.
A subclass of `Wrapper` writes the launches of one DSL.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import assert_never

import attrs

from sketchc.base.types import FORMATS, DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import range_arguments, show
from sketchc.ir.symbolic import product
from sketchc.launch.conditions import (
    Condition,
    Kind,
    fetch_conditions,
    fetched_conditions,
    launch_steps,
    may_repeat,
    mentioned,
    refusal_text,
    solved_sizes,
)
from sketchc.launch.index_width import power_text
from sketchc.launch.inputs import sources_of
from sketchc.launch.magnitudes import never_negative
from sketchc.lowering.abi import out_required, params_to_round
from sketchc.lowering.kernel import Kernel, LibraryPart
from sketchc.lowering.plan import PhasePlan, Plan
from sketchc.lowering.python_host.abi import described, signature
from sketchc.lowering.python_host.expressions import TORCH, Host, Names, is_literal, literal
from sketchc.lowering.python_host.wrapping import WIDTH, PythonLines, loaded, stored
from sketchc.lowering.workspaces import shared_memory


@attrs.define
class Wrapper(Host, PythonLines, ABC):
    """Writes the wrapper of one sketch.

    `read_anyway` names tensors that kernels read even at lanes that have no element.
    """

    plan: Plan = attrs.field(kw_only=True)
    read_anyway: Collection[str] = attrs.field(default=(), kw_only=True)
    #: Lines that run once for arguments of a kind.
    _once: list[str] = attrs.field(factory=list, init=False)
    _used_names: set[str] = attrs.field(factory=set, init=False)
    _inputs: list[ir.Tensor] = attrs.field(init=False)
    _outputs: list[ir.Tensor] = attrs.field(init=False)
    _results: list[ir.Tensor] = attrs.field(init=False)

    @abstractmethod
    def launch(self, phase: int) -> None:
        """Write the launches of the phase with this number."""

    # ------------------------------------------------------------ pieces

    def dense(self, name: str) -> str:
        """The name of the row-major memory of a tensor, or of the tensor under a view."""
        return self.names[f"{self.plan.sketch.tensor(name).name}_dense"]

    def refuse(self, condition: Condition) -> None:
        """Write the check that refuses the launch unless a condition holds."""
        text = refusal_text(condition).replace('"', "'")
        names = mentioned(self.plan.sketch, condition)
        shown = ", ".join(f"{name} = {{{self.names[name]}}}" for name in names)
        message = f'f"{text.replace("{", "{{").replace("}", "}}")} ({shown})"'
        if not shown or len(message) > WIDTH - len(self.indent) - 6:
            message = f'"{text}"'
        self.line(f"require({self._holds(condition)}, {message})")

    def _refuse_width(self, condition: Condition) -> None:
        """Write the check that integers stay within 64 bits; a long sum gets a line of its own."""
        match condition.holds:
            case ir.Binary("<", total, ir.Literal(int(limit))) if (
                len(self._holds(condition)) > WIDTH - 20
            ):
                name = self.names.fresh("largest")
                text = refusal_text(condition).replace('"', "'")
                self.line(f"{name} = {self.expression(total)}")
                self.line(f'require({name} < {power_text(limit)}, "{text}")')
            case _:
                self.refuse(condition)

    def _holds(self, condition: Condition) -> str:
        match condition:
            case Condition(
                kind=Kind.WIDTH | Kind.FETCHED,
                holds=ir.Binary(left=total, right=ir.Literal(int(limit))),
            ):
                return f"{self.expression(total)} < {power_text(limit)}"
            case _:
                return str(self.expression(condition.holds))

    def _shape(self, tensor: ir.Tensor) -> str:
        """The expected shape as a tuple; a broadcast axis may have extent 1."""
        parts = []
        for axis, extent in enumerate(tensor.extents):
            code = str(self.expression(extent))
            if may_repeat(self.plan.sketch, tensor, axis):
                name = self.names[tensor.name]
                code = f"1 if {name}.shape[{axis}] == 1 else {code}"
            parts.append(code)
        return _tuple(parts)

    def _by_role(self, *roles: ir.Role) -> list[ir.Tensor]:
        return [tensor for tensor in self.plan.sketch.tensors if tensor.role in roles]

    def __attrs_post_init__(self) -> None:
        self._inputs = self._by_role(ir.Role.IN, ir.Role.INOUT)
        self._outputs = self._by_role(ir.Role.OUT)
        self._results = self._by_role(ir.Role.OUT, ir.Role.INOUT)

    # ------------------------------------------------------------ the whole

    def emit(self) -> list[str]:
        """All lines of the wrapper."""
        self._signature()
        self._check_params()
        if out_required(self.plan.sketch):
            self._unpack_out()
        source = next(t for t in (*self._inputs, *self._outputs) if not t.optional)
        self.line(f"device = {self.names[source.name]}.device")
        with self._written_to(self._once, deeper="    "):
            self._bind_symbols()
            self._launch_conditions()
            self._check_arguments()
        every_time: list[str] = []
        with self._written_to(every_time):
            self._arguments()
            self._make_dense()
            self._steps(self.plan.sketch.steps)
            self._return()
        self._make_plan(every_time)
        self.lines += every_time
        return self.lines

    @contextmanager
    def _written_to(self, lines: list[str], deeper: str = "") -> Iterator[None]:
        """Lines written in this context are appended to `lines`."""
        outer, self.lines = self.lines, lines
        self.indent += deeper
        yield
        self.indent = self.indent.removesuffix(deeper)
        self.lines = outer

    def _return(self) -> None:
        for tensor in self._results:
            name, dense = self.names[tensor.name], self.dense(tensor.name)
            self.line(f"if {dense} is not {name}:")
            self.line(f"{name}.copy_({dense})", "    ")
        returned = ", ".join(self.names[tensor.name] for tensor in self._results)
        self.line(f"return {returned}")

    # ------------------------------------------------------------ plans

    def once(self, write: Callable[[], None]) -> None:
        """Have `write` write its lines among those that run once for arguments of a kind, or, where
        they need not run at each call, or need what may be new at each call, here."""
        lines: list[str] = []
        with self._written_to(lines):
            write()
        if self.indent != "    " or self.varying(lines):
            self.lines += lines
        else:
            with self._written_to(self._once, deeper="    "):
                write()

    def varying(self, lines: Sequence[str]) -> bool:
        """Whether these lines need what may be new at each call: a name that the host counts or
        fetches, or a param that plans are not made for, since none of their lines needs it."""
        sketch = self.plan.sketch
        names = {*walk.bound_names(walk.statements(sketch.schedule))}
        names |= {param.name for param in sketch.params}
        needed = loaded(lines) - loaded(self._once)
        return not needed.isdisjoint(self.names[name] for name in names)

    def _make_plan(self, every_time: Sequence[str]) -> None:
        """Write how a plan is found or made, of which the lines `every_time` need names."""
        sketch = self.plan.sketch
        tensors = {self.names[tensor.name] for tensor in sketch.tensors}
        needed = loaded(every_time)
        kept = {name: name for name in stored(self._once) if name in needed - tensors}
        kept |= {"launches": "{}"} if "launches" in needed else {}
        kinds = [self.call("kind_of", self.names[tensor.name]) for tensor in self._inputs]
        if out_required(sketch):
            kinds += [self.call("kind_of", self.names[tensor.name]) for tensor in self._outputs]
        elif self._outputs:
            kinds.append(self.call("kind_of", "out"))
        keyed = [p for p in sketch.params if self.names[p.name] in loaded(self._once)]
        for param in keyed:
            name = self.names[param.name]
            # As text, in which -0.0 is not 0.0, and NaN is NaN.
            kinds.append(f"{name}.hex()" if param.dtype.is_float else name)
        self.line(f"arguments = {_tuple(kinds)}")
        self.line("plan = PLANS.get(arguments)")
        self.line("if plan is None:")
        told = "with these params and arguments" if keyed else "with arguments"
        self.line(f"# The first call {told} of these types and shapes, on this device.", "    ")
        self.lines += self._once
        remembered = self.call("remembered", "PLANS", "arguments", _tuple(list(kept.values())))
        self.line(f"plan = {remembered}", "    ")
        if kept:
            self.line(f"{', '.join(kept) if len(kept) > 1 else _tuple([*kept])} = plan")

    def _signature(self) -> None:
        sketch = self.plan.sketch
        parameters, result = signature(sketch, self.names)
        name = self.names[sketch.name]
        one_line = f"def {name}({', '.join(parameters)}) -> {result}:"
        self.lines += [
            "#: What earlier calls have found out, by what their arguments are like.",
            "PLANS = {}",
            "",
            "",
        ]
        if len(one_line) <= WIDTH:
            self.lines.append(one_line)
        else:
            self.lines.append(f"def {name}(")
            self.lines += [f"    {parameter}," for parameter in parameters]
            self.lines.append(f") -> {result}:")
        self.lines += [f'    """The sketch `{sketch.name}`.', ""]
        for tensor in (*self._inputs, *self._outputs):
            self.lines.append(f"    {self.names[tensor.name]}: {described(tensor)}")
        if self._outputs:
            self.lines.append("    `out` takes the result's place where it is given.")
        self.lines += ["    Raises `LaunchError` for arguments that do not fit.", '    """']

    def _check_params(self) -> None:
        """Convert params to Python numbers, so that no check below meets anything else, and round
        them to their types: the host computes with more digits."""
        for param in self.plan.sketch.params:
            name, dtype = self.names[param.name], param.dtype
            check = "check_number" if dtype.is_float else "check_integer"
            check = "check_bool" if dtype is DType.BOOL else check
            checked = self.call(check, f'"{param.name}"', name)
            self.line(f"{name} = {checked}")
        for param in params_to_round(self.plan.sketch):
            name = self.names[param.name]
            bits, least, limit = FORMATS[param.dtype]
            self.comment(f"{param.name} is of type {param.dtype.value}.")
            nearest = self.call("rounded", name, bits, least, f"2.0**{limit}")
            self.line(f"{name} = {nearest}")

    # ------------------------------------------------------------ sizes

    def _bind_symbols(self) -> None:
        """Bind symbols from shapes, in call order; ranks are checked first."""
        given = [*self._inputs]
        if out_required(self.plan.sketch):
            given += self._outputs
        for tensor in given:
            name, rank = self.names[tensor.name], len(tensor.extents)
            axes = "1 axis" if rank == 1 else f"{rank} axes"
            holds = f"{name}.dim() == {rank}"
            if tensor.optional:
                self.line(f"{self.names.given(tensor.name)} = {name} is not None")
                holds = f"{name} is None or {holds}"
            self.line(f'require({holds}, "{tensor.name} has {axes}: {_extents(tensor)}")')
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
                self.line(f"{self.names[wanted]} = {self.solved(sources)}")

    def _unpack_out(self, deeper: str = "") -> None:
        targets = ", ".join(self.names[tensor.name] for tensor in self._outputs)
        self.line(f"{targets} = out", deeper)

    def _free_symbol(self, tensor: ir.Tensor, axis: int, bound: set[str]) -> str | None:
        match tensor.extents[axis]:
            case ir.Ref(name, ir.NameKind.SYMBOL) if name not in bound:
                broadcast = bool(tensor.broadcast) and tensor.broadcast[axis]
                return None if broadcast else name
            case _:
                return None

    def _launch_conditions(self) -> None:
        """Write the launch conditions, and each `let` once its value is sure to exist."""
        sketch = self.plan.sketch
        for step in launch_steps(sketch):
            match step:
                case ir.Let():
                    self.line(f"{self.names[step.name]} = {self.expression(step.value)}")
                case Condition(kind=Kind.REPEAT | Kind.ELEMENTS):
                    pass  # `check_tensor` looks at shapes
                case Condition(kind=Kind.WIDTH):
                    self._refuse_width(step)
                case Condition():
                    told = solved_sizes(sketch, step) if step.kind is Kind.SIZE else step
                    if told is not None:
                        self.refuse(told)

    # ------------------------------------------------------------ limits of the target
    # What a plan adds to the conditions of a launch. They concern one phase and are checked where
    # it is launched, for they may depend on what the host fetched or counts by then;
    # `sketchc/launch/conditions.py` has those of the sketch itself.

    def refuse_wide(self, value: ir.Expr) -> None:
        """Write the check that an axis with the extent `value` is no wider than a tile may be."""
        limit = self.plan.capabilities.maximum_elements
        bounds = self.plan.sketch.symbol_bounds
        bound = bounds.get(value.name) if isinstance(value, ir.Ref) else None
        if bound is None or bound > limit:
            holds = ir.Binary("<=", value, ir.Literal(limit))
            text = f"{show(value)} <= {limit}, the widest tile"
            self.refuse(Condition(Kind.BUCKET, holds, text))

    def own_name(self, wish: str) -> str:
        """`wish`, which no name of the sketch is, or one like it that this wrapper does not use."""
        name = walk.free_name(wish, self._used_names)
        self._used_names.add(name)
        return name if name == wish else self.names.fresh(name)

    def count_programs(self, phase: PhasePlan, programs: str) -> None:
        """Bind `programs`, the number of programs of a launch, and check the target's limit."""
        known = {c.name: c.value >= 0 for c in self.plan.sketch.constants}
        counts = [
            count if never_negative(count, known) else ir.Binary("max", count, ir.Literal(0))
            for count in (axis.count for axis in phase.grid)
        ]
        total = product(counts)
        self.line(f"{programs} = {self.expression(total)}")
        bits = self.plan.capabilities.program_bits
        if bits is not None:
            holds = ir.Binary("<", total, ir.Literal(2**bits))
            limit = Condition(Kind.PROGRAMS, holds, f"fewer than 2**{bits} programs")
            message = f'f"{refusal_text(limit)}, not {{{programs}}}"'
            self.line(f"require({programs} < 2**{bits}, {message})")

    # ------------------------------------------------------------ tensors

    def _check_arguments(self) -> None:
        """Check types and shapes of the arguments, and the sizes of what is to be allocated."""
        for tensor in self._inputs:
            self._check(tensor)
        if out_required(self.plan.sketch):
            for tensor in self._outputs:
                self._check(tensor)
        elif self._outputs:
            self.line("if out is None:")
            for tensor in self._outputs:
                self._check_size(tensor, "    ")
            self.line("else:")
            self._unpack_out("    ")
            for tensor in self._outputs:
                self._check(tensor, "    ")
        for tensor in self._by_role(ir.Role.WORKSPACE):
            if tensor.name not in shared_memory(self.plan.sketch):
                self._check_size(tensor)

    def _arguments(self) -> None:
        """Allocate outputs, or take those that are given; refuse overlaps."""
        given = out_required(self.plan.sketch)
        always = given or len(self._by_role(ir.Role.INOUT)) > 0
        checked = len(self._results) > 0 and len(self._inputs) + len(self._outputs) > 1
        if self._outputs and not given:
            self._take_outputs(several_lines=len(self._outputs) > 1 or (checked and not always))
        if checked:
            outputs = ", ".join(f'"{t.name}": {self.names[t.name]}' for t in self._results)
            others = ", ".join(self._entry(t) for t in self._by_role(ir.Role.IN))
            call = self.call("check_overlap", f"{{{outputs}}}", f"{{{others}}}")
            self.line(call, "" if always else "    ")

    def _take_outputs(self, *, several_lines: bool) -> None:
        """Allocate outputs that are not given."""
        first = self._outputs[0]
        line = f"{self.names[first.name]} = {self._empty(first)} if out is None else out"
        if not several_lines and len(self.indent) + len(line) <= WIDTH:
            self.line(line)
            return
        self.line("if out is None:")
        for tensor in self._outputs:
            self._allocate(tensor, "    ")
        self.line("else:")
        self._unpack_out("    ")

    def _check(self, tensor: ir.Tensor, deeper: str = "") -> None:
        name, dtype = self.names[tensor.name], TORCH[tensor.dtype]
        shape = self._shape(tensor)
        if tensor.optional:
            self.line(f"if {self.names.given(tensor.name)}:", deeper)
            deeper += "    "
        self.line(f'check_tensor("{tensor.name}", {name}, {dtype}, {shape}, device)', deeper)

    def _entry(self, tensor: ir.Tensor) -> str:
        """One item of a dictionary of tensors by name."""
        item = f'"{tensor.name}": {self.names[tensor.name]}'
        if not tensor.optional:
            return item
        return f"**({{{item}}} if {self.names.given(tensor.name)} else {{}})"

    def _check_size(self, tensor: ir.Tensor, deeper: str = "") -> None:
        """Refuse a shape that no memory holds."""
        call = self.call("check_elements", f'"{tensor.name}"', self._shape(tensor))
        self.line(call, deeper)

    def _allocate(self, tensor: ir.Tensor, deeper: str = "") -> None:
        self.line(f"{self.names[tensor.name]} = {self._empty(tensor)}", deeper)

    def _empty(self, tensor: ir.Tensor) -> str:
        kind = f"dtype={TORCH[tensor.dtype]}, device=device"
        return f"torch.empty({self._shape(tensor)}, {kind})"

    def _make_dense(self) -> None:
        """Copy arguments that are not row-major; allocate workspaces; set initial values."""
        for tensor in self._inputs:
            dense = f"{self.names[tensor.name]}.contiguous()"
            if tensor.optional:
                absent = self.call("absent", TORCH[tensor.dtype], "device")
                dense = f"{dense} if {self.names.given(tensor.name)} else {absent}"
            self.line(f"{self.dense(tensor.name)} = {dense}")
        for tensor in self._outputs:
            dense = self.call("row_major", self.names[tensor.name])
            self.line(f"{self.dense(tensor.name)} = {dense}")
        owners = shared_memory(self.plan.sketch)
        # Workspaces with memory of their own come first, before those that share it.
        spaces = self._by_role(ir.Role.WORKSPACE)
        for tensor in sorted(spaces, key=lambda tensor: tensor.name in owners):
            if tensor.name in owners:
                self.line(f"{self.dense(tensor.name)} = {self.dense(owners[tensor.name])}")
                continue
            self._allocate(tensor)
            self.line(f"{self.dense(tensor.name)} = {self.names[tensor.name]}")
        for tensor in self.plan.sketch.tensors:
            if tensor.initial is not None:
                self.line(f"{self.dense(tensor.name)}.fill_({literal(tensor.initial)})")
        for tensor in self.plan.sketch.tensors:
            if tensor.name in self.read_anyway:
                dense = self.dense(tensor.name)
                self.line(f"{dense} = {self.call('with_an_element', dense)}")

    # ------------------------------------------------------------ steps

    def _steps(self, steps: tuple[ir.HostStep, ...]) -> None:
        for step in steps:
            match step:
                case ir.Launch(phase):
                    self.launch(phase)
                case ir.HostFor():
                    self._loop(step)
                case ir.HostIf(condition, body, orelse, text=text):
                    self._apart(text)
                    self.line(f"if {self.expression(condition)}:")
                    self._block(body)
                    if orelse:
                        self.line("else:")
                        self._block(orelse)
                case ir.Fetch():
                    self._fetch(step)
                case ir.Bind(name, value, text=text):
                    self._apart(text)
                    self.line(f"{self.names[name]} = {self.expression(value)}")
                case _:
                    assert_never(step)

    def _apart(self, text: str) -> None:
        """Write a blank line, and the comment `text` below it."""
        self.lines.append("")
        self.comment(text)

    def _block(self, body: tuple[ir.HostStep, ...]) -> None:
        with self.block():
            self._steps(body)

    def _loop(self, loop: ir.HostFor) -> None:
        arguments = range_arguments(loop, self.expression)
        name = self.names[loop.variable]
        if not self._reads(loop.body, loop.variable):
            name = "_"  # the variable only counts
        header = f"for {name} in range({', '.join(arguments)}):"
        self._apart("" if loop.text == header else loop.text)
        self.line(header)
        self._block(loop.body)

    def _reads(self, body: tuple[ir.HostStep, ...], name: str) -> bool:
        """Whether steps, or a phase that they launch, use the host scalar `name`."""
        sketch, launched = self.plan.sketch, {phase.index for phase in self.plan.phases}
        for step in walk.statements(body):
            found = list(walk.expressions(step))
            match step:
                case ir.Launch(phase) if phase in launched and name in sketch.phases[phase].scalars:
                    return True
                case ir.Fetch() if step.name in fetched_conditions(sketch):
                    found.append(fetched_conditions(sketch)[step.name].holds)
            if any(name in walk.names(each) for each in found):
                return True
        return False

    def _fetch(self, fetch: ir.Fetch) -> None:
        """Write the read of a scalar; indices that depend on a fetch are checked first (R13)."""
        self._apart(fetch.text)
        for condition in fetch_conditions(self.plan.sketch).get(fetch.name, ()):
            self.refuse(condition)
        offset: ir.Expr = ir.Literal(0)
        extents = self.plan.sketch.extents(fetch.access.tensor)
        for extent, subscript in zip(extents, fetch.access.subscripts, strict=True):
            assert isinstance(subscript, ir.ScalarSubscript)
            index = subscript.index
            if not is_literal(offset, 0):
                offset = ir.Binary("*", offset, extent)
            offset = index if is_literal(offset, 0) else ir.Binary("+", offset, index)
        elements = f"{self.dense(fetch.access.tensor)}.view(-1)[{self.expression(offset)}]"
        self.line(f"{self.names[fetch.name]} = {elements}.item()")
        after = fetched_conditions(self.plan.sketch).get(fetch.name)
        if after is not None:
            self._refuse_width(after)


def _tuple(items: Sequence[str]) -> str:
    """A tuple of these items."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _extents(tensor: ir.Tensor) -> str:
    return f"[{', '.join(show(extent) for extent in tensor.extents)}]"


def python_kernel(
    wrapper: Wrapper,
    imports: list[str],
    functions: LibraryPart,
    kernels: Sequence[tuple[Sequence[str], Mapping[int, tuple[int, ...]]]],
) -> Kernel:
    """The file with this wrapper, the kernels that it launches and the device functions that those
    call; `imports` are the DSL's import lines. `kernels` has the lines of each kernel, and the
    lines of the sketch by line of the kernel, 1-based."""
    plan, names = wrapper.plan, wrapper.names
    host = "\n".join(wrapper.emit())
    helpers = wrapper.helpers()
    text = f"The sketch `{plan.sketch.name}` for {plan.target} on {plan.hardware.name}."
    head = [f'"""{text} Generated by sketchc."""', "", "from __future__ import annotations", ""]
    head += [line for name in wrapper.modules() for line in (f"import {name}", "")]
    sections = ["\n".join([*head, *imports, *_constants(plan, names)])]
    sections += [functions.text] if functions.text else []
    found: dict[int, tuple[int, ...]] = {}
    for lines, origins in kernels:
        start = sum(section.count("\n") + 3 for section in sections)
        found |= {start + line: numbers for line, numbers in origins.items()}
        sections.append("\n".join(lines))
    return Kernel(
        target=plan.target,
        hardware=plan.hardware.name,
        name=plan.sketch.name,
        entry=names[plan.sketch.name],
        language="python",
        source="\n\n\n".join([*sections, helpers.text, host]) + "\n",
        sketch=plan.sketch,
        source_map=tuple(sorted(found.items())),
        library=tuple(part for part in (functions, helpers) if part.text),
    )


def _constants(plan: Plan, names: Names) -> list[str]:
    """The compile-time constants, with where each value comes from."""
    origins = {"user": "set by the user", "plan": f"chosen for {plan.hardware.name}"}
    lines = []
    for constant in plan.sketch.constants:
        text = f"{names[constant.name]} = {literal(constant.value)}"
        notes = []
        if constant.chosen_by in origins:
            notes.append(origins[constant.chosen_by])
        if constant.choices:
            notes.append(f"one of {', '.join(str(choice) for choice in constant.choices)}")
        if notes and len(text) + len(", ".join(notes)) + 4 <= WIDTH:
            text += f"  # {', '.join(notes)}"
        lines.append(text)
    return ["", *lines] if lines else []

"""Prints a plan as NumPy: every launch is a nest of loops, every tile an array."""

from __future__ import annotations

import attrs

from sketchc.base.diagnostics import UsageError
from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.launch.conditions import launch_steps
from sketchc.launch.inputs import sources_of
from sketchc.lowering.kernel import Kernel
from sketchc.lowering.plan import PhasePlan, Plan
from sketchc.lowering.python_host import abi
from sketchc.lowering.toy.target import FORMULAS, TARGET
from sketchc.ops.table import OPS, identity_value

HEAD = '''"""The sketch `{name}` in NumPy, made by the toy target."""

from __future__ import annotations

import math
from math import inf, nan, sqrt

import numpy as np


class LaunchError(ValueError):
    """The arguments do not fit the kernel."""


def require(holds, message):
    if not holds:
        raise LaunchError(message)


def cdiv(a, b):
    return -(-a // b)


def lanes(shape, bounds):
    """The valid part of a tile: bounds are (lower, upper) by axis."""
    ends = [(max(low, 0), min(high, n)) for n, (low, high) in zip(shape, bounds)]
    return tuple(slice(low, max(high, low)) for low, high in ends)


def put(tile, bounds, value):
    place = lanes(tile.shape, bounds)
    tile[place] = np.broadcast_to(value, tile.shape)[place]


def valid(tile, bounds, identity):
    result = np.full_like(tile, identity)
    place = lanes(tile.shape, bounds)
    result[place] = tile[place]
    return result


def element_place(shape, bounds, index):
    """Where the valid lanes of a tile lie in the tensor; index holds integers and starts."""
    place, axes = [], iter(lanes(shape, bounds))
    for kind, start in index:
        if kind == "at":
            place.append(start)
        else:
            axis = next(axes)
            place.append(slice(start + axis.start, start + max(axis.stop, axis.start)))
    return tuple(place)


def load(tile, bounds, tensor, index):
    place = element_place(tile.shape, bounds, index)
    target = lanes(tile.shape, bounds)
    tile[target] = np.reshape(tensor[place], tile[target].shape)


def store(tile, bounds, tensor, index):
    place = element_place(tile.shape, bounds, index)
    tensor[place] = np.reshape(tile[lanes(tile.shape, bounds)], np.shape(tensor[place]))
'''
_TYPES = {"f32": "float32", "f64": "float64", "i32": "int32", "i64": "int64", "bool": "bool_"}


def emit(plan: Plan) -> Kernel:
    """The file for a finished plan. Raises `UsageError` for what this toy does not print."""
    entry = abi.entry(plan.sketch, TARGET.reserved)
    writer = _Writer(plan)
    writer.host(abi.declaration(plan.sketch, entry, TARGET.reserved))
    source = HEAD.format(name=plan.sketch.name) + "\n\n" + "\n".join(writer.lines) + "\n"
    names = (plan.target, plan.hardware.name, plan.sketch.name, entry, TARGET.language.name)
    return Kernel(*names, source, plan.sketch)


@attrs.define
class _Writer:
    plan: Plan
    lines: list[str] = attrs.field(factory=list)
    depth: int = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def host(self, declaration: str) -> None:
        """The function: sizes, conditions, outputs, launches."""
        sketch = self.plan.sketch
        if sketch.schedule or any(any(t.broadcast) for t in sketch.tensors):
            msg = "the toy target prints neither host loops nor repeated axes"
            raise UsageError(msg)
        self.lines += declaration.replace("torch.Tensor", "np.ndarray").split("\n")
        self.depth = 1
        outputs = [t for t in sketch.tensors if t.role is ir.Role.OUT]
        given = [t.name for t in sketch.tensors if t.role in (ir.Role.IN, ir.Role.INOUT)]
        foreign = f"not isinstance({given[0]}, np.ndarray)" if given else "False"
        self.line(f"foreign = {foreign}")
        for name in given:
            self.line(f"{name} = np.asarray({name})")
        for constant in sketch.constants:
            self.line(f"{constant.name} = {constant.value!r}")
        for symbol, sources in sources_of(sketch).items():
            source = next(s for s in sources if s.tensor.name in given)
            size = f"{source.tensor.name}.shape[{source.axis}]"
            self.line(f"{symbol} = ({size} - ({show(source.offset)})) // {source.step}")
        for tensor in sketch.tensors:
            if tensor.name in given:
                shape = "".join(f"{show(extent)}, " for extent in tensor.extents)
                self.line(f"require({tensor.name}.shape == ({shape}), '{tensor.name}: shape')")
        for step in launch_steps(sketch):
            if isinstance(step, ir.Let):
                self.line(f"{step.name} = {show(step.value)}")
            else:
                self.line(f"require({show(step.holds)}, {step.text!r})")
        for number, tensor in enumerate(t for t in sketch.tensors if t.name not in given):
            shape = "".join(f"{show(extent)}, " for extent in tensor.extents)
            made = f"np.empty(({shape}), np.{_TYPES[tensor.dtype.value]})"
            if tensor.role is ir.Role.OUT:
                one = "out" if len(outputs) == 1 else f"out[{number}]"
                made += f" if out is None else np.asarray({one})"
            self.line(f"{tensor.name} = {made}")
            if tensor.initial is not None:
                self.line(f"{tensor.name}.fill({tensor.initial})")
        for view in sketch.views:
            shape = "".join(f"{show(extent)}, " for extent in view.extents)
            self.line(f"{view.name} = {view.base}.reshape(({shape}))")
        self.line("with np.errstate(all='ignore'):")
        self.depth += 1
        for phase in self.plan.phases:
            self.launch(phase)
        self.depth -= 1
        results = [t.name for t in sketch.tensors if t.role in (ir.Role.OUT, ir.Role.INOUT)]
        self.line("if foreign:")
        self.line("    import torch")
        for name in results:
            self.line(f"    {name} = torch.from_numpy({name})")
        self.line(f"return {', '.join(results)}")

    def launch(self, phase: PhasePlan) -> None:
        outside = self.depth
        for axis in phase.grid:
            start, step, count = show(axis.start, 50), show(axis.step, 50), show(axis.count)
            self.line(f"for {axis.variable} in (({start}) + ({step}) * n for n in range({count})):")
            self.depth += 1
        self.block(phase.body)
        self.depth = outside

    def block(self, body: tuple[ir.Statement, ...]) -> None:
        self.line("pass")
        for statement in body:
            self.statement(statement)

    def statement(self, statement: ir.Statement) -> None:
        sketch = self.plan.sketch
        match statement:
            case ir.Alloc(tile=name):
                tile = sketch.tile(name)
                shape = "".join(f"{show(extent)}, " for extent in tile.extents)
                fill = 0 if tile.initial is None else tile.initial
                self.line(f"{name} = np.full(({shape}), {fill}, np.{_TYPES[tile.dtype.value]})")
            case ir.Load(access, tile, domain, None, guards=()):
                self.line(f"load({tile}, {self.bounds(tile, domain)}, {self.place(access)})")
            case ir.Store(tile, access, domain, guards=()):
                self.line(f"store({tile}, {self.bounds(tile, domain)}, {self.place(access)})")
            case ir.Compute():
                self.compute(statement)
            case ir.For(variable, start, stop, step, body):
                self.line(f"for {variable} in range({show(start)}, {show(stop)}, {show(step)}):")
                self.nested(body)
            case ir.If(condition, body, orelse):
                self.line(f"if {show(condition)}:")
                self.nested(body)
                self.line("else:")
                self.nested(orelse)
            case ir.Bind(name, value):
                self.line(f"{name} = {show(value)}")
            case _:
                msg = f"the toy target does not print `{getattr(statement, 'text', statement)}`"
                raise UsageError(msg)

    def nested(self, body: tuple[ir.Statement, ...]) -> None:
        self.depth += 1
        self.block(body)
        self.depth -= 1

    def compute(self, statement: ir.Compute) -> None:
        row = OPS[statement.operation]
        name, domain = statement.destination, statement.domain
        crossing = row.identity is not None or statement.operation == "gemm"
        values = []
        for operand in statement.operands:
            match operand:
                case ir.TileOperand(tile, valid, None):
                    text = tile
                    if crossing:
                        dtype = self.plan.sketch.tile(tile).dtype
                        identity = identity_value(row.identity or "zero", dtype)
                        text = f"valid({tile}, {self.bounds(tile, valid)}, {identity})"
                    values.append(text)
                case ir.ScalarOperand(value):
                    values.append(f"({show(value)})")
                case _:
                    msg = f"the toy target does not print the operands of `{statement.text}`"
                    raise UsageError(msg)
        attributes = dict(statement.attributes)
        for place, side in enumerate(("trans_a", "trans_b")):
            if attributes.get(side):
                values[place] += ".T"
        axes = attributes.get("axis")
        text = FORMULAS[statement.operation].format(*values, axis=axes)
        if row.identity is not None and statement.operation.startswith("reduce"):
            text = f"np.reshape({text}, {name}.shape)"
        if statement.operation == "gemm":
            text = f"{name} + {text}"
        self.line(f"put({name}, {self.bounds(name, domain)}, {text})")

    def bounds(self, tile: str, domain: ir.Domain) -> str:
        """The valid lanes of each axis: (lower, upper)."""
        parts = []
        for axis, extent in enumerate(self.plan.sketch.tile(tile).extents):
            limits = domain[axis] if domain else ir.FULL
            low = ", ".join(["0", *map(show, limits.lower)])
            high = ", ".join([show(extent), *map(show, limits.upper)])
            parts.append(f"(max({low}, 0), min({high}, 1 << 62)), ")
        return f"({''.join(parts)})"

    def place(self, access: ir.Access) -> str:
        """The tensor, and an index or the start of a slice for each of its axes."""
        parts = []
        for subscript in access.subscripts:
            match subscript:
                case ir.ScalarSubscript(index):
                    parts.append(f"('at', {show(index)}), ")
                case ir.SliceSubscript(lower, _, _, ir.Literal(1)):
                    parts.append(f"('from', {show(lower)}), ")
                case _:
                    msg = f"the toy target prints no such index of {access.tensor}"
                    raise UsageError(msg)
        return f"{access.tensor}, ({''.join(parts)})"

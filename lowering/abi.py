"""How a kernel's function is called: what each target's `abi` module offers, and shared helpers.

The rules stand in `lowering.kernel`; an `abi` module spells them out for one sketch.

A param arrives as the language of the host holds it, in 64 bits, and means its value rounded to the
type that the sketch declares, wherever it is read. A tile operation in f32 rounds an f32 param when
it takes it as an operand; any other use of a param takes the value that the host holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import expressions

_WIDTH = 98


class Abi(Protocol):
    """The functions of the module behind `Target.abi`. No name of a sketch becomes one of
    `reserved`, which is `Target.reserved`."""

    ABSENT: str  # what is passed for an optional tensor that is not there

    def entry(self, sketch: ir.Sketch, reserved: frozenset[str]) -> str:
        """The name of the kernel's function: the sketch's name, as the language allows it."""

    def declaration(self, sketch: ir.Sketch, entry: str, reserved: frozenset[str]) -> str:
        """The head of the function `entry`: its name, parameters and return type."""

    def spelled(self, sketch: ir.Sketch, reserved: frozenset[str]) -> dict[str, str]:
        """The parameter name of each tensor, by the tensor's name in the sketch."""

    def element(self, tensor: ir.Tensor) -> str:
        """The element type of a tensor, in words."""

    def actual_extents(self, sketch: ir.Sketch) -> tuple[tuple[str, ir.Tensor, int], ...]:
        """Parameters that say which extent an axis that may broadcast has: (name, tensor, axis)."""


def passed(sketch: ir.Sketch) -> list[ir.Tensor]:
    """The tensors that callers pass or receive: all but workspaces."""
    return [tensor for tensor in sketch.tensors if tensor.role is not ir.Role.WORKSPACE]


def out_required(sketch: ir.Sketch) -> bool:
    """True where callers must pass the outputs, since all other tensors are optional."""
    given = [t for t in sketch.tensors if t.role in (ir.Role.IN, ir.Role.INOUT)]
    outputs = any(t.role is ir.Role.OUT for t in sketch.tensors)
    return outputs and all(tensor.optional for tensor in given)


def wrapped(start: str, parameters: list[str], end: str) -> str:
    """The head of a function on one line where it fits, else one parameter a line."""
    line = f"{start}{', '.join(parameters)}{end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([start, *(f"    {p}," for p in parameters[:-1]), f"    {parameters[-1]}", end])


def params_to_round(sketch: ir.Sketch) -> tuple[ir.Param, ...]:
    """Float params below f64 that something other than f32 tile operations may read, in order."""
    wide = any(tile.dtype is DType.F64 for tile in sketch.tiles)
    read = {ref.name for value in _read(sketch) for ref in walk.references(value)}
    return tuple(
        param
        for param in sketch.params
        if param.dtype.is_float and param.dtype is not DType.F64
        if wide or param.dtype is not DType.F32 or param.name in read
    )


def _read(sketch: ir.Sketch) -> Iterator[ir.Expr]:
    """Every expression of the sketch, but names that are operands of `Compute`s by themselves."""
    yield from (let.value for let in sketch.lets)
    yield from (require.condition for require in sketch.requires)
    for step in walk.statements(sketch.schedule):
        yield from walk.expressions(step)
    for statement in walk.in_phases(sketch.phases):
        for value in expressions(statement):
            if not (isinstance(statement, ir.Compute) and isinstance(value, ir.Ref)):
                yield value

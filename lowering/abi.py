"""How a kernel's function is called: what every target's `abi` module answers, and what they share.

The rules stand in `lowering.kernel`; an `abi` module spells them out for one sketch.
"""

from __future__ import annotations

from typing import Protocol

from sketchc.ir import nodes as ir

_WIDTH = 98


class Abi(Protocol):
    """What the module behind `Target.abi` offers."""

    ABSENT: str  # what is passed for an optional tensor that is not there

    def entry(self, sketch: ir.Sketch) -> str:
        """The name of the function: the sketch's, as the language allows it."""

    def declaration(self, sketch: ir.Sketch, entry: str) -> str:
        """The head of the function."""

    def spelled(self, sketch: ir.Sketch) -> dict[str, str]:
        """The parameters' names of the tensors, by the sketch's."""

    def element(self, tensor: ir.Tensor) -> str:
        """The type of a tensor's elements in words."""

    def actual_extents(self, sketch: ir.Sketch) -> tuple[tuple[str, ir.Tensor, int], ...]:
        """Parameters that say which extent an axis that may broadcast has: (name, tensor, axis)."""


def passed(sketch: ir.Sketch) -> list[ir.Tensor]:
    """The tensors that callers know of."""
    return [tensor for tensor in sketch.tensors if tensor.role is not ir.Role.WORKSPACE]


def out_required(sketch: ir.Sketch) -> bool:
    """True where the device may be known from the outputs only."""
    given = [t for t in sketch.tensors if t.role in (ir.Role.IN, ir.Role.INOUT)]
    outputs = any(t.role is ir.Role.OUT for t in sketch.tensors)
    return outputs and all(tensor.optional for tensor in given)


def wrapped(start: str, parameters: list[str], end: str) -> str:
    """The head of a function on one line where it fits, else one parameter a line."""
    line = f"{start}{', '.join(parameters)}{end}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([start, *(f"    {p}," for p in parameters[:-1]), f"    {parameters[-1]}", end])

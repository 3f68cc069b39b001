"""How kernels of targets of documents are called: see `lowering.abi.Abi`. A runner passes tensors
and scalars by the names of the sketch; what the file that it takes looks like, documents say."""

from __future__ import annotations

from sketchc.ir import nodes as ir
from sketchc.lowering.abi import passed
from sketchc.lowering.c_source.abi import actual_extents

__all__ = ["ABSENT", "actual_extents", "declaration", "element", "entry", "spelled"]

ABSENT = "null"


def entry(sketch: ir.Sketch, reserved: frozenset[str]) -> str:
    """The name of the kernel: that of the sketch."""
    return sketch.name


def spelled(sketch: ir.Sketch, reserved: frozenset[str]) -> dict[str, str]:
    """The tensors' own names."""
    return {tensor.name: tensor.name for tensor in passed(sketch)}


def element(tensor: ir.Tensor) -> str:
    """The element type of a tensor, as in the sketch."""
    return tensor.dtype.value


def declaration(sketch: ir.Sketch, entry: str, reserved: frozenset[str]) -> str:
    """The names that a kernel is called with, in order."""
    names = [tensor.name for tensor in passed(sketch)]
    names += [symbol.name for symbol in sketch.symbols]
    names += [param.name for param in sketch.params]
    names += [name for name, _, _ in actual_extents(sketch)]
    return f"{entry}({', '.join(names)})"

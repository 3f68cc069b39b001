"""How the exported function of a C++ kernel is spelled: see `lowering.abi.Abi`."""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.launch.conditions import actual_extent
from sketchc.lowering.abi import passed, wrapped
from sketchc.lowering.c_source.expressions import entry_name, identifier

ABSENT = "nullptr"
#: Element types that C++ has no name for: their bits are passed.
_BITS = {DType.BF16: "uint16_t", DType.F16: "uint16_t"}


def entry(sketch: ir.Sketch, reserved: frozenset[str]) -> str:
    """The name of the exported function."""
    return entry_name(sketch.name, reserved)


def spelled(sketch: ir.Sketch, reserved: frozenset[str]) -> dict[str, str]:
    """The tensors' own names: callers of the C function pass tensors by position."""
    return {tensor.name: tensor.name for tensor in passed(sketch)}


def element(tensor: ir.Tensor) -> str:
    """The element type of a tensor in words; pointers to f16 and bf16 are to their 16 bits."""
    bits = " (the pointer is to its 16 bits)" if tensor.dtype in _BITS else ""
    return f"{tensor.dtype.value}{bits}"


def actual_extents(sketch: ir.Sketch) -> tuple[tuple[str, ir.Tensor, int], ...]:
    """The last parameters: an extent for each axis that may broadcast."""
    return tuple(
        (actual_extent(tensor.name, axis), tensor, axis)
        for tensor in sketch.tensors
        for axis, repeats in enumerate(tensor.broadcast)
        if repeats
    )


def scalars(sketch: ir.Sketch) -> list[tuple[str, str]]:
    """The scalar parameters, which follow the tensors: the type and name of each."""
    found = [("int64_t", symbol.name) for symbol in sketch.symbols]
    found += [("double" if p.dtype.is_float else "int64_t", p.name) for p in sketch.params]
    return [*found, *(("int64_t", name) for name, _, _ in actual_extents(sketch))]


def declaration(sketch: ir.Sketch, entry: str, reserved: frozenset[str]) -> str:
    """The head of the exported function."""
    parameters = []
    for tensor in passed(sketch):
        constant = "const " if tensor.role is ir.Role.IN else ""
        kind = _BITS.get(tensor.dtype) or tensor.dtype.cpp_name
        parameters.append(f"{constant}{kind} *{tensor.name}")
    parameters += [f"{kind} {identifier(name, reserved)}" for kind, name in scalars(sketch)]
    return wrapped(f'extern "C" int64_t {entry}(', parameters, ")")

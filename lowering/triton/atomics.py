"""Atomic updates and scalar reads of one kernel.

The extremum of floats is one of integers: bits with the sign 0 are ordered as the numbers are, bits
with the sign 1 the other way round, as unsigned numbers. NaN wins (R11) as the positive NaN in a
maximum and the negative one in a minimum: those are beyond the infinities in either order. What is
in memory before must have that form as well; the wrapper sees to it.
"""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.precedence import PYTHON, Code
from sketchc.lowering.triton.accesses import place
from sketchc.lowering.triton.dialect import TL
from sketchc.lowering.triton.memory import convert, loaded, target_lanes
from sketchc.lowering.triton.scope import Scope

#: The integers as wide as a float: signed, unsigned, the bits of NaN in a maximum and a minimum.
BITS: dict[DType, tuple[str, str, int, int]] = {
    DType.F32: ("tl.int32", "tl.uint32", 0x7FC00000, 0xFFC00000 - (1 << 32)),
    DType.F64: (
        "tl.int64",
        "tl.uint64",
        0x7FF8000000000000,
        0xFFF8000000000000 - (1 << 64),
    ),
}


def needs_canonical_nan(statement: ir.Atomic, sketch: ir.Sketch) -> bool:
    """True for an extremum of floats."""
    return statement.operation != "add" and sketch.tensor(statement.access.tensor).dtype.is_float


def atomic(statement: ir.Atomic, scope: Scope) -> list[tuple[Code | None, str]]:
    """Lines of code, each with the scalar condition that it stands under."""
    tensor = scope.plan.sketch.tensor(statement.access.tensor)
    tile = scope.plan.sketch.tile(statement.tile)
    value = convert(Code(scope.names[tile.name]), tile.dtype, tensor.dtype)
    function = f"tl.atomic_{statement.operation}"
    if not needs_canonical_nan(statement, scope.plan.sketch):
        address, mask = target_lanes(statement, scope)
        return [_update(function, address, value, mask, statement, scope)]
    if scope.dialect.float_extrema:
        address, mask = target_lanes(statement, scope)
        value = _canonical(value, statement.operation, tensor.dtype)
        return [_update(function, address, value, mask, statement, scope)]
    return _by_bits(statement, tensor, value, scope)


def _canonical(value: Code, operation: str, dtype: DType) -> Code:
    """The value with NaN in the form that wins."""
    signed, _, largest, smallest = BITS[dtype]
    nan = f"tl.full((), {largest if operation == 'max' else smallest}, {signed})"
    nan = f"{nan}.to({TL[dtype]}, bitcast=True)"
    return PYTHON.call("tl.where", PYTHON.binary("!=", value, value), nan, value)


def _update(
    function: str,
    address: Code,
    value: Code,
    mask: Code | None,
    statement: ir.Atomic,
    scope: Scope,
) -> tuple[Code | None, str]:
    arguments: list[Code | str] = [address, value]
    # The Ascend front end drops the mask of a scalar update.
    branch = mask is not None and scope.dialect.interval_masks and not scope.shape(statement.tile)
    if mask is not None and not branch:
        arguments.append(f"mask={mask}")
    if not scope.dialect.interval_masks:
        arguments.append('sem="relaxed"')
    return (mask if branch else None), str(PYTHON.call(function, *arguments))


def _by_bits(
    statement: ir.Atomic, tensor: ir.Tensor, value: Code, scope: Scope
) -> list[tuple[Code | None, str]]:
    """Two integer updates through pointers of those types, which the wrapper passes."""
    signed, unsigned, largest, smallest = BITS[tensor.dtype]
    bits = scope.names.fresh(f"{scope.names[statement.tile]}_bits")
    nan = largest if statement.operation == "max" else smallest
    raw = PYTHON.postfix(value, f".to({signed}, bitcast=True)")
    chosen = PYTHON.call("tl.where", PYTHON.binary("!=", value, value), str(nan), raw)
    lines: list[tuple[Code | None, str]] = [(None, f"{bits} = {chosen}")]
    other = {"max": "min", "min": "max"}[statement.operation]
    unsigned_bits = Code(f"{bits}.to({unsigned}, bitcast=True)")
    for kind, function, operand, sign in (
        (signed, statement.operation, Code(bits), ">="),
        (unsigned, other, unsigned_bits, "<"),
    ):
        pointer = scope.bit_pointer(tensor.name, kind.removeprefix("tl."))
        address, mask = target_lanes(statement, scope, pointer)
        own = PYTHON.binary(sign, Code(bits), Code("0"))
        mask = own if mask is None else PYTHON.binary("&", mask, own)
        lines.append(_update(f"tl.atomic_{function}", address, operand, mask, statement, scope))
    return lines


def fetch(statement: ir.Fetch, scope: Scope) -> Code:
    """A scalar of memory: i64, bool, or a float."""
    tensor = scope.plan.sketch.tensor(statement.access.tensor)
    # The subscripts may come from memory themselves: never outside of the tensor (R13).
    address = place(statement.access, None, scope).inside(scope.names[statement.name], scope)
    return convert(loaded([address], tensor.dtype, scope), tensor.dtype, statement.dtype)

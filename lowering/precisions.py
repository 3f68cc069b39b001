"""The precision class of a computation: which arithmetic of a chip does it."""

from __future__ import annotations

from sketchc.base.types import DType, promote
from sketchc.ir import nodes as ir
from sketchc.lowering.plan import Plan, is_product

#: The precision class of arithmetic in each type of floats.
PRECISION_OF_TYPE = {
    DType.F64: "ieee f64",
    DType.F32: "ieee f32",
    DType.F16: "f16",
    DType.BF16: "bf16",
}


def precision_class(plan: Plan, statement: ir.Compute) -> str:
    """The precision class of a computation, "integer" where it is none of floats; a product's is
    that of its operands, or what it asks for where the chip has units for that."""
    if not is_product(statement):
        return PRECISION_OF_TYPE.get(statement.dtype, "integer")
    tiles = [o.tile for o in statement.operands if isinstance(o, ir.TileOperand)]
    dtype = promote(*(plan.sketch.tile(name).dtype for name in tiles))
    kind = PRECISION_OF_TYPE.get(dtype, "integer")
    asked = str(statement.attributes.get("precision", "ieee"))
    on_units = kind == "ieee f32" and asked != "ieee" and plan.hardware.family != "cpu"
    return asked if on_units else kind

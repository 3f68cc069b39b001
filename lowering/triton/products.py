"""How a matrix product is done: `tl.dot`, and on which unit, or a broadcast product and a sum."""

from __future__ import annotations

from sketchc import ir
from sketchc.lowering.plan import Plan
from sketchc.lowering.triton.dialect import Dialect
from sketchc.types import DType, promote

_HALVES = (DType.F16, DType.BF16)
_BYTES = (DType.I8, DType.U8)


def operand_dtype(plan: Plan, product: ir.Compute) -> DType:
    """The common type of both operands."""
    names = [operand.tile for operand in product.operands if isinstance(operand, ir.TileOperand)]
    return promote(*(plan.sketch.tile(name).dtype for name in names))


def product_unit(plan: Plan, product: ir.Compute, dialect: Dialect) -> tuple[str, str]:
    """What a product runs on, and why."""
    dtype = operand_dtype(plan, product)
    shown = f"{product.operation} of {dtype.value}"
    if dtype not in dialect.dot_dtypes:
        return f"{shown}: a broadcast product and a sum", f"tl.dot does not take {dtype.value} here"
    names = [operand.tile for operand in product.operands if isinstance(operand, ir.TileOperand)]
    transposed = bool(product.attributes.get("trans_a"))
    depth = plan.tiles[names[0]].extents[0 if transposed else 1].value
    smallest = plan.capabilities.matrix_minimum.get(dtype.value, 1)
    if depth is not None and depth < smallest:
        return (
            f"{shown}: a broadcast product and a sum",
            f"its depth {depth} is less than the {smallest} that tl.dot takes",
        )
    if not dialect.launch_options:
        return f"{shown}: tl.dot, for the cube cores", ""
    if dtype in (*_HALVES, *_BYTES):
        return f"{shown}: tl.dot on the tensor cores", ""
    precision = dialect.precision(str(product.attributes.get("precision", "ieee")))
    if precision == "ieee":
        return (
            f"{shown}: tl.dot on the FMA units",
            'precision="ieee" is exact f32; "tf32x3" runs on the tensor cores with nearly its '
            "accuracy",
        )
    return f'{shown}: tl.dot on the tensor cores, precision="{precision}"', ""

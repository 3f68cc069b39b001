"""How a matrix product is done: `tl.dot`, and on which unit, or a broadcast product and a sum."""

from __future__ import annotations

from sketchc.base.types import DType, promote
from sketchc.ir import nodes as ir
from sketchc.lowering.plan import Plan
from sketchc.lowering.triton.dialect import Dialect
from sketchc.lowering.triton.values import carrier

_HALVES = (DType.F16, DType.BF16)
_BYTES = (DType.I8, DType.U8)


def accumulator_dtype(operands: DType, destination: DType) -> DType:
    """The type in which products are added up, of integers at least 32 bits."""
    if operands is DType.F64:
        return operands
    return destination.compute if destination.is_float else carrier(destination)


def dot_refusal(plan: Plan, product: ir.Compute, dialect: Dialect) -> str:
    """Why `tl.dot` does not take a product; "" where it does."""
    sketch = plan.sketch
    names = [operand.tile for operand in product.operands if isinstance(operand, ir.TileOperand)]
    dtype = promote(*(sketch.tile(name).dtype for name in names))
    if dtype not in dialect.dot_dtypes:
        return f"tl.dot does not take {dtype.value} here"
    depth = plan.tiles[names[0]].extents[0 if product.attributes.get("trans_a") else 1].value
    smallest = plan.capabilities.matrix_minimum.get(dtype.value, 1)
    # A bucket is a run-time choice: the wrapper makes it at least the smallest depth.
    if depth is not None and depth < smallest:
        return f"its depth {depth} is less than the {smallest} that tl.dot takes"
    accumulator = accumulator_dtype(dtype, sketch.tile(product.destination).dtype)
    if accumulator is not (DType.F32 if dtype.is_float else DType.I32):
        return f"tl.dot does not add up in {accumulator.value}"
    for name in (*names, product.destination):
        if all(extent.value == 1 for extent in plan.tiles[name].extents):
            return f"{name} has one element"
    return ""


def product_unit(plan: Plan, product: ir.Compute, dialect: Dialect) -> tuple[str, str]:
    """What a product runs on, and why."""
    names = [operand.tile for operand in product.operands if isinstance(operand, ir.TileOperand)]
    dtype = promote(*(plan.sketch.tile(name).dtype for name in names))
    shown = f"{product.operation} of {dtype.value}"
    refusal = dot_refusal(plan, product, dialect)
    if refusal:
        return f"{shown}: a broadcast product and a sum", refusal
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

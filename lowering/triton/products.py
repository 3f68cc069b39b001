"""What a matrix product of a plan runs on: `tl.dot` in some precision, or a broadcast product and a
sum."""

from __future__ import annotations

from sketchc.base.diagnostics import InternalError
from sketchc.base.types import DType, promote
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.plan import PhasePlan, Plan, is_product
from sketchc.lowering.precisions import SPLIT, multiplied_in
from sketchc.lowering.triton.dialect import Dialect, carrier

#: Operand types of `tl.dot`; others take a broadcast product and a sum.
DOT_DTYPES = frozenset({DType.F32, DType.F16, DType.BF16, DType.I8})
_HALVES = (DType.F16, DType.BF16)
_BYTES = (DType.I8, DType.U8)


def tile_name(operand: ir.Operand) -> str:
    """The tile that an operand of a cross-lane operation is."""
    if not isinstance(operand, ir.TileOperand):
        raise InternalError("a cross-lane operation takes tiles")
    return operand.tile


def product_dtype(operands: DType, destination: DType) -> DType:
    """The type in which products are added up, of integers at least 32 bits."""
    return operands if operands is DType.F64 else carrier(destination)


def factors(product: ir.Compute, sketch: ir.Sketch) -> tuple[list[str], DType]:
    """The tiles that a product multiplies, and the type that holds both."""
    names = [tile_name(operand) for operand in product.operands]
    return names, promote(*(sketch.tile(name).dtype for name in names))


def dot_precision(plan: Plan, product: ir.Compute) -> str:
    """The precision of a product by `tl.dot`; only f32 is multiplied in parts."""
    taken = multiplied_in(plan, product.attributes.get("precision"))
    whole = taken == SPLIT and factors(product, plan.sketch)[1] is not DType.F32
    return "ieee" if whole else taken


def least_of(bucket: str, phase: PhasePlan, plan: Plan, dialect: Dialect) -> int:
    """The least value of a bucket in a launch: high enough for the depth of each matrix product,
    and for its rows and columns where the target does not pad them."""
    minimum = max(plan.capabilities.matrix_minimum.values(), default=1)
    for statement in filter(is_product, walk.statements(phase.body)):
        if not dialect.pads_products:
            return minimum
        turned = [bool(statement.attributes.get(name)) for name in ("trans_a", "trans_b")]
        axes = (-2 if turned[0] else -1, -1 if turned[1] else -2)
        for operand, axis in zip(statement.operands, axes, strict=True):
            if plan.tiles[tile_name(operand)].extents[axis].name == bucket:
                return minimum
    return 1


def dot_refusal(plan: Plan, product: ir.Compute) -> str:
    """Why `tl.dot` does not take a product; "" where it does."""
    sketch = plan.sketch
    names, dtype = factors(product, sketch)
    if dtype not in DOT_DTYPES:
        return f"tl.dot does not take {dtype.value} here"
    depth = plan.tiles[names[0]].extents[0 if product.attributes.get("trans_a") else 1].value
    smallest = plan.capabilities.matrix_minimum.get(dtype.value, 1)
    # A bucket is a run-time choice: the wrapper makes it at least the smallest depth.
    if depth is not None and depth < smallest:
        return f"its depth {depth} is less than the {smallest} that tl.dot takes"
    accumulator = product_dtype(dtype, sketch.tile(product.destination).dtype)
    if accumulator is not (DType.F32 if dtype.is_float else DType.I32):
        return f"tl.dot does not add up in {accumulator.value}"
    for name in (*names, product.destination):
        if all(extent.value == 1 for extent in plan.tiles[name].extents):
            return f"{name} has one element"
    return ""


def product_unit(plan: Plan, product: ir.Compute, dialect: Dialect) -> tuple[str, str]:
    """What a product runs on, and why."""
    _, dtype = factors(product, plan.sketch)
    shown = f"{product.operation} of {dtype.value}"
    refusal = dot_refusal(plan, product)
    if refusal:
        return f"{shown}: a broadcast product and a sum", refusal
    if not dialect.launch_options:
        return f"{shown}: tl.dot, for the cube cores", ""
    if dtype in (*_HALVES, *_BYTES):
        return f"{shown}: tl.dot on the tensor cores", ""
    cheapest = dot_precision(plan, product)
    if cheapest == "ieee":
        return (
            f"{shown}: tl.dot on the FMA units",
            'precision="ieee" is exact f32; "f32_split" is as accurate, and runs on the tensor '
            "cores where that is faster",
        )
    if cheapest == SPLIT:
        return (
            f"{shown}: tl.dot on the tensor cores, six products of parts in bf16",
            'as accurate as precision="ieee"',
        )
    return f'{shown}: tl.dot on the tensor cores, precision="{cheapest}"', ""

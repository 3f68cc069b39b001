"""The precision class of a computation: which arithmetic of a chip does it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sketchc.base.types import DType, promote
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.plan import Plan, is_product
from sketchc.ops.table import PRECISIONS

#: The class of products of f32 in parts, which are as exact as those of "ieee f32".
SPLIT = "f32_split"
#: Products of bf16 that make one in parts, and the share of the rate of these that is left beside
#: splitting and adding up: measured on an H200 with tiles of 64 x 64 to 128 x 128.
SPLIT_PRODUCTS, _SPLIT_SHARE = 6, 0.65
#: Bytes of the three parts of an element.
PARTS_BYTES = 6
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
    taken = multiplied_in(plan, statement.attributes.get("precision"))
    on_units = kind == "ieee f32" and taken != "ieee" and plan.hardware.family != "cpu"
    return taken if on_units else kind


def multiplied_in(plan: Plan, asked: object) -> str:
    """The precision in which a target multiplies operands of f32 where a product's `precision` is
    `asked` ("ieee" for None): the cheapest that is at least that."""
    finer = PRECISIONS[PRECISIONS.index(str(asked or "ieee")) :]
    return next(name for name in finer if _offered(plan, name))


def kept_in_parts(plan: Plan) -> set[str]:
    """The tiles that shared memory holds in parts, too, since the tensor cores read the right
    operand of a product there; products of loop programs split what is in registers."""
    if plan.capabilities.loops is not None:
        return set()
    products = (each for each in walk.in_phases(plan.phases) if is_product(each))
    split = (each for each in products if precision_class(plan, each) == SPLIT)
    return {each.operands[1].tile for each in split if isinstance(each.operands[1], ir.TileOperand)}


def _offered(plan: Plan, precision: str) -> bool:
    """Whether a target multiplies in this precision; in parts only where the chip has that faster
    than products of f32, which are as exact."""
    rates = product_rates(plan.hardware.facts)
    faster = rates.get(SPLIT, 0.0) > rates.get(PRECISION_OF_TYPE[DType.F32], 0.0)
    return precision in plan.capabilities.precisions and (precision != SPLIT or faster)


def product_rates(facts: Mapping[str, Any]) -> dict[str, float]:
    """FLOP/s of matrix products by precision class, where the file of a chip with these `facts`
    has them, with those in parts."""
    rates = dict(facts.get("flops", {}))
    if "bf16" in rates:
        rates[SPLIT] = _SPLIT_SHARE * rates["bf16"] / SPLIT_PRODUCTS
    return rates

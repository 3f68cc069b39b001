"""Matrix products as statements: blocks of the result, summed a block at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sketchc.agents.autosketch.calls import spelled
from sketchc.agents.autosketch.loops import Element, Number, Scalar, elements
from sketchc.agents.autosketch.phase import Product
from sketchc.agents.autosketch.templates.body import Body
from sketchc.agents.autosketch.templates.lanes import Dims, Lanes, last_place, width
from sketchc.base.types import DType

if TYPE_CHECKING:
    from sketchc.agents.autosketch.templates.writer import PhaseWriter


def factor_of(
    writer: PhaseWriter, scope: Body, factor: Scalar, dims: Dims, dtype: DType | None = None
) -> tuple[str, bool]:
    """The name of a tile with a factor of a matrix product, and whether its axes are turned: they
    are in the order in which the factor runs through memory. `dtype`: its type, if not its own."""
    index = next(elements(factor)).index
    places = [last_place(index, lanes) for lanes in dims]
    turned = places[0] > places[1]
    order = dims[::-1] if turned else dims
    if isinstance(factor, Element):
        return writer.loaded(scope, factor, order, dtype or factor.dtype), turned
    return writer.evaluated(scope, factor, order), turned


def multiply(
    writer: PhaseWriter,
    scope: Body,
    factors: tuple[Scalar, Scalar],
    blocks: tuple[Lanes, Lanes, Lanes],
    name: str,
    call: str = "gemm",
) -> None:
    """Write the product of two factors: of blocks down and over, and over and across."""
    down, over, across = blocks
    left, turned_left = factor_of(writer, scope, factors[0], (down, over))
    right, turned_right = factor_of(writer, scope, factors[1], (over, across))
    turned = f"{', trans_a=True' * turned_left}{', trans_b=True' * turned_right}"
    dtypes = [factor.dtype for factor in factors if not isinstance(factor, Number)]
    scope.say(f"{call}({left}, {right}, {name}{turned}{precision(*dtypes)})")


def precision(*dtypes: DType) -> str:
    """A further argument of a product of tiles of these types: one of f32 may be done in parts,
    which are as accurate as the f32 that PyTorch multiplies in."""
    return ', precision="f32_split"' if set(dtypes) == {DType.F32} else ""


def write_product(writer: PhaseWriter, top: Body, product: Product) -> None:
    """Write programs over blocks of a matrix product: the product, then each element."""
    groups = zip(product.groups, ("TM", "TN", "TK"), strict=True)
    down, across, over = (
        writer.block(axis, size, product.digits.get(axis.name, ())) for (axis,), size in groups
    )
    scope = writer.over_blocks(top, (down, across))
    dtype = spelled(product.dtype) or ", f32"
    hint = '"fastest", "accumulator"'
    scope.say(
        f"{product.name} = alloc([{width((down, across))}]{dtype}, init=0, llm_hint=[{hint}])"
    )
    inner = writer.opened(scope, (), over, part=product.part)
    multiply(writer, inner, (product.left, product.right), (down, over, across), product.name)
    scope.finished()
    writer.result(scope, (down, across))

"""Matrix products as statements: blocks of the result, summed a block at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sketchc.agents.autosketch.calls import spelled
from sketchc.agents.autosketch.loops import Axis, Element, Number, Scalar, elements
from sketchc.agents.autosketch.phase import Product
from sketchc.agents.autosketch.templates.body import PIPELINE, Body
from sketchc.agents.autosketch.templates.lanes import Dims, Lanes, last_place, width
from sketchc.agents.autosketch.windows import line_of
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.walk import names

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
    groups = zip(product.groups[:3], ("TM", "TN", "TK"), strict=True)
    down, across, over = (
        writer.block(axis, size, product.digits.get(axis.name, ())) for (axis,), size in groups
    )
    scope = writer.over_blocks(top, (down, across), product.innermost)
    dtype = spelled(product.dtype) or ", f32"
    hint = '"fastest", "accumulator"'
    scope.say(
        f"{product.name} = alloc([{width((down, across))}]{dtype}, init=0, llm_hint=[{hint}])"
    )
    if product.taps:
        inner = _over_taps(scope, product, over)
    else:
        gated = scope if product.where is None else _under(scope, product.where)
        inner = writer.opened(gated, (), over, part=product.part)
    multiply(writer, inner, (product.left, product.right), (down, over, across), product.name)
    scope.finished()
    writer.result(scope, (down, across))


def _over_taps(scope: Body, product: Product, over: Lanes) -> Body:
    """Open the loop over blocks of terms and taps, the taps innermost; returns its body. It is one
    loop, so that the loads for one tap are on their way while another is multiplied."""
    counts = [show(tap.extent) for tap in product.taps]
    names_of = {tap.name for tap in product.taps}
    within: list[ir.Expr] = []
    for part in () if product.where is None else symbolic.conjuncts(product.where):
        if (found := _fewer_taps(part, product.taps)) is not None:
            place, count = found
            counts[place] = f"{product.taps[place].name}_count"
            scope.say(f"{counts[place]} = {show(count)}")
        elif names_of & set(names(part)):
            within.append(part)
        else:
            scope = _under(scope, part)
    number = "".join(axis.name for axis in (over.axis, *product.taps))
    fewer = {f"{tap.name}_count" for tap in product.taps}

    def product_of(several: Sequence[str]) -> str:
        """The text of a divisor, which nobody proves to be at least 1 where it is a product."""
        joint = "*".join(several)
        return f"max({joint}, 1)" if fewer & {*several} else f"({joint})"

    whole = "*".join(counts)
    blocks = "" if over.size is None else f"{over.count}*"
    head = f"for {number} in range({blocks}({whole})):"
    scope = scope.inner(number, "", PIPELINE, head, in_loop=True)
    scope.bound |= {*over.names, *(tap.name for tap in product.taps)}
    if over.size is not None:
        scope.say(f"{over.variable} = {number}//{product_of(counts)}")
    for place, tap in enumerate(product.taps):
        below = counts[place + 1 :]
        digit = f"{number}//{product_of(below)}" if below else number
        outermost = place == 0 and over.size is None
        scope.say(
            f"{tap.name} = {digit}"
            + ("" if outermost else f" % {product_of(counts[place : place + 1])}")
        )
    for part in within:
        scope = _under(scope, part)
    return scope


def _under(scope: Body, condition: ir.Expr) -> Body:
    """Open a branch under a condition; returns its body."""
    return scope.inner("", f"if {show(condition)}:", in_loop=True)


def _fewer_taps(condition: ir.Expr, taps: Sequence[Axis]) -> tuple[int, ir.Expr] | None:
    """The tap, by its place among `taps`, of which only the first ones meet a condition
    `rest + step*tap < bound`, with a remainder by at most the step as `rest`, and how many these
    are, at least 1; None where the condition is no such one."""
    match condition:
        case ir.Binary(
            "<",
            ir.Binary("+", ir.Binary("%", _, ir.Literal(int(limit))) as rest, number),
            ir.Literal(int(bound)),
        ):
            pass
        case _:
            return None
    for place, tap in enumerate(taps):
        match line_of(number, tap.name), tap.extent:
            case (step, ir.Literal(0)), ir.Literal(int(most)):
                if limit <= min(step, bound) and bound <= step * most:
                    left = ir.Binary("-", ir.Literal(bound + step - 1), rest)
                    return place, ir.Binary("//", left, ir.Literal(step))
            case _:
                continue
    return None

"""Shapes and types of the operations across lanes: scans, sorting, rearrangement, random numbers.

Rules beyond the contract: `topk` and `sort` give their indices in the order of their values, so the
indices are integers, one for each value (they broadcast to the values' shape); the result of `rand`
is f32, and converts to another float type at the write.
"""

from __future__ import annotations

from sketchc.base.diagnostics import Label
from sketchc.base.types import DType
from sketchc.checker.calls.calls import Call
from sketchc.checker.context.shapes import fits, same, shown
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ops.dtypes import writes_implicitly


def scan(call: Call, axis: int) -> tuple[int, ...]:
    """A scan has the shape of its source; gives its axis."""
    shape = call.source(call.operands[0])
    axes = call.axes((axis,), shape)
    call.check_shape(shape, call.destination)
    return axes


def order(call: Call, axis: int) -> tuple[int, ...]:
    """Check the shapes of `topk` and `sort`; gives the axis."""
    values, indices = call.operands
    shape = call.source(values)
    axes = call.axes((axis,), shape)
    call.source(indices)
    if not fits(call.context, call.extents(indices), shape):
        raise call.context.error(
            indices.span,
            "SK0305",
            f"indices of shape {shown(call.extents(indices))} for values of shape {shown(shape)}",
            "one index for each value",
        )
    merges = call.row.accumulates
    for tile in (call.destination, *call.others):
        wanted = shape
        if merges and len(tile.extents) == len(shape):  # K is the destination's own
            wanted = (*shape[: axes[0]], tile.extents[axes[0]], *shape[axes[0] + 1 :])
        call.check_shape(wanted, tile)
        if merges and tile.initial is None:
            raise call.context.error(
                call.node.span,
                "SK0405",
                f"`{call.row.name}` merges into `{tile.source_name}`, which has no `init=`",
                "nothing to merge with",
                labels=(Label(tile.span, "allocated here, without `init=`"),),
                help="start values at `init=-inf` (`init=inf` with `largest=False`), "
                "and indices at `init=-1`",
            )
    if not same(call.context, call.destination.extents, call.others[0].extents):
        raise call.context.error(
            call.node.span,
            "SK0305",
            f"values of shape {shown(call.destination.extents)} and indices of shape "
            f"{shown(call.others[0].extents)}",
            "both destinations have one shape",
            labels=call.tile_label(call.others[0]),
        )
    return axes


def order_dtype(call: Call) -> DType:
    """The type of the values, after checking that both results can be written."""
    values, indices = map(call.dtype, call.operands)
    if not indices.is_integer:
        raise call.context.error(
            call.operands[1].span,
            "SK0312",
            f"indices are integers, not {indices.value}",
            f"{indices.value}",
        )
    for source, tile in ((values, call.destination), (indices, call.others[0])):
        if not writes_implicitly(source, tile.dtype):
            raise call.context.error(
                call.node.span,
                "SK0307",
                f"{source.value} does not convert to {tile.dtype.value} without `cast`",
                f"`{tile.source_name}` is {tile.dtype.value}",
                labels=(Label(tile.span, f"{tile.dtype.value} tile"),),
                notes=("only float to float and widening integer conversions are implicit (R6)",),
            )
    return values.compute


def permute(call: Call, given: tuple[int, ...]) -> tuple[int, ...]:
    """Axis `a` of the result is axis `axes[a]` of the source; gives the axes."""
    shape = call.source(call.operands[0])
    axes = call.axes(given, shape)
    if len(axes) != len(shape):
        raise call.context.error(
            call.node.span,
            "SK0310",
            f"`permute` names each of the {len(shape)} axes once",
            f"{len(axes)} named",
        )
    call.check_shape(tuple(shape[axis] for axis in axes), call.destination)
    return axes


def reshape(call: Call) -> None:
    """As many elements as before."""
    shape, target = call.source(call.operands[0]), call.destination.extents
    if not call.context.equal(_count(shape), _count(target)):
        raise call.context.error(
            call.node.span,
            "SK0326",
            f"`reshape` keeps the number of elements: {shown(shape)} does not become "
            f"{shown(target)}",
            f"{show(symbolic.simplify(_count(shape)))} and "
            f"{show(symbolic.simplify(_count(target)))} elements",
            labels=call.tile_label(),
        )


def _count(extents: tuple[ir.Expr, ...]) -> ir.Expr:
    total = extents[0]
    for extent in extents[1:]:
        total = ir.Binary("*", total, extent)
    return total


def concat(call: Call, axis: int) -> tuple[int, ...]:
    """Tiles that agree on all other axes, one after the other; gives the axis."""
    left, right = map(call.source, call.operands)
    axes = call.axes((axis,), left)
    place = axes[0]
    others = (*left[:place], *left[place + 1 :])
    if len(left) != len(right) or not same(
        call.context, others, (*right[:place], *right[place + 1 :])
    ):
        raise call.context.error(
            call.node.span,
            "SK0327",
            f"tiles of shapes {shown(left)} and {shown(right)} cannot be joined along axis {place}",
            "they differ on another axis",
        )
    total = symbolic.simplify(ir.Binary("+", left[place], right[place]))
    result = (*left[:place], total, *left[place + 1 :])
    if not same(call.context, result, call.destination.extents):
        raise call.context.error(
            call.node.span,
            "SK0327",
            f"joined along axis {place}, the tiles have the shape {shown(result)}",
            f"`{call.destination.source_name}` is {shown(call.destination.extents)}",
            labels=call.tile_label(),
        )
    return axes


def random(call: Call) -> DType:
    """Check seed, offset and destination of `rand` and `randn`; the numbers are f32."""
    seed, offset = call.operands
    if not isinstance(seed, ir.ScalarOperand) or not seed.dtype.is_integer:
        raise call.context.error(
            seed.span,
            "SK0312",
            "the seed is one integer",
            f"{call.dtype(seed).value}" if isinstance(seed, ir.ScalarOperand) else "has lanes",
        )
    if not call.dtype(offset).is_integer:
        raise call.context.error(
            offset.span,
            "SK0312",
            "the offset is an integer, or an index for each lane",
            call.dtype(offset).value,
        )
    target = call.destination
    if not fits(call.context, call.extents(offset), target.extents):
        raise call.context.error(
            offset.span,
            "SK0305",
            f"offsets of shape {shown(call.extents(offset))} do not fit the destination",
            f"`{target.source_name}` is {shown(target.extents)}",
            labels=call.tile_label(),
        )
    if not target.dtype.is_float:
        raise call.needs_cast(DType.F32)
    return DType.F32

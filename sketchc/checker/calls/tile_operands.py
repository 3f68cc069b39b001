"""Tiles that are read with subscripts: new axes, or their shape repeated."""

from __future__ import annotations

from sketchc.checker.calls.accesses import readable_tile
from sketchc.checker.calls.expressions import expression, marks_axis, new_axes
from sketchc.checker.context.context import Context
from sketchc.checker.context.names import TileState
from sketchc.checker.context.shapes import same, shown
from sketchc.ir import nodes as ir
from sketchc.parsing import syntax


def tile_with_subscripts(
    context: Context, node: syntax.Subscript, base: syntax.Name
) -> ir.TileOperand:
    """`t[:, None]`: the same tile with axes of extent 1 added; or `x[N]`, which repeats the shape
    of `x`, as some listings do. Raises `InvalidError` after reporting anything else."""
    tile = readable_tile(context, base)
    if not all(marks_axis(part) for part in node.subscripts):
        _check_repeated(context, node, tile)
        return ir.TileOperand(tile.name, span=node.span)
    layout = new_axes(context, node, len(tile.extents))
    return ir.TileOperand(tile.name, layout=None if all(layout) else layout, span=node.span)


def _check_repeated(context: Context, node: syntax.Subscript, tile: TileState) -> None:
    extents = []
    for part in node.subscripts:
        if isinstance(part, syntax.Slice | syntax.NewAxis):
            break
        extents.append(expression(context, part).value)
    if len(extents) == len(node.subscripts) and same(context, tuple(extents), tile.extents):
        return
    name = tile.source_name
    raise context.error(
        node.span,
        "SK0303",
        f"a tile is used as a whole; `{name}` cannot be indexed",
        f"its shape is {shown(tile.extents)}",
        help=f"`{name}[:, None]` adds an axis; parts of tensors are loaded",
    )

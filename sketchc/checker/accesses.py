"""Accesses to tensors, and the rules for which tiles a statement may read and write."""

from __future__ import annotations

from sketchc import ir, symbolic, syntax
from sketchc.checker.context import Context, InvalidError, Typed
from sketchc.checker.expressions import expression, outside_phase
from sketchc.checker.names import IndexName, TensorName, TileName, TileState, describe
from sketchc.checker.shapes import shown
from sketchc.checker.survey import names
from sketchc.diagnostics import Edit, Fix, Label
from sketchc.types import DType


def readable_tile(context: Context, node: syntax.Name) -> TileState:
    """The tile of this name, in its own phase; raises `InvalidError` after reporting otherwise."""
    entry = context.lookup(node.id, node.span)
    if not isinstance(entry, TileName):
        raise context.error(
            node.span,
            "SK0206",
            f"a tile is expected, and `{node.id}` is {describe(entry)}",
            "not a tile",
            labels=(Label(entry.span, "declared here"),),
        )
    if entry.tile.phase != context.phase:
        raise outside_phase(context, node.id, node.span, entry.tile.span)
    return entry.tile


def writable_tile(context: Context, node: syntax.Name) -> TileState:
    """The tile of this name, if it may be written here: a tile made outside a parallel loop is
    read-only inside it (R7)."""
    tile = readable_tile(context, node)
    for loop in context.loops:
        if loop.parallel and loop.identity not in tile.loops:
            raise context.error(
                node.span,
                "SK0213",
                f"`{node.id}` is shared by the iterations of a parallel loop",
                "written inside it",
                labels=(
                    Label(tile.span, "made outside the loop"),
                    Label(loop.node.span, "iterations of this loop run in any order"),
                ),
                notes=("a tile made outside a parallel loop is read-only inside it (R7)",),
                help="make the tile inside the parallel loop",
            )
    return tile


def access(context: Context, node: syntax.Subscript, tile: TileState) -> tuple[ir.Access, DType]:
    """Resolve `X[...]` for a load into or a store from `tile`; gives the access and the tensor's
    type. Raises `InvalidError` after reporting a mismatch of ranks or an access form that is not
    lowered yet."""
    if not isinstance(node.base, syntax.Name):
        raise context.error(node.base.span, "SK0206", "a tensor is expected here", "not a name")
    entry = context.lookup(node.base.id, node.base.span)
    if not isinstance(entry, TensorName):
        raise context.error(
            node.base.span,
            "SK0206",
            f"a tensor is expected, and `{node.base.id}` is {describe(entry)}",
            "not a tensor",
        )
    if len(node.subscripts) != len(entry.extents):
        axes = "1 axis" if len(entry.extents) == 1 else f"{len(entry.extents)} axes"
        raise context.error(
            node.span,
            "SK0303",
            f"`{node.base.id}` has {axes}, and {len(node.subscripts)} subscripts are given",
            f"its shape is {shown(entry.extents)}",
        )
    subscripts: list[ir.ScalarSubscript | ir.SliceSubscript] = []
    lanes = 0  # how many slices so far: the tile axis that the next one maps to
    for part, extent in zip(node.subscripts, entry.extents, strict=True):
        if isinstance(part, syntax.Slice):
            subscripts.append(_slice(context, part, extent, tile, lanes))
            lanes += 1
        else:
            subscripts.append(ir.ScalarSubscript(_index(context, part)))
    _check_rank(context, node, tile, lanes)
    return ir.Access(entry.name, tuple(subscripts), span=node.span), entry.dtype


def _check_rank(context: Context, node: syntax.Subscript, tile: TileState, lanes: int) -> None:
    if lanes == len(tile.extents):
        return
    if lanes == 0:
        if all(context.is_one(extent) for extent in tile.extents):
            return
        raise context.error(
            node.span,
            "SK0304",
            f"one element cannot fill or come from a tile of shape {shown(tile.extents)}",
            "all subscripts are scalars",
            labels=(Label(tile.span, "the tile"),),
            help="use slices, or a tile whose extents are all 1",
        )
    axes = "axis" if len(tile.extents) == 1 else "axes"
    slices = "1 slice" if lanes == 1 else f"{lanes} slices"
    raise context.error(
        node.span,
        "SK0304",
        f"{slices} for a tile with {len(tile.extents)} {axes}",
        "slices map to the tile's axes in order",
        labels=(Label(tile.span, f"its shape is {shown(tile.extents)}"),),
        notes=("axes of extent 1 appear or vanish only when all subscripts are scalars",),
    )


def _slice(
    context: Context, node: syntax.Slice, extent: ir.Expr, tile: TileState, axis: int
) -> ir.SliceSubscript:
    if node.step is not None:
        step = _scalar(context, expression(context, node.step), node.step)
        if symbolic.constant_value(step, context.definitions) != 1:
            raise context.error(
                node.span,
                "SK0911",
                "strided slices parse, but are not carried through in this version",
                "not lowered yet",
            )
    lower: ir.Expr = ir.Literal(0)
    if node.lower is not None:
        lower = _scalar(context, expression(context, node.lower), node.lower)
    upper = extent
    if node.upper is not None:
        upper = _scalar(context, expression(context, node.upper), node.upper)
    exact = False
    if axis < len(tile.extents):
        exact = context.equal(ir.Binary("-", upper, lower), tile.extents[axis])
    return ir.SliceSubscript(lower, upper, exact)


def _index(context: Context, node: syntax.Expression | syntax.NewAxis) -> ir.Expr:
    if isinstance(node, syntax.NewAxis):
        raise context.error(
            node.span, "SK0303", "`None` shapes index tiles; a tensor has no new axes", "an axis"
        )
    for name in _lane_names(context, node):
        raise _lane_form(context, node, f"`{name}` is a tile")
    return _scalar(context, expression(context, node), node)


def _lane_names(context: Context, node: syntax.Expression) -> list[str]:
    """Names of tiles used as indices."""
    return [
        name for name in names(node) if isinstance(context.scopes.find(name), TileName | IndexName)
    ]


def _lane_form(context: Context, node: syntax.Expression, why: str) -> InvalidError:
    return context.error(
        node.span,
        "SK0910",
        "indexing by a tile parses, but is not carried through in this version",
        f"{why}: lane form",
        help="use slices `lower:upper` and scalar subscripts",
    )


def _scalar(context: Context, typed: Typed, node: syntax.Expression) -> ir.Expr:
    if typed.extents is not None:
        raise _lane_form(context, node, "an index tile")
    if typed.dtype.is_integer:
        return typed.value
    fixes: tuple[Fix, ...] = ()
    match typed.value:
        case ir.Literal(float(value)) if value.is_integer():
            fixes = (Fix("write an integer", (Edit(node.span, str(int(value))),)),)
        case _:
            pass
    raise context.error(
        node.span,
        "SK0302",
        f"an integer is expected, but this is {typed.dtype.value}",
        "a subscript is an integer",
        fixes=fixes,
    )

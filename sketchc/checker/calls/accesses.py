"""Accesses to tensors, and the rules for which tiles a statement may read and write.

Rules beyond the contract: the index tiles of an access broadcast to exactly the tile's shape (an
axis of extent 1 is written `[1]` in both), and a step may be an expression when its sign is known
from declarations, bounds and preconditions.
"""

from __future__ import annotations

from typing import TypeAlias

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix, Label
from sketchc.base.types import DType
from sketchc.checker.calls.expressions import (
    expression,
    is_loaded,
    marks_axis,
    new_axes,
    outside_phase,
    shaped,
)
from sketchc.checker.context.context import (
    Context,
    InvalidError,
    TensorName,
    TileName,
    Typed,
    describe,
)
from sketchc.checker.context.lets import without_functions
from sketchc.checker.context.shapes import SHAPE_INDICES, joined, same, shown, signs
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.parsing import syntax
from sketchc.parsing.prepass import is_parallel
from sketchc.parsing.syntax import names

_Part: TypeAlias = syntax.Expression | syntax.Slice | syntax.NewAxis


def readable_tile(context: Context, node: syntax.Name) -> ir.Tile:
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
    if entry.phase != context.phase:
        raise outside_phase(context, node.id, node.span, entry.tile.span)
    return entry.tile


def writable_tile(context: Context, node: syntax.Name) -> ir.Tile:
    """The tile that `node` names, if it may be written here: a tile made outside a parallel loop is
    read-only inside it (R7)."""
    tile = readable_tile(context, node)
    for loop in context.loops[tile.depth :]:
        if is_parallel(loop):
            raise context.error(
                node.span,
                "SK0213",
                f"`{node.id}` is shared by the iterations of a parallel loop",
                "written inside it",
                labels=(
                    Label(tile.span, "made outside the loop"),
                    Label(loop.span, "iterations of this loop run in any order"),
                ),
                notes=("a tile made outside a parallel loop is read-only inside it (R7)",),
                help="make the tile inside the parallel loop",
            )
    return tile


def access(context: Context, node: syntax.Subscript, tile: ir.Tile) -> tuple[ir.Access, DType]:
    """Resolve `X[...]` for a load into or a store from `tile`; gives the access and the tensor's
    type. Raises `InvalidError` after reporting what does not fit."""
    entry = tensor(context, node)
    indices = [
        None if isinstance(part, syntax.Slice) else index(context, part) for part in node.subscripts
    ]
    sliced = None in indices
    subscripts: list[ir.Subscript] = []
    axis = 0  # of the tile: what the next slice (or, beside slices, index tile) takes
    for part, typed, extent in zip(node.subscripts, indices, entry.extents, strict=True):
        if isinstance(part, syntax.Slice):
            subscripts.append(_slice(context, part, extent, tile, axis))
            axis += 1
        elif typed is None or typed.extents is None:
            assert typed is not None
            subscripts.append(ir.ScalarSubscript(typed.value))
        elif sliced:
            subscripts.append(_mixed(context, part, typed, tile, axis))
            axis += 1
        else:
            loaded = is_loaded(context, typed.value)
            subscripts.append(ir.IndexSubscript(typed.value, typed.extents, loaded))
    lanes = [typed for typed in indices if typed is not None and typed.extents is not None]
    if lanes and not sliced:
        _check_lane_form(context, node, tile, lanes)
    else:
        _check_rank(context, node, tile, axis)
    return ir.Access(entry.name, tuple(subscripts), span=node.span), entry.dtype


def tensor(context: Context, node: syntax.Subscript) -> TensorName:
    """The tensor that an access names, with as many axes as there are subscripts; raises
    `InvalidError` after reporting otherwise."""
    assert isinstance(node.base, syntax.Name)  # the parser has seen to it
    entry = context.lookup(node.base.id, node.base.span)
    if not isinstance(entry, TensorName):
        raise context.error(
            node.base.span,
            "SK0206",
            f"a tensor is expected, and `{node.base.id}` is {describe(entry)}",
            "not a tensor",
        )
    context.mentioned.add(entry.base)
    if entry.optional and entry.base not in context.present:
        name = node.base.id
        raise context.error(
            node.span,
            "SK0216",
            f"`{name}` is optional: it may be absent here",
            "not under `if present(...)`",
            labels=(Label(entry.span, "declared optional"),),
            help=f"access it in a branch of `if present({name}):`",
        )
    if len(node.subscripts) != len(entry.extents):
        axes = "1 axis" if len(entry.extents) == 1 else f"{len(entry.extents)} axes"
        raise context.error(
            node.span,
            "SK0303",
            f"`{node.base.id}` has {axes}, and {len(node.subscripts)} subscripts are given",
            f"its shape is {shown(entry.extents)}",
        )
    return entry


def index(context: Context, node: _Part) -> Typed:
    """The scalar or index tile of a subscript; reports anything else and raises `InvalidError`."""
    if isinstance(node, syntax.NewAxis | syntax.Slice):
        raise context.error(
            node.span, "SK0303", "`None` shapes index tiles; a tensor has no new axes", "an axis"
        )
    for name in names(node):
        found = context.scopes.find(name)
        if isinstance(found, TileName) and found.tile.dtype.is_float:
            raise context.error(
                node.span,
                "SK0317",
                f"`{name}` is a tile of {found.tile.dtype.value}: it cannot be an index",
                "indices are integers",
                labels=(Label(found.span, f"{found.tile.dtype.value} tile"),),
                help="`cast` it into an integer tile, with the rounding that you need",
            )
    typed = expression(context, node)
    if typed.dtype.is_integer:
        return records.evolve(typed, value=without_functions(context, typed, node.span))
    raise _not_an_index(context, typed, node)


def _not_an_index(context: Context, typed: Typed, node: syntax.Expression) -> InvalidError:
    fixes: tuple[Fix, ...] = ()
    value = typed.value.value if isinstance(typed.value, ir.Literal) else None
    if isinstance(value, float) and value.is_integer():
        fixes = (Fix("write an integer", (Edit(node.span, str(int(value))),), safe=True),)
    advice = ""
    if typed.dtype is DType.BOOL and typed.extents is not None:
        advice = "a condition goes into `where=`: it masks lanes, and selects none"
    return context.error(
        node.span,
        "SK0302",
        f"an integer is expected, but this is {typed.dtype.value}",
        "a subscript is an integer",
        help=advice,
        fixes=fixes,
    )


# ---------------------------------------------------------------- shapes


def _check_rank(context: Context, node: syntax.Subscript, tile: ir.Tile, lanes: int) -> None:
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
    mixed = lanes - sum(isinstance(part, syntax.Slice) for part in node.subscripts)
    slices = "1 slice" if lanes - mixed == 1 else f"{lanes - mixed} slices"
    if mixed:
        slices += " and 1 index tile" if mixed == 1 else f" and {mixed} index tiles"
    raise context.error(
        node.span,
        "SK0304",
        f"{slices} for a tile with {len(tile.extents)} {axes}",
        f"slices{' and index tiles' if mixed else ''} map to the tile's axes in order",
        labels=(Label(tile.span, f"its shape is {shown(tile.extents)}"),),
        notes=("only axes of extent 1 may be left out, beside as many others as the access has",),
    )


def _check_lane_form(
    context: Context, node: syntax.Subscript, tile: ir.Tile, indices: list[Typed]
) -> None:
    """Check that index tiles, without slices beside them, broadcast to the tile's shape."""
    shapes = [typed.extents for typed in indices if typed.extents is not None]
    common = joined(context, node.span, shapes, SHAPE_INDICES, "index tiles of shapes")
    if not same(context, common, tile.extents):
        raise context.error(
            node.span,
            "SK0321",
            f"the subscripts have the shape {shown(common)}, and the tile {shown(tile.extents)}",
            "one index for each lane of the tile",
            labels=(Label(tile.span, f"its shape is {shown(tile.extents)}"),),
            help="subscripts without slices broadcast as in NumPy: `X[m[:, None], n[None, :]]`",
        )


def _mixed(
    context: Context, node: _Part, typed: Typed, tile: ir.Tile, axis: int
) -> ir.IndexSubscript:
    """The subscript for an index tile beside slices: of rank 1, it takes one axis of the tile."""
    assert typed.extents is not None
    if len(typed.extents) != 1:
        raise context.error(
            node.span,
            "SK0320",
            f"beside a slice, an index tile has one axis; this one has {len(typed.extents)}",
            f"its shape is {shown(typed.extents)}",
            help="write index tiles for all subscripts, or slices and index tiles of one axis",
        )
    rank = len(tile.extents)
    if axis < rank and not context.equal(typed.extents[0], tile.extents[axis]):
        raise context.error(
            node.span,
            "SK0321",
            f"the index tile has {show(typed.extents[0])} lanes, and axis {axis} of the "
            f"tile {show(tile.extents[axis])}",
            "one index for each lane of that axis",
            labels=(Label(tile.span, f"its shape is {shown(tile.extents)}"),),
        )
    after = max(rank - axis - 1, 0)
    value = typed.value
    if after:
        value = shaped(context, value, (True, *(False,) * after), 1)
    extents = (*typed.extents, *(ir.Literal(1),) * after)
    return ir.IndexSubscript(value, extents, is_loaded(context, typed.value), axis)


# ---------------------------------------------------------------- slices


def _slice(
    context: Context, node: syntax.Slice, extent: ir.Expr, tile: ir.Tile, axis: int
) -> ir.SliceSubscript:
    step: ir.Expr = ir.Literal(1)
    backwards = False
    if node.step is not None:
        step = _bound(context, node.step)
        backwards = _check_step(context, step, node.step)
        if symbolic.constant_value(step, context.definitions) == 1:
            step = ir.Literal(1)
    if backwards and (node.lower is None or node.upper is None):
        raise context.error(
            node.span,
            "SK0319",
            "a slice that runs backwards needs both bounds",
            "which element is first, and where it ends, is not said",
            help="write them out: `X[N-1:-1:-1]` goes from the last element down to the first",
        )
    lower = ir.Literal(0) if node.lower is None else _bound(context, node.lower)
    upper = extent if node.upper is None else _bound(context, node.upper)
    exact = False
    if axis < len(tile.extents):
        length: ir.Expr = ir.Binary("-", upper, lower)
        if step != ir.Literal(1):
            length = ir.Binary("cdiv", length, step)
        exact = context.equal(length, tile.extents[axis])
    return ir.SliceSubscript(lower, upper, exact, step)


def _bound(context: Context, node: syntax.Expression) -> ir.Expr:
    typed = index(context, node)
    if typed.extents is not None:
        raise context.error(
            node.span,
            "SK0302",
            "a single integer is expected, not an index tile",
            "a part of a slice has no lanes",
            help="index with the tile itself: `X[m]` instead of `X[m:n]`",
        )
    return typed.value


def _check_step(context: Context, step: ir.Expr, node: syntax.Expression) -> bool:
    """Whether a slice runs backwards; reports a step of 0 or of unknown sign."""
    low, high = signs(context, step)
    if low >= 1:
        return False
    if high <= -1:
        return True
    if low == high == 0:
        raise context.error(
            node.span, "SK0318", "the step of a slice is 0", "it would never get on"
        )
    text = show(step)
    raise context.error(
        node.span,
        "SK0318",
        f"the sign of the step `{text}` is not known",
        "forwards or backwards?",
        notes=("which elements a slice takes depends on the direction of its step",),
        help=f"state it: `require: {text} >= 1;`",
    )


def tile_with_subscripts(
    context: Context, node: syntax.Subscript, base: syntax.Name
) -> ir.TileOperand:
    """The operand for `t[:, None]`, a tile with new axes of extent 1, or for `x[N]`, which repeats
    the shape of `x`, as some listings do. Raises `InvalidError` after reporting others."""
    tile = readable_tile(context, base)
    if not all(marks_axis(part) for part in node.subscripts):
        _check_repeated(context, node, tile)
        return ir.TileOperand(tile.name, span=node.span)
    layout = new_axes(context, node, len(tile.extents))
    return ir.TileOperand(tile.name, layout=None if all(layout) else layout, span=node.span)


def _check_repeated(context: Context, node: syntax.Subscript, tile: ir.Tile) -> None:
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

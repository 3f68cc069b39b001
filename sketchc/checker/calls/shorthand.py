"""What a shorter form stands for: operations on tiles that the sketch does not name.

`where(x > 0, a, b, y)` is `gt(x, 0, c)` and `where(c, a, b, y)`; `store(0 -> Y[lo:hi])` fills a
tile first; a tile of extents `[TM, 1]` is stored to `S[lo:hi]` by way of one of extents `[TM]`. The
statements that come first wait in `Context.before`.
"""

from __future__ import annotations

from sketchc.base.diagnostics import Span
from sketchc.base.types import DType
from sketchc.checker.calls.accesses import index
from sketchc.checker.calls.calls import Call, operand_extents
from sketchc.checker.calls.fresh_tiles import copied, fresh_tile, shown_operand
from sketchc.checker.calls.operations import operand
from sketchc.checker.context.context import Context, InvalidError, Typed
from sketchc.checker.context.names import TileState
from sketchc.checker.context.shapes import broadcast, shown
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ops.table import OPS
from sketchc.parsing import syntax

_OPERATIONS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


def compare(context: Context, node: syntax.Binary) -> Typed:
    """A comparison of data tiles, as the predicate that its operation puts into a bool tile."""
    operation = _OPERATIONS[node.operator]
    sides = (operand(context, node.left), operand(context, node.right))
    shapes = [operand_extents(context, side) for side in sides]
    extents = broadcast(context, shapes)
    if extents is None:
        raise context.error(
            node.span,
            "SK0305",
            f"shapes {' and '.join(shown(shape) for shape in shapes)} do not broadcast",
            "extents differ",
            help="`t[:, None]` adds an axis of extent 1",
        )
    tile = _computed(context, node, operation, sides, extents, DType.BOOL)
    layout = (True,) * len(extents)
    lanes = ir.TileLanes(tile.name, DType.BOOL, extents, layout, span=node.span)
    return Typed(lanes, DType.BOOL, extents)


def _computed(
    context: Context,
    node: syntax.Expression,
    operation: str,
    operands: tuple[ir.Operand, ...],
    extents: tuple[ir.Expr, ...],
    dtype: DType,
) -> TileState:
    """A tile of its own for the result of an operation, which comes first."""
    words = [shown_operand(one) for one in operands]
    tile = fresh_tile(context, f"{_stem(operands)}_{operation}", extents, dtype, node.span)
    call_node = syntax.Compute(operation, (), span=node.span, operation_span=node.span)
    call = Call(context, call_node, OPS[operation], operands, tile, ())
    call.broadcast()
    done = ir.Compute(
        operation,
        operands,
        tile.name,
        call.evaluation_dtype(),
        {},
        text=f"{operation}({', '.join((*words, tile.name))})",
        span=node.span,
    )
    context.before += [ir.Alloc(tile.name, span=node.span), done]
    return tile


def _stem(operands: tuple[ir.Operand, ...]) -> str:
    return next((one.tile for one in operands if isinstance(one, ir.TileOperand)), "value")


# ---------------------------------------------------------------- stores


def stored_value(
    context: Context, node: syntax.Expression, access: syntax.Subscript, dtype: DType
) -> TileState:
    """The tile for a scalar or an index tile that is stored, or combined with memory, as it is.
    A scalar takes the tensor's type, and stands at every element that the access names."""
    value = operand(context, node)
    if isinstance(value, ir.IndexOperand):
        statements, tile = copied(context, value, "stored", value.extents, value.dtype)
        context.before += statements
        return tile
    extents = tuple(_length(context, part) for part in _axes(context, access))
    return _computed(context, node, "fill", (value,), extents or (ir.Literal(1),), dtype)


def squeezed(context: Context, tile: TileState, access: syntax.Subscript) -> TileState | None:
    """A tile to stand for one that has axes of extent 1 which the access lacks: `[TM, 1]` beside
    `S[lo:hi]`. None where the access has as many axes as the tile, or they do not go together."""
    count = len(_axes(context, access))
    kept = tuple(extent for extent in tile.extents if not context.is_one(extent))
    if not 0 < count < len(tile.extents) or len(kept) > count:
        return None
    if len(kept) < count:
        kept = (*(ir.Literal(1),) * (count - len(kept)), *kept)
        if len(kept) > 1:
            return None  # which of the axes of extent 1 go is not said
    name = tile.source_name
    return fresh_tile(context, f"{name}_flat", kept, tile.dtype, access.span, name)


def reshaped(source: TileState, result: TileState, span: Span) -> ir.Compute:
    """The same lanes with other axes of extent 1."""
    return ir.Compute(
        "reshape",
        (ir.TileOperand(source.name, span=span),),
        result.name,
        source.dtype.compute,
        {},
        text=f"reshape({source.name}, {result.name})",
        span=span,
    )


def _axes(
    context: Context, access: syntax.Subscript
) -> tuple[syntax.Slice | tuple[ir.Expr, ...], ...]:
    """The axes of the lanes that an access names: a slice, or the extent of an index tile. Errors
    in the subscripts are reported."""
    parts = [
        part if isinstance(part, syntax.Slice) else index(context, part).extents
        for part in access.subscripts
    ]
    lanes = [part for part in parts if isinstance(part, tuple)]
    if any(isinstance(part, syntax.Slice) for part in parts):
        return tuple(part for part in parts if part is not None)
    return tuple((extent,) for extent in broadcast(context, lanes) or ())


def _length(context: Context, part: syntax.Slice | tuple[ir.Expr, ...]) -> ir.Expr:
    """How many lanes an axis of an access has; raises `InvalidError` after reporting a slice whose
    length the host does not know."""
    if isinstance(part, tuple):
        return part[0]
    lower = ir.Literal(0) if part.lower is None else index(context, part.lower).value
    if part.upper is not None:
        upper = index(context, part.upper).value
        candidates = [upper]
        if isinstance(upper, ir.Binary) and upper.operator == "min":  # no longer than either
            candidates += [upper.left, upper.right]
        for candidate in candidates:
            length: ir.Expr = ir.Binary("-", candidate, lower)
            if part.step is not None:
                length = ir.Binary("cdiv", length, index(context, part.step).value)
            known = context.host_form(symbolic.simplify(length, context.definitions))
            if known is not None:
                return ir.Literal(1) if context.is_one(known) else known
    raise _unknown_length(context, part)


def _unknown_length(context: Context, part: syntax.Slice) -> InvalidError:
    return context.error(
        part.span,
        "SK0306",
        "how many lanes a scalar is stored to must be known at launch",
        "a slice whose length is not",
        help="`fill` a tile of the largest length, and store that: lanes past the slice stay out",
    )

"""Loads, stores, atomics and fetches: their accesses, masks, padding and promises.

A shorter form stands for operations on tiles that the sketch does not name: `store(0 -> Y[lo:hi])`
fills a tile first; a tile of extents `[TM, 1]` is stored to `S[lo:hi]` by way of one of extents
`[TM]`. The statements that come first are collected in `Context.before`.
"""

from __future__ import annotations

from sketchc.base.diagnostics import Label, Span
from sketchc.base.types import DType
from sketchc.checker.calls.accesses import (
    access,
    index,
    readable_tile,
    tensor,
    tile_with_subscripts,
    writable_tile,
)
from sketchc.checker.calls.calls import check_scalar, no_conversion
from sketchc.checker.calls.composites import copied, primitive
from sketchc.checker.calls.expressions import as_held, condition, constant, number
from sketchc.checker.calls.operations import filled, operand
from sketchc.checker.context.context import Context, IndexName, ScalarName, Value
from sketchc.checker.context.fixits import cast_fix
from sketchc.checker.context.lets import without_functions
from sketchc.checker.context.shapes import SHAPE_INDICES, broadcast, fits, shown
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.walk import laid_out
from sketchc.ops.table import writes_implicitly
from sketchc.parsing import syntax
from sketchc.parsing.unparse import statement_text

# ---------------------------------------------------------------- stores


def stored_value(
    context: Context, node: syntax.Expression, access: syntax.Subscript, dtype: DType
) -> ir.Tile:
    """The tile for a stored (or combined) value that is no tile: a scalar, an index tile or an
    expression. A scalar takes the type `dtype` and fills all lanes of the access."""
    value = operand(context, node)
    if isinstance(value, ir.IndexOperand):
        statements, tile = copied(context, value, "stored", value.extents, value.dtype)
        context.before += statements
        return tile
    if isinstance(value, ir.TileOperand):  # what an expression gave
        return context.tiles[value.tile]
    extents = tuple(_length(context, part) for part in _axes(context, access))
    return filled(context, node, value, extents or (ir.Literal(1),), dtype)


def squeezed(context: Context, tile: ir.Tile, access: syntax.Subscript) -> ir.Tile | None:
    """A new tile in place of one with axes of extent 1 that the access lacks: `[TM]` for `[TM, 1]`
    beside `S[lo:hi]`. None where both have as many axes, or do not go together."""
    count = len(_axes(context, access))
    kept = tuple(extent for extent in tile.extents if not context.is_one(extent))
    if not 0 < count < len(tile.extents) or len(kept) > count:
        return None
    if len(kept) < count:
        kept = (*(ir.Literal(1),) * (count - len(kept)), *kept)
        if len(kept) > 1:
            return None  # which of the axes of extent 1 go is not said
    name = tile.source_name
    return context.make_tile(f"{name}_flat", kept, tile.dtype, access.span, name)


def reshaped(source: ir.Tile, result: ir.Tile, span: Span) -> ir.Compute:
    """A `reshape` between tiles with the same lanes and other axes of extent 1."""
    operand = ir.TileOperand(source.name, span=span)
    return primitive("reshape", (operand,), result.name, source.dtype.compute, span)


def _axes(
    context: Context, access: syntax.Subscript
) -> tuple[syntax.Slice | tuple[ir.Expr, ...], ...]:
    """The axes along which an access has lanes, each a slice or the extent of an index tile. Errors
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
    raise context.error(
        part.span,
        "SK0306",
        "how many lanes a scalar is stored to must be known at launch",
        "a slice whose length is not",
        help="`fill` a tile of the largest length, and store that: lanes past the slice stay out",
    )


#: The types that hardware combines in memory (some targets refuse the last three).
_ATOMIC = (DType.I32, DType.I64, DType.U32, DType.F32, DType.F64, DType.F16, DType.BF16)


#: The keyword arguments of the statements other than atomics.
_KEYWORDS = {"load": ("pad", "where"), "store": ("where", "unique", "covers")}


def transfer(context: Context, node: syntax.Transfer) -> tuple[ir.Statement, ...]:
    """Elaborate `load(X[...] -> tile, pad=, where=)`, `store(tile -> X[...], where=, unique=,
    covers=)`, or `atomic_add(tile -> X[...], where=)` and its like."""
    keywords = _keywords(context, node, _KEYWORDS.get(node.operation, ("where",)))
    if node.operation == "load":
        return _load(context, node, keywords)
    tile = _stored(context, node)
    target, dtype = access(context, node.access, tile)
    store = node.operation == "store"
    if not store and dtype not in _ATOMIC:
        raise context.error(
            node.span,
            "SK0330",
            f"`{node.operation}` does not work on {dtype.value}",
            "no such operation in memory",
            help=f"use a tensor of {', '.join(known.value for known in _ATOMIC)}",
        )
    _check_conversion(context, node, tile.dtype, dtype)
    where = _where(context, keywords.get("where"), tile)
    text = statement_text(node)
    if not store:
        name = node.operation.removeprefix("atomic_")
        return (ir.Atomic(name, tile.name, target, where=where, text=text, span=node.span),)
    unique, covers = (_promise(context, keywords, name) for name in ("unique", "covers"))
    done = ir.Store(
        tile.name, target, where=where, unique=unique, covers=covers, text=text, span=node.span
    )
    return (done,)


def _load(
    context: Context, node: syntax.Transfer, keywords: dict[str, syntax.Expression]
) -> tuple[ir.Statement, ...]:
    assert isinstance(node.tile, syntax.Name)  # the parser has seen to it
    target = writable_tile(context, node.tile)
    tile = squeezed(context, target, node.access) or target
    source, dtype = access(context, node.access, tile)
    _check_conversion(context, node, dtype, tile.dtype)
    pad = _pad(context, keywords.get("pad"), tile)
    where = _where(context, keywords.get("where"), tile)
    text = statement_text(node)
    done = ir.Load(source, tile.name, pad=pad, where=where, text=text, span=node.span)
    if tile is target:
        return (done,)
    return (ir.Alloc(tile.name, span=node.span), done, reshaped(tile, target, node.span))


def _stored(context: Context, node: syntax.Transfer) -> ir.Tile:
    """The tile that a store or an atomic writes from. A value other than a plain tile gets a new
    one: `t[:, None]`, a scalar, `iota(T)`, and a tile with axes of extent 1 that the access
    lacks."""
    value = node.tile
    base = value.base if isinstance(value, syntax.Subscript) else value
    named = isinstance(base, syntax.Name) and not isinstance(
        context.scopes.find(base.id), ScalarName | IndexName
    )
    if not named:
        return stored_value(context, value, node.access, tensor(context, node.access).dtype)
    assert isinstance(base, syntax.Name)
    tile = readable_tile(context, base)
    if isinstance(value, syntax.Subscript):
        operand = tile_with_subscripts(context, value, base)
        if operand.layout is not None:
            extents = laid_out(tile.extents, operand.layout, ir.Literal(1))
            stem = f"{tile.source_name}_stored"
            statements, tile = copied(context, operand, stem, extents, tile.dtype)
            context.before += statements
    flat = squeezed(context, tile, node.access)
    if flat is None:
        return tile
    context.before += [ir.Alloc(flat.name, span=node.span), reshaped(tile, flat, node.span)]
    return flat


def fetch(context: Context, node: syntax.Fetch, kind: ir.NameKind) -> ir.Fetch:
    """Elaborate `name = fetch(X[...])`; `kind` says who knows the value: the host, or a phase."""
    context.check_assignable(node.name, node.span)
    entry = tensor(context, node.access)
    subscripts = []
    for part in node.access.subscripts:
        typed = None if isinstance(part, syntax.Slice) else index(context, part)
        if typed is None or typed.extents is not None:
            raise context.error(
                part.span,
                "SK0323",
                "`fetch` gives one value: its subscripts are scalars",
                "a slice" if typed is None else "has lanes",
                help="`load` reads a tile",
            )
        subscripts.append(ir.ScalarSubscript(typed.value))
    dtype = entry.dtype.compute
    if dtype.is_integer:
        dtype = DType.I64
    name = context.fresh(node.name)
    context.scopes.add(node.name, ScalarName(name, kind, dtype, node.span))
    limits = entry.dtype.limits
    if entry.dtype.is_integer and entry.dtype is not DType.I64 and limits is not None:
        context.note_interval(name, lambda _: limits)
    source = ir.Access(entry.name, tuple(subscripts), span=node.access.span)
    return ir.Fetch(name, source, dtype, text=statement_text(node), span=node.span)


def _keywords(
    context: Context, node: syntax.Transfer, known: tuple[str, ...]
) -> dict[str, syntax.Expression]:
    """The keyword arguments by name; the parser has seen to it that none is given twice."""
    for keyword in node.keywords:
        if keyword.name not in known:
            raise context.error(
                keyword.span,
                "SK0211",
                f"`{node.operation}` has no argument `{keyword.name}`",
                f"it takes {', '.join(known)}",
            )
    return {keyword.name: keyword.value for keyword in node.keywords}


def _pad(
    context: Context, node: syntax.Expression | None, tile: ir.Tile
) -> Value | ir.ScalarOperand | None:
    """The value of lanes that lie outside the tensor, in the tile's type."""
    if node is None:
        return None
    value = number(context, node, "`pad`")
    if isinstance(value, ir.ScalarOperand):
        check_scalar(context, value, tile)
        return value
    held = as_held(value, tile.dtype)
    if held is None:
        raise context.error(
            node.span,
            "SK0214",
            f"`{tile.source_name}` cannot be padded with {value}: its type is {tile.dtype.value}",
            "does not fit",
            labels=(Label(tile.span, f"{tile.dtype.value} tile"),),
        )
    return held


def _where(context: Context, node: syntax.Expression | None, tile: ir.Tile) -> ir.Expr | None:
    """The condition under which a lane is read or written; it broadcasts to the tile."""
    if node is None:
        return None
    typed = condition(context, node)
    if typed.extents is not None and not fits(context, typed.extents, tile.extents):
        raise context.error(
            node.span,
            "SK0322",
            f"the condition has the shape {shown(typed.extents)}, and the tile "
            f"{shown(tile.extents)}",
            "does not broadcast to the tile",
            labels=(Label(tile.span, f"its shape is {shown(tile.extents)}"),),
            help=SHAPE_INDICES,
        )
    return without_functions(context, typed, node.span)


def _promise(context: Context, keywords: dict[str, syntax.Expression], name: str) -> bool:
    node = keywords.get(name)
    if node is None:
        return False
    value = constant(context, node, f"`{name}`")
    if not isinstance(value, bool):
        raise context.error(node.span, "SK0211", f"`{name}` is True or False", f"this is {value}")
    return value


def _check_conversion(
    context: Context, node: syntax.Transfer, source: DType, target: DType
) -> None:
    """Check that a loaded or stored type converts to that of its destination without `cast`."""
    if not writes_implicitly(source, target):
        fixes = cast_fix(context, node, source if node.operation == "load" else target)
        raise no_conversion(context, node.span, source, target, fixes=fixes)

"""Loads, stores, atomics and fetches: their accesses, masks, padding and promises."""

from __future__ import annotations

from sketchc.base.diagnostics import Label
from sketchc.base.types import DType
from sketchc.checker.calls.accesses import access, index, readable_tile, tensor, writable_tile
from sketchc.checker.calls.expressions import condition, constant
from sketchc.checker.calls.fresh_tiles import copied
from sketchc.checker.calls.scalars import number
from sketchc.checker.calls.shorthand import reshaped, squeezed, stored_value
from sketchc.checker.calls.tile_operands import tile_with_subscripts
from sketchc.checker.context.context import Context, InvalidError, Value
from sketchc.checker.context.fixits import cast_fix
from sketchc.checker.context.lets import without_functions
from sketchc.checker.context.names import IndexName, ScalarName, TileState
from sketchc.checker.context.shapes import fits, shown
from sketchc.ir import nodes as ir
from sketchc.ir.lanes import laid_out
from sketchc.ops.dtypes import literal_fits, writes_implicitly
from sketchc.parsing import syntax
from sketchc.parsing.text import statement_text

#: The types that hardware combines in memory (some targets refuse the last three).
_ATOMIC = (DType.I32, DType.I64, DType.U32, DType.F32, DType.F64, DType.F16, DType.BF16)


def load(context: Context, node: syntax.Load) -> tuple[ir.Statement, ...]:
    """Elaborate `load(X[...] -> tile, pad=, where=)`."""
    keywords = _keywords(context, node.keywords, "load", ("pad", "where"))
    target = writable_tile(context, node.tile)
    tile = squeezed(context, target, node.access) or target
    source, dtype = access(context, node.access, tile)
    if not writes_implicitly(dtype, tile.dtype):
        raise _needs_cast(context, node, dtype, tile.dtype, loading=True)
    done = ir.Load(
        source,
        tile.name,
        pad=_pad(context, keywords.get("pad"), tile),
        where=_where(context, keywords.get("where"), tile),
        text=statement_text(node),
        span=node.span,
    )
    if tile is target:
        return (done,)
    return (ir.Alloc(tile.name, span=node.span), done, reshaped(tile, target, node.span))


def store(context: Context, node: syntax.Store) -> tuple[ir.Statement, ...]:
    """Elaborate `store(tile -> X[...], where=, unique=, covers=)`."""
    keywords = _keywords(context, node.keywords, "store", ("where", "unique", "covers"))
    tile = _stored(context, node)
    target, dtype = access(context, node.access, tile)
    if not writes_implicitly(tile.dtype, dtype):
        raise _needs_cast(context, node, tile.dtype, dtype, loading=False)
    done = ir.Store(
        tile.name,
        target,
        where=_where(context, keywords.get("where"), tile),
        unique=_promise(context, keywords, "unique"),
        covers=_promise(context, keywords, "covers"),
        text=statement_text(node),
        span=node.span,
    )
    return (done,)


def atomic(context: Context, node: syntax.Atomic) -> tuple[ir.Statement, ...]:
    """Elaborate `atomic_add(tile -> X[...], where=)` and its like."""
    keywords = _keywords(context, node.keywords, node.operation, ("where",))
    tile = _stored(context, node)
    target, dtype = access(context, node.access, tile)
    if dtype not in _ATOMIC:
        raise context.error(
            node.span,
            "SK0330",
            f"`{node.operation}` does not work on {dtype.value}",
            "no such operation in memory",
            help=f"use a tensor of {', '.join(known.value for known in _ATOMIC)}",
        )
    if not writes_implicitly(tile.dtype, dtype):
        raise _needs_cast(context, node, tile.dtype, dtype, loading=False)
    done = ir.Atomic(
        node.operation.removeprefix("atomic_"),
        tile.name,
        target,
        where=_where(context, keywords.get("where"), tile),
        text=statement_text(node),
        span=node.span,
    )
    return (done,)


def _stored(context: Context, node: syntax.Store | syntax.Atomic) -> TileState:
    """The tile that a store or an atomic writes from. What is not a tile as it is gets one of its
    own: `t[:, None]`, a scalar, `iota(T)`, and a tile with axes of extent 1 that the access
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
    name = context.namer.fresh(node.name)
    context.scopes.add(node.name, ScalarName(name, kind, dtype, node.span))
    limits = entry.dtype.limits
    if entry.dtype.is_integer and entry.dtype is not DType.I64 and limits is not None:
        context.note_interval(name, lambda _: limits)
    source = ir.Access(entry.name, tuple(subscripts), span=node.access.span)
    return ir.Fetch(name, source, dtype, text=statement_text(node), span=node.span)


def _keywords(
    context: Context, given: tuple[syntax.Keyword, ...], statement: str, known: tuple[str, ...]
) -> dict[str, syntax.Expression]:
    """The keyword arguments by name; the parser has seen to it that none is given twice."""
    for keyword in given:
        if keyword.name not in known:
            raise context.error(
                keyword.span,
                "SK0211",
                f"`{statement}` has no argument `{keyword.name}`",
                f"it takes {', '.join(known)}",
            )
    return {keyword.name: keyword.value for keyword in given}


def _pad(
    context: Context, node: syntax.Expression | None, tile: TileState
) -> Value | ir.ScalarOperand | None:
    """The value of lanes that lie outside the tensor, in the tile's type."""
    if node is None:
        return None
    value = number(context, node, "`pad`")
    if isinstance(value, ir.ScalarOperand):
        number_fits = tile.dtype.is_float and value.dtype is not DType.BOOL
        if not number_fits and not writes_implicitly(value.dtype, tile.dtype):
            raise context.error(
                node.span,
                "SK0307",
                f"this scalar does not convert to {tile.dtype.value} without `cast`",
                f"{value.dtype.value} into {tile.dtype.value}",
                labels=(Label(tile.span, f"{tile.dtype.value} tile"),),
            )
        return value
    natural = isinstance(value, int) and not isinstance(value, bool) and value in (0, 1)
    if not literal_fits(value, tile.dtype) and not (tile.dtype is DType.BOOL and natural):
        raise context.error(
            node.span,
            "SK0214",
            f"`{tile.source_name}` cannot be padded with {value}: its type is {tile.dtype.value}",
            "does not fit",
            labels=(Label(tile.span, f"{tile.dtype.value} tile"),),
        )
    if tile.dtype.is_float:
        return float(value)
    return bool(value) if tile.dtype is DType.BOOL else value


def _where(context: Context, node: syntax.Expression | None, tile: TileState) -> ir.Expr | None:
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
            help="shape index tiles with `[:, None]` and `[None, :]`",
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


def _needs_cast(
    context: Context,
    node: syntax.Load | syntax.Store | syntax.Atomic,
    source: DType,
    destination: DType,
    *,
    loading: bool,
) -> InvalidError:
    return context.error(
        node.span,
        "SK0307",
        f"{source.value} does not convert to {destination.value} without `cast`",
        f"{source.value} into {destination.value}",
        notes=("only float to float and widening integer conversions are implicit (R6)",),
        fixes=cast_fix(context, node, source if loading else destination),
    )

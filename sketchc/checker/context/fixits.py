"""Fix-its that rewrite statements, and the patterns of the public listings that need them.

An edit replaces the text of one span. Statements are reprinted on lines of their own with the
indentation of the statement they replace.
"""

from __future__ import annotations

from collections.abc import Iterable

from sketchc.base import records
from sketchc.base.diagnostics import NOWHERE, Edit, Fix
from sketchc.base.types import DType
from sketchc.checker.context.context import Context, TileName
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic, walk
from sketchc.ir.show import show
from sketchc.ir.walk import free_name
from sketchc.ops.table import COMBINING, OPS
from sketchc.parsing import syntax
from sketchc.parsing.unparse import line_edit, statement_text


def _free_name(context: Context, wanted: str) -> str:
    return free_name(wanted, {*context.scopes.visible(), *context.taken})


def init_fix(node: syntax.Alloc) -> Fix:
    """A fix that gives an alloc `init=0`."""
    zero = syntax.Number(0, "0")
    text = statement_text(records.evolve(node, init=zero))
    return Fix(f"initialise `{node.name}` with `init=0`", (Edit(node.span, text),))


def cast_fix(
    context: Context, node: syntax.Transfer | syntax.Compute, dtype: DType
) -> tuple[Fix, ...]:
    """A fix that puts a tile of type `dtype` and a `cast` between a statement and its tile; none
    where the statement adds to what the tile holds."""
    match node:
        case syntax.Compute(arguments=(*_, syntax.Name(id=name))):
            keywords = {keyword.name for keyword in node.keywords}
            if OPS[node.operation].accumulates or "dst" in keywords:
                return ()
        case syntax.Transfer(tile=syntax.Name(id=name)):
            pass
        case _:
            return ()
    entry = context.scopes.find(name)
    original = context.allocs.get(entry.tile.name) if isinstance(entry, TileName) else None
    if original is None:
        return ()
    between = syntax.Name(_free_name(context, f"{name}_{dtype.value}"))
    made = statement_text(syntax.Alloc(between.id, original.extents, dtype, None, ()))
    if isinstance(node, syntax.Compute):
        arguments = (*node.arguments[:-1], between)
        lines = [made, statement_text(records.evolve(node, arguments=arguments))]
    else:
        lines = [made, statement_text(records.evolve(node, tile=between))]
    if isinstance(node, syntax.Transfer) and node.operation != "load":
        lines.insert(1, f"cast({name}, {between.id})")
    else:
        lines.append(f"cast({between.id}, {name})")
    return (Fix("convert with `cast`", (line_edit(node, lines),)),)


def late_positional_fix(node: syntax.Compute) -> Fix:
    """A fix that puts the positional arguments before the keywords."""
    return Fix("put the keywords last", (Edit(node.span, statement_text(node)),), safe=True)


def accumulate_fix(context: Context, node: syntax.Compute, tile: ir.Tile) -> tuple[Fix, ...]:
    """A fix that reduces into a new tile, then combines that with the accumulator `tile`."""
    original = context.allocs.get(tile.name)
    operation = COMBINING.get(OPS[node.operation].identity or "")
    match node:
        case syntax.Compute(arguments=(*_, syntax.Name(id=name))) if (
            original is not None and operation is not None and name == tile.source_name
        ):
            part = _free_name(context, f"{name}_part")
            made = syntax.Alloc(part, original.extents, original.dtype, None, ())
            arguments = (*node.arguments[:-1], syntax.Name(part))
            lines = [
                statement_text(made),
                statement_text(records.evolve(node, arguments=arguments)),
                f"{operation}({name}, {part}, {name})",
            ]
            return (Fix("reduce into a tile of its own, then combine", (line_edit(node, lines),)),)
        case _:
            return ()


# ---------------------------------------------------------------- tile-index loops


def tile_index_fixes(body: Iterable[ir.Statement]) -> tuple[Fix, ...]:
    """Fix-its for loops that count tiles but slice elements, as the public listings do.

    `for i in range(ceil(M, m0))` with `A[i:i+m0]` reads and writes overlapping rows. Two repairs,
    each applied to every such loop in `body` and to all its accesses, so that the result means what
    was meant: slice `i*m0:(i+1)*m0`, or count elements with `range(0, M, m0)`. Empty where the
    pattern does not occur.
    """
    slices: list[Edit] = []
    ranges: list[Edit] = []
    for loop in (one for one in walk.statements(body) if isinstance(one, ir.For)):
        found = tile_index_slices(loop)
        match loop.stop:
            case ir.Binary("cdiv", total, tile) if found:
                pass
            case _:
                continue
        variable = loop.text.split()[1] if loop.text else loop.variable
        size = show(tile)
        factor = size if isinstance(tile, ir.Ref | ir.Literal) else f"({size})"
        for part in found:
            text = f"{variable}*{factor}:({variable}+1)*{factor}"
            slices.append(Edit(part.lower.span.to(part.upper.span), text))
        span = loop.stop.span
        if loop.start.span != NOWHERE:
            span = loop.start.span.to(span)
        ranges.append(Edit(span, f"0, {show(total)}, {size}"))
    if not slices:
        return ()
    return (
        Fix("slice whole tiles, as in `i*m0:(i+1)*m0`", tuple(dict.fromkeys(slices))),
        Fix("count elements, as in `range(0, M, m0)`", tuple(dict.fromkeys(ranges))),
    )


def tile_index_slices(loop: ir.For) -> list[ir.SliceSubscript]:
    """The slices `i:i+m0` in the body of a loop `for i in range(ceil(M, m0))`."""
    if loop.start != ir.Literal(0) or loop.step != ir.Literal(1) or loop.stop.span == NOWHERE:
        return []
    return [
        subscript
        for statement in walk.statements(loop.body)
        if isinstance(statement, ir.Load | ir.Store | ir.Atomic)
        for subscript in statement.access.subscripts
        if isinstance(subscript, ir.SliceSubscript)
        and subscript.step == ir.Literal(1)
        and _counts_tiles(subscript, loop)
        and NOWHERE not in (subscript.lower.span, subscript.upper.span)
    ]


def _counts_tiles(subscript: ir.SliceSubscript, loop: ir.For) -> bool:
    """Whether a slice starts at the loop's variable and is as long as the loop's tile."""
    match subscript.lower, loop.stop:
        case ir.Ref(name=name), ir.Binary("cdiv", _, tile) if name == loop.variable:
            end = ir.Binary("+", subscript.lower, tile)
            return symbolic.equal(subscript.upper, end)
        case _:
            return False

"""The tiles and tensors that statements read and write, and their places in the syntax tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import reads, writes
from sketchc.parsing import syntax
from sketchc.parsing.syntax import names, statements


def stored(sketch: ir.Sketch, body: Iterable[ir.Statement]) -> set[str]:
    """The base tensors that are written somewhere in `body`."""
    return walk.bases(sketch, body, ir.Store, ir.Atomic)


def updates(statement: ir.Compute) -> bool:
    """Whether the destination of an operation is one of its operands, too."""
    return any(
        isinstance(operand, ir.TileOperand) and operand.tile == statement.destination
        for operand in statement.operands
    )


def exposed(body: Iterable[ir.Statement]) -> set[str]:
    """Tiles that `body` may read with the values that they have before it."""
    assigned: set[str] = set()
    found: set[str] = set()

    def visit(statements: Iterable[ir.Statement], certain: bool) -> None:
        for statement in statements:
            found.update(set(reads(statement)) - assigned)
            if isinstance(statement, ir.Alloc):
                assigned.add(statement.tile)
            if certain:
                assigned.update(writes(statement))
            visit(walk.inside(statement), certain=False)

    visit(body, certain=True)
    return found


def left_out(sketch: ir.Sketch, tree: syntax.Sketch) -> set[str]:
    """The names, as in the source, that are used in branches that the constants of `sketch` do not
    take: with other constants they are used."""
    taken = {statement.span for statement in walk.in_phases(sketch.phases)}
    found: set[str] = set()

    def visit(statements: Iterable[syntax.Statement], inside: bool) -> None:
        for statement in statements:
            match statement:
                case syntax.For(body=body):
                    visit(body, inside)
                case syntax.If(body=body, orelse=orelse):
                    visit((*body, *orelse), inside=True)
                case _ if inside and statement.span not in taken:
                    found.update(_mentioned(statement))

    visit(tree.body, inside=False)
    return found


def _mentioned(statement: syntax.Statement) -> Iterator[str]:
    """Every name that a simple statement uses."""
    match statement:
        case syntax.Transfer():
            yield from names((statement.access, statement.tile, statement.keywords))
        case syntax.Compute():
            yield from names((statement.arguments, statement.keywords))
        case syntax.Binding():
            yield from names(statement.values)
        case syntax.Fetch():
            yield from names(statement.access)


def alloc_of(tree: syntax.Sketch, tile: ir.Tile) -> syntax.Alloc | None:
    """The alloc statement of the syntax tree that made a tile, or None."""
    allocs = (each for each in statements(tree.body) if isinstance(each, syntax.Alloc))
    return next((each for each in allocs if tile.span in (each.span, each.name_span)), None)


def loop_of(tree: syntax.Sketch, loop: ir.For) -> syntax.For | None:
    """The loop of the syntax tree from which `loop` was made, or None."""
    loops = (each for each in statements(tree.body) if isinstance(each, syntax.For))
    return next((each for each in loops if each.span == loop.span), None)

"""A load into a tile that nothing reads afterwards (SK0650)."""

from __future__ import annotations

from collections.abc import Iterator

from sketchc import ir, syntax
from sketchc.diagnostics import Diagnostic, Edit, Fix, Severity
from sketchc.lints.uses import bodies, children, exposed, left_out, reads, walk, writes


def run(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Loads whose tile is read nowhere, or is written anew before anything reads it."""
    elsewhere = left_out(sketch, tree)
    for phase in sketch.phases:
        used = {tile for statement in walk(phase.body) for tile in reads(statement)}
        for body in bodies(phase.body):
            for position, statement in enumerate(body):
                if not isinstance(statement, ir.Load):
                    continue
                tile = sketch.tile(statement.tile)
                if tile.initial is not None:
                    continue  # a masked update: what it leaves alone still counts
                if tile.source_name in elsewhere:
                    continue
                if statement.tile not in used or _lost(statement.tile, body[position + 1 :]):
                    yield _report(sketch, statement, alone=len(body) == 1)


def _lost(tile: str, rest: tuple[ir.Statement, ...]) -> bool:
    """Whether the straight code after a load overwrites its tile before any read."""
    for statement in rest:
        if tile in reads(statement) or tile in exposed(children(statement)):
            return False
        if tile in writes(statement):
            return True
        if any(tile in writes(inner) for inner in walk(children(statement))):
            return False
    return False


def _report(sketch: ir.Sketch, load: ir.Load, alone: bool) -> Diagnostic:
    name = sketch.tile(load.tile).source_name
    fix = Fix("remove the load", (Edit(load.span, "pass" if alone else ""),))
    return Diagnostic(
        "SK0650",
        Severity.WARNING,
        f"`{name}` is loaded here, and nothing reads it",
        load.span,
        "moves bytes for nothing",
        help="remove the load, or use what it brings",
        fixes=(fix,),
    )

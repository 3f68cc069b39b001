"""A tile that is made and never used (SK0659)."""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base.diagnostics import Diagnostic, Edit, Fix, Severity
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import bodies, reads, writes
from sketchc.lints.uses import left_out
from sketchc.parsing import syntax


def run(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Allocs of tiles that no statement reads or writes."""
    elsewhere = left_out(sketch, tree)
    for phase in sketch.phases:
        statements = list(walk.statements(phase.body))
        used = {tile for each in statements for tile in (*reads(each), *writes(each))}
        for body in bodies(phase.body):
            for statement in body:
                if not isinstance(statement, ir.Alloc) or statement.tile in used:
                    continue
                tile = sketch.tile(statement.tile)
                if tile.source_name not in elsewhere:
                    yield _report(tile, statement, alone=len(body) == 1)


def _report(tile: ir.Tile, alloc: ir.Alloc, alone: bool) -> Diagnostic:
    fix = Fix("remove it", (Edit(alloc.span, "pass" if alone else ""),), safe=True)
    return Diagnostic(
        "SK0659",
        Severity.WARNING,
        f"`{tile.source_name}` is never used",
        tile.span,
        "takes scratch for nothing",
        fixes=(fix,),
    )

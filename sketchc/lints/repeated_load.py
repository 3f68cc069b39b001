"""Loads of elements that a tile holds already: by an earlier load in the same straight code
(SK0653), or by the load itself in every iteration of a loop (SK0654)."""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base import records
from sketchc.base.diagnostics import Diagnostic, Edit, Fix, Label, warning
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import bodies, expressions, names, reads, writes
from sketchc.lints.unused import needless
from sketchc.lints.uses import alloc_of, loop_of, stored
from sketchc.parsing import syntax
from sketchc.parsing.unparse import statement_text


def repeated_loads(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Warnings of both kinds, in program order. `_twice` does not see needless loads (SK0650):
    their fix removes them, so that no tile would be left to copy from."""
    elsewhere = needless(sketch, tree)
    for phase in sketch.phases:
        for body in bodies(phase.body):
            kept = tuple(each for each in body if each.span not in elsewhere)
            yield from _twice(sketch, tree, kept)
        for statement in walk.statements(phase.body):
            if isinstance(statement, ir.For) and not statement.parallel:
                yield from _invariant(sketch, tree, phase, statement)


def _twice(
    sketch: ir.Sketch, tree: syntax.Sketch, body: tuple[ir.Statement, ...]
) -> Iterator[Diagnostic]:
    """Warnings for pairs of equal loads in straight code, with no store to the tensor between."""
    alive: list[ir.Load] = []
    for statement in body:
        if isinstance(statement, ir.Load):
            same = next((other for other in alive if _equal(sketch, other, statement)), None)
            if same is not None:
                yield _report_twice(sketch, tree, same, statement)
        changed = stored(sketch, (statement,))
        touched = {tile for inner in walk.statements((statement,)) for tile in writes(inner)}
        alive = [
            load
            for load in alive
            if sketch.tensor(load.access.tensor).name not in changed
            and touched.isdisjoint((*reads(load), *writes(load)))
        ]
        if isinstance(statement, ir.Load) and touched.isdisjoint(reads(statement)):
            alive.append(statement)


def _equal(sketch: ir.Sketch, left: ir.Load, right: ir.Load) -> bool:
    one, other = sketch.tile(left.tile), sketch.tile(right.tile)
    return (
        (left.access, left.pad, left.where) == (right.access, right.pad, right.where)
        and (one.extents, one.dtype) == (other.extents, other.dtype)
        and other.initial is None
        and one.name != other.name
    )


def _report_twice(
    sketch: ir.Sketch, tree: syntax.Sketch, first: ir.Load, second: ir.Load
) -> Diagnostic:
    one, other = sketch.tile(first.tile), sketch.tile(second.tile)
    name = one.source_name
    edits = [Edit(second.span, f"copy({name}, {other.source_name})")]
    # A tile that the sketch does not name stands between a load and one with axes of extent 1.
    made = alloc_of(tree, other)
    named = alloc_of(tree, one) is not None and made is not None
    if made is not None and made.dtype is None:
        # The load may be what the tile has its type from.
        edits.append(Edit(made.span, statement_text(records.evolve(made, dtype=other.dtype))))
    return warning(
        second.span,
        "SK0653",
        f"these elements are in `{name}` already",
        "loaded a second time",
        labels=(Label(first.span, "first loaded here"),),
        help=f"use `{name}`, or `copy` it where a second tile is written later",
        fixes=(Fix(f"copy `{name}`", tuple(edits), safe=True),)
        if one.dtype.is_float and named
        else (),
    )


def _invariant(
    sketch: ir.Sketch, tree: syntax.Sketch, phase: ir.Phase, loop: ir.For
) -> Iterator[Diagnostic]:
    """Warnings for loads that do not depend on the sequential loop around them."""
    changed = stored(sketch, loop.body)
    within = {loop.variable}
    for statement in walk.statements(loop.body):
        match statement:
            case ir.For(variable=name) | ir.Bind(name=name) | ir.Fetch(name=name):
                within.add(name)
    written: dict[str, int] = {}
    for statement in walk.statements(loop.body):
        for tile in writes(statement):
            written[tile] = written.get(tile, 0) + 1
    for statement in loop.body:
        if not isinstance(statement, ir.Load):
            continue
        used = {name for part in expressions(statement) for name in names(part)}
        once = written.get(statement.tile) == 1 and written.keys().isdisjoint(reads(statement))
        extents = sketch.tile(statement.tile).extents
        sized = {name for extent in extents for name in names(extent)}
        fixed = not (used | sized) & within
        if once and fixed and sketch.tensor(statement.access.tensor).name not in changed:
            yield _report_invariant(loop, statement, _hoist(sketch, tree, phase, loop, statement))


def _report_invariant(loop: ir.For, load: ir.Load, fix: Fix | None) -> Diagnostic:
    name = loop.text.split()[1] if loop.text else loop.variable
    return warning(
        load.span,
        "SK0654",
        f"the load brings the same elements in every iteration of `{name}`",
        f"does not depend on `{name}`",
        labels=(Label(loop.span, "this loop"),),
        help="load once, before the loop",
        fixes=() if fix is None else (fix,),
    )


def _hoist(
    sketch: ir.Sketch, tree: syntax.Sketch, phase: ir.Phase, loop: ir.For, load: ir.Load
) -> Fix | None:
    """The fix that moves a load before the loop, and the tile's alloc with it where that stands
    inside. None where the fix might change results: a scalar subscript may be in bounds only where
    the loop runs at all, and the moved tile may hide another tile of the same name."""
    tile = sketch.tile(load.tile)
    parts = load.access.subscripts
    if load.where is not None or any(not isinstance(part, ir.SliceSubscript) for part in parts):
        return None
    writers = [each for each in walk.statements(phase.body) if tile.name in writes(each)]
    same = [other for other in sketch.tiles if other.source_name == tile.source_name]
    node, made = loop_of(tree, loop), alloc_of(tree, tile)
    if len(writers) > 1 or len(same) > 1 or tile.initial is not None or not (node and made):
        return None
    within = [each for each in node.body if each.span == load.span or each == made]
    if not any(each.span == load.span for each in within):
        return None
    if made not in within and tile.name in {
        each.tile for each in walk.statements(loop.body) if isinstance(each, ir.Alloc)
    }:
        return None
    start = (node.hints[0] if node.hints else node).span
    text = "".join(f"{statement_text(each)}\n{' ' * (start.column - 1)}" for each in within)
    place = records.evolve(start, end=start.start, end_line=start.line, end_column=start.column)
    alone = len(within) == len(node.body)
    gone = (Edit(e.span, "pass" if alone and e is within[0] else "") for e in within)
    return Fix("load before the loop", (Edit(place, text), *gone), safe=True)

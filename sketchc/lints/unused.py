"""Unused parts of a sketch: loads into tiles that nothing reads, or that feed nothing but such
tiles (SK0650), tiles that are made and never used (SK0659), and params (SK0661)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sketchc.base.diagnostics import Diagnostic, Edit, Fix, Span, warning
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.walk import bodies, reads, writes
from sketchc.lints.uses import alloc_of, exposed, left_out
from sketchc.parsing import syntax
from sketchc.parsing.prepass import prepass


def unused_loads(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Warnings for loads whose tile is read nowhere, is overwritten before anything reads it, or
    feeds only tiles that are never stored."""
    elsewhere = left_out(sketch, tree)
    for phase in sketch.phases:
        dead = _dead(phase)
        told: set[Span] = set()
        for load, body in _unread(sketch, phase, elsewhere):
            told.add(load.span)
            keeps = _keeps_its_type(sketch, tree, phase, load)
            what = "nothing reads it"
            advice = "remove the load, or use what it brings"
            fix = Fix("remove the load", _removal([load], [body]), keeps)
            yield _report_load(load, sketch.tile(load.tile), what, advice, fix)
        for load in (each for each in walk.statements(phase.body) if isinstance(each, ir.Load)):
            tile = sketch.tile(load.tile)
            if load.span in told or load.tile not in dead or tile.initial is not None:
                continue
            chain = _chain(phase, load)
            names = {sketch.tile(name).source_name for each in chain for name in writes(each)}
            if not names & elsewhere:
                what = "nothing that is stored depends on it"
                remove = "remove the load and what is computed of it"
                fix = Fix(remove, _removal(chain, list(bodies(phase.body))), safe=True)
                yield _report_load(load, tile, what, f"{remove}, or use the result", fix)


def needless(sketch: ir.Sketch, tree: syntax.Sketch) -> set[Span]:
    """The spans of loads whose tile no statement reads, or only ones that nothing depends on."""
    elsewhere = left_out(sketch, tree)
    found: set[Span] = set()
    for phase in sketch.phases:
        dead = _dead(phase)
        found |= {load.span for load, _ in _unread(sketch, phase, elsewhere)}
        loads = (each for each in walk.statements(phase.body) if isinstance(each, ir.Load))
        found |= {load.span for load in loads if load.tile in dead}
    return found


def _unread(
    sketch: ir.Sketch, phase: ir.Phase, elsewhere: set[str]
) -> Iterator[tuple[ir.Load, tuple[ir.Statement, ...]]]:
    """The loads whose tile is not read before it is overwritten, each with the list of statements
    that it stands in."""
    used = {tile for statement in walk.statements(phase.body) for tile in reads(statement)}
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
                yield statement, body


def _lost(tile: str, rest: tuple[ir.Statement, ...]) -> bool:
    """Whether the straight code after a load overwrites its tile before any read."""
    for statement in rest:
        if tile in reads(statement) or tile in exposed(walk.inside(statement)):
            return False
        if tile in writes(statement):
            return True
        if any(tile in writes(inner) for inner in walk.statements(walk.inside(statement))):
            return False
    return False


def _dead(phase: ir.Phase) -> set[str]:
    """The tiles of a phase on which no store, atomic, index, condition or loop bound depends."""
    statements = list(walk.statements(phase.body))
    live: set[str] = set()
    for statement in statements:
        if not isinstance(statement, ir.Compute | ir.Load):
            live.update(reads(statement))
    tiles = {tile for statement in statements for tile in writes(statement)}
    changed = True
    while changed:
        needed = {
            tile
            for statement in statements
            if not live.isdisjoint(writes(statement))
            for tile in reads(statement)
        }
        changed = not needed <= live
        live |= needed
    return tiles - live


def _chain(phase: ir.Phase, load: ir.Load) -> Sequence[ir.Statement]:
    """The loads and computations that must be removed together with a load of a dead tile: those
    that its tile feeds, and all that write the same tiles, itself among them."""
    statements = [
        each for each in walk.statements(phase.body) if isinstance(each, ir.Compute | ir.Load)
    ]
    fed = {load.tile}
    while True:
        chain = [each for each in statements if not fed.isdisjoint((*reads(each), *writes(each)))]
        more = {tile for each in chain for tile in writes(each)}
        if more <= fed:
            return chain
        fed |= more


def _removal(
    statements: Sequence[ir.Statement], among: Sequence[tuple[ir.Statement, ...]]
) -> tuple[Edit, ...]:
    """The edits that remove `statements` from the bodies `among`; none where one shares its span
    with a statement that stays."""
    spans = {statement.span for statement in statements}
    chosen = {id(statement) for statement in statements}
    edits: list[Edit] = []
    for body in among:
        gone = [each for each in body if each.span in spans]
        if any(id(each) not in chosen for each in gone):
            return ()
        alone = len(gone) == len(body)
        for place, span in enumerate(dict.fromkeys(each.span for each in gone)):
            edits.append(Edit(span, "pass" if alone and place == 0 else ""))
    return tuple(edits)


def _keeps_its_type(sketch: ir.Sketch, tree: syntax.Sketch, phase: ir.Phase, load: ir.Load) -> bool:
    """Whether the tile's element type is the same without this load: nothing else is written into
    the tile, or its alloc states the type, or all other writes are loads of that type."""
    others = [
        each
        for each in walk.statements(phase.body)
        if each is not load and load.tile in writes(each)
    ]
    made = alloc_of(tree, sketch.tile(load.tile))
    if not others or (made is not None and made.dtype is not None):
        return True
    dtype = sketch.tensor(load.access.tensor).dtype
    return all(
        isinstance(each, ir.Load) and sketch.tensor(each.access.tensor).dtype is dtype
        for each in others
    )


def _report_load(load: ir.Load, tile: ir.Tile, what: str, advice: str, fix: Fix) -> Diagnostic:
    return warning(
        load.span,
        "SK0650",
        f"`{tile.source_name}` is loaded here, and {what}",
        "moves bytes for nothing",
        help=advice,
        fixes=(fix,) if fix.edits else (),
    )


def unused_tiles(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Warnings for allocs of tiles that no statement reads or writes."""
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
                    yield _report_tile(tile, statement, alone=len(body) == 1)


def _report_tile(tile: ir.Tile, alloc: ir.Alloc, alone: bool) -> Diagnostic:
    fix = Fix("remove it", (Edit(alloc.span, "pass" if alone else ""),), safe=True)
    return warning(
        tile.span,
        "SK0659",
        f"`{tile.source_name}` is never used",
        "takes scratch for nothing",
        fixes=(fix,),
    )


def unused_params(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Warnings for params that no statement, extent, condition or used let names, not even in
    branches that the constants of `sketch` do not take."""
    read = prepass(tree).read
    for param in syntax.declared(tree, "params"):
        if param.name not in read:
            yield warning(
                param.span,
                "SK0661",
                f"`{param.name}` is never used",
                "nothing depends on it",
                help="use it where a constant stands in its place, or take it out",
            )

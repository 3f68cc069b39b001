"""Versions of tiles, and loads that need no tile.

A write to a tile without `init=` makes a new version (LOWERING 6): `sub(x, m, x)` after
`load(... -> x)` leaves the loaded values nameable, so each version is stored only if it must be.
A version made by a load is *forwarded* when nothing writes its tensor before the last use: its
uses read the tensor itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from sketchc import ir
from sketchc.ops import OPS, Category
from sketchc.symbolic import constant_value

#: (id of the statement, operand position), the statement being kept alive by the plan.
_Key = tuple[int, int]


@attrs.define
class Versions:
    """Which version of a tile each statement of one phase reads and writes."""

    sketch: ir.Sketch
    taken: set[str]
    _reads: dict[_Key, str] = attrs.field(factory=dict)
    _writes: dict[int, str] = attrs.field(factory=dict)
    _origins: dict[str, str] = attrs.field(factory=dict)
    _forwarded: dict[str, ir.Load] = attrs.field(factory=dict)
    _used: set[str] = attrs.field(factory=set)

    def origin(self, version: str) -> str:
        """The tile a version belongs to."""
        return self._origins.get(version, version)

    def read(self, statement: ir.Statement, position: int) -> str:
        """The version that an operand reads (a store's tile is at position 0)."""
        return self._reads[id(statement), position]

    def written(self, statement: ir.Statement) -> str:
        return self._writes[id(statement)]

    def needed(self, version: str) -> bool:
        """False for a version that nothing reads: its statement has no effect."""
        return version in self._used

    def source(self, version: str) -> ir.Load | None:
        """The load that stands for a forwarded version."""
        return self._forwarded.get(version)

    def forwarded(self, load: ir.Load) -> bool:
        return self._writes[id(load)] in self._forwarded

    def fresh(self, stem: str) -> str:
        """A name that nothing else has."""
        name = stem
        count = 2
        while name in self.taken:
            name = f"{stem}_{count}"
            count += 1
        self.taken.add(name)
        return name


@attrs.frozen
class _Event:
    """One statement in program order with the loops around it."""

    statement: ir.Statement
    loops: tuple[ir.For, ...]


def find_versions(
    sketch: ir.Sketch, body: tuple[ir.Statement, ...], taken: Iterable[str]
) -> Versions:
    """Number the versions of one phase's tiles and choose the loads to forward."""
    versions = Versions(sketch, set(taken))
    events = list(_events(body, ()))
    single = _single_version_tiles(sketch, events)
    current: dict[str, str] = {}
    reads: dict[str, list[int]] = {}
    for position, event in enumerate(events):
        for index, tile in _tiles_read(event.statement):
            version = current.setdefault(tile, tile)
            versions._reads[id(event.statement), index] = version
            reads.setdefault(version, []).append(position)
        written = _tile_written(event.statement)
        if written is None:
            continue
        if written in single or written not in current:
            version = written
        else:
            version = versions.fresh(f"{written}_{_stage(event.statement)}")
        current[written] = version
        versions._origins[version] = written
        versions._writes[id(event.statement)] = version
    versions._used.update(reads)
    _forward(versions, events, reads, single)
    return versions


def _stage(statement: ir.Statement) -> str:
    """What tells a later version of a tile from the first: the operation that makes it."""
    return statement.operation if isinstance(statement, ir.Compute) else "next"


def _events(body: tuple[ir.Statement, ...], loops: tuple[ir.For, ...]) -> Iterable[_Event]:
    for statement in body:
        yield _Event(statement, loops)
        if isinstance(statement, ir.For):
            yield from _events(statement.body, (*loops, statement))


def _tiles_read(statement: ir.Statement) -> list[tuple[int, str]]:
    match statement:
        case ir.Store(tile):
            return [(0, tile)]
        case ir.Compute(_, operands, destination):
            found = [
                (index, operand.tile)
                for index, operand in enumerate(operands)
                if isinstance(operand, ir.TileOperand)
            ]
            # A matrix product that accumulates reads its destination too.
            if OPS[statement.operation].accumulates:
                found.append((len(operands), destination))
            return found
        case _:
            return []


def _tile_written(statement: ir.Statement) -> str | None:
    match statement:
        case ir.Load(_, tile):
            return tile
        case ir.Compute(destination=tile):
            return tile
        case _:
            return None


def _single_version_tiles(sketch: ir.Sketch, events: list[_Event]) -> frozenset[str]:
    """Tiles that stay one piece of memory: initialised, carried by a loop, or accumulated into."""
    names = {tile.name for tile in sketch.tiles if tile.initial is not None}
    for event in events:
        match event.statement:
            case ir.For(carried=carried):
                names.update(carried)
            case ir.Compute(operation, destination=tile, masked=masked):
                if masked or OPS[operation].accumulates:
                    names.add(tile)
            case _:
                pass
    return frozenset(names)


def _forward(
    versions: Versions,
    events: list[_Event],
    reads: Mapping[str, list[int]],
    single: frozenset[str],
) -> None:
    for position, event in enumerate(events):
        load = event.statement
        if not isinstance(load, ir.Load) or load.tile in single:
            continue
        version = versions.written(load)
        uses = reads.get(version, [])
        if _worthwhile(versions.sketch, load, [events[use] for use in uses]) and not any(
            _stored_between(versions.sketch, load, event, events, position, use) for use in uses
        ):
            versions._forwarded[version] = load


def _worthwhile(sketch: ir.Sketch, load: ir.Load, uses: list[_Event]) -> bool:
    """Whether reading the tensor is as cheap as reading a tile: unit stride, a single use, or a
    matrix product, which packs its operands anyway."""
    others = [use for use in uses if not _is_product(use.statement)]
    if len(others) <= 1:
        return True
    tensor = sketch.tensor(load.access.tensor)
    if any(tensor.broadcast):
        return False
    extents = sketch.tile(load.tile).extents
    last = load.access.subscripts[-1]
    slices = [s for s in load.access.subscripts if isinstance(s, ir.SliceSubscript)]
    return isinstance(last, ir.SliceSubscript) or all(
        constant_value(extent) == 1 for extent in extents[-len(slices) :]
    )


def _is_product(statement: ir.Statement) -> bool:
    return (
        isinstance(statement, ir.Compute) and OPS[statement.operation].category is Category.MATRIX
    )


def _stored_between(
    sketch: ir.Sketch, load: ir.Load, at: _Event, events: list[_Event], position: int, use: int
) -> bool:
    """True if the tensor may change between the load and one use of the tile."""
    base = sketch.tensor(load.access.tensor).name
    inner = set(map(id, events[use].loops)) - set(map(id, at.loops))
    for index, event in enumerate(events):
        if not isinstance(event.statement, ir.Store):
            continue
        if sketch.tensor(event.statement.access.tensor).name != base:
            continue
        if position < index < use or inner & set(map(id, event.loops)):
            return True
    return False

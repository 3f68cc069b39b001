"""Versions of tiles, and loads that need no tile.

A write to a tile without `init=` makes a new version (LOWERING 6): `sub(x, m, x)` after
`load(... -> x)` leaves the loaded values nameable, so each version is stored only if it must be.
A version made by a load is *forwarded* when nothing writes its tensor before the last use: its
uses read the tensor itself. A tile that branches or loops change in place has one version only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.symbolic import constant_value
from sketchc.ir.walk import free_name, reads, references, tiles_read, writes
from sketchc.lowering.plan import is_product
from sketchc.ops.table import OPS

#: (id of the statement, tile), the statement being kept alive by the plan.
_Key = tuple[int, str]


@attrs.define
class Versions:
    """Which version of a tile each statement of one phase reads and writes."""

    sketch: ir.Sketch
    taken: set[str]
    single: frozenset[str]
    _reads: dict[_Key, str] = attrs.field(factory=dict)
    _writes: dict[_Key, str] = attrs.field(factory=dict)
    _origins: dict[str, str] = attrs.field(factory=dict)
    _forwarded: dict[str, ir.Load] = attrs.field(factory=dict)
    #: where each version is read, and what the index expressions of each statement hold
    _uses: dict[str, set[int]] = attrs.field(factory=lambda: defaultdict(set))
    _held: dict[int, set[str]] = attrs.field(factory=dict)

    def origin(self, version: str) -> str:
        """The tile a version belongs to."""
        return self._origins.get(version, version)

    def read(self, statement: ir.Statement, tile: str) -> str:
        """The version of a tile that a statement reads."""
        return self._reads[id(statement), tile]

    def written(self, statement: ir.Statement, position: int = 0) -> str:
        """The version that a statement makes of its destination at `position`."""
        return self._writes[id(statement), writes(statement)[position]]

    def needed(self, version: str) -> bool:
        """False for a version that nothing reads: its statement has no effect."""
        return version in self._uses

    def effective(self, statement: ir.Statement) -> bool:
        """Whether anything reads what a statement writes to tiles."""
        return any(self._writes[id(statement), tile] in self._uses for tile in writes(statement))

    def source(self, version: str) -> ir.Load | None:
        """The load whose tensor stands for a forwarded version; None for other versions."""
        return self._forwarded.get(version)

    def fresh(self, stem: str) -> str:
        """A name made from `stem` that nothing else has; it is taken from then on."""
        name = free_name(stem, self.taken)
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
    versions = Versions(sketch, set(taken), _single_version_tiles(sketch, body))
    events = list(_events(body, ()))
    current: dict[str, str] = {}
    bound: dict[str, set[str]] = {}
    for position, event in enumerate(events):
        statement = event.statement
        for tile in reads(statement):
            versions._reads[id(statement), tile] = current.setdefault(tile, tile)
        held: set[str] = set()
        for expression in index_expressions(statement):
            held.update(versions.read(statement, tile) for tile in tiles_read(expression))
            for reference in references(expression):  # through bindings as well
                held |= bound.get(reference.name, set())
        for version in held.union(versions.read(statement, tile) for tile in reads(statement)):
            versions._uses[version].add(position)
        versions._held[id(statement)] = held
        if isinstance(statement, ir.Bind):
            bound[statement.name] = held
        for written in writes(statement):
            if written in versions.single or written not in current:
                version = written
            else:
                operation = statement.operation if isinstance(statement, ir.Compute) else "next"
                version = versions.fresh(f"{written}_{operation}")
            current[written] = version
            versions._origins[version] = written
            versions._writes[id(statement), written] = version
    _forward(versions, events)
    return versions


def _events(body: tuple[ir.Statement, ...], loops: tuple[ir.For, ...]) -> Iterable[_Event]:
    for statement in body:
        yield _Event(statement, loops)
        within = (*loops, statement) if isinstance(statement, ir.For) else loops
        yield from _events(walk.inside(statement), within)


# ---------------------------------------------------------------- what a statement touches


def index_expressions(statement: ir.Statement) -> tuple[ir.Expr, ...]:
    """The expressions of a statement that may hold index tiles and predicates."""
    match statement:
        case ir.Load(access=access) | ir.Store(access=access) | ir.Atomic(access=access):
            subscripts = [s.value for s in access.subscripts if isinstance(s, ir.IndexSubscript)]
            return (*subscripts, *statement.guards)
        case ir.Compute(operands=operands):
            return tuple(o.value for o in operands if isinstance(o, ir.IndexOperand))
        case ir.Bind(value=value):
            return (value,)
        case _:
            return ()


def _single_version_tiles(sketch: ir.Sketch, body: tuple[ir.Statement, ...]) -> frozenset[str]:
    """Tiles that stay one piece of memory: initialised, carried by a loop or branch, accumulated
    into, written in part, or written in a branch that does not allocate them."""
    names = {tile.name for tile in sketch.tiles if tile.initial is not None}
    for statement in walk.statements(body):
        match statement:
            case ir.For(carried=carried):
                names.update(carried)
            case ir.If(carried=carried):
                inside = list(walk.statements(walk.inside(statement)))
                written = {tile for inner in inside for tile in writes(inner)}
                own = {inner.tile for inner in inside if isinstance(inner, ir.Alloc)}
                names.update(carried, written - own)
            case ir.Compute(operation, masked=masked):
                if masked or OPS[operation].accumulates:
                    names.update(statement.destinations)
    return frozenset(names)


# ---------------------------------------------------------------- forwarding


def _forward(versions: Versions, events: list[_Event]) -> None:
    # Later loads first: what they read for their indices is read at each of their uses.
    for position in range(len(events) - 1, -1, -1):
        event = events[position]
        load = event.statement
        if not isinstance(load, ir.Load) or load.tile in versions.single:
            continue
        version = versions.written(load)
        found = sorted(versions._uses[version]) if versions.needed(version) else []
        if not _worthwhile(versions, load, event, [events[use] for use in found]):
            continue
        if any(_stored_between(versions.sketch, load, events, position, use) for use in found):
            continue
        versions._forwarded[version] = load
        for index in versions._held[id(load)]:
            versions._uses[index].update(found)


def plain(load: ir.Load) -> bool:
    """Whether a load reads all of a rectangle of the tensor: only scalars and slices of step 1."""
    whole = load.pad is None or load.read == load.domain
    return walk.is_plain(load.access) and not load.guards and whole


def _worthwhile(versions: Versions, load: ir.Load, at: _Event, uses: list[_Event]) -> bool:
    """Whether reading the tensor is as cheap as reading a tile: unit stride, a single use, or a
    matrix product, which packs its operands anyway."""
    sketch = versions.sketch
    if not plain(load):
        # Indices in tiles that change in place would be read too late.
        indices = [tile for e in index_expressions(load) for tile in tiles_read(e)]
        return (
            len(uses) == 1
            and uses[0].loops == at.loops
            and not is_product(uses[0].statement)
            and not versions.single & set(indices)
        )
    others = [use for use in uses if not is_product(use.statement)]
    if len(others) <= 1:
        return True
    tensor = sketch.tensor(load.access.tensor)
    if any(tensor.broadcast):
        return False
    extents = sketch.tile(load.tile).extents
    slices = [s for s in load.access.subscripts if isinstance(s, ir.SliceSubscript)]
    contiguous = bool(slices) and isinstance(load.access.subscripts[-1], ir.SliceSubscript)
    return contiguous or all(
        constant_value(extent) == 1 for extent in extents[len(extents) - len(slices) :]
    )


def _stored_between(
    sketch: ir.Sketch, load: ir.Load, events: list[_Event], position: int, use: int
) -> bool:
    """True if the tensor may change between the load and the use at position `use`, or at that use:
    by a store to other elements than those that the load reads."""
    base = sketch.tensor(load.access.tensor).name
    inner = set(map(id, events[use].loops)) - set(map(id, events[position].loops))
    for index, event in enumerate(events):
        statement = event.statement
        if not isinstance(statement, ir.Store | ir.Atomic):
            continue
        if sketch.tensor(statement.access.tensor).name != base:
            continue
        if position < index < use or inner & set(map(id, event.loops)):
            return True
        # A lane may be stored where it was loaded, if no other lane is loaded from there.
        if index == use and (
            not isinstance(statement, ir.Store)
            or load.access.tensor != statement.access.tensor
            or load.access.subscripts != statement.access.subscripts
            or any(isinstance(s, ir.IndexSubscript) for s in statement.access.subscripts)
        ):
            return True
    return False

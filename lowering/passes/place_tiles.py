"""Give every tile a memory and physical extents, and account for the scratch memory that they take:
as planned, within its limits, and, for targets that fuse by themselves, as fusion leaves it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import attrs

from sketchc.base.diagnostics import Diagnostic, DiagnosticError, Label, error
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate
from sketchc.ir.show import show
from sketchc.ir.walk import names, tiles_read
from sketchc.lowering.plan import (
    ARENA,
    MemoryUse,
    PhasePlan,
    PhysicalExtent,
    Plan,
    Storage,
    TilePlan,
    is_product,
)
from sketchc.lowering.precisions import PARTS_BYTES, kept_in_parts
from sketchc.lowering.sample_sizes import Values, sample_values


@attrs.frozen
class PlaceTiles:
    """Fill in `Plan.tiles` and each phase's `memory_use`.

    Why: what fits is the target's affair, and it is known before any code is written.
    Requires: phases mapped (MapGrid), constants chosen. Ensures: every tile has one TilePlan; the
    use of each memory is the largest sum of physical sizes of tiles alive together; an unbounded
    run-time extent counts as one bucket of `SAMPLE` elements here and is checked at launch.
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        roles = _matrix_roles(plan.phases)
        values = sample_values(plan.sketch)
        buckets: dict[ir.Expr, str] = {}
        tiles = {
            tile.name: _place(plan, tile, roles.get(tile.name, "default"), values, buckets)
            for tile in plan.sketch.tiles
        }
        return _accounted(attrs.evolve(plan, tiles=tiles), values)


def next_power_of_two(value: int) -> int:
    """The least power of two that is not below the value."""
    return 1 << max(value - 1, 0).bit_length()


def _matrix_roles(phases: Iterable[PhasePlan]) -> dict[str, str]:
    """The role in matrix products (operand or accumulator) of each tile that has one, by name."""
    roles: dict[str, str] = {}
    for statement in walk.in_phases(phases):
        if not is_product(statement):
            continue
        sides = ("matrix_left", "matrix_right")
        for side, operand in zip(sides, statement.operands, strict=True):
            if isinstance(operand, ir.TileOperand):
                roles[operand.tile] = side
        roles[statement.destination] = "matrix_accumulator"
    return roles


def _place(
    plan: Plan, tile: ir.Tile, role: str, values: Values, buckets: dict[ir.Expr, str]
) -> TilePlan:
    extents = tuple(_physical(plan, extent, values, buckets) for extent in tile.extents)
    # Of loop programs the sizes of what fusion leaves decide, see `SettleTiles`.
    places = plan.capabilities.places(plan.hardware.facts)
    memory = places[role] if plan.capabilities.loops is None else ARENA
    hint = next((h for h in tile.hints if h in ("fastest", "fast", "medium", "slow")), None)
    reason = role.replace("_", " ") if role != "default" else f'hint "{hint}"' if hint else ""
    sizes = [extent.value for extent in extents if extent.value is not None]
    fixed = math.prod((tile.dtype.bytes, *sizes)) if len(sizes) == len(extents) else None
    return TilePlan(tile, extents, memory, fixed, reason, memory)


def _physical(
    plan: Plan, extent: ir.Expr, values: Values, buckets: dict[ir.Expr, str]
) -> PhysicalExtent:
    if not depends_on_launch(extent):
        logical = int(evaluate(extent, values))
        value = next_power_of_two(logical) if plan.capabilities.power_of_two_extents else logical
        return PhysicalExtent(value=value, padded=value != logical)
    if plan.capabilities.symbolic_extents:
        return PhysicalExtent()
    if extent not in buckets:
        stem = extent.name if isinstance(extent, ir.Ref) else f"EXTENT_{len(buckets) + 1}"
        taken = {*walk.declared_names(plan.sketch), *buckets.values()}
        name = f"{stem}_BLOCK"
        while name in taken:
            name += "_"
        buckets[extent] = name
    return PhysicalExtent(bucket_of=extent, name=buckets[extent], padded=True)


def depends_on_launch(extent: ir.Expr) -> bool:
    """True if the extent is known only at launch."""
    return any(each.kind is not ir.NameKind.CONSTANT for each in walk.references(extent))


# ---------------------------------------------------------------- accounting


def _accounted(plan: Plan, values: Values) -> Plan:
    """The plan with each phase's use of memory at these host values."""
    sizes = {name: physical_bytes(tile, values) for name, tile in plan.tiles.items()}
    phases = (attrs.evolve(p, memory_use=_memory_use(plan, p.lives, sizes)) for p in plan.phases)
    return attrs.evolve(plan, phases=tuple(phases))


def _memory_use(
    plan: Plan, lives: Mapping[str, tuple[int, int]], sizes: Mapping[str, int]
) -> tuple[MemoryUse, ...]:
    """The fullest moment of each memory in one program of a phase."""
    fullest = {}
    for memory in plan.capabilities.memories(plan.hardware.facts):
        here = {n: span for n, span in lives.items() if plan.tiles[n].memory == memory}
        moments = (
            tuple((name, sizes[name]) for name, (low, high) in here.items() if low <= at <= high)
            for at, _ in here.values()
        )
        fullest[memory] = _with_parts(plan, max(moments, key=_size, default=()))
    return _uses(plan, fullest)


def _with_parts(plan: Plan, parts: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """The tiles of a moment with their bytes, with those of the product that needs most for an
    operand in parts: one is multiplied after the other."""
    elements = {n: size // plan.tiles[n].tile.dtype.bytes for n, size in parts}
    kept = kept_in_parts(plan)
    split = max((n for n in elements if n in kept), key=elements.__getitem__, default="")
    return tuple((n, s + elements[n] * PARTS_BYTES if n == split else s) for n, s in parts)


def _uses(plan: Plan, parts: Mapping[str, tuple[tuple[str, int], ...]]) -> tuple[MemoryUse, ...]:
    """The use of each memory that has parts."""
    return tuple(
        MemoryUse(memory, _size(parts[memory]), facts["bytes"], parts[memory])
        for memory, facts in plan.capabilities.memories(plan.hardware.facts).items()
        if parts[memory]
    )


def _size(parts: tuple[tuple[str, int], ...]) -> int:
    return sum(size for _, size in parts)


def overflows(plan: Plan) -> list[MemoryUse]:
    """The memory uses that exceed the capacity of the chip; numbers are no reason for that."""
    uses = (use for phase in plan.phases for use in phase.memory_use)
    return [use for use in uses if _size(tuple(p for p in use.parts if p[1] > 8)) > use.capacity]


def too_wide(plan: Plan, values: Values) -> list[tuple[ir.Tile, int]]:
    """The tiles with more elements than the target takes, each with its number of elements."""
    elements = [
        (tile.tile, physical_bytes(tile, values) // tile.tile.dtype.bytes)
        for tile in plan.tiles.values()
    ]
    return [each for each in elements if each[1] > plan.capabilities.maximum_elements]


def physical_bytes(tile: TilePlan, values: Values) -> int:
    """The size of a tile in bytes, buckets and run-time extents at the given host values."""
    size = tile.tile.dtype.bytes
    for physical, logical in zip(tile.extents, tile.tile.extents, strict=True):
        known = max(int(evaluate(logical, values)), 1) if physical.value is None else physical.value
        size *= known if physical.bucket_of is None else next_power_of_two(known)
    return size


def live_intervals(
    body: tuple[ir.Statement, ...], initialised: frozenset[str] = frozenset()
) -> dict[str, tuple[int, int]]:
    """First write and last use of every tile, as positions in the pre-order walk of `body`.

    A tile with an initial value (`initialised`) lives from its alloc. A tile that lives into a
    loop and is used there stays alive until the loop's end.
    """
    uses: dict[str, list[int]] = {}
    loops: list[tuple[int, int]] = []  # (position of the last statement, of the loop)
    for here, statement in enumerate(walk.statements(body)):
        used = tiles_used(statement)
        match statement:
            case ir.Alloc(tile) if tile in initialised:
                used.append(tile)
            case ir.For(body=inner):
                loops.append((here + len(list(walk.statements(inner))), here))
        for tile in used:
            uses.setdefault(tile, []).append(here)
    for end, start in sorted(loops, key=lambda loop: (loop[0], -loop[1])):  # inner ones first
        for places in uses.values():
            if min(places) <= start and any(start < place <= end for place in places):
                places.append(end)
    return {tile: (min(places), max(places)) for tile, places in uses.items()}


def tiles_used(statement: ir.Statement) -> list[str]:
    """The tiles that a statement itself reads or writes, in index tiles too; the statements inside
    it are not looked at."""
    if isinstance(statement, ir.Load | ir.Store | ir.Atomic):
        parts = (*walk.indices(statement.access), *statement.guards)
        return [statement.tile, *(tile for part in parts for tile in tiles_read(part))]
    return [*walk.reads(statement), *walk.writes(statement)]


#: The widest bucket tried for an unbounded symbol.
LARGEST_BUCKET = 1 << 20


@attrs.frozen
class CheckScratch:
    """Raise `DiagnosticError` (SK0701) when a memory overflows; SK0702 for a tile with too many
    elements.

    Why: an overflow is found here with its account tile by tile, not by a vendor's compiler.
    Requires: PlaceTiles. Ensures: at the declared upper bounds everything fits; for unbounded
    symbols and lets that size tiles, a generated require bounds them at launch by what fits.
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        free = _unbounded(plan)
        values = sample_values(plan.sketch)
        if not free or plan.capabilities.symbolic_extents:
            self._refuse(plan, values)
            return plan
        bucket = LARGEST_BUCKET
        while bucket > 1:
            wide = {**values, **dict.fromkeys(free, bucket)}
            if not too_wide(plan, wide) and not overflows(_accounted(plan, wide)):
                break
            bucket //= 2
        if bucket == 1:
            narrow = {**values, **dict.fromkeys(free, 1)}
            self._refuse(_accounted(plan, narrow), narrow)
        return attrs.evolve(
            plan,
            sketch=attrs.evolve(
                plan.sketch,
                requires=(*plan.sketch.requires, *(_bound(plan, s, bucket) for s in free)),
            ),
            notes=(
                *plan.notes,
                *(f"{s} <= {bucket} is checked at launch: more does not fit" for s in free),
            ),
        )

    def _refuse(self, plan: Plan, values: Values) -> None:
        found = [_overflow(plan, use) for use in overflows(plan)]
        found += [_too_wide(plan, tile, elements) for tile, elements in too_wide(plan, values)]
        if found:
            raise DiagnosticError(found)


def _unbounded(plan: Plan) -> tuple[str, ...]:
    """Unbounded symbols and lets that size a tile axis, in declaration order."""
    used = {name for tile in plan.tiles.values() for e in tile.tile.extents for name in names(e)}
    named: tuple[ir.Symbol | ir.Let, ...] = (*plan.sketch.symbols, *plan.sketch.lets)
    return tuple(s.name for s in named if s.name in used and s.upper_bound is None)


def _bound(plan: Plan, name: str, bucket: int) -> ir.Require:
    symbol = any(known.name == name for known in plan.sketch.symbols)
    kind = ir.NameKind.SYMBOL if symbol else ir.NameKind.LET
    condition = ir.Binary("<=", ir.Ref(name, kind), ir.Literal(bucket))
    return ir.Require(condition, f"{name} <= {bucket}", generated=True)


def _overflow(plan: Plan, use: MemoryUse) -> Diagnostic:
    parts = sorted(use.parts, key=lambda part: -part[1])
    tiles = {name: plan.tiles[name] for name, _ in parts}
    kept = kept_in_parts(plan)
    account = [
        f"{name}: {_shape(plan, tiles[name].tile)} {tiles[name].tile.dtype.value}"
        f"{' (the largest also in parts)' if name in kept else ''} = {size:,} bytes"
        for name, size in parts
    ]
    bounded = [s for s in plan.sketch.symbols if s.upper_bound is not None]
    at = ", ".join(f"{s.name} = {s.upper_bound}" for s in bounded)
    return error(
        tiles[parts[0][0]].tile.span,
        "SK0701",
        f"the tiles alive together need {use.bytes:,} bytes of {_words(use.memory)}; "
        f"{plan.hardware.name} has {use.capacity:,}",
        "the largest of them",
        labels=tuple(Label(tiles[name].tile.span, f"{size:,} bytes") for name, size in parts[1:]),
        notes=(*account, *((f"at the upper bounds {at}",) if at else ())),
        help="make the tile sizes smaller, or split the widest axis into blocks",
    )


def _shape(plan: Plan, tile: ir.Tile) -> str:
    values = {c.name: c.value for c in plan.sketch.constants}
    shown = []
    for logical, physical in zip(tile.extents, plan.tiles[tile.name].extents, strict=True):
        text = show(logical)
        if physical.value is not None and str(physical.value) != text:
            text += (
                f"={physical.value}"
                if values.get(text) == physical.value
                else (f" (physically {physical.value})")
            )
        shown.append(text)
    return f"[{', '.join(shown)}]"


def _too_wide(plan: Plan, tile: ir.Tile, elements: int) -> Diagnostic:
    return error(
        tile.span,
        "SK0702",
        f"tile `{tile.source_name}` has {elements:,} elements; {plan.target} takes at most "
        f"{plan.capabilities.maximum_elements:,} in one tile",
        "too many elements",
        help="make the tile sizes smaller, or split the widest axis into blocks",
    )


def _words(memory: str) -> str:
    return {"register": "registers", "shared": "shared memory"}.get(
        memory, memory.replace("_", " ")
    )


@attrs.frozen
class FuseTiles:
    """Fill in the phases' `storages`.

    Why: fusion leaves most tiles without memory and adds buffers of its own; it does not depend on
    sizes. Requires: phases mapped, fills chosen. Ensures: the storages of a phase have names of
    their own, and sizes that the host knows. Targets that do not print loops keep the plan.
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        if plan.capabilities.loops is None:
            return plan
        from sketchc.lowering.loops.build import storages

        paired = zip(plan.phases, storages(plan), strict=True)
        return attrs.evolve(plan, phases=tuple(attrs.evolve(p, storages=s) for p, s in paired))


@attrs.frozen
class SettleTiles:
    """Replace `Plan.tiles`' memories and the phases' `memory_use` by what the emitted code has.

    Why: it is the size of a storage that decides on its memory. Requires: tiles fused and placed.
    Ensures: "fused" tiles take no bytes; each memory's use is the sum of what the code reserves for
    one program, all of it at once. Plans of targets that do not fuse stay as they are.
    """

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        values = sample_values(plan.sketch)
        style = plan.capabilities.loops
        memories: dict[str, str] = {}
        phases = []
        for phase in plan.phases:
            if phase.storages is None or style is None:
                return plan
            storages = style.settled(phase.storages, plan.sketch, plan.hardware.facts)
            for storage in storages:
                if memories.get(storage.tile) != ARENA:
                    memories[storage.tile] = storage.memory
            use = _reserved(plan, storages, values)
            phases.append(attrs.evolve(phase, storages=storages, memory_use=use))
        tiles = {
            name: attrs.evolve(placed, memory=memories[name])
            if name in memories
            else attrs.evolve(placed, memory="fused", bytes=0)
            for name, placed in plan.tiles.items()
        }
        return attrs.evolve(plan, tiles=tiles, phases=tuple(phases))


def _reserved(plan: Plan, storages: tuple[Storage, ...], values: Values) -> tuple[MemoryUse, ...]:
    def size(storage: Storage) -> int:
        extents = (max(int(evaluate(extent, values)), 0) for extent in storage.extents)
        return math.prod((storage.dtype.bytes, *extents))

    memories = plan.capabilities.memories(plan.hardware.facts)
    return _uses(
        plan,
        {
            memory: tuple((each.name, size(each)) for each in storages if each.memory == memory)
            for memory in memories
        },
    )

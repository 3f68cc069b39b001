"""Refuse a plan whose tiles do not fit, with the account; bound what only the launch can know."""

from __future__ import annotations

import attrs

from sketchc.base.diagnostics import Diagnostic, DiagnosticError, Label, Severity
from sketchc.ir import nodes as ir
from sketchc.ir.walk import names
from sketchc.lowering.passes.place_tiles import memory_use, physical_bytes, sample_values
from sketchc.lowering.plan import MemoryUse, Plan

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
        free = _unbounded(plan)
        values = sample_values(plan.sketch)
        if not free or plan.capabilities.symbolic_extents:
            self._refuse(plan, values)
            return plan
        bucket = LARGEST_BUCKET
        while bucket > 1 and not _fits(plan, {**values, **dict.fromkeys(free, bucket)}):
            bucket //= 2
        if bucket == 1:
            self._refuse(plan, {**values, **dict.fromkeys(free, 1)})
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

    def _refuse(self, plan: Plan, values: dict[str, int | float | bool]) -> None:
        found = []
        for phase in plan.phases:
            for use in memory_use(phase, plan.tiles, plan.hardware, values):
                if use.bytes > use.capacity:
                    found.append(_overflow(plan, use))
        limit = plan.capabilities.maximum_elements
        for placed in plan.tiles.values():
            elements = physical_bytes(placed, values) // placed.tile.dtype.bytes
            if elements > limit:
                found.append(_too_wide(plan, placed.tile, elements))
        if found:
            raise DiagnosticError(found)


def _fits(plan: Plan, values: dict[str, int | float | bool]) -> bool:
    limit = plan.capabilities.maximum_elements
    if any(physical_bytes(t, values) // t.tile.dtype.bytes > limit for t in plan.tiles.values()):
        return False
    return all(
        use.bytes <= use.capacity
        for phase in plan.phases
        for use in memory_use(phase, plan.tiles, plan.hardware, values)
    )


def _unbounded(plan: Plan) -> tuple[str, ...]:
    """Unbounded symbols and lets that size a tile axis, in declaration order."""
    used: set[str] = set()
    for placed in plan.tiles.values():
        for extent in placed.tile.extents:
            used |= names(extent)
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
    account = [
        f"{name}: {_shape(plan, tiles[name].tile)} {tiles[name].tile.dtype.value} = {size:,} bytes"
        for name, size in parts
    ]
    bounded = [s for s in plan.sketch.symbols if s.upper_bound is not None]
    at = ", ".join(f"{s.name} = {s.upper_bound}" for s in bounded)
    return Diagnostic(
        code="SK0701",
        severity=Severity.ERROR,
        message=(
            f"the tiles alive together need {use.bytes:,} bytes of {_words(use.memory)}; "
            f"{plan.hardware.name} has {use.capacity:,}"
        ),
        span=tiles[parts[0][0]].tile.span,
        label="the largest of them",
        labels=tuple(Label(tiles[name].tile.span, f"{size:,} bytes") for name, size in parts[1:]),
        notes=(*account, *((f"at the upper bounds {at}",) if at else ())),
        help="make the tile sizes smaller, or split the widest axis into blocks",
    )


def _shape(plan: Plan, tile: ir.Tile) -> str:
    from sketchc.ir.show import show

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
    return Diagnostic(
        code="SK0702",
        severity=Severity.ERROR,
        message=(
            f"tile `{tile.source_name}` has {elements:,} elements; {plan.target} takes at most "
            f"{plan.capabilities.maximum_elements:,} in one tile"
        ),
        span=tile.span,
        label="too many elements",
        help="make the tile sizes smaller, or split the widest axis into blocks",
    )


def _words(memory: str) -> str:
    return {"register": "registers", "shared": "shared memory"}.get(
        memory, memory.replace("_", " ")
    )

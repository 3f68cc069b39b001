"""Where a target fuses by itself: the memories that its code leaves tiles in, and their account."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sketchc.ir.evaluate import evaluate
from sketchc.lowering.loops.nodes import Placements, Storage
from sketchc.lowering.passes.place_tiles import sample_values
from sketchc.lowering.plan import MemoryUse, Plan


@attrs.frozen
class SettleTiles:
    """Replace `Plan.tiles`' memories and the phases' `memory_use` by what the emitted code has.

    Why: fusion leaves most tiles without memory and adds buffers of its own; only the emitter knows
    which. Requires: a plan that is ready to be emitted. Ensures: "fused" tiles take no bytes; each
    memory's use is the sum of what the code reserves for one program, all of it at once. Targets
    without `placements` keep the plan.
    """

    placements: Callable[[Plan], Placements | None]  # the target's

    def run(self, plan: Plan) -> Plan:
        found = self.placements(plan)
        if found is None:
            return plan
        tiles = {
            name: attrs.evolve(
                placed,
                memory=found.memories[name],
                bytes=0 if found.memories[name] == "fused" else placed.bytes,
            )
            for name, placed in plan.tiles.items()
        }
        phases = tuple(
            attrs.evolve(phase, memory_use=_reserved(plan, storages))
            for phase, storages in zip(plan.phases, found.storages, strict=True)
        )
        return attrs.evolve(plan, tiles=tiles, phases=phases)


def _reserved(plan: Plan, storages: tuple[Storage, ...]) -> tuple[MemoryUse, ...]:
    values = sample_values(plan.sketch)
    found = []
    for memory, facts in plan.hardware.facts["memory"].items():
        parts = []
        for storage in storages:
            if storage.memory == memory:
                size = storage.dtype.bytes
                for extent in storage.extents:
                    size *= max(int(evaluate(extent, values)), 0)
                parts.append((storage.name, size))
        if parts:
            total = sum(size for _, size in parts)
            found.append(MemoryUse(memory, total, facts["bytes"], tuple(parts)))
    return tuple(found)

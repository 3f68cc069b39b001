"""Say what each hint of the sketch became: the part that is the same on every target."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from sketchc import ir
from sketchc.lowering.plan import HintAnswer, Plan, walk

_GRID = ("parallel", "grididx", "coreidx")
_SPEEDS = ("fastest", "fast", "medium", "slow")
_PURPOSES = ("accumulator", "input_cache", "output_buffer", "temp_workspace")
#: Hints that only the target's emitter can answer; see `registry.TARGETS`.
OWN = ("pipeline", "async", "tensor_core", "unroll", "vectorize", "simd", "warp", "threadidx")


@attrs.frozen
class AnswerHints:
    """Fill in `Plan.answers` for loops on the grid and for the memories of tiles.

    Why: a hint is advice (R9), and whoever gives it wants to know what came of it. Requires: phases
    mapped, tiles placed. Ensures: one answer for each hint of a loop or tile, but for those in
    `OWN`, which the target's module adds with `answers(plan)`.
    """

    def run(self, plan: Plan) -> Plan:
        found = (*_loops(plan), *_tiles(plan))
        return attrs.evolve(plan, answers=(*plan.answers, *found))


def subject(loop: ir.For) -> str:
    """`loop k`, by the name in the sketch."""
    return f"loop {loop.text.split()[1] if loop.text else loop.variable}"


def source_loops(plan: Plan) -> tuple[ir.For, ...]:
    """The loops of the sketch, those on the grid included, in program order."""
    return tuple(
        statement
        for phase in plan.sketch.phases
        for statement in walk(phase.body)
        if isinstance(statement, ir.For)
    )


def _loops(plan: Plan) -> Iterator[HintAnswer]:
    on_grid = {axis.variable for phase in plan.phases for axis in phase.grid}
    launched = "a share of the cores' programs" if plan.capabilities.persistent_grid else "the grid"
    for loop in source_loops(plan):
        for hint in loop.hints:
            word = hint.split(".")[0]
            if word not in _GRID:
                continue
            if loop.variable in on_grid:
                yield HintAnswer(hint, subject(loop), f"an axis of {launched}")
            else:
                why = "only the outermost chain of parallel loops is launched"
                yield HintAnswer(hint, subject(loop), "a loop of one program", why)


def _tiles(plan: Plan) -> Iterator[HintAnswer]:
    for placed in plan.tiles.values():
        tile = placed.tile
        memory = placed.memory.replace("_", " ")
        for hint in tile.hints:
            if hint in _SPEEDS:
                why = "this target has one memory for such tiles"
                if placed.reason and not placed.reason.startswith("hint"):
                    why = f"it is a {placed.reason}"
                yield HintAnswer(hint, f"tile {tile.name}", memory, why)
            elif hint in _PURPOSES:
                yield HintAnswer(hint, f"tile {tile.name}", memory, "for people; changes nothing")
            elif hint == "shared_between_threads":
                became = memory if placed.memory == "shared" else f"{memory}, not shared memory"
                why = "where threads share a tile is the target's compiler's choice"
                yield HintAnswer(hint, f"tile {tile.name}", became, why)
            elif hint == "init_zero":
                yield HintAnswer(hint, f"tile {tile.name}", "init=0")
            elif hint == "no_init":
                yield HintAnswer(hint, f"tile {tile.name}", "nothing: no `init=`, no code")

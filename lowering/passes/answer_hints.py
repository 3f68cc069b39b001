"""Say what each hint of the sketch became: the part that is the same on every target."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from sketchc import ir
from sketchc.lowering.plan import HintAnswer, Plan, TilePlan, walk

_GRID = ("parallel", "grididx", "coreidx")
_SPEEDS = ("fastest", "fast", "medium", "slow")
_PURPOSES = ("accumulator", "input_cache", "output_buffer", "temp_workspace")
#: Hints that only the target's emitter can answer; see `registry.TARGETS`.
OWN = ("pipeline", "async", "tensor_core", "unroll", "vectorize", "simd", "warp", "threadidx")


@attrs.frozen
class AnswerHints:
    """Fill in `Plan.answers` for loops on the grid and for the memories of tiles.

    Why: a hint is advice (R9), and whoever gives it wants to know what came of it. Requires: phases
    mapped, tiles settled. Ensures: one answer for each hint of a loop or tile, but for those in
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
        unfused = attrs.evolve(placed, memory=placed.home)
        for hint in placed.tile.hints:
            answer = _tile(hint, placed)
            if answer is not None:
                yield attrs.evolve(answer, unfused=_tile(hint, unfused))


def _tile(hint: str, placed: TilePlan) -> HintAnswer | None:
    """The answer for a tile's hint; None for those in `OWN`."""
    subject = f"tile {placed.tile.name}"
    fused = placed.memory == "fused"
    memory = "fused into its loops" if fused else placed.memory.replace("_", " ")
    if hint in _SPEEDS:
        why = "this target has one memory for such tiles"
        if fused:
            why = "as scalars, or as the tensor itself: it takes no memory"
        elif placed.memory != placed.home:
            why = "it is small, and its size is known when the code is compiled"
        elif placed.reason and not placed.reason.startswith("hint"):
            why = f"it is a {placed.reason}"
        return HintAnswer(hint, subject, memory, why)
    if hint in _PURPOSES:
        return HintAnswer(hint, subject, memory, "for people; changes nothing")
    if hint == "shared_between_threads":
        became = memory if placed.memory == "shared" else f"{memory}, not shared memory"
        why = "where threads share a tile is the target's compiler's choice"
        return HintAnswer(hint, subject, became, why)
    if hint == "init_zero":
        return HintAnswer(hint, subject, "init=0")
    if hint == "no_init":
        return HintAnswer(hint, subject, "nothing: no `init=`, no code")
    return None

"""Say what each hint of the sketch became."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from sketchc.base.diagnostics import Span
from sketchc.checker.api import HARDWARE_HINTS, LOOP_HINTS, TILE_HINTS
from sketchc.lowering.plan import IGNORED, HintAnswer, Plan, TilePlan, source_loops, subject
from sketchc.parsing import syntax

_GRID = ("parallel", "grididx", "coreidx")
_SPEEDS = ("fastest", "fast", "medium", "slow")
_PURPOSES = ("accumulator", "input_cache", "output_buffer", "temp_workspace")
#: Hints that only the target's emitter can answer: `Target.answers`.
OWN = ("pipeline", "async", "tensor_core", "unroll", "vectorize", "simd", "warp", "threadidx")


@attrs.frozen
class AnswerHints:
    """Fill in `Plan.answers`: for hints of loops on the grid, of tiles on their memories, those in
    `OWN`, which the target answers, and hints without effect: unknown words, and hints of host
    loops.

    Why: a hint is advice (R9), and whoever gives one wants to know what was done with it. Requires:
    phases mapped, tiles settled. Ensures: one answer for each hint of a loop or tile.
    """

    answers: Callable[[Plan], tuple[HintAnswer, ...]]  # the target's
    tree: syntax.Sketch  # where hints stand that are in no plan

    def run(self, plan: Plan) -> Plan:
        """See `Pass`."""
        found = attrs.evolve(plan, answers=(*plan.answers, *_loops(plan), *_tiles(plan)))
        loops = {loop.span: subject(plan, loop) for loop in source_loops(plan.sketch)}
        tiles = {tile.span: f"tile {tile.name}" for tile in plan.sketch.tiles}
        ignored = _ignored(self.tree.body, loops, tiles)
        return attrs.evolve(found, answers=(*found.answers, *self.answers(found), *ignored))


def _loops(plan: Plan) -> Iterator[HintAnswer]:
    on_grid = {
        axis.variable: f"axis {number} of {len(phase.grid)}"
        for phase in plan.phases
        for number, axis in enumerate(phase.grid, 1)
    }
    launched = "a share of the cores' programs" if plan.capabilities.persistent_grid else "the grid"
    for loop in source_loops(plan.sketch):
        for hint in loop.hints:
            word = hint.split(".")[0]
            if word not in _GRID:
                continue
            if loop.variable in on_grid:
                why = f"{on_grid[loop.variable]}, outermost first; the order of the loops decides"
                became = f"an axis of {launched}"
                yield HintAnswer(hint, subject(plan, loop), became, why if "." in hint else "")
            else:
                why = "only the outermost chain of parallel loops is launched"
                yield HintAnswer(hint, subject(plan, loop), "a loop of one program", why)


def _tiles(plan: Plan) -> Iterator[HintAnswer]:
    for placed in plan.tiles.values():
        unfused = attrs.evolve(placed, memory=placed.home)
        for hint in placed.tile.hints:
            answer = _tile(hint, placed)
            if answer is not None:
                yield attrs.evolve(answer, unfused=_tile(hint, unfused))


def _tile(hint: str, placed: TilePlan) -> HintAnswer | None:
    """The answer for a tile's hint; None for those in `OWN`."""
    where = f"tile {placed.tile.name}"
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
        return HintAnswer(hint, where, memory, why)
    if hint in _PURPOSES:
        return HintAnswer(hint, where, memory, "for people; changes nothing")
    if hint == "shared_between_threads":
        became = memory if placed.memory == "shared" else f"{memory}, not shared memory"
        why = "where threads share a tile is the target's compiler's choice"
        return HintAnswer(hint, where, became, why)
    if hint == "init_zero":
        return HintAnswer(hint, where, "init=0")
    if hint == "no_init":
        return HintAnswer(hint, where, "nothing: no `init=`, no code")
    return None


def _ignored(
    body: tuple[syntax.Statement, ...], loops: Mapping[Span, str], tiles: Mapping[Span, str]
) -> Iterator[HintAnswer]:
    """The answers to hints without effect; `loops` and `tiles` name those in the plan, by span."""
    for statement in body:
        match statement:
            case syntax.For():
                words = [word.value for hint in statement.hints for word in hint.words]
                where = loops.get(statement.span)
                for word in words:
                    if word not in LOOP_HINTS:
                        name = where or f"loop {statement.variable.id}"
                        yield HintAnswer(word, name, IGNORED, _unknown(word, LOOP_HINTS, "loop"))
                    elif where is None:
                        why = "the loop runs on the host; hints are for loops of kernels"
                        yield HintAnswer(word, f"loop {statement.variable.id}", IGNORED, why)
                yield from _ignored(statement.body, loops, tiles)
            case syntax.If():
                yield from _ignored(statement.body, loops, tiles)
                yield from _ignored(statement.orelse, loops, tiles)
            case syntax.Alloc():
                where = tiles.get(statement.name_span, f"tile {statement.name}")
                for word in (hint.value for hint in statement.hints):
                    if word not in TILE_HINTS:
                        yield HintAnswer(word, where, IGNORED, _unknown(word, TILE_HINTS, "tile"))


def _unknown(word: str, known: frozenset[str], kind: str) -> str:
    portable = HARDWARE_HINTS.get(word.lower())
    if portable in known:
        return f'it names hardware; "{portable}" is the portable word'
    return f"it is no hint of a {kind}"

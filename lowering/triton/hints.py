"""What became of the hints that only the Triton targets can answer, from the plan alone."""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.launches import contains_product, operands, stages_of
from sketchc.lowering.plan import HintAnswer, Plan, is_product, source_loops, subject
from sketchc.lowering.triton.dialect import DIALECTS, Dialect
from sketchc.lowering.triton.hazards import Hazards
from sketchc.lowering.triton.products import product_unit
from sketchc.lowering.triton.tuning import (
    MOST_UNROLLED,
    iterations_of,
    unrolled,
)


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only a Triton target can answer, in program order."""
    dialect = DIALECTS[plan.target]
    found: list[HintAnswer] = []
    for phase in plan.phases:
        hazards = Hazards(plan.sketch).find(phase.body)
        for position, statement in enumerate(walk.statements(phase.body)):
            if isinstance(statement, ir.For):
                hazard = position in hazards.loops
                found += _loop(plan, statement, dialect, hazard=hazard, on_grid=False)
    on_grid = {axis.variable for phase in plan.phases for axis in phase.grid}
    for loop in source_loops(plan.sketch):
        if loop.variable in on_grid:
            found += _loop(plan, loop, dialect, hazard=False, on_grid=True)
    found += _tiles(plan, dialect)
    return tuple(found)


def _loop(
    plan: Plan, loop: ir.For, dialect: Dialect, *, hazard: bool, on_grid: bool
) -> Iterator[HintAnswer]:
    where = subject(plan, loop)
    for hint in loop.hints:
        match hint.split(".")[0]:
            case "tensor_core":
                yield from _units(plan, loop.body, hint, where, dialect)
            case "pipeline" | "async" | "unroll" if on_grid:
                why = "iterations of a grid axis are programs of their own"
                yield HintAnswer(hint, where, "not used", why)
            case "pipeline" | "async":
                yield HintAnswer(hint, where, *_stages(plan, loop, hazard, dialect))
            case "unroll":
                yield HintAnswer(hint, where, *_unrolling(plan, loop, dialect))
            case "vectorize" | "simd" | "warp" | "threadidx":
                became = "the lanes of tiles are spread over threads, iterations are not"
                why = "Triton programs are written for blocks; its compiler lays out threads"
                yield HintAnswer(hint, where, became, why)


def _stages(plan: Plan, loop: ir.For, hazard: bool, dialect: Dialect) -> tuple[str, str]:
    """What the emitted code does for `pipeline` or `async`, and why."""
    if not dialect.launch_options:
        return (
            "double buffering by the vendor's compiler",
            "it overlaps copies with work by default; the plan counts half of the buffer for it",
        )
    if hazard:
        return "num_stages=1", "the loop stores a tensor that it loads: loads must not run ahead"
    stages = stages_of(plan, loop, hazard)
    if stages is not None:
        why = "stages= of the sketch" if loop.stages is not None else "what the chip's loads need"
        if "num_stages" in plan.options:
            why = "as asked for"
        return f"num_stages={stages}", why
    if contains_product(loop):
        return "num_stages of the launch", "Triton pipelines the operands of tl.dot by itself"
    if any(isinstance(statement, ir.For) for statement in loop.body):
        return "not used", "only innermost loops are pipelined"
    return "not used", "too few stages fit to be worth it, or tile sizes are known at launch only"


def _unrolling(plan: Plan, loop: ir.For, dialect: Dialect) -> tuple[str, str]:
    """What the emitted code does for `unroll`, and why."""
    if not dialect.launch_options:
        return "not used", "which loops are unrolled is the choice of the vendor's compiler"
    factor = unrolled(plan, loop)
    if factor is not None:
        return f"loop_unroll_factor={factor}", "all of its iterations"
    if iterations_of(plan, loop) is None:
        return "not used", "the number of its iterations is known at launch only"
    return "not used", f"only loops of 2 to {MOST_UNROLLED} iterations are unrolled"


def _units(
    plan: Plan, body: tuple[ir.Statement, ...], hint: str, where: str, dialect: Dialect
) -> Iterator[HintAnswer]:
    """What the matrix products of a loop run on."""
    products = [statement for statement in walk.statements(body) if is_product(statement)]
    if not products:
        yield HintAnswer(hint, where, "not used", "there is no matrix product in it")
    for product in products:
        became, why = product_unit(plan, product, dialect)
        yield HintAnswer(hint, where, became, why)


def _tiles(plan: Plan, dialect: Dialect) -> Iterator[HintAnswer]:
    for tile in plan.sketch.tiles:
        where = f"tile {tile.name}"
        if "tensor_core" in tile.hints:
            uses = tuple(
                statement
                for statement in walk.in_phases(plan.phases)
                if isinstance(statement, ir.Compute)
                and tile.name in (statement.destination, *operands(statement))
            )
            yield from _units(plan, uses, "tensor_core", where, dialect)
        if "async" in tile.hints:
            yield HintAnswer("async", where, "as its loop is pipelined", "loops set the stages")

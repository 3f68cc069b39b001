"""What a loop's or tile's hints become in Triton: the emitter's own decisions, said in words."""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.plan import HintAnswer, PhasePlan, Plan, is_product, subject
from sketchc.lowering.triton.dialect import Dialect
from sketchc.lowering.triton.hazards import Hazards
from sketchc.lowering.triton.pipelining import (
    MOST_UNROLLED,
    contains_product,
    iterations_of,
    stages_of,
    unrolled,
)
from sketchc.lowering.triton.products import product_unit

_LANES = ("vectorize", "simd", "warp", "threadidx")


def answers(plan: Plan, dialect: Dialect) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order."""
    found: list[HintAnswer] = []
    for phase in plan.phases:
        hazards = Hazards(plan.sketch).find(phase.body)
        for position, statement in enumerate(walk.statements(phase.body)):
            if isinstance(statement, ir.For):
                found += _loop(plan, phase, statement, position in hazards.loops, dialect)
    on_grid = {axis.variable for phase in plan.phases for axis in phase.grid}
    for source in plan.sketch.phases:
        for statement in walk.statements(source.body):
            if isinstance(statement, ir.For) and statement.variable in on_grid:
                found += _grid_loop(plan, statement, dialect)
    found += _tiles(plan, dialect)
    return tuple(found)


def _loop(
    plan: Plan, phase: PhasePlan, loop: ir.For, hazard: bool, dialect: Dialect
) -> Iterator[HintAnswer]:
    for hint in loop.hints:
        match hint.split(".")[0]:
            case "pipeline" | "async":
                became, why = _stages(plan, phase, loop, hazard, dialect)
                yield HintAnswer(hint, subject(plan, loop), became, why)
            case "tensor_core":
                yield from _units(plan, loop.body, hint, subject(plan, loop), dialect)
            case "unroll":
                yield HintAnswer(hint, subject(plan, loop), *_unrolling(plan, loop, dialect))
            case word if word in _LANES:
                yield _lanes(plan, hint, loop)
            case _:
                pass


def _grid_loop(plan: Plan, loop: ir.For, dialect: Dialect) -> Iterator[HintAnswer]:
    for hint in loop.hints:
        match hint.split(".")[0]:
            case "tensor_core":
                yield from _units(plan, loop.body, hint, subject(plan, loop), dialect)
            case "pipeline" | "async" | "unroll":
                why = "iterations of a grid axis are programs of their own"
                yield HintAnswer(hint, subject(plan, loop), "not used", why)
            case word if word in _LANES:
                yield _lanes(plan, hint, loop)
            case _:
                pass


def _lanes(plan: Plan, hint: str, loop: ir.For) -> HintAnswer:
    return HintAnswer(
        hint,
        subject(plan, loop),
        "the lanes of tiles are spread over threads, iterations are not",
        "Triton programs are written for blocks; its compiler lays out threads",
    )


def _stages(
    plan: Plan, phase: PhasePlan, loop: ir.For, hazard: bool, dialect: Dialect
) -> tuple[str, str]:
    """What became of `pipeline` or `async`."""
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
        return f"num_stages={stages}", why
    if contains_product(loop):
        return "num_stages of the launch", "Triton pipelines the operands of tl.dot by itself"
    if any(isinstance(statement, ir.For) for statement in loop.body):
        return "not used", "only innermost loops are pipelined"
    return "not used", "too few stages fit to be worth it, or tile sizes are known at launch only"


def _unrolling(plan: Plan, loop: ir.For, dialect: Dialect) -> tuple[str, str]:
    """What became of `unroll`."""
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
                if isinstance(statement, ir.Compute) and _involves(statement, tile.name)
            )
            yield from _units(plan, uses, "tensor_core", where, dialect)
        if "async" in tile.hints:
            yield HintAnswer("async", where, "as its loop is pipelined", "loops set the stages")


def _involves(statement: ir.Compute, tile: str) -> bool:
    return statement.destination == tile or any(
        isinstance(operand, ir.TileOperand) and operand.tile == tile
        for operand in statement.operands
    )

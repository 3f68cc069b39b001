"""Answers to the hints of loops and tiles, for targets that print loop programs."""

from __future__ import annotations

from collections.abc import Mapping

from sketchc.lowering.plan import HintAnswer, Plan, has_product, source_loops, subject

#: What a hint became, and why.
Became = tuple[str, str]


def answered(
    plan: Plan, loops: Mapping[str, Became], product: Became, tiles: Mapping[str, Became]
) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order: what hints of
    `loops` and `tiles` became by their first words, and `tensor_core` on a loop with a `product`.
    """
    found = []
    for loop in source_loops(plan.sketch):
        for hint in loop.hints:
            word = hint.split(".")[0]
            became = loops.get(word)
            if word == "tensor_core" and has_product(loop.body):
                became = product
            if became is not None:
                found.append(HintAnswer(hint, subject(plan, loop), *became))
    for tile in plan.sketch.tiles:
        where = f"tile {tile.name}"
        found += [HintAnswer(hint, where, *tiles[hint]) for hint in tile.hints if hint in tiles]
    return tuple(found)

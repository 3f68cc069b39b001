"""Answers to the hints of loops and tiles, for targets that print loop programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.lowering.plan import HintAnswer, Plan, is_product, source_loops, subject

#: What a hint became, and why.
Became = tuple[str, str]
#: What `tensor_core`, `pipeline` or `async` became for these matrix products: those of a loop, or
#: those that read or write a tile.
OfProducts = Callable[[str, Plan, Sequence[ir.Compute]], Became]
#: The hints whose answer depends on matrix products; the first and the last stand on tiles, too.
_ABOUT_PRODUCTS = ("tensor_core", "pipeline", "async")


def operand_types(plan: Plan, products: Sequence[ir.Compute]) -> set[DType]:
    """The element types of what these matrix products multiply."""
    return {
        plan.sketch.tile(name).dtype
        for each in products
        for name in walk.reads(each)
        if name not in walk.writes(each)
    }


def answered(
    plan: Plan, loops: Mapping[str, Became], of_products: OfProducts
) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order: what hints of
    `loops` became by their first words, and those about matrix products by `of_products`."""
    found = []
    for loop in source_loops(plan.sketch):
        own = [each for each in walk.statements(loop.body) if is_product(each)]
        for hint in loop.hints:
            word = hint.split(".")[0]
            known = word in _ABOUT_PRODUCTS
            became = of_products(word, plan, own) if known else loops.get(word)
            if became is not None:
                found.append(HintAnswer(hint, subject(plan, loop), *became))
    everything = [each for each in walk.in_phases(plan.sketch.phases) if is_product(each)]
    for tile in plan.sketch.tiles:
        own = [each for each in everything if tile.name in (*walk.reads(each), *walk.writes(each))]
        found += [
            HintAnswer(hint, f"tile {tile.name}", *of_products(hint, plan, own))
            for hint in tile.hints
            if hint in _ABOUT_PRODUCTS
        ]
    return tuple(found)

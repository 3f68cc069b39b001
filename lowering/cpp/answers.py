"""What a loop's or tile's hints become in C++: the compiler's and the emitter's decisions."""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.ir import nodes as ir
from sketchc.lowering.plan import HintAnswer, Plan, has_product, source_loops, subject

_LANES = ("vectorize", "simd", "warp", "threadidx")


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order."""
    found = [answer for loop in source_loops(plan) for answer in _loop(plan, loop)]
    for tile in plan.sketch.tiles:
        for hint in tile.hints:
            if hint == "tensor_core":
                became = ("vector multiply-adds", "this target has no matrix unit")
                found.append(HintAnswer(hint, f"tile {tile.name}", *became))
            elif hint == "async":
                found.append(HintAnswer(hint, f"tile {tile.name}", "not used", _OVERLAP))
    return tuple(found)


_OVERLAP = "the core's out-of-order execution and its prefetchers overlap loads with work"


def _loop(plan: Plan, loop: ir.For) -> Iterator[HintAnswer]:
    for hint in loop.hints:
        match hint.split(".")[0]:
            case "pipeline" | "async":
                yield HintAnswer(hint, subject(plan, loop), "not used", _OVERLAP)
            case "tensor_core":
                yield HintAnswer(hint, subject(plan, loop), *_products(loop))
            case "unroll":
                why = "the C++ compiler unrolls where its cost model says so"
                yield HintAnswer(hint, subject(plan, loop), "left to the C++ compiler", why)
            case word if word in _LANES:
                why = "tiles are the vectors here: their innermost axis is an `omp simd` loop"
                yield HintAnswer(hint, subject(plan, loop), "a loop over vectorised tiles", why)
            case _:
                pass


def _products(loop: ir.For) -> tuple[str, str]:
    if not has_product(loop.body):
        return "not used", "there is no matrix product in it"
    return "packed panels and vector multiply-adds", "this target has no matrix unit"

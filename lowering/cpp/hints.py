"""What became of the hints that only the C++ emitter can answer, from the plan alone."""

from __future__ import annotations

from collections.abc import Sequence

from sketchc.ir import nodes as ir
from sketchc.lowering.loops.hints import Became, answered
from sketchc.lowering.plan import HintAnswer, Plan

_NO_UNIT = "this target has no matrix unit"
_OVERLAP = "the core's out-of-order execution and its prefetchers overlap loads with work"
_VECTORS = "tiles are the vectors here: their innermost axis is an `omp simd` loop"
#: What hints of loops became, and why.
_LOOPS = {
    "unroll": ("left to the C++ compiler", "the C++ compiler unrolls where its cost model says so"),
    **dict.fromkeys(
        ("vectorize", "simd", "warp", "threadidx"), ("a loop over vectorised tiles", _VECTORS)
    ),
}


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order."""
    return answered(plan, _LOOPS, _of_products)


def _of_products(word: str, _: Plan, products: Sequence[ir.Compute]) -> Became:
    if word != "tensor_core":
        return "not used", _OVERLAP
    if not products:
        return "not used", "there is no matrix product in it"
    return "packed panels and vector multiply-adds", _NO_UNIT

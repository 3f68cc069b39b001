"""What became of the hints that only the C++ emitter can answer, from the plan alone."""

from __future__ import annotations

from sketchc.lowering.c_source.hints import answered
from sketchc.lowering.plan import HintAnswer, Plan

_NO_UNIT = "this target has no matrix unit"
_OVERLAP = "the core's out-of-order execution and its prefetchers overlap loads with work"
_VECTORS = "tiles are the vectors here: their innermost axis is an `omp simd` loop"
#: What hints of loops became, and why; `tensor_core` stands for loops without a matrix product.
_LOOPS = {
    "pipeline": ("not used", _OVERLAP),
    "async": ("not used", _OVERLAP),
    "tensor_core": ("not used", "there is no matrix product in it"),
    "unroll": ("left to the C++ compiler", "the C++ compiler unrolls where its cost model says so"),
    **dict.fromkeys(
        ("vectorize", "simd", "warp", "threadidx"), ("a loop over vectorised tiles", _VECTORS)
    ),
}
_TILES = {"tensor_core": ("vector multiply-adds", _NO_UNIT), "async": ("not used", _OVERLAP)}


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order."""
    return answered(plan, _LOOPS, ("packed panels and vector multiply-adds", _NO_UNIT), _TILES)

"""What became of the hints that only the CUDA-C emitter can answer, from the plan alone."""

from __future__ import annotations

from sketchc.lowering.c_source.hints import answered
from sketchc.lowering.plan import HintAnswer, Plan

_LATER = "the emitter has no asynchronous copies yet: the blocks of an SM overlap loads with work"
_UNITS = "the emitter has no matrix instructions yet"
_THREADS = "lanes are the threads of a block here"
#: What hints of loops became, and why; `tensor_core` stands for loops without a matrix product.
_LOOPS = {
    "pipeline": ("not used", _LATER),
    "async": ("not used", _LATER),
    "tensor_core": ("not used", "there is no matrix product in it"),
    "unroll": ("left to nvcc", "nvcc unrolls where its cost model says so"),
    **dict.fromkeys(
        ("vectorize", "simd", "warp", "threadidx"), ("lanes dealt out to threads", _THREADS)
    ),
}
_TILES = {"tensor_core": ("multiply-adds of threads", _UNITS), "async": ("not used", _LATER)}


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """One answer for each hint that only the emitter can answer, in program order."""
    return answered(plan, _LOOPS, ("multiply-adds of threads", _UNITS), _TILES)

"""What became of hints where a model writes the code from documents: they are advice to it."""

from __future__ import annotations

from sketchc.lowering.c_source.hints import answered
from sketchc.lowering.plan import HintAnswer, Plan

_OF_LOOPS = ("pipeline", "async", "tensor_core", "unroll", "vectorize", "simd", "warp", "threadidx")
_OF_TILES = ("async", "tensor_core")
_BECAME = ("advice", "a model writes the code")


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """See `Target.hints`."""
    loops, tiles = dict.fromkeys(_OF_LOOPS, _BECAME), dict.fromkeys(_OF_TILES, _BECAME)
    return answered(plan, loops, _BECAME, tiles)

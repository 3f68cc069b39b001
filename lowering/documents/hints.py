"""What became of hints where a model writes the code from documents: they are advice to it."""

from __future__ import annotations

from sketchc.lowering.loops.hints import answered
from sketchc.lowering.plan import HintAnswer, Plan

_OF_LOOPS = ("unroll", "vectorize", "simd", "warp", "threadidx")
_BECAME = ("advice", "a model writes the code")


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """See `Target.hints`."""
    return answered(plan, dict.fromkeys(_OF_LOOPS, _BECAME), lambda *_: _BECAME)

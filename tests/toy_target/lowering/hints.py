"""What became of hints: nothing."""

from __future__ import annotations

from sketchc.lowering.plan import HintAnswer, Plan, source_loops, subject


def answers(plan: Plan) -> tuple[HintAnswer, ...]:
    """No hint helps."""
    words = ("pipeline", "async", "tensor_core", "unroll", "vectorize", "simd", "warp", "threadidx")
    loops = source_loops(plan.sketch)
    found = [(hint, subject(plan, loop)) for loop in loops for hint in loop.hints]
    found += [(hint, f"tile {t.name}") for t in plan.sketch.tiles for hint in t.hints]
    return tuple(HintAnswer(h, where, "not used") for h, where in found if h.split(".")[0] in words)

"""The index width of a kernel: where its integers stay below 2^31 it computes in 32 bits (R10).

What was loaded has no bound. A kernel holds it in 64 bits, and promotes what is computed from it.
"""

from __future__ import annotations

from sketchc.launch.magnitudes import Magnitudes, Polynomial, add, constant, multiply, see_body
from sketchc.lowering.plan import PhasePlan, Plan

#: 32-bit signed integers hold magnitudes below this.
LIMIT = 2**31


def phase_magnitudes(plan: Plan, phase: PhasePlan) -> list[Polynomial] | None:
    """Bounds, the largest of which holds for every integer that the kernel of `phase` computes;
    None where there is none."""
    sketch = plan.sketch
    seen = Magnitudes({c.name: c.value for c in sketch.constants})
    total = constant(1)
    for axis in phase.grid:
        count = seen.see(axis.count)
        span = multiply(seen.see(axis.step), count)
        seen.variables[axis.variable] = seen.note(add(seen.see(axis.start), span))
        total = multiply(total, add(count, constant(1)))
    seen.note(total)
    see_body(sketch, phase.body, seen)
    return None if seen.unbounded else seen.largest

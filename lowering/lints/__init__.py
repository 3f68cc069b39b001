"""Advice about a plan that an expert on the chip would give: warnings, never errors.

What depends on no chip is in `sketchc/lints`.
"""

from __future__ import annotations

from sketchc.base.diagnostics import Diagnostic
from sketchc.lowering.lints.small_grid import small_grid
from sketchc.lowering.lints.wasted_padding import wasted_padding
from sketchc.lowering.plan import Plan

#: In the order in which advice is given.
LINTS = (wasted_padding, small_grid)


def lint(plan: Plan) -> tuple[Diagnostic, ...]:
    """All advice about a plan, in the order of `LINTS`."""
    return tuple(dict.fromkeys(found for each in LINTS for found in each(plan)))

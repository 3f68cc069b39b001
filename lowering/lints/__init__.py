"""Advice about a plan that an expert on the chip would give: warnings, never errors.

What depends on no chip is in `sketchc/lints`.
"""

from __future__ import annotations

import importlib

from sketchc.base.diagnostics import Diagnostic
from sketchc.lowering.plan import Plan

#: One line each: the module's `run(plan)` gives diagnostics.
LINTS: tuple[str, ...] = (
    "sketchc.lowering.lints.wasted_padding",
    "sketchc.lowering.lints.small_grid",
)


def lint(plan: Plan) -> tuple[Diagnostic, ...]:
    """All advice about a plan, in the order of `LINTS`."""
    found: list[Diagnostic] = []
    for path in LINTS:
        found.extend(importlib.import_module(path).run(plan))
    return tuple(dict.fromkeys(found))

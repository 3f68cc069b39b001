"""placeholder replaced below"""

from __future__ import annotations

from sketchc import ir


def module_source(sketch: ir.Sketch, entry: str) -> str:
    return ""

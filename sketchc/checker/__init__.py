"""The checker: from a syntax tree to a typed, proved sketch.

`check` is the one entry point; the analyses are one file each.
"""

from __future__ import annotations

from sketchc.checker.api import CheckedSketch, CheckResult, check, check_sketch

__all__ = ["CheckResult", "CheckedSketch", "check", "check_sketch"]

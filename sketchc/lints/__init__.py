"""Advice that an expert would give about a correct sketch: one file per kind, none changes meaning.

A lint looks at one elaborated sketch with its domains and gives warnings; it never runs on a sketch
with errors. Lints that depend on the chip are in `lowering/lints`.
"""

from __future__ import annotations

import importlib

from sketchc.base.diagnostics import Diagnostic
from sketchc.ir import nodes as ir
from sketchc.parsing import syntax

#: One line each: the module's `run(sketch, tree)` gives diagnostics.
LINTS: tuple[str, ...] = (
    "sketchc.lints.unused_load",
    "sketchc.lints.unused_tile",
    "sketchc.lints.unused_param",
    "sketchc.lints.narrow_accumulation",
    "sketchc.lints.scattered_lanes",
    "sketchc.lints.repeated_load",
    "sketchc.lints.separate_passes",
    "sketchc.lints.fusable_launches",
)


def lint(sketch: ir.Sketch, tree: syntax.Sketch) -> tuple[Diagnostic, ...]:
    """All advice about a sketch, in the order of `LINTS`. `tree` is what it was elaborated from."""
    found: list[Diagnostic] = []
    for path in LINTS:
        found.extend(importlib.import_module(path).run(sketch, tree))
    return tuple(dict.fromkeys(found))

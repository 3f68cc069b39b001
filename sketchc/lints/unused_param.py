"""A param on which nothing depends (SK0661)."""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base.diagnostics import Diagnostic, Severity
from sketchc.ir import nodes as ir
from sketchc.parsing import syntax
from sketchc.parsing.prepass import prepass


def run(sketch: ir.Sketch, tree: syntax.Sketch) -> Iterator[Diagnostic]:
    """Params that no statement, extent, condition or used let names, in branches that these
    constants do not take either."""
    del sketch
    read = prepass(tree).read
    for section in tree.sections:
        if not isinstance(section, syntax.ParamsSection):
            continue
        for param in section.params:
            if param.name not in read:
                yield Diagnostic(
                    "SK0661",
                    Severity.WARNING,
                    f"`{param.name}` is never used",
                    param.span,
                    "nothing depends on it",
                    help="use it where a constant stands in its place, or take it out",
                )

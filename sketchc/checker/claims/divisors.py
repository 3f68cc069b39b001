"""Divisors that the host does not know: they are at least 1 wherever they divide (SK0314).

What depends on symbols and params alone is checked at launch. What depends on loop variables, as
`min(GM - first, G)` does in a grouped order of tiles, must follow from their ranges.
"""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base.diagnostics import Diagnostic, Severity
from sketchc.checker.context.context import in_phase
from sketchc.checker.facts.affine import add, constant
from sketchc.checker.facts.lane_forms import proves
from sketchc.checker.facts.scope import Scope, contains_iota, root_scope
from sketchc.checker.facts.sites import placed
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show
from sketchc.ir.walk import expressions


def findings(sketch: ir.Sketch) -> tuple[Diagnostic, ...]:
    """An error for each divisor in a launch that may be less than 1."""
    found = (
        diagnostic
        for statement, scope, _, _ in placed(sketch, root_scope(sketch))
        for value in expressions(statement)
        for diagnostic in _divisors(value, statement, scope)
    )
    return tuple(dict.fromkeys(found))


def _divisors(value: ir.Expr, statement: ir.Statement, scope: Scope) -> Iterator[Diagnostic]:
    for child in walk.children(value):
        yield from _divisors(child, statement, scope)
    if not (isinstance(value, ir.Binary) and value.operator in ("//", "%", "cdiv")):
        return
    divisor = value.right
    if not in_phase(divisor) or contains_iota(divisor, scope.bindings):
        return  # the host checks it, or elaboration has refused it
    if proves(scope, add(scope.form(divisor), constant(-1))):
        return
    yield Diagnostic(
        "SK0314",
        Severity.ERROR,
        f"the divisor `{show(divisor)}` may be less than 1",
        value.span if value.span.end else statement.span,
        "not provably at least 1 here",
        notes=("nothing checks it at launch, since it depends on a loop variable",),
        help=f"bound the loop so that it is, or divide by `max({show(divisor)}, 1)`",
    )

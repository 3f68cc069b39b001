"""How expressions grow with loop variables, and their extreme values over loops."""

from __future__ import annotations

from collections.abc import Collection

from sketchc.checker.facts.affine import Linear, constant_value
from sketchc.checker.facts.scope import Scope
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import simplify
from sketchc.ir.walk import names, substitute


def slope(form: Linear, counter: int, scope: Scope) -> int | None:
    """The sign with which a form grows with a loop's counter; None where it is not plain."""
    signs = set()
    for atom, coefficient in form.items():
        if counter not in scope.atoms.dependencies[atom]:
            continue
        factors = scope.atoms.factors(atom)
        rest = [factor for factor in factors if factor != counter]
        fixed = all(counter not in scope.atoms.dependencies[factor] for factor in rest)
        if len(factors) - len(rest) != 1 or not fixed:
            return None  # `i * ((N - i)//D)` grows, then falls
        if not all(scope.atoms.non_negative[factor] for factor in rest):
            return None
        signs.add(1 if coefficient > 0 else -1)
    return signs.pop() if len(signs) == 1 else None


def inlined(expression: ir.Expr, scope: Scope, keep: Collection[str] = ()) -> ir.Expr:
    """The expression with bindings written out, but for those in `keep`."""
    while True:
        inner = {
            name: scope.bindings[name]
            for name in names(expression)
            if name in scope.bindings and name not in keep
        }
        if not inner:
            return expression
        expression = simplify(substitute(expression, inner))


def extreme(expression: ir.Expr, scope: Scope, depth: int) -> ir.Expr | None:
    """The least value over the loops deeper than `depth` (0: also those of the host), as an
    expression without their variables; None where it has no plain slope. Never above the true
    minimum: the last iteration is taken to reach the last integer before `stop`."""
    result = inlined(expression, scope)
    loops: tuple[ir.For | ir.HostFor, ...] = (*scope.hosts, *scope.loops)
    for loop in reversed(loops[len(scope.hosts) + depth if depth else 0 :]):
        if loop.variable not in names(result):
            continue
        sign = slope(scope.form(result), scope.counter(loop), scope)
        stride = constant_value(scope.form(loop.step))
        if sign is None or stride is None:
            return None
        last = ir.Binary("-", loop.stop, ir.Literal(1 if stride > 0 else -1))
        value = loop.start if sign > 0 else last
        result = simplify(substitute(result, {loop.variable: value}))
    return result

"""Scalars as operands and arguments: constants by value, all others by what the host or the kernel
knows them by."""

from __future__ import annotations

from sketchc.checker.calls.expressions import constant, evaluate_constant, expression
from sketchc.checker.context.context import Context, Typed, Value, is_host
from sketchc.checker.context.lets import check_not_tunable, hoist, without_functions
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.parsing import syntax


def scalar_operand(context: Context, typed: Typed, node: syntax.Expression) -> ir.ScalarOperand:
    """A scalar operand. Host float arithmetic is folded, or computed once as a host value."""
    value, dtype = typed.value, typed.dtype
    if is_host(value):
        check_not_tunable(context, value, node.span, "is used as data")
    if dtype.is_float and not isinstance(value, ir.Literal | ir.Ref):
        if not is_host(value):
            raise context.error(
                node.span,
                "SK0302",
                "host floats cannot depend on loop variables",
                "float arithmetic inside a loop",
                help="compute with tiles: `mul(x, i, x)` takes a loop variable as it is",
            )
        names = walk.names(value)
        if names <= context.values.keys():
            value = ir.Literal(evaluate_constant(context, value, node.span), span=node.span)
        else:
            value = hoist(context, value, dtype, node.span)
    elif not dtype.is_float:
        value = without_functions(context, typed, node.span)
    return ir.ScalarOperand(value, dtype, span=node.span)


def is_constant(context: Context, node: syntax.Expression) -> bool:
    """Whether the compile-time constants alone give the value. Errors in it are reported."""
    typed = expression(context, node, host=True)
    return typed.extents is None and walk.names(typed.value) <= context.values.keys()


def number(context: Context, node: syntax.Expression, what: str) -> Value | ir.ScalarOperand:
    """A number that is an argument: the value of a constant, an operand for any other scalar."""
    typed = expression(context, node, host=True)
    if typed.extents is not None or is_constant(context, node):
        return constant(context, node, what)
    return scalar_operand(context, typed, node)

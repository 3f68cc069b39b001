"""Host values: `let`s of the sketch, and expressions hoisted out of the body.

A kernel computes with integers and tiles. Host functions and float arithmetic on scalars are
evaluated once, at launch; where the body uses them, a `let` with a made-up name holds the value.
"""

from __future__ import annotations

from sketchc.base.diagnostics import Span
from sketchc.base.types import DType
from sketchc.checker.context.context import Context, Typed, is_host
from sketchc.checker.context.guarded_lets import guarded
from sketchc.checker.context.names import ScalarName
from sketchc.checker.context.shapes import bounds
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic, walk


def add_let(
    context: Context, source: str | None, name: str, value: ir.Expr, dtype: DType, span: Span
) -> DType:
    """Add a host value and the facts about it; returns its type (i64, f64 or bool)."""
    if dtype.is_float:
        dtype = DType.F64
    elif dtype.is_integer:
        dtype = DType.I64
        context.define(name, value)
        context.note_interval(name, lambda values: bounds(values, value))
    if depends_on_tunable(context, value):
        context.tunable.add(name)
    context.lets.append(ir.Let(name, dtype, value, span=span))
    if source is not None:
        context.scopes.add(source, ScalarName(name, ir.NameKind.LET, dtype, span))
    return dtype


def hoist(context: Context, value: ir.Expr, dtype: DType, span: Span) -> ir.Ref:
    """A host value that holds this expression; one that exists already is used again."""
    value = guarded(context, value, dtype)
    for let in context.lets:
        if let.value == value:
            return ir.Ref(let.name, ir.NameKind.LET, let.dtype, span=span)
    name = context.namer.fresh("scalar")
    dtype = add_let(context, None, name, value, dtype, span)
    return ir.Ref(name, ir.NameKind.LET, dtype, span=span)


def without_functions(context: Context, typed: Typed, span: Span) -> ir.Expr:
    """The expression without what a kernel cannot compute: host functions, and comparisons of host
    floats, are hoisted. Raises `InvalidError` after reporting a host function of something that the
    host does not know."""
    value = _without_floats(context, typed.value, span)
    if not _has_function(value):
        return value
    if typed.extents is None and is_host(value):
        return hoist(context, value, typed.dtype, span)
    raise context.error(
        span,
        "SK0302",
        "host functions take host values, not loop variables or index tiles",
        "not known at launch",
        help="compute with tiles, or in a `let`",
    )


def _without_floats(context: Context, value: ir.Expr, span: Span) -> ir.Expr:
    """A condition with its comparisons of host floats hoisted; anything else as it is."""
    match value:
        case ir.Binary("<" | "<=" | ">" | ">=" | "==" | "!=") if symbolic.has_floats(
            value
        ) and is_host(value):
            return hoist(context, value, DType.BOOL, span)
        case ir.Unary("not") | ir.Binary("and" | "or") | ir.Choice():
            pass
        case ir.Binary() if _has_choice(value):
            pass
        case _:
            return value
    return walk.changed(value, lambda part: _without_floats(context, part, span))


def _has_choice(value: ir.Expr) -> bool:
    return any(isinstance(part, ir.Choice) for part in walk.parts(value))


def _has_function(value: ir.Expr) -> bool:
    return isinstance(value, ir.Function) or any(map(_has_function, walk.children(value)))


def depends_on_tunable(context: Context, value: ir.Expr) -> str | None:
    """The first tunable constant (or name made from one) that an expression uses."""
    for reference in walk.references(value):
        if reference.name in context.tunable:
            return reference.name
    return None


def check_not_tunable(context: Context, value: ir.Expr, span: Span, what: str) -> None:
    """Report a tunable constant where its value would be data or a parameter's shape (R6b)."""
    name = depends_on_tunable(context, value)
    if name is not None:
        raise context.error(
            span,
            "SK0208",
            f"the tile size `{name}` {what}",
            "changes with the tuning point",
            notes=("a tunable constant may not appear in a parameter's shape or as data (R6b)",),
            help=f"use a symbol, a param, or a constant with one fixed value instead of `{name}`",
        )

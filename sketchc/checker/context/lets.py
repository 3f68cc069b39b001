"""Host values: `let`s of the sketch, and expressions hoisted out of the body.

A kernel computes with integers and tiles. Host functions and float arithmetic on scalars are
evaluated once, at launch; where the body uses them, a `let` with a made-up name holds the value.

`let: per = ceil(N, G);` divides by G whether `per` is used or not. Where all uses stand under
`if present(S)`, a launch without `S` need not have a G to divide by: the value is 0 there, and
nobody reads it.
"""

from __future__ import annotations

from collections.abc import Iterator

from sketchc.base import records
from sketchc.base.diagnostics import Span
from sketchc.base.types import DType
from sketchc.checker.context.context import Context, ScalarName, Typed, is_host
from sketchc.checker.context.shapes import bounds, signs
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic, walk
from sketchc.ir.symbolic import conjunction
from sketchc.ir.walk import children
from sketchc.launch.conditions import domain
from sketchc.parsing import syntax

_NONE: frozenset[str] = frozenset()


def needed_with(tree: syntax.Sketch) -> dict[str, frozenset[str]]:
    """For each `let`, the optional tensors that are present wherever it is used; a `let` that is
    used where none of them is known to be present is left out."""
    lets = list(syntax.declared(tree, "let"))
    uses: dict[str, list[frozenset[str]]] = {let.name: [] for let in lets}

    def note(node: object, given: frozenset[str]) -> None:
        for name, tensors in _uses(node, given):
            if name in uses:
                uses[name].append(tensors)

    note(tuple(one for one in tree.sections if one.keyword != "let"), _NONE)
    note(tree.body, _NONE)
    found: dict[str, frozenset[str]] = {}
    for let in reversed(lets):
        places = uses[let.name]
        common = frozenset.intersection(*places) if places else _NONE
        if common:
            found[let.name] = common
        note(let.value, common)
    return found


def _uses(node: object, given: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    """The names below a node, each with the optional tensors that are present there."""
    match node:
        case syntax.Name(id=name):
            yield name, given
        case tuple():
            for part in node:
                yield from _uses(part, given)
        case syntax.If(condition, body, orelse):
            yield from _uses(condition, given)
            yield from _uses(body, given | present_where(condition, True))
            yield from _uses(orelse, given | present_where(condition, False))
        case syntax.Alloc(extents=extents):  # the host makes room for tiles of all branches
            yield from _uses(extents, _NONE)
            yield from _uses(node.init, given)
        case _ if records.has(kind := type(node)):
            for field in records.fields(kind):
                yield from _uses(getattr(node, field.name), given)


def present_where(condition: ir.Expr | syntax.Expression, holds: bool) -> frozenset[str]:
    """The optional tensors that are present wherever a condition, typed or as it is written, holds
    (or does not)."""
    match condition:
        case ir.Ref(name=name, kind=ir.NameKind.PRESENT) | syntax.Call(
            "present", (syntax.Name(id=name),)
        ):
            return frozenset([name]) if holds else _NONE
        case ir.Unary("not", operand) | syntax.Unary("not", operand):
            return present_where(operand, not holds)
        case ir.Binary("and" | "or" as operator, left, right) | syntax.Binary(
            "and" | "or" as operator, left, right
        ):
            both = holds == (operator == "and")
            one, two = present_where(left, holds), present_where(right, holds)
            return one | two if both else one & two
        case _:
            return _NONE


def guarded(context: Context, value: ir.Expr, dtype: DType) -> ir.Expr:
    """`value` so that every launch can evaluate it: in a branch, a choice that is 0 where a divisor
    or argument is out of range, which launches that take the branch check."""
    if not context.guards:
        return value
    wanted = list(dict.fromkeys([*_divisors(context, value), *domain(value)]))
    if not wanted:
        return value
    for condition in wanted:
        context.require(condition, value.span)
    nothing: int | float | bool = 0.0 if dtype.is_float else 0
    other = ir.Literal(False if dtype is DType.BOOL else nothing)
    return ir.Choice(conjunction(wanted), value, other, span=value.span)


def _divisors(context: Context, value: ir.Expr) -> Iterator[ir.Expr]:
    """The conditions that the integer divisors in `value` are at least 1, if not plainly so."""
    for part in children(value):
        yield from _divisors(context, part)
    match value:
        case ir.Binary("//" | "%" | "cdiv", _, right) if signs(context, right)[0] < 1:
            yield ir.Binary(">=", right, ir.Literal(1))


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
    if context.tunable_in(value):
        context.tunable.add(name)
    context.lets.append(ir.Let(name, dtype, value, span=span))
    if source is not None:
        context.scopes.add(source, ScalarName(name, ir.NameKind.LET, dtype, span))
    return dtype


def hoist(context: Context, value: ir.Expr, dtype: DType, span: Span) -> ir.Ref:
    """A reference to a `let` of this value: one that exists already, or a new one."""
    value = guarded(context, value, dtype)
    for let in context.lets:
        if let.value == value:
            return ir.Ref(let.name, ir.NameKind.LET, let.dtype, span=span)
    name = context.fresh("scalar")
    dtype = add_let(context, None, name, value, dtype, span)
    return ir.Ref(name, ir.NameKind.LET, dtype, span=span)


def without_functions(context: Context, typed: Typed, span: Span) -> ir.Expr:
    """The expression without what a kernel cannot compute: host functions, and comparisons of host
    floats, are hoisted. Raises `InvalidError` after reporting a host function of something that the
    host does not know."""
    value = _without_floats(context, typed.value, span)
    if not _has(value, ir.Function):
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
        case ir.Binary() if _has(value, ir.Choice):
            pass
        case _:
            return value
    return walk.changed(value, lambda part: _without_floats(context, part, span))


def _has(value: ir.Expr, kind: type[ir.Expr]) -> bool:
    return any(isinstance(part, kind) for part in walk.parts(value))


def check_not_tunable(context: Context, value: ir.Expr, span: Span, what: str) -> None:
    """Report a tunable constant where its value would be data or a parameter's shape (R6b)."""
    name = context.tunable_in(value)
    if name is not None:
        raise context.error(
            span,
            "SK0208",
            f"the tile size `{name}` {what}",
            "changes with the tuning point",
            notes=("a tunable constant may not appear in a parameter's shape or as data (R6b)",),
            help=f"use a symbol, a param, or a constant with one fixed value instead of `{name}`",
        )

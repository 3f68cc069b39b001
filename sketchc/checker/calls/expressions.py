"""Scalar and index-tile expressions: names resolved, integers infix with floor semantics (R6).

An expression that contains `iota` is an index tile; its shape is the broadcast of its parts. Host
floats are allowed in `let` and as scalar operands of compute calls, integers everywhere. What only
the host computes is hoisted into a `let` where a call takes it as a scalar.
"""

from __future__ import annotations

from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix, Label, Span
from sketchc.base.types import DType
from sketchc.checker.context.context import (
    Context,
    IndexName,
    InvalidError,
    PoisonedName,
    ScalarName,
    TensorName,
    TileName,
    Typed,
    Value,
    describe,
    in_phase,
    is_host,
)
from sketchc.checker.context.lets import check_not_tunable, hoist, without_functions
from sketchc.checker.context.shapes import SHAPE_INDICES, interval, joined, signs
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic, walk
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import has_lanes, laid_out, tiles_read
from sketchc.ops.host_functions import HOST_FUNCTIONS
from sketchc.ops.table import COMPARISONS, Result, literal_fits
from sketchc.parsing import syntax
from sketchc.parsing.data import Nature, in_expressions, nature
from sketchc.parsing.unparse import expression_text


def is_loaded(context: Context, value: ir.Expr) -> bool:
    """Whether some lanes of an expression come from a tile, directly or through a binding."""
    if tiles_read(value):
        return True
    return any(reference.name in context.loaded for reference in walk.references(value))


def shaped(context: Context, value: ir.Expr, layout: tuple[bool, ...], rank: int) -> ir.Expr:
    """An expression of `rank` axes with new axes (False in `layout`) put into its index tiles."""
    match value:
        case ir.Iota(layout=own) | ir.TileLanes(layout=own):
            return records.evolve(value, layout=_composed(own, layout, rank))
        case ir.Ref(kind=ir.NameKind.BINDING, name=name) if name in context.index_ranks:
            own = value.layout or (True,) * context.index_ranks[name]
            return records.evolve(value, layout=_composed(own, layout, rank))
        case ir.Function():
            return value
        case _:
            return walk.changed(value, lambda part: shaped(context, part, layout, rank))


def _composed(own: tuple[bool, ...], layout: tuple[bool, ...], rank: int) -> tuple[bool, ...]:
    """The layout of a part (right-aligned in `rank` axes) after new axes are put in."""
    padded = iter((False,) * (rank - len(own)) + own)
    return tuple(next(padded) if kept else False for kept in layout)


_LARGEST = (1 << 63) - 1


def expression(context: Context, node: syntax.Expression, *, host: bool = False) -> Typed:
    """Elaborate an expression. `host`: in a `let`, where `/` on integers gives a float.

    Raises `InvalidError` after reporting what is wrong.
    """
    match node:
        case syntax.Name(id=name):
            return _name(context, name, node.span)
        case syntax.Number(value=value):
            dtype = DType.F64 if isinstance(value, float) else DType.I64
            return Typed(ir.Literal(value, span=node.span), dtype)
        case syntax.Boolean(value=flag):
            return Typed(ir.Literal(flag, span=node.span), DType.BOOL)
        case syntax.Unary():
            return _unary(context, node, host)
        case syntax.Binary():
            return _binary(context, node, host)
        case syntax.Choice():
            return _choice(context, node, host)
        case syntax.Call():
            return _call(context, node, host)
        case syntax.Subscript():
            return _subscript(context, node, host)
        case syntax.String() | syntax.List():
            raise context.error(
                node.span, "SK0302", "a number or a name is expected here", "not a value"
            )
        case _:
            assert_never(node)


def integer(context: Context, node: syntax.Expression) -> ir.Expr:
    """A scalar integer expression without host functions (those are hoisted into a `let`); raises
    `InvalidError` after reporting anything else."""
    typed = expression(context, node)
    if typed.extents is not None:
        raise context.error(
            node.span,
            "SK0302",
            "a single integer is expected, not an index tile",
            "has lanes",
            help="`n = fetch(X[i])` gives one integer of a tensor"
            if is_loaded(context, typed.value)
            else "",
        )
    if not typed.dtype.is_integer:
        raise context.error(
            node.span,
            "SK0302",
            f"an integer is expected, but this is {typed.dtype.value}",
            f"{typed.dtype.value}, not an integer",
        )
    return without_functions(context, typed, node.span)


def condition(context: Context, node: syntax.Expression) -> Typed:
    """A scalar or index-tile predicate; raises `InvalidError` after reporting anything else."""
    typed = expression(context, node)
    if typed.dtype is not DType.BOOL:
        raise context.error(
            node.span,
            "SK0308",
            f"a condition is expected, but this is {typed.dtype.value}",
            "not a condition",
            help="compare it, for example with `!= 0`",
        )
    return typed


# ---------------------------------------------------------------- names


def _name(context: Context, name: str, span: Span) -> Typed:
    entry = context.lookup(name, span)
    match entry:
        case ScalarName(name=spelt, kind=kind, dtype=dtype):
            return Typed(ir.Ref(spelt, kind, dtype, span=span), dtype)
        case IndexName(name=spelt, dtype=dtype, extents=extents, phase=phase):
            if phase != context.phase:
                raise outside_phase(context, name, span, entry.span)
            return Typed(ir.Ref(spelt, ir.NameKind.BINDING, dtype, span=span), dtype, extents)
        case TileName(tile) if not tile.dtype.is_float:
            if entry.phase != context.phase:
                raise outside_phase(context, name, span, entry.span)
            return _lanes(tile, span)
        case TileName() | TensorName():
            raise context.error(
                span,
                "SK0206",
                f"`{name}` is {describe(entry)}; integers and scalars are expected here",
                f"{describe(entry)}, not a scalar",
                help="write a call with the destination last, whose operands are expressions: "
                "`copy(x + 1, y)`",
            )
        case PoisonedName():
            raise AssertionError("lookup does not return poisoned names")
        case _:
            assert_never(entry)


def _lanes(tile: ir.Tile, span: Span) -> Typed:
    """An integer tile as an index tile of i64, a bool tile as a predicate (R6)."""
    dtype = DType.BOOL if tile.dtype is DType.BOOL else DType.I64
    layout = (True,) * len(tile.extents)
    value = ir.TileLanes(tile.name, dtype, tile.extents, layout, span=span)
    return Typed(value, dtype, tile.extents)


def outside_phase(context: Context, name: str, span: Span, made: Span) -> InvalidError:
    """Report a tile that is used in another phase than its own (R8)."""
    return context.error(
        span,
        "SK0212",
        f"`{name}` does not outlive its phase",
        "used in another launch",
        labels=(Label(made, "made here, in an earlier phase"),),
        notes=("every outermost parallel nest is a launch of its own (R8)",),
        help="make it inside the loop that uses it, or pass the values through a workspace",
    )


# ---------------------------------------------------------------- operators


def _unary(context: Context, node: syntax.Unary, host: bool) -> Typed:
    operand = expression(context, node.operand, host=host)
    if node.operator == "not":
        if operand.dtype is not DType.BOOL:
            raise _not_boolean(context, node.operand.span, operand.dtype)
        return records.evolve(operand, value=ir.Unary("not", operand.value, span=node.span))
    if operand.dtype is DType.BOOL:
        raise context.error(
            node.operand.span, "SK0302", "a condition has no sign", "bool, not a number"
        )
    if node.operator == "+":
        return operand
    if isinstance(operand.value, ir.Literal):
        return records.evolve(operand, value=ir.Literal(-operand.value.value, span=node.span))
    return records.evolve(operand, value=ir.Unary("-", operand.value, span=node.span))


def _not_boolean(
    context: Context, span: Span, dtype: DType, what: str = "`and`, `or` and `not`"
) -> InvalidError:
    verb = "take conditions" if what.endswith("`") else "is one"
    return context.error(span, "SK0308", f"{what} {verb}, not {dtype.value}", "no condition")


def is_data(context: Context, node: syntax.Expression) -> bool:
    """Whether an expression computes with data, or is a tile of floats itself."""

    def find(name: str) -> Nature:
        match context.scopes.find(name):
            case TileName(tile):
                return Nature(lanes=True, other=tile.dtype.is_float)
            case IndexName():
                return Nature(lanes=True)
            case ScalarName(dtype=dtype):
                return Nature(other=dtype.is_float)
            case _:
                return Nature()

    return nature(node, find).data


def _asks(context: Context, node: syntax.Call) -> bool:
    """Whether a call is a predicate on data, as `isnan(x)` is."""
    row = in_expressions(node.function)
    return row is not None and row.result is Result.BOOL and is_data(context, node)


def _binary(context: Context, node: syntax.Binary, host: bool) -> Typed:
    if node.operator in COMPARISONS and any(
        is_data(context, side) for side in (node.left, node.right)
    ):
        return context.predicate(context, node)
    left = expression(context, node.left, host=host)
    right = expression(context, node.right, host=host)
    operator = node.operator
    for part, side in ((left, node.left), (right, node.right)):
        if operator in ("and", "or"):
            if part.dtype is not DType.BOOL:
                raise _not_boolean(context, side.span, part.dtype)
        elif part.dtype is DType.BOOL and operator not in ("==", "!="):
            raise context.error(
                side.span,
                "SK0302",
                f"`{operator}` takes numbers, and this is a condition",
                "bool, not a number",
            )
    is_float = left.dtype.is_float or right.dtype.is_float
    extents = _joined(context, left, right, node.span)
    value = ir.Binary(operator, left.value, right.value, span=node.span)
    if operator in ("and", "or") or operator in COMPARISONS:
        return Typed(value, DType.BOOL, extents)
    if operator == "/" and not is_float and not host:
        raise _integer_division(context, node)
    if operator == "/" or is_float:
        if operator in ("//", "%"):
            raise context.error(
                node.span, "SK0302", f"`{operator}` takes integers", "has a float operand"
            )
        if operator == "/" and right.dtype.is_integer:
            check_divisor(context, right.value, node.right.span)
        return Typed(value, DType.F64, extents)
    if operator in ("//", "%"):
        check_divisor(context, right.value, node.right.span)
    return Typed(value, DType.I64, extents)


def _choice(context: Context, node: syntax.Choice, host: bool) -> Typed:
    """`a if c else b` of integers, scalars or index tiles."""
    asked = expression(context, node.condition, host=host)
    if asked.dtype is not DType.BOOL:
        raise _not_boolean(context, node.condition.span, asked.dtype, "the condition of a choice")
    then, otherwise = (expression(context, side, host=host) for side in (node.then, node.otherwise))
    for side, written in ((then, node.then), (otherwise, node.otherwise)):
        if not side.dtype.is_integer:
            raise context.error(
                written.span,
                "SK0302",
                f"`a if c else b` chooses between integers, and this is {side.dtype.value}",
                f"{side.dtype.value}, not an integer",
                help="`where(c, a, b, y)` chooses between data, lane by lane",
            )
    extents = _joined(context, then, otherwise, node.span)
    extents = _joined(context, asked, records.evolve(then, extents=extents), node.span)
    value = ir.Choice(asked.value, then.value, otherwise.value, span=node.span)
    return Typed(value, DType.I64, extents)


def _integer_division(context: Context, node: syntax.Binary) -> InvalidError:
    floor = expression_text(records.evolve(node, operator="//"))
    up = f"ceil({expression_text(node.left)}, {expression_text(node.right)})"
    return context.error(
        node.span,
        "SK0301",
        "`/` on integers is only for host floats in `let`",
        "both sides are integers",
        help="use `//` (rounds down), `ceil(a, b)` (rounds up), or a `let`",
        fixes=(
            Fix("round up with `ceil`, as a count of tiles does", (Edit(node.span, up),)),
            Fix("round down with `//`", (Edit(node.span, floor),)),
        ),
    )


def _joined(context: Context, left: Typed, right: Typed, span: Span) -> tuple[ir.Expr, ...] | None:
    """The shape to which both sides broadcast, None for scalars; raises `InvalidError` after
    reporting shapes that do not broadcast, and floats beside lanes."""
    scalar = left.extents is None and right.extents is None
    if not scalar and (left.dtype.is_float or right.dtype.is_float):
        raise context.error(
            span,
            "SK0302",
            "index tiles hold integers",
            "a float beside lanes",
            help="`cast` the index tile into a float tile and compute there",
        )
    if left.extents is None or right.extents is None:
        return right.extents if left.extents is None else left.extents
    return joined(context, span, (left.extents, right.extents), SHAPE_INDICES)


def check_divisor(context: Context, divisor: ir.Expr, span: Span) -> None:
    """Check that a divisor is at least 1: now, at launch, or (by loop variables) in the proofs."""
    low, high = signs(context, divisor)
    if low >= 1:
        return
    known = divisor
    if high >= 1:  # what cancels, as in `i - i`, is known once written out
        known = symbolic.simplify(divisor, context.definitions)
        low, high = signs(context, known)
    if high < 1:
        low, high = interval(context, known)
        size = f"{high}" if low == high else f"at most {high}"
        raise context.error(span, "SK0314", f"the divisor is {size}", "must be at least 1")
    host = context.host_form(divisor)
    if host is None and _may_be_proved(context, divisor):
        return  # `claims.subscripts` checks it, where the ranges of loops are known
    if host is None or has_lanes(host, {}):
        raise context.error(
            span,
            "SK0314",
            "a divisor must be known at launch",
            "comes from memory" if is_loaded(context, divisor) else "depends on a loop variable",
            notes=("it is checked to be at least 1 there",),
        )
    context.require(ir.Binary(">=", host, ir.Literal(1)), span)


def _may_be_proved(context: Context, divisor: ir.Expr) -> bool:
    """Whether a divisor is a scalar of a launch that neither a tile nor a host's fetch decides."""
    names = list(walk.references(divisor))
    lanes = has_lanes(divisor, {}) or any(one.name in context.index_ranks for one in names)
    host = any(one.kind is ir.NameKind.HOST for one in names)
    return in_phase(divisor) and not (lanes or host or is_loaded(context, divisor))


# ---------------------------------------------------------------- calls


def _call(context: Context, node: syntax.Call, host: bool) -> Typed:
    name = node.function
    if name == "iota":
        return _iota(context, node)
    if name == "present":
        return _present(context, node)
    if _asks(context, node):
        return context.predicate(context, node)
    row = HOST_FUNCTIONS.get(name)
    if row is None:
        known = (*HOST_FUNCTIONS, "iota")
        message = f"unknown function `{name}`"
        raise context.unknown(node.function_span, "SK0210", message, "not known", known)
    if node.keywords or len(node.arguments) != row.arity:
        raise _wrong_count(context, node, row.arity)
    parts = [expression(context, argument, host=host) for argument in node.arguments]
    for part, argument in zip(parts, node.arguments, strict=True):
        if part.dtype is DType.BOOL and name not in ("int", "float"):
            raise context.error(argument.span, "SK0302", f"`{name}` takes numbers", "bool")
    if row.operator:
        return _pair(context, node, row.operator, parts)
    if name == "abs" and parts[0].dtype.is_integer:
        value = ir.Binary("max", parts[0].value, ir.Unary("-", parts[0].value), span=node.span)
        return records.evolve(parts[0], value=value)
    if any(part.extents is not None for part in parts):
        raise context.error(
            node.span, "SK0302", f"`{name}` takes host scalars, not index tiles", "has lanes"
        )
    function = ir.Function(name, tuple(part.value for part in parts), span=node.span)
    return Typed(function, row.result or parts[0].dtype)


def _present(context: Context, node: syntax.Call) -> Typed:
    """`present(X)`, in the condition of an `if`: whether an optional tensor was given."""
    if not context.asking:
        raise context.error(
            node.span,
            "SK0219",
            "`present` stands in the condition of an `if`",
            "not a value",
            help="write `if present(X):`, and in each branch what is to happen",
        )
    match node:
        case syntax.Call(arguments=(syntax.Name(id=name) as argument,), keywords=()):
            entry = context.lookup(name, argument.span)
        case _:
            raise context.error(node.span, "SK0211", "`present` takes the name of a tensor")
    if not isinstance(entry, TensorName) or not entry.optional:
        raise context.error(
            argument.span,
            "SK0218",
            f"`{name}` is {describe(entry)} that is never absent"
            if isinstance(entry, TensorName)
            else f"`{name}` is {describe(entry)}, not an optional tensor",
            "nothing to ask",
            labels=(Label(entry.span, "declared here"),),
            help="an input that may be absent is declared with `?`: `MASK[M]: in bool?`",
        )
    return Typed(ir.Ref(entry.base, ir.NameKind.PRESENT, DType.BOOL, span=node.span), DType.BOOL)


def _wrong_count(context: Context, node: syntax.Call, expected: int) -> InvalidError:
    fixes: tuple[Fix, ...] = ()
    match node:
        case syntax.Call(
            function="ceil", arguments=(syntax.Binary(operator="/", left=left, right=right),)
        ):
            better = f"ceil({expression_text(left)}, {expression_text(right)})"
            fixes = (Fix("give both numbers to `ceil`", (Edit(node.span, better),), safe=True),)
    plural = "argument" if expected == 1 else "arguments"
    return context.error(
        node.span,
        "SK0211",
        f"`{node.function}` takes {expected} {plural}",
        f"{len(node.arguments)} given",
        fixes=fixes,
    )


def _pair(context: Context, node: syntax.Call, operator: str, parts: list[Typed]) -> Typed:
    left, right = parts
    is_float = left.dtype.is_float or right.dtype.is_float
    if is_float and operator == "cdiv":
        raise context.error(
            node.span, "SK0302", f"`{node.function}` of two numbers takes integers", "has a float"
        )
    if operator == "cdiv":
        check_divisor(context, right.value, node.arguments[1].span)
    extents = _joined(context, left, right, node.span)
    value = ir.Binary(operator, left.value, right.value, span=node.span)
    return Typed(value, DType.F64 if is_float else DType.I64, extents)


def _iota(context: Context, node: syntax.Call) -> Typed:
    if node.keywords or len(node.arguments) not in (1, 2, 3):
        raise context.error(
            node.span, "SK0211", "`iota` is `iota(extent)` or `iota(extent, lower, upper)`"
        )
    extent = context.host_form(integer(context, node.arguments[0]))
    if extent is None:
        raise context.error(
            node.arguments[0].span,
            "SK0306",
            "the extent of an index tile must be known at launch",
            "depends on a loop variable",
        )
    bounds = [integer(context, bound) for bound in node.arguments[1:]]
    lower = bounds[0] if bounds else ir.Literal(0)
    upper = bounds[1] if len(bounds) > 1 else None
    return Typed(ir.Iota(extent, lower, upper, span=node.span), DType.I64, (extent,))


# ---------------------------------------------------------------- index tiles with new axes


def _subscript(context: Context, node: syntax.Subscript, host: bool) -> Typed:
    base = expression(context, node.base, host=host)
    if base.extents is None:
        raise context.error(node.span, "SK0303", "a scalar has no axes to shape", "not a tile")
    rank = len(base.extents)
    layout = new_axes(context, node, rank)
    extents = laid_out(base.extents, layout, ir.Literal(1))
    value = shaped(context, base.value, layout, rank)
    return Typed(value, base.dtype, extents)


def marks_axis(part: object) -> bool:
    """Whether a subscript is `:`, an existing axis of a tile, or `None`, a new one."""
    return isinstance(part, syntax.NewAxis) or part == syntax.Slice(None, None, None)


def new_axes(context: Context, node: syntax.Subscript, rank: int) -> tuple[bool, ...]:
    """The layout that `[:, None]` gives to a tile of `rank` axes, False for a new axis; axes that
    are not named follow, as in NumPy. Raises `InvalidError` after reporting anything else."""
    for part in node.subscripts:
        if not marks_axis(part):
            raise context.error(
                part.span,
                "SK0303",
                "only `:` and `None` may stand here",
                "a tile is shaped, not indexed",
            )
    layout = tuple(not isinstance(part, syntax.NewAxis) for part in node.subscripts)
    named = sum(layout)
    if named > rank:
        raise context.error(
            node.span,
            "SK0303",
            f"the tile has {rank} {'axis' if rank == 1 else 'axes'}, and {named} are named",
            "one `:` for each axis",
        )
    return (*layout, *(True for _ in range(rank - named)))


# ---------------------------------------------------------------- compile-time values


def constant(
    context: Context, node: syntax.Expression, what: str, *, tunable: bool = False
) -> int | float | bool:
    """The compile-time value of an expression of literals and constants; raises `InvalidError`
    after reporting one that depends on anything else, or on a tile size unless `tunable`."""
    typed = expression(context, node, host=True)
    names = {reference.name for reference in walk.references(typed.value)}
    if typed.extents is not None or not names <= context.values.keys():
        raise context.error(
            node.span, "SK0214", f"{what} must be a compile-time constant", "not known here"
        )
    if not tunable:
        check_not_tunable(context, typed.value, node.span, f"determines {what}")
    return evaluate_constant(context, typed.value, node.span)


def evaluate_constant(context: Context, value: ir.Expr, span: Span) -> int | float | bool:
    """The value of an expression of constants; raises `InvalidError` where arithmetic fails."""
    try:
        result = context.ask(lambda known: evaluate(value, known.values))
    except (ZeroDivisionError, OverflowError, ValueError, TypeError) as problem:
        raise context.error(
            span, "SK0214", f"the value cannot be computed: {problem}", "fails"
        ) from problem
    if isinstance(result, complex) or (
        isinstance(result, int) and not isinstance(result, bool) and abs(result) > _LARGEST
    ):
        raise context.error(span, "SK0302", "the value does not fit in 64 bits", "too large")
    return result


def scalar_operand(context: Context, typed: Typed, node: syntax.Expression) -> ir.ScalarOperand:
    """A scalar as an operand. Float arithmetic of the host is folded, or hoisted into a `let`."""
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
    """Whether an expression is a scalar of compile-time constants alone. Reports errors in it."""
    typed = expression(context, node, host=True)
    return typed.extents is None and walk.names(typed.value) <= context.values.keys()


def as_held(value: Value, dtype: DType) -> Value | None:
    """`value` as a tile of type `dtype` holds it, 0 and 1 as bools; None where it does not fit."""
    natural = isinstance(value, int) and not isinstance(value, bool) and value in (0, 1)
    if not literal_fits(value, dtype) and not (dtype is DType.BOOL and natural):
        return None
    if dtype.is_float:
        return float(value)
    return bool(value) if dtype is DType.BOOL else value


def number(context: Context, node: syntax.Expression, what: str) -> Value | ir.ScalarOperand:
    """The value of a numeric argument that is constant, or the operand for any other scalar."""
    typed = expression(context, node, host=True)
    if typed.extents is not None or is_constant(context, node):
        return constant(context, node, what)
    return scalar_operand(context, typed, node)

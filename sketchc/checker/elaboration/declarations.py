"""Sections of a sketch: symbols, params, constants, lets, tensors, views and preconditions; tiles.

Sections may stand in any order, so kinds are declared one after the other: symbols, constants,
params, lets, then what is shaped by them. Roles of tensors without one are settled after the body
(`elaborate`). Tiles are declared in the body, by `alloc`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix, Span
from sketchc.base.types import DType, rounded
from sketchc.checker.calls.expressions import (
    as_held,
    condition,
    constant,
    expression,
    integer,
    is_constant,
)
from sketchc.checker.context.context import (
    Context,
    InvalidError,
    ScalarName,
    TensorName,
    TileName,
    Value,
    identifier,
)
from sketchc.checker.context.hints import tile_hints
from sketchc.checker.context.lets import add_let, check_not_tunable, guarded, needed_with
from sketchc.checker.context.shapes import interval, learn, signs
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic, walk
from sketchc.ir.show import show
from sketchc.ops.table import literal_fits
from sketchc.parsing import syntax
from sketchc.parsing.prepass import Use
from sketchc.parsing.unparse import dtype_fix, expression_text

#: What a tile-shaping constexpr without value is checked at; the plan picks its own (see tuning).
DEFAULT_TILE = 64


def declare(context: Context) -> None:
    """Declare everything in the sketch's sections; reports and goes on."""
    declare_constants(context)
    context.asked.clear()  # binding declares the constants again
    for keyword, function in _ORDER:
        for node in syntax.declared(context.tree, keyword):
            _attempt(context, node, function)
    learn(context, tuple(require.condition for require in context.requires))


def declare_constants(context: Context) -> None:
    """Declare the symbols, still without bounds, and the constants."""
    for symbol in syntax.declared(context.tree, "symbols"):
        _attempt(context, symbol, _symbol)
    for section in context.tree.sections:
        if section.keyword == "constexpr":
            if section.from_tuple:
                _warn_tuple(context, section)
            for item in section.items:
                _attempt(context, item, _constexpr)


def _attempt(context: Context, node: Any, function: Callable[[Context, Any], None]) -> None:
    """Run one declaration; one that failed leaves its name poisoned, so that uses stay quiet."""
    try:
        function(context, node)
    except InvalidError:
        name = getattr(node, "name", None)  # of all but preconditions
        if name is not None:
            context.poison(name, node.span)


def _warn_tuple(context: Context, section: syntax.Section) -> None:
    """Warn of the tuple form `m0, k0 = 128, 256`, which is accepted, with a fix-it."""
    valued = [item for item in section.items if item.value is not None]
    texts = [f"{item.name} = {expression_text(item.value)}" for item in valued]
    fixes: tuple[Fix, ...] = ()
    if len(texts) == len(section.items):
        edit = Edit(section.span, f"constexpr: {', '.join(texts)}")
        fixes = (Fix("one value for each name", (edit,), safe=True),)
    context.warn(
        section.span,
        "SK0604",
        "constants are declared one by one",
        "accepted",
        help="write `constexpr: a = 1, b = 2;`",
        fixes=fixes,
    )


# ---------------------------------------------------------------- scalars


def _symbol(context: Context, node: syntax.SymbolDeclaration) -> None:
    name = context.declare(node.name, node.span)
    context.scopes.add(node.name, ScalarName(name, ir.NameKind.SYMBOL, DType.I64, node.span))
    context.symbols.append(ir.Symbol(name, span=node.span))
    context.note_interval(name, lambda _: (0, inf))


def _bound(context: Context, node: syntax.SymbolDeclaration) -> None:
    if node.upper_bound is None:
        return
    bound = constant(context, node.upper_bound, "the bound of a symbol")
    if isinstance(bound, bool) or not isinstance(bound, int) or bound < 0:
        raise context.error(
            node.upper_bound.span,
            "SK0214",
            "the bound of a symbol is an integer of at least 0",
            f"this is {bound}",
        )
    entry = context.scopes.find(node.name)
    if not isinstance(entry, ScalarName) or entry.kind is not ir.NameKind.SYMBOL:
        return
    for index, symbol in enumerate(context.symbols):
        if symbol.name == entry.name:
            context.symbols[index] = records.evolve(symbol, upper_bound=bound)
    context.note_interval(entry.name, lambda _: (0, bound))


def _typed_value(
    context: Context, value: Value, dtype: DType | None, what: str, span: Span
) -> tuple[Value, DType]:
    """A constant in its declared type (or the natural one: bool, i64, f64)."""
    if dtype is None:
        dtype = DType.I64 if isinstance(value, int) else DType.F64
        dtype = DType.BOOL if isinstance(value, bool) else dtype
    if not literal_fits(value, dtype):
        raise context.error(
            span, "SK0214", f"{what} cannot be {value}: its type is {dtype.value}", "does not fit"
        )
    return (float(value) if dtype.is_float else value), dtype


def _constexpr(context: Context, node: syntax.ConstexprDeclaration) -> None:
    name = context.declare(node.name, node.span)
    uses = context.prepass.uses.get(node.name, set())
    choices = tuple(constant(context, choice, "a choice", tunable=True) for choice in node.choices)
    tilings = [
        expression
        for point in context.tree.tilings
        for key, expression in point.values
        if key == node.name
    ]
    given = context.binding(node.name, name)
    shapes = Use.SHAPE in uses
    tunable = bool(choices or tilings)
    chosen_by = "sketch"
    if given is not None:
        value: Value = given
        chosen_by = "user"
        tunable = tunable or (
            node.value is None and shapes and not uses & {Use.DATA, Use.PARAMETER}
        )
    elif node.value is not None:
        value = constant(context, node.value, "a constant", tunable=True)
    elif choices:  # the plan picks one of them for the hardware
        value, chosen_by = choices[0], "plan"
    elif tilings:
        value = constant(context, tilings[0], "a tiling point", tunable=True)
    elif Use.CONDITION in uses and (not shapes or node.dtype is DType.BOOL):
        raise _without_value(context, node, "decides a branch", "make it a param")
    elif shapes:
        value, chosen_by, tunable = DEFAULT_TILE, "plan", True
    elif Use.PARAMETER in uses:
        raise _without_value(context, node, "shapes a parameter", "declare it as a symbol")
    else:
        _constexpr_param(context, node, name)
        return
    value, dtype = _typed_value(context, value, node.dtype, f"`{node.name}`", node.span)
    if dtype.is_float:
        value = rounded(value, dtype)
    derived = (
        given is None
        and node.value is not None
        and context.tunable_in(expression(context, node.value, host=True).value)
    )
    context.values[name] = value
    if tunable or derived:
        context.tunable.add(name)
    elif dtype.is_integer:
        context.define(name, ir.Literal(value))
    context.constants.append(
        ir.Constant(name, dtype, value, choices, tunable, chosen_by, span=node.span)
    )
    context.scopes.add(node.name, ScalarName(name, ir.NameKind.CONSTANT, dtype, node.span))


def _without_value(
    context: Context, node: syntax.ConstexprDeclaration, use: str, instead: str
) -> InvalidError:
    """The error for a constant whose use needs a value, where nothing gives it one."""
    return context.error(
        node.span,
        "SK0209",
        f"`{node.name}` {use} and has no value",
        "needs a value",
        help=f"write `{node.name} = ...`, {instead}, or bind it with `--set`",
    )


def _constexpr_param(context: Context, node: syntax.ConstexprDeclaration, name: str) -> None:
    """A constexpr without value that only feeds data stays a parameter of the wrapper."""
    dtype = node.dtype or DType.F32
    context.params.append(ir.Param(name, dtype, from_constexpr=True, span=node.span))
    context.scopes.add(node.name, ScalarName(name, ir.NameKind.PARAM, dtype, node.span))


def _param(context: Context, node: syntax.ParamDeclaration) -> None:
    name = context.declare(node.name, node.span)
    default: Value | None = context.binding(node.name, name)
    if default is None and node.default is not None:
        default = constant(context, node.default, "a default")
    dtype = node.dtype
    if dtype is None:
        dtype = DType.F32 if isinstance(default, float) else DType.I64
        dtype = DType.BOOL if isinstance(default, bool) else dtype
    if default is not None:
        default, dtype = _typed_value(context, default, dtype, f"`{node.name}`", node.span)
    context.params.append(ir.Param(name, dtype, default, span=node.span))
    context.scopes.add(node.name, ScalarName(name, ir.NameKind.PARAM, dtype, node.span))
    _in_type(context, name, dtype, node.span)


def _in_type(context: Context, name: str, dtype: DType, span: Span) -> None:
    """Require of launches that a param's value lies in its type: proofs rely on that."""
    if not dtype.is_integer or dtype is DType.I64 or dtype.limits is None:
        return
    param = ir.Ref(name, ir.NameKind.PARAM)
    low, high = map(ir.Literal, dtype.limits)
    context.require(ir.Binary(">=", param, low), span)
    context.require(ir.Binary("<=", param, high), span)


def _let(context: Context, node: syntax.LetDeclaration) -> None:
    name = context.declare(node.name, node.span)
    if context.needed_with is None:
        context.needed_with = needed_with(context.tree)
    with context.branch(frozenset()):
        tensors = sorted(context.needed_with.get(node.name, ()))
        context.guards += tuple(_given(identifier(tensor)) for tensor in tensors)
        typed = expression(context, node.value, host=True)
        if typed.extents is not None:
            raise context.error(
                node.value.span,
                "SK0302",
                "a host value is one number, not an index tile",
                "has lanes",
            )
        value = guarded(context, typed.value, typed.dtype)
    add_let(context, node.name, name, value, typed.dtype, node.span)


# ---------------------------------------------------------------- tensors


def _extents(
    context: Context,
    extents: tuple[syntax.Extent, ...],
    parameter: bool,
    given: ir.Expr | None = None,
) -> tuple[ir.Expr, ...]:
    """The extents as integers, none of them negative in a launch where `given` holds."""
    result = []
    for extent in extents:
        value = integer(context, extent.value)
        if parameter:
            check_not_tunable(context, value, extent.span, "shapes a parameter")
        low, high = signs(context, value)
        if high < 0:
            high = interval(context, value)[1]
            raise context.error(extent.span, "SK0214", "an extent is negative", f"is {high}")
        if low < 0:
            with context.branch(frozenset(), given):
                context.require(ir.Binary(">=", value, ir.Literal(0)), extent.span)
        result.append(value)
    return tuple(result)


def _tensor(context: Context, node: syntax.TensorDeclaration, parameter: bool) -> None:
    name = context.declare(node.name, node.span)
    if node.optional and (not parameter or node.role not in (None, "in")):
        raise context.error(
            node.span,
            "SK0217",
            f"`{node.name}` is optional, and {'a workspace' if not parameter else node.role}",
            "only an input may be absent",
            help="leave out the `?`",
        )
    given = _given(name) if node.optional else None
    extents = _extents(context, node.extents, parameter, given)
    initial: Value | None = None
    if node.initial is not None:
        initial = constant(context, node.initial, "an initial value")
        initial, _ = _typed_value(context, initial, node.dtype, f"`{node.name}`", node.initial.span)
    role = ir.Role.WORKSPACE if not parameter else ir.Role(node.role or "in")
    tensor = ir.Tensor(
        name,
        extents,
        node.dtype,
        role,
        initial,
        tuple(extent.broadcastable for extent in node.extents),
        node.optional,
        span=node.span,
    )
    context.tensors.append(tensor)
    if node.role is not None or not parameter:
        context.declared_roles.add(name)
    context.dtype_spans[name] = node.dtype_span
    context.scopes.add(
        node.name, TensorName(name, extents, node.dtype, name, node.span, node.optional)
    )


def _view(context: Context, node: syntax.ViewDeclaration) -> None:
    name = context.declare(node.name, node.span)
    base = context.lookup(node.base, node.base_span)
    if not isinstance(base, TensorName):
        raise context.error(
            node.base_span, "SK0206", f"`{node.base}` is not a tensor", "a view needs a tensor"
        )
    extents = _view_extents(context, node, base)
    context.views.append(ir.View(name, extents, base.base, span=node.span))
    entry = TensorName(name, extents, base.dtype, base.base, node.span, base.optional)
    context.scopes.add(node.name, entry)


def _given(tensor: str) -> ir.Expr:
    return ir.Ref(tensor, ir.NameKind.PRESENT, DType.BOOL)


def _view_extents(
    context: Context, node: syntax.ViewDeclaration, base: TensorName
) -> tuple[ir.Expr, ...]:
    """The extents of a view, which has as many elements as its tensor."""
    given = _given(base.base) if base.optional else None
    extents = _extents(context, node.extents, parameter=True, given=given)
    left, right = symbolic.product(extents), symbolic.product(base.extents)
    if not context.equal(left, right):
        difference = symbolic.constant_value(ir.Binary("-", left, right), context.definitions)
        if difference is not None:
            raise context.error(
                node.span,
                "SK0316",
                f"`{node.name}` has {show(left)} elements, and `{node.base}` has {show(right)}",
                "another number of elements",
            )
        with context.branch(frozenset(), given):
            context.require(ir.Binary("==", left, right), node.span)
    return extents


def _require(context: Context, node: syntax.Expression) -> None:
    typed = condition(context, node)
    if typed.extents is not None:
        raise context.error(node.span, "SK0308", "a precondition is one condition", "has lanes")
    context.requires.append(ir.Require(typed.value, expression_text(node), span=node.span))


def bound_fix(context: Context, symbol: str) -> tuple[Fix, ...]:
    """A fix that inserts an upper bound after a symbol's declaration."""
    for known in context.symbols:
        if known.name == symbol and known.upper_bound is None:
            edit = Edit(known.span.after, " <= 1024")
            return (Fix(f"bound `{symbol}` (choose the largest size that you need)", (edit,)),)
    return ()


_NARROW = (DType.F16, DType.BF16, DType.I8, DType.I16)


def alloc(context: Context, node: syntax.Alloc) -> ir.Alloc:
    """Make a tile and its name; raises `InvalidError` after reporting what is wrong."""
    context.check_new(node.name, node.name_span)
    if not node.extents:
        raise context.error(
            node.span,
            "SK0306",
            "a tile needs at least one axis",
            "no extents",
            help="write `alloc([1])` for a single value",
        )
    extents = tuple(_extent(context, extent) for extent in node.extents)
    dtype = context.prepass.dtypes[id(node)]
    hints = tile_hints(context, node.hints)
    initial = _initial(context, node, dtype, hints)
    if "accumulator" in hints and dtype in _NARROW:
        wide = DType.F32 if dtype.is_float else DType.I32
        context.warn(
            node.span,
            "SK0602",
            f"`{node.name}` accumulates in {dtype.value}",
            f"rounded to {dtype.value} at each write",
            help=f"accumulate in {wide.value}; a store converts back",
            fixes=(dtype_fix(node, wide),),
        )
    name, span = node.name, node.name_span
    tile = context.make_tile(name, extents, dtype, span, name, initial, hints)
    context.allocs[tile.name] = node
    context.scopes.add(name, TileName(tile, context.phase))
    return ir.Alloc(tile.name, span=node.span)


def _extent(context: Context, node: syntax.Expression) -> ir.Expr:
    outer, context.guards = context.guards, ()  # the host makes room for tiles of all branches
    try:
        value = context.host_form(integer(context, node))
    finally:
        context.guards = outer
    if value is None:
        raise context.error(
            node.span,
            "SK0306",
            "the extent of a tile must be known at launch",
            "depends on a loop variable",
            help="allocate the largest extent and slice the load: lanes beyond it stay void",
        )
    _, high = signs(context, value)
    if high < 1:
        high = interval(context, value)[1]
        raise context.error(
            node.span, "SK0306", f"an extent of a tile is {high}", "must be at least 1"
        )
    if high == inf:
        _warn_unbounded(context, node, value)
    return ir.Literal(1, span=node.span) if context.is_one(value) else value


def _warn_unbounded(context: Context, node: syntax.Expression, value: ir.Expr) -> None:
    symbols = [
        reference.name
        for reference in walk.references(value)
        if reference.kind is ir.NameKind.SYMBOL and signs(context, reference)[1] == inf
    ]
    name = symbols[0] if symbols else show(value)
    if name in context.bound_symbols:
        return
    context.bound_symbols.add(name)
    context.warn(
        node.span,
        "SK0601",
        f"a tile is as wide as `{name}`, which has no upper bound",
        "unbounded",
        notes=("it is specialised by power-of-two bucket, and its scratch is checked at launch",),
        help=f"declare a bound: `symbols: {name} <= 1024;`" if symbols else "",
        fixes=bound_fix(context, name) if symbols else (),
    )


def _initial(
    context: Context, node: syntax.Alloc, dtype: DType, hints: tuple[str, ...]
) -> Value | None:
    """The value of `init=` (0 where a fill follows) or of `init_zero`; None for neither."""
    zero = "init_zero" in hints
    if node.init is None:
        if zero and "no_init" in hints:
            _contradiction(context, node, '"init_zero" and "no_init" contradict each other')
        return as_held(0, dtype) if zero else None
    if not is_constant(context, node.init):
        if hints and ("no_init" in hints or zero):
            _contradiction(context, node, "hints contradict `init=`")
        return as_held(0, dtype)  # a fill follows: see `statements`
    value = constant(context, node.init, "an initial value")
    held = as_held(value, dtype)
    if held is None:
        raise context.error(
            node.init.span,
            "SK0214",
            f"`{node.name}` cannot start as {value}: its type is {dtype.value}",
            "does not fit",
        )
    if "no_init" in hints:
        _contradiction(context, node, '"no_init" contradicts `init=`')
    elif zero and value != 0:
        _contradiction(context, node, f'"init_zero" contradicts `init={value}`')
    return held


def _contradiction(context: Context, node: syntax.Alloc, message: str) -> None:
    context.warn(node.span, "SK0612", message, "`init=` counts, hints never change meaning")


#: The sections declared after symbols and constants, in order, each with the function that
#: declares one of its items.
_ORDER: tuple[tuple[str, Callable[[Context, Any], None]], ...] = (
    ("symbols", _bound),
    ("params", _param),
    ("let", _let),
    ("tensors", partial(_tensor, parameter=True)),
    ("workspace", partial(_tensor, parameter=False)),
    ("views", _view),
    ("require", _require),
)

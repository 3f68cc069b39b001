"""`alloc`: a tile's extents, element type, initial value and hints."""

from __future__ import annotations

from sketchc.base.types import DType
from sketchc.checker.calls.expressions import constant, integer
from sketchc.checker.calls.scalars import is_constant
from sketchc.checker.context.context import Context, Value
from sketchc.checker.context.hints import tile_hints
from sketchc.checker.context.names import TileName, TileState
from sketchc.checker.context.shapes import interval, signs
from sketchc.checker.elaboration.declarations import bound_fix
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show
from sketchc.ops.dtypes import literal_fits
from sketchc.parsing import syntax
from sketchc.parsing.text import dtype_fix

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
    tile = TileState(
        name=context.namer.fresh(node.name),
        source_name=node.name,
        extents=extents,
        dtype=dtype,
        initial=initial,
        hints=hints,
        loops=tuple(loop.identity for loop in context.loops),
        phase=context.phase,
        span=node.name_span,
    )
    context.tiles.append(tile)
    context.allocs[tile.name] = node
    context.scopes.add(node.name, TileName(tile))
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
    if high is not None and high < 1:
        high = interval(context, value)[1]
        raise context.error(
            node.span, "SK0306", f"an extent of a tile is {high}", "must be at least 1"
        )
    if high is None:
        _warn_unbounded(context, node, value)
    return ir.Literal(1, span=node.span) if context.is_one(value) else value


def _warn_unbounded(context: Context, node: syntax.Expression, value: ir.Expr) -> None:
    symbols = [
        reference.name
        for reference in walk.references(value)
        if reference.kind is ir.NameKind.SYMBOL and signs(context, reference)[1] is None
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
    """The value of `init=`, or 0 for the hint `init_zero`; None for neither."""
    zero = "init_zero" in hints
    if node.init is None:
        if zero and "no_init" in hints:
            _contradiction(context, node, '"init_zero" and "no_init" contradict each other')
        return _converted(0, dtype) if zero else None
    if not is_constant(context, node.init):
        if hints and ("no_init" in hints or zero):
            _contradiction(context, node, "hints contradict `init=`")
        return _converted(0, dtype)  # a fill follows: see `statements`
    value = constant(context, node.init, "an initial value")
    natural = isinstance(value, int) and not isinstance(value, bool) and value in (0, 1)
    if not literal_fits(value, dtype) and not (dtype is DType.BOOL and natural):
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
    return _converted(value, dtype)


def _converted(value: Value, dtype: DType) -> Value:
    if dtype.is_float:
        return float(value)
    return bool(value) if dtype is DType.BOOL else value


def _contradiction(context: Context, node: syntax.Alloc, message: str) -> None:
    context.warn(node.span, "SK0612", message, "`init=` counts, hints never change meaning")

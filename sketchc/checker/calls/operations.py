"""Compute calls, read by the op table: their operands, and the rules of operations across lanes.

Rules beyond the contract: `topk` and `sort` give their indices in the order of their values, so the
indices are integers, one for each value (they broadcast to the values' shape); the result of `rand`
is f32, and converts to another float type at the write.
"""

from __future__ import annotations

from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import InternalError, Label
from sketchc.base.types import DType, rounded
from sketchc.checker.calls.accesses import readable_tile, tile_with_subscripts, writable_tile
from sketchc.checker.calls.calls import (
    Arguments,
    Call,
    check_second_operand,
    gather,
    no_conversion,
    split_operands,
)
from sketchc.checker.calls.composites import copied, expand, primitive
from sketchc.checker.calls.expressions import expression, is_data, scalar_operand
from sketchc.checker.calls.rows import carried_on, ranked
from sketchc.checker.context.context import Context, TileName, Typed
from sketchc.checker.context.lets import without_functions
from sketchc.checker.context.shapes import fits, joined, same, shown
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show, show_operand
from sketchc.ir.walk import operand_extents, operand_tiles
from sketchc.ops.table import (
    ARITHMETIC,
    COMPARISONS,
    OPS,
    Category,
    Layout,
    Op,
    Shape,
    common,
    result_of,
    writes_implicitly,
)
from sketchc.parsing import syntax
from sketchc.parsing.data import in_expressions
from sketchc.parsing.syntax import names
from sketchc.parsing.unparse import expression_text, statement_text


def scan(call: Call, axis: int) -> tuple[int, ...]:
    """Check that the destination of a scan has the source's shape; gives the axis."""
    shape = call.source(call.operands[0])
    axes = call.axes((axis,), shape)
    call.check_shape(shape, call.destination)
    return axes


def order(call: Call, axis: int) -> tuple[int, ...]:
    """Check the shapes of `topk` and `sort`; gives the axis."""
    values, indices = call.operands
    shape = call.source(values)
    axes = call.axes((axis,), shape)
    call.check_indices(indices, shape)
    merges = call.row.accumulates
    for tile in (call.destination, *call.others):
        wanted = shape
        if merges and len(tile.extents) == len(shape):  # K is the destination's own
            wanted = (*shape[: axes[0]], tile.extents[axes[0]], *shape[axes[0] + 1 :])
        call.check_shape(wanted, tile)
        if merges and tile.initial is None:
            raise call.context.error(
                call.node.span,
                "SK0405",
                f"`{call.row.name}` merges into `{tile.source_name}`, which has no `init=`",
                "nothing to merge with",
                labels=(Label(tile.span, "allocated here, without `init=`"),),
                help="start values at `init=-inf` (`init=inf` with `largest=False`), "
                "and indices at `init=-1`",
            )
    if not same(call.context, call.destination.extents, call.others[0].extents):
        raise call.context.error(
            call.node.span,
            "SK0305",
            f"values of shape {shown(call.destination.extents)} and indices of shape "
            f"{shown(call.others[0].extents)}",
            "both destinations have one shape",
            labels=call.tile_label(call.others[0]),
        )
    return axes


def order_dtype(call: Call) -> DType:
    """The type of the values, after checking that both results can be written."""
    values, indices = map(call.dtype, call.operands)
    for source, tile in ((values, call.destination), (indices, call.others[0])):
        if not writes_implicitly(source, tile.dtype):
            label = f"`{tile.source_name}` is {tile.dtype.value}"
            raise no_conversion(call.context, call.node.span, source, tile.dtype, label, tile)
    return values.compute


def permute(call: Call, given: tuple[int, ...]) -> tuple[int, ...]:
    """Check that axis `a` of the result is axis `given[a]` of the source; gives the axes."""
    shape = call.source(call.operands[0])
    axes = call.axes(given, shape)
    if len(axes) != len(shape):
        raise call.context.error(
            call.node.span,
            "SK0310",
            f"`permute` names each of the {len(shape)} axes once",
            f"{len(axes)} named",
        )
    call.check_shape(tuple(shape[axis] for axis in axes), call.destination)
    return axes


def reshape(call: Call) -> None:
    """Check that the destination of `reshape` has as many elements as its operand."""
    shape, target = call.source(call.operands[0]), call.destination.extents
    before, after = symbolic.product(shape), symbolic.product(target)
    if not call.context.equal(before, after):
        raise call.context.error(
            call.node.span,
            "SK0326",
            f"`reshape` keeps the number of elements: {shown(shape)} does not become "
            f"{shown(target)}",
            f"{show(symbolic.simplify(before))} and {show(symbolic.simplify(after))} elements",
            labels=call.tile_label(),
        )


def concat(call: Call, axis: int) -> tuple[int, ...]:
    """Check tiles joined along `axis`, which agree on all others, and the result; gives the
    axis."""
    left, right = map(call.source, call.operands)
    axes = call.axes((axis,), left)
    place = axes[0]
    others = (*left[:place], *left[place + 1 :])
    if len(left) != len(right) or not same(
        call.context, others, (*right[:place], *right[place + 1 :])
    ):
        raise call.context.error(
            call.node.span,
            "SK0327",
            f"tiles of shapes {shown(left)} and {shown(right)} cannot be joined along axis {place}",
            "they differ on another axis",
        )
    total = symbolic.simplify(ir.Binary("+", left[place], right[place]))
    result = (*left[:place], total, *left[place + 1 :])
    if not same(call.context, result, call.destination.extents):
        message = f"joined along axis {place}, the tiles have the shape {shown(result)}"
        raise call.misfit(message, "SK0327")
    return axes


def random(call: Call) -> DType:
    """Check seed, offset and destination of `rand` and `randn`; the numbers are f32."""
    seed, offset = call.operands
    if not isinstance(seed, ir.ScalarOperand) or not seed.dtype.is_integer:
        raise call.context.error(
            seed.span,
            "SK0312",
            "the seed is one integer",
            f"{call.dtype(seed).value}" if isinstance(seed, ir.ScalarOperand) else "has lanes",
        )
    if not call.dtype(offset).is_integer:
        raise call.context.error(
            offset.span,
            "SK0312",
            "the offset is an integer, or an index for each lane",
            call.dtype(offset).value,
        )
    target = call.destination
    if not fits(call.context, call.extents(offset), target.extents):
        message = f"offsets of shape {shown(call.extents(offset))} do not fit the destination"
        raise call.misfit(message, "SK0305", span=offset.span)
    if not target.dtype.is_float:
        raise call.needs_cast(DType.F32)
    return DType.F32


def compute(context: Context, node: syntax.Compute) -> tuple[ir.Statement, ...]:
    """Elaborate one call; raises `InvalidError` after reporting what is wrong."""
    row = OPS.get(node.operation)
    if row is None:
        message = f"unknown operation `{node.operation}`"
        raise context.unknown(node.operation_span, "SK0210", message, "not known", OPS)
    arguments = gather(context, node, row)
    operands = tuple(operand(context, node) for node in arguments.operands)
    destinations = tuple(_destination(context, item) for item in arguments.destinations)
    carried = tuple(value for value in arguments.attributes.values() if isinstance(value, ir.Tile))
    _check_in_place(context, node, row, operands, (*destinations, *carried))
    call = Call(context, node, row, operands, destinations[0], destinations[1:])
    before, operands = _own_tiles(call)
    call = records.evolve(call, operands=operands)
    return (*before, *_made(call, arguments, statement_text(node)))


def _made(call: Call, arguments: Arguments, text: str) -> tuple[ir.Statement, ...]:
    """The statements of a call with resolved operands; `text` is that of a single statement."""
    attributes = dict(arguments.attributes)
    if call.row.category is Category.COMPOSITE and call.row.accumulates:
        return ranked(call, _axis(attributes), bool(attributes["descending"]))
    if (carry := attributes.pop("carry", None)) is not None:
        return carried_on(call, scan(call, _axis(attributes)), attributes, carry)
    moving = any(isinstance(value, ir.ScalarOperand) for value in attributes.values())
    if call.row.category is Category.COMPOSITE or moving:
        return expand(call, attributes)
    dtype = _check(call, arguments, attributes)
    return (
        ir.Compute(
            call.row.name,
            call.operands,
            call.destination.name,
            dtype,
            attributes,
            others=tuple(tile.name for tile in call.others),
            text=text,
            span=call.node.span,
        ),
    )


def _check(call: Call, arguments: Arguments, attributes: dict[str, object]) -> DType:
    """Check shapes and types, and settle the axes; gives the type of the evaluation."""
    match call.row.category:
        case Category.REDUCTION:
            attributes["axis"] = call.reduce(arguments)
        case Category.INDEX:
            one = records.evolve(arguments, axes=(_axis(attributes),))
            attributes["axis"] = call.reduce(one)
        case Category.SCAN:
            attributes["axis"] = scan(call, _axis(attributes))
        case Category.SORTING:
            attributes["axis"] = order(call, _axis(attributes))
            return order_dtype(call)
        case Category.MATRIX:
            call.multiply(attributes)
        case Category.RANDOM:
            return random(call)
        case Category.LAYOUT:
            _arrange(call, arguments, attributes)
        case Category.ELEMENTWISE:
            call.broadcast()
            dtype = call.evaluation_dtype()
            check_second_operand(call, dtype)
            return dtype
        case Category.COMPOSITE:
            raise InternalError("composites are expanded")
        case _:
            assert_never(call.row.category)
    return call.evaluation_dtype()


def _axis(attributes: dict[str, object]) -> int:
    axis = attributes["axis"]
    assert isinstance(axis, int)  # arguments.gather has seen to it
    return axis


def _arrange(call: Call, arguments: Arguments, attributes: dict[str, object]) -> None:
    match call.row.layout:
        case Layout.TRANSPOSED:
            call.transpose()
        case Layout.PERMUTED:
            attributes["axes"] = permute(call, arguments.axes)
        case Layout.RESHAPED:
            reshape(call)
        case Layout.JOINED:
            attributes["axis"] = concat(call, _axis(attributes))
        case _:
            call.broadcast()


# ---------------------------------------------------------------- operands


def operand(context: Context, node: syntax.Expression) -> ir.Operand:
    """A tile, an index tile or a scalar; raises `InvalidError` after reporting anything else."""
    match node:
        case syntax.Name(id=name) if isinstance(context.scopes.find(name), TileName):
            return ir.TileOperand(readable_tile(context, node).name, span=node.span)
        case syntax.Subscript(base=syntax.Name(id=name) as base) if isinstance(
            context.scopes.find(name), TileName
        ):
            return tile_with_subscripts(context, node, base)
        case syntax.Unary(operator="+", operand=inner):
            return operand(context, inner)
        case _ if is_data(context, node):
            return element_wise(context, node)
        case _:
            typed = expression(context, node)
    match typed.value:
        case ir.TileLanes(tile=name, dtype=DType.BOOL, layout=layout) if all(layout):
            return ir.TileOperand(name, span=node.span)  # what a comparison of data tiles gave
    if typed.extents is not None:
        without_functions(context, typed, node.span)
        return ir.IndexOperand(typed.value, typed.dtype, typed.extents, span=node.span)
    return scalar_operand(context, typed, node)


def _own_tiles(call: Call) -> tuple[tuple[ir.Statement, ...], tuple[ir.Operand, ...]]:
    """The operands of a call, after statements that come first. Operations across lanes take plain
    tiles: other operands, such as `t[:, None]` and `iota(T)`, are copied into new tiles."""
    row = call.row
    if row.category in (Category.ELEMENTWISE, Category.RANDOM) or row.shape is Shape.DESTINATION:
        return (), call.operands
    before: list[ir.Statement] = []
    operands: list[ir.Operand] = []
    for position, operand in enumerate(call.operands):
        done = operand
        shaped = isinstance(operand, ir.TileOperand) and operand.layout is not None
        numbers = isinstance(operand, ir.IndexOperand) and not (
            row.category is Category.SORTING and position == 1
        )
        if shaped or numbers:
            statements, tile = copied(
                call.context,
                operand,
                f"{call.destination.source_name}_operand",
                call.extents(operand),
                call.dtype(operand),
            )
            before += statements
            done = ir.TileOperand(tile.name, span=operand.span)
        operands.append(done)
    return tuple(before), tuple(operands)


def _destination(context: Context, node: syntax.Expression) -> ir.Tile:
    match node:
        case syntax.Name():
            return writable_tile(context, node)
        case syntax.Subscript(base=syntax.Name(id=name) as base) if isinstance(
            context.scopes.find(name), TileName
        ):
            if any(isinstance(part, syntax.NewAxis) for part in node.subscripts):
                raise context.error(
                    node.span,
                    "SK0303",
                    "a destination is written as it was made",
                    "only what is read may have new axes",
                    help=f"write to `{name}`; a reduction needs no axis of extent 1 there",
                )
            tile_with_subscripts(context, node, base)
            return writable_tile(context, base)
        case _:
            raise context.error(
                node.span,
                "SK0206",
                "the last argument is the destination: a tile",
                "not a tile",
                help="the destination stands last, or is given as `dst=`",
            )


def _check_in_place(
    context: Context,
    node: syntax.Compute,
    row: Op,
    operands: tuple[ir.Operand, ...],
    destinations: tuple[ir.Tile, ...],
) -> None:
    """Check that a call writes no tile twice, and across lanes reads none that it writes (R3)."""
    if len({tile.name for tile in destinations}) < len(destinations):
        raise context.error(
            node.span,
            "SK0313",
            f"`{row.name}` writes `{destinations[0].source_name}` twice",
            "each result needs a tile of its own",
        )
    lane_by_lane = (Category.ELEMENTWISE, Category.RANDOM, Category.COMPOSITE)
    alone = row.category in lane_by_lane and not row.accumulates
    if alone or row.shape is Shape.DESTINATION:
        return
    written = {tile.name: tile for tile in destinations}
    for operand in operands:
        for name in operand_tiles(operand):
            if name in written:
                raise context.error(
                    operand.span,
                    "SK0313",
                    f"`{row.name}` reads `{written[name].source_name}` and writes it",
                    "also the destination",
                    notes=("an operation across lanes needs a destination of its own (R3)",),
                    help="allocate another tile for the result",
                )


# ---------------------------------------------------------------- expressions of data


def element_wise(context: Context, node: syntax.Expression) -> ir.TileOperand:
    """The tile that holds an expression of data. Each operation in it becomes a call, added to
    `Context.before`, with a new tile in the type of the evaluation. Raises `InvalidError` after
    reporting what is wrong."""
    row, given, keywords = _operation(context, node)
    span = node.span
    place = syntax.Name("_", span=span)  # stands for the destination
    written = syntax.Compute(row.name, (*given, place), keywords, span=span, operation_span=span)
    arguments = gather(context, written, row)
    operands = tuple(operand(context, argument) for argument in arguments.operands)
    shapes = [operand_extents(one, context.tiles.__getitem__) for one in operands]
    extents = joined(context, span, shapes, "`t[:, None]` adds an axis of extent 1")
    tiles = (name for name in names(node) if isinstance(context.scopes.find(name), TileName))
    stem = f"{next(tiles, 'value')}_{row.name}"
    tile = context.make_tile(stem, extents, _evaluated(context, row, operands), span)
    call = Call(context, written, row, operands, tile, ())
    options = (f"{option.name}={expression_text(option.value)}" for option in keywords)
    text = f"{row.name}({', '.join((*map(show_operand, operands), tile.name, *options))})"
    context.before += [ir.Alloc(tile.name, span=span), *_made(call, arguments, text)]
    return ir.TileOperand(tile.name, span=span)


def predicate(context: Context, node: syntax.Binary | syntax.Call) -> Typed:
    """A comparison or predicate on data tiles, as the lanes of the bool tile that its operation
    fills."""
    name = element_wise(context, node).tile
    extents = context.tiles[name].extents
    lanes = ir.TileLanes(name, DType.BOOL, extents, (True,) * len(extents), span=node.span)
    return Typed(lanes, DType.BOOL, extents)


def _operation(
    context: Context, node: syntax.Expression
) -> tuple[Op, tuple[syntax.Expression, ...], tuple[syntax.Keyword, ...]]:
    """The outermost operation of an expression of data, with its operands and keywords."""
    match node:
        case syntax.Unary(operator="-", operand=inner):
            return OPS["neg"], (inner,), ()
        case syntax.Binary(operator=operator, left=left, right=right):
            return OPS[(ARITHMETIC | COMPARISONS)[operator]], (left, right), ()
        case syntax.Choice():
            raise context.error(
                node.span,
                "SK0302",
                "`a if c else b` chooses between integers",
                "data",
                help="`where(c, a, b)` chooses between data, lane by lane",
            )
        case syntax.Call(function=name):
            row = in_expressions(name)
            if row is not None:
                return row, node.arguments, node.keywords
            if name in OPS:
                raise context.error(
                    node.function_span,
                    "SK0206",
                    f"`{name}` cannot stand in an expression",
                    "a call of its own",
                    notes=("expressions hold what is done lane by lane, in the operands' type",),
                    help=f"write `{name}(..., y)` first, and `y` here",
                )
            message = f"unknown operation `{name}`"
            raise context.unknown(node.function_span, "SK0210", message, "not known", OPS)
        case _:
            raise InternalError(f"{type(node).__name__} is no expression of data")


def _evaluated(context: Context, row: Op, operands: tuple[ir.Operand, ...]) -> DType:
    """The type in which `row` is evaluated on these operands; the result's tile has it, too."""
    values = operands[1:] if row.conditional else operands
    lanes, scalars = split_operands(values, context.tiles.__getitem__)
    found = result_of(row, common(lanes, scalars))
    if found is None:
        raise InternalError(f"{row.name} gives no type of its own")
    # Numbers alone, as in `x + where(mask, 0.0, -inf)`: nothing is lost in f32, and beside a tile
    # of f32 they would make the rest f64.
    if found is DType.F64 and not lanes and all(map(_is_in_f32, values)):
        return DType.F32
    return found


def _is_in_f32(operand: ir.Operand) -> bool:
    """Whether an operand is a number that f32 holds exactly."""
    if not isinstance(operand, ir.ScalarOperand):
        return False
    value = operand.value.operand if isinstance(operand.value, ir.Unary) else operand.value
    if not isinstance(value, ir.Literal):
        return operand.dtype.compute is DType.F32
    number = float(value.value)
    return number != number or rounded(number, DType.F32) == number


def filled(
    context: Context,
    node: syntax.Expression,
    value: ir.ScalarOperand,
    extents: tuple[ir.Expr, ...],
    dtype: DType,
) -> ir.Tile:
    """A new tile that holds a scalar; the statements that fill it go to `Context.before`."""
    tile = context.make_tile("value_fill", extents, dtype, node.span)
    written = syntax.Compute("fill", (), span=node.span, operation_span=node.span)
    call = Call(context, written, OPS["fill"], (value,), tile, ())
    done = primitive("fill", (value,), tile.name, call.evaluation_dtype(), node.span)
    context.before += [ir.Alloc(tile.name, span=node.span), done]
    return tile

"""One compute call: its arguments, the shapes of its operands and destination, and the type of the
evaluation.

The destinations stand last, or are given as `dst=`: one, or a list of them. Attributes are
keywords; `axis` may also stand between the operands and the destinations.

A scalar applies to every lane, so one on which an operation on integers has no value (a divisor of
0, a negative power, a shift by as many bits as there are) is refused: with an error where it is
known now (SK0329), by a condition of the launches that get there where the host knows it. Where
loop variables or data decide it, the interpreter alone sees it (SK0807).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix, Label, Span
from sketchc.base.types import DType, wrapped
from sketchc.checker.calls.accesses import writable_tile
from sketchc.checker.calls.expressions import constant, number
from sketchc.checker.context.context import Context, Interval, InvalidError
from sketchc.checker.context.fixits import accumulate_fix, cast_fix, late_positional_fix
from sketchc.checker.context.shapes import broadcast, fits, interval, same, shown
from sketchc.ir import nodes as ir
from sketchc.ir import symbolic
from sketchc.ir.show import show
from sketchc.ir.walk import operand_dtype, operand_extents
from sketchc.ops.table import (
    Attribute,
    Category,
    Fact,
    Op,
    Partial,
    Result,
    common,
    literal_fits,
    result_of,
    writes_implicitly,
)
from sketchc.parsing import syntax
from sketchc.parsing.errors import nearest
from sketchc.parsing.prepass import is_parallel
from sketchc.parsing.unparse import statement_text


@records.frozen
class Arguments:
    """The arguments of a call: `axes` as written, `attributes` with defaults filled in."""

    operands: tuple[syntax.Expression, ...]
    destinations: tuple[syntax.Expression, ...]
    attributes: Mapping[str, object]
    axes: tuple[int, ...] = ()


def gather(context: Context, node: syntax.Compute, row: Op) -> Arguments:
    """Sort the arguments of a call; raises `InvalidError` after reporting a wrong one."""
    known = {attribute.name: attribute for attribute in row.attributes}
    keywords = _keywords(context, node, row, known)
    dst = keywords.pop("dst", None)
    positional = list(node.arguments)
    named = [a for a in row.attributes if a.positional and a.name not in keywords]
    expected = len(row.operands) + len(named) + (row.outputs if dst is None else 0)
    if dst is not None:
        destinations = dst.items if isinstance(dst, syntax.List) else (dst,)
        if len(destinations) != row.outputs:
            raise _wrong_destinations(context, row, dst.span, len(destinations))
    if len(positional) != expected:
        if dst is None and row.outputs > 1 and len(positional) == expected - 1:
            raise _wrong_destinations(context, row, node.span, row.outputs - 1)
        raise _wrong_count(context, node, row, expected)
    if dst is None:
        destinations = tuple(positional[-row.outputs :])
        del positional[-row.outputs :]
    operands = tuple(positional[: len(row.operands)])
    for attribute, value in zip(named, positional[len(row.operands) :], strict=True):
        keywords[attribute.name] = value
    attributes: dict[str, object] = {a.name: a.default for a in row.attributes}
    axes: tuple[int, ...] = ()
    for name, value in keywords.items():
        attribute = known[name]
        if attribute.kind == "axes":
            axes = _axes(context, value)
        else:
            attributes[name] = _value(context, attribute, value)
    if node.late_positional:  # of a call that is right otherwise
        context.warn(
            node.span,
            "SK0603",
            "a positional argument follows a keyword",
            "accepted: the last positional is the destination",
            fixes=(late_positional_fix(node),),
        )
    return Arguments(operands, destinations, attributes, axes)


def _keywords(
    context: Context, node: syntax.Compute, row: Op, known: Mapping[str, Attribute]
) -> dict[str, syntax.Expression]:
    result: dict[str, syntax.Expression] = {}
    for keyword in node.keywords:
        if keyword.name != "dst" and keyword.name not in known:
            meant = nearest(keyword.name, (*known, "dst"), 0.7)
            takes = ", ".join(f"`{name}`" for name in (*known, "dst"))
            raise context.error(
                keyword.span,
                "SK0211",
                f"`{row.name}` has no argument `{keyword.name}`",
                f"it takes {takes}" if meant is None else f"did you mean `{meant}`?",
                help=_order(row) if keyword.name in row.operands else "",
            )
        result[keyword.name] = keyword.value
    return result


def _order(row: Op) -> str:
    """The help that shows how operands are given: by position."""
    outputs = ("dst",) if row.outputs == 1 else tuple(f"dst{n}" for n in range(row.outputs))
    return f"operands have no keywords: write `{row.name}({', '.join((*row.operands, *outputs))})`"


def _wrong_count(context: Context, node: syntax.Compute, row: Op, expected: int) -> InvalidError:
    count = len(node.arguments)
    named = [attribute.name for attribute in row.attributes if attribute.positional]
    last = "destination" if row.outputs == 1 else f"{row.outputs} destinations"
    parts = [*row.operands, *named, last]
    return context.error(
        node.span,
        "SK0211",
        f"`{row.name}` takes {', '.join(parts)}",
        f"{count} positional argument{'' if count == 1 else 's'} instead of {expected}",
    )


def _wrong_destinations(context: Context, row: Op, span: Span, given: int) -> InvalidError:
    wanted = "1 destination" if row.outputs == 1 else f"{row.outputs} destinations"
    return context.error(
        span,
        "SK0325",
        f"`{row.name}` has {wanted}",
        f"{given} given",
        help="they stand last, or in a list: `dst=[values, indices]`" if row.outputs > 1 else "",
    )


def _value(context: Context, attribute: Attribute, node: syntax.Expression) -> object:
    match attribute.kind, node:
        case "bool", syntax.Boolean(value=flag):
            return flag
        case "choice", syntax.String(value=word):
            if word in attribute.choices:
                return word
            listed = ", ".join(f'"{choice}"' for choice in attribute.choices)
            meant = nearest(word, attribute.choices, 0.7)
            raise context.error(
                node.span,
                "SK0211",
                f'`{attribute.name}` cannot be "{word}"',
                f"one of {listed}",
                fixes=()
                if meant is None
                else (Fix(f'use "{meant}"', (Edit(node.span, f'"{meant}"'),)),),
            )
        case "float" | "int" | "bool", syntax.String() | syntax.List():
            pass
        case "float", _:
            value = number(context, node, f"`{attribute.name}`")
            return value if isinstance(value, ir.ScalarOperand) else float(value)
        case "tile", syntax.Name():
            return writable_tile(context, node)
        case "int", _:
            value = constant(context, node, f"`{attribute.name}`")
            if isinstance(value, int):
                return value
    kind = {"bool": "True or False", "choice": "a string", "int": "an integer", "tile": "a tile"}
    raise context.error(
        node.span,
        "SK0211",
        f"`{attribute.name}` is {kind.get(attribute.kind, 'a number')}",
        "another kind of value",
    )


def _axes(context: Context, node: syntax.Expression) -> tuple[int, ...]:
    items = node.items if isinstance(node, syntax.List) else (node,)
    if not items:
        raise context.error(node.span, "SK0310", "at least one axis is needed", "no axis")
    result = []
    for item in items:
        if isinstance(item, syntax.String | syntax.List):
            raise context.error(item.span, "SK0310", "an axis is an integer", "not an integer")
        value = constant(context, item, "an axis")
        if isinstance(value, bool) or not isinstance(value, int):
            raise context.error(item.span, "SK0310", "an axis is an integer", f"this is {value}")
        result.append(value)
    return tuple(result)


@records.frozen
class Call:
    """A call with its operands resolved. `destination` takes the first result; `others` take the
    further results of an operation with several."""

    context: Context
    node: syntax.Compute
    row: Op
    operands: tuple[ir.Operand, ...]
    destination: ir.Tile
    others: tuple[ir.Tile, ...] = ()

    def extents(self, operand: ir.Operand) -> tuple[ir.Expr, ...]:
        """The shape of an operand."""
        return operand_extents(operand, self.context.tiles.__getitem__)

    def dtype(self, operand: ir.Operand) -> DType:
        """The element type of an operand."""
        return operand_dtype(operand, self.context.tiles.__getitem__)

    def tile_label(self, tile: ir.Tile | None = None) -> tuple[Label, ...]:
        """A label with the shape of `tile`, by default the destination, where that was made."""
        tile = tile or self.destination
        return (Label(tile.span, f"its shape is {shown(tile.extents)}"),)

    # ------------------------------------------------------------ shapes

    def broadcast(self) -> None:
        """Check that operands broadcast to each other, and the result to the destination (R2)."""
        if Fact.ONE_SCALAR in self.row.facts and not isinstance(self.operands[0], ir.ScalarOperand):
            raise self.context.error(
                self.operands[0].span,
                "SK0206",
                "`fill` takes one scalar",
                "a tile",
                help="`copy` and `broadcast` take tiles",
            )
        shapes = [self.extents(operand) for operand in self.operands]
        joined = broadcast(self.context, shapes)
        if joined is None:
            listed = " and ".join(shown(shape) for shape in shapes if shape)
            raise self.context.error(
                self.node.span,
                "SK0305",
                f"shapes {listed} do not broadcast",
                "extents differ",
                notes=("right-aligned extents must be equal, or literally 1",),
                fixes=self.axis_fixes(shapes),
            )
        if not fits(self.context, joined, self.destination.extents):
            message = f"a result of shape {shown(joined)} does not fit the destination"
            raise self.misfit(message, "SK0305")

    def misfit(
        self, message: str, code: str, tile: ir.Tile | None = None, span: Span | None = None
    ) -> InvalidError:
        """Report that `tile`, by default the destination, has another shape than it needs."""
        tile = tile or self.destination
        label = f"`{tile.source_name}` is {shown(tile.extents)}"
        labels = self.tile_label(tile)
        return self.context.error(span or self.node.span, code, message, label, labels=labels)

    def axis_fixes(self, shapes: list[tuple[ir.Expr, ...]]) -> tuple[Fix, ...]:
        """Fixes that read a tile with new last axes, `t[:, None]`, so that the shapes broadcast."""
        fixes = []
        rank = max(map(len, shapes))
        for place, operand in enumerate(self.operands):
            if not isinstance(operand, ir.TileOperand) or operand.layout is not None:
                continue
            more = (ir.Literal(1),) * (rank - len(shapes[place]))
            changed = [*shapes[:place], (*shapes[place], *more), *shapes[place + 1 :]]
            if more and broadcast(self.context, changed) is not None:
                marks = [":"] * len(shapes[place]) + ["None"] * len(more)
                name = f"{self.context.tiles[operand.tile].source_name}[{', '.join(marks)}]"
                fixes.append(Fix(f"read `{name}`", (Edit(operand.span, name),)))
        return tuple(fixes)

    def source(self, operand: ir.Operand) -> tuple[ir.Expr, ...]:
        """The shape of an operand that must have lanes; reports a scalar."""
        shape = self.extents(operand)
        if not shape:
            message = f"`{self.row.name}` needs a tile here"
            raise self.context.error(operand.span, "SK0206", message, "a scalar")
        return shape

    def check_indices(self, operand: ir.Operand, shape: tuple[ir.Expr, ...]) -> None:
        """Check that an operand has an integer for each value of a tile of this shape."""
        found, dtype = self.source(operand), self.dtype(operand)
        if not fits(self.context, found, shape):
            raise self.context.error(
                operand.span,
                "SK0305",
                f"indices of shape {shown(found)} for values of shape {shown(shape)}",
                "one index for each value",
            )
        if not dtype.is_integer:
            message = f"indices are integers, not {dtype.value}"
            raise self.context.error(operand.span, "SK0312", message, dtype.value)

    def transpose(self) -> None:
        """Check that the destination has the operand's shape with the last two axes exchanged."""
        shape = self.source(self.operands[0])
        if len(shape) < 2:
            raise self.context.error(
                self.node.span, "SK0305", "`transpose` needs at least two axes", shown(shape)
            )
        self.check_shape((*shape[:-2], shape[-1], shape[-2]), self.destination)

    def check_shape(self, result: tuple[ir.Expr, ...], destination: ir.Tile) -> None:
        """Check that `destination` has exactly the shape `result`."""
        if not same(self.context, result, destination.extents):
            message = f"a result of shape {shown(result)} does not fit the destination"
            raise self.misfit(message, "SK0305", destination)

    def reduce(self, arguments: Arguments) -> tuple[int, ...]:
        """Check the axes and the destination of a reduction; gives the axes, sorted."""
        axes = self.axes(arguments.axes, self.source(self.operands[0]))
        self.check_reduced("the destination of this reduction", self.destination, axes)
        self.warn_overwrite()
        return tuple(sorted(axes))

    def check_reduced(self, what: str, tile: ir.Tile, axes: tuple[int, ...]) -> tuple[bool, ...]:
        """Check that a tile has the shape that the source has with `axes` kept, or without them;
        gives which axes of the source the tile has."""
        shape = self.source(self.operands[0])
        kept = tuple(ir.Literal(1) if axis in axes else extent for axis, extent in enumerate(shape))
        dropped = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
        whole = len(tile.extents) == len(shape)
        wanted = kept if whole else dropped
        if not wanted or not same(self.context, wanted, tile.extents):
            choices = shown(kept) + (f" or {shown(dropped)}" if dropped else "")
            raise self.misfit(f"{what} needs the shape {choices}", "SK0311", tile)
        return tuple(whole or axis not in axes for axis in range(len(shape)))

    def axes(self, given: tuple[int, ...], shape: tuple[ir.Expr, ...]) -> tuple[int, ...]:
        """The axes `given`, counted from the front; each must exist and be named once."""
        rank = "1 axis" if len(shape) == 1 else f"{len(shape)} axes"
        axes: list[int] = []
        for axis in given:
            if not -len(shape) <= axis < len(shape):
                raise self.context.error(
                    self.node.span,
                    "SK0310",
                    f"axis {axis} does not exist",
                    f"the source has {rank}: {shown(shape)}",
                )
            if axis % len(shape) in axes:
                raise self.context.error(
                    self.node.span, "SK0310", f"axis {axis} is named twice", "name it once"
                )
            axes.append(axis % len(shape))
        return tuple(axes)

    def warn_overwrite(self) -> None:
        """Warn of a reduction inside a loop that overwrites an accumulator in every iteration."""
        tile, loops = self.destination, self.context.loops
        looks = tile.initial is not None or "accumulator" in tile.hints
        if not looks or len(loops) <= tile.depth or is_parallel(loops[-1]):
            return
        self.context.warn(
            self.node.span,
            "SK0607",
            f"`{self.row.name}` overwrites `{tile.source_name}` in every iteration",
            "this does not accumulate",
            labels=(Label(tile.span, "looks like an accumulator"),),
            fixes=accumulate_fix(self.context, self.node, tile),
        )

    def multiply(self, attributes: dict[str, object]) -> None:
        """Check that [M, K] is multiplied with [K, N], each possibly transposed, into [M, N]."""
        left, right = (self.source(operand) for operand in self.operands)
        if len(left) != 2 or len(right) != 2:
            raise self.context.error(
                self.node.span,
                "SK0309",
                f"`{self.row.name}` multiplies tiles of two axes",
                f"these are {shown(left)} and {shown(right)}",
            )
        left = _turned(left, attributes["trans_a"])
        right = _turned(right, attributes["trans_b"])
        if not self.context.equal(left[1], right[0]):
            raise self.context.error(
                self.node.span,
                "SK0309",
                f"the inner extents differ: {show(left[1])} and {show(right[0])}",
                f"{shown(left)} times {shown(right)}",
                help="`trans_a=True` or `trans_b=True` read an operand transposed",
                fixes=self.transpose_fixes(left, right),
            )
        if not same(self.context, (left[0], right[1]), self.destination.extents):
            message = f"the product has the shape {shown((left[0], right[1]))}"
            raise self.misfit(message, "SK0309")

    def transpose_fixes(
        self, left: tuple[ir.Expr, ...], right: tuple[ir.Expr, ...]
    ) -> tuple[Fix, ...]:
        """Fixes that read one operand transposed, where that makes the product fit."""
        fixes = []
        for name, a, b in (
            ("trans_b", left, _turned(right, True)),
            ("trans_a", _turned(left, True), right),
        ):
            fitting = self.context.equal(a[1], b[0]) and same(
                self.context, (a[0], b[1]), self.destination.extents
            )
            if fitting and not any(keyword.name == name for keyword in self.node.keywords):
                keyword = syntax.Keyword(name, syntax.Boolean(True))
                call = records.evolve(self.node, keywords=(*self.node.keywords, keyword))
                edit = Edit(self.node.span, statement_text(call))
                fixes.append(Fix(f"multiply with `{name}=True`", (edit,)))
        return tuple(fixes)

    # ------------------------------------------------------------ types

    def evaluation_dtype(self) -> DType:
        """Check the operands' types and the write (R6); gives the type of the evaluation."""
        operands = list(self.operands)
        if self.row.conditional:
            self.check_condition(operands.pop(0))
        lanes, weak = split_operands(operands, self.context.tiles.__getitem__)
        scalars = [o for o in operands if isinstance(o, ir.ScalarOperand)]
        operand = common(lanes, weak)
        if not lanes and self.row.result in (Result.SAME, Result.PROMOTE, Result.DESTINATION):
            evaluated = self.from_scalars(scalars)
            self.check_operand(evaluated)
            return evaluated
        if operand is None:
            return self.destination.dtype
        self.check_operand(operand)
        target = self.destination.dtype
        if self.row.result is Result.DESTINATION:
            return target
        result = result_of(self.row, operand) or target
        if self.row.result is Result.ACCUMULATOR and result.is_integer and target.is_integer:
            result = target  # integer reductions take the destination's type
        if not writes_implicitly(result, target):
            raise self.needs_cast(result)
        if self.row.result is Result.I64:
            return operand
        if self.row.result is not Result.BOOL:
            return result
        return DType.BOOL if self.row.category is Category.REDUCTION else operand

    def check_condition(self, operand: ir.Operand) -> None:
        """Check that the first operand of `where` is a condition."""
        dtype = self.dtype(operand)
        if dtype is not DType.BOOL:
            raise self.context.error(
                operand.span,
                "SK0308",
                f"the condition of `where` is {dtype.value}, not bool",
                "not a condition",
                help="compare it: `gt(x, 0, mask)`, with `mask` a bool tile",
            )

    def check_operand(self, operand: DType) -> None:
        """Check that the operation is defined on operands of this type."""
        wrong = (
            (self.row.result is Result.INTEGER and operand.is_float)
            or (Fact.INTEGRAL in self.row.facts and not operand.is_integer)
            or (operand is DType.BOOL and Fact.NUMERIC in self.row.facts)
            or (operand is DType.BOOL and self.row.category is Category.MATRIX)
        )
        if wrong:
            raise self.context.error(
                self.node.span,
                "SK0312",
                f"`{self.row.name}` does not take {operand.value}",
                "`cast` the operands first",
            )

    def from_scalars(self, scalars: list[ir.ScalarOperand]) -> DType:
        """The type of the evaluation of scalars alone, each of which must fit the destination."""
        target = self.destination.dtype
        for scalar in scalars if Fact.CONVERTS not in self.row.facts else ():
            check_scalar(self.context, scalar, self.destination)
        return target if self.row.result is Result.DESTINATION else target.compute

    def needs_cast(self, result: DType) -> InvalidError:
        """Report a result type that does not convert to the destination's without `cast`."""
        target = self.destination.dtype
        label = f"the result is {result.value}, the tile {target.value}"
        fixes = cast_fix(self.context, self.node, result)
        return no_conversion(
            self.context, self.node.span, result, target, label, self.destination, fixes
        )


def split_operands(
    operands: Sequence[ir.Operand], tile: Callable[[str], ir.Tile]
) -> tuple[list[DType], list[DType | None]]:
    """The types of the operands with lanes, and of the scalars (None for an integer literal)."""
    lanes = [operand_dtype(o, tile) for o in operands if not isinstance(o, ir.ScalarOperand)]
    scalars = [o for o in operands if isinstance(o, ir.ScalarOperand)]
    literals = [isinstance(o.value, ir.Literal) and type(o.value.value) is int for o in scalars]
    return lanes, [None if lit else o.dtype for lit, o in zip(literals, scalars, strict=True)]


def check_scalar(context: Context, scalar: ir.ScalarOperand, tile: ir.Tile) -> None:
    """Raises `InvalidError` after reporting a scalar that does not fit the lanes of a tile."""
    source, target = scalar.dtype, tile.dtype
    match scalar.value:
        case ir.Literal(value):
            fine = literal_fits(value, target)
        case _ if target.is_float and source.is_integer:
            fine = True
        case _:
            fine = writes_implicitly(source, target)
    if not fine:
        raise context.error(
            scalar.span,
            "SK0307",
            f"this scalar does not convert to {target.value} without `cast`",
            f"{source.value} into {target.value}",
            labels=(Label(tile.span, f"{target.value} tile"),),
        )


def no_conversion(
    context: Context,
    span: Span,
    source: DType,
    target: DType,
    label: str = "",
    tile: ir.Tile | None = None,
    fixes: tuple[Fix, ...] = (),
) -> InvalidError:
    """Report a conversion that is not implicit (R6); `tile` is what would be written."""
    return context.error(
        span,
        "SK0307",
        f"{source.value} does not convert to {target.value} without `cast`",
        label or f"{source.value} into {target.value}",
        labels=() if tile is None else (Label(tile.span, f"{target.value} tile"),),
        notes=("only float to float and widening integer conversions are implicit (R6)",),
        fixes=fixes,
    )


def _turned(shape: tuple[ir.Expr, ...], turn: object) -> tuple[ir.Expr, ...]:
    return (shape[1], shape[0]) if turn else shape


#: What is wrong with the second operand of an operation, and what it may be.
_WRONG = {
    Partial.QUOTIENT: ("divides by 0", "another number than 0"),
    Partial.REMAINDER: ("divides by 0", "another number than 0"),
    Partial.POWER: ("takes a negative power", "0 or more"),
    Partial.SHIFT: ("shifts too far", "0 or more, and less than the bits of the type"),
}


def check_second_operand(call: Call, dtype: DType) -> None:
    """Check that the operation, evaluated in `dtype`, has a value for a scalar second operand: now
    where that is known, else at launch. Raises `InvalidError` after reporting."""
    operand = call.operands[-1]
    partial = call.row.partial
    if partial is None or not dtype.is_integer:
        return
    if not isinstance(operand, ir.ScalarOperand):
        return
    context = call.context
    exact = symbolic.constant_value(operand.value, context.definitions)
    if exact is not None:  # other scalars are never wider than the evaluation
        exact = int(wrapped(exact, dtype))
    known = interval(context, operand.value) if exact is None else (exact, exact)
    for operator, bound in _needed(partial, dtype):
        holds = _settled(operator, bound, known)
        if holds is False:
            problem, allowed = _WRONG[partial]
            raise context.error(
                operand.span,
                "SK0329",
                f"`{call.row.name}` has no value here: it {problem}",
                f"must be {allowed}",
                notes=(f"the operation is evaluated in {dtype.value}, on every lane",),
            )
        host = context.host_form(operand.value)
        if holds is None and host is not None:
            context.require(ir.Binary(operator, host, ir.Literal(bound)), operand.span)


def _needed(partial: Partial, dtype: DType) -> Iterator[tuple[str, int]]:
    """The comparisons that the second operand must satisfy, each as (operator, bound)."""
    match partial:
        case Partial.POWER:
            yield (">=", 0)
        case Partial.SHIFT:
            yield (">=", 0)
            yield ("<", 8 * dtype.bytes)
        case _:
            yield ("!=", 0)


def _settled(operator: str, bound: int, known: Interval) -> bool | None:
    """Whether `x operator bound` holds for all x in an interval, or for none; else None."""
    low, high = known
    below, reached = high < bound, low >= bound
    if operator == "!=":
        if low == high == bound:
            return False
        return True if below or (reached and low != bound) else None
    holds, fails = (reached, below) if operator == ">=" else (below, reached)
    return True if holds else False if fails else None

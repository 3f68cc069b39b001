"""One compute call: the shapes of its operands and destination, and the type of the evaluation."""

from __future__ import annotations

from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import Edit, Fix, Label
from sketchc.base.types import DType
from sketchc.checker.calls.arguments import Arguments
from sketchc.checker.context.context import Context, InvalidError
from sketchc.checker.context.fixits import accumulate_fix, cast_fix
from sketchc.checker.context.names import TileState
from sketchc.checker.context.shapes import broadcast, fits, same, shown
from sketchc.ir import nodes as ir
from sketchc.ir.lanes import laid_out
from sketchc.ir.show import show
from sketchc.ops.dtypes import common, literal_fits, result_of, writes_implicitly
from sketchc.ops.table import Category, Fact, Op, Result
from sketchc.parsing import syntax
from sketchc.parsing.text import statement_text


@records.frozen
class Call:
    """A call with its operands resolved. The first destination has the result; `others` are the
    further ones of an operation with several."""

    context: Context
    node: syntax.Compute
    row: Op
    operands: tuple[ir.Operand, ...]
    destination: TileState
    others: tuple[TileState, ...] = ()

    def tile(self, name: str) -> TileState:
        return next(tile for tile in reversed(self.context.tiles) if tile.name == name)

    def extents(self, operand: ir.Operand) -> tuple[ir.Expr, ...]:
        return operand_extents(self.context, operand)

    def dtype(self, operand: ir.Operand) -> DType:
        return (
            self.tile(operand.tile).dtype if isinstance(operand, ir.TileOperand) else operand.dtype
        )

    def tile_label(self, tile: TileState | None = None) -> tuple[Label, ...]:
        tile = tile or self.destination
        return (Label(tile.span, f"its shape is {shown(tile.extents)}"),)

    # ------------------------------------------------------------ shapes

    def broadcast(self) -> None:
        """Operands broadcast to each other, and the result to the destination (R2)."""
        if self.row.name == "fill" and not isinstance(self.operands[0], ir.ScalarOperand):
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
            raise self.context.error(
                self.node.span,
                "SK0305",
                f"a result of shape {shown(joined)} does not fit the destination",
                f"`{self.destination.source_name}` is {shown(self.destination.extents)}",
                labels=self.tile_label(),
            )

    def axis_fixes(self, shapes: list[tuple[ir.Expr, ...]]) -> tuple[Fix, ...]:
        """Take a tile along the leading axes, `t[:, None]`, where that makes the shapes fit."""
        fixes = []
        rank = max(map(len, shapes))
        for place, operand in enumerate(self.operands):
            if not isinstance(operand, ir.TileOperand) or operand.layout is not None:
                continue
            more = (ir.Literal(1),) * (rank - len(shapes[place]))
            changed = [*shapes[:place], (*shapes[place], *more), *shapes[place + 1 :]]
            if more and broadcast(self.context, changed) is not None:
                marks = [":"] * len(shapes[place]) + ["None"] * len(more)
                name = f"{self.tile(operand.tile).source_name}[{', '.join(marks)}]"
                fixes.append(Fix(f"read `{name}`", (Edit(operand.span, name),)))
        return tuple(fixes)

    def source(self, operand: ir.Operand) -> tuple[ir.Expr, ...]:
        """The shape of an operand that must have lanes."""
        shape = self.extents(operand)
        if not shape:
            raise self.context.error(
                operand.span,
                "SK0206",
                f"`{self.row.name}` needs a tile here",
                "a scalar",
            )
        return shape

    def transpose(self) -> None:
        """The last two axes exchanged."""
        shape = self.source(self.operands[0])
        if len(shape) < 2:
            raise self.context.error(
                self.node.span, "SK0305", "`transpose` needs at least two axes", shown(shape)
            )
        self.check_shape((*shape[:-2], shape[-1], shape[-2]), self.destination)

    def check_shape(self, result: tuple[ir.Expr, ...], destination: TileState) -> None:
        """The destination has exactly this shape."""
        if not same(self.context, result, destination.extents):
            raise self.context.error(
                self.node.span,
                "SK0305",
                f"a result of shape {shown(result)} does not fit the destination",
                f"`{destination.source_name}` is {shown(destination.extents)}",
                labels=self.tile_label(destination),
            )

    def reduce(self, arguments: Arguments) -> tuple[int, ...]:
        """Check the axes and the destination of a reduction; gives the axes, sorted."""
        shape = self.source(self.operands[0])
        axes = self.axes(arguments.axes, shape)
        kept = tuple(ir.Literal(1) if axis in axes else extent for axis, extent in enumerate(shape))
        dropped = tuple(extent for axis, extent in enumerate(shape) if axis not in axes)
        target = self.destination.extents
        wanted = kept if len(target) == len(shape) else dropped
        if not wanted or not same(self.context, wanted, target):
            choices = shown(kept) + (f" or {shown(dropped)}" if dropped else "")
            raise self.context.error(
                self.node.span,
                "SK0311",
                f"the destination of this reduction needs the shape {choices}",
                f"`{self.destination.source_name}` is {shown(target)}",
                labels=self.tile_label(),
            )
        self.warn_overwrite()
        return tuple(sorted(axes))

    def axes(self, given: tuple[int, ...], shape: tuple[ir.Expr, ...]) -> tuple[int, ...]:
        """Axes counted from the front, in the order given; each exists and stands there once."""
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
        """A reduction into an accumulator inside a loop overwrites it each time."""
        tile, loops = self.destination, self.context.loops
        looks = tile.initial is not None or "accumulator" in tile.hints
        if not looks or not loops or loops[-1].identity in tile.loops or loops[-1].parallel:
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
        """[M, K] with [K, N], each possibly transposed, into [M, N]."""
        left, right = (self.source(operand) for operand in self.operands)
        if len(left) != 2 or len(right) != 2:
            raise self.context.error(
                self.node.span,
                "SK0309",
                f"`{self.row.name}` multiplies tiles of two axes",
                f"these are {shown(left)} and {shown(right)}",
            )
        left = turned(left, attributes["trans_a"])
        right = turned(right, attributes["trans_b"])
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
            raise self.context.error(
                self.node.span,
                "SK0309",
                f"the product has the shape {shown((left[0], right[1]))}",
                f"`{self.destination.source_name}` is {shown(self.destination.extents)}",
                labels=self.tile_label(),
            )

    def transpose_fixes(
        self, left: tuple[ir.Expr, ...], right: tuple[ir.Expr, ...]
    ) -> tuple[Fix, ...]:
        """Read one operand transposed, where that makes the product fit."""
        fixes = []
        for name, a, b in (
            ("trans_b", left, turned(right, True)),
            ("trans_a", turned(left, True), right),
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
        lanes = [self.dtype(o) for o in operands if not isinstance(o, ir.ScalarOperand)]
        scalars = [o for o in operands if isinstance(o, ir.ScalarOperand)]
        weak = [None if _is_integer_literal(o.value) else o.dtype for o in scalars]
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
        """All operands are scalars: they take the destination's type, as far as they fit."""
        target = self.destination.dtype
        for scalar in scalars:
            match scalar.value:
                case ir.Literal(value):
                    fine = literal_fits(value, target)
                case _ if scalar.dtype.is_float or scalar.dtype is DType.BOOL:
                    fine = writes_implicitly(scalar.dtype, target)
                case _:
                    fine = target.is_float or writes_implicitly(scalar.dtype, target)
            if not fine and self.row.name != "cast":
                raise self.context.error(
                    scalar.span,
                    "SK0307",
                    f"this scalar does not convert to {target.value} without `cast`",
                    f"{scalar.dtype.value} into {target.value}",
                    labels=(Label(self.destination.span, f"{target.value} tile"),),
                )
        return target if self.row.result is Result.DESTINATION else target.compute

    def needs_cast(self, result: DType) -> InvalidError:
        target = self.destination.dtype
        return self.context.error(
            self.node.span,
            "SK0307",
            f"{result.value} does not convert to {target.value} without `cast`",
            f"the result is {result.value}, the tile {target.value}",
            labels=(Label(self.destination.span, f"{target.value} tile"),),
            notes=("only float to float and widening integer conversions are implicit (R6)",),
            fixes=cast_fix(self.context, self.node, result),
        )


def operand_extents(context: Context, operand: ir.Operand) -> tuple[ir.Expr, ...]:
    """The shape of an operand; () for a scalar."""
    match operand:
        case ir.TileOperand(tile=name, layout=layout):
            tile = next(tile for tile in context.tiles if tile.name == name)
            return laid_out(tile.extents, layout, ir.Literal(1))
        case ir.IndexOperand(extents=extents):
            return extents
        case ir.ScalarOperand():
            return ()
        case _:
            assert_never(operand)


def turned(shape: tuple[ir.Expr, ...], turn: object) -> tuple[ir.Expr, ...]:
    return (shape[1], shape[0]) if turn else shape


def _is_integer_literal(value: ir.Expr) -> bool:
    return isinstance(value, ir.Literal) and type(value.value) is int

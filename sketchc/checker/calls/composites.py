"""softmax, layer_norm and rms_norm, written out as primitives over the last axis; and element-wise
operations whose numbers (`clamp(low=)`, `elu(alpha=)`) are known at launch alone.

Every later stage sees the primitives alone. Means are over the *valid* lanes, so their number is
counted lane by lane; a NaN is not counted, which changes nothing, because it makes the whole row
NaN. The statistics are kept in the type of the evaluation: f32 for f16, bf16 and integers.
"""

from __future__ import annotations

from sketchc.base import records
from sketchc.base.diagnostics import InternalError, Span
from sketchc.base.types import DType
from sketchc.checker.calls.calls import Call
from sketchc.checker.context.context import Context
from sketchc.ir import nodes as ir
from sketchc.ir.show import show_operand
from sketchc.ops.table import OPS


def copied(
    context: Context, operand: ir.Operand, stem: str, extents: tuple[ir.Expr, ...], dtype: DType
) -> tuple[tuple[ir.Statement, ...], ir.Tile]:
    """Statements that copy an operand into a new tile, and that tile."""
    tile = context.make_tile(stem, extents, dtype, operand.span)
    copy = primitive("copy", (operand,), tile.name, dtype.compute, operand.span)
    return (ir.Alloc(tile.name, span=operand.span), copy), tile


def primitive(
    operation: str,
    operands: tuple[ir.Operand, ...],
    destination: str,
    dtype: DType,
    span: Span,
    axis: tuple[int, ...] = (),
) -> ir.Compute:
    """The statement of an operation that the sketch does not write, with default attributes."""
    attributes = {one.name: one.default for one in OPS[operation].kept}
    if axis:
        attributes["axis"] = axis
    words = [*map(show_operand, operands), *map(str, axis), destination]
    text = f"{operation}({', '.join(words)})"
    return ir.Compute(operation, operands, destination, dtype, attributes, text=text, span=span)


def expand(call: Call, attributes: dict[str, object]) -> tuple[ir.Statement, ...]:
    """The primitives of one call; raises `InvalidError` after reporting what is wrong."""
    shape = call.source(call.operands[0])
    call.broadcast()
    dtype = call.evaluation_dtype()
    writer = Writer(call, shape, dtype)
    source = call.operands[0] if call.row.name == "clamp" else writer.source()
    match call.row.name:
        case "softmax":
            writer.softmax(source)
        case "layer_norm":
            writer.layer_norm(source, attributes["eps"])
        case "rms_norm":
            writer.rms_norm(source, attributes["eps"])
        case "clamp":
            writer.clamp(source, attributes["low"], attributes["high"])
        case "leaky_relu":
            scaled = writer.compute(
                "mul", (source, writer.number(attributes["slope"])), writer.tile("scaled")
            )
            writer.where_positive(source, scaled)
        case "elu":
            scaled = writer.compute("elu", (source,), writer.tile("scaled"))
            writer.compute("mul", (scaled, writer.number(attributes["alpha"])), scaled)
            writer.where_positive(source, scaled)
        case name:
            raise InternalError(f"{name} has no primitives")
    return tuple(writer.statements)


@records.define(eq=False)
class Writer:
    """Writes the primitives of one call, whose results have by default the shape `shape` and the
    type `dtype`."""

    call: Call
    shape: tuple[ir.Expr, ...]
    dtype: DType
    statements: list[ir.Statement] = records.field(factory=list)

    @property
    def target(self) -> ir.TileOperand:
        """The destination of the call."""
        return ir.TileOperand(self.call.destination.name, span=self.call.node.span)

    def source(self) -> ir.Operand:
        """The operand, converted first if it holds integers."""
        operand = self.call.operands[0]
        if self.call.dtype(operand).is_float:
            return operand
        return self.compute("cast", (operand,), self.tile("values"))

    def softmax(self, source: ir.Operand) -> None:
        """Write exp(x - largest) / sum."""
        largest = self.reduce("reduce_max", source, "largest")
        shifted = self.compute("sub", (source, largest), self.tile("powers"))
        powers = self.compute("exp", (shifted,), shifted)
        total = self.reduce("reduce_sum", powers, "total")
        self.compute("div", (powers, total), self.target)

    def layer_norm(self, source: ir.Operand, eps: object) -> None:
        """Write (x - mean) / sqrt(variance + eps)."""
        count = self.count(source)
        mean = self.reduce("reduce_sum", source, "mean")
        self.compute("div", (mean, count), mean)
        centred = self.compute("sub", (source, mean), self.tile("centred"))
        squares = self.compute("mul", (centred, centred), self.tile("squares"))
        scale = self.reduce("reduce_sum", squares, "scale")
        self.normalise(centred, scale, count, eps)

    def rms_norm(self, source: ir.Operand, eps: object) -> None:
        """Write x / sqrt(mean of squares + eps)."""
        count = self.count(source)
        squares = self.compute("mul", (source, source), self.tile("squares"))
        scale = self.reduce("reduce_sum", squares, "scale")
        self.normalise(source, scale, count, eps)

    def normalise(
        self, values: ir.Operand, scale: ir.TileOperand, count: ir.TileOperand, eps: object
    ) -> None:
        """Write values / sqrt(scale / count + eps), where `scale` is a sum of squares."""
        self.compute("div", (scale, count), scale)
        self.compute("add", (scale, self.number(eps)), scale)
        self.compute("rsqrt", (scale,), scale)
        self.compute("mul", (values, scale), self.target)

    def clamp(self, value: ir.Operand, low: object, high: object) -> None:
        """min(max(x, low), high); rounding to the destination in between changes nothing."""
        for operation, bound in (("max", low), ("min", high)):
            if bound is not None:
                value = self.compute(operation, (value, self.number(bound)), self.target)

    def where_positive(self, source: ir.Operand, otherwise: ir.Operand) -> None:
        """Write `source` where it is above 0, else `otherwise`."""
        zero = self.number(0.0)
        positive = self.compute("gt", (source, zero), self.tile("positive", DType.BOOL))
        self.compute("where", (positive, source, otherwise), self.target)

    def number(self, value: object) -> ir.ScalarOperand:
        """A numeric argument as a scalar operand beside lanes of the evaluation's type."""
        if isinstance(value, ir.ScalarOperand):
            if value.dtype is DType.BOOL or (value.dtype.is_float and not self.dtype.is_float):
                raise self.call.context.error(
                    value.span,
                    "SK0312",
                    f"`{self.call.row.name}` of {self.dtype.value} takes no {value.dtype.value}",
                    "another kind of number",
                )
            return value
        assert isinstance(value, float)
        span = self.call.node.span
        if self.dtype.is_float:
            return ir.ScalarOperand(ir.Literal(value), DType.F64, span=span)
        return ir.ScalarOperand(ir.Literal(int(value)), DType.I64, span=span)

    def count(self, source: ir.Operand) -> ir.TileOperand:
        """The number of valid lanes of each row of `source`."""
        valid = self.compute("eq", (source, source), self.tile("valid", DType.BOOL))
        numbers = (self.number(1.0), self.number(0.0))
        ones = self.compute("where", (valid, *numbers), self.tile("ones"))
        return self.reduce("reduce_sum", ones, "count")

    def reduce(self, operation: str, source: ir.Operand, name: str) -> ir.TileOperand:
        """A tile with `source` reduced over the last axis."""
        row = self.tile(name, extents=(*self.shape[:-1], ir.Literal(1)))
        return self.compute(operation, (source,), row, axis=(len(self.shape) - 1,))

    # ------------------------------------------------------------ statements

    def tile(
        self, name: str, dtype: DType | None = None, extents: tuple[ir.Expr, ...] | None = None
    ) -> ir.TileOperand:
        """A new tile with the source's shape, or with `extents`."""
        stem = f"{self.call.destination.source_name}_{name}"
        span = self.call.node.span
        tile = self.call.context.make_tile(stem, extents or self.shape, dtype or self.dtype, span)
        self.statements.append(ir.Alloc(tile.name, span=span))
        return ir.TileOperand(tile.name, span=span)

    def compute(
        self,
        operation: str,
        operands: tuple[ir.Operand, ...],
        destination: ir.TileOperand,
        axis: tuple[int, ...] = (),
        dtype: DType | None = None,
        **flags: bool,
    ) -> ir.TileOperand:
        """Add one primitive, evaluated in `dtype`, by default the writer's; gives its
        destination."""
        span = self.call.node.span
        made = primitive(operation, operands, destination.tile, dtype or self.dtype, span, axis)
        if flags:
            made = records.evolve(made, attributes={**made.attributes, **flags})
        self.statements.append(made)
        return destination

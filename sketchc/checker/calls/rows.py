"""Scans and sorts of rows longer than a tile, written out as primitives: a scan that goes on from
tile to tile with `carry=`, and `rank`, which counts over tiles the elements that come before.

Void lanes take no part (R3): they add nothing to a carry, and come before nothing.
"""

from __future__ import annotations

from sketchc.base.diagnostics import Label
from sketchc.base.types import DType
from sketchc.checker.calls.calls import Call
from sketchc.checker.calls.composites import Writer
from sketchc.checker.context.shapes import same, shown
from sketchc.ir import nodes as ir
from sketchc.ops.table import common


def carried_on(
    call: Call, axes: tuple[int, ...], attributes: dict[str, object], carry: object
) -> tuple[ir.Statement, ...]:
    """The primitives of `cumsum` or `cumprod` that goes on with the tile `carry`, along the one
    axis in `axes`; raises `InvalidError` after reporting a carry that does not fit."""
    (axis,) = axes
    shape = call.source(call.operands[0])
    dtype = call.evaluation_dtype()
    flags = {name: bool(attributes[name]) for name in ("reverse", "exclusive")}
    assert isinstance(carry, ir.Tile)
    scan = _Scan(Writer(call, shape, dtype), axis, _carry(call, carry, axis, dtype), flags)
    if call.row.identity == "zero":
        scan.sum()
    else:
        scan.product()
    return tuple(scan.writer.statements)


def _carry(call: Call, carry: ir.Tile, axis: int, dtype: DType) -> ir.TileOperand:
    """The operand that reads a carry beside the source."""
    layout = call.check_reduced("the carry of this scan", carry, (axis,))
    if carry.dtype is not dtype:
        raise call.context.error(
            call.node.span,
            "SK0312",
            f"the carry of a scan in {dtype.value} is {dtype.value}",
            f"`{carry.source_name}` is {carry.dtype.value}",
            labels=(Label(carry.span, "allocated here"),),
            help=f"allocate it as {dtype.value}",
        )
    return ir.TileOperand(carry.name, layout=None if all(layout) else layout, span=call.node.span)


class _Scan:
    """Writes a scan that begins with its carry."""

    def __init__(
        self, writer: Writer, axis: int, carry: ir.TileOperand, flags: dict[str, bool]
    ) -> None:
        self.writer = writer
        self.axis = axis
        self.carry = carry
        self.flags = flags
        self.goal = ir.TileOperand(carry.tile, span=carry.span)

    def sum(self) -> None:
        """Add the carry to the sums of the tile, and the tile's sum to the carry."""
        writer, (source,) = self.writer, self.writer.call.operands
        running = self.scanned(source)
        writer.compute("add", (running, self.carry), writer.target)
        block = self.reduced("reduce_sum", source, "block")
        writer.compute("add", (self.goal, block), self.goal)

    def product(self) -> None:
        """Multiply the first lane by the carry, for the product of a tile by itself may overflow
        where the running one does not; what the last lane comes to is carried on."""
        writer, (source,) = self.writer, self.writer.call.operands
        lane = ir.IndexOperand(
            ir.Iota(
                writer.shape[self.axis],
                ir.Literal(0),
                None,
                tuple(place == self.axis for place in range(len(writer.shape))),
            ),
            DType.I64,
            tuple(e if n == self.axis else ir.Literal(1) for n, e in enumerate(writer.shape)),
            span=source.span,
        )
        valid = writer.tile("valid", DType.BOOL)
        writer.compute("eq", (source, writer.number(0.0)), valid)
        lanes = writer.tile("lanes", DType.I64)  # the numbers of the lanes that are valid
        writer.compute("where", (valid, lane, lane), lanes, dtype=DType.I64)
        kept = tuple(ir.Literal(1) if n == self.axis else e for n, e in enumerate(writer.shape))
        ends = [
            self.reduced(f"reduce_{which}", lanes, name, DType.I64, kept)
            for which, name in (("min", "lowest"), ("max", "highest"))
        ]
        begin, end = reversed(ends) if self.flags["reverse"] else ends
        first, last = (
            writer.compute("eq", (lane, place), writer.tile(name, DType.BOOL), dtype=DType.I64)
            for place, name in ((begin, "first"), (end, "last"))
        )
        factor = writer.tile("factor")
        writer.compute("where", (first, self.carry, writer.number(1.0)), factor)
        writer.compute("mul", (factor, source), factor)
        running = self.scanned(factor)
        come_to = running
        if self.flags["exclusive"]:  # the first lane has the carry, the last one leaves its own out
            writer.compute("where", (first, self.carry, running), running)
            come_to = writer.compute("mul", (running, source), factor)
        if running != writer.target:
            writer.compute("copy", (running,), writer.target)
        writer.compute("where", (last, come_to, writer.number(0.0)), factor)
        total = self.reduced("reduce_sum", factor, "total")
        zero = ir.ScalarOperand(ir.Literal(0), DType.I64, span=source.span)
        writer.compute("ge", (lanes, zero), valid, dtype=DType.I64)
        some = self.reduced("reduce_any", valid, "some", DType.BOOL)
        writer.compute("where", (some, total, self.goal), self.goal)

    def scanned(self, source: ir.Operand) -> ir.TileOperand:
        """The scan of one tile by itself: in the destination, where that has the type."""
        writer = self.writer
        exact = writer.call.destination.dtype is writer.dtype
        running = writer.target if exact else writer.tile("running")
        name = writer.call.row.name
        return writer.compute(name, (source,), running, (self.axis,), None, **self.flags)

    def reduced(
        self,
        operation: str,
        source: ir.Operand,
        name: str,
        dtype: DType | None = None,
        shape: tuple[ir.Expr, ...] | None = None,
    ) -> ir.TileOperand:
        """A tile of the carry's shape, or this one, with `source` reduced along the axis."""
        extents = self.writer.call.context.tiles[self.goal.tile].extents
        goal = self.writer.tile(name, dtype, shape or extents)
        return self.writer.compute(operation, (source,), goal, (self.axis,), dtype)


def ranked(call: Call, axis: int, descending: bool) -> tuple[ir.Statement, ...]:
    """The primitives of `rank`: each value beside each of the others; raises `InvalidError` after
    reporting what is wrong."""
    values, indices, others, theirs = call.operands
    shape, beside = call.source(values), call.source(others)
    (axis,) = call.axes((axis,), shape)
    _check_beside(call, axis)
    for operand, wanted in ((indices, shape), (theirs, beside)):
        call.check_indices(operand, wanted)
    call.check_shape(shape, call.destination)
    if call.destination.dtype not in (DType.I32, DType.I64):
        raise call.needs_cast(DType.I64)
    dtype = common([call.dtype(values), call.dtype(others)], [])
    assert dtype is not None
    wide = (*shape[: axis + 1], beside[axis], *shape[axis + 1 :])
    writer = Writer(call, wide, dtype)
    before = _before(writer, axis, descending)
    number = call.destination.dtype
    one, zero = (ir.ScalarOperand(ir.Literal(n), DType.I64, span=values.span) for n in (1, 0))
    ones = writer.tile("ones", number)
    writer.compute("where", (before, one, zero), ones, dtype=number)
    count = writer.tile("count", number, shape)
    writer.compute("reduce_sum", (ones,), count, (axis + 1,), number)
    writer.compute("add", (writer.target, count), writer.target, dtype=number)
    return tuple(writer.statements)


def _check_beside(call: Call, axis: int) -> None:
    """Check that values and others agree on all axes but the one along which they are ranked."""
    shape, beside = (call.extents(call.operands[place]) for place in (0, 2))
    rest = (*shape[:axis], *shape[axis + 1 :])
    others = (*beside[:axis], *beside[axis + 1 :])
    if len(shape) == len(beside) and same(call.context, rest, others):
        return
    raise call.context.error(
        call.node.span,
        "SK0327",
        f"values of shape {shown(shape)} cannot be ranked among others of shape {shown(beside)}",
        f"they differ on another axis than {axis}",
    )


def _before(writer: Writer, axis: int, descending: bool) -> ir.TileOperand:
    """Whether each of the others, along the axis after `axis`, comes before each value: NaN comes
    behind all and beside every other NaN, and of equal ones that with the smaller index first."""
    rank = len(writer.shape)

    def read(operand: ir.Operand, without: int) -> ir.TileOperand:
        assert isinstance(operand, ir.TileOperand)
        missing = rank - 1 - len(writer.call.extents(operand))  # axes of the values, in front
        own = [place for place in range(rank) if place != without][missing:]
        layout = tuple(place in own for place in range(rank))
        return ir.TileOperand(operand.tile, layout=layout, span=operand.span)

    def condition(
        name: str, operation: str, *operands: ir.TileOperand, dtype: DType = DType.BOOL
    ) -> ir.TileOperand:
        goal = writer.tile(name, DType.BOOL)
        return writer.compute(operation, operands, goal, dtype=dtype)

    places = (axis + 1, axis + 1, axis, axis)
    values, mine, others, theirs = map(read, writer.call.operands, places)
    small, large = (values, others) if descending else (others, values)
    missing = [_missing(writer, tile) for tile in (small, large) if writer.dtype.is_float]
    strictly = condition("strictly", "ge", small, large, dtype=writer.dtype)
    loosely = condition("loosely", "le", small, large, dtype=writer.dtype)
    for found, tile in zip((strictly, loosely), missing, strict=False):
        writer.compute("logical_or", (found, tile), found, dtype=DType.BOOL)
    writer.compute("logical_not", (strictly,), strictly, dtype=DType.BOOL)
    earlier = condition("earlier", "lt", theirs, mine, dtype=DType.I64)
    writer.compute("where", (earlier, loosely, strictly), earlier, dtype=DType.BOOL)
    return earlier


def _missing(writer: Writer, tile: ir.TileOperand) -> ir.TileOperand:
    """Where a tile is NaN, with the axes that it is read with."""
    found = writer.tile("nan", DType.BOOL, writer.call.context.tiles[tile.tile].extents)
    writer.compute("isnan", (ir.TileOperand(tile.tile, span=tile.span),), found)
    return ir.TileOperand(found.tile, layout=tile.layout, span=tile.span)

"""How the threads of a block share a matrix product: the shape of its blocks, and the shared memory
that operands pass through."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.walk import references
from sketchc.lowering.cuda_c.vectors import most_lanes
from sketchc.lowering.loops import nodes
from sketchc.lowering.plan import LINE_BYTES, Plan
from sketchc.lowering.precisions import SPLIT, multiplied_in

#: Warps of a block, and those of one that has a product of so many elements.
WARPS, _MORE_WARPS, _MANY = 4, 8, 128 * 256
#: Types that matrix units multiply, with sums in f32.
MATRIX = (DType.F16, DType.BF16)
#: Precisions in which they multiply f32, by three products of tf32: one alone would be a wrong
#: result to `verify`, which compares with f32.
_PARTS = ("tf32", "tf32x3", SPLIT)
#: Rows and columns of a block that are tried, the largest first, and those for extents that only
#: the launch tells.
_SIDES, _UNKNOWN = (256, 128, 64, 32), 64
#: See `by_warps` in `library/product.hpp`: elements of a part, depth of a step; and `staged`: bytes
#: of a line in shared memory at least, whose number is a power of two.
_PART, _DEPTHS, _LEAST_LINE = 16, (64, 32), 64
#: Stages of operands on their way that are tried, for the longest step.
_STAGES = (3, 2)
#: Sums that a thread has in registers at most, and beside floats that are split there.
_SUMS, _SUMS_OF_SPLIT = 128, 64
#: See `by_threads`.
_THREADS_DOWN, _ELEMENT_DEPTH = 16, 8
#: See `by_groups` in `library/groups.hpp`: warps and rows of a group, columns of its instructions,
#: bytes of a line of operands, the border on which they begin; elements of such a line.
_GROUP, _GROUP_ROWS, _GROUP_COLUMNS, _GROUP_LINE, _GROUP_BYTES = 4, 64, (64, 128, 256), 128, 1024
PANEL = 64
#: See `mapped_operands` in `library/maps.hpp`: bytes of the barriers of a stage.
_BARRIER_BYTES = 16
#: The chip that has such instructions.
_GROUP_CHIP = "sm_90"


@attrs.frozen
class Shape:
    """The type of the library by which a product is shared, its template arguments before those of
    operands, the rows and columns of a block, the depth of a step, the bytes that operands take in
    shared memory, and the type that says what matrix units do, where that is not the usual one."""

    how: str
    arguments: tuple[int, ...]
    rows: int
    columns: int
    depth: int
    bytes: int
    units: str = ""

    @property
    def on_units(self) -> bool:
        """Whether matrix units multiply, so that each thread has pairs of neighbouring sums."""
        return self.how != "by_threads"


@attrs.frozen
class Products:
    """How the products of a program are shared, by the `id` of their calls: their shapes, and where
    operands pass through the memory of the destination, whose elements are in registers meanwhile,
    its name. `sizes` are the bytes of storages in shared memory with what they need for that,
    `beside` those for all other operands, `border` those on whose multiples all of them begin."""

    warps: int
    border: int
    shapes: Mapping[int, Shape]
    places: Mapping[int, str]
    sizes: Mapping[str, int]
    beside: int


def products_of(
    program: nodes.Program,
    plan: Plan,
    constants: Mapping[str, ir.Expr],
    near: Mapping[str, int],
    left: int,
) -> Products:
    """How the products of a program are shared; `near` has the bytes of storages in shared memory,
    beside which there are at most `left`."""
    calls = [
        each
        for each in nodes.walk(program.body)
        if isinstance(each, nodes.Call) and each.name == "multiply"
    ]
    warps = _warps(calls, constants)
    if in_groups(plan):
        # Each place of operands may begin up to so much later.
        borders = _GROUP_BYTES * (len(calls) + 1)
        try:
            return _shared_out(calls, _Shapes(plan, warps, True, constants), near, left - borders)
        except _TooLargeError:
            pass  # other instructions need less
    return _shared_out(calls, _Shapes(plan, warps, False, constants), near, left)


def _shared_out(
    calls: list[nodes.Call], maker: _Shapes, near: Mapping[str, int], left: int
) -> Products:
    """See `products_of`. Raises `_TooLargeError` where operands have no room."""
    shapes = {id(call): maker.shape(call, left) for call in calls}
    own = {id(call): near.get(call.views[2].buffer, 0) for call in calls}
    fits = [
        c for c in calls if maker.covers(c, shapes[id(c)]) and own[id(c)] >= shapes[id(c)].bytes
    ]
    beside = max((shapes[id(c)].bytes for c in calls if c not in fits), default=0)
    # Operands in the place of sums that take less.
    grown = {id(call): maker.shape(call, left + own[id(call)]) for call in calls if own[id(call)]}
    sizes = dict(near)
    for call in calls:
        to, wanted = call.views[2].buffer, grown.get(id(call))
        sizes[to] = max(sizes.get(to, 0), wanted.bytes if wanted else 0)
    more = sum(sizes.values()) - sum(near.values())
    one = len({call.views[2].buffer for call in calls}) == 1
    all_covered = all(id(c) in grown and maker.covers(c, grown[id(c)]) for c in calls)
    if all_covered and more <= left and (one or more <= beside):
        shapes, fits, beside = grown, calls, 0
    else:
        sizes = dict(near)
    border = _GROUP_BYTES if any(s.how == "by_groups" for s in shapes.values()) else LINE_BYTES
    places = {id(call): call.views[2].buffer for call in fits}
    return Products(maker.warps, border, shapes, places, sizes, beside)


class _TooLargeError(Exception):
    """The smallest block needs more shared memory than there is."""


@attrs.frozen
class _Shapes:
    """Finds shapes for blocks of so many warps, with products of groups of warps or without."""

    plan: Plan
    warps: int
    groups: bool
    constants: Mapping[str, ir.Expr]

    def shape(self, call: nodes.Call, most_bytes: int) -> Shape:
        """How a product is shared, in at most so many bytes of shared memory; raises
        `_TooLargeError` where that is not enough."""
        known = [most_lanes(extent, self.constants) for extent in call.extents]
        sides = [known[0] or _UNKNOWN, known[1] or _UNKNOWN]
        for limit in _SIDES:
            rows, columns = (min(side, limit) for side in sides)
            sums = _SUMS_OF_SPLIT if self._split(call) else _SUMS
            if rows * columns > sums * 32 * self.warps:
                continue
            found = self._shape(call, rows, columns, known[2], most_bytes)
            if found.bytes <= most_bytes:
                return found
        raise _TooLargeError

    def covers(self, call: nodes.Call, shape: Shape) -> bool:
        """Whether one block is the whole product, all whose sums are in registers then."""
        sides = [most_lanes(extent, self.constants) for extent in call.extents[:2]]
        one = sides[0] is not None and sides[0] <= shape.rows
        return one and sides[1] is not None and sides[1] <= shape.columns

    def _shape(
        self, call: nodes.Call, rows: int, columns: int, depth: int | None, most_bytes: int
    ) -> Shape:
        split = self._split(call)
        if not split and not _on_matrix_units(call):
            return self._of_threads(call, rows, columns)
        few = rows < _GROUP_ROWS or columns < _GROUP_COLUMNS[0]
        if self.groups and not split and not few and (depth is None or depth > _PART):
            return self._of_groups(rows, columns)
        return self._of_warps(call, rows, columns, depth, most_bytes)

    def _split(self, call: nodes.Call) -> str:
        """What matrix units do with the f32 of a product; nothing where they do not multiply it."""
        dtypes = {view.dtype for view in call.views}
        return "in_tf32" if is_split(self.plan, dtypes, call.precision) else ""

    def _of_threads(self, call: nodes.Call, rows: int, columns: int) -> Shape:
        to, across = call.views[2].dtype, 2 * self.warps
        most = 64 if to.bytes > 4 else 128
        tall = -(-min(rows, most) // _THREADS_DOWN)
        wide = -(-min(columns, most) // across)
        rows, columns = tall * _THREADS_DOWN, wide * across
        size = 2 * _ELEMENT_DEPTH * (rows + columns) * to.bytes
        return Shape("by_threads", (self.warps, tall, wide), rows, columns, _ELEMENT_DEPTH, size)

    def _of_groups(self, rows: int, columns: int) -> Shape:
        groups = self.warps // _GROUP
        columns = min(each for each in _GROUP_COLUMNS if each >= columns)
        tall = -(-rows // (_GROUP_ROWS * groups))
        tall = min(tall, 2 * _SUMS // columns)
        rows = _GROUP_ROWS * groups * tall
        stages = 4 if self.warps > WARPS else 3
        size = stages * ((rows + columns) * _GROUP_LINE + _BARRIER_BYTES)
        return Shape("by_groups", (groups, tall, columns, stages), rows, columns, _DEPTHS[0], size)

    def _of_warps(
        self, call: nodes.Call, rows: int, columns: int, most: int | None, most_bytes: int
    ) -> Shape:
        """The shape with the fewest parts for each warp. A step's line of operands has the same
        bytes for all types."""
        warps, size = self.warps, call.views[0].dtype.bytes
        down, across = -(-rows // _PART), -(-columns // _PART)
        depths = [2 * each // size for each in _DEPTHS]
        depth = depths[0] if most is None or most > depths[1] else depths[1]

        def parts(above: int) -> tuple[int, int]:
            return -(-down // above), -(-across // (warps // above))

        among = [1 << power for power in range(warps.bit_length())]
        above = min(among, key=lambda each: (parts(each)[0] * parts(each)[1], sum(parts(each))))
        tall, wide = parts(above)
        rows, columns = above * tall * _PART, warps // above * wide * _PART
        lines = (max(side, _LEAST_LINE // size) for side in (rows, columns))
        padded = sum(1 << (line - 1).bit_length() for line in lines)
        step = depth * padded * size
        # As many as leave room for the blocks whose registers have room beside each other.
        blocks = _MORE_WARPS // warps
        stages = next((s for s in _STAGES if blocks * s * step <= most_bytes), _STAGES[-1])
        stages *= depths[0] // depth
        arguments = (warps, above, tall, wide, depth, stages)
        used = stages * step
        return Shape("by_warps", arguments, rows, columns, depth, used, self._split(call))


def _warps(calls: Iterable[nodes.Call], constants: Mapping[str, ir.Expr]) -> int:
    """The warps of a block that runs these products."""
    for call in calls:
        rows, columns = (most_lanes(extent, constants) or 0 for extent in call.extents[:2])
        if min(rows, columns) >= _GROUP_ROWS and rows * columns >= _MANY:
            return _MORE_WARPS
    return WARPS


def in_groups(plan: Plan) -> bool:
    """Whether the chip has instructions by which groups of warps multiply together."""
    return bool(plan.hardware.facts["chip"] == _GROUP_CHIP)


def along(loop: nodes.SerialLoop) -> nodes.Call | None:
    """The product to which each turn of a loop adds, if there is nothing else in the loop."""
    body = [each for each in loop.body if not isinstance(each, nodes.Note)]
    call = body[0] if len(body) == 1 else None
    if not isinstance(call, nodes.Call) or call.name != "multiply":
        return None
    views = [view for view in call.views if isinstance(view, nodes.MatrixView)]
    steps = (step for view in views for step in (view.row, view.column))
    fixed = (*call.extents[:2], views[2].origin, *steps)
    moves = any(name.name == loop.variable for each in fixed for name in references(each))
    return None if moves or loop.direction != 1 else call


def product_in(statement: nodes.Statement | None) -> nodes.Call | None:
    """The product that is all of a statement, or of each turn of it."""
    if isinstance(statement, nodes.SerialLoop):
        return along(statement)
    if isinstance(statement, nodes.Call) and statement.name == "multiply":
        return statement
    return None


def lies_along(step: ir.Expr) -> bool:
    """Whether neighbours in memory are neighbours along an axis with this step."""
    return step == ir.Literal(1)


def is_split(plan: Plan, dtypes: set[DType], precision: object) -> bool:
    """Whether matrix units multiply operands of these types in parts, where a sketch asks for no
    more than this precision."""
    return dtypes == {DType.F32} and multiplied_in(plan, precision) in _PARTS


def _on_matrix_units(call: nodes.Call) -> bool:
    left, right, to = (view.dtype for view in call.views)
    return left is right and left in MATRIX and to is DType.F32

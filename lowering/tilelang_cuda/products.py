"""Which matrix products of a program multiply tiles in shared memory into a fragment, and which
tiles.

`T.gemm` does so on matrix units, for f16 and bf16 that are summed in f32; for other types each
thread multiplies and adds a block of the fragment, which it has in registers. Tiles have
compile-time extents, padded to those that TileLang has layouts for; elements beyond the valid ones
are zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import simplify
from sketchc.lowering.loops import nodes
from sketchc.lowering.plan import Storage

#: Operands of such types are multiplied on matrix units.
OPERANDS = frozenset({DType.F16, DType.BF16})
#: Rows, columns and depth of a tile are multiples of these.
_ROWS, _COLUMNS, _DEPTH = 16, 32, 16
#: The largest fragment, in elements: on matrix units 256 threads have 128 of them each, else 256
#: bytes.
_LARGEST, _LARGEST_BYTES = 128 * 256, 256 * 256
#: Elements of a fragment from which on 256 threads share it, on matrix units and else.
_WIDE, _WIDE_OF_THREADS = 128 * 128, 96 * 128
#: How many times the valid elements of a result its tile may have.
_PADDED = 4

Bound = Callable[[ir.Expr], "int | None"]


@attrs.frozen
class Operand:
    """A tile in shared memory for one operand: its name, its extents as it is stored, and whether
    that is the transposed operand. `inside`: all elements of the tile, valid or not, have a place
    in the operand's memory."""

    name: str
    dtype: DType
    extents: tuple[int, int]
    transposed: bool
    inside: bool


@attrs.frozen
class MatrixProduct:
    """One product of tiles, on matrix units where `on_units`. The fragment `result` has these
    `extents`; `kept`: it is the accumulator itself. `streamed`: `T.copy` may fetch the operands,
    for all that it fetches beyond the valid depth is zero."""

    call: nodes.Call
    left: Operand
    right: Operand
    result: str
    extents: tuple[int, int]
    kept: bool
    streamed: bool
    on_units: bool

    @property
    def dtype(self) -> DType:
        """The type in which it is summed."""
        return self.call.views[-1].dtype


def products(
    body: tuple[nodes.Statement, ...],
    storages: Mapping[str, Storage],
    bound: Bound,
    fresh: Callable[[str], str],
    most_bytes: int,
) -> dict[int, MatrixProduct]:
    """The products of tiles in a program, by the `id` of their calls; the tiles of each take at
    most so many bytes of shared memory."""
    calls = [
        each
        for each in nodes.walk(body)
        if isinstance(each, nodes.Call) and each.name == "multiply"
    ]
    fits = {id(call): tiles for call in calls if (tiles := _tiles(call, bound, most_bytes))}
    kept = {
        storage
        for storage in {call.views[-1].buffer for call in calls}
        if storage in storages
        and _is_kept(
            body,
            storages[storage],
            [c for c in calls if c.views[-1].buffer == storage],
            fits,
            bound,
        )
    }
    found: dict[int, MatrixProduct] = {}
    for call in calls:
        if id(call) in fits:
            found[id(call)] = _planned(call, fits[id(call)], kept, storages, fresh, bound)
    return found


def on_units(call: nodes.Call) -> bool:
    """Whether a product has the types of matrix units."""
    left, right, result = (view.dtype for view in call.views)
    return left is right and left in OPERANDS and result is DType.F32


def _tiles(call: nodes.Call, bound: Bound, most_bytes: int) -> tuple[int, int, int] | None:
    """Rows, columns and depth of the tiles of a product; None where it is none of tiles."""
    left, right, result = call.views
    extents = [bound(extent) for extent in call.extents]
    if None in extents or is_thin(call, bound):
        return None
    rows, columns, depth = (
        -(-max(each or 1, 1) // unit) * unit
        for each, unit in zip(extents, (_ROWS, _COLUMNS, _DEPTH), strict=True)
    )
    size = depth * (rows * left.dtype.bytes + columns * right.dtype.bytes)
    largest = _LARGEST if on_units(call) else _LARGEST_BYTES // max(result.dtype.bytes, 4)
    return None if rows * columns > largest or size > most_bytes else (rows, columns, depth)


def is_thin(call: nodes.Call, bound: Bound) -> bool:
    """Whether a product has so few rows or columns that most of its tile would be padding, and
    threads multiply and add on their own."""
    if on_units(call):
        return False
    rows, columns = (bound(extent) for extent in call.extents[:2])
    padded = 1.0
    for each, unit in ((rows, _ROWS), (columns, _COLUMNS)):
        padded *= 1 if each is None else -(-max(each, 1) // unit) * unit / max(each, 1)
    return padded > _PADDED


def _planned(
    call: nodes.Call,
    tiles: tuple[int, int, int],
    kept: set[str],
    storages: Mapping[str, Storage],
    fresh: Callable[[str], str],
    bound: Bound,
) -> MatrixProduct:
    rows, columns, depth = tiles
    left, right, result = call.views
    assert isinstance(left, nodes.MatrixView)
    assert isinstance(right, nodes.MatrixView)
    own = result.buffer in kept
    made = (
        _operand(fresh(f"{left.buffer}_tile"), left, (rows, depth), storages, bound),
        _operand(fresh(f"{right.buffer}_tile"), right, (depth, columns), storages, bound),
    )
    streamed = _ends_there(left, left.axes[1:], call.extents[2], depth, bound)
    streamed = streamed and _ends_there(right, right.axes[:1], call.extents[2], depth, bound)
    name = result.buffer if own else fresh(f"{result.buffer}_part")
    return MatrixProduct(call, *made, name, (rows, columns), own, streamed, on_units(call))


def _operand(
    name: str,
    view: nodes.MatrixView,
    extents: tuple[int, int],
    storages: Mapping[str, Storage],
    bound: Bound,
) -> Operand:
    turned = view.row == ir.Literal(1) and view.column != ir.Literal(1)
    stored = extents[::-1] if turned else extents
    inside = False
    if view.buffer in storages and view.origin == ir.Literal(0):
        steps = [bound(step) for step in (view.row, view.column)]
        sizes = [bound(extent) for extent in storages[view.buffer].extents]
        last = sum((extent - 1) * (step or 0) for extent, step in zip(extents, steps, strict=True))
        inside = None not in (*steps, *sizes) and last < math.prod(size or 0 for size in sizes)
    return Operand(name, view.dtype, stored, turned, inside)


def _ends_there(
    view: nodes.MatrixView, axes: tuple[int, ...], depth: ir.Expr, extent: int, bound: Bound
) -> bool:
    """Whether a tile of a tensor that ends where the tensor does has no valid element beyond the
    depth of the product: the depth is the whole tile, or what the tensor has left."""
    if (
        not view.window
        or not axes
        or sorted(view.axes) != list(range(len(view.shape) - 2, len(view.shape)))
    ):
        return False
    (axis,) = axes
    return ends_there(depth, view.window[axis], view.shape[axis], extent, bound, known=False)


def ends_there(
    valid: ir.Expr,
    start: ir.Expr,
    size: ir.Expr,
    extent: int,
    bound: Bound,
    known: bool = True,
) -> bool:
    """Whether the valid lanes of a tile along an axis, from `start` on, end where the tile or the
    axis of this size does. Where their number is `known` when the kernel is compiled, all of them
    are elements of the tensor."""
    match valid:
        case ir.Binary("min", tile, rest):
            left = simplify(ir.Binary("-", ir.Binary("-", size, start), rest))
            return left == ir.Literal(0) and bound(tile) == extent
        case _:
            return known and isinstance(valid, ir.Literal | ir.Ref) and bound(valid) == extent


def _is_kept(
    body: tuple[nodes.Statement, ...],
    storage: Storage,
    calls: list[nodes.Call],
    fits: Mapping[int, tuple[int, int, int]],
    bound: Bound,
) -> bool:
    """Whether an accumulator stays in a fragment: all else that touches it are rectangles of lanes,
    at the lane's own place, without branches that other statements stand beside (see
    `kernel.KernelPrinter`)."""
    if len(storage.extents) != 2 or not all(id(call) in fits for call in calls):
        return False
    rows, columns = (bound(extent) for extent in storage.extents)
    for call in calls:
        view = call.views[-1]
        assert isinstance(view, nodes.MatrixView)
        whole = view.origin == ir.Literal(0) and (rows, columns) == fits[id(call)][:2]
        if not whole or any(v.buffer == storage.name for v in call.views[:-1]):
            return False
    touching = sum(touches(each, storage.name) for each in nodes.walk(body))
    inside = sum(
        touches(each, storage.name)
        for loop, lanes in rectangles(body)
        for each in (lanes, *nodes.walk(lanes.body))
        if placed(loop, lanes, storage.name, columns or 0, bound)
        and not any(isinstance(each, nodes.Branch) for each in nodes.walk(alone(lanes.body)[0]))
    )
    return touching == inside + len(calls)


def rectangles(
    body: tuple[nodes.Statement, ...],
) -> Iterator[tuple[nodes.Loop, nodes.LaneLoop]]:
    """The independent nests of two loops over lanes from 0 on."""
    for statement in nodes.walk(body):
        if isinstance(statement, nodes.Loop) and statement.independent and statement.step == 1:
            inner = [s for s in statement.body if not isinstance(s, nodes.Note)]
            if len(inner) == 1 and isinstance(inner[0], nodes.LaneLoop):
                lanes = inner[0]
                starts = (statement.lower, lanes.lower)
                if starts == (ir.Literal(0), ir.Literal(0)) and not lanes.reductions:
                    yield statement, lanes


def alone(
    body: tuple[nodes.Statement, ...],
) -> tuple[tuple[nodes.Statement, ...], tuple[ir.Expr, ...]]:
    """A body without the branches that all of it is in, and their conditions."""
    asked: list[ir.Expr] = []
    while True:
        inside = [each for each in body if not isinstance(each, nodes.Note)]
        match inside:
            case [nodes.Branch(condition, own, ())]:
                asked.append(condition)
                body = own
            case _:
                return body, tuple(asked)


def placed(
    loop: nodes.Loop, lanes: nodes.LaneLoop, storage: str, columns: int, bound: Bound
) -> bool:
    """Whether a rectangle touches a storage at its own row and lane alone."""
    row, lane = (ir.Ref(each.variable, ir.NameKind.LOOP) for each in (loop, lanes))
    own = {r.name for r in lanes.rows if r.buffer == storage}
    for each in lanes.rows:
        if each.buffer == storage:
            match each.base:
                case ir.Binary("*", start, width) if start == row and bound(width) == columns:
                    pass
                case _:
                    return False
    for statement in (lanes, *nodes.walk(lanes.body)):
        for part in nodes.parts(statement):
            if isinstance(part, nodes.Element) and part.buffer in own and part.index != lane:
                return False
            if isinstance(part, nodes.Element) and part.buffer == storage:
                return False
        match statement:
            case nodes.Write(buffer, index) if buffer == storage or (
                buffer in own and index != lane
            ):
                return False
    return True


def touches(statement: nodes.Statement, storage: str) -> int:
    """How often a statement names a storage, those inside not counted."""
    match statement:
        case nodes.LaneLoop(rows=rows):
            return sum(row.buffer == storage for row in rows)
        case nodes.Write(buffer) | nodes.AtomicUpdate(_, buffer) if buffer == storage:
            return 1
        case nodes.Call(views=views) if any(view.buffer == storage for view in views):
            return 1
    return sum(isinstance(p, nodes.Element) and p.buffer == storage for p in nodes.parts(statement))


def threads_for(made: Mapping[int, MatrixProduct]) -> int:
    """The threads of a block that runs these products."""
    wide = any(
        math.prod(each.extents) >= (_WIDE if each.on_units else _WIDE_OF_THREADS)
        for each in made.values()
    )
    return 256 if wide else 128

"""Which operands of products the copy engine brings (TMA): tiles of a tensor that the launch does
not write, whose valid elements end along the depth where a step or the tensor does.

The engine knows a tensor by a map, which the host makes at the launch: the tensor's extents, and
the box that is copied at a time. Elements beyond the tensor are zero, those inside are copied also
where the tile is clipped: harmless in rows and columns, whose sums nobody takes, but not along the
depth. Where the tensors of a launch have no maps (see `library/host.hpp`), threads copy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import constant_value, equal, product, simplify
from sketchc.ir.walk import substitute
from sketchc.lowering.cuda_c.products import PANEL, Products, lies_along
from sketchc.lowering.loops import nodes

#: What the driver calls element types (`CUtensorMapDataType`).
ELEMENTS = {DType.F16: 6, DType.BF16: 9}


@attrs.frozen
class Map:
    """A tensor as the copy engine sees it: its buffer, the extents along a line, between, of lines
    and before, the axes of a kind taken for one, and the lines of a box."""

    buffer: str
    dtype: DType
    extents: tuple[ir.Expr, ...]
    lines: int


@attrs.frozen
class Operand:
    """A matrix that the copy engine brings: its map, and where its first element lies, see `window`
    in `library/sums.hpp`."""

    map: Map
    window: tuple[ir.Expr, ...]


@attrs.frozen
class Maps:
    """The maps that a kernel takes, with their names, and the name of the flag that says whether
    the launch has them."""

    names: Mapping[Map, str] = attrs.field(factory=dict)
    flag: str = ""


def mapped(
    program: nodes.Program,
    products: Products,
    constants: Mapping[str, ir.Expr],
    written: Collection[str],
) -> dict[int, tuple[Operand, Operand]]:
    """The operands of products that the copy engine brings, by the `id` of their calls; `written`
    are the buffers that the launch writes."""
    found = {}
    for call in nodes.walk(program.body):
        if not isinstance(call, nodes.Call) or call.name != "multiply":
            continue
        shape = products.shapes[id(call)]
        left, right = call.views[:2]
        if shape.how != "by_groups" or {left.buffer, right.buffer} & set(written):
            continue
        assert isinstance(left, nodes.MatrixView)
        assert isinstance(right, nodes.MatrixView)
        operands = (
            _operand(left, 1, lies_along(left.column), shape.rows, call.extents[2], constants),
            _operand(right, 0, lies_along(right.row), shape.columns, call.extents[2], constants),
        )
        if operands[0] is not None and operands[1] is not None:
            found[id(call)] = (operands[0], operands[1])
    return found


def written_by(program: nodes.Program, owners: Mapping[str, str]) -> set[str]:
    """The buffers that a program writes; `owners` gives for one in the memory of another that one's
    name, and the names of all in memory that is written are among them."""
    found = set()
    for statement in nodes.walk(program.body):
        views = (nodes.MatrixView, nodes.TileView, nodes.Row)
        parts = (each for each in nodes.parts(statement) if isinstance(each, views))
        rows = statement.rows if isinstance(statement, nodes.LaneLoop) else ()
        found |= {each.buffer for each in (*parts, *rows) if each.writable}
        match statement:
            case nodes.Write(buffer) | nodes.AtomicUpdate(buffer=buffer):
                found.add(buffer)
            case nodes.Accumulate(target=nodes.Element(buffer)):
                found.add(buffer)
    memories = {owners.get(name, name) for name in found}
    return found | memories | {name for name, owner in owners.items() if owner in memories}


def _operand(
    view: nodes.MatrixView,
    deep: int,
    along_depth: bool,
    lines: int,
    depth: ir.Expr,
    constants: Mapping[str, ir.Expr],
) -> Operand | None:
    """The operand of a view whose axis number `deep` is the depth, and lies along lines where it is
    `along_depth`; None where the engine cannot bring it."""
    if not view.window:
        return None
    inner = view.axes[deep if along_depth else 1 - deep]
    line = view.axes[1 - deep if along_depth else deep]
    axis = view.axes[deep]
    if inner != len(view.shape) - 1:
        return None
    if not _ends_there(depth, view.window[axis], view.shape[axis], constants):
        return None
    between, before = range(line + 1, inner), range(line)
    extents = (
        view.shape[inner],
        product([view.shape[each] for each in between]),
        view.shape[line],
        product([view.shape[each] for each in before]),
    )
    window = (
        *(view.window[each] for each in view.axes),
        _place(view, between),
        _place(view, before),
    )
    return Operand(Map(view.buffer, view.dtype, extents, lines if along_depth else PANEL), window)


def _place(view: nodes.MatrixView, axes: Sequence[int]) -> ir.Expr:
    """Where a view lies along neighbouring axes that are taken for one."""
    place: ir.Expr = ir.Literal(0)
    for axis in axes:
        place = ir.Binary("+", ir.Binary("*", place, view.shape[axis]), view.window[axis])
    return simplify(place)


def _ends_there(
    valid: ir.Expr, start: ir.Expr, size: ir.Expr, constants: Mapping[str, ir.Expr]
) -> bool:
    """Whether so many elements from `start` on are whole steps, or end where the axis does."""
    number = constant_value(simplify(substitute(valid, constants)))
    if number is not None and number % PANEL == 0:
        return True
    if equal(ir.Binary("+", start, valid), size):
        return True
    match valid:
        case ir.Binary("min", left, right):
            choices = [left, right]
        case ir.Binary("+" | "-" as operator, ir.Binary("min", left, right), rest):
            choices = [ir.Binary(operator, each, rest) for each in (left, right)]
        case _:
            return False
    return all(_ends_there(each, start, size, constants) for each in choices)

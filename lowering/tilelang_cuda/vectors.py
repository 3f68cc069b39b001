"""Which loops over lanes move several lanes at once: 16 bytes of a tensor with each access.

That takes addresses at multiples of 16 bytes. They are where the tensors begin there and the sizes
that places are computed from are multiples of the lanes, which the host tests at each launch: a
kernel has a form for that, and one that moves single lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.lowering.loops import nodes

#: Bytes that a thread moves with one access, and the most lanes in them.
_BYTES, _MOST = 16, 8
#: Sizes of which the host can tell whether they are multiples.
_SIZES = frozenset({ir.NameKind.SYMBOL, ir.NameKind.LET})

Constant = Callable[[ir.Expr], "int | float | bool | None"]


@attrs.frozen
class Moved:
    """The rows of a loop that it moves several lanes of at once: those it reads, those it writes,
    and the sizes that must be multiples of the lanes."""

    read: tuple[nodes.Row, ...]
    written: tuple[nodes.Row, ...]
    sizes: frozenset[str]


def lanes_at_once(
    body: tuple[nodes.Statement, ...], memories: Mapping[str, ir.Expr], constant: Constant
) -> int:
    """How many lanes the loops of a program move at once; 1 where none moves several."""
    widths = [
        row.dtype.bytes
        for loop in nodes.walk(body)
        if isinstance(loop, nodes.LaneLoop) and moved(loop, memories, _MOST, constant) is not None
        for row in loop.rows
        if row.buffer in memories
    ]
    return min(_BYTES // min(widths), _MOST) if widths else 1


def moved(
    loop: nodes.LaneLoop, memories: Mapping[str, ir.Expr], lanes: int, constant: Constant
) -> Moved | None:
    """What a loop moves several lanes of at once; None for nothing. `memories` are the buffers in
    global memory, each with the number of elements after which it begins anew for a block, 0 for
    a tensor."""
    inside = nodes.walk(loop.body)
    nested = nodes.Loop | nodes.LaneLoop | nodes.SerialLoop | nodes.Call | nodes.AtomicUpdate
    first = constant(loop.lower)
    if any(isinstance(each, nested) for each in inside) or first is None or first % lanes:
        return None
    sizes = divisible(loop.upper, lanes, constant)
    if sizes is None:
        return None
    read: list[nodes.Row] = []
    written: list[nodes.Row] = []
    rows = (*loop.rows, *_plain(loop, memories))
    for row in rows:
        if row.buffer not in memories or row.dtype is DType.BOOL:
            continue
        of_base = divisible(row.base, lanes, constant)
        of_block = divisible(memories[row.buffer], lanes, constant)
        if of_base is None or of_block is None:
            continue
        reads, writes = _accesses(loop, row.name)
        if reads is None or writes is None:
            continue
        if reads and writes and sum(other.buffer == row.buffer for other in rows) > 1:
            continue
        sizes |= of_base | of_block
        read += [row] if reads else []
        written += [row] if writes else []
    return Moved(tuple(read), tuple(written), sizes) if read or written else None


def _plain(loop: nodes.LaneLoop, memories: Mapping[str, ir.Expr]) -> Iterator[nodes.Row]:
    """The buffers that a loop touches from their first element on, as rows."""
    seen: set[str] = set()
    for statement in nodes.walk(loop.body):
        touched = {
            p.buffer: p.dtype for p in nodes.parts(statement) if isinstance(p, nodes.Element)
        }
        if isinstance(statement, nodes.Write):
            touched[statement.buffer] = statement.value.dtype
        for buffer, dtype in touched.items():
            if buffer in memories and buffer not in seen:
                seen.add(buffer)
                yield nodes.Row(buffer, buffer, ir.Literal(0), dtype)


def divisible(expression: ir.Expr, lanes: int, constant: Constant) -> frozenset[str] | None:
    """The sizes that must be multiples of `lanes` for an expression to be one; None where that is
    not known."""
    value = constant(expression)
    if value is not None:
        return frozenset() if value % lanes == 0 else None
    match expression:
        case ir.Ref(name, kind) if kind in _SIZES:
            return frozenset({name})
        case ir.Binary("+" | "-" | "min" | "max", left, right):
            one, other = (divisible(part, lanes, constant) for part in (left, right))
            return None if one is None or other is None else one | other
        case ir.Binary("*", left, right):
            found = [divisible(part, lanes, constant) for part in (right, left)]
            return min((each for each in found if each is not None), key=len, default=None)
        case _:
            return None


def _accesses(loop: nodes.LaneLoop, row: str) -> tuple[int | None, int | None]:
    """How often a loop reads and writes a row at its lane; None for other places, and for writes
    that not every lane makes."""
    lane = ir.Ref(loop.variable, ir.NameKind.LOOP)
    reads, writes = 0, 0
    for statement in nodes.walk(loop.body):
        for part in nodes.parts(statement):
            if isinstance(part, nodes.Element) and part.buffer == row:
                if part.index != lane:
                    return None, None
                reads += 1
        match statement:
            case nodes.Write(buffer, index) if buffer == row:
                if index != lane or statement not in loop.body:
                    return None, None
                writes += 1
            case nodes.Accumulate(_, nodes.Element(buffer)) if buffer == row:
                return None, None
    # A write that another one follows, and a read that is perhaps not made, take their turns.
    return (reads, writes) if writes <= 1 and not _perhaps(loop, row) else (None, None)


def _perhaps(loop: nodes.LaneLoop, row: str) -> bool:
    """Whether some read of a row may be of an element that is not there."""
    for statement in nodes.walk(loop.body):
        for part in nodes.parts(statement):
            if isinstance(part, nodes.Select) and any(
                isinstance(p, nodes.Element) and p.buffer == row for p in nodes.parts(part)
            ):
                return True
        if isinstance(statement, nodes.Branch) and any(
            isinstance(p, nodes.Element) and p.buffer == row
            for inner in nodes.walk((*statement.body, *statement.orelse))
            for p in nodes.parts(inner)
        ):
            return True
    return False

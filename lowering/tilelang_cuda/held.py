"""Which rows threads hold between the loops over their lanes.

Loops over the same lanes deal these out alike: a thread meets its own lanes again. What one loop
reads of a tensor or writes to scratch memory, and others read, it then keeps in registers, where
the row is short enough for that. The host counts the turns at each launch; a kernel has a form for
each number of them, and one that holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs

from sketchc.ir import nodes as ir
from sketchc.lowering.loops import nodes
from sketchc.lowering.tilelang_cuda.products import touches
from sketchc.lowering.tilelang_cuda.vectors import Moved

#: Threads of a block that holds rows: a row of 4,096 floats are 16 for each.
HOLDING = 256
#: Bytes of rows that a thread holds at most.
MOST_BYTES = 256

#: A row by its buffer and where it begins.
Key = tuple[str, ir.Expr]


@attrs.frozen
class Held:
    """Rows that threads hold: those of tensors, which are read once, and those of scratch storages,
    by what `key` gives, with the bytes of a lane in all of them; `upper` is the number of lanes,
    and `loops` are the `id` of the loops over them."""

    read: tuple[nodes.Row, ...]
    stored: tuple[nodes.Row, ...]
    upper: ir.Expr
    loops: frozenset[int]

    @property
    def lane_bytes(self) -> int:
        """The bytes of a lane in all rows together."""
        return sum(row.dtype.bytes for row in (*self.read, *self.stored))

    def keys(self) -> frozenset[Key]:
        """Of all rows."""
        return frozenset(key(row) for row in (*self.read, *self.stored))


def key(row: nodes.Row) -> Key:
    """What tells a row from others."""
    return row.buffer, row.base


def held(
    body: tuple[nodes.Statement, ...],
    scratch: Collection[str],
    inputs: Collection[str],
    moved: Callable[[nodes.LaneLoop], Moved | None],
) -> Held | None:
    """The rows that threads hold in a program; None for none. `scratch` are the storages in global
    memory, and `inputs` the tensors that nothing writes."""
    found = [
        (each, moving)
        for each in body
        if isinstance(each, nodes.LaneLoop) and each.lower == ir.Literal(0)
        if (moving := moved(each)) is not None
    ]
    for first, _ in found:
        group = [(loop, moving) for loop, moving in found if loop.upper == first.upper]
        rows = {key(r): r for _, moving in group for r in (*moving.read, *moving.written)}
        stored = [row for row in rows.values() if row.buffer in scratch and _own(body, group, row)]
        read = [
            row
            for row in rows.values()
            if row.buffer in inputs
            and sum(key(row) in map(key, moving.read) for _, moving in group) > 1
        ]
        if stored or read:
            loops = frozenset(id(loop) for loop, _ in group)
            return Held(tuple(read), tuple(stored), first.upper, loops)
    return None


def _own(
    body: tuple[nodes.Statement, ...], group: list[tuple[nodes.LaneLoop, Moved]], row: nodes.Row
) -> bool:
    """Whether nothing but loops of a group touches the buffer of a row, each at its own lane."""
    inside = 0
    for loop, moving in group:
        count = sum(touches(each, row.buffer) for each in (loop, *nodes.walk(loop.body)))
        moves = {key(r) for r in (*moving.read, *moving.written) if r.buffer == row.buffer}
        others = any(r.buffer == row.buffer and key(r) != key(row) for r in loop.rows)
        plain = any(touches(each, row.buffer) for each in nodes.walk(loop.body))
        plain = plain and all(r.name != row.buffer for r in (*moving.read, *moving.written))
        if count and (moves != {key(row)} or others or plain):
            return False
        inside += count
    return inside == sum(touches(each, row.buffer) for each in nodes.walk(body))

"""Rows of the device's memory that a block reads several times: from the first time on, a copy of
the lanes lies in the shared memory that a later loop puts its own results into.

    s += X[i];                  x = X[i]; s += x; y[i] = x;
    y[i] = f(X[i], s);          y[i] = f(y[i], s);
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.walk import names
from sketchc.lowering.loops import nodes


def with_copies(
    body: tuple[nodes.Statement, ...], near: Collection[str], constant: Collection[str]
) -> tuple[nodes.Statement, ...]:
    """The statements of a program with such copies. `near` are the storages in shared memory, and
    `constant` the buffers that the launch does not write."""
    everything = nodes.walk(body)
    changing = {each.name for each in everything if isinstance(each, nodes.Assign)}
    changing |= {each.name for each in everything if isinstance(each, nodes.Define)}
    made = list(body)
    for first, loop in enumerate(body):
        if not isinstance(loop, nodes.LaneLoop):
            continue
        for row in loop.rows:
            bounds = (loop.lower, loop.upper, row.base)
            if row.buffer in constant and not any(changing & names(each) for each in bounds):
                _copy(made, first, row, near)
    return tuple(made)


def _copy(made: list[nodes.Statement], first: int, row: nodes.Row, near: Collection[str]) -> None:
    """Let the loops behind number `first` that read its `row` read a copy, if one has room for it
    until it writes there itself."""
    loop = made[first]
    assert isinstance(loop, nodes.LaneLoop)
    read = _read(loop, row)
    for last in range(first + 1, len(made)):
        end = made[last]
        if read is None or not isinstance(end, nodes.LaneLoop) or not _reads(end, loop, row):
            continue
        for place in _results(end, row.dtype, near):
            if any(place in _touched(each) for each in made[first:last]):
                continue
            write = nodes.Write(
                place, ir.Ref(loop.variable, ir.NameKind.LOOP), nodes.Local(read.name, row.dtype)
            )
            made[first] = attrs.evolve(loop, body=(*loop.body, write))
            for number in range(first + 1, last + 1):
                each = made[number]
                if isinstance(each, nodes.LaneLoop):
                    made[number] = _reading(each, loop, row, place)
            return


def _same(loop: nodes.LaneLoop, other: nodes.LaneLoop, row: nodes.Row) -> nodes.Row | None:
    """The row of a loop over the same lanes that is `row` of the other one."""
    if (loop.lower, loop.upper) != (other.lower, other.upper):
        return None
    rows = (each for each in loop.rows if (each.buffer, each.base) == (row.buffer, row.base))
    return next(rows, None)


def _read(loop: nodes.LaneLoop, row: nodes.Row) -> nodes.Define | None:
    """The statement that reads the lanes of a row, if it is the only one."""
    uses = [each for each in loop.body if row.name in _touched(each)]
    match uses:
        case [nodes.Define(value=nodes.Element(index=ir.Ref(name))) as read]:
            return read if name == loop.variable and not read.mutable else None
    return None


def _reads(loop: nodes.LaneLoop, other: nodes.LaneLoop, row: nodes.Row) -> bool:
    own = _same(loop, other, row)
    return own is not None and _read(loop, own) is not None


def _results(loop: nodes.LaneLoop, dtype: object, near: Collection[str]) -> list[str]:
    """The storages in which a loop writes a value of this type at each lane, and touches nothing
    else."""
    found = []
    for statement in loop.body:
        match statement:
            case nodes.Write(buffer, ir.Ref(name), value) if buffer in near:
                uses = sum(buffer in _touched(each) for each in (*loop.body, *loop.rows))
                if name == loop.variable and value.dtype == dtype and uses == 1:
                    found.append(buffer)
    return found


def _reading(
    loop: nodes.LaneLoop, other: nodes.LaneLoop, row: nodes.Row, place: str
) -> nodes.LaneLoop:
    """The loop with the copy at `place` in the place of the row; its read comes first."""
    own = _same(loop, other, row)
    read = None if own is None else _read(loop, own)
    if own is None or read is None:
        return loop
    index = ir.Ref(loop.variable, ir.NameKind.LOOP)
    changed = attrs.evolve(read, value=nodes.Element(place, index, row.dtype))
    rest = tuple(each for each in loop.body if each is not read)
    rows = tuple(each for each in loop.rows if each is not own)
    return attrs.evolve(loop, body=(changed, *rest), rows=rows)


def _touched(node: nodes.Statement | nodes.Row) -> set[str]:
    """The buffers that a node, and what is inside of it, names."""
    if isinstance(node, nodes.Row):
        return {node.buffer}
    return {name for each in nodes.walk((node,)) for name in nodes.named_buffers(each)}

"""Outputs that go past the caches.

A store to a line that is in no cache first reads the line. Where a lane loop fills a row of an
output that nothing reads, and the output is larger than the caches, its lanes are made block by
block in a small buffer and written from there with stores that read nothing (a third of the traffic
of an element-wise operation). Whether an output is that large is known when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sketchc import ir
from sketchc.lowering import loops
from sketchc.lowering.cpp.clean import buffers_read

#: Elements of a block. Small enough for the first-level cache beside the inputs; measured on
#: Zen 4: 1024 beats 4096 by a third.
BLOCK = 1024

_Fresh = Callable[[str], str]


def unread_outputs(sketch: ir.Sketch, programs: list[loops.Program]) -> frozenset[str]:
    """The out tensors that are written element by element and read nowhere."""
    names = {tensor.name for tensor in sketch.tensors if tensor.role is ir.Role.OUT}
    for program in programs:
        rows = {s.name: s.buffer for s in loops.walk(program.body) if isinstance(s, loops.Row)}
        names -= {rows.get(name, name) for name in buffers_read(program.body)}
    return frozenset(names)


def add_streams(
    body: tuple[loops.Statement, ...], outputs: frozenset[str], fresh: _Fresh
) -> tuple[loops.Statement, ...]:
    """The statements with streamed lane loops where they fill rows of `outputs`; `fresh` makes
    unused names."""
    found: list[loops.Statement] = []
    for statement in body:
        match statement:
            case loops.LaneLoop():
                rows = _streamed(found, statement, outputs)
                if rows:
                    found = [other for other in found if other not in rows]
                    found.append(_blocked(statement, rows, fresh))
                else:
                    found.append(statement)
            case loops.Loop() | loops.SerialLoop():
                inner = add_streams(statement.body, outputs, fresh)
                found.append(attrs.evolve(statement, body=inner))
            case loops.Branch(body=then, orelse=orelse):
                arms = [add_streams(arm, outputs, fresh) for arm in (then, orelse)]
                found.append(attrs.evolve(statement, body=arms[0], orelse=arms[1]))
            case _:
                found.append(statement)
    return tuple(found)


def streamed_tensors(body: tuple[loops.Statement, ...]) -> list[str]:
    """The tensors that a program streams, in order of appearance."""
    names = [
        row.row.buffer
        for statement in loops.walk(body)
        if isinstance(statement, loops.StreamedLoop)
        for row in statement.rows
    ]
    return list(dict.fromkeys(names))


def _blocked(loop: loops.LaneLoop, rows: list[loops.Row], fresh: _Fresh) -> loops.StreamedLoop:
    """The loop in blocks: written rows count from the start of the block."""
    block = fresh("block")
    names = {row.name for row in rows}
    lane = ir.Ref(loop.variable, ir.NameKind.LOOP)
    index = ir.Binary("-", lane, ir.Ref(block, ir.NameKind.LOOP))
    body = tuple(
        attrs.evolve(s, index=index) if isinstance(s, loops.Write) and s.buffer in names else s
        for s in loop.body
    )
    streamed = tuple(loops.StreamedRow(row, fresh(f"{row.buffer}_block")) for row in rows)
    return loops.StreamedLoop(
        block,
        fresh(f"{block}_end"),
        BLOCK,
        streamed,
        attrs.evolve(loop, body=body),
        origins=loop.origins,
    )


def _streamed(
    before: list[loops.Statement], loop: loops.LaneLoop, outputs: frozenset[str]
) -> list[loops.Row]:
    """The rows, defined just before the loop, that it may stream."""
    if loop.reductions or _short(loop.upper):
        return []
    written = {s.buffer for s in loop.body if isinstance(s, loops.Write)}
    touched = {s.buffer for s in loops.walk(loop.body) if isinstance(s, loops.Write)}
    lane = ir.Ref(loop.variable, ir.NameKind.LOOP)
    rows = []
    for statement in reversed(before):
        if not isinstance(statement, loops.Row):
            break
        writes = [s for s in loop.body if isinstance(s, loops.Write) and s.buffer == statement.name]
        if statement.buffer in outputs and statement.name in written:
            # A second row of the tensor might hold the same elements.
            others = [s for s in before if isinstance(s, loops.Row) and s.name in touched]
            alone = sum(s.buffer == statement.buffer for s in others) == 1
            if alone and len(writes) == 1 and writes[0].index == lane:
                rows.append(statement)
    return rows[::-1]


def _short(upper: ir.Expr) -> bool:
    """Whether the lanes are known to fill no more than a few cache lines."""
    match upper:
        case ir.Literal(value):
            return value < BLOCK // 16
        case ir.Binary("min", left, right):
            return _short(left) or _short(right)
        case _:
            return False

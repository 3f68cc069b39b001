"""Outputs that go past the caches.

A store to a line that is in no cache first reads the line. Where a lane loop fills a row of an
output that nothing reads, and the output is larger than the caches, its lanes are made block by
block in a small buffer and written from there with stores that read nothing (a third of the traffic
of an element-wise operation). Whether an output is that large is known when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sketchc.ir import nodes as ir
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.dead_stores import buffers_read

#: Elements of a block. Small enough for the first-level cache beside the inputs; measured on
#: Zen 4: 1024 beats 4096 by a third.
BLOCK = 1024

_Fresh = Callable[[str], str]


def unread_outputs(sketch: ir.Sketch, programs: list[nodes.Program]) -> frozenset[str]:
    """The out tensors that are written element by element and read nowhere."""
    names = {tensor.name for tensor in sketch.tensors if tensor.role is ir.Role.OUT}
    for program in programs:
        rows = {s.name: s.buffer for s in nodes.walk(program.body) if isinstance(s, nodes.Row)}
        names -= {rows.get(name, name) for name in buffers_read(program.body)}
    return frozenset(names)


def add_streams(
    body: tuple[nodes.Statement, ...], outputs: frozenset[str], fresh: _Fresh
) -> tuple[nodes.Statement, ...]:
    """The statements with streamed lane loops where they fill rows of `outputs`; `fresh` makes
    unused names."""
    found: list[nodes.Statement] = []
    for statement in body:
        match statement:
            case nodes.LaneLoop():
                rows = _streamed(found, statement, outputs)
                if rows:
                    found = [other for other in found if other not in rows]
                    found.append(_blocked(statement, rows, fresh))
                else:
                    found.append(statement)
            case _:
                found.append(
                    nodes.with_bodies(statement, lambda inner: add_streams(inner, outputs, fresh))
                )
    return tuple(found)


def streamed_tensors(body: tuple[nodes.Statement, ...]) -> list[str]:
    """The tensors that a program streams, in order of appearance."""
    names = [
        row.row.buffer
        for statement in nodes.walk(body)
        if isinstance(statement, nodes.StreamedLoop)
        for row in statement.rows
    ]
    return list(dict.fromkeys(names))


def _blocked(loop: nodes.LaneLoop, rows: list[nodes.Row], fresh: _Fresh) -> nodes.StreamedLoop:
    """The loop in blocks: written rows count from the start of the block."""
    block = fresh("block")
    names = {row.name for row in rows}
    lane = ir.Ref(loop.variable, ir.NameKind.LOOP)
    index = ir.Binary("-", lane, ir.Ref(block, ir.NameKind.LOOP))
    body = tuple(
        attrs.evolve(s, index=index) if isinstance(s, nodes.Write) and s.buffer in names else s
        for s in loop.body
    )
    streamed = tuple(nodes.StreamedRow(row, fresh(f"{row.buffer}_block")) for row in rows)
    return nodes.StreamedLoop(
        block,
        fresh(f"{block}_end"),
        BLOCK,
        streamed,
        attrs.evolve(loop, body=body),
        origins=loop.origins,
    )


def _streamed(
    before: list[nodes.Statement], loop: nodes.LaneLoop, outputs: frozenset[str]
) -> list[nodes.Row]:
    """The rows, defined just before the loop, that it may stream."""
    if loop.reductions or _short(loop.upper):
        return []
    written = {s.buffer for s in loop.body if isinstance(s, nodes.Write)}
    touched = {s.buffer for s in nodes.walk(loop.body) if isinstance(s, nodes.Write)}
    lane = ir.Ref(loop.variable, ir.NameKind.LOOP)
    rows = []
    for statement in reversed(before):
        if not isinstance(statement, nodes.Row):
            break
        writes = [s for s in loop.body if isinstance(s, nodes.Write) and s.buffer == statement.name]
        if statement.buffer in outputs and statement.name in written:
            # A second row of the tensor might hold the same elements.
            others = [s for s in before if isinstance(s, nodes.Row) and s.name in touched]
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

"""Sums of matrix products that need no memory: they begin at zero in registers, and what is done
with each of them is done there.

A fill of the destination by zero right before a product goes. So does the destination itself where
only that product writes it and only the loop right behind reads it, element by element, and does so
little that it may stand in the code once for each sum of a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from sketchc.ir import nodes as ir
from sketchc.ir.symbolic import equal
from sketchc.lowering.c_source.expressions import is_short
from sketchc.lowering.cuda_c.products import product_in
from sketchc.lowering.cuda_c.vectors import at_lanes
from sketchc.lowering.loops import nodes

Body = tuple[nodes.Statement, ...]


@attrs.frozen
class Use:
    """What becomes of each sum of a product: the loops over rows and columns, and the name by which
    the statements inside read it."""

    rows: nodes.Loop
    columns: nodes.LaneLoop
    name: str


@attrs.frozen
class Sums:
    """A program without the statements that its products make unnecessary; `begun` are the `id`s of
    the calls whose sums begin at zero, `uses` those whose destination is not in memory."""

    program: nodes.Program
    begun: frozenset[int]
    uses: Mapping[int, Use]


def sums_of(program: nodes.Program, owners: Mapping[str, str]) -> Sums:
    """The program with sums in registers wherever that changes nothing else; see `KernelPrinter`
    for `owners`."""
    begun: set[int] = set()
    uses: dict[int, Use] = {}

    def is_filled(statement: nodes.Statement, following: nodes.Statement | None) -> bool:
        call = product_in(following)
        if call is None or not _fills(statement, call):
            return False
        begun.add(id(call))
        return True

    body = _without(program.body, is_filled)
    own = {storage.name for storage in program.storages}
    touching = [(each, nodes.named_buffers(each)) for each in nodes.walk(body)]
    used: list[nodes.Statement] = []

    def is_used(statement: nodes.Statement, following: nodes.Statement | None) -> bool:
        call = product_in(statement)
        if call is not None and id(call) in begun and call.views[2].buffer in own:
            to = call.views[2].buffer
            use = _use(following, call, owners)
            among = [call, *(() if use is None else nodes.walk((use.rows,)))]
            if use is not None and all(
                any(each is one for one in among) for each, buffers in touching if to in buffers
            ):
                uses[id(call)] = use
                used.append(use.rows)
        return any(statement is each for each in used)

    body = _without(body, is_used)
    gone = {
        each.views[2].buffer
        for each in nodes.walk(body)
        if isinstance(each, nodes.Call) and id(each) in uses
    }
    storages = tuple(each for each in program.storages if each.name not in gone)
    return Sums(nodes.Program(storages, body), frozenset(begun), uses)


def _without(body: Body, goes: Callable[[nodes.Statement, nodes.Statement | None], bool]) -> Body:
    """The statements without those that go; `goes` is asked with the statement behind, notes left
    out."""
    found: list[nodes.Statement] = []
    for place, statement in enumerate(body):
        later = (each for each in body[place + 1 :] if not isinstance(each, nodes.Note))
        if goes(statement, next(later, None)):
            continue
        if product_in(statement) is None:
            statement = nodes.with_bodies(statement, lambda inner: _without(inner, goes))
        found.append(statement)
    return tuple(found)


def _nested(statement: nodes.Statement | None) -> tuple[nodes.Loop, nodes.LaneLoop] | None:
    """A loop over rows, which may run in any order, with nothing in it but one over columns, both
    from 0 on."""
    if not isinstance(statement, nodes.Loop) or not statement.independent or statement.step != 1:
        return None
    inside = [each for each in statement.body if not isinstance(each, nodes.Note)]
    columns = inside[0] if len(inside) == 1 else None
    if not isinstance(columns, nodes.LaneLoop) or columns.reductions:
        return None
    zero = ir.Literal(0)
    return (statement, columns) if statement.lower == zero == columns.lower else None


def _rows_of(rows: nodes.Loop, columns: nodes.LaneLoop, call: nodes.Call) -> nodes.Row | None:
    """How loops name the rows of a product's destination, if they go over its elements alone."""
    to = call.views[2]
    found = [row for row in columns.rows if row.buffer == to.buffer]
    if len(found) != 1 or not isinstance(to, nodes.MatrixView) or to.column != ir.Literal(1):
        return None
    variable = ir.Ref(rows.variable, ir.NameKind.LOOP)
    start = ir.Binary("+", to.origin, ir.Binary("*", variable, to.row))
    ends = equal(rows.upper, call.extents[0]) and equal(columns.upper, call.extents[1])
    return found[0] if ends and equal(found[0].base, start) else None


def _fills(statement: nodes.Statement, call: nodes.Call) -> bool:
    """Whether a statement writes 0 to each element that a product adds to, and nothing else."""
    loops = _nested(statement)
    row = None if loops is None else _rows_of(*loops, call)
    if loops is None or row is None or len(loops[1].rows) != 1:
        return False
    inside = [each for each in loops[1].body if not isinstance(each, nodes.Note)]
    write = inside[0] if len(inside) == 1 else None
    if not isinstance(write, nodes.Write) or write.buffer != row.name:
        return False
    value, place = write.value, ir.Ref(loops[1].variable, ir.NameKind.LOOP)
    zero = isinstance(value, nodes.Number) and str(value.value) in ("0", "0.0")
    return zero and write.index == place


def _use(
    statement: nodes.Statement | None, call: nodes.Call, owners: Mapping[str, str]
) -> Use | None:
    """What becomes of the sums of a product, if that is all in a statement which reads each at its
    place alone."""
    loops = _nested(statement)
    row = None if loops is None else _rows_of(*loops, call)
    if loops is None or row is None:
        return None
    rows, columns = loops
    vectors = at_lanes(columns)
    if vectors is None or row.name not in dict(vectors.read) or row.name in dict(vectors.written):
        return None
    if any(
        part.buffer == row.name and part.index != ir.Ref(columns.variable, ir.NameKind.LOOP)
        for each in columns.body
        for part in nodes.parts(each)
        if isinstance(part, nodes.Element)
    ):
        return None
    if not all(
        is_short(part.operation)
        for each in columns.body
        for part in nodes.parts(each)
        if isinstance(part, nodes.Apply)
    ):
        return None
    named = {each.name: each.buffer for each in columns.rows}
    written = {named.get(buffer, buffer) for buffer in dict(vectors.written)}
    operands = {view.buffer for view in call.views[:2]}
    apart = {owners.get(b, b) for b in written}.isdisjoint(owners.get(b, b) for b in operands)
    return Use(rows, columns, row.name) if apart else None

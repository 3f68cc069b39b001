"""Several products that one loop adds to turn by turn get a loop each, where none of them reads or
writes what another one writes: the sums of one product at a time then stay in registers.

Each gets the fill of its own destination right before it, out of a nest that fills several.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from sketchc.lowering.loops import nodes

Body = tuple[nodes.Statement, ...]


def apart(program: nodes.Program, owners: Mapping[str, str]) -> nodes.Program:
    """The program with a loop for each product; see `KernelPrinter` for `owners`."""
    return attrs.evolve(program, body=_apart(program.body, owners))


def _apart(body: Body, owners: Mapping[str, str]) -> Body:
    found: list[nodes.Statement] = []
    for statement in body:
        shares = _shares(statement, owners)
        if len(shares) < 2:
            found.append(nodes.with_bodies(statement, lambda inner: _apart(inner, owners)))
            continue
        assert isinstance(statement, nodes.SerialLoop)
        fills = _taken(found, shares.keys())
        for destination, share in shares.items():
            found += (*fills[destination], attrs.evolve(statement, body=share))
    return tuple(found)


def _shares(statement: nodes.Statement, owners: Mapping[str, str]) -> dict[str, Body]:
    """By the destinations of products, what stands in each one's share of a loop's body; empty
    where there is anything else in it, or where the products depend on each other."""
    if not isinstance(statement, nodes.SerialLoop):
        return {}
    shares: dict[str, Body] = {}
    notes: list[nodes.Statement] = []
    calls: list[nodes.Call] = []
    for each in statement.body:
        notes.append(each)
        if isinstance(each, nodes.Note):
            continue
        if not isinstance(each, nodes.Call) or each.name != "multiply":
            return {}
        calls.append(each)
        shares[each.views[2].buffer] = tuple(notes)
        notes = []
    named = [[owners.get(v.buffer, v.buffer) for v in call.views] for call in calls]
    written = {names[2] for names in named}
    read = {name for names in named for name in names[:2]}
    return {} if len(written) < len(calls) or written & read else shares


def _taken(before: list[nodes.Statement], buffers: Collection[str]) -> dict[str, Body]:
    """The nests at the end of `before` that write constants to these `buffers`, by buffer; they are
    taken out of it."""
    found = dict.fromkeys(buffers, Body())
    place = len(before)
    while place and isinstance(before[place - 1], nodes.Note | nodes.Loop):
        place -= 1
        nest = before[place]
        lanes = nest if isinstance(nest, nodes.Note) else _constants(nest)
        if lanes is None:
            break
        if isinstance(lanes, nodes.Note) or not isinstance(nest, nodes.Loop):
            continue
        owners = {row.name: row.buffer for row in lanes.rows}
        left = lanes.body
        for buffer in buffers:
            own = tuple(
                e for e in left if isinstance(e, nodes.Write) and owners.get(e.buffer) == buffer
            )
            if own:
                rows = tuple(row for row in lanes.rows if row.buffer == buffer)
                inner = attrs.evolve(lanes, rows=rows, body=own)
                found[buffer] = (attrs.evolve(nest, body=(inner,)), *found[buffer])
                left = tuple(each for each in left if each not in own)
        written = {each.buffer for each in left if isinstance(each, nodes.Write)}
        rows = tuple(row for row in lanes.rows if row.name in written)
        rest = [each for each in nest.body if isinstance(each, nodes.Note)]
        if written:
            inner = attrs.evolve(lanes, rows=rows, body=left)
            before[place] = attrs.evolve(nest, body=(*rest, inner))
        else:
            before[place : place + 1] = rest
    return found


def _constants(nest: nodes.Statement) -> nodes.LaneLoop | None:
    """The loop over columns in a nest over rows, which may run in any order, that only writes
    numbers to rows of buffers."""
    if not isinstance(nest, nodes.Loop) or not nest.independent:
        return None
    inside = [each for each in nest.body if not isinstance(each, nodes.Note)]
    lanes = inside[0] if len(inside) == 1 else None
    if not isinstance(lanes, nodes.LaneLoop) or lanes.reductions:
        return None
    own = {row.name for row in lanes.rows}
    writes = [each for each in lanes.body if not isinstance(each, nodes.Note)]
    plain = all(
        isinstance(each, nodes.Write)
        and each.buffer in own
        and isinstance(each.value, nodes.Number)
        for each in writes
    )
    return lanes if plain else None

"""Index calculations with divisions are tabulated where the rows of a tile share them.

A gathered tile, such as the windows of a convolution, is filled row by row, and the index of an
element often consists of parts of its row and parts of its lane: `k // (KH*KW)`, `k // KW % KH`. A
division takes as long as some ten multiply-adds, and no CPU divides integers in vectors.
`add_tables` writes the parts that depend on the lane and on nothing that changes from row to row
into a small table before the loop over rows, from which the loop over lanes reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import scalar_dtype
from sketchc.ir.walk import changed, names, parts
from sketchc.lowering.loops import nodes
from sketchc.lowering.loops.reads import by_constant
from sketchc.lowering.plan import Storage


def add_tables(
    program: nodes.Program, fresh: Callable[[str], str], host: frozenset[str]
) -> nodes.Program:
    """The program with tables and their storages; `fresh` makes unused names, `host` are the names
    that have their values before memory is reserved."""
    storages: list[Storage] = []

    def change(loop: nodes.Loop) -> list[nodes.Statement] | None:
        tables = _Tables(_defined(loop), fresh, host)
        body = nodes.expanded(loop.body, nodes.LaneLoop, tables.tabulated)
        storages.extend(tables.storages)
        # Inner loops over rows may share what the outermost one does not.
        body = nodes.expanded(body, nodes.Loop, change)
        return [*tables.filled, attrs.evolve(loop, body=body)]

    body = nodes.expanded(program.body, nodes.Loop, change)
    return nodes.Program((*program.storages, *storages), body)


def _defined(loop: nodes.Loop) -> frozenset[str]:
    """The names that may have other values in each turn of a loop."""
    found = {loop.variable}
    for statement in nodes.walk(loop.body):
        match statement:
            case nodes.Define(name) | nodes.Assign(name):
                found.add(name)
            case nodes.Accumulate(target=nodes.Local(name)):
                found.add(name)
            case nodes.Loop(variable=name) | nodes.SerialLoop(variable=name):
                found.add(name)
    return frozenset(found)


@attrs.define
class _Tables:
    """The tables before one loop over rows: `filled` are the loops that fill them."""

    changing: frozenset[str]
    fresh: Callable[[str], str]
    host: frozenset[str]
    storages: list[Storage] = attrs.field(factory=list)
    filled: list[nodes.LaneLoop] = attrs.field(factory=list)
    _known: dict[tuple[ir.Expr, ...], str] = attrs.field(factory=dict)

    def tabulated(self, loop: nodes.LaneLoop) -> list[nodes.Statement] | None:
        """A loop over lanes that takes from tables what they hold; None where it needs none."""
        bounds = {*names(loop.lower), *names(loop.upper)}
        extent = _extent(loop.upper)
        if not bounds.isdisjoint(self.changing) or not self.host.issuperset(names(extent)):
            return None
        read: dict[ir.Expr, nodes.Define] = {}

        def shown(node: Any) -> Any:
            if not isinstance(node, ir.Expr):
                return nodes.with_parts(node, shown)
            own = names(node)
            if loop.variable not in own or not _divides(node):
                return node
            if not self.changing.isdisjoint(own) or scalar_dtype(node) is not DType.I64:
                return changed(node, shown)
            if node not in read:
                read[node] = self._read(node, loop, extent)
            return ir.Ref(read[node].name, ir.NameKind.BINDING)

        body = _changed(loop.body, shown)
        return [attrs.evolve(loop, body=(*read.values(), *body))] if read else None

    def _read(self, value: ir.Expr, loop: nodes.LaneLoop, extent: ir.Expr) -> nodes.Define:
        """The definition of a local that holds `value`, read from a table."""
        lane = ir.Ref(loop.variable, ir.NameKind.LOOP)
        key = (value, lane, loop.lower, loop.upper)
        if key not in self._known:
            table = self._known[key] = self.fresh("index_table")
            self.storages.append(Storage(table, "", DType.I64, (extent,)))
            write = nodes.Write(table, lane, nodes.Scalar(value, DType.I64))
            self.filled.append(
                attrs.evolve(loop, body=(write,), reductions=(), rows=(), origins=loop.origins)
            )
        element = nodes.Element(self._known[key], lane, DType.I64)
        return nodes.Define(self.fresh("index_part"), DType.I64, element, origins=loop.origins)


def _divides(value: ir.Expr) -> bool:
    return any(
        isinstance(part, ir.Binary)
        and part.operator in ("//", "%", "cdiv")
        and not by_constant(part.right)
        for part in parts(value)
    )


def _extent(upper: ir.Expr) -> ir.Expr:
    """The extent of the tile's axis behind the end of a loop over its lanes, which is the smallest
    of that and other bounds."""
    while isinstance(upper, ir.Binary) and upper.operator == "min":
        upper = upper.left
    return upper


def _changed(
    body: tuple[nodes.Statement, ...], change: Callable[[Any], Any]
) -> tuple[nodes.Statement, ...]:
    """The statements with their parts changed, those in branches too."""
    return tuple(
        nodes.with_parts(nodes.with_bodies(s, lambda arm: _changed(arm, change)), change)
        for s in body
    )

"""Row pointers: `X_row[lane]` in place of a long index, for readers and for the compiler.

In a lane loop, every element whose index is `base + lane` with a base that does not change gets a
pointer to the row, defined before the loop.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sketchc.base.diagnostics import Span
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir.walk import references
from sketchc.lowering.loops import nodes

_Fresh = Callable[[str], str]


def add_rows(body: tuple[nodes.Statement, ...], fresh: _Fresh) -> tuple[nodes.Statement, ...]:
    """The statements with row pointers before their lane loops; `fresh` makes unused names."""
    found: list[nodes.Statement] = []
    for statement in body:
        match statement:
            case nodes.LaneLoop():
                found += _Rows(statement.variable, fresh).run(statement)
            case _:
                found.append(nodes.with_bodies(statement, lambda inner: add_rows(inner, fresh)))
    return tuple(found)


@attrs.define
class _Rows:
    variable: str
    fresh: _Fresh
    rows: dict[tuple[str, ir.Expr], nodes.Row] = attrs.field(factory=dict)
    written: set[str] = attrs.field(factory=set)
    changing: frozenset[str] = frozenset()  # names that mean something else in another lane
    origins: tuple[Span, ...] = ()  # of the statement in hand

    def run(self, loop: nodes.LaneLoop) -> list[nodes.Statement]:
        """The row pointers of a lane loop, and the loop that uses them."""
        inside = nodes.walk(loop.body)
        named = {s.name for s in inside if isinstance(s, nodes.Define | nodes.Assign)}
        targets = [s.target for s in inside if isinstance(s, nodes.Accumulate)]
        named |= {target.name for target in targets if isinstance(target, nodes.Local)}
        self.changing = frozenset(named)
        body = tuple(self._statement(statement) for statement in loop.body)
        rows = [attrs.evolve(row, writable=row.name in self.written) for row in self.rows.values()]
        return [*rows, attrs.evolve(loop, body=body)]

    def _statement(self, statement: nodes.Statement) -> nodes.Statement:
        self.origins = statement.origins or self.origins
        match statement:
            case nodes.Define() | nodes.Assign():
                return attrs.evolve(statement, value=self._value(statement.value))
            case nodes.Write():
                buffer, index = self._place(statement.buffer, statement.index, _kind(statement))
                self.written.add(buffer)
                value = self._value(statement.value)
                return attrs.evolve(statement, buffer=buffer, index=index, value=value)
            case nodes.Accumulate(target=nodes.Element() as target):
                buffer, index = self._place(target.buffer, target.index, target.dtype)
                self.written.add(buffer)
                moved = attrs.evolve(target, buffer=buffer, index=index)
                return attrs.evolve(statement, target=moved, value=self._value(statement.value))
            case nodes.Accumulate() | nodes.AtomicUpdate():
                return attrs.evolve(statement, value=self._value(statement.value))
            case nodes.Branch():
                return nodes.with_bodies(statement, lambda arm: tuple(map(self._statement, arm)))
            case _:
                return statement

    def _value(self, value: nodes.Value) -> nodes.Value:
        match value:
            case nodes.Element(buffer, index, dtype):
                moved, at = self._place(buffer, index, dtype)
                return attrs.evolve(value, buffer=moved, index=at)
            case _:
                return nodes.with_operands(value, self._value)

    def _place(self, buffer: str, index: ir.Expr, dtype: DType) -> tuple[str, ir.Expr]:
        base = _base(index, self.variable)
        if base is None or isinstance(base, ir.Literal):
            return buffer, index
        if any(reference.name in self.changing for reference in references(base)):
            return buffer, index
        key = (buffer, base)
        if key not in self.rows:
            name = self.fresh(f"{buffer}_row")
            self.rows[key] = nodes.Row(name, buffer, base, dtype, origins=self.origins)
        return self.rows[key].name, ir.Ref(self.variable, ir.NameKind.LOOP)


def _kind(write: nodes.Write) -> DType:
    return write.value.dtype if not isinstance(write.value, nodes.Apply) else write.value.result


def _terms(index: ir.Expr) -> list[ir.Expr]:
    if isinstance(index, ir.Binary) and index.operator == "+":
        return [*_terms(index.left), *_terms(index.right)]
    return [index]


def _base(index: ir.Expr, variable: str) -> ir.Expr | None:
    """`index - variable` where that does not depend on the variable, else None."""
    terms = _terms(index)
    lanes = [term for term in terms if isinstance(term, ir.Ref) and term.name == variable]
    others = [term for term in terms if not (isinstance(term, ir.Ref) and term.name == variable)]
    if len(lanes) != 1:
        return None
    if any(reference.name == variable for term in others for reference in references(term)):
        return None
    if not others:
        return ir.Literal(0)
    base = others[0]
    for term in others[1:]:
        base = ir.Binary("+", base, term)
    return base

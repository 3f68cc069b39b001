"""Row pointers: `X_row[lane]` in place of a long index, for readers and for the compiler.

In a lane loop, every element whose index is `base + lane` with a base that does not change gets a
pointer to the row, defined before the loop.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs

from sketchc import ir
from sketchc.lowering import loops
from sketchc.source import Span
from sketchc.symbolic import references
from sketchc.types import DType

_Fresh = Callable[[str], str]


def add_rows(body: tuple[loops.Statement, ...], fresh: _Fresh) -> tuple[loops.Statement, ...]:
    """The statements with row pointers before their lane loops; `fresh` makes unused names."""
    found: list[loops.Statement] = []
    for statement in body:
        match statement:
            case loops.LaneLoop():
                found += _Rows(statement.variable, fresh).run(statement)
            case loops.Loop() | loops.SerialLoop():
                found.append(attrs.evolve(statement, body=add_rows(statement.body, fresh)))
            case loops.Branch(body=then, orelse=orelse):
                arms = (add_rows(then, fresh), add_rows(orelse, fresh))
                found.append(attrs.evolve(statement, body=arms[0], orelse=arms[1]))
            case _:
                found.append(statement)
    return tuple(found)


@attrs.define
class _Rows:
    variable: str
    fresh: _Fresh
    rows: dict[tuple[str, ir.Expr], loops.Row] = attrs.field(factory=dict)
    written: set[str] = attrs.field(factory=set)
    changing: frozenset[str] = frozenset()  # names that mean something else in another lane
    origins: tuple[Span, ...] = ()  # of the statement in hand

    def run(self, loop: loops.LaneLoop) -> list[loops.Statement]:
        inside = loops.walk(loop.body)
        named = {s.name for s in inside if isinstance(s, loops.Define | loops.Assign)}
        targets = [s.target for s in inside if isinstance(s, loops.Accumulate)]
        named |= {target.name for target in targets if isinstance(target, loops.Local)}
        self.changing = frozenset(named)
        body = tuple(self._statement(statement) for statement in loop.body)
        rows = [attrs.evolve(row, writable=row.name in self.written) for row in self.rows.values()]
        return [*rows, attrs.evolve(loop, body=body)]

    def _statement(self, statement: loops.Statement) -> loops.Statement:
        self.origins = statement.origins or self.origins
        match statement:
            case loops.Define() | loops.Assign():
                return attrs.evolve(statement, value=self._value(statement.value))
            case loops.Write():
                buffer, index = self._place(statement.buffer, statement.index, _kind(statement))
                self.written.add(buffer)
                value = self._value(statement.value)
                return attrs.evolve(statement, buffer=buffer, index=index, value=value)
            case loops.Accumulate(target=loops.Element() as target):
                buffer, index = self._place(target.buffer, target.index, target.dtype)
                self.written.add(buffer)
                moved = attrs.evolve(target, buffer=buffer, index=index)
                return attrs.evolve(statement, target=moved, value=self._value(statement.value))
            case loops.Accumulate() | loops.AtomicUpdate():
                return attrs.evolve(statement, value=self._value(statement.value))
            case loops.Branch(body=then, orelse=orelse):
                arms = [tuple(map(self._statement, arm)) for arm in (then, orelse)]
                return attrs.evolve(statement, body=arms[0], orelse=arms[1])
            case _:
                return statement

    def _value(self, value: loops.Value) -> loops.Value:
        match value:
            case loops.Element(buffer, index, dtype):
                moved, at = self._place(buffer, index, dtype)
                return attrs.evolve(value, buffer=moved, index=at)
            case loops.Convert(value=inner):
                return attrs.evolve(value, value=self._value(inner))
            case loops.Apply(arguments=arguments):
                return attrs.evolve(value, arguments=tuple(map(self._value, arguments)))
            case loops.Select(value=inner, otherwise=otherwise):
                inner, otherwise = self._value(inner), self._value(otherwise)
                return attrs.evolve(value, value=inner, otherwise=otherwise)
            case _:
                return value

    def _place(self, buffer: str, index: ir.Expr, dtype: DType) -> tuple[str, ir.Expr]:
        base = _base(index, self.variable)
        if base is None or isinstance(base, ir.Literal):
            return buffer, index
        if any(reference.name in self.changing for reference in references(base)):
            return buffer, index
        key = (buffer, base)
        if key not in self.rows:
            name = self.fresh(f"{buffer}_row")
            self.rows[key] = loops.Row(name, buffer, base, dtype, origins=self.origins)
        return self.rows[key].name, ir.Ref(self.variable, ir.NameKind.LOOP)


def _kind(write: loops.Write) -> DType:
    return write.value.dtype if not isinstance(write.value, loops.Apply) else write.value.result


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

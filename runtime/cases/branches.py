"""Which sides of the branches that a param or an optional tensor decides are taken at a launch.

A mode that reads the wrong rows is never seen where the task's numbers never choose it. So the host
and the phases of a sketch are walked at the sizes, numbers and tensors of each case, without data:
an iteration or two of each loop, and the side that each branch takes. What data decides counts for
nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value, evaluate, host_sample
from sketchc.ir.show import show
from sketchc.ir.walk import children, names

#: One side of a branch: which condition, and whether it holds.
Side = tuple[int, bool]

#: Iterations of a loop that are looked at: all of so many, else the first and the last.
_ALL, _ENDS = 8, 3
#: Statements looked at for one case.
_MOST = 20_000

_NO_VALUE = (KeyError, ArithmeticError, ValueError, InternalError)


@attrs.frozen
class Decision:
    """A condition that a param or an optional tensor decides, and all such names behind it.
    `alone`: no iteration of a loop, and nothing that was fetched, has a say in it."""

    condition: ir.Expr
    names: frozenset[str]
    alone: bool = True

    def text(self, *, holds: bool) -> str:
        """One side of it, in words."""
        return f"`{show(self.condition)}` {'holds' if holds else 'does not hold'}"


class Branches:
    """The deciding branches of a sketch."""

    def __init__(self, sketch: ir.Sketch) -> None:
        self.sketch = sketch
        self._causes = _causes(sketch)
        self._varying = _varying(sketch)
        #: By the place of their first appearance.
        self.decisions: list[Decision] = []
        self._places: dict[int, int] = {}
        self._inside: set[int] = set()  # id() of loops and branches with a decision inside
        for phase in sketch.phases:
            self._find(phase.body)
        self._find(sketch.steps)
        for let in sketch.lets:
            self._find_choices(let.value)

    @property
    def names(self) -> frozenset[str]:
        """All params and optional tensors that decide something."""
        return frozenset().union(*(decision.names for decision in self.decisions))

    def literals(self, name: str) -> list[Value]:
        """The numbers beside which a param stands in conditions."""
        found: dict[Value, None] = {}
        pending = [d.condition for d in self.decisions if name in d.names]
        while pending:
            part = pending.pop()
            if isinstance(part, ir.Literal):
                found[part.value] = None
            pending.extend(children(part))
        return list(found)

    def sides(
        self,
        symbols: Mapping[str, int],
        params: Mapping[str, Value],
        absent: Collection[str] = (),
    ) -> frozenset[Side]:
        """What is taken at a launch, without the tensors that are `absent`."""
        if not self.decisions:
            return frozenset()
        values = host_sample(self.sketch, symbols, params)
        values |= {t.name: t.name not in absent for t in self.sketch.tensors if t.optional}
        walk = _Walk(self)
        for let in self.sketch.lets:
            walk.choices(let.value, values)
        walk.run(self.sketch.steps, values)
        return frozenset(walk.found)

    def place(self, condition: ir.Expr) -> int | None:
        """Which decision a condition is; None for none."""
        return self._places.get(id(condition))

    def inside(self, node: object) -> bool:
        """Whether a loop or branch holds a decision."""
        return id(node) in self._inside

    # ------------------------------------------------------------ what there is

    def _note(self, condition: ir.Expr) -> bool:
        used = names(condition)
        causes = frozenset().union(*(self._causes.get(name, ()) for name in used))
        if causes and id(condition) not in self._places:
            self._places[id(condition)] = len(self.decisions)
            self.decisions.append(Decision(condition, causes, not used & self._varying))
        return bool(causes)

    def _find_choices(self, expression: ir.Expr) -> bool:
        found = False
        pending = [expression]
        while pending:
            part = pending.pop()
            if isinstance(part, ir.Choice):
                found |= self._note(part.condition)
            pending.extend(children(part))
        return found

    def _find(self, steps: Sequence[ir.HostStep | ir.Statement]) -> bool:
        """Whether any of the steps holds a decision; all of them are looked at."""
        found = False
        for step in steps:
            here = False
            match step:
                case ir.Launch(phase):
                    here = any(self.inside(each) for each in self.sketch.phases[phase].body)
                case ir.For(start=start, stop=stop, step=by, body=inner):
                    here = True in [self._find_choices(part) for part in (start, stop, by)]
                    here |= self._find(inner)
                case ir.HostFor(body=inner):
                    here = self._find(inner)
                case ir.If(condition, inner, orelse) | ir.HostIf(condition, inner, orelse):
                    here = self._note(condition)
                    here |= self._find((*inner, *orelse))
                case ir.Bind(value=value):
                    here = self._find_choices(value)
                case _:
                    pass
            if here:
                self._inside.add(id(step))
            found |= here
        return found


def _causes(sketch: ir.Sketch) -> dict[str, frozenset[str]]:
    """The params and optional tensors behind each name that has any."""
    found = {param.name: frozenset([param.name]) for param in sketch.params}
    found |= {t.name: frozenset([t.name]) for t in sketch.tensors if t.optional}

    def bind(name: str, value: ir.Expr) -> None:
        causes = frozenset().union(*(found.get(used, ()) for used in names(value)))
        if causes:
            found[name] = causes

    for let in sketch.lets:
        bind(let.name, let.value)
    for each in _everything(sketch):
        if isinstance(each, ir.Bind):
            bind(each.name, each.value)
    return found


def _varying(sketch: ir.Sketch) -> set[str]:
    """The names of what differs within one run: loop variables, what is fetched, and what is bound
    to either."""
    found: set[str] = set()
    for each in _everything(sketch):
        match each:
            case ir.For(variable) | ir.HostFor(variable):
                found.add(variable)
            case ir.Fetch(name):
                found.add(name)
            case ir.Bind(name, value) if names(value) & found:
                found.add(name)
            case _:
                pass
    return found


def _everything(sketch: ir.Sketch) -> Iterator[ir.HostStep | ir.Statement]:
    """All that the host does, then all statements, in the order of the text."""
    yield from walk.steps(sketch.steps)
    yield from walk.in_phases(sketch.phases)


@attrs.define
class _Walk:
    """One launch: the sides that were taken."""

    branches: Branches
    found: set[Side] = attrs.field(factory=set)
    left: int = _MOST

    def run(self, steps: Sequence[ir.HostStep | ir.Statement], values: dict[str, Value]) -> None:
        """The host's steps, or the statements of a phase."""
        for step in steps:
            self.left -= 1
            if self.left <= 0:
                return
            match step:
                case ir.Launch(phase):
                    self.run(self.branches.sketch.phases[phase].body, dict(values))
                case ir.For(variable, start, stop, by, body=inner) | ir.HostFor(
                    variable, start, stop, by, body=inner
                ):
                    for trip in self.trips(step, start, stop, by, values):
                        self.run(inner, {**values, variable: trip})
                case ir.If(condition, inner, orelse) | ir.HostIf(condition, inner, orelse):
                    for holds in self.decide(condition, values):
                        self.run(inner if holds else orelse, dict(values))
                case ir.Bind(name, value):
                    self.bind(name, value, values)
                case ir.Fetch(name):
                    values.pop(name, None)
                case _:
                    pass

    def trips(
        self,
        loop: object,
        start: ir.Expr,
        stop: ir.Expr,
        by: ir.Expr,
        values: Mapping[str, Value],
    ) -> Sequence[int]:
        """Some iterations of a loop that holds a decision; none of others."""
        if not self.branches.inside(loop):
            return ()
        for bound in (start, stop, by):
            self.choices(bound, values)
        try:
            trips = range(*(int(evaluate(bound, values)) for bound in (start, stop, by)))
        except _NO_VALUE:
            return ()
        if len(trips) <= _ALL:
            return trips
        return [*trips[:_ENDS], *trips[-_ENDS:]]

    def decide(self, condition: ir.Expr, values: Mapping[str, Value]) -> tuple[bool, ...]:
        """The side that is taken; both where data decides."""
        try:
            holds = bool(evaluate(condition, values))
        except _NO_VALUE:
            return True, False
        if (place := self.branches.place(condition)) is not None:
            self.found.add((place, holds))
        return (holds,)

    def bind(self, name: str, value: ir.Expr, values: dict[str, Value]) -> None:
        values.pop(name, None)
        self.choices(value, values)
        try:
            values[name] = evaluate(value, values)
        except _NO_VALUE:
            return

    def choices(self, expression: ir.Expr, values: Mapping[str, Value]) -> None:
        """Note the sides of the choices in an expression."""
        pending = [expression]
        while pending:
            part = pending.pop()
            if isinstance(part, ir.Choice) and self.branches.place(part.condition) is not None:
                self.decide(part.condition, values)
            pending.extend(children(part))

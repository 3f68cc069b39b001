"""What runs must reach before a claim may rest on them (section 6).

A run in which a loop has one iteration says nothing of what the loop carries from one to the next,
and a branch that is never taken says nothing at all. So each loop that works in order, and each
whose trips depend on a tile size, must run at least twice (at tile sizes that differ from one
another and from 1, else one could stand for another); other loops once; and both sides of each
branch must be taken. What no launch can reach is no goal.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import InternalError, Span
from sketchc.checker.facts.affine import add, constant_value, scale
from sketchc.checker.facts.conditions import ALWAYS, CASE_LIMIT, Cases, both, cases
from sketchc.checker.facts.scope import Branch, Scope, Step, root_scope
from sketchc.interpreter.run_coverage import RunCoverage
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.ir.show import show
from sketchc.ir.walk import names

#: Among the names that decide something: elements of tensors.
DATA = "'data"


@records.frozen
class Goal:
    """A loop, or one side of a branch.

    `trips`: how often the loop must run in a row; `tiles`: that also differs from one tile size to
    another, so that runs which agree say that it does not matter, and counts only where the tile
    sizes differ from one another and from 1 (`i*TN` for `i*TM` is right where they are equal).
    `names`: the symbols, params, constants and optional tensors that decide it, and `DATA`. `path`
    leads there, itself included; `around` are the loops on it, outermost first.
    """

    place: int
    text: str
    path: tuple[Step, ...]
    names: frozenset[str]
    side: bool | None = None
    trips: int = 2
    tiles: bool = False
    around: tuple[Goal, ...] = ()
    span: Span = records.field(eq=False, repr=False, kw_only=True)

    def met_within(self, runs: Collection[RunCoverage]) -> bool:
        """Whether they reach it while the loops around it run as often as they should, too."""
        return self.met(runs) and all(loop.met(runs) for loop in self.around)

    def met(self, runs: Collection[RunCoverage]) -> bool:
        """Whether runs on the same inputs, one for each assignment of tile sizes, reach it."""
        if self.side is not None:
            return any((self.place, self.side) in run.sides for run in runs)
        counts = [run.trips.get(self.place, 0) for run in runs]
        most = max(counts, default=0)
        if not self.tiles:
            return most >= self.trips
        telling = [count for count, run in zip(counts, runs, strict=True) if run.telling]
        return max(telling, default=0) >= self.trips and (len(runs) == 1 or min(counts) < most)

    @property
    def name(self) -> str:
        """The variable of a loop; empty for a branch."""
        last = self.path[-1]
        return last.variable if isinstance(last, ir.For | ir.HostFor) else ""

    @property
    def needed(self) -> bool:
        """Whether a claim stays open without it: a side that data has part in is only told."""
        return self.side is None or DATA not in self.names


def goals(sketch: ir.Sketch, tunable: Collection[str] = ()) -> tuple[Goal, ...]:
    """All goals of a sketch; `tunable` names the tile sizes that runs vary."""
    walk = _Walk(sketch, frozenset(tunable))
    found = walk.steps(sketch.steps, ())
    unique = {(goal.place, goal.side): goal for goal in found}
    return tuple(unique.values())


class _Walk:
    """Walks a sketch in program order; `roots` says what decides the value of each name."""

    def __init__(self, sketch: ir.Sketch, tunable: frozenset[str]) -> None:
        self.sketch = sketch
        self.tunable = tunable
        self.roots: dict[str, frozenset[str]] = {}
        self.loops: dict[str, Goal] = {}
        for let in sketch.lets:
            self.roots[let.name] = self.deciding(let.value)

    def deciding(self, *values: ir.Expr) -> frozenset[str]:
        """What decides the values."""
        tiles = {tile.name for tile in self.sketch.tiles}
        found: set[str] = set()
        for name in frozenset().union(*map(names, values)):
            found |= {DATA} if name in tiles else self.roots.get(name, {name})
        return frozenset(found)

    def steps(self, steps: tuple[ir.HostStep, ...], path: tuple[Step, ...]) -> Iterator[Goal]:
        for step in steps:
            match step:
                case ir.Launch(index):
                    yield from self.block(self.sketch.phases[index].body, path)
                case ir.HostFor():
                    yield self.loop(step, path)
                    yield from self.steps(step.body, (*path, step))
                case ir.HostIf():
                    for goal in self.branch(step, path):
                        yield goal
                        inner = step.body if goal.side else step.orelse
                        yield from self.steps(inner, goal.path)
                case ir.Fetch() | ir.Bind():
                    self.named(step)
                    path = (*path, step)
                case _:
                    assert_never(step)

    def block(self, body: tuple[ir.Statement, ...], path: tuple[Step, ...]) -> Iterator[Goal]:
        for statement in body:
            match statement:
                case ir.For():
                    yield self.loop(statement, path)
                    yield from self.block(statement.body, (*path, statement))
                case ir.If():
                    for goal in self.branch(statement, path):
                        yield goal
                        inner = statement.body if goal.side else statement.orelse
                        yield from self.block(inner, goal.path)
                case ir.Fetch() | ir.Bind():
                    self.named(statement)
                    path = (*path, statement)
                case ir.Alloc() | ir.Load() | ir.Store() | ir.Atomic() | ir.Compute():
                    pass
                case _:
                    assert_never(statement)

    def named(self, step: ir.Fetch | ir.Bind) -> None:
        data = frozenset({DATA})
        self.roots[step.name] = data if isinstance(step, ir.Fetch) else self.deciding(step.value)

    def loop(self, loop: ir.For | ir.HostFor, path: tuple[Step, ...]) -> Goal:
        names = self.deciding(loop.start, loop.stop, loop.step)
        self.roots[loop.variable] = names
        tiles = not names.isdisjoint(self.tunable)
        in_order = isinstance(loop, ir.HostFor) or not loop.parallel
        trips = 2 if in_order or tiles else 1
        text = f"the loop over `{loop.variable}` (line {loop.span.line})"
        goal = Goal(
            loop.span.start,
            text,
            (*path, loop),
            names,
            trips=trips,
            tiles=tiles,
            around=self.around(path),
            span=loop.span,
        )
        self.loops[loop.variable] = goal
        return goal

    def around(self, path: tuple[Step, ...]) -> tuple[Goal, ...]:
        """The goals of the loops on a path."""
        loops = (step for step in path if isinstance(step, ir.For | ir.HostFor))
        return tuple(records.evolve(self.loops[loop.variable], around=()) for loop in loops)

    def branch(self, branch: ir.If | ir.HostIf, path: tuple[Step, ...]) -> Iterator[Goal]:
        names = self.deciding(branch.condition)
        place, span = branch.span.start, branch.span
        for side in (True, False):
            spelt = show(branch.condition)
            text = f"`{spelt}` {'true' if side else 'false'} (line {span.line})"
            inside = (*path, Branch(branch.condition, side))
            around = self.around(path)
            yield Goal(place, text, inside, names, side, around=around, span=span)


def reachable(sketch: ir.Sketch, found: Iterable[Goal]) -> tuple[Goal, ...]:
    """The goals without those of which it follows from the sketch that no launch reaches them."""
    root = root_scope(sketch)
    fixed = {constant.name for constant in sketch.constants if not constant.tunable}
    return tuple(goal for goal in found if not _excluded(sketch, root, goal, fixed))


def _excluded(sketch: ir.Sketch, root: Scope, goal: Goal, fixed: set[str]) -> bool:
    if goal.names <= fixed and _constant(sketch, goal):
        return True
    scope = root
    for step in goal.path[:-1]:
        scope = scope.after(step)
    last = goal.path[-1]
    inside = scope.after(last)
    if all(inside.refutes(facts) for facts in _alternatives(sketch, inside, goal.path)):
        return True
    if not isinstance(last, ir.For | ir.HostFor):
        return False
    stride = inside.form(last.step)
    length = add(inside.form(last.stop), inside.form(last.start), -1)
    known = constant_value(stride)
    if known is not None and known < 0:
        stride, length = scale(stride, -1), scale(length, -1)
    return goal.trips > 1 and inside.proves(add(stride, length, -1))


def _alternatives(sketch: ir.Sketch, scope: Scope, path: tuple[Step, ...]) -> Cases:
    """What the conditions of the sketch and the branches on a path leave open, one of which holds:
    of `mode == 0 or mode == 1` and `mode != 0`, the alternatives."""
    found = ALWAYS
    conditions = [(require.condition, True) for require in sketch.requires]
    conditions += [(step.condition, step.holds) for step in path if isinstance(step, Branch)]
    for condition, holds in conditions:
        more = both(found, cases(scope, condition, holds))
        found = more if len(more) <= CASE_LIMIT else found
    return found


def _constant(sketch: ir.Sketch, goal: Goal) -> bool:
    """Whether constants alone decide the goal, loop variables included, against it."""
    values = {constant.name: constant.value for constant in sketch.constants}
    last = goal.path[-1]
    try:
        if isinstance(last, Branch):
            return bool(evaluate(last.condition, values)) != last.holds
        if isinstance(last, ir.For | ir.HostFor):
            bounds = (int(evaluate(e, values)) for e in (last.start, last.stop, last.step))
            return len(range(*bounds)) < goal.trips
    except (KeyError, ArithmeticError, ValueError, InternalError):
        return False
    return False

"""What runs must reach before a claim may rest on them (section 6), and which settings get there.

A run in which a loop has one iteration says nothing of what the loop carries from one to the next,
and a branch that is never taken says nothing at all. So each loop that works in order, and each
whose trips depend on a tile size, must run at least twice (at tile sizes that differ from one
another and from 1, else one could stand for another); other loops once; and both sides of each
branch must be taken. What no launch can reach is no goal.

First small settings are run, then, for each goal that no run has reached, settings at which a
rehearsal (a walk over loops and branches with numbers, without data) reaches it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from typing import assert_never

from sketchc.base import records
from sketchc.base.diagnostics import InternalError, Span
from sketchc.checker.facts import (
    ALWAYS,
    CASE_LIMIT,
    Branch,
    Cases,
    Scope,
    Step,
    add,
    both,
    cases,
    constant_value,
    root_scope,
    scale,
)
from sketchc.checker.testing.settings import Setting, Settings, Workload, rehearse, volume
from sketchc.interpreter.violations import RunCoverage
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.ir.show import show
from sketchc.ir.walk import names

#: Stands for elements of tensors among the names that decide something.
DATA = "'data"


@records.frozen
class Goal:
    """A loop, or one side of a branch.

    `trips`: how often the loop must run in a row. `tiles`: the trips must also differ from one tile
    size to another, so that runs which agree show that their number does not matter; and only runs
    count whose tile sizes differ from one another and from 1 (`i*TN` for `i*TM` is right where they
    are equal). `names`: the symbols, params, constants and optional tensors that decide the goal,
    and `DATA`. `path` leads to the loop or side, which is its last step; `around` are the loops on
    the path, outermost first.
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
        """Whether the runs meet the goal, and the loops around it run as often as they should."""
        return self.met(runs) and all(loop.met(runs) for loop in self.around)

    def met(self, runs: Collection[RunCoverage]) -> bool:
        """Whether runs on the same inputs, one for each assignment of tile sizes, meet the goal."""
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
        """Whether a claim stays open without the goal; not for a side that data decides."""
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
        """The names that decide these values; `DATA` for elements of tiles."""
        tiles = {tile.name for tile in self.sketch.tiles}
        found: set[str] = set()
        for name in frozenset().union(*map(names, values)):
            found |= {DATA} if name in tiles else self.roots.get(name, {name})
        return frozenset(found)

    def steps(
        self, steps: Sequence[ir.HostStep | ir.Statement], path: tuple[Step, ...]
    ) -> Iterator[Goal]:
        """The goals among these steps, of the host or of a launch, that `path` leads to."""
        for step in steps:
            match step:
                case ir.Launch(index):
                    yield from self.steps(self.sketch.phases[index].body, path)
                case ir.For() | ir.HostFor():
                    yield self.loop(step, path)
                    yield from self.steps(step.body, (*path, step))
                case ir.If() | ir.HostIf():
                    for goal in self.branch(step, path):
                        yield goal
                        yield from self.steps(step.body if goal.side else step.orelse, goal.path)
                case ir.Fetch(name):
                    self.roots[name] = frozenset({DATA})
                    path = (*path, step)
                case ir.Bind(name, value):
                    self.roots[name] = self.deciding(value)
                    path = (*path, step)
                case ir.Alloc() | ir.Load() | ir.Store() | ir.Atomic() | ir.Compute():
                    pass
                case _:
                    assert_never(step)

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
        names, span, around = self.deciding(branch.condition), branch.span, self.around(path)
        for side, word in ((True, "true"), (False, "false")):
            text = f"`{show(branch.condition)}` {word} (line {span.line})"
            inside = (*path, Branch(branch.condition, side))
            yield Goal(span.start, text, inside, names, side, around=around, span=span)


def reachable(sketch: ir.Sketch, found: Iterable[Goal]) -> tuple[Goal, ...]:
    """The goals `found`, without those that provably no launch reaches."""
    root = root_scope(sketch)
    fixed = {constant.name for constant in sketch.constants if not constant.tunable}
    return tuple(goal for goal in found if not _excluded(sketch, root, goal, fixed))


def _excluded(sketch: ir.Sketch, root: Scope, goal: Goal, fixed: set[str]) -> bool:
    if goal.names <= fixed and _constant(sketch, goal):
        return True
    scope = reduce(Scope.after, goal.path[:-1], root)
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
    """The alternatives that the conditions of the sketch and the branches on a path leave, as
    systems of facts of which one holds: as for `mode == 0 or mode == 1` and `mode != 0`."""
    found = ALWAYS
    conditions = [(require.condition, True) for require in sketch.requires]
    conditions += [(step.condition, step.holds) for step in path if isinstance(step, Branch)]
    for condition, holds in conditions:
        more = both(found, cases(scope, condition, holds))
        found = more if len(more) <= CASE_LIMIT else found
    return found


def _constant(sketch: ir.Sketch, goal: Goal) -> bool:
    """Whether the values of constants alone, without loop variables, exclude the goal."""
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


#: Settings tried to find small ones, and the largest product of the sizes of one at first: what
#: bounds the time at tile size 1.
ATTEMPTS = 400
LARGEST_VOLUME = 1500
LARGEST_AIMED = 10_000
#: Small sizes; 7 is prime. Every eighth setting has one that is 0.
SMALL_SIZES = (1, 2, 3, 4, 5, 6, 7)
NARROW_SIZES = (1, 2, 3)
WITH_ZERO = 8
#: Sizes for what small ones do not reach; how many settings are rehearsed for one goal, and how
#: many more where it was reached, but not while the loops around it ran; of the settings that reach
#: a goal, how many are compared; and how many are run for all goals.
LARGER_SIZES = (2, 4, 7, 3, 5, 6, 8, 9, 11, 13, 16, 17, 24, 32, 33, 48, 64, 65, 128, 129)
AIMS = 60
MORE_AIMS = 12
COMPARED = 3
MOST_AIMED = 16


@records.define
class Planner:
    """Plans the runs of one sketch at several assignments of its tile sizes: `sketches`, the first
    as it stands. `renamed` is that one with the tile sizes as symbols, `tunable` their names;
    `limit` bounds the work of one run, `larger` are the sizes tried for what small ones do not
    reach. `telling`: which sketches are at tile sizes that differ from one another and from 1; all
    where it is empty. `goals`: those that no run has met so far; `wanted`: those that no run has
    met while the loops around them ran as often as they should. `dear`: whether some run was left
    out because it takes too much work."""

    sketches: Sequence[ir.Sketch]
    renamed: ir.Sketch
    tunable: Collection[str]
    settings: Settings
    limit: int
    larger: Sequence[int] = LARGER_SIZES
    telling: Sequence[bool] = ()
    goals: tuple[Goal, ...] = ()
    wanted: tuple[Goal, ...] = ()
    trips: dict[int, int] = records.field(factory=dict)
    all_goals: tuple[Goal, ...] = ()
    dear: bool = False

    def aim_at_all(self) -> None:
        """Make every loop and every side of a branch a goal."""
        self.all_goals = self.goals = self.wanted = goals(self.renamed, self.tunable)

    def note(self, reached: Sequence[RunCoverage | None]) -> None:
        """Record what runs on the same inputs reached, by sketch; None where one did not run."""
        runs = self._ran(reached)
        self.goals = tuple(goal for goal in self.goals if not goal.met(runs))
        self.wanted = tuple(goal for goal in self.wanted if not goal.met_within(runs))
        for run in runs:
            for place, count in run.trips.items():
                self.trips[place] = max(count, self.trips.get(place, 0))

    def _ran(self, reached: Sequence[RunCoverage | None]) -> list[RunCoverage]:
        """The runs that took place, each with whether its tile sizes are telling."""
        telling = self.telling or [True] * len(reached)
        pairs = zip(reached, telling, strict=True)
        return [records.evolve(run, telling=tells) for run, tells in pairs if run is not None]

    def loops_told(self) -> str:
        """The text on how often those loops ran that must run twice, and did."""
        missed = {goal.place for goal in self.goals if goal.side is None}
        loops = [goal for goal in self.all_goals if goal.side is None and goal.trips > 1]
        loops = [goal for goal in loops if goal.place not in missed]
        ran = {goal.name: self.trips.get(goal.place, 0) for goal in loops}
        counts = ", ".join(f"{name} {count}" for name, count in ran.items() if count > 1)
        return f"most iterations of loops: {counts}" if counts else ""

    @property
    def missed(self) -> tuple[Goal, ...]:
        """The goals without which a claim stays open."""
        return tuple(goal for goal in self.goals if goal.needed)

    def rehearsed(self, setting: Setting) -> list[Workload | None]:
        """The rehearsal of a run of each sketch; None for too much work, or a refused launch."""
        hosts = [self.settings.host_values(sketch, setting) for sketch in self.sketches]
        found = [
            None if host is None else rehearse(sketch, host, self.limit)
            for sketch, host in zip(self.sketches, hosts, strict=True)
        ]
        self.dear |= any(h is not None and one is None for h, one in zip(hosts, found, strict=True))
        return found

    # ------------------------------------------------------------ settings

    def plain(self) -> Iterator[Setting]:
        """Small sizes that a launch accepts: all 1, prime ones, then random ones; every second time
        with other values of integer params, and without the optional tensors. One at most has an
        output without elements."""
        settings, count = self.settings, len(self.settings.names)
        varied = [p.name for p in settings.params.values() if not p.dtype.is_float]
        fixed = [(1,) * count, self._mixed((7,)), self._mixed((4, 7, 5, 6))]
        seen: set[tuple[object, ...]] = set()
        empty = False
        for attempt in range(ATTEMPTS):
            odd = attempt % 2 == 1
            params = {n: settings.random.choice(settings.options(n)) for n in varied if odd}
            sizes = fixed[attempt] if attempt < len(fixed) else self._drawn(attempt)
            setting = settings.setting(sizes, params, settings.optional if odd else ())
            if setting is None and params:
                setting = settings.setting(sizes)
            if setting is None or setting.key in seen:
                if attempt > ATTEMPTS // 8 and len(seen) <= 1:
                    return  # there are no others
                continue
            seen.add(setting.key)
            if settings.is_empty(setting):
                if empty:
                    continue
                empty = True
            if volume(setting.symbols.values()) <= LARGEST_VOLUME or attempt >= ATTEMPTS // 8:
                yield setting

    def _mixed(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """`sizes` in turn for the symbols that decide how often loops run, 1 or 2 for others."""
        names = self.settings.names
        return tuple(
            sizes[place % len(sizes)] if name in self.wide else 1 + place % 2
            for place, name in enumerate(names)
        )

    @property
    def wide(self) -> frozenset[str]:
        """The names that decide how often loops run that must run twice; all where none must."""
        loops = [goal.names for goal in self.all_goals if goal.side is None and goal.trips > 1]
        return frozenset().union(*loops) or frozenset(self.settings.names)

    def _drawn(self, attempt: int) -> tuple[int, ...]:
        names, count = self.settings.names, len(self.settings.names)
        sizes = [
            self.settings.random.choice(SMALL_SIZES if name in self.wide else NARROW_SIZES)
            for name in names
        ]
        if count and attempt % WITH_ZERO == WITH_ZERO - 1:
            sizes[self.settings.random.randrange(count)] = 0
        return tuple(sizes)

    def aimed(self) -> Iterator[Setting]:
        """Settings at which a goal is reached that no run has reached, as far as a rehearsal can
        tell; goals that no launch reaches are dropped."""
        if not self.wanted:
            return
        possible = reachable(self.renamed, self.wanted)
        self.wanted = tuple(goal for goal in self.wanted if goal in possible)
        self.goals = tuple(goal for goal in self.goals if goal in possible)
        left = MOST_AIMED
        for goal in possible:
            aims = AIMS if goal in self.goals else MORE_AIMS
            for setting in self._reaching(goal, aims):
                if goal not in self.wanted or left == 0:
                    break
                left -= 1
                yield setting

    def _reaching(self, goal: Goal, aims: int) -> Iterator[Setting]:
        """Settings at which a rehearsal meets a goal, each the best of up to `COMPARED`; for a goal
        that data decides, every eighth setting that can run."""
        found: list[tuple[int, Setting]] = []
        for attempt in range(aims):
            if goal not in self.wanted:
                return
            setting = self._aim(goal, attempt)
            if setting is None or volume(setting.symbols.values()) > LARGEST_AIMED:
                continue
            rehearsed = self.rehearsed(setting)
            runs = self._ran([None if run is None else run.reached for run in rehearsed])
            if len(runs) < min(2, len(self.sketches)):
                continue
            if DATA in goal.names:
                if attempt % 8 == 0:
                    yield setting
                continue
            if goal.met_within(runs) or (goal in self.goals and goal.met(runs)):
                found.append((sum(other.met_within(runs) for other in self.wanted), setting))
            if len(found) == COMPARED or (found and attempt == aims - 1):
                yield max(found, key=lambda one: one[0])[1]
                found.clear()

    def _aim(self, goal: Goal, attempt: int) -> Setting | None:
        """A setting whose sizes and params that decide a goal vary, while the others stay small;
        every fourth time all sizes vary, since data may tie them (distinct indices into a row)."""
        settings = self.settings
        around = frozenset().union(*(loop.names for loop in goal.around if loop.trips > 1))
        names = goal.names | around
        pool = self.larger[: 3 + attempt // 2]
        sizes = [
            settings.random.choice(
                pool
                if name in goal.names or attempt % 4 == 3
                else NARROW_SIZES[: 3 if name in around else 2]
            )
            for name in settings.names
        ]
        params = {
            name: settings.random.choice(settings.options(name))
            for name in settings.params
            if name in names and attempt % 4
        }
        absent = tuple(
            name for name in settings.optional if name in names and settings.random.random() < 0.5
        )
        return settings.setting(sizes, params, absent, filled=True)


def told(goals: Sequence[Goal]) -> str:
    """The texts of the goals as a list, without repeats."""
    return ", ".join(dict.fromkeys(goal.text for goal in goals))


def told_missed(goals: Sequence[Goal]) -> str:
    """The text on which goals, of those that must be met, no run met."""
    twice = [goal for goal in goals if goal.side is None and goal.trips > 1]
    never = [goal for goal in goals if goal not in twice]
    parts = [f"no run reached {told(never)}"] if never else []
    if twice:
        parts.append(f"no run at telling tile sizes had two iterations of {told(twice)}")
    return "; ".join(parts)


def sizes_text(settings: Sequence[Setting]) -> str:
    """The sizes of runs: `M = 1, 7; N = 0, 3, 7`."""
    values: dict[str, set[int]] = {}
    for setting in settings:
        for name, size in setting.symbols.items():
            values.setdefault(name, set()).add(size)
    return "; ".join(f"{name} = {', '.join(map(str, sorted(s)))}" for name, s in values.items())

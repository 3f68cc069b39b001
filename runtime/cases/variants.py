"""Other numbers for the params of a sketch than the task's own: found by running the task.

`N*3` for `N*repeats` is right while the task repeats three times, and a mode that no number chooses
is never run. So numbers that forward takes, and init inputs that the model's attributes follow, get
other values, as far as the task takes them: for each at least two, and more where sides of branches
depend on them. The axis that an operation runs along is left out: kernels are written for one.

A mode that reads the wrong rows is never run where the task's numbers never choose it. So the host
and the phases of a sketch are walked at the sizes, numbers and tensors of each case, without data
(`Branches`): an iteration or two of each loop, and the side that each branch takes. Conditions that
data decides are ignored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress

import attrs

from sketchc.base.diagnostics import UsageError
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value, evaluate, host_sample
from sketchc.ir.show import show
from sketchc.ir.walk import children, names
from sketchc.runtime.cases.binding import Binding
from sketchc.runtime.cases.drawing import draw
from sketchc.runtime.cases.reach import Freedom
from sketchc.runtime.cases.shapes import NO_VALUE, ShapeCase
from sketchc.runtime.tasks.description import Scalar, TaskFailure
from sketchc.runtime.tasks.outline import Domain
from sketchc.runtime.tasks.task import Task

#: One side of a branch: which condition, and whether it holds.
Side = tuple[int, bool]

#: Iterations of a loop that are looked at: all of so many, else the first and the last.
_ALL_TRIPS, _ENDS = 8, 3
#: Statements looked at for one case.
_MOST_STEPS = 20_000


@attrs.frozen
class Decision:
    """A condition that depends on params or optional tensors, and all these `names`. `alone`: it
    does not depend on a loop variable or a fetched value."""

    condition: ir.Expr
    names: frozenset[str]
    alone: bool = True

    def text(self, *, holds: bool) -> str:
        """One side of the decision, in words."""
        return f"`{show(self.condition)}` {'holds' if holds else 'does not hold'}"


class Branches:
    """The branches of a sketch that depend on params or optional tensors."""

    def __init__(self, sketch: ir.Sketch) -> None:
        self.sketch = sketch
        self._causes = _causes(sketch)
        self._varying = _varying(sketch)
        #: In the order of their first appearance.
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
        """All params and optional tensors that some decision depends on."""
        return frozenset().union(*(decision.names for decision in self.decisions))

    def literals(self, name: str) -> list[Value]:
        """The numbers in the conditions that depend on the param `name`."""
        conditions = [d.condition for d in self.decisions if name in d.names]
        parts = [part for condition in conditions for part in walk.parts(condition)]
        found = [part.value for part in parts if isinstance(part, ir.Literal)]
        return list(dict.fromkeys(reversed(found)))

    def sides(
        self,
        symbols: Mapping[str, int],
        params: Mapping[str, Value],
        absent: Collection[str] = (),
    ) -> frozenset[Side]:
        """The sides that a launch takes, without the tensors that are `absent`."""
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
        """The index of a condition in `decisions`; None if it is no decision."""
        return self._places.get(id(condition))

    def inside(self, node: object) -> bool:
        """Whether a decision stands inside of a loop or branch."""
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
    """The names whose values differ within one run: loop variables, fetched values, and names bound
    to an expression of either."""
    found: set[str] = set()
    for each in _everything(sketch):
        match each:
            case ir.For(variable) | ir.HostFor(variable):
                found.add(variable)
            case ir.Fetch(name):
                found.add(name)
            case ir.Bind(name, value) if names(value) & found:
                found.add(name)
    return found


def _everything(sketch: ir.Sketch) -> Iterator[ir.HostStep | ir.Statement]:
    """The steps of the host, then the statements of all phases, in the order of the text."""
    yield from walk.statements(sketch.steps)
    yield from walk.in_phases(sketch.phases)


@attrs.define
class _Walk:
    """A walk through one launch without data; `found` are the sides that it took."""

    branches: Branches
    found: set[Side] = attrs.field(factory=set)
    left: int = _MOST_STEPS

    def run(self, steps: Sequence[ir.HostStep | ir.Statement], values: dict[str, Value]) -> None:
        """Walk the steps of the host, or the statements of a phase."""
        for step in steps:
            self.left -= 1
            if self.left <= 0:
                return
            match step:
                case ir.Launch(phase):
                    self.run(self.branches.sketch.phases[phase].body, dict(values))
                case ir.For() | ir.HostFor():
                    for trip in self.trips(step, values):
                        self.run(step.body, {**values, step.variable: trip})
                case ir.If(condition, inner, orelse) | ir.HostIf(condition, inner, orelse):
                    for holds in self.decide(condition, values):
                        self.run(inner if holds else orelse, dict(values))
                case ir.Bind(name, value):
                    self.bind(name, value, values)
                case ir.Fetch(name):
                    values.pop(name, None)

    def trips(self, loop: ir.For | ir.HostFor, values: Mapping[str, Value]) -> Sequence[int]:
        """Some iterations of a loop that holds a decision; none of others."""
        if not self.branches.inside(loop):
            return ()
        bounds = (loop.start, loop.stop, loop.step)
        for bound in bounds:
            self.choices(bound, values)
        try:
            trips = range(*(int(evaluate(bound, values)) for bound in bounds))
        except NO_VALUE:
            return ()
        if len(trips) <= _ALL_TRIPS:
            return trips
        return [*trips[:_ENDS], *trips[-_ENDS:]]

    def decide(self, condition: ir.Expr, values: Mapping[str, Value]) -> tuple[bool, ...]:
        """The side that a condition takes, noted if it is a decision; both where data decides."""
        try:
            holds = bool(evaluate(condition, values))
        except NO_VALUE:
            return True, False
        if (place := self.branches.place(condition)) is not None:
            self.found.add((place, holds))
        return (holds,)

    def bind(self, name: str, value: ir.Expr, values: dict[str, Value]) -> None:
        values.pop(name, None)
        self.choices(value, values)
        with suppress(*NO_VALUE):
            values[name] = evaluate(value, values)

    def choices(self, expression: ir.Expr, values: Mapping[str, Value]) -> None:
        """Note the sides of the choices in an expression."""
        for part in walk.parts(expression):
            if isinstance(part, ir.Choice) and self.branches.place(part.condition) is not None:
                self.decide(part.condition, values)


#: How many values of one number are kept although no branch needs them, and are tried.
_KEPT, _ASKED = 2, 10
#: The most variants that are found in all, and how often the task is run at most.
_MOST, _MOST_ASKED = 12, 60
#: The task is run at sizes of up to so many elements.
_ELEMENTS = 1 << 20
#: Arguments that say along which axis something is done.
_AXES = frozenset({"dim", "dims", "axis", "axes"})


@attrs.frozen
class Variant:
    """Other values of params (`numbers`), and of the init inputs that these follow (`init`)."""

    numbers: Mapping[str, Scalar]
    init: Mapping[int, Scalar] = attrs.field(factory=dict)

    def joined(self, other: Variant) -> Variant:
        """A variant with the changes of both."""
        return Variant({**self.numbers, **other.numbers}, {**self.init, **other.init})

    def at(self, case: ShapeCase) -> ShapeCase:
        """`case` with the values of this variant."""
        return attrs.evolve(case, numbers=self.numbers, init=self.init)

    @property
    def text(self) -> str:
        """The numbers, in words."""
        return ", ".join(f"{name} = {value!r}" for name, value in self.numbers.items())


@attrs.define
class Varying:
    """Runs a task with other numbers. `accepted` are the variants that it takes, `refused` those
    that it does not; `movable` are the params that can be given other values at all."""

    binding: Binding
    task: Task
    freedom: Freedom
    branches: Branches
    settings: Mapping[str, Scalar]
    #: Sizes at which cases are planned, with the numbers and the absent tensors there.
    planned: Sequence[ShapeCase]
    accepted: list[Variant] = attrs.field(factory=list)
    refused: list[Variant] = attrs.field(factory=list)
    movable: set[str] = attrs.field(factory=set)
    left: int = _MOST_ASKED

    def find(self) -> None:
        """Find variants that take further sides of branches, then more values of each number."""
        single = {name: list(found) for name, found in self._single().items()}
        self.movable |= {name for name, found in single.items() if found}
        taken = set().union(*(self.sides(case) for case in self.planned))
        for variant in self._combined(single):
            if len(self.accepted) >= _MOST or len(taken) >= 2 * len(self.branches.decisions):
                break
            if (further := self.reached(variant) - taken) and self._ask(variant):
                self.accepted.append(variant)
                taken |= further
        for found in single.values():
            names = set(found[0].numbers) if found else set()
            kept = sum(not names.isdisjoint(one.numbers) for one in self.accepted)
            for variant in found[:_ASKED]:
                if kept >= _KEPT or len(self.accepted) >= _MOST:
                    break
                if variant not in self.accepted and self._ask(variant):
                    self.accepted.append(variant)
                    kept += 1

    def sides(self, case: ShapeCase) -> frozenset[Side]:
        """The sides of branches that a case takes."""
        params = {**self.binding.params, **case.numbers}
        given = {source.tensor.name for source in self.binding.tensors}
        optional = [t.name for t in self.binding.sketch.tensors if t.optional]
        absent = {*case.absent, *(name for name in optional if name not in given)}
        return self.branches.sides(case.symbols, params, absent)

    def fits(self, case: ShapeCase) -> bool:
        """Whether the sketch may be launched at `case` without an empty tensor."""
        there = self.binding.with_numbers(case.numbers)
        if not there.sketch.phases and not there.sketch.params:
            return True
        return there.fits(case.symbols)

    def suits(self, case: ShapeCase) -> bool:
        """Whether the sketch may be launched at `case` and the task takes it, as far as running it
        is cheap: a window may be larger than a small image."""
        return self.fits(case) and (self.elements(case) > _ELEMENTS or self._takes(case))

    def reached(self, variant: Variant) -> set[Side]:
        """The sides that a variant takes at planned sizes."""
        found: set[Side] = set()
        for case in self.planned:
            other = attrs.evolve(case, numbers={**case.numbers, **variant.numbers})
            if self.fits(other):
                found |= self.sides(other)
        return found

    # ------------------------------------------------------------ what may be tried

    def _single(self) -> dict[str, Iterator[Variant]]:
        """The variants of each number, by param or init input, those that branches need first."""
        found: dict[str, Iterator[Variant]] = {}
        deciding = self.branches.names
        for position, name in self.binding.param_inputs.items():
            names = self.binding.description.names
            argument = names[position].lower() if position < len(names) else ""
            if argument in _AXES and name not in deciding:
                continue
            domain = self.binding.values.get(position)
            found[name] = self._passed(name, domain)
        followed = [
            param.name
            for param in self.binding.sketch.params
            if param.name not in found
            and param.name not in self.settings
            and param.name in self.binding.description.scalars
            and (param.name.lower() not in _AXES or param.name in deciding)
        ]
        if followed:
            for place, value in enumerate(self.binding.description.init_inputs):
                if place not in self.freedom.follows and isinstance(value, bool | int | float):
                    found[f"init input {place + 1}"] = self._built(place, value, followed)
        return found

    def _built(self, place: int, own: Scalar, followed: Sequence[str]) -> Iterator[Variant]:
        """Variants with another value of the init input at `place`, if params follow it."""
        names = [name for name in followed if self.binding.params[name] == own]
        literals = [v for name in names or followed for v in self.branches.literals(name)]
        for value in other_values(own, literals):
            try:
                scalars = self.task.built({place: value}).scalars
            except TaskFailure:
                continue
            numbers = {
                name: scalars[name]
                for name in followed
                if name in scalars and scalars[name] != self.binding.params[name]
            }
            if numbers:
                yield Variant(numbers, {place: value})

    def _passed(self, name: str, domain: Domain | None) -> Iterator[Variant]:
        """Variants with another value of a param that forward takes, a value of `--set` first."""
        own = self.binding.params[name]
        wanted = [self.settings[name]] if self.settings.get(name, own) != own else []
        for value in (*wanted, *other_values(own, self.branches.literals(name))):
            if domain is None or domain.holds(float(value)):
                yield Variant({name: value})

    def _combined(self, single: Mapping[str, Sequence[Variant]]) -> Iterator[Variant]:
        """Variants of one number, then of two, of those that branches depend on."""
        deciding = self.branches.names
        groups = [
            [one for one in found[:_ASKED] if not deciding.isdisjoint(one.numbers)]
            for found in single.values()
        ]
        yield from itertools.chain.from_iterable(groups)
        for first, second in itertools.combinations(groups, 2):
            for one, other in itertools.product(first, second):
                yield one.joined(other)

    # ------------------------------------------------------------ asking the task

    def _ask(self, variant: Variant) -> bool:
        """Whether the task takes the numbers of `variant` at the sizes of some case; for a
        signature, its outputs must have the shapes that this has there."""
        if variant in self.refused or self.left <= 0:
            return False
        for case in self._small():
            other = variant.at(case)
            if self.fits(other):
                self.left -= 1
                if self._takes(other):
                    return True
        self.refused.append(variant)
        return False

    def _small(self) -> Sequence[ShapeCase]:
        """Cases to run the task at: neither the smallest nor large ones, where there are others."""
        plain = [case for case in self.planned if not case.own and not case.numbers]
        cases = [case for case in plain or self.planned if self.elements(case) <= _ELEMENTS]
        return [*cases[len(cases) // 2 :][:2], *cases[:1]]

    def elements(self, case: ShapeCase) -> int:
        """Elements over all tensors of a case."""
        return sum(math.prod(shape) for shape in self.binding.shapes(case.symbols).values())

    def _takes(self, case: ShapeCase) -> bool:
        there = self.binding.with_numbers(case.numbers)
        substitutes = {**self.freedom.substitutes(case.symbols), **case.init}
        shapes = there.shapes(case.symbols)
        case = attrs.evolve(case, absent=(), own=False)
        try:
            states = self.task.built(substitutes).shapes if there.description.state else {}
            for source in there.tensors:
                if source.state and states.get(source.state) != shapes[source.tensor.name]:
                    return False
            inputs = draw(there, self.task, case, "non_negative", 0, substitutes)
            outputs = self.task.reference(inputs.arguments, inputs.state, substitutes)
        except UsageError:
            return False
        if there.sketch.phases:
            return True  # a sketch that takes the number says which shapes follow
        return [o.shape for o in outputs] == [shapes[tensor.name] for tensor in there.outputs]


def other_values(own: Scalar, literals: Sequence[Value]) -> list[Scalar]:
    """Other numbers of the kind of `own`: around those that it is compared with, then near it."""
    if isinstance(own, bool):
        return [not own]
    if isinstance(own, int):
        whole = [int(v) for v in literals if float(v).is_integer() and not isinstance(v, bool)]
        around = [value + step for value in whole for step in (0, 1, -1)]
        wanted: list[Scalar] = [*around, own + 1, 2 * own, own - 1, own + 2, 0, 1, 2, 3]
        return [v for v in dict.fromkeys(wanted) if v != own]
    near = [1.5 * own, 0.5 * own, own + 1.0, -own] if own else [0.5, 1.0, -0.5]
    around_floats = [float(v) + step for v in literals for step in (0.0, 0.5, -0.5)]
    return [v for v in dict.fromkeys([*around_floats, *near]) if v != own]


def with_variants(
    cases: list[tuple[ShapeCase, str]], varying: Varying, *, more: bool
) -> list[tuple[ShapeCase, str]]:
    """The cases, some of them with other numbers: each variant at sizes that tell results apart,
    and once more in small cases that are free. With `more`, cases are added for variants that find
    no such sizes."""
    found = list(cases)
    free = [p for p, (case, _) in enumerate(found) if not (case.own or case.numbers)]
    good = _telling_places(varying, found, free)
    kept = len(good) // 3  # the task's own numbers need some of these, too
    added: list[tuple[ShapeCase, str]] = []

    def place(variant: Variant, places: list[int]) -> bool:
        fitting = (p for p in places if varying.suits(variant.at(found[p][0])))
        chosen = next(fitting, None)
        if chosen is not None:
            found[chosen] = variant.at(found[chosen][0]), found[chosen][1]
            for known in (good, free):
                if chosen in known:
                    known.remove(chosen)
        return chosen is not None

    for variant in varying.accepted:
        if (len(good) > kept and place(variant, good)) or not more:
            continue
        again = _somewhere(varying, variant, [case for case, _ in cases])
        if again is not None:
            added.append((again, "normal"))
    small = [p for p in free if p not in good]
    for variant in varying.accepted[: len(small) // 2]:
        place(variant, small)
    return [*found, *added]


def _telling_places(
    varying: Varying, cases: Sequence[tuple[ShapeCase, str]], places: Sequence[int]
) -> list[int]:
    """The places of cases at which wrong rows and columns differ from right ones, the last first:
    no size is below both 3 and the task's. Kinds with rows of zeros come last."""
    own = varying.binding.symbols

    def small(case: ShapeCase) -> bool:
        return any(min(own[name], 3) > size for name, size in case.symbols.items())

    found = [place for place in reversed(places) if not small(cases[place][0])]
    return sorted(found, key=lambda place: cases[place][1] == "structured")


def _somewhere(varying: Varying, variant: Variant, cases: Sequence[ShapeCase]) -> ShapeCase | None:
    """A case of `variant` at the largest planned sizes that it fits; None for none."""
    order = _telling_places(varying, [(case, "") for case in cases], range(len(cases)))
    for case in (cases[place] for place in order):
        other = attrs.evolve(variant.at(case), name="other numbers", variant=0)
        if varying.elements(case) <= _ELEMENTS and varying.fits(other):
            return attrs.evolve(other, own=False)
    return None


def taken_sides(varying: Varying, ran: Sequence[ShapeCase]) -> tuple[str, ...]:
    """The sides of branches that the cases in `ran` took, in words."""
    taken = set().union(*(varying.sides(case) for case in ran))
    return tuple(
        decision.text(holds=holds)
        for place, decision in enumerate(varying.branches.decisions)
        for holds in (True, False)
        if (place, holds) in taken
    )


def not_taken(varying: Varying, ran: Sequence[ShapeCase]) -> tuple[list[str], list[str]]:
    """The sides of branches that no case in `ran` took: why they leave a verdict incomplete, and
    notes on those that the task rules out."""
    taken = set().union(*(varying.sides(case) for case in ran))
    gaps, notes = [], []
    for place, decision in enumerate(varying.branches.decisions):
        sides = [holds for holds in (True, False) if (place, holds) in taken]
        if not sides:
            continue  # inside another branch, which is reported itself
        for holds in (True, False):
            if holds in sides:
                continue
            refused = [one for one in varying.refused if (place, holds) in varying.reached(one)]
            text = f"the branch where {decision.text(holds=holds)}"
            if refused:
                notes.append(f"never taken: {text}: the task refuses {refused[0].text}")
            elif not decision.alone:
                notes.append(f"never taken: {text}, at the sizes and numbers that were tried")
            elif needs := _needed(varying, decision.names):
                notes.append(f"never taken: {text}: the task always gives {needs}")
            else:
                gaps.append(f"{text} ({_why(varying, decision.names)})")
    return gaps, notes


def _needed(varying: Varying, names: frozenset[str]) -> str:
    """The `names` in words, if the task always gives all of these as tensors; "" otherwise."""
    tensors = {source.tensor.name for source in varying.binding.tensors}
    omissible = set(varying.binding.omissible)
    return ", ".join(sorted(names)) if names <= tensors - omissible else ""


def _why(varying: Varying, names: frozenset[str]) -> str:
    """Why no case took a side that depends on `names`."""
    params = varying.binding.params
    fixed = [name for name in sorted(names) if name in params and name not in varying.movable]
    if fixed:
        listed = ", ".join(f"{name} = {params[name]!r}" for name in fixed)
        return f"{listed} in all runs: no number of the task changes it"
    optional = [tensor.name for tensor in varying.binding.sketch.tensors if tensor.optional]
    if never := [name for name in sorted(names) if name in optional]:
        return f"the task does not say both with and without {', '.join(never)}"
    return "no number that was tried leads there"

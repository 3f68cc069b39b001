"""How many terms are added up in the elements of each tensor: a plan, interpreted abstractly.

Every tile and tensor has an `Amount`: the terms that were added up to it, and the depth, which is
how many additions lie behind each of these terms, in this launch or those before. A sum multiplies
the terms by the lanes that it takes together, `a + b` adds those of both, a product sums over its
inner axis, and what is not linear (exp, a product with another tile) turns terms into depth. Copies
and maxima add up nothing.

Loops are run at their first, middle and last trip; what the middle trip adds, all trips between the
first and the last add. A bound that only memory holds counts as unbounded, and no sum has more
terms than the largest input has elements. An atomic addition takes together all additions of
programs and lanes that its indices do not tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from sketchc.base.diagnostics import InternalError
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value, evaluate, host_values
from sketchc.ir.walk import children, references
from sketchc.launch.inputs import MOST_TRIPS
from sketchc.lowering.plan import GridAxis, PhasePlan, Plan
from sketchc.ops.table import OPS, Category, Fact
from sketchc.runtime.cases.binding import Binding

if TYPE_CHECKING:
    from sketchc.runtime.cases.reach import Reach

Scope = dict[str, Value]
_NOTHING = frozenset({Category.INDEX, Category.RANDOM})
#: Functions of an index that give several lanes or programs one value.
_GATHERING = frozenset({"//", "%"})


@attrs.frozen
class Amount:
    """`terms` that were added up, each with `depth` additions behind it."""

    terms: float = 1.0
    depth: float = 0.0

    @property
    def total(self) -> float:
        """All additions behind an element."""
        return self.depth + (self.terms if self.terms > 1 else 0.0)

    def settled(self) -> Amount:
        """This amount as one term of a further sum: all its additions become depth."""
        return Amount(1.0, self.total)

    def larger(self, other: Amount) -> Amount:
        """The larger of this amount and `other`, component by component."""
        return Amount(max(self.terms, other.terms), max(self.depth, other.depth))

    def plus(self, other: Amount, times: float = 1.0) -> Amount:
        """The sum of both, component by component, with `other` taken `times` times."""
        return Amount(self.terms + times * other.terms, self.depth + times * other.depth)

    def since(self, before: Amount) -> Amount:
        """The part of this amount that was added since `before`."""
        return Amount(max(self.terms - before.terms, 0.0), max(self.depth - before.depth, 0.0))


INPUT = Amount()
EMPTY = Amount(0.0, 0.0)
Amounts = dict[str, Amount]


@attrs.frozen
class Sums:
    """The amounts of tensors as launches change them; `most` bounds the terms of any sum."""

    plan: Plan
    most: float

    def run(self, values: Mapping[str, Value]) -> Amounts:
        """The amounts of all tensors after the last step; `values` are the host's scalars."""
        return self._steps(self.plan.sketch.steps, {}, dict(values))

    def _steps(self, steps: Sequence[ir.HostStep], amounts: Amounts, scope: Scope) -> Amounts:
        for step in steps:
            match step:
                case ir.Launch(phase):
                    amounts = self._launch(phase, amounts, scope)
                case ir.HostFor():
                    amounts = self._loop(step, amounts, scope)
                case ir.HostIf(_, body, orelse):
                    ways = [self._steps(way, dict(amounts), dict(scope)) for way in (body, orelse)]
                    amounts = _joined(amounts, *ways)
                case ir.Fetch(name):
                    scope[name] = MOST_TRIPS
                case ir.Bind(name, value):
                    scope[name] = evaluate(value, scope)
        return amounts

    def _loop(self, loop: ir.HostFor, amounts: Amounts, scope: Scope) -> Amounts:
        bounds = [int(evaluate(bound, scope)) for bound in (loop.start, loop.stop, loop.step)]

        def trip(before: Amounts, place: int) -> Amounts:
            return self._steps(loop.body, dict(before), {**scope, loop.variable: place})

        return _repeated(amounts, range(*bounds), trip)

    def _launch(self, phase: int, amounts: Amounts, scope: Scope) -> Amounts:
        ways = [
            _Program(self, planned, grid, scope).finish(amounts)
            for planned in self.plan.phases
            if planned.index == phase
            for grid in _grid_scopes(planned.grid, scope)
        ]
        return _joined(amounts, *ways)


def _grid_scopes(axes: tuple[GridAxis, ...], values: Scope) -> Iterator[Scope]:
    """The first and the last iteration of every axis, combined."""
    if not axes:
        yield dict(values)
        return
    axis = axes[0]
    start, step = int(evaluate(axis.start, values)), int(evaluate(axis.step, values))
    last = start + step * max(int(evaluate(axis.count, values)) - 1, 0)
    for place in {start, last}:
        yield from _grid_scopes(axes[1:], {**values, axis.variable: place})


class _Program:
    """One program of a launch."""

    def __init__(self, sums: Sums, phase: PhasePlan, scope: Scope, host: Scope) -> None:
        self.sums, self.phase, self.scope = sums, phase, scope
        self.sketch = sums.plan.sketch
        #: How many iterations the grid axes and the loops around a statement have, by variable.
        self.around: dict[str, float] = {
            axis.variable: float(max(int(evaluate(axis.count, {**host, **scope})), 1))
            for axis in phase.grid
        }
        #: For each bound name, the loops and grid axes whose iterations it tells apart.
        self.follows: dict[str, frozenset[str]] = {}
        #: The tensor and the amount that atomic additions add to it, by statement.
        self.added: dict[int, tuple[str, Amount]] = {}

    def finish(self, before: Amounts) -> Amounts:
        """The amounts of tensors after this program and all that add to the same elements."""
        amounts = self._body(self.phase.body, dict(before), self.scope)
        tensors = {*before, *(tensor.name for tensor in self.sketch.tensors)}
        found = {name: amount for name, amount in amounts.items() if name in tensors}
        for name, amount in self.added.values():
            there = found.get(name, EMPTY)
            terms = min(there.terms + amount.terms, self.sums.most)
            found[name] = Amount(terms, max(there.depth, amount.depth))
        return found

    # ------------------------------------------------------------ statements

    def _body(self, body: Sequence[ir.Statement], amounts: Amounts, scope: Scope) -> Amounts:
        scope = dict(scope)
        for statement in body:
            match statement:
                case ir.Alloc(tile):
                    amounts[tile] = EMPTY
                case ir.Load(access, tile):
                    name = self.sketch.tensor(access.tensor).name
                    amounts[tile] = amounts.get(name, INPUT).settled()
                case ir.Store(tile, access):
                    name = self.sketch.tensor(access.tensor).name
                    amounts[name] = amounts.get(name, EMPTY).larger(amounts.get(tile, INPUT))
                case ir.Atomic():
                    self._atomic(statement, amounts, scope)
                case ir.Compute():
                    self._compute(statement, amounts, scope)
                case ir.Bind(name, value):
                    self._bind(name, value, scope)
                case ir.For():
                    amounts = self._loop(statement, amounts, scope)
                case ir.If(_, then, orelse):
                    ways = [self._body(way, dict(amounts), scope) for way in (then, orelse)]
                    amounts = _joined(amounts, *ways)
                case ir.Fetch():
                    pass
        return amounts

    def _bind(self, name: str, value: ir.Expr, scope: Scope) -> None:
        self.follows[name] = self._told_apart(value)
        if (known := _known(value, scope)) is not None:
            scope[name] = known

    def _loop(self, loop: ir.For, amounts: Amounts, scope: Scope) -> Amounts:
        bounds = [_known(bound, scope) for bound in (loop.start, loop.stop, loop.step)]
        unknown = None in bounds
        places = range(2) if unknown else range(*(int(bound or 0) for bound in bounds))
        count = self.sums.most if unknown else float(len(places))
        around = self.around
        self.around = {**around, loop.variable: max(count, 1.0)}

        def trip(before: Amounts, place: int) -> Amounts:
            inner = dict(scope) if unknown else {**scope, loop.variable: place}
            return self._body(loop.body, dict(before), inner)

        found = _repeated(amounts, places, trip, count if unknown else None)
        self.around = around
        return {name: self._bounded(amount) for name, amount in found.items()}

    def _bounded(self, amount: Amount) -> Amount:
        return Amount(min(amount.terms, self.sums.most), amount.depth)

    # ------------------------------------------------------------ operations

    def _compute(self, statement: ir.Compute, amounts: Amounts, scope: Scope) -> None:
        given = [self._operand(statement, operand, amounts) for operand in statement.operands]
        found = self._result(statement, given, amounts, scope)
        for name in statement.destinations:
            kept = amounts.get(name, EMPTY) if statement.masked else EMPTY
            amounts[name] = self._bounded(found).larger(kept)

    def _operand(
        self, statement: ir.Compute, operand: ir.Operand, amounts: Amounts
    ) -> Amount | None:
        """The amount of a tile; None for scalars and indices, which add up nothing. A tile that is
        broadcast (a mean that is subtracted) is one term of each lane, also of a sum over lanes."""
        if not isinstance(operand, ir.TileOperand):
            return None
        found = amounts.get(operand.tile, INPUT)
        if OPS[statement.operation].category is not Category.ELEMENTWISE:
            return found
        extents = self.sketch.tile(operand.tile).extents
        same = extents == self.sketch.tile(statement.destination).extents
        return found if same else found.settled()

    def _result(
        self,
        statement: ir.Compute,
        operands: Sequence[Amount | None],
        amounts: Amounts,
        scope: Scope,
    ) -> Amount:
        row = OPS[statement.operation]
        given = [amount for amount in operands if amount is not None]
        largest = INPUT if not given else given[0]
        for amount in given[1:]:
            largest = largest.larger(amount)
        depth = max((amount.total for amount in given), default=0.0)
        match row.category:
            case Category.MATRIX:
                found = Amount(self._lanes(statement, scope), depth)
                if row.accumulates:
                    before = amounts.get(statement.destination, EMPTY)
                    found = Amount(found.terms + before.terms, max(found.depth, before.depth))
                return found
            case Category.REDUCTION | Category.SCAN:
                lanes = self._lanes(statement, scope)
                match row.identity:
                    case "zero":
                        return Amount(largest.terms * lanes, largest.depth)
                    case "one":
                        return Amount(lanes, depth)
                    case _:
                        return largest
            case Category.COMPOSITE:
                return Amount(1.0, depth + self._lanes(statement, scope))
            case Category.LAYOUT | Category.SORTING:
                return largest
            case category if category in _NOTHING:
                return INPUT
            case _:
                return _elementwise(row.facts, operands, largest, depth)

    def _lanes(self, statement: ir.Compute, scope: Scope) -> float:
        """How many lanes of the first operand are combined in one lane of the destination."""
        source = statement.operands[0] if statement.operands else None
        if not isinstance(source, ir.TileOperand):
            return 1.0
        lanes = [
            self._extent(extent, source.domain[axis] if axis < len(source.domain) else None, scope)
            for axis, extent in enumerate(self.sketch.tile(source.tile).extents)
        ]
        if OPS[statement.operation].category is Category.MATRIX:
            return lanes[-2] if statement.attributes.get("trans_a") else lanes[-1]
        axes = statement.attributes.get("axis")
        chosen = axes if isinstance(axes, tuple) else (axes,) if isinstance(axes, int) else ()
        return math.prod(lanes[axis] for axis in chosen) if chosen else lanes[-1]

    def _extent(self, extent: ir.Expr, domain: ir.AxisDomain | None, scope: Scope) -> float:
        """The number of lanes of an axis that are in `domain`; `most` if that is not known."""
        known = _known(extent, scope)
        upper = self.sums.most if known is None else float(known)
        lower = 0.0
        if domain is not None:
            bounds = (_known(bound, scope) for bound in domain.upper)
            upper = min([upper, *(float(bound) for bound in bounds if bound is not None)])
            bounds = (_known(bound, scope) for bound in domain.lower)
            lower = max([lower, *(float(bound) for bound in bounds if bound is not None)])
        return max(upper - lower, 0.0)

    # ------------------------------------------------------------ atomics

    def _atomic(self, statement: ir.Atomic, amounts: Amounts, scope: Scope) -> None:
        """Note in `added` what all programs, trips and lanes add to one element."""
        if statement.operation != "add":
            return
        amount = amounts.get(statement.tile, INPUT)
        apart: frozenset[str] = frozenset()
        lanes = 1.0
        extents = [_known(e, scope) for e in self.sketch.tile(statement.tile).extents]
        sizes = [self.sums.most if extent is None else float(extent) for extent in extents]
        for subscript in statement.access.subscripts:
            match subscript:
                case ir.ScalarSubscript(index):
                    apart |= self._told_apart(index)
                case ir.SliceSubscript(lower):
                    apart |= self._told_apart(lower)
                case ir.IndexSubscript(value):
                    apart |= frozenset() if subscript.loaded else self._told_apart(value)
                    if subscript.loaded or _gathers(value):
                        axis = subscript.axis
                        lanes *= math.prod(sizes) if axis is None else sizes[axis]
        meeting = math.prod(n for name, n in self.around.items() if name not in apart)
        name = self.sketch.tensor(statement.access.tensor).name
        terms = min(max(amount.terms, 1.0) * lanes * meeting, self.sums.most)
        found = Amount(terms, amount.depth)
        _, before = self.added.get(id(statement), (name, EMPTY))
        self.added[id(statement)] = name, before.larger(found)

    def _told_apart(self, index: ir.Expr) -> frozenset[str]:
        """The loops and grid axes of which each iteration gives another `index`."""
        if _gathers(index):
            return frozenset()
        found: frozenset[str] = frozenset()
        for reference in references(index):
            found |= self.follows.get(reference.name, frozenset({reference.name}))
        return found


def _gathers(index: ir.Expr) -> bool:
    """Whether several values of a variable may give one index."""
    match index:
        case ir.Binary(operator) if operator in _GATHERING:
            return True
        case ir.Function() | ir.Choice() | ir.TileLanes():
            return True
        case _:
            return any(_gathers(child) for child in children(index))


def _elementwise(
    facts: frozenset[Fact], operands: Sequence[Amount | None], largest: Amount, depth: float
) -> Amount:
    """The amount of an element-wise result; `depth` is the most additions behind one operand."""
    given = [amount for amount in operands if amount is not None]
    if not given:
        return EMPTY
    if Fact.SELECTS in facts:
        return largest
    if Fact.ADDS in facts:
        if Fact.SCALES in facts:
            given = [_scaled(operands[:2]), *(a for a in operands[2:] if a is not None)]
        terms = sum(amount.terms for amount in given)
        return Amount(terms, max(amount.depth for amount in given))
    if Fact.SCALES in facts:
        return _scaled(given)
    return Amount(1.0, depth)


def _scaled(operands: Sequence[Amount | None]) -> Amount:
    """The amount of a product: the terms of the operand with most, the others turned into depth."""
    given = sorted((a for a in operands if a is not None), key=lambda amount: -amount.terms)
    if not given:
        return INPUT
    settled = max((amount.total for amount in given[1:]), default=0.0)
    return Amount(given[0].terms, max(given[0].depth, settled))


def _joined(*ways: Amounts) -> Amounts:
    """The largest amount of each name in any of `ways`."""
    found: Amounts = {}
    for amounts in ways:
        for name, amount in amounts.items():
            found[name] = found.get(name, EMPTY).larger(amount)
    return found


def _repeated(
    before: Amounts,
    places: range,
    trip: Callable[[Amounts, int], Amounts],
    count: float | None = None,
) -> Amounts:
    """The amounts after all trips of a loop, of which the first, the middle and the last are run;
    `count`: how many there are, where `places` does not say it."""
    if not places:
        return before
    times = float(len(places)) if count is None else count
    found = trip(before, places[0])
    if times <= 1:
        return found
    if times > 2:
        middle = trip(found, places[len(places) // 2])
        found = {
            name: (first := found.get(name, EMPTY)).plus(amount.since(first), times - 2)
            for name, amount in middle.items()
        }
    return trip(found, places[-1])


def _known(value: ir.Expr, values: Mapping[str, Value]) -> Value | None:
    """The value of a scalar expression; None for index tiles and for what memory decides."""
    try:
        return evaluate(value, values)
    except (KeyError, InternalError, ArithmeticError):
        return None


def adds_in_any_order(plan: Plan) -> bool:
    """Whether the plan adds floats atomically, so that the order of additions varies."""
    return any(
        isinstance(statement, ir.Atomic)
        and statement.operation == "add"
        and plan.sketch.tensor(statement.access.tensor).dtype.is_float
        for statement in walk.in_phases(plan.phases)
    )


def host_scope(
    sketch: ir.Sketch, phase: int, values: Mapping[str, Value]
) -> tuple[dict[str, Value], int]:
    """The host's scalars at a launch, loops at their first trip, and how often it is launched. What
    the host fetches is taken as `MOST_TRIPS`, the largest value in a random input."""
    scope = dict(values)
    trips = 1
    for step in walk.around(sketch.steps, phase):
        match step:
            case ir.HostFor(variable, start, stop, by):
                bounds = [int(evaluate(bound, scope)) for bound in (start, stop, by)]
                scope[variable] = bounds[0]
                trips *= len(range(*bounds))
            case ir.Fetch(name):
                scope[name] = MOST_TRIPS
            case ir.Bind(name, value):
                scope[name] = evaluate(value, scope)
            case ir.HostIf():
                pass
    return scope, trips


def reduction_lengths(
    plan: Plan, binding: Binding, symbols: Mapping[str, int], reach: Reach | None = None
) -> dict[str, int]:
    """An upper bound of the number of terms behind one element of each output. A signature says
    nothing about additions: there the bound is how many elements of an input reach one element of
    an output, or the size of the largest input where `reach` is None."""
    shapes = binding.shapes(symbols)
    names = [tensor.name for tensor in binding.outputs]
    if not plan.phases and reach is not None:
        return dict.fromkeys(names, reach.length(shapes))
    sizes = [math.prod(shapes[source.tensor.name]) for source in binding.tensors]
    largest = max(sizes, default=1) or 1
    if not plan.phases:
        return dict.fromkeys(names, largest)
    host = host_values(plan.sketch, symbols, binding.params)
    host |= {tensor.name: True for tensor in plan.sketch.tensors if tensor.optional}
    amounts = Sums(plan, float(largest)).run(host)
    return {name: max(1, math.ceil(amounts.get(name, INPUT).total)) for name in names}


def reduction_length(
    plan: Plan, binding: Binding, symbols: Mapping[str, int], reach: Reach | None = None
) -> int:
    """The largest of `reduction_lengths`."""
    return max(reduction_lengths(plan, binding, symbols, reach).values(), default=1)

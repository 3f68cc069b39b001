"""Sizes, params and optional tensors at which a sketch is run, such that a launch accepts them, and
the work of a run there.

Conditions tie sizes to each other and to params: `E == D*heads`, `N % 16 == 0`, a view with as many
elements as its tensor. A setting drawn at random is mended: where a condition fails, a symbol or
param that has part in it takes a value at which it holds, and so on with the others.

Numbers written in a sketch matter, too: `Y[(97*i) % N]` is wrong where N is 97. Sizes around those
in subscripts, bounds, conditions and extents are tried, and around their multiples.

How long a run takes and what it reaches is known before it is tried: a count of statements and
lanes, with the trips of loops and the sides of branches on the way, for which NumPy is not needed.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING, assert_never

from sketchc.base import records
from sketchc.base.diagnostics import InternalError
from sketchc.base.memo import per_sketch
from sketchc.checker.facts import ParamValues, Site, accessed, budget, concrete
from sketchc.interpreter.violations import RunCoverage
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value, constants_of, evaluate, given_values, param_value
from sketchc.ir.symbolic import conjuncts
from sketchc.ir.walk import expressions, names
from sketchc.launch.conditions import Kind, launch_conditions, refused

if TYPE_CHECKING:
    from numpy.random import Generator

    from sketchc.interpreter.api import Result

#: Sizes tried first for a symbol that does not suit, then larger ones.
_SMALL = tuple(range(1, 17))
_LARGER = (0, *range(17, 65), 72, 80, 96, 112, 128, 144, 160, 192, 256, 384, 512, 768, 1024)
#: The largest size, and how many of the values that suit are compared.
_LARGEST = 4096
_SUITED = 6
#: How often one setting is mended.
_ROUNDS = 8

_INTEGERS = (0, -1, 1, 2, 3)
_FLOATS = (0.0, -1.5, 2.5, 1.0)


@records.frozen
class Setting:
    """What a launch is given: symbols, params (those without default included), and which optional
    tensors are absent."""

    symbols: dict[str, int]
    params: ParamValues = records.field(factory=dict)
    absent: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for equal settings."""
        return (*self.symbols.items(), *sorted(self.params.items()), self.absent)


@records.frozen
class _Condition:
    """Something that must hold, and the symbols and params that decide it."""

    names: frozenset[str]
    wanted: ir.Expr
    any_value: bool = False  # it holds where `wanted` has any value at all

    def holds(self, values: Mapping[str, Value]) -> bool:
        """Whether the condition holds with these host scalars."""
        known = _known(self.wanted, values)
        return known is not None and (self.any_value or bool(known))


def _known(value: ir.Expr, values: Mapping[str, Value]) -> Value | None:
    """The value of a scalar; None where it cannot be computed, has lanes or depends on data."""
    try:
        return evaluate(value, values)
    except (InternalError, KeyError, ArithmeticError, ValueError):
        return None


class Settings:
    """Draws settings of one sketch."""

    def __init__(self, sketch: ir.Sketch, params: ParamValues, seed: int = 0) -> None:
        """`params`: values for those without default."""
        self.sketch = sketch
        self.given = params
        self.random = random.Random(seed)
        self.names = [symbol.name for symbol in sketch.symbols]
        self.limits = sketch.symbol_bounds
        self.optional = tuple(tensor.name for tensor in sketch.tensors if tensor.optional)
        self.numbers = sorted(_numbers(sketch))
        self.params = {param.name: param for param in sketch.params}
        lets = self._conditions((let.value for let in sketch.lets), any_value=True)
        self.conditions = (*lets, *self._conditions(_tying(sketch)))
        self.filled = self._conditions(_filled(sketch))
        values = [condition.wanted for condition in self.conditions]
        values += [let.value for let in sketch.lets]
        self.work = sum(map(walk.size, values))  # of evaluating one setting

    def options(self, name: str) -> tuple[int | float | bool, ...]:
        """Other values of a param: small ones, and those around the numbers of the sketch."""
        param = self.params[name]
        if param.dtype.is_float:
            return (*_FLOATS, *(float(number) for number in self.numbers if number <= 8))
        if not param.dtype.is_integer:
            return (False, True)
        around = (number + step for number in self.numbers for step in (0, 1, -1))
        values = dict.fromkeys((*_INTEGERS, *around))
        return tuple(value for value in values if value >= 0 or param.dtype.is_signed)

    def setting(
        self,
        sizes: Sequence[int],
        params: ParamValues | None = None,
        absent: tuple[str, ...] = (),
        keep: bool = False,
        others: Collection[str] = (),
        filled: bool = False,
    ) -> Setting | None:
        """A setting with these sizes, or ones near them, that a launch accepts; None for none. With
        `keep`, the `params` stay as given, else they change where that helps; the params `others`
        may leave their defaults; `filled`: outputs have elements."""
        drawn = zip(self.names, sizes, strict=True)
        symbols = {name: min(size, self._limit(name)) for name, size in drawn}
        given = {**self.given, **(params or {})}
        usual = {
            name: default
            for name in others
            if name not in given and (default := self.params[name].default) is not None
        }
        movable = usual.keys() | (set() if keep else given.keys())
        conditions = (*self.conditions, *(self.filled if filled else ()))
        found = self._mended({**symbols, **usual, **given}, movable, conditions)
        if found is None:
            return None
        chosen = {name: int(found[name]) for name in self.names}
        named = [*given, *(name for name in usual if found[name] != usual[name])]
        return Setting(chosen, {name: found[name] for name in named}, absent)

    def host_values(self, sketch: ir.Sketch, setting: Setting) -> dict[str, Value] | None:
        """All host scalars of the sketch, at this or other tile sizes; None where a launch refuses
        the setting."""
        values = given_values(sketch, setting.symbols, {**self.given, **setting.params})
        values |= {name: name not in setting.absent for name in self.optional}
        try:
            return values if refused(sketch, values) is None else None
        except KeyError:
            return None

    def is_empty(self, setting: Setting) -> bool:
        """Whether an output has no elements, so that nothing can be seen of it; False where a
        launch refuses the setting."""
        values = self.host_values(self.sketch, setting)
        return values is not None and not all(wanted.holds(values) for wanted in self.filled)

    def _limit(self, name: str) -> int:
        limit = self.limits[name]
        return 2**62 if limit is None else limit

    def _conditions(
        self, wanted: Iterable[ir.Expr], any_value: bool = False
    ) -> tuple[_Condition, ...]:
        deciding = partial(concrete.with_lets, self.sketch)
        return tuple(_Condition(deciding(names(part)), part, any_value) for part in wanted)

    # ------------------------------------------------------------ mending

    def _values(self, given: Mapping[str, Value]) -> dict[str, Value]:
        """All host scalars, but for lets that have no value."""
        budget.spend(self.work)
        return self._with_lets(self._without_lets(given), self.sketch.lets)

    def _without_lets(self, given: Mapping[str, Value]) -> dict[str, Value]:
        values: dict[str, Value] = constants_of(self.sketch)
        values.update(dict.fromkeys(self.optional, True))
        values.update(given)
        for param in self.sketch.params:
            default = 1 if param.default is None else param.default
            values[param.name] = param_value(param, given.get(param.name, default))
        return values

    @staticmethod
    def _with_lets(values: dict[str, Value], lets: Iterable[ir.Let]) -> dict[str, Value]:
        """The same dict `values`, with those of `lets` added that can be evaluated."""
        for let in lets:
            with suppress(ArithmeticError, ValueError, KeyError):
                values[let.name] = evaluate(let.value, values)
        return values

    def _mended(
        self,
        given: dict[str, Value],
        movable: Collection[str],
        conditions: Sequence[_Condition],
    ) -> dict[str, Value] | None:
        """The values `given`, changed one by one until all conditions hold; None where that fails.
        Symbols change, and the params in `movable`."""
        for _ in range(_ROUNDS):
            values = self._values(given)
            broken = next((c for c in conditions if not c.holds(values)), None)
            if broken is None:
                return given
            free = [name for name in self.names if name in broken.names]
            self.random.shuffle(free)
            names = (*free, *(name for name in sorted(movable) if name in broken.names))
            options = (
                option for name in names for option in self._suited(name, given, broken, conditions)
            )
            best = min(options, key=lambda option: option[0], default=None)
            if best is None:
                return None
            given = {**given, best[1]: best[2]}
        return None

    def _suited(
        self,
        name: str,
        given: Mapping[str, Value],
        broken: _Condition,
        conditions: Sequence[_Condition],
    ) -> Iterator[tuple[tuple[int, int], str, Value]]:
        """Values of one name with which the condition `broken` holds, as (rank, name, value): the
        rank is how many other conditions fail, then how near the value is."""
        values: Iterable[Value]
        values = self._near(name, given) if name in self.limits else self.options(name)
        count = 0
        known = self._without_lets(given)
        param = self.params.get(name)
        deciding = [let for let in self.sketch.lets if let.name in broken.names]
        for place, value in enumerate(values):
            budget.spend(self.work)
            changed = {**known, name: value if param is None else param_value(param, value)}
            if not broken.holds(self._with_lets({**changed}, deciding)):
                continue
            tried = self._with_lets(changed, self.sketch.lets)
            failing = sum(not condition.holds(tried) for condition in conditions)
            yield ((failing, place + (value == 0) * _LARGEST), name, value)
            count += 1
            if count >= _SUITED:
                return

    def _near(self, name: str, given: Mapping[str, Value]) -> list[int]:
        """Sizes of a symbol, the nearest first: small ones, multiples of the numbers of the sketch,
        and those around what conditions compare it with."""
        multiples = [n * k for n in self.numbers for k in (1, 2, 3, 5) if n > 16]
        compared = [size + step for size in self._compared(name, given) for step in (0, -1, 1)]
        largest = min(self._limit(name), _LARGEST)
        sizes = dict.fromkeys((*_SMALL, *_LARGER, *multiples, *compared))
        suited = [size for size in sizes if 0 <= size <= largest]
        return sorted(suited, key=lambda size: abs(size - int(given[name])))

    def _compared(self, name: str, given: Mapping[str, Value]) -> Iterator[int]:
        """The values with which conditions compare a symbol."""
        values = self._values(given)
        for condition in self.conditions:
            match condition.wanted:
                case ir.Binary("==" | "<=" | "<" | ">=" | ">", left, right):
                    for side, other in ((left, right), (right, left)):
                        if isinstance(side, ir.Ref) and side.name == name:
                            with suppress(ArithmeticError, ValueError, KeyError):
                                yield int(evaluate(other, values))


def _tying(sketch: ir.Sketch) -> Iterator[ir.Expr]:
    """The conditions of a launch that tie sizes and params to each other, part by part: not those
    that small sizes keep anyway, nor the domains of `let`s: each counts once, by its value."""
    for condition in launch_conditions(sketch):
        if condition.kind in (Kind.REQUIRE, Kind.DERIVED):
            yield from conjuncts(condition.holds)


def _filled(sketch: ir.Sketch) -> Iterator[ir.Expr]:
    """Conditions that every output has elements."""
    for tensor in sketch.tensors:
        for extent in tensor.extents if tensor.role in (ir.Role.OUT, ir.Role.INOUT) else ():
            yield ir.Binary(">", extent, ir.Literal(0))


def _numbers(sketch: ir.Sketch) -> set[int]:
    """The integers that conditions, bounds, subscripts and extents name, but 0 and 1."""
    constants = {c.name: c.value for c in sketch.constants if not c.tunable}
    parts = _declared(sketch)
    parts += [require.condition for require in sketch.requires]
    parts += [extent for view in sketch.views for extent in view.extents]
    parts += [part for step in walk.statements(sketch.steps) for part in walk.expressions(step)]
    parts += [part for each in walk.in_phases(sketch.phases) for part in expressions(each)]
    return {number for number in _integers(parts, constants) if number > 1}


def _declared(sketch: ir.Sketch) -> list[ir.Expr]:
    """The values of lets, and the extents of tensors."""
    extents = [extent for tensor in sketch.tensors for extent in tensor.extents]
    return [*(let.value for let in sketch.lets), *extents]


def _integers(expressions: Iterable[ir.Expr], constants: Mapping[str, Value]) -> Iterator[int]:
    """The integers in expressions, without their signs: literals, and the constants named."""
    for part in chain.from_iterable(map(walk.parts, expressions)):
        value = part.value if isinstance(part, ir.Literal) else None
        if isinstance(part, ir.Ref):
            value = constants.get(part.name)
        if isinstance(value, int) and not isinstance(value, bool):
            yield abs(value)


def volume(sizes: Iterable[int]) -> int:
    """The product of sizes, the empty ones left out."""
    return prod(max(1, size) for size in sizes)


def sample_params(sketch: ir.Sketch) -> ParamValues:
    """A value for each param that has no default."""
    return {
        param.name: 0.5 if param.dtype.is_float else 2 if param.dtype.is_integer else True
        for param in sketch.params
        if param.default is None
    }


#: The largest number whose sizes are tried, and how many numbers are: the largest ones, since the
#: small ones divide sizes that are tried anyway.
LARGEST = 4096
MOST_NUMBERS = 6

#: Sizes for a number v, as (factor, offset).
_AROUND = ((1, 0), (2, 0), (1, -1), (1, 1), (3, 0))
#: Sizes of the other symbols: others are tried at the sizes around tile sizes.
_REST = 3


def literal_settings(
    sketch: ir.Sketch, sites: Sequence[Site], tried: Collection[int]
) -> Iterator[dict[str, int]]:
    """Sizes of all symbols around each number of the sketch: one symbol at a time, then all;
    constants whose own sizes were `tried` are left out."""
    names = [symbol.name for symbol in sketch.symbols]
    numbers = sorted(_literal_numbers(sketch, sites, tried), reverse=True)[:MOST_NUMBERS]
    seen: set[tuple[int, ...]] = set()
    for (factor, offset), number in product(_AROUND, numbers):
        size = number * factor + offset
        one = (tuple(size if other == name else _REST for other in names) for name in names)
        for key in (*one, (size,) * len(names)):
            if key not in seen:
                seen.add(key)
                yield dict(zip(names, key, strict=True))


def _literal_numbers(sketch: ir.Sketch, sites: Sequence[Site], tried: Collection[int]) -> set[int]:
    """The integers that decide what is accessed, but 0, 1 and 2."""
    constants = {c.name: c.value for c in sketch.constants if c.value not in tried}
    parts = [expression for site in sites for expression in accessed(site)]
    parts += [step.value for site in sites for step in site.path if isinstance(step, ir.Bind)]
    parts += _declared(sketch)
    parts += [require.condition for require in sketch.requires if not require.generated]
    return {number for number in _integers(parts, constants) if 2 < number <= LARGEST}


class TooMuch(Exception):
    """More work than the limit."""


@records.define
class Workload:
    """Counts up to a limit: one statement costs as much as `LANES_PER_STATEMENT` lanes."""

    limit: int
    total: int = 0
    reached: RunCoverage = records.field(factory=RunCoverage)

    def add(self, cost: int) -> None:
        """Count work. Raises `TooMuch` beyond the limit."""
        budget.spend(3)
        self.total += cost
        if self.total > self.limit:
            raise TooMuch


#: What the interpreter does for one statement takes as long as this many lanes.
LANES_PER_STATEMENT = 2000
#: So many lanes are one unit of what `budget` counts.
LANES_PER_UNIT = 50


def executed(
    sketch: ir.Sketch, setting: Setting, limit: int, memory_limit: int, generator: Generator
) -> tuple[int, Result] | None:
    """The work of one run on random inputs that collects what breaks, and its result; None where
    that is more work than `limit`, or no indices exist. Raises `DiagnosticError` and `UsageError`
    where a launch refuses."""
    from sketchc.interpreter.api import Options, interpret
    from sketchc.interpreter.inputs import indices_exist, random_inputs
    from sketchc.interpreter.launch import bind_values, tensor_shapes

    symbols, params = setting.symbols, setting.params
    values = bind_values(sketch, symbols, params)
    shapes = tensor_shapes(sketch, values, memory_limit)
    if not indices_exist(sketch, shapes, params):
        return None
    counted = rehearse(sketch, values, limit)
    if counted is None:
        return None
    cost = counted.total
    inputs = random_inputs(sketch, shapes, generator, params)
    inputs = {name: array for name, array in inputs.items() if name not in setting.absent}
    budget.spend(cost // LANES_PER_UNIT)
    options = Options(collect=True, shuffle=1, memory_limit=memory_limit)
    return cost, interpret(sketch, inputs, symbols, params, options)


def rehearse(sketch: ir.Sketch, host: Mapping[str, Value], limit: int) -> Workload | None:
    """The work of one run with these host scalars, and what it reaches; None for more than `limit`.
    A condition that depends on data is not noted, and its first side is counted (on the host,
    both); a loop whose bounds depend on data counts once. Of a loop whose variable decides nothing
    inside, one iteration is counted for all."""
    counted = Workload(limit)
    sizes: dict[str, int] = {}
    deciding = _deciding(sketch)

    def count(
        steps: Sequence[ir.HostStep | ir.Statement], values: dict[str, Value], launched: bool
    ) -> None:
        for step in steps:
            match step:
                case ir.Launch(index):
                    count(sketch.phases[index].body, values, True)
                case ir.For() | ir.HostFor():
                    trips, before = _trips_of(step, values, counted), counted.total
                    alike = step.variable not in deciding
                    for place in trips[:1] if alike else trips:
                        counted.add(LANES_PER_STATEMENT // 10)
                        count(step.body, {**values, step.variable: place}, launched)
                    if alike and len(trips) > 1:
                        counted.add((counted.total - before) * (len(trips) - 1))
                case ir.If() | ir.HostIf():
                    holds = _holds(step, values, counted)
                    if holds is not False:
                        count(step.body, values, launched)
                    if holds is False or (holds is None and not launched):
                        count(step.orelse, values, launched)
                case ir.Bind(name, value):
                    values = _bound(name, value, values)
                    if launched and name not in values:
                        counted.add(5 * LANES_PER_STATEMENT)
                case ir.Alloc(tile):
                    counted.add(LANES_PER_STATEMENT + sizes[tile])
                case ir.Load(tile=tile) | ir.Store(tile=tile) | ir.Atomic(tile=tile):
                    counted.add(2 * LANES_PER_STATEMENT + sizes[tile])
                case ir.Compute(destination=tile):
                    counted.add(2 * LANES_PER_STATEMENT + sizes[tile])
                case ir.Fetch():
                    counted.add(LANES_PER_STATEMENT)
                case _:
                    assert_never(step)

    try:
        for tile in sketch.tiles:
            sizes[tile.name] = volume(int(_known(e, host) or 1) for e in tile.extents)
        count(sketch.steps, dict(host), False)
    except TooMuch:
        return None
    return counted


@per_sketch
def _deciding(sketch: ir.Sketch) -> frozenset[str]:
    """The names that have part in the bounds of a loop or in a condition, on the host or in a
    launch."""
    found: set[str] = set()
    bound: dict[str, set[str]] = {}
    inside = (step for phase in sketch.phases for step in walk.statements(phase.body))
    for step in chain(walk.statements(sketch.steps), inside):
        match step:
            case ir.For() | ir.HostFor():
                found.update(*map(names, (step.start, step.stop, step.step)))
            case ir.If() | ir.HostIf():
                found |= names(step.condition)
            case ir.Bind(name, value):
                bound.setdefault(name, set()).update(names(value))
            case _:
                pass
    rest = list(found)
    while rest:
        name = rest.pop()
        rest += bound.pop(name, set()) - found
        found.update(rest)
    return frozenset(found)


def _bound(name: str, value: ir.Expr, values: Mapping[str, Value]) -> dict[str, Value]:
    """The values with `name` added; without it where it is an index tile, or depends on data."""
    known = _known(value, values)
    if known is not None:
        return {**values, name: known}
    return {other: kept for other, kept in values.items() if other != name}


def _holds(
    branch: ir.If | ir.HostIf, values: Mapping[str, Value], counted: Workload
) -> bool | None:
    """The outcome of a condition, noted as reached; None where it depends on data."""
    known = _known(branch.condition, values)
    if known is None:
        return None
    counted.reached.branch(branch.span.start, bool(known))
    return bool(known)


def _trips_of(loop: ir.For | ir.HostFor, values: Mapping[str, Value], counted: Workload) -> range:
    try:
        start, stop, step = (int(evaluate(e, values)) for e in (loop.start, loop.stop, loop.step))
    except (KeyError, ArithmeticError):
        return range(1)
    found = range(start, stop, step) if step else range(0)
    counted.reached.loop(loop.span.start, len(found))
    return found

"""Which sizes a kernel is tried at: the task's own, and sizes around the tiles of its plan.

For every symbol: 1, T-1, T, T+1 and a prime, where T is the tile size of the loops over it. Instead
of all combinations, each case gives one symbol (its focus) the next of its sizes and rotates the
others, so that every symbol meets each of its sizes, beside different neighbours. Sizes that break
a `require` give way to the next larger ones that do not; where a case still breaks one, the symbols
out of focus move to the nearest sizes that do not. Where hints of the task restrict its sizes, each
size gives way to the next that the hints allow; the ends of the allowed ranges are tried, too,
sizes between them, and all upper ends at once.

A kernel with a list of the sizes that are tried is right at these and wrong elsewhere. So for
kernels that others wrote, the prime, one more size, and T where nothing says how the kernel is
tiled, are drawn from the secret seed of a verdict (`DrawnSizes`). Where hints restrict a size, a
prime and one more size between their ends are drawn for every kernel, since the sizes around its
tiles may all lie outside.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod

import attrs
import numpy as np

from sketchc.base.diagnostics import InternalError, UsageError
from sketchc.checker.api import LANES_PER_STATEMENT
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import Value, evaluate, host_sample
from sketchc.lowering.plan import PhasePlan, Plan
from sketchc.runtime.cases.binding import Binding, OtherSignatureError
from sketchc.runtime.cases.lists import list_name
from sketchc.runtime.cases.sizes import elements, nearest, refusal, tensor_shapes
from sketchc.runtime.cases.sums import host_scope
from sketchc.runtime.tasks.outline import Domain

NO_VALUE = (KeyError, ArithmeticError, ValueError, InternalError)
Sizes = Mapping[str, int]


def effort(plan: Plan, symbols: Mapping[str, int], params: Mapping[str, Value]) -> int:
    """The cost of a run in lanes: those of its tensors and tiles, and each statement as so many as
    take as long. Without phases, the sum of all sizes stands for the number of statements."""
    sketch = plan.sketch
    moved = elements(tensor_shapes(sketch, symbols, params))
    if not plan.phases:
        return moved + LANES_PER_STATEMENT * sum(symbols.values())
    host = host_sample(sketch, symbols, params)
    host |= {tensor.name: True for tensor in sketch.tensors if tensor.optional}
    sizes = {
        tile.name: prod(max(_value(extent, host), 1) for extent in tile.extents)
        for tile in sketch.tiles
    }
    total = moved
    for number, phase in enumerate(sketch.phases):
        try:
            scope, launches = host_scope(sketch, number, host)
        except NO_VALUE:
            scope, launches = dict(host), 1
        total += launches * _body(phase.body, scope, sizes)
    return total


def _body(
    body: tuple[ir.Statement, ...], values: dict[str, Value], sizes: Mapping[str, int]
) -> int:
    total = 0
    for statement in body:
        match statement:
            case ir.For(variable, start, stop, step):
                bounds = [_value(bound, values) for bound in (start, stop, step)]
                trips = len(range(bounds[0], bounds[1], bounds[2] or 1))
                inner = {**values, variable: bounds[0]}
                each = _body(statement.body, inner, sizes) if trips else 0
                total += trips * (LANES_PER_STATEMENT // 10 + each)
            case ir.If(_, then, orelse):
                total += max(_body(then, values, sizes), _body(orelse, values, sizes))
            case ir.Bind(name, value):
                try:
                    values = {**values, name: evaluate(value, values)}
                except NO_VALUE:
                    total += LANES_PER_STATEMENT
            case ir.Load(tile=tile) | ir.Store(tile=tile) | ir.Atomic(tile=tile):
                total += LANES_PER_STATEMENT + sizes[tile]
            case ir.Compute(destination=tile):
                total += LANES_PER_STATEMENT + sizes[tile]
            case ir.Alloc() | ir.Fetch():
                total += LANES_PER_STATEMENT
    return total


def _value(expression: ir.Expr, values: Mapping[str, Value]) -> int:
    try:
        return int(evaluate(expression, values))
    except NO_VALUE:
        return 1


#: Separates the random numbers for sizes from those for inputs, which have the same seed.
_STREAM = 0x512E5
#: T is one of these multiples of 32: a multiple of every small tile.
_TILE, _MULTIPLES = 32, (1, 2, 3)
#: How far above 2 T the prime may lie.
_BEYOND = 32
#: The largest size that is drawn from a range that goes further, and the size that a range goes up
#: to at least where no hint restricts it.
MOST, LEAST = 4096, 512
#: How often a size is drawn until one is a prime.
_TRIES = 64


def is_prime(number: int) -> bool:
    """Whether no smaller number but 1 divides it."""
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


@attrs.frozen
class DrawnSizes:
    """Draws the sizes of one verdict. Each symbol has its own draws, by its place in the sketch."""

    seed: int

    def _random(self, place: int, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, _STREAM, place, purpose])

    def tile(self, place: int) -> int:
        """T for the symbol at `place`, where nothing says how a kernel is tiled."""
        return _TILE * int(self._random(place, 0).choice(_MULTIPLES))

    def prime(self, place: int, tile: int, limit: int | None = None) -> int:
        """A prime above `tile` + 1; a smaller prime where `limit` leaves no other, and 1 where it
        leaves none at all."""
        high = 2 * tile + _BEYOND
        high = high if limit is None else min(high, limit)
        primes = [n for n in range(tile + 2, high + 1) if is_prime(n)]
        primes = primes or [n for n in range(2, high + 1) if is_prime(n)] or [1]
        return int(self._random(place, 1).choice(primes))

    def inner(self, place: int, domain: Domain, most: int = MOST, *, prime: bool = False) -> int:
        """A size between the ends of `domain`, rather a small one than a large one, up to `most` or
        four times the lower end; with `prime`, a prime where one is found. An end where there is
        nothing between the ends."""
        random = self._random(place, 3 if prime else 2)
        low, high = domain.integer_range
        low, high = max(low, 1), min(high, max(most, 4 * low))
        found = domain.near(low)
        for _ in range(_TRIES):
            drawn = low + int((high - low) * random.random() ** 2)
            size = domain.near(min(max(drawn, low + 1), max(high - 1, low)))
            if size not in domain.integer_range:
                found = size
                if not prime or is_prime(size):
                    break
        return found


#: Sizes that replace those of the symbols out of focus where a case would be too large.
_SMALL = (17, 5, 3, 2, 1)
#: How far above a size that breaks a require the next one is looked for.
_REACH = 512
#: The case of all upper ends may have so many times the elements of the task's own sizes.
_CORNER = 4
#: How often drawn sizes are made small enough and runnable, in turns, before they are left out.
_SETTLING = 8
#: No smaller sizes are drawn where hints do not ask for them.
_TINY = 8
#: Stands in for T where an axis is covered by one tile.
_WHOLE_AXIS = 32


@attrs.frozen
class ShapeCase:
    """One assignment of all symbols. `own`: exactly the task's sizes. `absent`: optional tensors
    that are not given. `variant`: which of the task's lists of inputs has these sizes; 0 is the one
    that the sketch was bound to. `drawn`: all sizes that may vary were drawn. `numbers` are the
    params with other values than in that list, `init` the model's init inputs, by position, that
    these params follow. `tiles`: the tile sizes of another build, where the case does not run the
    one that is verified."""

    name: str
    symbols: Mapping[str, int]
    own: bool = False
    absent: tuple[str, ...] = ()
    variant: int = 0
    drawn: bool = False
    numbers: Mapping[str, Value] = attrs.field(factory=dict)
    tiles: Mapping[str, Value] = attrs.field(factory=dict)
    init: Mapping[int, Value] = attrs.field(factory=dict)

    @property
    def text(self) -> str:
        """The sizes and numbers, in words."""
        found = {**self.symbols, **self.numbers}.items()
        sizes = ", ".join(f"{name}={value}" for name, value in found)
        if self.tiles:
            sizes += " in tiles " + ", ".join(f"{n}={value}" for n, value in self.tiles.items())
        return f"{sizes}, without {', '.join(self.absent)}" if self.absent else sizes


@attrs.frozen
class Limits:
    """What one run may cost: elements over all tensors, programs over all launches, and the cost of
    interpreting it (`effort`). `longest` is the largest size that is drawn."""

    elements: int
    programs: int
    longest: int = MOST
    effort: int = 1 << 62

    def allow(self, needed: Limits) -> bool:
        """Whether a run that needs the elements and programs of `needed` is within these limits."""
        return needed.elements <= self.elements and needed.programs <= self.programs


INTERPRETED = Limits(elements=1 << 17, programs=24, longest=512, effort=1 << 25)
#: Windows of 63 by 64 over channels are too much for C++, too: about ten seconds.
NATIVE = Limits(elements=1 << 22, programs=1 << 20, effort=1 << 33)
#: The task's own sizes on a target that is not interpreted; the reference needs float64 of it all.
#: 2^28 elements, and a quarter more for the weights beside them.
OWN = Limits(elements=5 << 26, programs=1 << 40)


def tile_sizes(plan: Plan) -> dict[str, set[int]]:
    """Symbol -> the tile sizes of the loops over it; {1} for a loop over single elements, and the
    empty set where one tile covers the axis."""
    constants = {constant.name: constant.value for constant in plan.sketch.constants}
    found: dict[str, set[int]] = {symbol.name: set() for symbol in plan.sketch.symbols}
    # Numbers of iterations: of grid axes, and of loops that remain.
    bounds = [axis.count for phase in plan.phases for axis in phase.grid]
    loops = (one for one in walk.in_phases(plan.phases) if isinstance(one, ir.For))
    bounds += [ir.Binary("cdiv", loop.stop, loop.step) for loop in loops]
    for bound in bounds:
        symbols, sizes = set(), set()
        for leaf in walk.parts(bound):
            match leaf:
                case ir.Ref(name, ir.NameKind.SYMBOL):
                    symbols.add(name)
                case ir.Ref(name, ir.NameKind.CONSTANT) if isinstance(constants[name], int):
                    sizes.add(int(constants[name]))
                case ir.Literal(value) if isinstance(value, int):
                    sizes.add(value)
        larger = {size for size in sizes if size > 1}
        for symbol in symbols:
            found[symbol] |= larger or {1}
    return found


def candidates(plan: Plan, draws: DrawnSizes | None = None) -> dict[str, tuple[int, ...]]:
    """The sizes at which each symbol is tried, within its upper bound. With `draws` the prime is
    drawn, and so is T where the plan does not say it."""
    found = {}
    by_symbol = tile_sizes(plan)
    for place, symbol in enumerate(plan.sketch.symbols):
        sizes, limit = by_symbol[symbol.name], symbol.upper_bound
        if sizes == {1}:
            tried = [1, 2, 3, 5]
            if draws is not None:
                tried.append(draws.prime(place, max(tried), limit))
        else:
            whole_axis = _WHOLE_AXIS if draws is None else draws.tile(place)
            tile = max(sizes, default=whole_axis)
            if draws is None:
                prime = next(n for n in itertools.count(tile + tile // 2) if is_prime(n))
            else:
                prime = draws.prime(place, tile, limit)
            tried = [1, tile - 1, tile, tile + 1, prime]
        kept = [size for size in tried if limit is None or size <= limit]
        found[symbol.name] = tuple(dict.fromkeys(kept)) or (1,)
    return found


def launched(sketch: ir.Sketch, phase: PhasePlan, host: Mapping[str, Value]) -> tuple[int, int]:
    """How often a phase is launched, and how many programs each launch has."""
    scope, launches = host_scope(sketch, phase.index, host)
    return launches, prod(max(int(evaluate(axis.count, scope)), 0) for axis in phase.grid)


def cost_at(plan: Plan, symbols: Mapping[str, int], params: Mapping[str, Value]) -> Limits:
    """Elements and programs of one run, also at sizes that a launch refuses (a `let` without a
    value). Raises as `evaluate` does where a number of launches or programs has no value."""
    values = host_sample(plan.sketch, symbols, params)
    programs = 0
    for phase in plan.phases:
        programs += prod(launched(plan.sketch, phase, values))
    return Limits(elements(tensor_shapes(plan.sketch, symbols, params)), programs)


@attrs.frozen
class OtherLists:
    """The cases of the task's further lists of inputs, `notes` on the lists, and `gaps`: lists that
    a kernel of this signature must serve and that are not run."""

    cases: tuple[ShapeCase, ...] = ()
    notes: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


@attrs.frozen
class Trials:
    """The cases of one candidate: its plan and binding, the symbols that are `free` to have other
    sizes than the task's, and what one run may cost."""

    plan: Plan
    binding: Binding
    free: frozenset[str]
    limits: Limits

    def affordable(self) -> Limits:
        """The limits, raised to twice what the smallest sizes need: where not even these fit,
        smaller cases would not help (32 groups are 32 programs at any size)."""
        ones = {name: 1 if name in self.free else n for name, n in self.binding.symbols.items()}
        least = self._runnable(ones, self.free)
        needed, limits = self._cost(least), self.limits
        if needed is None:
            return limits
        return attrs.evolve(
            limits,
            elements=max(limits.elements, 2 * needed.elements),
            programs=max(limits.programs, 2 * needed.programs),
            effort=max(limits.effort, 2 * effort(self.plan, least, self.binding.params)),
        )

    def own(self) -> ShapeCase:
        """The task's sizes; where they are too large, the largest free symbols are halved until the
        run fits."""
        symbols = self._scaled(self.binding.symbols, self.free)
        if symbols == dict(self.binding.symbols):
            return ShapeCase("own sizes", symbols, own=True)
        return ShapeCase("own sizes, scaled down", symbols)

    def others(self) -> OtherLists:
        """The sizes of the task's further lists of inputs (`get_inputs_dyn_list`), scaled down like
        its own."""
        cases: dict[tuple[Value, ...], ShapeCase] = {}
        notes, gaps = [], []
        for number, values in enumerate(self.binding.description.others, 1):
            name = list_name(self.binding.description, number)
            try:
                own = self.binding.symbols_of(values)
            except UsageError as error:
                notes.append(f"{name} is not tried: {error}")
                if not isinstance(error, OtherSignatureError):
                    gaps.append(f"{name}, which is not run: {error}")
                continue
            numbers = self.binding.numbers_of(values)
            there = self.binding.with_numbers(numbers)
            symbols = attrs.evolve(self, binding=there)._scaled(own, self.free)
            if refused := refusal(self.plan.sketch, symbols, there.params):
                gaps.append(f"{name}, which is not run: the sketch refuses it ({refused})")
                continue
            case = ShapeCase(f"own sizes {number + 1}, scaled down", symbols, numbers=numbers)
            if symbols == own:
                title = f"own sizes {number + 1}"
                case = ShapeCase(title, symbols, own=True, variant=number, numbers=numbers)
            else:
                notes.append(f"{name} is scaled down to {case.text}")
            cases.setdefault((*symbols.values(), *there.params.values()), case)
        first = (*self.own().symbols.values(), *self.binding.params.values())
        found = tuple(case for sizes, case in cases.items() if sizes != first)
        return OtherLists(found, tuple(notes), tuple(gaps))

    def ragged(self, draws: DrawnSizes | None = None) -> list[ShapeCase]:
        """Cases around the tile sizes, smallest first; empty when no symbol is free. With `draws`,
        T is drawn where the plan does not say it, and so is the prime."""
        own = self.binding.symbols
        sizes = {
            name: self._allowed(name, found)
            for name, found in candidates(self.plan, draws).items()
            if name in self.free
        }
        if not sizes:
            return []
        names = list(sizes)
        ones = {n: self.binding.domain(n).near(1) if n in self.free else own[n] for n in own}
        ones = self._runnable(ones, self.free)
        smallest = set(ones.values()) == {1} or not self.binding.sizes
        cases = [ShapeCase("all ones" if smallest else "smallest", ones)]
        for number in range(max(len(found) for found in sizes.values())):
            symbols = dict(own)
            for offset, name in enumerate(names):
                symbols[name] = sizes[name][(number + offset) % len(sizes[name])]
            focus = names[number % len(names)]
            symbols = self._reduced(symbols, self.free, self._smaller, focus)
            symbols = self._runnable(symbols, self.free - {focus}, self.free)
            cases.append(ShapeCase(f"ragged {number + 1}", symbols))
        return self._smallest_first(cases)

    def drawn(self, draws: DrawnSizes) -> list[ShapeCase]:
        """Cases of drawn sizes, which are not known in advance, smallest first: for each of the
        free symbols a prime, and one more size."""
        cases = []
        tiles = candidates(self.plan, draws)
        for prime in (True, False):
            wanted = dict(self.binding.symbols)
            for place, symbol in enumerate(self.plan.sketch.symbols):
                if symbol.name in self.free:
                    domain = self._range(symbol, tiles[symbol.name])
                    size = draws.inner(place, domain, self.limits.longest, prime=prime)
                    wanted[symbol.name] = self._allowed(symbol.name, [size], ends=False)[0]
            cases += [ShapeCase("drawn sizes", s, drawn=True) for s in self._each_kept(wanted)]
        return self._smallest_first(cases)

    def corner(self) -> list[ShapeCase]:
        """At most one case: all sizes at the upper ends that hints set, where a run can have so
        many elements, or four times those at the task's own sizes."""
        symbols = dict(self.binding.symbols)
        for name, domain in self.binding.sizes.items():
            if name in self.free and (end := domain.integer_range[1]) < 1 << 40:
                symbols[name] = end
        if symbols == dict(self.binding.symbols) or self._refused(symbols):
            return []
        limits = self.limits
        own = cost_at(self.plan, self.binding.symbols, self.binding.params).elements
        if limits.longest != INTERPRETED.longest:
            most = max(limits.elements, min(_CORNER * own, OWN.elements))
            limits = attrs.evolve(limits, elements=most)
        fits = attrs.evolve(self, limits=limits)._fits(symbols)
        return [ShapeCase("largest", symbols)] if fits else []

    def _smallest_first(self, cases: Sequence[ShapeCase]) -> list[ShapeCase]:
        """The cases that may be launched, by elements; of several with the same sizes the first."""
        distinct: dict[tuple[int, ...], ShapeCase] = {}
        for case in cases:
            distinct.setdefault(tuple(case.symbols.values()), case)
        kept = [case for case in distinct.values() if not self._refused(case.symbols)]
        params = self.binding.params
        return sorted(kept, key=lambda case: cost_at(self.plan, case.symbols, params).elements)

    # ------------------------------------------------------------ what a run takes

    def _cost(self, symbols: Sizes) -> Limits | None:
        """Elements and programs of one run; None where there is no launch."""
        try:
            return cost_at(self.plan, symbols, self.binding.params)
        except (ArithmeticError, ValueError):
            return None

    def _fits(self, symbols: Sizes) -> bool:
        needed, limits = self._cost(symbols), self.limits
        if needed is None:
            return True  # `_smallest_first` leaves such a case out
        if not limits.allow(needed):
            return False
        most = limits.effort
        return most >= 1 << 62 or effort(self.plan, symbols, self.binding.params) <= most

    def _costliest(self, symbols: Sizes, movable: list[str]) -> str:
        """The largest of the `movable` symbols among those that make the run too large."""

        def programs(symbols: Sizes) -> int:
            needed = self._cost(symbols)
            return 0 if needed is None else needed.programs

        before = programs(symbols)
        if before > self.limits.programs:
            halved = {name: {**symbols, name: symbols[name] // 2} for name in movable}
            movable = [name for name in movable if programs(halved[name]) < before] or movable
        return max(movable, key=lambda name: symbols[name])

    def _reduced(
        self,
        symbols: Sizes,
        movable: frozenset[str],
        smaller: Callable[[str, int], int | None],
        focus: str = "",
    ) -> dict[str, int]:
        """The sizes, the largest of the movable ones made smaller until a run fits; the symbol in
        focus last of all."""
        found = dict(symbols)
        while not self._fits(found):
            tried = {name: smaller(name, found[name]) for name in found if name in movable}
            left = {name: size for name, size in tried.items() if size is not None}
            if not left:
                break
            largest = self._costliest(found, [name for name in left if name != focus] or [focus])
            found[largest] = left[largest]
        return found

    def _scaled(self, own: Sizes, movable: frozenset[str]) -> dict[str, int]:
        """Sizes of the task, the largest ones halved until a run fits, within the hints."""
        symbols = self._reduced(
            own, movable, lambda name, size: self.binding.domain(name).at_most(size // 2)
        )
        if refusal(self.plan.sketch, symbols, self.binding.params):
            for name in [name for name in symbols if symbols[name] != own[name]]:
                reach = range(symbols[name], symbols[name] + _REACH)
                trials = ({**symbols, name: size} for size in reach)
                symbols = next((t for t in trials if not self._refused(t)), symbols)
        return symbols

    def _smaller(self, name: str, size: int) -> int | None:
        """The next size of `_SMALL`, or one that hints allow near it; None if none is below."""
        near = (self.binding.domain(name).near(small) for small in _SMALL if small < size)
        found = next(near, size)
        return found if found < size else None

    # ------------------------------------------------------------ what may be launched

    def _refused(self, symbols: Sizes) -> bool:
        """Whether a launch at these sizes must be refused, or hints of the task leave them out."""
        refused = refusal(self.plan.sketch, symbols, self.binding.params)
        return not self.binding.allows(symbols) or bool(refused)

    def _runnable(self, symbols: dict[str, int], *movable: frozenset[str]) -> dict[str, int]:
        """The nearest sizes at which the sketch may be launched without an empty tensor (a window
        larger than its image), which frameworks refuse. The first of `movable` move, else the
        next."""
        for names in movable:
            found = nearest(self.plan.sketch, symbols, self.binding.params, names, least=1)
            if found is not None and self.binding.allows(found):
                return found
        return symbols

    def _allowed(self, name: str, sizes: Sequence[int], *, ends: bool = True) -> tuple[int, ...]:
        """The sizes of one symbol, each moved up to the next at which the sketch may be launched
        with the other symbols at the task's sizes; those where there is none stay as they are. With
        `ends`, the ends of the range that the hints allow are added."""
        own, domain = self.binding.symbols, self.binding.domain(name)
        tried = list(sizes)
        if ends and name in self.binding.sizes:
            tried += [end for end in domain.integer_range if end < 1 << 40]
        found = []
        for size in map(domain.near, tried):
            further = [own[name]] if own[name] > size else []
            larger = itertools.chain(range(size, size + _REACH), further)
            found.append(next((n for n in larger if not self._refused({**own, name: n})), size))
        return tuple(dict.fromkeys(found))

    def _each_kept(self, wanted: Sizes) -> Iterator[dict[str, int]]:
        """Cases such that each free symbol has its wanted size in one of them, if any can. Where a
        case is too large, the other sizes are halved: the drawn size stays unknown in advance.
        Making sizes runnable can make a case too large again: an image grows to its window."""
        met: set[str] = set()
        for name in wanted:
            if name in self.free and name not in met:
                others = self.free - {name}
                symbols = self._scaled(wanted, others)
                for _ in range(_SETTLING):
                    symbols = self._runnable(self._scaled(symbols, self.free), others, self.free)
                    if self._fits(symbols):
                        met |= {name, *(each for each in wanted if symbols[each] == wanted[each])}
                        yield symbols
                        break

    def _range(self, symbol: ir.Symbol, tried: Sequence[int]) -> Domain:
        """The sizes that a symbol may have: those that the hints allow, else up to the task's own,
        or further where that is small. Tiny sizes are left out: a list can hold them all."""
        if (domain := self.binding.sizes.get(symbol.name)) is not None:
            return domain
        most = max(self.binding.symbols[symbol.name], *tried, LEAST)
        most = most if symbol.upper_bound is None else max(min(most, symbol.upper_bound), 1)
        return Domain(min(_TINY, (most + 1) // 2), most)

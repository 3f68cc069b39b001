"""Which sizes a kernel is tried at: the task's own, and sizes around the tiles of its plan.

For every symbol: 1, T-1, T, T+1 and a prime, where T is the tile size of the loops over it. Instead
of all combinations, each case gives one symbol (its focus) the next of its sizes and rotates the
others, so that every symbol meets each of its sizes, beside different neighbours. Sizes that break
a `require` give way to the next larger ones that do not; where a case still breaks one, the symbols
out of focus move to the nearest sizes that do not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import prod

import attrs

from sketchc import ir
from sketchc.evaluate import Value, evaluate, host_values
from sketchc.lowering.plan import Plan, walk
from sketchc.runtime.frontends.binding import Binding
from sketchc.runtime.frontends.sizes import elements, nearest, refusal, tensor_shapes
from sketchc.runtime.verify.chains import host_scope

#: Sizes that replace those of the symbols out of focus where a case would be too large.
_SMALL = (17, 5, 3, 2, 1)
#: How far above a size that breaks a require the next one is looked for.
_REACH = 512
#: Stands in for T where an axis is covered by one tile.
_WHOLE_AXIS = 32


@attrs.frozen
class ShapeCase:
    """One assignment of all symbols. `own`: exactly the task's sizes. `absent`: optional tensors
    that are not given."""

    name: str
    symbols: Mapping[str, int]
    own: bool = False
    absent: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        sizes = ", ".join(f"{name}={value}" for name, value in self.symbols.items())
        return f"{sizes}, without {', '.join(self.absent)}" if self.absent else sizes


@attrs.frozen
class Limits:
    """What one run may cost: elements over all tensors, and programs over all launches."""

    elements: int
    programs: int


INTERPRETED = Limits(elements=1 << 17, programs=24)
NATIVE = Limits(elements=1 << 22, programs=1 << 20)
#: The task's own sizes on a target that is not interpreted; the reference needs float64 of it all.
OWN = Limits(elements=1 << 28, programs=1 << 40)


def _names(expression: ir.Expr) -> Iterator[ir.Expr]:
    """All leaves of an expression."""
    match expression:
        case ir.Unary(_, operand):
            yield from _names(operand)
        case ir.Binary(_, left, right):
            yield from _names(left)
            yield from _names(right)
        case ir.Function(_, arguments):
            for argument in arguments:
                yield from _names(argument)
        case _:
            yield expression


def _loop_bounds(plan: Plan) -> Iterator[ir.Expr]:
    """The expressions that say how often something is done: grid axes and loops that remain."""
    for phase in plan.phases:
        for axis in phase.grid:
            yield axis.count
        for statement in walk(phase.body):
            if isinstance(statement, ir.For):
                yield ir.Binary("cdiv", statement.stop, statement.step)


def tile_sizes(plan: Plan) -> dict[str, set[int]]:
    """Symbol -> the tile sizes of the loops over it; {1} for a loop over single elements, and the
    empty set where one tile covers the axis."""
    constants = {constant.name: constant.value for constant in plan.sketch.constants}
    found: dict[str, set[int]] = {symbol.name: set() for symbol in plan.sketch.symbols}
    for bound in _loop_bounds(plan):
        symbols, sizes = set(), set()
        for leaf in _names(bound):
            match leaf:
                case ir.Ref(name, ir.NameKind.SYMBOL):
                    symbols.add(name)
                case ir.Ref(name, ir.NameKind.CONSTANT) if isinstance(constants[name], int):
                    sizes.add(int(constants[name]))
                case ir.Literal(value) if isinstance(value, int):
                    sizes.add(value)
                case _:
                    pass
        larger = {size for size in sizes if size > 1}
        for symbol in symbols:
            found[symbol] |= larger or {1}
    return found


def candidates(plan: Plan) -> dict[str, tuple[int, ...]]:
    """The sizes at which each symbol is tried, its upper bound kept."""
    found = {}
    by_symbol = tile_sizes(plan)
    for symbol in plan.sketch.symbols:
        sizes = by_symbol[symbol.name]
        tiles = {size for size in sizes if size > 1}
        if sizes == {1}:
            tried = [1, 2, 3, 5]
        else:
            tile = max(tiles, default=_WHOLE_AXIS)
            tried = [1, tile - 1, tile, tile + 1, next_prime(tile + tile // 2)]
        limit = symbol.upper_bound
        kept = [size for size in tried if limit is None or size <= limit]
        found[symbol.name] = tuple(dict.fromkeys(kept)) or (1,)
    return found


def next_prime(number: int) -> int:
    """The smallest prime that is at least `number`."""
    candidate = max(number, 2)
    while any(candidate % divisor == 0 for divisor in range(2, int(candidate**0.5) + 1)):
        candidate += 1
    return candidate


def cost(plan: Plan, binding: Binding, symbols: Mapping[str, int]) -> Limits:
    """Elements and programs of one run."""
    return cost_at(plan, symbols, binding.params)


def cost_at(plan: Plan, symbols: Mapping[str, int], params: Mapping[str, Value]) -> Limits:
    """Elements and programs of one run."""
    values = host_values(plan.sketch, symbols, params)
    programs = 0
    for phase in plan.phases:
        scope, launches = host_scope(plan.sketch, phase.index, values)
        counts = (max(int(evaluate(axis.count, scope)), 0) for axis in phase.grid)
        programs += launches * prod(counts)
    return Limits(elements(tensor_shapes(plan.sketch, symbols, params)), programs)


def _fits(plan: Plan, binding: Binding, symbols: Mapping[str, int], limits: Limits) -> bool:
    try:
        needed = cost(plan, binding, symbols)
    except (ArithmeticError, ValueError):
        return True  # no launch at all: such a case is left out later
    return needed.elements <= limits.elements and needed.programs <= limits.programs


def _costliest(
    plan: Plan, binding: Binding, symbols: Mapping[str, int], movable: list[str], limits: Limits
) -> str:
    """The largest of the `movable` symbols among those that make the run too large."""
    before = cost(plan, binding, symbols)
    if before.programs > limits.programs:
        halved = {
            name: cost(plan, binding, {**symbols, name: symbols[name] // 2}) for name in movable
        }
        fewer = [name for name in movable if halved[name].programs < before.programs]
        movable = fewer or movable
    return max(movable, key=lambda name: symbols[name])


def own_case(plan: Plan, binding: Binding, free: frozenset[str], limits: Limits) -> ShapeCase:
    """The task's sizes; where they are too large, the largest free symbols are halved until the run
    fits."""
    symbols = dict(binding.symbols)
    while not _fits(plan, binding, symbols, limits):
        movable = [name for name in symbols if name in free and symbols[name] > 1]
        if not movable:
            break
        largest = _costliest(plan, binding, symbols, movable, limits)
        symbols[largest] = max(symbols[largest] // 2, 1)
    if refusal(plan.sketch, symbols, binding.params):
        for name in [name for name in symbols if symbols[name] != binding.symbols[name]]:
            reach = range(symbols[name], symbols[name] + _REACH)
            trials = ({**symbols, name: size} for size in reach)
            better = (t for t in trials if not refusal(plan.sketch, t, binding.params))
            symbols = next(better, symbols)
    if symbols == dict(binding.symbols):
        return ShapeCase("own sizes", symbols, own=True)
    return ShapeCase("own sizes, scaled down", symbols)


def ragged_cases(
    plan: Plan, binding: Binding, free: frozenset[str], limits: Limits
) -> list[ShapeCase]:
    """Cases around the tile sizes, smallest first; empty when no symbol is free."""
    sizes = {
        name: _allowed(plan, binding, name, found)
        for name, found in candidates(plan).items()
        if name in free
    }
    if not sizes:
        return []
    names = list(sizes)
    rounds = max(len(found) for found in sizes.values())
    cases: dict[tuple[int, ...], ShapeCase] = {}
    ones = {name: 1 if name in free else value for name, value in binding.symbols.items()}
    ones = _runnable(plan, binding, ones, free)
    cases[tuple(ones.values())] = ShapeCase("all ones", ones)
    for number in range(rounds):
        symbols = dict(binding.symbols)
        for offset, name in enumerate(names):
            symbols[name] = sizes[name][(number + offset) % len(sizes[name])]
        focus = names[number % len(names)]
        _shrink(plan, binding, symbols, focus, free, limits)
        symbols = _runnable(plan, binding, symbols, free - {focus}, free)
        cases.setdefault(tuple(symbols.values()), ShapeCase(f"ragged {number + 1}", symbols))
    kept = [c for c in cases.values() if not refusal(plan.sketch, c.symbols, binding.params)]
    return sorted(kept, key=lambda case: cost(plan, binding, case.symbols).elements)


def _runnable(
    plan: Plan, binding: Binding, symbols: dict[str, int], *movable: frozenset[str]
) -> dict[str, int]:
    """The nearest sizes at which the sketch may be launched and no tensor is empty (a window larger
    than its image): frameworks refuse those. Some symbols move, or else more of them."""
    for names in movable:
        found = nearest(plan.sketch, symbols, binding.params, names, least=1)
        if found is not None:
            return found
    return symbols


def _allowed(plan: Plan, binding: Binding, name: str, sizes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of one symbol, each moved up to the next at which the sketch may be launched with
    the other symbols at the task's sizes; those where there is none stay as they are."""

    def holds(size: int) -> bool:
        return not refusal(plan.sketch, {**binding.symbols, name: size}, binding.params)

    own = binding.symbols[name]
    found = []
    for size in sizes:
        larger = itertools.chain(range(size, size + _REACH), [own] if own > size else [])
        found.append(next((candidate for candidate in larger if holds(candidate)), size))
    return tuple(dict.fromkeys(found))


def _shrink(
    plan: Plan,
    binding: Binding,
    symbols: dict[str, int],
    focus: str,
    free: frozenset[str],
    limits: Limits,
) -> None:
    """Make a case small enough, the symbol in focus last of all."""
    while not _fits(plan, binding, symbols, limits):
        others = [name for name in symbols if name in free and name != focus and symbols[name] > 1]
        largest = _costliest(plan, binding, symbols, others or [focus], limits)
        smaller = [size for size in _SMALL if size < symbols[largest]]
        if not smaller:
            break
        symbols[largest] = smaller[0]

"""How extents of outputs follow extents of inputs: formulas, learnt by asking at other sizes.

Each symbol is varied alone first, at several sizes. An extent along such a line must be of the form
a*n + b or a*((n + b) // s) + c + d*n; where several forms agree with all answers, the task is asked
at a size at which they differ, until one is left. Extents that follow several symbols are products
or sums of such lines, quotients of sums, or sums of products; answers at sizes that vary together
decide. Every formula has to hold at the task's own sizes, too. So a formula that fits one size only
is never offered: an extent without a formula is `None`.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial, reduce

import attrs

from sketchc.ir import nodes as ir

#: Sizes of all symbols, and extents of all outputs in order.
Sizes = tuple[int, ...]
Extents = tuple[int, ...]
#: The extents at some sizes; None where the task refuses them.
Ask = Callable[[Sizes], Extents | None]

#: Steps from the first size at which a symbol is varied alone.
_STEPS = (0, 1, 2, 3, 5, 8, 14, 33, 97)
#: So many sizes at least, of one symbol and of all together, must be answered.
_FEWEST = 3
_MOST_DIVISOR = 64
#: The slopes of a line that has a division as well.
_SLOPES = (1, 2, -1)
#: Forms are told apart up to so many steps from the first size, and with so many questions.
_REACH = 160
_MOST_QUESTIONS = 24
#: How many sizes that vary together are tried.
_MOST_JOINT = 12
#: Sums of products have at most so many symbols.
_MOST_FACTORS = 4


@attrs.frozen
class _Line:
    """slope*n + scale*((n + shift) // divisor) + constant; `scale` is 0 without a division."""

    slope: int
    constant: int
    scale: int = 0
    shift: int = 0
    divisor: int = 1

    def at(self, size: int) -> int:
        whole = self.scale * ((size + self.shift) // self.divisor) if self.scale else 0
        return self.slope * size + whole + self.constant

    @property
    def is_constant(self) -> bool:
        return not self.slope and not self.scale

    @property
    def primitive(self) -> _Line:
        """The line divided by the common factor of all its parts; the first part is positive."""
        factor = math.gcd(self.slope, self.scale, self.constant) or 1
        factor *= -1 if (self.slope or self.scale) < 0 else 1
        return self._with(self.slope // factor, self.scale // factor, self.constant // factor)

    @property
    def unit(self) -> _Line:
        """The term that varies, taken once: n, or (n + shift) // divisor."""
        return self._with(0, 1, 0) if self.scale else _Line(1, 0)

    def _with(self, slope: int, scale: int, constant: int) -> _Line:
        return _Line(slope, constant, scale, self.shift, self.divisor)

    def terms(self, symbol: ir.Expr) -> list[tuple[int, ir.Expr]]:
        """The terms that vary with the symbol, each as a factor and an expression."""
        found: list[tuple[int, ir.Expr]] = [(self.slope, symbol)] if self.slope else []
        if self.scale:
            whole = ir.Binary("//", _plus(symbol, self.shift), ir.Literal(self.divisor))
            found.append((self.scale, whole))
        return found

    def expression(self, symbol: ir.Expr) -> ir.Expr:
        line = self
        if self.scale and not self.slope and self.constant % self.scale == 0:
            # As pooling is mostly written: (n - kernel) // stride + 1.
            ones = 1 if self.scale == 1 else 0
            shift = self.shift + (self.constant // self.scale - ones) * self.divisor
            line = attrs.evolve(self, shift=shift, constant=ones)
        return _total(line.terms(symbol), line.constant)


def _plus(expression: ir.Expr, shift: int) -> ir.Expr:
    if shift == 0:
        return expression
    return ir.Binary("+" if shift > 0 else "-", expression, ir.Literal(abs(shift)))


def _total(terms: Sequence[tuple[int, ir.Expr]], constant: int) -> ir.Expr:
    """The sum of products of numbers and expressions; those with positive numbers come first."""
    found: ir.Expr | None = None
    for factor, expression in sorted(terms, key=lambda term: term[0] < 0):
        size = factor if found is None else abs(factor)
        scaled = expression if size == 1 else ir.Binary("*", ir.Literal(size), expression)
        found = scaled if found is None else ir.Binary("+" if factor > 0 else "-", found, scaled)
    return ir.Literal(constant) if found is None else _plus(found, constant)


@attrs.frozen
class Question:
    """What is known at first: sizes that the task takes (`start`), and the own sizes with the
    extents there. `steps`: a symbol is varied by multiples of its step."""

    start: Sizes
    own: Sizes
    wanted: Extents
    steps: Sizes


def solve(ask: Ask, question: Question, names: Sequence[ir.Expr]) -> list[ir.Expr | None]:
    """The formula of each extent in the symbols `names`; None for one that has none."""
    solver = _Solver(ask, question)
    return [solver.formula(extent, names) for extent in range(len(question.wanted))]


@attrs.define
class _Solver:
    """Asks for extents, and keeps the answers."""

    ask: Ask
    question: Question
    known: dict[Sizes, Extents | None] = attrs.field(factory=dict)
    joint_done: bool = False

    def __attrs_post_init__(self) -> None:
        start, steps = self.question.start, self.question.steps
        self.known[self.question.own] = self.question.wanted
        for place, (size, step) in enumerate(zip(start, steps, strict=True)):
            for factor in _STEPS:
                self.at(self._moved(place, size + factor * step))

    def at(self, sizes: Sizes) -> Extents | None:
        if sizes not in self.known:
            self.known[sizes] = self.ask(sizes)
        return self.known[sizes]

    def _moved(self, place: int, size: int) -> Sizes:
        start = self.question.start
        return (*start[:place], size, *start[place + 1 :])

    def formula(self, extent: int, names: Sequence[ir.Expr]) -> ir.Expr | None:
        """A formula for one extent that gives every answer of the task, if there is one."""
        lines: dict[int, _Line] = {}
        for place in range(len(names)):
            line = self._line(place, extent)
            if line is None:
                return None
            if not line.is_constant:
                lines[place] = line
        if len(lines) > 1 and not self._ask_jointly():
            return None
        first = self.known[self.question.start] if names else self.question.wanted
        if first is None:
            return None
        for found in self._laws(lines, first[extent], extent):
            if all(found.at(n) == answer[extent] for n, answer in self.known.items() if answer):
                return found.expression(names)
        return None

    # ------------------------------------------------------------ one symbol

    def _line(self, place: int, extent: int) -> _Line | None:
        """The line that an extent is on while one symbol varies; None where no known form fits."""
        points = {}
        start, step = self.question.start[place], self.question.steps[place]
        for factor in _STEPS:
            answer = self.at(self._moved(place, start + factor * step))
            if answer is not None:
                points[start + factor * step] = answer[extent]
        if len(points) < _FEWEST:  # the first size may be among the largest that the task takes
            below = (start - factor * step for factor in _STEPS[1:] if start > factor * step)
            answers = {size: self.at(self._moved(place, size)) for size in below}
            points |= {size: a[extent] for size, a in answers.items() if a is not None}
        if len(points) < _FEWEST:
            return None
        for tried in (_affine(points), _divided(points, (0,)), _divided(points, _SLOPES)):
            found = [line for line in tried if all(line.at(n) == points[n] for n in points)]
            found = self._told_apart(found, place, extent)
            if found:
                return found[0]
        return None

    def _told_apart(self, lines: list[_Line], place: int, extent: int) -> list[_Line]:
        """Those of `lines` that give the answers at further sizes, too, where they differ; none
        where too many questions leave several."""
        start, step = self.question.start[place], self.question.steps[place]
        sizes = [start + factor * step for factor in range(_REACH)]
        for _ in range(_MOST_QUESTIONS):
            if len(lines) < 2:
                return lines
            tried = (size for size in sizes if len({line.at(size) for line in lines}) > 1)
            size = next(tried, None)
            if size is None:
                return lines
            sizes = sizes[sizes.index(size) + 1 :]
            answer = self.at(self._moved(place, size))
            if answer is not None:
                lines = [line for line in lines if line.at(size) == answer[extent]]
        return []

    # ------------------------------------------------------------ several symbols

    def _ask_jointly(self) -> bool:
        """Ask at sizes that vary together, once; whether enough were answered."""
        if not self.joint_done:
            self.joint_done = True
            chance = random.Random(0)
            pairs = list(zip(self.question.start, self.question.steps, strict=True))
            answered = 0
            for _ in range(_MOST_JOINT):
                sizes = tuple(size + chance.choice(_STEPS[:-2]) * step for size, step in pairs)
                answered += self.at(sizes) is not None
                if answered >= 2 * _FEWEST:
                    break
        start = self.question.start
        several = [
            sizes
            for sizes, answer in self.known.items()
            if answer is not None and sum(a != b for a, b in zip(sizes, start, strict=True)) > 1
        ]
        return len(several) >= _FEWEST

    def _laws(self, lines: Mapping[int, _Line], first: int, extent: int) -> Iterator[_Law]:
        """Formulas that the lines may be parts of, the simplest first."""
        start = self.question.start
        if len(lines) < 2:
            yield _Polynomial(lines, {(place,): 1 for place in lines}, 0 if lines else first)
            return
        factors = {place: line.primitive for place, line in lines.items()}
        product = math.prod(line.at(start[place]) for place, line in factors.items())
        if product and first % product == 0:
            yield _Polynomial(factors, {tuple(factors): first // product}, 0)
        rest = first - sum(line.at(start[place]) for place, line in lines.items())
        yield _Polynomial(lines, {(place,): 1 for place in lines}, rest)
        yield from _quotients(lines, start, first)
        if len(lines) <= _MOST_FACTORS and not any(
            line.slope and line.scale for line in lines.values()
        ):
            units = {place: line.unit for place, line in lines.items()}
            if (found := self._multilinear(units, extent)) is not None:
                yield found

    def _multilinear(self, units: Mapping[int, _Line], extent: int) -> _Polynomial | None:
        """The sum of products of these units that gives the answers at the corners of a box."""
        start, steps = self.question.start, self.question.steps
        far = {place: start[place] + steps[place] * unit.divisor for place, unit in units.items()}
        values: dict[tuple[int, ...], Fraction] = {}
        places = tuple(units)
        subsets = [c for n in range(len(places) + 1) for c in itertools.combinations(places, n)]
        for chosen in subsets:
            corner = tuple(far[p] if p in chosen else size for p, size in enumerate(start))
            answer = self.at(corner)
            if answer is None:
                return None
            values[chosen] = Fraction(answer[extent])
        found: dict[tuple[int, ...], int] = {}
        # Divided differences, the products of most units first; what they explain is taken off.
        left = dict(values)
        for chosen in reversed(subsets):
            difference = sum(
                (-1) ** (len(chosen) - len(part)) * left[part]
                for part in subsets
                if set(part) <= set(chosen)
            )
            steps_of = [units[p].at(far[p]) - units[p].at(start[p]) for p in chosen]
            if not all(steps_of):
                return None
            factor = Fraction(difference) / math.prod(steps_of)
            if factor.denominator != 1:
                return None
            if not factor:
                continue
            found[chosen] = int(factor)
            for part in subsets:
                at = [units[p].at(far[p] if p in part else start[p]) for p in chosen]
                left[part] -= factor * math.prod(at)
        return _Polynomial(units, found, 0)


@attrs.frozen
class _Polynomial:
    """A sum of products of lines: `terms` maps the symbols of a product to its factor."""

    lines: Mapping[int, _Line]
    terms: Mapping[tuple[int, ...], int]
    constant: int

    def at(self, sizes: Sizes) -> int:
        return self.constant + sum(
            factor * math.prod(self.lines[place].at(sizes[place]) for place in places)
            for places, factor in self.terms.items()
        )

    def expression(self, names: Sequence[ir.Expr]) -> ir.Expr:
        terms: list[tuple[int, ir.Expr]] = []
        constant = self.constant
        if len(self.terms) == 1 and not constant and list(self.terms.values()) == [1]:
            (places,) = self.terms
            if len(places) == 1:
                return self.lines[places[0]].expression(names[places[0]])
        for places, factor in self.terms.items():
            if len(places) == 1:
                line = self.lines[places[0]]
                terms += [(factor * f, e) for f, e in line.terms(names[places[0]])]
                constant += factor * line.constant
            elif not places:
                constant += factor
            else:
                parts = [self.lines[place].expression(names[place]) for place in places]
                terms.append((factor, reduce(partial(ir.Binary, "*"), parts)))
        return _total(terms, constant)


@attrs.frozen
class _Quotient:
    """scale * ((sum of factor * symbol + shift) // divisor) + constant."""

    factors: Mapping[int, int]
    scale: int
    shift: int
    divisor: int
    constant: int

    def at(self, sizes: Sizes) -> int:
        numerator = sum(factor * sizes[place] for place, factor in self.factors.items())
        return self.scale * ((numerator + self.shift) // self.divisor) + self.constant

    def expression(self, names: Sequence[ir.Expr]) -> ir.Expr:
        shift, constant = self.shift, self.constant
        if constant % self.scale == 0:
            constant = 1 if self.scale == 1 else 0
            shift += (self.constant - constant) // self.scale * self.divisor
        numerator = _total([(f, names[place]) for place, f in self.factors.items()], shift)
        whole = ir.Binary("//", numerator, ir.Literal(self.divisor))
        return _total([(self.scale, whole)], constant)


_Law = _Polynomial | _Quotient


def _quotients(lines: Mapping[int, _Line], start: Sizes, first: int) -> Iterator[_Quotient]:
    """Quotients of sums that rise along each line as it does: an image's extent less that of a
    kernel, which is another symbol, divided by a stride."""
    divisor = math.lcm(*(line.divisor for line in lines.values()))
    rates = {p: line.slope + Fraction(line.scale, line.divisor) for p, line in lines.items()}
    scale = math.gcd(*(int(rate * divisor) for rate in rates.values()))
    if divisor == 1 or divisor > _MOST_DIVISOR or not scale:
        return
    factors = {place: int(rate * divisor) // scale for place, rate in rates.items()}
    for shift in range(divisor):
        found = _Quotient(factors, scale, shift, divisor, 0)
        yield attrs.evolve(found, constant=first - found.at(start))


# ---------------------------------------------------------------- candidates for one symbol


def _affine(points: Mapping[int, int]) -> Iterator[_Line]:
    """The line a*n + b through the first two points, if a is whole."""
    (size, value), (other, value_2), *_ = points.items()
    if (value_2 - value) % (other - size) == 0:
        slope = (value_2 - value) // (other - size)
        yield _Line(slope, value - slope * size)


def _divided(points: Mapping[int, int], slopes: Sequence[int]) -> Iterator[_Line]:
    """The lines slope*n + a*((n + b) // s) + c through the points at both ends."""
    size, last = min(points), max(points)
    places = itertools.product(slopes, range(2, _MOST_DIVISOR + 1), range(_MOST_DIVISOR))
    for slope, divisor, shift in places:
        few, many = (size + shift) // divisor, (last + shift) // divisor
        if shift >= divisor or few == many:
            continue
        rise = points[last] - points[size] - slope * (last - size)
        if rise and rise % (many - few) == 0:
            scale = rise // (many - few)
            constant = points[size] - slope * size - scale * few
            yield _Line(slope, constant, scale, shift, divisor)

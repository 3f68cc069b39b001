"""Affine forms over numbered atoms: the arithmetic under domains and proofs.

An *atom* is a base variable (symbol, loop variable, lane) or a derived quantity that stands for a
sub-expression which is not affine: `floor(e / c)`, a product of atoms, `min`/`max`, or something
opaque. Every derived atom carries the facts that define it, so that integer division by constants
is exact, and a product of symbols is one fresh non-negative quantity (LANGUAGE section 6).

A `Linear` maps atoms to integer coefficients; atom `ONE` (0) holds the constant term. Linears are
never changed once made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import TypeAlias

import sketchc.checker.facts.budget as budget
from sketchc.base import records
from sketchc.ir.symbolic import add as add
from sketchc.ir.symbolic import multiplied, without

Linear: TypeAlias = Mapping[int, int]
ONE = 0

#: Products of more factors than this are not taken apart.
FACTOR_LIMIT = 5


def constant(value: int) -> Linear:
    """The form of a number."""
    return {ONE: value}


def scale(linear: Linear, factor: int) -> dict[int, int]:
    """The form times a number."""
    return {atom: factor * coefficient for atom, coefficient in linear.items()} if factor else {}


def constant_value(linear: Linear) -> int | None:
    """The value of a form without variables, else None."""
    if not linear:
        return 0
    if len(linear) == 1 and ONE in linear:
        return linear[ONE]
    return None


@records.frozen
class Fact:
    """`form >= 0`, or `form == 0` where `equality` is set."""

    form: Linear
    equality: bool = False


def relation(operator: str, gap: Linear) -> Fact:
    """The fact `left operator right`, for `gap` = right - left; any comparison but `!=`."""
    if operator in (">", ">="):
        gap = scale(gap, -1)
    if operator in ("<", ">"):
        gap = add(gap, constant(-1))
    return Fact(gap, equality=operator == "==")


@records.frozen
class Floor:
    """floor(numerator / divisor) for an integer divisor >= 2."""

    numerator: Linear
    divisor: int


@records.frozen
class Quotient:
    """floor(numerator / divisor) for a divisor that is a form, known to be at least 1."""

    numerator: Linear
    divisor: Linear


@records.frozen
class Product:
    """The product of atoms, repeated ones included."""

    factors: tuple[int, ...]


@records.frozen
class Extremum:
    """min or max of two forms."""

    operator: str
    left: Linear
    right: Linear


@records.frozen
class Chosen:
    """One of two forms, each with the facts that hold where that form is chosen. `exact`: the facts
    of one case hold nowhere else."""

    then: tuple[tuple[Fact, ...], Linear]
    otherwise: tuple[tuple[Fact, ...], Linear]
    exact: bool

    @property
    def cases(self) -> tuple[tuple[tuple[Fact, ...], Linear], ...]:
        """Both forms with their facts, the one that holds under the condition first."""
        return self.then, self.otherwise

    def atoms(self) -> Iterator[int]:
        """Every atom that the definition mentions."""
        for facts, form in self.cases:
            yield from form
            for fact in facts:
                yield from fact.form


@records.frozen
class Opaque:
    """A quantity of which only the atoms it depends on are known. Equal ones share a `key`."""

    key: str


Definition: TypeAlias = (
    Floor | Quotient | Product | Extremum | Chosen | Opaque | None
)  # None: a base variable


class Atoms:
    """The numbering of atoms for one sketch, with what is known of each."""

    def __init__(self) -> None:
        self.names: list[str] = ["1"]
        self.definitions: list[Definition] = [None]
        self.facts: list[tuple[Fact, ...]] = [()]
        self.dependencies: list[frozenset[int]] = [frozenset()]
        self.non_negative: list[bool] = [True]
        self.has_products = False
        #: How each atom was made, in numbers of the atoms before it.
        self.origins: list[object] = [ONE]
        self._numbers: dict[object, int] = {}
        #: Answers of `Scope.proves` by the identity of its facts and the form asked about.
        self.answers: dict[tuple[int, frozenset[tuple[int, int]], bool], bool] = {}
        self.kept: list[tuple[Fact, ...]] = []
        self.quotients: dict[tuple[object, ...], Linear] = {}
        self.indices: dict[int, dict[int, list[int]]] = {}
        self._splits: dict[int, tuple[tuple[int, int], ...]] = {}

    def _new(
        self,
        key: object,
        name: str,
        definition: Definition,
        dependencies: frozenset[int],
        non_negative: bool,
    ) -> int:
        number = len(self.names)
        self._numbers[key] = number
        self.names.append(name)
        self.origins.append(key)
        self.definitions.append(definition)
        self.facts.append((Fact({number: 1}),) if non_negative else ())
        self.dependencies.append(dependencies or frozenset((number,)))
        self.non_negative.append(non_negative)
        return number

    def variable(self, name: str, non_negative: bool = False) -> int:
        """The base variable of this name; `non_negative` counts when it is first seen."""
        number = self._numbers.get(name)
        if number is None:
            number = self._new(name, name, None, frozenset(), non_negative)
        return number

    def defined(self, name: str, value: Linear, non_negative: bool) -> Linear:
        """A base variable that equals `value`: one term for what would be many in products."""
        number = self._numbers.get(name)
        if number is None:
            number = self._new(name, name, None, self.depends(value), non_negative)
            self.facts[number] += (Fact(add(value, {number: 1}, -1), equality=True),)
        return {number: 1}

    def opaque(self, key: str, dependencies: frozenset[int]) -> int:
        """The opaque atom of this key, which depends on these base variables."""
        number = self._numbers.get(("opaque", key))
        if number is None:
            number = self._new(("opaque", key), key, Opaque(key), dependencies, False)
        return number

    def depends(self, linear: Linear) -> frozenset[int]:
        """The base variables on which the atoms of a form depend."""
        found: frozenset[int] = frozenset()
        for atom in linear:
            found |= self.dependencies[atom]
        return found

    def multiply(self, left: Linear, right: Linear) -> Linear:
        """The product, expanded into monomials."""
        value = constant_value(left)
        if value is not None:
            return scale(right, value)
        value = constant_value(right)
        if value is not None:
            return scale(left, value)
        budget.spend(3 * len(left) * len(right))
        return multiplied(left, right, self._product)

    def _product(self, left: int, right: int) -> int:
        if ONE in (left, right):
            return left + right
        factors = tuple(sorted((*self.factors(left), *self.factors(right))))
        budget.spend(len(factors) // 4)
        key = ("*", factors)
        number = self._numbers.get(key)
        if number is None:
            self.has_products = True
            number = self._new(
                key,
                "*".join(self.names[factor] for factor in factors),
                Product(factors),
                frozenset().union(*(self.dependencies[factor] for factor in factors)),
                all(self.non_negative[factor] for factor in factors),
            )
        return number

    def occurs(self, atom: int, form: Linear) -> bool:
        """Whether an atom stands in a form, by itself or in a product."""
        if atom in form:
            return True
        return self.has_products and any(atom in self.factors(other) for other in form)

    def splits(self, atom: int) -> tuple[tuple[int, int], ...]:
        """The ways to write a product atom as a product of two, in both orders."""
        known = self._splits.get(atom)
        if known is not None:
            return known
        factors = self.factors(atom)
        sizes = range(1, len(factors)) if len(factors) <= FACTOR_LIMIT else (1, len(factors) - 1)
        found = []
        for count in sizes:
            for chosen in combinations(range(len(factors)), count):
                part = self._multiplied(factors[place] for place in chosen)
                other = (f for place, f in enumerate(factors) if place not in chosen)
                found.append((part, self._multiplied(other)))
        self._splits[atom] = tuple(dict.fromkeys(found))
        return self._splits[atom]

    def _multiplied(self, factors: Iterable[int]) -> int:
        result = ONE
        for factor in factors:
            result = self._product(result, factor)
        return result

    def factors(self, atom: int) -> tuple[int, ...]:
        """The factors of a product atom; of any other atom, the atom itself."""
        definition = self.definitions[atom]
        return definition.factors if isinstance(definition, Product) else (atom,)

    def floor(self, numerator: Linear, divisor: int) -> Linear:
        """floor(numerator / divisor), divisor >= 1; multiples of the divisor are taken out."""
        if divisor == 1:
            return numerator
        whole: dict[int, int] = {}
        rest: dict[int, int] = {}
        for atom, coefficient in numerator.items():
            quotient, remainder = divmod(coefficient, divisor)
            if quotient:
                whole[atom] = quotient
            if remainder:
                rest[atom] = remainder
        if set(rest) <= {ONE}:
            return whole
        return add(whole, {self._nested_floor(rest, divisor): 1})

    def _nested_floor(self, rest: Linear, divisor: int) -> int:
        """The atom of floor(rest / divisor); floor(floor(a / b) / c) becomes floor(a / (b*c))."""
        inner = self.definitions[next(iter(rest))] if list(rest.values()) == [1] else None
        if isinstance(inner, Floor):
            number = self._floor(inner.numerator, inner.divisor * divisor)
        elif isinstance(inner, Quotient):
            by = scale(inner.divisor, divisor)
            known = self.non_negative[next(iter(rest))]
            form = self.quotient(inner.numerator, by, known)
            if len(form) != 1 or next(iter(form.values())) != 1:
                return self._floor(rest, divisor)
            number = next(iter(form))
        else:
            return self._floor(rest, divisor)
        self._add_facts(number, self._remainder(rest, constant(divisor), number))
        return number

    def _floor(self, rest: Linear, divisor: int) -> int:
        key = ("//", tuple(sorted(rest.items())), divisor)
        number = self._numbers.get(key)
        if number is None:
            name = f"floor({self.describe(rest)} / {divisor})"
            known = all(self.non_negative[atom] for atom in rest)
            number = self._new(key, name, Floor(rest, divisor), self.depends(rest), known)
            below = add(rest, {number: divisor}, -1)
            above = add(scale(below, -1), {ONE: divisor - 1})
            self.facts[number] += (Fact(below), Fact(above))
        return number

    def quotient(self, numerator: Linear, divisor: Linear, non_negative: bool) -> Linear:
        """floor(numerator / divisor), the divisor known to be at least 1. Terms that are products
        with the divisor are taken out, and floor(floor(a / b) / c) becomes floor(a / (b*c)).

        `non_negative` may be known in one branch alone: the quotient there is a separate atom, with
        a fact that it equals the atom made elsewhere."""
        whole, rest = self.divided(numerator, divisor)
        if not rest:
            return whole
        outer: tuple[Linear, Linear] | None = None
        known = non_negative and not whole
        if len(rest) == 1:
            ((atom, coefficient),) = rest.items()
            inner = self.definitions[atom]
            if coefficient == 1 and isinstance(inner, Quotient | Floor):
                outer = (rest, divisor)
                known = known or self.non_negative[atom]
                by = inner.divisor if isinstance(inner, Quotient) else constant(inner.divisor)
                rest, divisor = inner.numerator, self.multiply(by, divisor)
        number = self._quotient(rest, divisor, known)
        if outer is not None:
            self._add_facts(number, self._remainder(*outer, number))
        return add(whole, {number: 1})

    def _quotient(self, rest: Linear, divisor: Linear, non_negative: bool) -> int:
        key = ("/", tuple(sorted(rest.items())), tuple(sorted(divisor.items())))
        number = self._numbers.get((*key, non_negative))
        if number is None:
            name = f"floor(({self.describe(rest)}) / ({self.describe(divisor)}))"
            depends = self.depends(rest) | self.depends(divisor)
            definition = Quotient(rest, divisor)
            number = self._new((*key, non_negative), name, definition, depends, non_negative)
            self._add_facts(number, self._remainder(rest, divisor, number))
        known, anywhere = (self._numbers.get((*key, holds)) for holds in (True, False))
        if known is not None and anywhere is not None:
            self._add_facts(known, (Fact({known: 1, anywhere: -1}, equality=True),))
        return number

    def _remainder(self, numerator: Linear, divisor: Linear, quotient: int) -> tuple[Fact, Fact]:
        """The facts 0 <= numerator - divisor * quotient < divisor."""
        rest = add(numerator, self.multiply(divisor, {quotient: 1}), -1)
        return Fact(rest), Fact(add(add(divisor, rest, -1), constant(-1)))

    def _add_facts(self, number: int, facts: tuple[Fact, ...]) -> None:
        """Further defining facts of an atom: the digits of a mixed-radix number (LANGUAGE section
        6) are each in range by the facts of `floor(floor(m / b) / c)` over both of its forms."""
        new = tuple(fact for fact in facts if fact not in self.facts[number])
        if new:
            self.facts[number] += new
            self.answers.clear()

    def divided(self, numerator: Linear, divisor: Linear) -> tuple[Linear, Linear]:
        """(whole, rest) with numerator = whole * divisor + rest, for a divisor of one term; a
        longer divisor goes into an equal numerator alone."""
        if len(divisor) != 1:
            return ({ONE: 1}, {}) if numerator == divisor else ({}, numerator)
        ((by, scale_by),) = divisor.items()
        wanted = self.factors(by)
        whole: dict[int, int] = {}
        rest: dict[int, int] = {}
        for atom, coefficient in numerator.items():
            left = without(self.factors(atom) if atom != ONE else (), wanted)
            if coefficient % scale_by or left is None:
                rest[atom] = coefficient
                continue
            term: Linear = constant(coefficient // scale_by)
            for factor in left:
                term = self.multiply(term, {factor: 1})
            whole = add(whole, term)
        return whole, rest

    def extremum(self, operator: str, left: Linear, right: Linear) -> Linear:
        """min or max of two forms; decided at once where they differ by a constant."""
        gap = constant_value(add(left, right, -1))
        if gap is not None:
            return left if (gap <= 0) == (operator == "min") else right
        pair = sorted((tuple(sorted(left.items())), tuple(sorted(right.items()))))
        key = (operator, *pair)
        number = self._numbers.get(key)
        if number is None:
            name = f"{operator}({self.describe(left)}, {self.describe(right)})"
            depends = self.depends(left) | self.depends(right)
            definition = Extremum(operator, dict(pair[0]), dict(pair[1]))
            number = self._new(key, name, definition, depends, False)
            sign = 1 if operator == "min" else -1
            self.facts[number] += tuple(
                Fact(add(scale(form, sign), {number: sign}, -1)) for form in (left, right)
            )
        return {number: 1}

    def choice(
        self,
        then: tuple[tuple[Fact, ...], Linear],
        otherwise: tuple[tuple[Fact, ...], Linear],
        exact: bool,
        key: object,
    ) -> Linear:
        """One of two forms, as an atom that lies between their minimum and their maximum."""
        if then[1] == otherwise[1]:
            return then[1]
        definition = Chosen(then, otherwise, exact)
        shown = tuple(
            (*((tuple(sorted(f.form.items())), f.equality) for f in facts), *sorted(form.items()))
            for facts, form in definition.cases
        )
        # A condition that says nothing here is told apart by its text.
        told = ("choice", shown, None if exact else repr(key))
        number = self._numbers.get(told)
        if number is None:
            name = f"choice({self.describe(then[1])}, {self.describe(otherwise[1])})"
            depends = self.depends(dict.fromkeys(definition.atoms(), 1))
            low, high = (self.extremum(o, then[1], otherwise[1]) for o in ("min", "max"))
            number = self._new(told, name, definition, depends, False)
            self.facts[number] += (
                Fact(add({number: 1}, low, -1)),
                Fact(add(high, {number: 1}, -1)),
            )
        return {number: 1}

    def describe(self, linear: Linear) -> str:
        """A form as text, for names of derived atoms and for tests."""
        terms = [
            f"{'' if abs(c) == 1 else f'{abs(c)}*'}{self.names[a]}" if a else str(abs(c))
            for a, c in linear.items()
        ]
        signs = ["-" if c < 0 else "+" for c in linear.values()]
        text = " ".join(f"{sign} {term}" for sign, term in zip(signs, terms, strict=True))
        return text.removeprefix("+ ") or "0"

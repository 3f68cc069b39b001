"""Whether a system of facts has no integer point: a quick, sound refutation, without isl.

A question is decided by the facts that share atoms with it, and what follows for their products
and quotients. Leaving facts out is sound, since a system only grows weaker by it; adding
consequences is, too.

Then Fourier-Motzkin elimination (Fourier 1826; Motzkin 1936; see Schrijver, Theory of Linear and
Integer Programming, 12.2) with the integer tightening of Pugh's Omega test (1991): each inequality
is divided by the gcd of its coefficients and its constant rounded down. The answer is True only
when no integer point exists. False means "not refuted here": `prover` then asks isl.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from itertools import combinations, islice, permutations
from math import gcd

import sketchc.checker.facts.budget as budget
from sketchc.checker.facts.affine import (
    ONE,
    Atoms,
    Fact,
    Floor,
    Linear,
    Product,
    Quotient,
    add,
    constant,
    constant_value,
)

_Key = tuple[tuple[int, int], ...]
_Rows = dict[_Key, int]

#: More rows than this and elimination gives up: the typical system has a dozen.
ROW_LIMIT = 300


class _Empty(Exception):
    """The system has a row that no integer satisfies."""


def infeasible(facts: Iterable[Fact]) -> bool:
    """True when no integer point satisfies all facts; False when that could not be shown."""
    rows: _Rows = {}
    try:
        for form in _eliminate_equalities(facts):
            budget.spend(2)
            items = [(atom, c) for atom, c in form.items() if atom != ONE and c]
            _insert(rows, items, form.get(ONE, 0))
        return _projected(rows)
    except _Empty:
        return True


def _eliminate_equalities(facts: Iterable[Fact]) -> list[Linear]:
    """Inequalities alone: an equality with a unit coefficient replaces that variable, any other
    becomes two inequalities."""
    inequalities: list[Linear] = []
    equalities: list[Linear] = []
    for fact in facts:
        (equalities if fact.equality else inequalities).append(fact.form)
    while equalities:
        form = equalities.pop()
        _check_divisibility(form)
        pivot = next((a for a, c in form.items() if a != ONE and c in (1, -1)), None)
        if pivot is None:
            inequalities.append(form)
            inequalities.append({atom: -c for atom, c in form.items()})
            continue
        sign = form[pivot]
        equalities = [add(f, form, -sign * f[pivot]) if pivot in f else f for f in equalities]
        inequalities = [add(f, form, -sign * f[pivot]) if pivot in f else f for f in inequalities]
    return inequalities


def _check_divisibility(form: Linear) -> None:
    divisor = gcd(*(c for atom, c in form.items() if atom != ONE))
    rest = form.get(ONE, 0)
    if (divisor == 0 and rest != 0) or (divisor > 1 and rest % divisor):
        raise _Empty


def _insert(rows: _Rows, items: list[tuple[int, int]], rest: int) -> None:
    """Add one inequality; of two with the same coefficients the tighter one stays."""
    if not items:
        if rest < 0:
            raise _Empty
        return
    divisor = gcd(*(c for _, c in items))
    if divisor > 1:
        items = [(atom, c // divisor) for atom, c in items]
        rest //= divisor
    items.sort()
    key = tuple(items)
    known = rows.get(key)
    if known is None or rest < known:
        rows[key] = rest


def _projected(rows: _Rows) -> bool:
    """Project variables out one by one, cheapest first. False when all are gone without conflict
    (or the system grew too large)."""
    while rows:
        if len(rows) > ROW_LIMIT:
            return False
        positive: dict[int, int] = {}
        negative: dict[int, int] = {}
        for key in rows:
            for atom, c in key:
                side = positive if c > 0 else negative
                side[atom] = side.get(atom, 0) + 1
        one_sided = (positive.keys() | negative.keys()) - (positive.keys() & negative.keys())
        if one_sided:
            rows = {k: r for k, r in rows.items() if not any(a in one_sided for a, _ in k)}
            continue
        atom = min(positive, key=lambda a: positive[a] * negative[a] - positive[a] - negative[a])
        rows = _project(rows, atom)
    return False


def _project(rows: _Rows, atom: int) -> _Rows:
    result: _Rows = {}
    lower: list[tuple[int, dict[int, int], int]] = []
    upper: list[tuple[int, dict[int, int], int]] = []
    for key, rest in rows.items():
        others = dict(key)
        c = others.pop(atom, 0)
        if c == 0:
            known = result.get(key)
            result[key] = rest if known is None else min(known, rest)
        elif c > 0:
            lower.append((c, others, rest))
        else:
            upper.append((-c, others, rest))
    budget.spend(len(rows) + 3 * len(lower) * len(upper))
    for c, others, rest in lower:
        for d, more, bound in upper:
            total = {a: d * x for a, x in others.items()}
            for a, x in more.items():
                total[a] = total.get(a, 0) + c * x
            _insert(result, [(a, x) for a, x in total.items() if x], d * rest + c * bound)
    return result


#: Pairs of factors that are compared for one question.
PAIR_LIMIT = 10
MOST_PARTNERS = 4


def refuted(
    atoms: Atoms, facts: tuple[Fact, ...], goal: tuple[Fact, ...], thorough: bool = False
) -> bool:
    """Whether facts and goal have no common integer point, as far as linear reasoning goes;
    `thorough`: also with products of comparisons (see `_impossible`)."""
    system = _connected(atoms, facts, goal)
    return budget.known(
        lambda: (thorough, _written(atoms, system)),
        lambda: _impossible(atoms, system, thorough),
    )


def _written(atoms: Atoms, system: list[Fact]) -> Hashable:
    """The facts of a system and the origins of all atoms in them, as a key for kept answers."""
    used = {atom for fact in system for atom in fact.form}
    quotients = [d for d in map(atoms.definitions.__getitem__, used) if isinstance(d, Quotient)]
    used |= {atom for one in quotients for atom in (*one.numerator, *one.divisor)}
    used |= {factor for atom in used for factor in atoms.factors(atom)}
    origins = tuple((n, atoms.origins[n], atoms.non_negative[n]) for n in sorted(used))
    return origins, tuple((fact.equality, *fact.form.items()) for fact in system)


def _connected(atoms: Atoms, facts: tuple[Fact, ...], goal: tuple[Fact, ...]) -> list[Fact]:
    """The goal, the facts that share variables with it (transitively), and the definitions of the
    atoms in them."""
    chosen = list(goal)
    seen: set[int] = {ONE}
    pending = [atom for fact in goal for atom in fact.form]
    index = _index(atoms, facts)
    taken: set[int] = set()
    while pending:
        atom = pending.pop()
        if atom in seen:
            continue
        seen.add(atom)
        pending.extend(atoms.factors(atom))
        places = [place for place in index.get(atom, ()) if place not in taken]
        taken.update(places)
        found = [*atoms.facts[atom], *(facts[place] for place in places)]
        chosen.extend(found)
        for fact in found:
            pending.extend(other for other in fact.form if other not in seen)
    budget.spend(2 * len(chosen))
    return chosen


def _index(atoms: Atoms, facts: tuple[Fact, ...]) -> dict[int, list[int]]:
    """For each atom the positions of the facts in which it stands, by itself or in a product."""
    known = atoms.indices.get(id(facts))
    if known is None:
        known = {}
        for place, fact in enumerate(facts):
            for atom in fact.form:
                for part in {atom, *atoms.factors(atom)}:
                    known.setdefault(part, []).append(place)
        atoms.kept.append(facts)  # keeps the id from being used again
        atoms.indices[id(facts)] = known
    return known


def _quotient_bounds(atoms: Atoms, facts: list[Fact]) -> list[Fact]:
    """From `a < d*w` follows `a // d < w`, from `a >= d*w` follows `a // d >= w`: the range of the
    leading digit of a mixed-radix number (LANGUAGE section 6).

    Quotients by numbers get bounds where there are several: elimination finds these too where it
    projects `a` out before the quotient, which the cheapest order does not always do, and a sum of
    quotients needs the bound of each."""
    used = {atom: atoms.definitions[atom] for fact in facts for atom in fact.form}
    quotients = {
        a: definition for a, definition in used.items() if isinstance(definition, Quotient)
    }
    result = []
    for atom, quotient in quotients.items():
        budget.spend(len(facts))
        dividend = {a: c for a, c in quotient.numerator.items() if a != ONE}
        for fact in facts:
            if atom in fact.form or fact.equality:
                continue
            for sign in (-1, 1):
                if all(fact.form.get(a) == sign * c for a, c in dividend.items()):
                    rest = add(fact.form, quotient.numerator, -sign)
                    bound = _bound(atoms, rest, quotient, sign)
                    if bound is not None:
                        result.append(Fact(add(bound, {atom: sign})))
    floors = {a: d for a, d in sorted(used.items()) if isinstance(d, Floor)}
    return [*result, *(_floor_bounds(floors, facts) if len(floors) > 1 else ())]


def _floor_bounds(floors: Mapping[int, Floor], facts: Iterable[Fact]) -> Iterator[Fact]:
    """Bounds of quotients by numbers, those in the dividends of others first, and of digits."""
    known = [fact.form for fact in facts if not fact.equality]
    for atom, floor in floors.items():
        budget.spend(len(known))
        found = [
            add(bound, {atom: sign})
            for form in known
            if atom not in form and any(a in form for a in floor.numerator if a != ONE)
            for sign in (-1, 1)
            for rest in (add(form, floor.numerator, -sign),)
            if (bound := _floor_bound(rest, floor.divisor, sign)) is not None
        ]
        known += found
        yield from map(Fact, found)
    yield from _digit_bounds(floors)


def _digit_bounds(floors: Mapping[int, Floor]) -> Iterator[Fact]:
    """The range of `n // a % k`, which is `n // a - k*(n // (a*k))`: elimination over fractions
    finds a wider one. Also where the dividends differ by a number, as in `(n%56 + 4) // 7`, and by
    multiples of `a`."""
    budget.spend(len(floors) ** 2)
    for (one, fine), (other, coarse) in permutations(floors.items(), 2):
        times, rest = divmod(coarse.divisor, fine.divisor)
        if times < 2 or rest:
            continue
        apart = add(fine.numerator, coarse.numerator, -1)
        shift = apart.pop(ONE, 0)
        if not any(c % fine.divisor for c in apart.values()):
            whole = {atom: -c // fine.divisor for atom, c in apart.items()}
            digit = add(whole, {one: 1, other: -times})
            most = (coarse.divisor - 1 + shift) // fine.divisor
            yield Fact(add(digit, constant(-(shift // fine.divisor))))
            yield Fact(add(constant(most), digit, -1))


def _floor_bound(rest: Linear, divisor: int, sign: int) -> Linear | None:
    """As `_bound`, for a divisor that is a number."""
    if any(c % divisor for atom, c in rest.items() if atom != ONE):
        return None
    bound = {atom: c // divisor for atom, c in rest.items()}
    left = rest.get(ONE, 0)
    bound[ONE] = left // divisor if sign < 0 else -(-left // divisor)
    return bound


def _bound(atoms: Atoms, rest: Linear, quotient: Quotient, sign: int) -> Linear | None:
    """For `rest + sign*a >= 0`: a form b with `b + sign*(a // d) >= 0`; None where `rest` is no
    multiple of d but for a constant."""
    whole, remainder = atoms.divided(rest, quotient.divisor)
    left = constant_value(remainder)
    if left is None or not whole:
        return None
    if sign < 0:  # a <= d*w + left
        if left > 0:
            return None
        return whole if left == 0 else add(whole, {ONE: -1})
    return whole if left <= 0 else None  # a >= -d*w - left


def lifted(atoms: Atoms, facts: list[Fact]) -> list[Fact]:
    """Facts multiplied by non-negative factors of the products in them: from `i <= B - 1` follows
    `i*H <= B*H - H` (the reformulation of Sherali and Adams, 1990). Only parts of
    products that occur already are made, so that the system does not grow without end.

    A factor that may be negative elsewhere, as a param or a loop variable may, counts where one of
    these facts says that it is not. That is sound: all of them hold together or the system has no
    point anyway, and at a point where `f >= 0` and `a >= 0` also `a*f >= 0` holds."""
    products = {
        atom: None
        for fact in facts
        for atom in fact.form
        if isinstance(atoms.definitions[atom], Product)
    }
    if not products:
        return []
    cofactors: dict[int, dict[int, None]] = {}  # of each atom, what makes a product with it
    for product in products:
        for part, other in atoms.splits(product):
            cofactors.setdefault(part, {})[other] = None
    signs = _signs(facts)
    result = [fact for atom in cofactors if atom not in products for fact in atoms.facts[atom]]
    for fact in facts:
        factors = {factor: None for atom in fact.form for factor in cofactors.get(atom, ())}
        budget.spend(1 + 5 * len(factors))
        for factor in factors:
            if not (fact.equality or _non_negative(atoms, factor, signs)):
                continue
            form = atoms.multiply(fact.form, {factor: 1})
            if all(
                atom in products or atom in cofactors or len(atoms.factors(atom)) == 1
                for atom in form
            ):
                result.append(Fact(form, fact.equality))
    return result


def _signs(facts: list[Fact]) -> frozenset[int]:
    """The atoms that a fact with no other atom shows to be non-negative: `groups`, a param, from
    `groups >= 1`."""
    return frozenset(
        atom
        for fact in facts
        if fact.form.get(ONE, 0) <= 0
        for others in (fact.form.keys() - {ONE},)
        if len(others) == 1
        for atom in others
        if fact.form[atom] > 0
    )


def _non_negative(atoms: Atoms, factor: int, signs: frozenset[int]) -> bool:
    """Whether a factor is not negative: by itself, or because none of its own factors is. (Of
    atoms, which are no expressions any more: not the question of `never_negative`.)"""
    known = atoms.non_negative
    return known[factor] or all(known[part] or part in signs for part in atoms.factors(factor))


def _impossible(atoms: Atoms, system: list[Fact], thorough: bool) -> bool:
    """Whether a system has no integer point, as far as linear reasoning goes with the facts that
    follow for quotients and products; `thorough`: also with products of comparisons between atoms,
    since from `a < b` follows `a*n + n <= b*n`, for n >= 0."""
    system = system + _quotient_bounds(atoms, system)
    system = system + lifted(atoms, system)
    if infeasible(system):
        return True
    if not thorough:
        return False
    found = _compared(atoms, system)
    if not found:
        return False
    system += found
    return infeasible([*system, *lifted(atoms, system)])


def _compared(atoms: Atoms, system: list[Fact]) -> list[Fact]:
    """Facts that compare atoms which stand in products with one and the same factor, where the
    system implies an order: for `c*G + g` in two iterations, that both have the same c."""
    partners: dict[int, dict[int, None]] = {}
    used = {atom: None for fact in system for atom in fact.form}
    for atom in used:
        if isinstance(atoms.definitions[atom], Product):
            for part, other in atoms.splits(atom):
                partners.setdefault(part, {})[other] = None
    pairs = {
        pair: None
        for others in partners.values()
        if len(others) <= MOST_PARTNERS
        for pair in combinations(sorted(others), 2)
    }

    def excluded(form: Linear) -> bool:
        more = [*system, Fact(form)]
        return infeasible([*more, *lifted(atoms, more)])

    found: list[Fact] = []
    for pair in islice(pairs, PAIR_LIMIT):
        for low, high in (pair, pair[::-1]):
            if excluded({low: 1, high: -1, ONE: -1}):  # low > high
                equal = excluded({high: 1, low: -1, ONE: -1})
                above = not equal and excluded({low: 1, high: -1})
                form = {high: 1, low: -1, ONE: -1} if above else {high: 1, low: -1}
                found.append(Fact(form, equality=equal))
                break
    return found

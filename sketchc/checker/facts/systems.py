"""Systems of facts for one question: those that matter, with what products and quotients add.

Leaving facts out is sound, since a system only grows weaker by it; adding consequences is, too.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import combinations, islice

from sketchc.checker.facts import budget, kept
from sketchc.checker.facts.affine import (
    ONE,
    Atoms,
    Fact,
    Linear,
    Product,
    Quotient,
    add,
    constant_value,
)
from sketchc.checker.facts.feasibility import infeasible

#: Pairs of factors that are compared for one question.
PAIR_LIMIT = 10
MOST_PARTNERS = 4


def refuted(
    atoms: Atoms, facts: tuple[Fact, ...], goal: tuple[Fact, ...], thorough: bool = False
) -> bool:
    """Whether facts and goal have no common integer point, as far as linear reasoning goes;
    `thorough`: with products of what compares (see `_impossible`)."""
    system = _connected(atoms, facts, goal)
    return kept.known(
        lambda: (thorough, _written(atoms, system)),
        lambda: (_impossible if thorough else _infeasible)(atoms, system),
    )


def _written(atoms: Atoms, system: list[Fact]) -> Hashable:
    """A system, with the origins of all atoms below those in it."""
    used = {atom for fact in system for atom in fact.form}
    quotients = [d for d in map(atoms.definitions.__getitem__, used) if isinstance(d, Quotient)]
    used |= {atom for one in quotients for atom in (*one.numerator, *one.divisor)}
    used |= {factor for atom in used for factor in atoms.factors(atom)}
    origins = tuple((n, atoms.origins[n], atoms.non_negative[n]) for n in sorted(used))
    return origins, tuple((fact.equality, *fact.form.items()) for fact in system)


def _infeasible(atoms: Atoms, system: list[Fact]) -> bool:
    return infeasible(_completed(atoms, system))


def _completed(atoms: Atoms, system: list[Fact]) -> list[Fact]:
    """The system with what follows from it for quotients and products."""
    system = system + _quotient_bounds(atoms, system)
    return system + lifted(atoms, system)


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
    """Where each atom stands in the facts, by itself or in a product."""
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
    leading digit of a mixed-radix number (LANGUAGE section 6)."""
    quotients = {
        atom: definition
        for fact in facts
        for atom in fact.form
        if isinstance(definition := atoms.definitions[atom], Quotient)
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
                    bound = _bound(atoms, add(fact.form, quotient.numerator, -sign), quotient, sign)
                    if bound is not None:
                        result.append(Fact(add(bound, {atom: sign})))
    return result


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
    """The atoms that a fact about nothing else says are not negative: from `groups >= 1`, a
    param."""
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
    """Whether a factor is not negative: by itself, or because none of its own factors is."""
    known = atoms.non_negative
    return known[factor] or all(known[part] or part in signs for part in atoms.factors(factor))


def _impossible(atoms: Atoms, system: list[Fact]) -> bool:
    """Whether a system has no integer point, as far as linear reasoning goes with products of what
    compares: from `a < b` follows `a*n + n <= b*n`, for n >= 0."""
    system = _completed(atoms, system)
    if infeasible(system):
        return True
    found = _compared(atoms, system)
    if not found:
        return False
    system += found
    return infeasible([*system, *lifted(atoms, system)])


def _compared(atoms: Atoms, system: list[Fact]) -> list[Fact]:
    """How the atoms that stand in products with one and the same factor compare, where the system
    says it: for `c*G + g` in two iterations, that both have the same c."""
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

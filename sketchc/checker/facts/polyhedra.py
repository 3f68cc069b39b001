"""The exact decision procedure: integer sets in isl (through islpy, imported on first use).

Facts over atoms become sets whose dimensions are base variables and products of host scalars; a
quotient is an existentially quantified variable with its two defining inequalities, `min` and `max`
a disjunction. Reference: S. Verdoolaege, isl: An Integer Set Library for the Polyhedral Model,
ICMS 2010.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from sketchc.base import records
from sketchc.checker.facts import budget, kept
from sketchc.checker.facts.affine import (
    ONE,
    Atoms,
    Chosen,
    Extremum,
    Fact,
    Floor,
    Linear,
    Opaque,
    Product,
    Quotient,
)

Conjunction = Sequence[Fact]

#: Steps that isl may take for one question, at the first attempt and at further ones: how many it
#: took it does not say, so what it was allowed is what is counted.
STEPS = (5_000, 50_000, 500_000, 2_500_000)
STEPS_PER_UNIT = 8
#: What a question takes beside.
QUESTION = 500


class GaveUpError(Exception):
    """isl would need too long; the claim stays unproved."""


@records.frozen
class Answer:
    """`empty`: no integer point exists. Else `point` is the smallest one, dimension by dimension;
    it is a real one only if the system is `Space.exact`."""

    empty: bool
    point: dict[int, int] = records.field(factory=dict)


class Space:
    """Fixes the dimensions, in the order in which a smallest point is wanted; all other atoms are
    quantified. `host` are the base variables that are sizes known at launch."""

    def __init__(self, atoms: Atoms, host: frozenset[int], dimensions: Iterable[int]) -> None:
        self.atoms = atoms
        self.host = host
        self.dimensions = tuple(dict.fromkeys(dimensions))

    def is_free(self, atom: int) -> bool:
        """Whether an atom stands for itself: a base variable, or a product of host scalars."""
        definition = self.atoms.definitions[atom]
        if definition is None:
            return True
        if isinstance(definition, Floor | Extremum | Chosen | Quotient):
            return False
        return self.atoms.dependencies[atom] <= self.host

    def needed(self, facts: Conjunction) -> tuple[Fact, ...]:
        """The facts with the definitions of all atoms in them."""
        found = list(facts)
        seen: set[int] = {ONE}
        position = 0
        while position < len(found):
            for atom in found[position].form:
                if atom not in seen:
                    seen.add(atom)
                    found.extend(self.atoms.facts[atom])
                    definition = self.atoms.definitions[atom]
                    if isinstance(definition, Chosen):  # 0 = 0 for what its cases mention
                        found.append(Fact(dict.fromkeys(definition.atoms(), 0), equality=True))
            position += 1
        return tuple(found)

    def exact(self, facts: Conjunction) -> bool:
        """False when a product of loop variables, or a quantity without a linear definition,
        occurs: the set may then hold more points than there are."""
        used = {atom for fact in self.needed(facts) for atom in fact.form}
        definitions = {atom: self.atoms.definitions[atom] for atom in used}
        return not any(
            isinstance(definition, Opaque | Quotient)
            or (isinstance(definition, Chosen) and not definition.exact)
            or (isinstance(definition, Product) and not self.is_free(atom))
            for atom, definition in definitions.items()
        )

    def products(self, facts: Conjunction) -> tuple[int, ...]:
        """The products of host scalars in the facts: each one fresh parameter (section 6)."""
        used = {atom: None for fact in self.needed(facts) for atom in fact.form}
        return tuple(
            atom
            for atom in used
            if self.is_free(atom) and isinstance(self.atoms.definitions[atom], Product | Opaque)
        )

    def solve(self, facts: Conjunction, minus: Sequence[Conjunction] = ()) -> Answer:
        """The smallest point of the facts that is in none of the `minus` systems.

        Raises `GaveUpError` when isl needs more than the last of `STEPS`, and `OutOfWorkError`.
        """
        texts = [self._text(self.needed(part)) for part in (facts, *minus)]
        budget.spend(sum(map(len, texts)) // 10)
        return kept.known(lambda: (self.dimensions, *texts), lambda: self._decide(texts))

    def _decide(self, texts: Sequence[str]) -> Answer:
        for steps in STEPS:
            budget.spend(QUESTION + steps // STEPS_PER_UNIT)
            try:
                return self._answer(texts, steps)
            except GaveUpError:
                continue
        raise GaveUpError

    def _answer(self, texts: Sequence[str], steps: int) -> Answer:
        """The same, within so many steps of isl's."""
        import islpy

        context = islpy.Context()
        context.set_max_operations(steps)
        try:
            found = islpy.Set.read_from_str(context, texts[0])
            for text in texts[1:]:
                found = found.subtract(islpy.Set.read_from_str(context, text))
            if found.is_empty():
                return Answer(True)
        except islpy.Error as problem:
            raise GaveUpError from problem
        try:
            smallest = found.lexmin()
        except islpy.Error:  # no smallest point: an integer param has no lower bound
            smallest = found
        context.reset_operations()
        try:
            point = smallest.sample_point()
        except islpy.Error as problem:
            raise GaveUpError from problem
        values = {
            atom: int(point.get_coordinate_val(islpy.dim_type.set, place).to_python())
            for place, atom in enumerate(self.dimensions)
        }
        return Answer(False, values)

    def _text(self, facts: Sequence[Fact]) -> str:
        used = {atom for fact in facts for atom in fact.form if atom != ONE}
        inner = sorted(used - set(self.dimensions))
        constraints = [self._constraint(fact) for fact in facts]
        constraints += [text for atom in inner for text in self._choice(atom)]
        body = " and ".join(constraints) or "1 = 1"
        if inner:
            body = f"exists ({', '.join(f'a{atom}' for atom in inner)} : {body})"
        return f"{{ [{', '.join(f'a{atom}' for atom in self.dimensions)}] : {body} }}"

    def _choice(self, atom: int) -> list[str]:
        """`m` is one of the two operands of min or max (its facts say on which side it lies)."""
        match self.atoms.definitions[atom]:
            case Extremum(_, left, right):
                return [f"(a{atom} = {_sum(left)} or a{atom} = {_sum(right)})"]
            case Chosen() as chosen:
                cases = []
                for facts, form in chosen.cases:
                    told = [self._constraint(fact) for fact in facts]
                    cases.append(" and ".join([f"a{atom} = {_sum(form)}", *told]))
                return [f"(({cases[0]}) or ({cases[1]}))"]
            case Floor() | Quotient() | Product() | Opaque() | None:
                return []
            case unknown:
                assert_never(unknown)

    @staticmethod
    def _constraint(fact: Fact) -> str:
        return f"{_sum(fact.form)} {'=' if fact.equality else '>='} 0"


def _sum(form: Linear) -> str:
    terms = [f"{c}" if atom == ONE else f"{c}*a{atom}" for atom, c in form.items()]
    return " + ".join(terms) or "0"

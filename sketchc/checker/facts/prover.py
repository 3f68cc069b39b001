"""Asks for a counter-example: first nothing but the quick refutation, then isl, then a search over
small sizes where products of sizes occur; the answer is concrete numbers for symbols and loops.

isl (through islpy, imported on first use) decides exactly. Facts over atoms become sets whose
dimensions are base variables and products of host scalars; a quotient is an existentially
quantified variable with its two defining inequalities, `min` and `max` a disjunction. Reference:
S. Verdoolaege, isl: An Integer Set Library for the Polyhedral Model, ICMS 2010.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, assert_never

import sketchc.checker.facts.budget as budget
import sketchc.checker.facts.concrete as concrete
from sketchc.base import records
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
from sketchc.checker.facts.concrete import Found, ParamValues, other_params, size_assignments
from sketchc.checker.facts.scope import Scope, Step, root_scope, ties, with_ties
from sketchc.checker.facts.sites import HOST_CONDITION
from sketchc.checker.facts.systems import refuted
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.ir.walk import has_lanes

Conjunction = Sequence[Fact]

#: Steps that isl may take for one question, at the first attempt and at further ones: how many it
#: took it does not say, so what it was allowed is what is counted.
STEPS = (5_000, 50_000, 500_000, 2_500_000)
STEPS_PER_UNIT = 8
#: The work of a question besides.
QUESTION = 500


class GaveUpError(Exception):
    """isl would need too long; the claim stays unproved."""


@records.frozen
class Answer:
    """`empty`: no integer point exists. Else `point` is the smallest one, dimension by dimension;
    only where `Space.exact` holds of the system is it sure to be a point of what was asked."""

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
        return budget.known(lambda: (self.dimensions, *texts), lambda: self._decide(texts))

    def _decide(self, texts: Sequence[str]) -> Answer:
        for steps in STEPS:
            budget.spend(QUESTION + steps // STEPS_PER_UNIT)
            with suppress(GaveUpError):
                return self._answer(texts, steps)
        raise GaveUpError

    def _answer(self, texts: Sequence[str], steps: int) -> Answer:
        """isl's answer on texts[0] less the others; `GaveUpError` where `steps` do not suffice."""
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
        """Constraints that a min, max or choice equals one of its two forms; none for others."""
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


#: Assignments of sizes tried where products of sizes keep isl from naming a point.
ATTEMPTS = 24


GAVE_UP = "the exact procedure (isl) was given up after too many steps"


class Verdict(Enum):
    """The prover's answer to a question."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNKNOWN = "unknown"


@records.frozen
class Outcome:
    """The answer to one query; `point` gives base variables their values when refuted."""

    verdict: Verdict
    point: Mapping[int, int] = records.field(factory=dict)


PROVED = Outcome(Verdict.PROVED)
UNKNOWN = Outcome(Verdict.UNKNOWN)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """The worst of `outcomes`, which are drawn only up to the first one that is refuted."""
    found = PROVED
    for outcome in outcomes:
        if outcome.verdict is Verdict.REFUTED:
            return outcome
        if outcome.verdict is Verdict.UNKNOWN:
            found = outcome
    return found


@records.frozen
class Prover:
    """A sketch with its root scope and the atoms of its symbols, which all its claims share."""

    sketch: ir.Sketch
    root: Scope
    symbols: Mapping[str, int]  # symbol -> atom

    @staticmethod
    def of(sketch: ir.Sketch) -> Prover:
        """A prover for a sketch, which knows nothing yet but its declarations."""
        root = root_scope(sketch)
        symbols = {s.name: root.atoms.variable(s.name, True) for s in sketch.symbols}
        return Prover(sketch, root, symbols)

    @property
    def atoms(self) -> Atoms:
        """The numbering of the sketch's quantities."""
        return self.root.atoms

    @property
    def host(self) -> frozenset[int]:
        """The base variables known at launch, conditions that are not affine among them."""
        names = [*self.symbols, *(p.name for p in self.sketch.params if p.dtype.is_integer)]
        conditions = (name for name in self.atoms.names if name.startswith(HOST_CONDITION))
        return frozenset(self.atoms.variable(name) for name in (*names, *conditions))

    def refute(
        self,
        facts: Sequence[Fact],
        goal: Sequence[Fact],
        variables: Iterable[int],
        search: bool = True,
    ) -> Outcome:
        """Whether `facts` and `goal` have a common point: PROVED when there is none. `variables`
        are the loop counters, lanes and element indices that a counter-example must name; without
        `search` none is looked for."""
        if refuted(self.atoms, tuple(facts), tuple(goal), thorough=True):
            return PROVED
        return self.search((*facts, *goal), variables) if search else UNKNOWN

    def space(self, facts: Sequence[Fact], variables: Iterable[int]) -> Space:
        """The space with symbols first, so that counter-examples are small; then all others."""
        bare = Space(self.atoms, self.host, ())
        products = bare.products(facts)
        return Space(
            self.atoms, self.host, (*self.symbols.values(), *self.host, *products, *variables)
        )

    def search(
        self,
        facts: Sequence[Fact],
        variables: Iterable[int],
        minus: Sequence[Sequence[Fact]] = (),
    ) -> Outcome:
        """The smallest point of the facts that is in none of the `minus` systems (whose further
        variables are quantified), with sizes of at least 1 where possible."""

        def search() -> Outcome:
            try:
                return self._search((*facts, *self._conditions()), variables, minus)
            except GaveUpError:
                budget.note(GAVE_UP)
                return UNKNOWN

        return budget.attempt(GAVE_UP, budget.EXACT, UNKNOWN, search)

    def _conditions(self) -> Iterator[Fact]:
        """Facts that the atoms of conditions that are not affine are 0 or 1."""
        for name in self.atoms.names:
            if name.startswith(HOST_CONDITION):
                atom = self.atoms.variable(name)
                yield from (Fact({atom: 1}), Fact({atom: -1, ONE: 1}))

    def _search(
        self,
        facts: Sequence[Fact],
        variables: Iterable[int],
        minus: Sequence[Sequence[Fact]],
    ) -> Outcome:
        everything = (*facts, *(fact for part in minus for fact in part))
        space = self.space(everything, variables)
        exact = space.exact(everything)
        if exact or all(space.exact(part) for part in minus):
            sizes = tuple(Fact({atom: 1, ONE: -1}) for atom in self.symbols.values())
            answer = space.solve((*facts, *sizes), minus)
            if answer.empty:
                answer = space.solve(facts, minus)
            if answer.empty:
                return PROVED
            if exact and not space.products(everything):
                return Outcome(Verdict.REFUTED, answer.point)
        else:
            answer = Answer(False)
        for fixed in self._sizes(space, answer, everything):
            attempt = space.solve((*facts, *fixed), [(*part, *fixed) for part in minus])
            if not attempt.empty:
                return Outcome(Verdict.REFUTED, attempt.point)
        return UNKNOWN

    def _sizes(
        self, space: Space, answer: Answer, facts: Sequence[Fact]
    ) -> Iterator[tuple[Fact, ...]]:
        """Sizes to try, as facts: a product's value p split as 1 * ... * p, then small sizes."""
        symbols = list(self.symbols.values())
        firsts = []
        for atom in space.products(facts):
            factors = [a for a in self.atoms.factors(atom) if a in symbols]
            if factors:
                single = {symbol: max(1, answer.point.get(symbol, 1)) for symbol in symbols}
                single.update(dict.fromkeys(factors, 1))
                single[factors[-1]] = answer.point.get(atom, 1)
                firsts.append(tuple(single[symbol] for symbol in symbols))
        names = list(self.symbols)
        grid = (tuple(sizes[n] for n in names) for sizes in size_assignments(self.sketch, ATTEMPTS))
        for sizes in (*firsts, *grid):
            yield self._fixed(dict(zip(symbols, sizes, strict=True)), space, facts)

    def _fixed(
        self, sizes: Mapping[int, int], space: Space, facts: Sequence[Fact]
    ) -> tuple[Fact, ...]:
        """Facts that set the symbols, and with them every product in which they are factors."""
        result = [Fact({atom: 1, ONE: -value}, equality=True) for atom, value in sizes.items()]
        used = {atom for fact in space.needed(facts) for atom in fact.form}
        for atom in used:
            if not isinstance(self.atoms.definitions[atom], Product):
                continue
            factor = 1
            rest = []
            for part in self.atoms.factors(atom):
                if part in sizes:
                    factor *= sizes[part]
                else:
                    rest.append(part)
            if len(rest) <= 1:
                value = {rest[0]: factor} if rest else {ONE: factor}
                form = {atom: -1, **{a: c for a, c in value.items() if c}}
                result.append(Fact(form, equality=True))
        return tuple(result)

    # ------------------------------------------------------------ reading a point

    def sizes(self, point: Mapping[int, int]) -> dict[str, int]:
        """The symbols' values at a point; a symbol that the point does not mention is 1."""
        sizes = {name: point.get(atom, 1) for name, atom in self.symbols.items()}
        values = with_ties(ties(self.sketch), {**self._params(point), **sizes})
        return {name: max(0, values[name]) for name in sizes}

    def _params(self, point: Mapping[int, int]) -> dict[str, int]:
        """The integer params at a point; one that it does not mention has its default, or is 1."""
        return {
            param.name: point.get(
                self.atoms.variable(param.name), 1 if param.default is None else int(param.default)
            )
            for param in self.sketch.params
            if param.dtype.is_integer
        }

    def host_samples(
        self, point: Mapping[int, int]
    ) -> Iterator[tuple[ParamValues, dict[str, Any]]]:
        """Params with all host scalars to try at a point: first params at their defaults, then
        integer params as the point has them; where the point decides conditions on other params,
        also with other values of those."""
        sizes = self.sizes(point)
        yield {}, concrete.host_sample(self.sketch, sizes)
        known = {self.atoms.names[atom] for atom in point}
        values = with_ties(ties(self.sketch), {**self._params(point), **sizes})
        params: ParamValues = {
            param.name: values[param.name]
            for param in self.sketch.params
            if param.dtype.is_integer and param.name in known
        }
        if params:
            yield params, concrete.host_sample(self.sketch, {**sizes, **params})
        if any(self.atoms.names[atom].startswith(HOST_CONDITION) for atom in point):
            rest = [param.name for param in self.sketch.params if param.name not in params]
            for some in other_params(self.sketch, rest):
                numbers = {**params, **some}
                try:
                    host = concrete.host_values(self.sketch, {**sizes, **numbers})
                except (ArithmeticError, ValueError):
                    continue  # a launch would refuse these values
                yield numbers, host

    def shown(
        self, outcome: Outcome, failure: Callable[[ParamValues, dict[str, Any]], Found | None]
    ) -> Found | None:
        """What `failure` finds at the numbers of a refuted query, given params and all host
        scalars; None where it finds nothing, or cannot be evaluated."""
        if outcome.verdict is not Verdict.REFUTED:
            return None
        for params, host in self.host_samples(outcome.point):
            with suppress(concrete.Untried, ArithmeticError):
                if (found := failure(params, host)) is not None:
                    return found
        return None


def iteration(
    path: Sequence[Step], scope: Scope, point: Mapping[int, int], host: Mapping[str, Any]
) -> dict[str, int]:
    """The loop variables along a path at a point, by name. Raises `concrete.NeedsData`."""
    values = dict(host)
    result: dict[str, int] = {}
    bindings: dict[str, ir.Expr] = {}
    for step in path:
        if isinstance(step, ir.Bind):
            bindings[step.name] = step.value
            if not has_lanes(step.value, bindings):
                with suppress(KeyError):  # needs a fetched value
                    values[step.name] = evaluate(step.value, values)
        elif isinstance(step, ir.For | ir.HostFor):
            count = point.get(scope.counter(step), 0)
            start, stride = (concrete.known(e, values) for e in (step.start, step.step))
            value = scope.loop_value(step, count, start, stride)
            values[step.variable] = result[step.variable] = value
    return result

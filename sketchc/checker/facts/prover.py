"""Asks for a counter-example: first nothing but the quick refutation, then isl, then a search over
small sizes where products of sizes occur; the answer is concrete numbers for symbols and loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any

from sketchc.base import records
from sketchc.checker.facts import budget, concrete
from sketchc.checker.facts.affine import ONE, Atoms, Fact, Product
from sketchc.checker.facts.conditions import HOST_CONDITION
from sketchc.checker.facts.enumeration import size_assignments
from sketchc.checker.facts.param_values import ParamValues, other_params
from sketchc.checker.facts.polyhedra import Answer, GaveUpError, Space
from sketchc.checker.facts.scope import Scope, Step, contains_iota, root_scope
from sketchc.checker.facts.systems import refuted
from sketchc.checker.facts.tied import ties, with_ties
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate

#: Assignments of sizes tried where products of sizes keep isl from naming a point.
ATTEMPTS = 24


GAVE_UP = "the exact procedure (isl) was given up after too many steps"


class Verdict(Enum):
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


@records.frozen
class Prover:
    """What all claims of one sketch share."""

    sketch: ir.Sketch
    root: Scope
    symbols: Mapping[str, int]  # symbol -> atom

    @staticmethod
    def of(sketch: ir.Sketch) -> Prover:
        root = root_scope(sketch)
        symbols = {s.name: root.atoms.variable(s.name, True) for s in sketch.symbols}
        return Prover(sketch, root, symbols)

    @property
    def atoms(self) -> Atoms:
        return self.root.atoms

    @property
    def host(self) -> frozenset[int]:
        """The base variables known at launch, conditions that are not affine among them."""
        names = [*self.symbols, *(p.name for p in self.sketch.params if p.dtype.is_integer)]
        conditions = (name for name in self.atoms.names if name.startswith(HOST_CONDITION))
        return frozenset(self.atoms.variable(name) for name in (*names, *conditions))

    def refute(
        self, facts: Sequence[Fact], goal: Sequence[Fact], variables: Iterable[int]
    ) -> Outcome:
        """Is there a point of facts and goal? PROVED when there is none. `variables` are the loop
        counters, lanes and element indices that a counter-example must name."""
        if refuted(self.atoms, tuple(facts), tuple(goal), thorough=True):
            return PROVED
        return self.search((*facts, *goal), variables)

    def space(self, facts: Sequence[Fact], variables: Iterable[int]) -> Space:
        """Symbols first, so that counter-examples are small; then the rest."""
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

        return budget.attempt(GAVE_UP, budget.EXACT, search, lambda: UNKNOWN)

    def _conditions(self) -> Iterator[Fact]:
        """Conditions that are not affine are 0 or 1."""
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
        """Assignments of sizes to try: the answer's own product as 1 * ... * p first."""
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
        """The symbols' values at a point; what it does not mention is 1."""
        sizes = {name: point.get(atom, 1) for name, atom in self.symbols.items()}
        values = with_ties(ties(self.sketch), {**self._params(point), **sizes})
        return {name: max(0, values[name]) for name in sizes}

    def _params(self, point: Mapping[int, int]) -> dict[str, int]:
        """The integer params at a point; what it does not mention has its default, or is 1."""
        return {
            param.name: point.get(
                self.atoms.variable(param.name), 1 if param.default is None else int(param.default)
            )
            for param in self.sketch.params
            if param.dtype.is_integer
        }

    def hosts(self, point: Mapping[int, int]) -> Iterator[tuple[ParamValues, dict[str, Any]]]:
        """Params and all host scalars to try at a point: params at their defaults, then integer
        ones as the point has them; where it says which way conditions on others go, these at other
        values."""
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


def counters(scope: Scope) -> tuple[int, ...]:
    """The counter atoms of the loops around, outermost first."""
    loops: tuple[ir.For | ir.HostFor, ...] = (*scope.hosts, *scope.loops)
    return tuple(scope.counter(loop) for loop in loops)


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
            if not contains_iota(step.value, bindings):
                with suppress(KeyError):  # needs a fetched value
                    values[step.name] = evaluate(step.value, values)
        elif isinstance(step, ir.For | ir.HostFor):
            count = point.get(scope.counter(step), 0)
            start, stride = (concrete.known(e, values) for e in (step.start, step.step))
            value = scope.loop_value(step, count, start, stride)
            values[step.variable] = result[step.variable] = value
    return result

"""The quick way to coverage: for every element, the iteration and the lanes that write it.

Each dimension gives an equation, `index == element`. The equations are solved for one unknown after
the other: loop counters, lanes, and the quotients between them, which solves the digits of a
flattened index: from `m // H` and `m % H`, that is `m - H*(m // H)`, follows `m`. How the unknowns
are found does not matter, for in the end loops, branches, lanes and guards are followed with these
values, and every index must prove equal to the element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from sketchc.base import records
from sketchc.checker.facts import (
    ONE,
    Atoms,
    Branch,
    Footprint,
    Linear,
    Scope,
    Site,
    add,
    budget,
    cases,
    constant,
    constant_value,
    footprint,
    lane_facts,
    scale,
)
from sketchc.ir import nodes as ir


def has_witness(
    scope: Scope,
    root: Scope,
    store: Site,
    element: Sequence[Linear],
    shared: frozenset[int] = frozenset(),
) -> bool:
    """True when, for every element of `scope`, an iteration and a lane of `store` are found that
    provably write it. `scope` knows 0 <= element < extent, and of the loops only those of the host
    whose counters are in `shared`."""
    touch = footprint(store, root)
    if touch.resolved.loaded:
        return False  # what a lane holds depends on the lane: it cannot say which lane to take
    scope = records.evolve(scope, thorough=True)
    for by_size in (False, True):
        solver = _Solver(scope, touch, element, shared, by_size)
        if not solver.solve():
            continue
        inside = _followed(scope, store, touch, solver, shared)
        if inside is not None and _written(inside, store, touch, solver, element):
            return True
    return False


class _Solver:
    """Values for the unknowns of one access, as forms over the element. The unknown of the
    outermost loop is solved first, and a lane takes up the remainder; `by_size`: the unknown with
    the largest step is first, and a counter may take up the remainder, as `g` does in `c*G + g`."""

    def __init__(
        self,
        scope: Scope,
        touch: Footprint,
        element: Sequence[Linear],
        shared: frozenset[int],
        by_size: bool = False,
    ) -> None:
        self.by_size = by_size
        self.scope = scope
        self.atoms: Atoms = scope.atoms
        self.touch = touch
        self.order = (*touch.scope.counters, *touch.lanes)
        self.open = frozenset(self.order) - shared
        self.solved: dict[int, Linear] = {}
        self.pending = list(zip(touch.indices, element, strict=True))
        self.places = dict(touch.places)

    def solve(self) -> bool:
        """False where some equation has no plain solution."""
        while self.pending:
            budget.spend(20)
            chosen = None
            for number, (form, target) in enumerate(self.pending):
                current = self.replaced(form)
                slack, unknown = self._unknowns(current)
                if len(unknown) <= 1:
                    chosen = (number, current, target, slack, unknown)
                    break
                if chosen is None and slack is not None:
                    chosen = (number, current, target, slack, unknown)
            if chosen is None:
                return False
            number, current, target, slack, unknown = chosen
            if unknown:
                value = self._solved(current, target, unknown, slack)
                if value is None or self.atoms.depends(value) & self.open:
                    return False  # what is found must not need what is sought: this ends
                self._set(unknown[0], value)
            elif slack is not None:
                rest = add(target, {atom: c for atom, c in current.items() if atom != slack}, -1)
                self._set(slack, _floor(self.atoms, rest, current[slack]))
            if len(unknown) + (slack is not None) <= 1:
                del self.pending[number]
        return True

    def _set(self, atom: int, value: Linear) -> None:
        self.solved[atom] = value
        if atom in self.places:
            self.pending.append((self.places.pop(atom), value))

    def _unknowns(self, form: Linear) -> tuple[int | None, list[int]]:
        """The unknown of a form that takes up the remainder, a lane if there is one, and the other
        unknowns in the order in which they are solved."""
        steps = {
            atom: abs(c)
            for atom, c in form.items()
            if atom in self.touch.lanes and atom in self.open
        }
        if not steps and self.by_size:
            steps = {atom: abs(c) for atom, c in form.items() if self._stands_alone(atom, form)}
        slack = min(steps, key=lambda atom: steps[atom], default=None)
        unknown = {
            factor
            for atom in form
            for factor in (self.atoms.factors(atom) if atom != ONE else ())
            if self.atoms.dependencies[factor] & self.open
        }
        place = {atom: position for position, atom in enumerate(self.order)}
        others = unknown - {slack}
        if slack is not None and not others and slack not in self.touch.lanes:
            others, slack = {slack}, None

        def order(atom: int) -> tuple[int, int, int]:
            degree = max(
                len(self.atoms.factors(a)) for a in form if self.atoms.occurs(atom, {a: 1})
            )
            return -degree * self.by_size, place.get(atom, len(place)), atom

        return slack, sorted(others, key=order)

    def _stands_alone(self, atom: int, form: Linear) -> bool:
        """Whether an atom is an unsolved loop counter that occurs in no product of the form."""
        others = {other: c for other, c in form.items() if other != atom}
        return atom in self.order and atom in self.open and not self.atoms.occurs(atom, others)

    def _solved(
        self, form: Linear, target: Linear, unknown: Sequence[int], slack: int | None
    ) -> Linear | None:
        """The value of the first unknown at which `form` equals the target, or is the largest not
        above it if `slack` takes up the rest; other unknowns are left out. None for none."""
        first, *later = unknown
        left_out = {*later, slack}
        factor: Linear = {}
        rest: Linear = target
        for atom, coefficient in form.items():
            others = list(self.atoms.factors(atom)) if atom != ONE else []
            if first not in others:
                if not left_out.isdisjoint(others):
                    continue
                rest = add(rest, {atom: -coefficient})
                continue
            others.remove(first)
            if first in others:
                return None
            term: Linear = {ONE: coefficient}
            for other in others:
                term = self.atoms.multiply(term, {other: 1})
            factor = add(factor, term)
        value = constant_value(factor)
        if value is not None:
            if slack is None and value in (1, -1):
                return scale(rest, value)
            if slack is not None and value < 0:  # the rest is added, whichever way this one runs
                return scale(_floor(self.atoms, rest, -value), -1)
            return _floor(self.atoms, rest, value)
        if self.scope.proves(add(scale(factor, -1), constant(-1))):
            return scale(self._quotient(rest, scale(factor, -1)), -1)
        if not self.scope.proves(add(factor, constant(-1))):
            return None
        return self._quotient(rest, factor)

    def _quotient(self, rest: Linear, factor: Linear) -> Linear:
        """floor(rest / factor), the factor being at least 1."""
        whole, rest = self.atoms.divided(rest, factor)
        if self.scope.proves(rest) and self.scope.proves(add(add(factor, rest, -1), constant(-1))):
            return whole
        return add(whole, self.atoms.quotient(rest, factor, self.scope.proves(rest)))

    def replaced(self, form: Linear) -> Linear:
        """The form with solved atoms replaced, inside products too."""
        result: Linear = {}
        for atom, coefficient in form.items():
            term: Linear = {ONE: coefficient}
            if atom != ONE:
                for factor in self.atoms.factors(atom):
                    term = self.atoms.multiply(term, self.solved.get(factor, {factor: 1}))
            result = add(result, term)
        return result


def _floor(atoms: Atoms, numerator: Linear, divisor: int) -> Linear:
    if divisor < 0:
        numerator, divisor = scale(numerator, -1), -divisor
    return atoms.floor(numerator, divisor)


# ---------------------------------------------------------------- following the path


def _followed(
    scope: Scope, store: Site, touch: Footprint, solver: _Solver, shared: frozenset[int]
) -> Scope | None:
    """The scope at the store with the solved loop variables; None where a loop does not provably
    run there, or a branch is not provably taken."""
    inside = records.evolve(scope, suffix="")
    for step in store.path:
        match step:
            case ir.Bind(name, value):
                inside = inside.bind(name, value)
            case ir.For() | ir.HostFor():
                counter = touch.scope.counter(step)
                if counter in shared:
                    continue
                variable = _variable(inside, step, touch, solver.solved.get(counter))
                if variable is None:
                    return None
                inside = records.evolve(inside, forms={**inside.forms, step.variable: variable})
            case Branch(condition, holds):
                if not _provably(inside, condition, holds):
                    return None
            case ir.Fetch():
                pass
            case _:
                assert_never(step)
    return inside


def _variable(
    inside: Scope, loop: ir.For | ir.HostFor, touch: Footprint, count: Linear | None
) -> Linear | None:
    """The loop variable at a value of its counter, by default at its start; None where the loop
    does not provably reach it."""
    start, stop = inside.form(loop.start), inside.form(loop.stop)
    stride = constant_value(inside.form(loop.step))
    if not stride:
        return None
    trips = inside.atoms.names[touch.scope.counter(loop)].endswith("'trip")
    if count is None:
        variable = start
    elif trips:
        variable = add(start, count, stride)
    else:
        variable = count
    ran = (count or {}) if trips else add(variable, start, -1)
    left = add(stop, variable, -1) if stride > 0 else add(variable, stop, -1)
    if inside.proves(ran) and inside.proves(add(left, constant(-1))):
        return variable
    return None


def _provably(scope: Scope, condition: ir.Expr, holds: bool = True) -> bool:
    """Whether some alternative of a condition is proved."""
    return any(
        all(
            scope.proves(fact.form) and (not fact.equality or scope.proves(scale(fact.form, -1)))
            for fact in alternative
        )
        for alternative in cases(scope, condition, holds)
    )


def _written(
    scope: Scope, store: Site, touch: Footprint, solver: _Solver, element: Sequence[Linear]
) -> bool:
    """Whether the solved lanes are provably written, and touch the element."""
    forms = dict(scope.forms)
    for axis, atom in enumerate(touch.lanes):
        forms[f"'lane{axis}"] = solver.replaced(solver.solved.get(atom, {}))
    inside = records.evolve(scope, forms=forms)
    for axis, (extent, valid) in enumerate(zip(store.tile.extents, store.domain, strict=True)):
        lane = inside.forms[f"'lane{axis}"]
        if not all(inside.proves(fact.form) for fact in lane_facts(inside, lane, extent, valid)):
            return False
    for name, value in touch.resolved.places:
        place = inside.form(value)
        inside = records.evolve(inside, forms={**inside.forms, name: place})
    if not all(_provably(inside, guard) for guard in touch.resolved.guards):
        return False
    gaps = [
        add(inside.form(index), own, -1)
        for index, own in zip(touch.resolved.indices, element, strict=True)
    ]
    return all(inside.proves(gap) and inside.proves(scale(gap, -1)) for gap in gaps)

"""What is known at one place of a sketch: names as affine forms, and facts about them.

A `Scope` starts with symbols, `let`s and `require`s, grows by one loop or binding at a time, and
answers whether an inequality holds there: first by the quick refutation of `feasibility`, and, on
request, by isl (`polyhedra`). A scope made with `suffix` renames the loop variables it enters, so
that two iterations of one loop can stand in one system.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

from sketchc import ir
from sketchc import records as attrs
from sketchc.checker.affine import (
    ONE,
    Atoms,
    Fact,
    Linear,
    Product,
    add,
    constant,
    constant_value,
    scale,
)
from sketchc.checker.feasibility import infeasible
from sketchc.symbolic import references
from sketchc.types import DType


@attrs.frozen
class Scope:
    """Names and facts in force. `forms` gives each integer name its affine form; names that are
    not there (floats, index tiles) are opaque. `loops` are the loops around, outermost first."""

    atoms: Atoms
    forms: Mapping[str, Linear]
    facts: tuple[Fact, ...] = ()
    loops: tuple[ir.For, ...] = ()
    bindings: Mapping[str, ir.Expr] = attrs.field(factory=dict)
    suffix: str = ""

    # ------------------------------------------------------------ growing

    def enter(self, loop: ir.For) -> Scope:
        """The scope inside the body of a loop: some iteration runs."""
        start, stop = self.form(loop.start), self.form(loop.stop)
        step = constant_value(self.form(loop.step))
        name = loop.variable + self.suffix
        non_negative = self.proves(start)
        if step is None or step < 1:
            variable: Linear = {self.atoms.variable(name, non_negative): 1}
            facts = (Fact(add(variable, start, -1)),)
        elif step == 1:
            variable = {self.atoms.variable(name, non_negative): 1}
            facts = (Fact(add(variable, start, -1)),)
        else:
            trip = {self.atoms.variable(f"{name}'trip", True): 1}
            variable = add(start, trip, step)
            facts = (Fact(trip),)
        last = add(add(stop, variable, -1), constant(-1))
        return attrs.evolve(
            self,
            forms={**self.forms, loop.variable: variable},
            facts=(*self.facts, *facts, Fact(last)),
            loops=(*self.loops, loop),
        )

    def counter(self, loop: ir.For) -> int:
        """The atom that counts the iterations of a loop entered here."""
        form = self.forms[loop.variable]
        names = (loop.variable + self.suffix, f"{loop.variable}{self.suffix}'trip")
        return next(atom for atom in form if self.atoms.names[atom] in names)

    def bind(self, name: str, value: ir.Expr) -> Scope:
        """The scope after `name = value`."""
        bindings = {**self.bindings, name: value}
        if contains_iota(value, self.bindings):
            return attrs.evolve(self, bindings=bindings)
        forms = {**self.forms, name: self.form(value)}
        return attrs.evolve(self, forms=forms, bindings=bindings)

    def assume(self, facts: Iterable[Fact]) -> Scope:
        return attrs.evolve(self, facts=(*self.facts, *facts))

    # ------------------------------------------------------------ forms

    def form(self, expression: ir.Expr) -> Linear:
        """The affine form of an integer expression; what is not affine becomes an atom."""
        match expression:
            case ir.Literal(value):
                if isinstance(value, float):
                    return self._opaque(expression)
                return constant(int(value)) if value else {}
            case ir.Ref(name):
                form = self.forms.get(name)
                return self._opaque(expression) if form is None else form
            case ir.Unary("-", operand):
                return scale(self.form(operand), -1)
            case ir.Binary():
                return self._binary(expression)
            case ir.Unary() | ir.Function() | ir.Iota():
                return self._opaque(expression)
            case _:
                assert_never(expression)

    def _binary(self, expression: ir.Binary) -> Linear:
        left, right = self.form(expression.left), self.form(expression.right)
        divisor = constant_value(right)
        match expression.operator:
            case "+":
                return add(left, right)
            case "-":
                return add(left, right, -1)
            case "*":
                return self.atoms.multiply(left, right)
            case "//" if divisor is not None and divisor > 0:
                return self.atoms.floor(left, divisor)
            case "%" if divisor is not None and divisor > 0:
                return add(left, self.atoms.floor(left, divisor), -divisor)
            case "cdiv" if divisor is not None and divisor > 0:
                return self.atoms.floor(add(left, constant(divisor - 1)), divisor)
            case "//":
                return self._quotient(expression, left, right)
            case "%":
                quotient = self._quotient(expression, left, right)
                return add(left, self.atoms.multiply(quotient, right), -1)
            case "cdiv":
                numerator = add(add(left, right), constant(-1))
                return self._quotient(expression, numerator, right)
            case "min" | "max":
                return self.atoms.extremum(expression.operator, left, right)
            case _:
                return self._opaque(expression)

    def _quotient(self, expression: ir.Expr, numerator: Linear, divisor: Linear) -> Linear:
        """floor(numerator / divisor) for a divisor that is not a positive constant."""
        if constant_value(divisor) is not None or not self.proves(add(divisor, constant(-1))):
            return self._opaque(expression)
        whole, rest = self.atoms.divided(numerator, divisor)
        if self.proves(rest) and self.proves(add(add(divisor, rest, -1), constant(-1))):
            return whole
        return self.atoms.quotient(numerator, divisor, self.proves(numerator))

    def _opaque(self, expression: ir.Expr) -> Linear:
        names = sorted(free_names(expression))
        depends: frozenset[int] = frozenset()
        parts = []
        for name in names:
            form = self.forms.get(name)
            if form is None:
                form = {self.atoms.variable(name + self.suffix): 1}
            depends |= self.atoms.depends(form)
            parts.append(f"{name}={self.atoms.describe(form)}")
        key = f"{expression!r} at {', '.join(parts)}"
        return {self.atoms.opaque(key, depends): 1}

    def compare(self, condition: ir.Expr) -> tuple[Fact, ...]:
        """The affine facts that follow from a condition; a part that is not affine gives none."""
        if not isinstance(condition, ir.Binary):
            return ()
        if condition.operator == "and":
            return (*self.compare(condition.left), *self.compare(condition.right))
        if condition.operator not in _GAPS or is_float(condition):
            return ()
        gap = add(self.form(condition.right), self.form(condition.left), -1)
        match condition.operator:
            case "==":
                return (Fact(gap, equality=True),)
            case "<=":
                return (Fact(gap),)
            case "<":
                return (Fact(add(gap, constant(-1))),)
            case ">=":
                return (Fact(scale(gap, -1)),)
            case _:
                return (Fact(add(scale(gap, -1), constant(-1))),)

    # ------------------------------------------------------------ questions

    def refutes(self, extra: Iterable[Fact]) -> bool:
        """True when the facts here and `extra` have no common integer point (quick part)."""
        return infeasible(relevant(self.atoms, self.facts, tuple(extra)))

    def proves(self, form: Linear, extra: tuple[Fact, ...] = ()) -> bool:
        """True when `form >= 0` follows here (quick part only: False may be "not shown")."""
        value = constant_value(form)
        if value is not None and value >= 0:
            return True
        if value is None and form.get(ONE, 0) >= 0 and self._plainly_non_negative(form):
            return True
        goal = Fact(add(scale(form, -1), constant(-1)))
        if extra:
            return self.refutes((*extra, goal))
        key = (id(self.facts), frozenset(form.items()))
        known = self.atoms.answers.get(key)
        if known is None:
            self.atoms.kept.append(self.facts)  # keeps the id in the key from being used again
            known = self.atoms.answers[key] = self.refutes((goal,))
        return known

    def _plainly_non_negative(self, form: Linear) -> bool:
        known = self.atoms.non_negative
        return all(c > 0 and known[atom] for atom, c in form.items())

    def below(self, left: ir.Expr, right: ir.Expr) -> bool:
        """True when `left <= right` follows here."""
        return self.proves(add(self.form(right), self.form(left), -1))


_GAPS = frozenset(("==", "<=", "<", ">=", ">"))


def root_scope(sketch: ir.Sketch, atoms: Atoms | None = None, suffix: str = "") -> Scope:
    """The scope of host scalars: constants by value, symbols >= 0 and within their bounds, integer
    `let`s written out, requirements, and extents >= 0 (checked at launch)."""
    numbering = atoms or Atoms()
    forms: dict[str, Linear] = {}
    facts: list[Fact] = []
    for symbol in sketch.symbols:
        atom = numbering.variable(symbol.name, non_negative=True)
        forms[symbol.name] = {atom: 1}
        facts.append(Fact({atom: 1}))
        if symbol.upper_bound is not None:
            facts.append(Fact({atom: -1, ONE: symbol.upper_bound}))
    for item in sketch.constants:
        if not item.dtype.is_float:
            forms[item.name] = constant(int(item.value)) if item.value else {}
    for param in sketch.params:
        if param.dtype.is_integer:
            forms[param.name] = {numbering.variable(param.name): 1}
    scope = Scope(numbering, forms, tuple(facts), suffix=suffix)
    for let in sketch.lets:
        if let.dtype is DType.I64:
            scope = attrs.evolve(scope, forms={**scope.forms, let.name: scope.form(let.value)})
    for require in sketch.requires:
        scope = scope.assume(scope.compare(require.condition))
    return scope.assume(_extent_facts(sketch, scope))


def _extent_facts(sketch: ir.Sketch, scope: Scope) -> list[Fact]:
    facts = []
    for tensor in sketch.tensors:
        for extent in tensor.extents:
            form = scope.form(extent)
            if len(form) > 1:  # a symbol, a constant or a product needs no fact of its own
                facts.append(Fact(form))
    return facts


def relevant(atoms: Atoms, facts: tuple[Fact, ...], goal: tuple[Fact, ...]) -> list[Fact]:
    """The goal, the facts that share variables with it (transitively), and the definitions of the
    atoms in them. Leaving out the others is sound: the system only grows weaker."""
    chosen = list(goal)
    seen: set[int] = {ONE}
    pending = [atom for fact in goal for atom in fact.form if atom not in seen]
    rest = list(facts)
    while pending:
        atom = pending.pop()
        if atom in seen:
            continue
        seen.add(atom)
        found = list(atoms.facts[atom])
        pending.extend(atoms.factors(atom))
        remaining: list[Fact] = []
        for fact in rest:
            (found if atoms.occurs(atom, fact.form) else remaining).append(fact)
        rest = remaining
        chosen.extend(found)
        for fact in found:
            pending.extend(other for other in fact.form if other not in seen)
    return chosen + lifted(atoms, chosen)


def lifted(atoms: Atoms, facts: list[Fact]) -> list[Fact]:
    """Facts multiplied by non-negative factors of the products in them: from `i <= B - 1` follows
    `i*H <= B*H - H` (the reformulation of Sherali and Adams, 1990). Only parts of
    products that occur already are made, so that the system does not grow without end."""
    products = {
        atom for fact in facts for atom in fact.form if isinstance(atoms.definitions[atom], Product)
    }
    if not products:
        return []
    parts = products.union(*(atoms.parts(atom) for atom in products))
    result = [fact for atom in parts - products for fact in atoms.facts[atom]]
    for fact in facts:
        for factor in parts:
            if not (fact.equality or atoms.non_negative[factor]):
                continue
            if any(atoms.known_product(atom, factor) in products for atom in fact.form):
                form = atoms.multiply(fact.form, {factor: 1})
                if all(atom in parts or len(atoms.factors(atom)) == 1 for atom in form):
                    result.append(Fact(form, fact.equality))
    return result


# ---------------------------------------------------------------- expressions


def free_names(expression: ir.Expr) -> frozenset[str]:
    """The names an expression uses."""
    return frozenset(reference.name for reference in references(expression))


def contains_iota(expression: ir.Expr, bindings: Mapping[str, ir.Expr]) -> bool:
    """True for an index tile: an expression over `iota`, directly or through a binding."""
    match expression:
        case ir.Iota():
            return True
        case ir.Ref(name):
            return name in bindings and contains_iota(bindings[name], bindings)
        case ir.Literal():
            return False
        case ir.Unary(_, operand):
            return contains_iota(operand, bindings)
        case ir.Binary(_, left, right):
            return contains_iota(left, bindings) or contains_iota(right, bindings)
        case ir.Function(_, arguments):
            return any(contains_iota(argument, bindings) for argument in arguments)
        case _:
            assert_never(expression)


def is_float(expression: ir.Expr) -> bool:
    """True when a float occurs: such a comparison says nothing about integers."""
    match expression:
        case ir.Literal(value):
            return isinstance(value, float)
        case ir.Ref(_, _, dtype):
            return dtype.is_float
        case ir.Unary(_, operand):
            return is_float(operand)
        case ir.Binary(operator, left, right):
            return operator == "/" or is_float(left) or is_float(right)
        case ir.Function():
            return True
        case ir.Iota():
            return False
        case _:
            assert_never(expression)

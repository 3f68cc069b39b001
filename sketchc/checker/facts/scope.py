"""What is known at one place of a sketch: names as affine forms, and facts about them.

A `Scope` starts with symbols, `let`s and `require`s, grows by one loop or binding at a time, and
answers whether an inequality holds there, by the quick refutation of `systems` (`prover` also asks
isl). A scope made with `suffix` renames the loop variables it enters, so that two iterations of one
loop can stand in one system.

A `require:` may tie sizes to others: with `D == DH*H`, D is that product wherever it stands. A name
that equals another name, or a product, needs no atom of its own: mixed-radix digits by DH and H are
then digits of a number below D. A name that equals a sum keeps its atom, since a form of one term
is easier to divide by; the requirement on it stays a fact.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import reduce
from typing import Any, TypeAlias, assert_never

from sketchc.base import records
from sketchc.base.types import DType
from sketchc.checker.facts.affine import (
    ONE,
    Atoms,
    Fact,
    Linear,
    add,
    constant,
    constant_value,
    relation,
    scale,
)
from sketchc.checker.facts.systems import refuted
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.evaluate import evaluate
from sketchc.ir.guards import alternatives, consequences
from sketchc.ir.symbolic import OPPOSITE, negated, simplify
from sketchc.ir.walk import children, has_lanes, names, references, substitute

_KINDS = (ir.NameKind.SYMBOL, ir.NameKind.PARAM)


def ties(sketch: ir.Sketch) -> tuple[tuple[str, ir.Expr], ...]:
    """The names that `require:`s tie to others, each with its value over untied or earlier ones."""
    integers = {symbol.name for symbol in sketch.symbols}
    integers |= {param.name for param in sketch.params if param.dtype.is_integer}
    found: dict[str, ir.Expr] = {}
    below: dict[str, frozenset[str]] = {}  # the names that a tied one depends on
    for require in sketch.requires:
        for name, value in _equalities(require.condition):
            used = frozenset(reference.name for reference in references(value))
            if name in found or name not in integers or not used <= integers:
                continue
            used = used.union(*(below.get(other, frozenset()) for other in used))
            if name in used:
                continue
            found[name], below[name] = value, used
            for other, needed in below.items():
                if name in needed:
                    below[other] = needed | used
    return tuple((name, found[name]) for name in sorted(found, key=lambda n: len(below[n])))


def _equalities(condition: ir.Expr) -> Iterator[tuple[str, ir.Expr]]:
    match condition:
        case ir.Binary("and", left, right):
            yield from _equalities(left)
            yield from _equalities(right)
        case ir.Binary("==", left, right):
            for side, other in ((left, right), (right, left)):
                if isinstance(side, ir.Ref) and side.kind in _KINDS and _is_term(other):
                    yield side.name, other


def _is_term(value: ir.Expr) -> bool:
    """A number, a name, or a product of such."""
    match value:
        case ir.Literal(number):
            return isinstance(number, int) and not isinstance(number, bool)
        case ir.Ref(kind=kind):
            return kind in _KINDS
        case ir.Binary("*", left, right):
            return _is_term(left) and _is_term(right)
        case _:
            return False


def with_ties(found: tuple[tuple[str, ir.Expr], ...], values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of names in which the tied ones, `found` by `ties`, follow from the others."""
    result = dict(values)
    for name, value in found:
        if name in result:
            result[name] = evaluate(value, result)
    return result


@records.frozen
class Branch:
    """The inside of an `if`: its condition holds there, or in the `else` part does not."""

    condition: ir.Expr
    holds: bool


#: What leads to a statement, from the host's loops on: each step changes what is known.
Step: TypeAlias = ir.For | ir.HostFor | ir.Bind | ir.Fetch | Branch

#: Conditions that are one affine relation, and whose opposites are.
_ONE_RELATION = ("<=", "<", ">=", ">")


@records.frozen
class Scope:
    """Names and facts in force. `forms` gives each integer name its affine form; names that are
    not there (floats, index tiles) are opaque. `loops` are the loops around, outermost first;
    `hosts` the loops of the host around the launch; `loaded` the scalars that come from memory."""

    atoms: Atoms
    forms: Mapping[str, Linear]
    facts: tuple[Fact, ...] = ()
    loops: tuple[ir.For, ...] = ()
    bindings: Mapping[str, ir.Expr] = records.field(factory=dict)
    suffix: str = ""
    hosts: tuple[ir.HostFor, ...] = ()
    loaded: frozenset[str] = frozenset()
    thorough: bool = False  # factors of products are compared where nothing else decides
    #: launch checks that hold as one of several alternatives, and the conditions that hold here
    open: tuple[ir.Expr, ...] = ()
    told: frozenset[ir.Expr] = frozenset()
    lets: tuple[ir.Let, ...] = ()  # whose value is a choice, which such conditions may decide

    # ------------------------------------------------------------ growing

    def after(self, step: Step) -> Scope:
        """The scope inside a loop or branch, or after a binding."""
        match step:
            case ir.For():
                return records.evolve(self._entered(step), loops=(*self.loops, step))
            case ir.HostFor():
                return records.evolve(self._entered(step), hosts=(*self.hosts, step))
            case ir.Bind(name, value):
                return self.bind(name, value)
            case ir.Fetch(name, _, dtype):
                if dtype.is_float:
                    return self
                known = self.unknown(name, dtype)
                return records.evolve(known, loaded=self.loaded | {name})
            case Branch(condition, holds):
                return self.given(condition, holds)
            case _:
                assert_never(step)

    def _entered(self, loop: ir.For | ir.HostFor) -> Scope:
        """The scope with the loop's variable and its range. The atom of a loop with a literal step
        other than 1 counts the trips (`i'trip`); that of one that runs down in steps of unknown
        length, the distance from the start (`i'back`)."""
        start, stop = self.form(loop.start), self.form(loop.stop)
        length = self.form(loop.step)
        step = constant_value(length)
        name = loop.variable + self.suffix
        down = step < 0 if step is not None else self.proves(add(scale(length, -1), constant(-1)))
        if step is not None and step not in (0, 1):
            trip = {self.atoms.variable(f"{name}'trip", True): 1}
            variable = add(start, trip, step)
            facts = (Fact(trip),)
        elif down:
            back = {self.atoms.variable(f"{name}'back", True): 1}
            variable = add(start, back, -1)
            facts = (Fact(back),)
        else:
            variable = {self.atoms.variable(name, self.proves(start)): 1}
            facts = (Fact(add(variable, start, -1)),)
        last = add(variable, stop, -1) if down else add(stop, variable, -1)
        return records.evolve(
            self,
            forms={**self.forms, loop.variable: variable},
            facts=(*self.facts, *facts, Fact(add(last, constant(-1)))),
        )

    def counter(self, loop: ir.For | ir.HostFor) -> int:
        """The atom that counts the iterations of a loop entered here."""
        form = self.forms[loop.variable]
        spelt = (loop.variable + self.suffix, loop.variable)
        names = {name + kind for name in spelt for kind in ("", "'trip", "'back")}
        return next(atom for atom in form if self.atoms.names[atom] in names)

    @property
    def counters(self) -> tuple[int, ...]:
        """The counter atoms of the loops around, outermost first."""
        loops: tuple[ir.For | ir.HostFor, ...] = (*self.hosts, *self.loops)
        return tuple(map(self.counter, loops))

    def loop_value(self, loop: ir.For | ir.HostFor, count: int, start: int, step: int) -> int:
        """The loop variable's value where its counter atom is `count`."""
        name = self.atoms.names[self.counter(loop)]
        if name.endswith("'trip"):
            return start + step * count
        return start - count if name.endswith("'back") else count

    def bind(self, name: str, value: ir.Expr) -> Scope:
        """The scope after `name = value`."""
        forms = self.forms
        if not has_lanes(value, self.bindings):
            forms = {**forms, name: self.form(value)}
        loaded = self.loaded | {name} if names(value) & self.loaded else self.loaded
        bindings = {**self.bindings, name: value}
        return records.evolve(self, forms=forms, bindings=bindings, loaded=loaded)

    def unknown(self, name: str, dtype: DType) -> Scope:
        """The scope with a name that may have any value of an integer type."""
        low, high = dtype.limits or (None, None)
        value = {self.atoms.variable(name + self.suffix, low == 0): 1}
        inner = records.evolve(self, forms={**self.forms, name: value})
        if dtype is DType.I64 or low is None or high is None:
            return inner
        return inner.assume(
            (Fact(add(value, constant(-low))), Fact(add(constant(high), value, -1)))
        )

    def given(self, condition: ir.Expr, holds: bool = True) -> Scope:
        """The scope where a uniform condition holds, or does not."""
        inner = self.assume(self.compare(condition, holds))
        return inner._told(consequences(condition, holds)) if self.open else inner

    def _told(self, conditions: Iterable[ir.Expr]) -> Scope:
        """The scope where `conditions` hold, with what the launch checks then imply: where only one
        alternative of a check such as `not present(S) or G >= 1` is left, that one holds."""
        scope = records.evolve(self, told=self.told | frozenset(conditions))
        for condition in self.open:
            left = [
                part
                for part in alternatives(condition)
                if negated(part) not in scope.told and not scope.refutes(scope.compare(part))
            ]
            if len(left) == 1:
                rest = tuple(other for other in scope.open if other != condition)
                scope = records.evolve(scope, open=rest).assume(scope.compare(left[0]))
        for let in self.lets:  # its form where the branch is taken
            scope = records.evolve(scope, forms={**scope.forms, let.name: scope.form(let.value)})
        return scope

    def assume(self, facts: Iterable[Fact]) -> Scope:
        """The scope where these facts hold."""
        added = [part for fact in facts for part in (fact, *_factors_positive(self.atoms, fact))]
        return records.evolve(self, facts=(*self.facts, *added)) if added else self

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
            case ir.Choice():
                return self._choice(expression)
            case ir.Unary() | ir.Function() | ir.Iota() | ir.TileLanes():
                return self._opaque(expression)
            case _:
                assert_never(expression)

    def _choice(self, expression: ir.Choice) -> Linear:
        """The form of the operand that the condition selects, or an atom that equals either."""
        condition = expression.condition
        then, otherwise = self.form(expression.then), self.form(expression.otherwise)
        cases = [self.compare(condition, holds) for holds in (True, False)]
        if self.refutes(cases[0]):
            return otherwise
        if self.refutes(cases[1]):
            return then
        plain = isinstance(condition, ir.Binary) and condition.operator in _ONE_RELATION
        exact = plain and not is_float(condition)
        return self.atoms.choice((cases[0], then), (cases[1], otherwise), exact, expression)

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
        key = (id(self.facts), *sorted(numerator.items()), None, *sorted(divisor.items()))
        if key not in self.atoms.quotients:
            self.atoms.kept.append(self.facts)  # keeps the id in the key from being used again
            self.atoms.quotients[key] = self._divided(expression, numerator, divisor)
        return self.atoms.quotients[key]

    def _divided(self, expression: ir.Expr, numerator: Linear, divisor: Linear) -> Linear:
        if constant_value(divisor) is not None or not self.proves(add(divisor, constant(-1))):
            return self._opaque(expression)
        whole, rest = self.atoms.divided(numerator, divisor)
        if self.proves(rest) and self.proves(add(add(divisor, rest, -1), constant(-1))):
            return whole
        return self.atoms.quotient(numerator, divisor, self.proves(numerator))

    def _opaque(self, expression: ir.Expr) -> Linear:
        depends: frozenset[int] = frozenset()
        parts = []
        for name in sorted(names(expression)):
            form = self.forms.get(name)
            if form is None:
                form = {self.atoms.variable(name + self.suffix): 1}
            depends |= self.atoms.depends(form)
            parts.append(f"{name}={self.atoms.describe(form)}")
        key = f"{expression!r} at {', '.join(parts)}"
        return {self.atoms.opaque(key, depends): 1}

    def compare(self, condition: ir.Expr, holds: bool = True) -> tuple[Fact, ...]:
        """The affine facts that follow where a condition holds (or does not): of a disjunction
        those that follow from both sides; a part that is not affine gives none."""
        match condition:
            case ir.Unary("not", operand):
                return self.compare(operand, not holds)
            case ir.Binary("and" | "or" as operator, left, right):
                one, two = self.compare(left, holds), self.compare(right, holds)
                return (*one, *two) if (operator == "and") == holds else self._common(one, two)
            case ir.Binary(operator, left, right) if operator in OPPOSITE:
                if is_float(condition):
                    return ()
                relation = operator if holds else OPPOSITE[operator]
                return self._relation(relation, add(self.form(right), self.form(left), -1))
            case _:
                return ()

    def _common(self, one: tuple[Fact, ...], two: tuple[Fact, ...]) -> tuple[Fact, ...]:
        """The facts of either side that follow from the other, too: `a == 1 or a == 8` says
        `1 <= a <= 8`."""
        sides = [
            [
                Fact(form)
                for fact in side
                for form in ((fact.form, scale(fact.form, -1)) if fact.equality else (fact.form,))
            ]
            for side in (one, two)
        ]
        inside = [records.evolve(self, facts=(*self.facts, *side)) for side in (two, one)]
        return tuple(
            fact
            for side, other in zip(sides, inside, strict=True)
            for fact in side
            if other.proves(fact.form)
        )

    def _relation(self, operator: str, gap: Linear) -> tuple[Fact, ...]:
        """The facts of `left operator right`, for `gap` = right - left."""
        if operator != "!=":
            return (relation(operator, gap),) if gap or operator != "==" else ()
        for side in (gap, scale(gap, -1)):  # on one side, where the other is excluded
            if self.proves(side):
                return (Fact(add(side, constant(-1))),)
        return ()

    # ------------------------------------------------------------ questions

    def refutes(self, extra: Iterable[Fact]) -> bool:
        """True when the facts here and `extra` have no common integer point (quick part)."""
        return refuted(self.atoms, self.facts, tuple(extra), self.thorough)

    def proves(self, form: Linear, extra: tuple[Fact, ...] = ()) -> bool:
        """True when `form >= 0` follows here (quick part only: False may be "not shown")."""
        value = constant_value(form)
        if value is not None and value >= 0:
            return True
        plain = self.atoms.non_negative
        if value is None and all(c > 0 and plain[atom] for atom, c in form.items()):
            return True
        goal = Fact(add(scale(form, -1), constant(-1)))
        if extra:
            return self.refutes((*extra, goal))
        key = (id(self.facts), frozenset(form.items()), self.thorough)
        known = self.atoms.answers.get(key)
        if known is None:
            self.atoms.kept.append(self.facts)  # keeps the id in the key from being used again
            known = self.atoms.answers[key] = self.refutes((goal,))
        return known


def root_scope(sketch: ir.Sketch) -> Scope:
    """The scope of host scalars: constants by value, symbols >= 0 and within their bounds, integer
    `let`s written out, requirements, and extents >= 0 (checked at launch)."""
    numbering = Atoms()
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
            unsigned = not param.dtype.is_signed
            forms[param.name] = {numbering.variable(param.name, unsigned): 1}
    scope = _tied(sketch, Scope(numbering, forms, tuple(facts)))
    lets = {let.name for let in sketch.lets}
    for require in sketch.requires:  # lets may divide by what these say is positive
        if not names(require.condition) & lets:
            scope = scope.given(require.condition)
    extents = {e for tensor in sketch.tensors if not tensor.optional for e in tensor.extents}
    for let in sketch.lets:
        if let.dtype is DType.I64:
            sized = ir.Ref(let.name, ir.NameKind.LET) in extents
            form, known = _let_form(scope, let, sized)
            scope = records.evolve(scope, forms={**scope.forms, let.name: form}).assume(known)
    for require in sketch.requires:
        if names(require.condition) & lets:
            scope = scope.given(require.condition)
    scope = scope.assume(_extent_facts(sketch, scope))
    made = (require.condition for require in sketch.requires if require.generated)
    asked = tuple(condition for condition in made if len(alternatives(condition)) > 1)
    whole = (let for let in sketch.lets if let.dtype is DType.I64)
    chosen = tuple(let for let in whole if isinstance(let.value, ir.Choice)) if asked else ()
    return records.evolve(scope, open=asked, lets=chosen)


def _tied(sketch: ir.Sketch, scope: Scope) -> Scope:
    """The scope with forms and bounds of the names that conditions tie to others."""
    limits = sketch.symbol_bounds
    for name, value in ties(sketch):
        form = scope.form(value)
        scope = records.evolve(scope, forms={**scope.forms, name: form})
        if name in limits:
            scope = scope.assume((Fact(form),))
            most = limits[name]
            if most is not None:
                scope = scope.assume((Fact(add(constant(most), form, -1)),))
    return scope


def _let_form(scope: Scope, let: ir.Let, sized: bool) -> tuple[Linear, tuple[Fact, ...]]:
    """The form of a `let`, and facts about it. A sum gets an atom of its own that equals the value,
    so that products with it, such as `N*OH*OW`, stay single terms; where the value is positive, a
    fact says so of the atom, since others may be divided by it. `sized`: it is an extent, so not
    negative."""
    form = scope.form(let.value)
    if len(form) < 2:
        return form, ()
    own = scope.atoms.defined(let.name, form, sized or scope.proves(form))
    positive = scope.proves(add(form, constant(-1)))
    return own, (Fact(add(own, constant(-1))),) if positive else ()


def host_path(sketch: ir.Sketch, phase: int) -> tuple[Step, ...]:
    """The steps of the host around the launch of a phase: its loops, branches and values (R8)."""
    return tuple(
        Branch(step.condition, launches(step.body, phase)) if isinstance(step, ir.HostIf) else step
        for step in walk.around(sketch.steps, phase)
    )


def phase_scope(sketch: ir.Sketch, root: Scope, phase: int) -> Scope:
    """The scope at the start of a phase."""
    return reduce(Scope.after, host_path(sketch, phase), root)


def launches(steps: tuple[ir.HostStep, ...], phase: int) -> bool:
    """Whether these steps of the host launch a phase."""
    return any(isinstance(s, ir.Launch) and s.phase == phase for s in walk.statements(steps))


def _factors_positive(atoms: Atoms, fact: Fact) -> list[Fact]:
    """From `a*b >= 1` with a, b >= 0 follow a >= 1 and b >= 1."""
    form = fact.form
    products = [atom for atom in form if atom != ONE]
    if fact.equality or len(products) != 1 or form.get(ONE, 0) >= 0 or form[products[0]] <= 0:
        return []
    factors = atoms.factors(products[0])
    if len(factors) == 1 or not all(atoms.non_negative[factor] for factor in factors):
        return []
    return [Fact({factor: 1, ONE: -1}) for factor in dict.fromkeys(factors)]


def _extent_facts(sketch: ir.Sketch, scope: Scope) -> list[Fact]:
    facts = []
    for tensor in sketch.tensors:
        for extent in () if tensor.optional else tensor.extents:  # see `declarations`
            form = scope.form(extent)
            if len(form) > 1:  # a symbol, a constant or a product needs no fact of its own
                facts.append(Fact(form))
    return facts


# ---------------------------------------------------------------- expressions


def is_float(expression: ir.Expr) -> bool:
    """True when a float occurs: such a comparison says nothing about integers."""
    match expression:
        case ir.Literal(value):
            return isinstance(value, float)
        case ir.Ref(dtype=dtype):
            return dtype.is_float
        case ir.Function() | ir.Binary("/"):
            return True
        case ir.Iota() | ir.TileLanes() | ir.Choice():
            return False
        case _:
            return any(map(is_float, children(expression)))


def monotonicity(form: Linear, counter: int, scope: Scope) -> int | None:
    """1 or -1 where a form only rises or only falls with a counter; None where neither is plain."""
    signs = set()
    for atom, coefficient in form.items():
        if counter not in scope.atoms.dependencies[atom]:
            continue
        factors = scope.atoms.factors(atom)
        rest = [factor for factor in factors if factor != counter]
        fixed = all(counter not in scope.atoms.dependencies[factor] for factor in rest)
        if len(factors) - len(rest) != 1 or not fixed:
            return None  # `i * ((N - i)//D)` grows, then falls
        if not all(scope.atoms.non_negative[factor] for factor in rest):
            return None
        signs.add(1 if coefficient > 0 else -1)
    return signs.pop() if len(signs) == 1 else None


def inlined(expression: ir.Expr, scope: Scope, keep: Collection[str] = ()) -> ir.Expr:
    """The expression with bindings written out, but for those in `keep`."""
    while True:
        inner = {
            name: scope.bindings[name]
            for name in names(expression)
            if name in scope.bindings and name not in keep
        }
        if not inner:
            return expression
        expression = simplify(substitute(expression, inner))

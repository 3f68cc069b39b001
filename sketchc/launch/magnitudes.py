"""How large the integers of a sketch can become: polynomials over the host's scalars.

Every integer subexpression, overshoot lanes included, is bounded here in magnitude by one
polynomial with non-negative coefficients over symbols, lets, params and whatever else the host
knows at a launch. `index_width` makes of the bounds the condition under which 64 bits hold every
integer; a kernel computes in 32 bits where the bound stays below 2^31.

Values from memory have no bound: index tiles and scalars that a kernel loads are *wide*.
Expressions that are computed from them are not counted here; their parts that are not wide are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from fractions import Fraction
from functools import reduce
from typing import TypeAlias, assert_never

from sketchc.base import records
from sketchc.base.diagnostics import NOWHERE, Span
from sketchc.base.types import DType
from sketchc.ir import nodes as ir
from sketchc.ir import walk
from sketchc.ir.show import show as show_expression
from sketchc.ir.symbolic import add as add
from sketchc.ir.symbolic import multiply as multiply
from sketchc.ir.symbolic import simplify, without
from sketchc.ir.walk import children

#: Integers of 64 bits hold magnitudes below this.
LARGEST = 2**63

#: Products of more terms are not expanded, so that no input takes long.
_MOST_TERMS = 4096

#: Monomial (sorted atom names) -> non-negative coefficient.
Polynomial: TypeAlias = dict[tuple[str, ...], Fraction]


class UnboundedError(Exception):
    """An expression whose magnitude no polynomial bounds."""


def constant(value: int) -> Polynomial:
    """The bound of a number: its magnitude, as a polynomial."""
    return {(): Fraction(abs(value))} if value else {}


def upper(left: Polynomial, right: Polynomial) -> Polynomial:
    """A bound of two bounds: atoms are never negative, so the larger coefficients bound both."""
    return {**left, **{m: max(left.get(m, c), c) for m, c in right.items()}}


def _quotient(dividend: Polynomial, factors: tuple[str, ...]) -> Polynomial:
    """A bound of a quotient by an integer that is not 0, a multiple of the product of `factors`:
    terms with that product lose it."""
    result: Polynomial = {}
    for monomial, coefficient in dividend.items():
        rest = without(monomial, factors)
        result = add(result, {monomial if rest is None else rest: coefficient})
    return result


def _dominates(left: Polynomial, right: Polynomial) -> bool:
    return all(left.get(monomial, 0) >= value for monomial, value in right.items())


def by_degree(polynomial: Polynomial) -> list[tuple[str, ...]]:
    """The monomials, highest degree first."""
    return sorted(polynomial, key=lambda monomial: (-len(monomial), monomial))


def show(polynomial: Polynomial, rename: Callable[[str], str] = str) -> str:
    """A polynomial as Python text, highest degree first, coefficients rounded up; `rename` gives
    the Python name of an atom's name."""
    terms = []
    for monomial in by_degree(polynomial):
        coefficient = math.ceil(polynomial[monomial])
        factors = [_renamed(atom, rename) for atom in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        terms.append(" * ".join(factors))
    return " + ".join(terms) if terms else "0"


def _renamed(atom: str, rename: Callable[[str], str]) -> str:
    """An atom, which is a symbol or `abs(name)`, with its name replaced by `rename`."""
    if atom.startswith("abs("):
        return f"abs({rename(atom[4:-1])})"
    return rename(atom)


def is_loaded(expression: ir.Expr, names: Container[str]) -> bool:
    """True where an integer expression depends on a value from memory: on lanes of a tile that is
    not bool, or on a scalar among `names`. Comparisons do not depend on any."""
    match expression:
        case ir.TileLanes(dtype=dtype):
            return dtype is not DType.BOOL
        case ir.Ref(name=name, kind=kind):
            return kind in _BOUND and name in names
        case ir.Binary("and" | "or" | "<" | "<=" | ">" | ">=" | "==" | "!="):
            return False
        case _:
            return any(is_loaded(part, names) for part in children(expression))


_BOUND = (ir.NameKind.BINDING, ir.NameKind.LOOP, ir.NameKind.HOST)


@records.define
class Magnitudes:
    """Collects the largest magnitude over all expressions it is shown.

    `values` are the compile-time constants; `variables` the bounds of loop variables and bindings;
    `wide` the names with values from memory, except those in `known`, which are atoms themselves.
    `padded`: lanes are counted as a target may pad them, to the next power of two, and loop
    variables to one step past their end; otherwise as the language has them. `natural` names the
    host's scalars that are never negative, `functions` the calls of `int` that stand as atoms.
    """

    values: Mapping[str, int | float | bool]
    padded: bool = True
    natural: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    variables: dict[str, Polynomial] = records.field(factory=dict)
    largest: list[Polynomial] = records.field(factory=list)  # none dominates another
    wide: set[str] = records.field(factory=set)
    functions: dict[str, ir.Expr] = records.field(factory=dict)
    unbounded: bool = False
    #: The spans at which the bounds in `largest` were seen, by the `id` of the bound.
    places: dict[int, Span] = records.field(factory=dict)
    #: The first place that leaves 64 bits whatever the sizes are.
    hopeless: Span | None = None
    #: The expressions seen since a name last got a bound, by `id`, with their bounds: extents
    #: stand in every access. An expression is kept, so that no other one has its `id`.
    seen: dict[int, tuple[ir.Expr, Polynomial]] = records.field(factory=dict)

    def note(self, polynomial: Polynomial, span: Span = NOWHERE) -> Polynomial:
        """Add a bound to `largest`, unless another dominates it; returns the bound."""
        if self.hopeless is None and polynomial.get((), 0) >= LARGEST:
            self.hopeless = span
        if not any(_dominates(other, polynomial) for other in self.largest):
            kept = [other for other in self.largest if not _dominates(polynomial, other)]
            self.largest = [*kept, polynomial]
            self.places[id(polynomial)] = span
        return polynomial

    def see(self, expression: ir.Expr) -> Polynomial:
        """The bound of an expression; that and the bounds of its parts are added to `largest`."""
        known = self.seen.get(id(expression))
        if known is None:
            known = self.seen[id(expression)] = expression, self._see(expression)
        return known[1]

    def _see(self, expression: ir.Expr) -> Polynomial:
        if is_loaded(expression, self.wide):
            for part in children(expression):
                self.see(part)
            return {}
        try:
            bound = self._bound(expression)
            was_there = isinstance(expression, ir.Ref | ir.Literal)
            if isinstance(expression, ir.Binary):
                was_there = expression.operator in ("min", "max")
            if not self.padded and was_there:
                return bound  # the value was noted where it was made, or fits its declared type
            return self.note(bound, expression.span)
        except UnboundedError:
            self.unbounded = True
            return {}

    def assign(self, name: str, expressions: tuple[ir.Expr, ...], bound: Polynomial) -> None:
        """Record a name whose value is computed from `expressions` and stays within `bound`."""
        if any(is_loaded(expression, self.wide) for expression in expressions):
            self.wide.add(name)
        self.variables[name] = self.note(bound) if self.padded else bound  # seen by then
        self.seen.clear()

    def load(self, name: str) -> None:
        """Record a name whose value comes from memory."""
        self.wide.add(name)
        self.variables[name] = {}
        self.seen.clear()

    def lanes(self, extent: ir.Expr) -> Polynomial:
        """A bound of the lane numbers of an axis with this extent."""
        count = self.see(extent)
        if self.padded:
            return multiply(constant(2), count)  # bounds the next power of two
        whole = count.get(())
        return constant(int(whole) - 1) if len(count) == 1 and whole else count

    def _bound(self, expression: ir.Expr) -> Polynomial:
        match expression:
            case ir.Literal(value):
                if isinstance(value, float) and not self.padded:
                    return {}
                return constant(math.ceil(abs(value))) if math.isfinite(value) else {}
            case ir.Ref(name, kind, dtype):
                return self._name(name, kind, dtype)
            case ir.Unary(_, operand):
                return self.see(operand)
            case ir.Binary(operator, left, right):
                return self._binary(operator, left, right, expression.span)
            case ir.Choice(condition, then, otherwise):
                self.see(condition)
                return upper(self.see(then), self.see(otherwise))
            case ir.Function(name, arguments):
                return self._function(expression, name, [self.see(part) for part in arguments])
            case ir.Iota(extent, lower, bound):
                if bound is not None and not self.padded:
                    self.see(bound)
                return add(self.see(lower), self.lanes(extent))
            case ir.TileLanes():
                return constant(1)  # of bools; see `see`
            case _:
                assert_never(expression)

    def _name(self, name: str, kind: ir.NameKind, dtype: DType) -> Polynomial:
        if name in self.values:
            return self._bound(ir.Literal(self.values[name]))
        if name in self.variables:
            return self.variables[name]
        if dtype is DType.BOOL or dtype.is_float:
            return {}
        natural = kind is ir.NameKind.SYMBOL or name in self.natural
        return {(name if natural else f"abs({name})",): Fraction(1)}

    def _function(
        self, expression: ir.Function, name: str, arguments: list[Polynomial]
    ) -> Polynomial:
        if self.padded:
            raise UnboundedError
        match name:
            case "abs":
                return arguments[0]
            case "int":  # of a float, at the host: its value is what it is
                atom = f"abs({show_expression(expression)})"
                self.functions[atom] = expression
                return {(atom,): Fraction(1)}
            case _:
                return {}  # floats

    def _binary(self, operator: str, left: ir.Expr, right: ir.Expr, span: Span) -> Polynomial:
        a, b = self.see(left), self.see(right)
        match operator:
            case "+" | "-":
                return add(a, b)
            case "*":
                return self._product(a, b, span)
            case "//" | "cdiv":
                # cdiv(a, b) is (a + b - 1) // b, and a floor is found by way of a - a % b.
                self.note(add(a, b), span)
                divisor = self._value(right)
                if divisor is None or divisor == 0:
                    return a if self.padded else _quotient(a, self._factors(right))
                return add({m: c / abs(divisor) for m, c in a.items()}, constant(1))
            case "%":
                return b
            case "min" | "max":
                return upper(a, b)
            case "/":
                if self.padded:
                    raise UnboundedError
                return {}  # a float
            case _:  # comparisons, and, or
                return constant(1)

    def _product(self, left: Polynomial, right: Polynomial, span: Span) -> Polynomial:
        """The product of two bounds. Raises `UnboundedError`, and notes `hopeless`, for one of too
        many terms or of a degree that only sizes of 0 and 1 keep within 64 bits."""
        degree = max(map(len, left), default=0) + max(map(len, right), default=0)
        if len(left) * len(right) <= _MOST_TERMS and degree <= LARGEST.bit_length():
            return multiply(left, right)
        if self.hopeless is None:
            self.hopeless = span
        raise UnboundedError

    def _factors(self, expression: ir.Expr) -> tuple[str, ...]:
        """The atoms of a product of names that stand for themselves; () for anything else."""
        match expression:
            case ir.Ref(name, kind, dtype) if name not in (*self.values, *self.variables):
                return tuple(
                    atom for monomial in self._name(name, kind, dtype) for atom in monomial
                )
            case ir.Binary("*", left, right):
                return tuple(sorted((*self._factors(left), *self._factors(right))))
            case _:
                return ()

    def _value(self, expression: ir.Expr) -> int | None:
        match expression:
            case ir.Literal(value):
                return int(value)
            case ir.Ref(name) if name in self.values:
                return int(self.values[name])
            case _:
                return None


def see_body(
    sketch: ir.Sketch,
    body: Iterable[ir.Statement | ir.HostStep],
    seen: Magnitudes,
    programs: Polynomial | None = None,
) -> None:
    """Show `seen` all integers of a kernel's statements, or of host steps. `programs`, where given,
    bounds the number of iterations of the parallel loops around the statements."""
    for statement in body:
        match statement:
            case ir.Launch(phase):
                see_body(sketch, sketch.phases[phase].body, seen, constant(1))
            case ir.Alloc(tile):
                if not seen.padded:
                    for extent in sketch.tile(tile).extents:
                        seen.see(extent)
            case ir.Load() | ir.Store() | ir.Atomic():
                _see_transfer(sketch, statement, seen)
            case ir.Fetch(name, access):
                _see_access(sketch, access, (), seen)
                if name not in seen.known:
                    seen.load(name)
            case ir.Compute(operands=operands, domain=domain, written=written):
                _see_domain((*domain, *written), seen)
                for operand in _indices(operands) if seen.padded else operands:
                    _see_operand(operand, seen)
            case ir.Bind(name, value):
                seen.assign(name, (value,), seen.see(value))
            case ir.For() | ir.HostFor():
                count = see_loop(statement, seen)
                around = programs
                if programs is not None and isinstance(statement, ir.For) and statement.parallel:
                    around = multiply(programs, count)
                    if not has_parallel(statement.body):
                        seen.note(around, statement.span)
                see_body(sketch, statement.body, seen, around)
            case ir.If() | ir.HostIf():
                seen.see(statement.condition)
                see_body(sketch, statement.body, seen, programs)
                see_body(sketch, statement.orelse, seen, programs)
            case _:
                assert_never(statement)


def has_parallel(body: tuple[ir.Statement, ...]) -> bool:
    """Whether a parallel loop stands in the body, at whatever depth."""
    return any(isinstance(each, ir.For) and each.parallel for each in walk.statements(body))


def see_loop(loop: ir.For | ir.HostFor, seen: Magnitudes) -> Polynomial:
    """Show `seen` the range of a loop, and record the bound of its variable; returns a bound of the
    number of its iterations."""
    low, high, stride = seen.see(loop.start), seen.see(loop.stop), seen.see(loop.step)
    past = add(upper(low, high), stride)
    bounds = (loop.start, loop.stop, loop.step)
    # The variable is wide with its bounds, for then it counts in 64 bits.
    if seen.padded:
        seen.assign(loop.variable, bounds, past)
    else:
        if not isinstance(loop.step, ir.Literal):  # its iterations may be counted first
            past = add(add(low, high), stride)
        if loop.step != ir.Literal(1):  # by ones it ends at its bound
            seen.note(past, loop.span)
        last = high.get(())
        if last and len(high) == 1 and loop.step == ir.Literal(1):
            high = constant(int(last) - 1)
        seen.assign(loop.variable, bounds, upper(low, high))
    return add(low, seen.see(loop.stop))


def _see_transfer(
    sketch: ir.Sketch, statement: ir.Load | ir.Store | ir.Atomic, seen: Magnitudes
) -> None:
    if statement.where is not None and not seen.padded:
        seen.see(statement.where)
    _see_access(sketch, statement.access, sketch.tile(statement.tile).extents, seen)
    _see_domain(statement.domain, seen)
    if isinstance(statement, ir.Load):
        _see_domain(statement.read, seen)
    for guard in statement.guards:
        seen.see(guard)


def _indices(operands: tuple[ir.Operand, ...]) -> list[ir.Operand]:
    """The operands that indices may be computed with. A literal beside tiles is data: it takes
    the tiles' type."""
    data = all(
        isinstance(operand, ir.TileOperand) or isinstance(operand.value, ir.Literal)
        for operand in operands
    )
    return [
        operand
        for operand in operands
        if not isinstance(operand, ir.ScalarOperand) or (operand.dtype.is_integer and not data)
    ]


def _see_operand(operand: ir.Operand, seen: Magnitudes) -> None:
    match operand:
        case ir.TileOperand(_, domain):
            _see_domain(domain, seen)
        case ir.ScalarOperand(value):
            seen.see(value)
        case ir.IndexOperand(value, _, _, domain):
            seen.see(value)
            _see_domain(domain, seen)
        case _:
            assert_never(operand)


def _see_domain(domain: ir.Domain, seen: Magnitudes) -> None:
    for axis in domain:
        for bound in (*axis.lower, *axis.upper):
            seen.see(bound)


def _see_access(
    sketch: ir.Sketch, access: ir.Access, lanes: tuple[ir.Expr, ...], seen: Magnitudes
) -> None:
    """Show `seen` an access's indices, lanes that overshoot included; where lanes are padded, its
    offsets, too. (Otherwise only offsets of existing elements matter, which fit as the tensor
    does.)"""
    extents = sketch.extents(access.tensor)
    total: Polynomial = {}
    axis = 0
    for dimension, subscript in enumerate(access.subscripts):
        match subscript:
            case ir.ScalarSubscript(index):
                reach = seen.see(index)
            case ir.SliceSubscript(lower, stop, _, step):
                stride = seen.see(step)
                steps = multiply(seen.lanes(lanes[axis]), stride)
                reach = add(seen.see(lower), seen.note(steps))
                if not seen.padded:
                    seen.note(reach, access.span)
                    seen.see(stop)
                    seen.note(add(_difference(stop, lower, seen), stride), access.span)
                axis += 1
            case ir.IndexSubscript(value, shape, _, place):
                for extent in shape:
                    seen.lanes(extent)
                reach = seen.see(value)
                axis += place is not None
            case _:
                assert_never(subscript)
        sizes = [seen.see(extent) for extent in extents[dimension + 1 :]]
        if seen.padded:
            total = add(total, reduce(multiply, sizes, reach))
    sizes = [seen.see(extent) for extent in extents]
    if seen.padded:
        elements = reduce(multiply, sizes, constant(1))
        seen.note(elements)  # offsets may be brought into the tensor's range
        seen.note(total)


def _difference(left: ir.Expr, right: ir.Expr, seen: Magnitudes) -> Polynomial:
    """A bound of `left - right`, after equal parts have cancelled out where that is smaller: sums
    that wrap on the way are right again in the end."""
    aside = records.evolve(seen, largest=[], wide=set(seen.wide), seen={})
    simple = aside.see(simplify(ir.Binary("-", left, right)))
    whole = add(aside.see(left), aside.see(right))
    return simple if _dominates(whole, simple) else whole


def never_negative(expression: ir.Expr, known: Mapping[str, bool]) -> bool:
    """True where the form of an integer expression shows that it is >= 0. `known` says so of names;
    symbols and constants that it does not mention count as >= 0."""
    match expression:
        case ir.Literal(value):
            return value >= 0
        case ir.Ref(name, kind):
            return known.get(name, kind in (ir.NameKind.SYMBOL, ir.NameKind.CONSTANT))
        case ir.Iota(_, lower, _):
            return never_negative(lower, known)
        case ir.TileLanes(dtype=dtype):
            return not dtype.is_signed
        case ir.Binary("+" | "*" | "//" | "cdiv" | "min", left, right):
            return never_negative(left, known) and never_negative(right, known)
        case ir.Binary("%", _, right):
            return never_negative(right, known)
        case ir.Binary("max", left, right):
            return never_negative(left, known) or never_negative(right, known)
        case _:
            return False

"""How large an integer expression can become: polynomials over the host's scalars.

The index width is guarded on the host (R10): every integer subexpression of a kernel, overshoot
lanes included, is bounded here in magnitude by one polynomial with non-negative coefficients over
symbols, lets and params. Where the bound stays below 2^31 the kernel computes in 32 bits.

What memory holds has no bound: index tiles and scalars that were loaded are *wide*. A kernel holds
them in 64 bits, and whatever is computed from them is promoted, so they count for nothing here;
their parts that are not wide do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TypeAlias, assert_never

import attrs

from sketchc import ir
from sketchc.lowering.plan import PhasePlan, Plan
from sketchc.symbolic import children
from sketchc.types import DType

#: Monomial (sorted atom names) -> non-negative coefficient.
Polynomial: TypeAlias = dict[tuple[str, ...], Fraction]

#: 32-bit signed integers hold magnitudes below this.
LIMIT = 2**31


class UnboundedError(Exception):
    """An expression whose magnitude no polynomial bounds; the kernel then computes in 64 bits."""


def constant(value: int) -> Polynomial:
    return {(): Fraction(abs(value))} if value else {}


def add(left: Polynomial, right: Polynomial) -> Polynomial:
    result = dict(left)
    for monomial, coefficient in right.items():
        result[monomial] = result.get(monomial, Fraction(0)) + coefficient
    return result


def multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    result: Polynomial = {}
    for first, a in left.items():
        for second, b in right.items():
            monomial = tuple(sorted((*first, *second)))
            result[monomial] = result.get(monomial, Fraction(0)) + a * b
    return result


def upper(left: Polynomial, right: Polynomial) -> Polynomial:
    """A bound of both: atoms are non-negative, so the larger coefficients bound the maximum."""
    result = dict(left)
    for monomial, coefficient in right.items():
        result[monomial] = max(result.get(monomial, Fraction(0)), coefficient)
    return result


def _dominates(left: Polynomial, right: Polynomial) -> bool:
    return all(left.get(monomial, 0) >= value for monomial, value in right.items())


def show(polynomial: Polynomial, rename: Callable[[str], str] = str) -> str:
    """Python text, highest degree first, coefficients rounded up; `rename` gives the Python name of
    an atom's name."""
    terms = []
    for monomial in sorted(polynomial, key=lambda m: (-len(m), m)):
        coefficient = math.ceil(polynomial[monomial])
        factors = [_renamed(atom, rename) for atom in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, str(coefficient))
        terms.append(" * ".join(factors))
    return " + ".join(terms) if terms else "0"


def _renamed(atom: str, rename: Callable[[str], str]) -> str:
    """An atom is a symbol or `abs(name)`."""
    if atom.startswith("abs("):
        return f"abs({rename(atom[4:-1])})"
    return rename(atom)


@attrs.define
class Magnitudes:
    """Collects the largest magnitude over all expressions it is shown.

    `values` are the compile-time constants; `variables` the bounds of loop variables and bindings;
    `wide` names those that hold what was loaded.
    """

    values: Mapping[str, int | float | bool]
    variables: dict[str, Polynomial] = attrs.field(factory=dict)
    largest: list[Polynomial] = attrs.field(factory=list)  # none dominates another
    wide: set[str] = attrs.field(factory=set)
    unbounded: bool = False

    def note(self, polynomial: Polynomial) -> Polynomial:
        if not any(_dominates(other, polynomial) for other in self.largest):
            kept = [other for other in self.largest if not _dominates(polynomial, other)]
            self.largest = [*kept, polynomial]
        return polynomial

    def see(self, expression: ir.Expr) -> Polynomial:
        """The bound of an expression; it and its parts join `largest`."""
        if self.is_wide(expression):
            for part in children(expression):
                self.see(part)
            return {}
        try:
            return self.note(self._bound(expression))
        except UnboundedError:
            self.unbounded = True
            return {}

    def is_wide(self, expression: ir.Expr) -> bool:
        """True where a value that was loaded has a part in the expression's."""
        match expression:
            case ir.TileLanes(dtype=dtype):
                return dtype is not DType.BOOL
            case ir.Ref(name=name, kind=kind):
                return kind in (ir.NameKind.BINDING, ir.NameKind.LOOP) and name in self.wide
            case ir.Binary(operator="and" | "or" | "<" | "<=" | ">" | ">=" | "==" | "!="):
                return False
            case _:
                return any(self.is_wide(part) for part in children(expression))

    def assign(self, name: str, expressions: tuple[ir.Expr, ...], bound: Polynomial) -> None:
        """Record a name whose value comes of these expressions and stays within `bound`."""
        if any(self.is_wide(expression) for expression in expressions):
            self.wide.add(name)
        self.variables[name] = self.note(bound)

    def _bound(self, expression: ir.Expr) -> Polynomial:
        match expression:
            case ir.Literal(value):
                return constant(math.ceil(abs(value))) if math.isfinite(value) else {}
            case ir.Ref(name, kind, dtype):
                return self._name(name, kind, dtype)
            case ir.Unary(_, operand):
                return self.see(operand)
            case ir.Binary(operator, left, right):
                return self._binary(operator, left, right)
            case ir.Function():
                raise UnboundedError
            case ir.Iota(extent, lower, _):
                return add(self.see(lower), multiply(constant(2), self.see(extent)))
            case ir.TileLanes():
                return constant(1)  # of bools; see `see`
            case _:
                assert_never(expression)

    def _name(self, name: str, kind: ir.NameKind, dtype: DType) -> Polynomial:
        if name in self.values:
            value = self.values[name]
            return constant(math.ceil(abs(value))) if math.isfinite(value) else {}
        if name in self.variables:
            return self.variables[name]
        if dtype is DType.BOOL or dtype.is_float:
            return {}
        atom = name if kind is ir.NameKind.SYMBOL else f"abs({name})"
        return {(atom,): Fraction(1)}

    def _binary(self, operator: str, left: ir.Expr, right: ir.Expr) -> Polynomial:
        a, b = self.see(left), self.see(right)
        match operator:
            case "+" | "-":
                return add(a, b)
            case "*":
                return multiply(a, b)
            case "//" | "cdiv":
                self.note(add(a, b))  # cdiv(a, b) is (a + b - 1) // b
                divisor = self._value(right)
                if divisor is None or divisor == 0:
                    return a
                return add({m: c / abs(divisor) for m, c in a.items()}, constant(1))
            case "%":
                return b
            case "min" | "max":
                return upper(a, b)
            case "/":
                raise UnboundedError
            case _:  # comparisons, and, or
                return constant(1)

    def _value(self, expression: ir.Expr) -> int | None:
        match expression:
            case ir.Literal(value):
                return int(value)
            case ir.Ref(name) if name in self.values:
                return int(self.values[name])
            case _:
                return None


def physical_bound(expression: ir.Expr, magnitudes: Magnitudes) -> Polynomial:
    """Twice the logical extent bounds every physical one (the next power of two)."""
    return multiply(constant(2), magnitudes.see(expression))


def phase_magnitudes(plan: Plan, phase: PhasePlan) -> list[Polynomial] | None:
    """Bounds, the largest of which holds for every integer that the kernel of `phase` computes;
    None where there is none."""
    sketch = plan.sketch
    seen = Magnitudes({c.name: c.value for c in sketch.constants})
    total = constant(1)
    for axis in phase.grid:
        count = seen.see(axis.count)
        span = multiply(seen.see(axis.step), count)
        seen.variables[axis.variable] = seen.note(add(seen.see(axis.start), span))
        total = multiply(total, add(count, constant(1)))
    seen.note(total)
    _see_body(sketch, phase.body, seen)
    return None if seen.unbounded else seen.largest


def _see_body(sketch: ir.Sketch, body: tuple[ir.Statement, ...], seen: Magnitudes) -> None:
    for statement in body:
        match statement:
            case ir.Alloc():
                pass
            case ir.Load() | ir.Store() | ir.Atomic():
                _see_domain(statement.domain, seen)
                if isinstance(statement, ir.Load):
                    _see_domain(statement.read, seen)
                for guard in statement.guards:
                    seen.see(guard)
                _see_access(sketch, statement.access, sketch.tile(statement.tile).extents, seen)
            case ir.Fetch(name, access):
                _see_access(sketch, access, (), seen)
                seen.wide.add(name)
                seen.variables[name] = {}
            case ir.Compute(operands=operands, domain=domain, written=written):
                _see_domain((*domain, *written), seen)
                for operand in _indices(operands):
                    _see_operand(operand, seen)
            case ir.Bind(name, value):
                seen.assign(name, (value,), seen.see(value))
            case ir.For(variable, start, stop, step, inner):
                low, high, stride = seen.see(start), seen.see(stop), seen.see(step)
                # The variable is wide with its bounds, for then it counts in 64 bits.
                seen.assign(variable, (start, stop, step), add(upper(low, high), stride))
                _see_body(sketch, inner, seen)
            case ir.If(condition, then, orelse):
                seen.see(condition)
                _see_body(sketch, then, seen)
                _see_body(sketch, orelse, seen)
            case _:
                assert_never(statement)


def _indices(operands: tuple[ir.Operand, ...]) -> list[ir.Operand]:
    """The operands that indices may be computed with. A literal beside tiles is data: it takes
    their type."""
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
    extents = sketch.extents(access.tensor)
    total: Polynomial = {}
    axis = 0
    for dimension, subscript in enumerate(access.subscripts):
        match subscript:
            case ir.ScalarSubscript(index):
                reach = seen.see(index)
            case ir.SliceSubscript(lower, _, _, step):
                steps = multiply(physical_bound(lanes[axis], seen), seen.see(step))
                reach = add(seen.see(lower), seen.note(steps))
                axis += 1
            case ir.IndexSubscript(value, shape, _, place):
                for extent in shape:
                    physical_bound(extent, seen)
                reach = seen.see(value)
                axis += place is not None
            case _:
                assert_never(subscript)
        for extent in extents[dimension + 1 :]:
            reach = multiply(reach, seen.see(extent))
        total = add(total, reach)
    elements = constant(1)
    for extent in extents:
        elements = multiply(elements, seen.see(extent))
    seen.note(elements)  # offsets may be brought into the tensor's range
    seen.note(total)


def never_negative(expression: ir.Expr, known: Mapping[str, bool]) -> bool:
    """True where an integer expression is provably >= 0; `known` answers for names."""
    match expression:
        case ir.Literal(value):
            return value >= 0
        case ir.Ref(name, kind):
            return kind is ir.NameKind.SYMBOL or known.get(name, False)
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

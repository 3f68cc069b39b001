"""Symbolic arithmetic on integer expressions: a normal form, equality, simplification.

The normal form is a polynomial with integer coefficients over *atoms*: names, and the operations
that polynomials cannot express (`//`, `min`, `max`, and anything that is not an integer, kept
opaque). Quotients are reduced where the divisor divides a part of the dividend, `a % b` becomes
`a - b * (a // b)`, and `cdiv(a, b)` with a positive divisor becomes `1 + (a - 1) // b`. Two
expressions with one normal form are equal for all values of their names (divisors not zero); the
converse does not hold, and nothing relies on it.

Takes and returns `ir.Expr`; nothing raises, and unknown operations are atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial, reduce
from typing import TypeAlias, TypeVar, assert_never

from sketchc.ir import nodes as ir
from sketchc.ir.show import show
from sketchc.ir.walk import changed, children, size

#: The comparison that holds where another does not: of integers, for a NaN is on neither side.
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

#: Products of more terms, or of a higher degree, stay unexpanded, and larger definitions are not
#: substituted, so that no input takes exponential time.
_LARGEST_PRODUCT = 1024
_HIGHEST_DEGREE = 64
_LONGEST_KEY = 2000


class Atom:
    """An indeterminate of a polynomial: identified by its `key`, rebuilt as its `expression`."""

    __slots__ = ("expression", "key")

    def __init__(self, key: str, expression: ir.Expr) -> None:
        self.key = key
        self.expression = expression

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Atom) -> bool:
        return self.key < other.key


Key = TypeVar("Key")
Factor = TypeVar("Factor", Atom, str)
Number = TypeVar("Number", int, Fraction)

Monomial: TypeAlias = tuple[Atom, ...]  # sorted; an atom stands as often as its power
Polynomial: TypeAlias = dict[Monomial, int]  # no zero coefficients
Definitions: TypeAlias = Mapping[str, Polynomial]
_NONE: dict[str, Polynomial] = {}

# ---------------------------------------------------------------- polynomials


def add(
    left: Mapping[Key, Number], right: Mapping[Key, Number], factor: int = 1
) -> dict[Key, Number]:
    """left + factor * right, of sums that map each key (such as a monomial) to its coefficient."""
    total = dict(left)
    for key, coefficient in right.items():
        value = total.get(key, 0) + factor * coefficient
        if value:
            total[key] = value
        else:
            total.pop(key, None)
    return total


def multiplied(
    left: Mapping[Key, Number], right: Mapping[Key, Number], product: Callable[[Key, Key], Key]
) -> dict[Key, Number]:
    """The product of two sums, term by term; `product` gives the key of the product of two keys."""
    total: dict[Key, Number] = {}
    for first, one in left.items():
        for second, other in right.items():
            key = product(first, second)
            value = total.get(key, 0) + one * other
            if value:
                total[key] = value
            else:
                total.pop(key, None)
    return total


def without(factors: Iterable[Key], part: Iterable[Key]) -> tuple[Key, ...] | None:
    """The product of `factors` divided by that of `part`, as its factors; None where `part` does
    not divide it."""
    rest = list(factors)
    for factor in part:
        if factor not in rest:
            return None
        rest.remove(factor)
    return tuple(rest)


def multiply(
    left: Mapping[tuple[Factor, ...], Number], right: Mapping[tuple[Factor, ...], Number]
) -> dict[tuple[Factor, ...], Number]:
    """The product of two sums over monomials, whose factors stand in order."""
    return multiplied(left, right, lambda first, second: tuple(sorted(first + second)))


def _constant(value: int) -> Polynomial:
    return {(): value} if value else {}


def _literal(polynomial: Polynomial) -> int | None:
    """The value of a constant polynomial, None for any other."""
    if not polynomial:
        return 0
    return polynomial.get(()) if len(polynomial) == 1 else None


def _key(polynomial: Polynomial) -> str:
    terms = sorted(
        ("*".join(atom.key for atom in monomial), coefficient)
        for monomial, coefficient in polynomial.items()
    )
    return "+".join(f"{coefficient}*{name}" for name, coefficient in terms) or "0"


def _opaque(expression: ir.Expr, key: str | None = None) -> Polynomial:
    return {(Atom(key if key is not None else show(expression), expression),): 1}


def _degree(polynomial: Polynomial) -> int:
    return max(map(len, polynomial), default=0)


def is_small(polynomial: Polynomial) -> bool:
    """Whether a name may be replaced by `polynomial` everywhere without excessive growth."""
    return len(polynomial) <= _HIGHEST_DEGREE and len(_key(polynomial)) <= _LONGEST_KEY


def _known_positive(polynomial: Polynomial) -> bool:
    """Whether a divisor is at least 1 wherever the expression is defined: sums and products of
    symbols and constants (both at least 0, and a divisor is never 0)."""
    return bool(polynomial) and all(
        coefficient > 0
        and all(
            isinstance(atom.expression, ir.Ref)
            and atom.expression.kind in (ir.NameKind.SYMBOL, ir.NameKind.CONSTANT)
            for atom in monomial
        )
        for monomial, coefficient in polynomial.items()
    )


def _split(dividend: Polynomial, divisor: Polynomial) -> tuple[Polynomial, Polynomial]:
    """(quotient, rest) with dividend = quotient * divisor + rest, for a divisor of one term."""
    if len(divisor) != 1:
        if dividend == divisor:
            return _constant(1), {}
        return {}, dividend
    ((by, scale),) = divisor.items()
    quotient: Polynomial = {}
    rest: Polynomial = {}
    for monomial, coefficient in dividend.items():
        reduced = without(monomial, by)
        whole, remainder = divmod(coefficient, scale)
        if reduced is None or not whole:
            rest[monomial] = rest.get(monomial, 0) + coefficient
            continue
        quotient[reduced] = whole
        if remainder:
            rest[monomial] = remainder
    return quotient, rest


def _quotient(dividend: Polynomial, divisor: Polynomial) -> Polynomial:
    """The floor quotient; the divisor is not the literal 0."""
    quotient, rest = _split(dividend, divisor)
    if not rest:
        return quotient
    numerator, denominator = _literal(rest), _literal(divisor)
    if numerator is not None and denominator is not None:
        return add(quotient, _constant(numerator // denominator))
    expression = ir.Binary("//", rebuild(rest), rebuild(divisor))
    return add(quotient, _opaque(expression, f"({_key(rest)})//({_key(divisor)})"))


# ---------------------------------------------------------------- from expressions


def normalize(expression: ir.Expr, definitions: Definitions = _NONE) -> Polynomial:
    """The normal form; names in `definitions` are replaced by what they stand for."""
    match expression:
        case ir.Literal(value):
            if isinstance(value, int) and not isinstance(value, bool):
                return _constant(value)
            return _opaque(expression)
        case ir.Ref(name=name, layout=layout):
            if layout is None and name in definitions:
                return definitions[name]
            return _opaque(expression, name if layout is None else show(expression))
        case ir.Unary(operator, operand):
            if operator == "-":
                return add({}, normalize(operand, definitions), -1)
            return _opaque(expression)
        case ir.Binary():
            return _normalize_binary(expression, definitions)
        case ir.Choice(condition, then, otherwise):
            first, second = (normalize(side, definitions) for side in (then, otherwise))
            if first == second:
                return first
            asked = _settled(condition, definitions)
            expression = ir.Choice(asked, rebuild(first), rebuild(second), span=expression.span)
            return _opaque(expression)
        case ir.Function() | ir.Iota() | ir.TileLanes():
            return _opaque(expression)
        case _:
            assert_never(expression)


def _settled(condition: ir.Expr, definitions: Definitions) -> ir.Expr:
    """A condition with its integers in normal form."""
    match condition:
        case ir.Unary("not") | ir.Binary("and" | "or"):
            return changed(condition, lambda part: _settled(part, definitions))
        case ir.Binary():
            return changed(condition, lambda side: rebuild(normalize(side, definitions)))
        case _:
            return condition


def _normalize_binary(expression: ir.Binary, definitions: Definitions) -> Polynomial:
    operator = expression.operator
    if operator not in ("+", "-", "*", "//", "%", "cdiv", "min", "max"):
        return _opaque(expression)
    left = normalize(expression.left, definitions)
    right = normalize(expression.right, definitions)
    match operator:
        case "+":
            return add(left, right)
        case "-":
            return add(left, right, -1)
        case "*" if (
            len(left) * len(right) > _LARGEST_PRODUCT
            or _degree(left) + _degree(right) > _HIGHEST_DEGREE
        ):
            return _opaque(expression, f"({_key(left)})*({_key(right)})")
        case "*":
            return multiply(left, right)
        case "min" | "max":
            return _extremum(operator, left, right)
    if not right:
        return _opaque(expression)
    match operator:
        case "//":
            return _quotient(left, right)
        case "%":
            return add(left, multiply(right, _quotient(left, right)), -1)
        case _:
            if _known_positive(right):
                less_one = add(left, _constant(1), -1)
                return add(_constant(1), _quotient(less_one, right))
            return add({}, _quotient(add({}, left, -1), right), -1)


def _extremum(operator: str, left: Polynomial, right: Polynomial) -> Polynomial:
    difference = _literal(add(left, right, -1))
    if difference is not None:
        return left if (difference <= 0) == (operator == "min") else right
    first, second = sorted((left, right), key=_key)
    expression = ir.Binary(operator, rebuild(first), rebuild(second))
    return _opaque(expression, f"{operator}({_key(first)},{_key(second)})")


# ---------------------------------------------------------------- back to expressions


def rebuild(polynomial: Polynomial) -> ir.Expr:
    """The expression of a normal form: terms by falling degree, the constant last."""
    terms = sorted(
        polynomial.items(), key=lambda term: (-len(term[0]), [atom.key for atom in term[0]])
    )
    if terms and terms[0][1] < 0:  # `8 - n` reads better than `-n + 8`
        positive = next((index for index, term in enumerate(terms) if term[1] > 0), None)
        if positive is not None:
            terms.insert(0, terms.pop(positive))
    total: ir.Expr | None = None
    for monomial, coefficient in terms:
        if total is None:
            total = _term(monomial, coefficient)
        elif coefficient < 0:
            total = ir.Binary("-", total, _term(monomial, -coefficient))
        else:
            total = ir.Binary("+", total, _term(monomial, coefficient))
    return ir.Literal(0) if total is None else total


def _term(monomial: Monomial, coefficient: int) -> ir.Expr:
    if not monomial:
        return ir.Literal(coefficient)
    product: ir.Expr = monomial[0].expression
    for atom in monomial[1:]:
        product = ir.Binary("*", product, atom.expression)
    if coefficient == 1:
        return product
    if coefficient == -1:
        return ir.Unary("-", product)
    return ir.Binary("*", ir.Literal(coefficient), product)


def conjuncts(condition: ir.Expr, operator: str = "and") -> Iterator[ir.Expr]:
    """The operands that `operator` joins at the top of a condition; else the condition itself."""
    if isinstance(condition, ir.Binary) and condition.operator == operator:
        yield from conjuncts(condition.left, operator)
        yield from conjuncts(condition.right, operator)
    else:
        yield condition


def negated(condition: ir.Expr) -> ir.Expr:
    """The opposite of a condition. Comparisons of floats are not turned round: a NaN is on neither
    side."""
    match condition:
        case ir.Unary("not", operand):
            return operand
        case ir.Binary(operator, left, right) if operator in OPPOSITE and not has_floats(condition):
            return ir.Binary(OPPOSITE[operator], left, right, span=condition.span)
        case _:
            return ir.Unary("not", condition, span=condition.span)


def conjunction(conditions: Sequence[ir.Expr]) -> ir.Expr:
    """The conjunction of `conditions`, of which there is at least one."""
    every = conditions[0]
    for condition in conditions[1:]:
        every = ir.Binary("and", every, condition)
    return every


def product(factors: Sequence[ir.Expr]) -> ir.Expr:
    """The factors multiplied; 1 for none."""
    return reduce(partial(ir.Binary, "*"), factors) if factors else ir.Literal(1)


def has_floats(expression: ir.Expr) -> bool:
    """True where a float stands in the expression; a scalar one is then computed in f64."""
    match expression:
        case ir.Literal(number):
            return isinstance(number, float)
        case ir.Ref(dtype=dtype) | ir.TileLanes(dtype=dtype):
            return dtype.is_float
        case ir.Choice():
            return False  # its condition may compare floats; what it gives is an integer
        case _:
            return any(map(has_floats, children(expression)))


def simplify(expression: ir.Expr, definitions: Definitions = _NONE) -> ir.Expr:
    """The shorter of the expression and its normal form, with the original's span."""
    if isinstance(expression, ir.Literal | ir.Ref) and not definitions:
        return expression
    candidate = rebuild(normalize(expression, definitions))
    return candidate if size(candidate) < size(expression) else expression


def equal(left: ir.Expr, right: ir.Expr, definitions: Definitions = _NONE) -> bool:
    """Whether both have one normal form, hence one value wherever both are defined."""
    if left == right:
        return True
    return not add(normalize(left, definitions), normalize(right, definitions), -1)


def meet(one: ir.AxisDomain, other: ir.AxisDomain) -> ir.AxisDomain:
    """The lanes that are valid in both: `one` itself, where each bound of `other` is one of its,
    written in another way or not."""

    def more(own: tuple[ir.Expr, ...], others: tuple[ir.Expr, ...]) -> tuple[ir.Expr, ...]:
        return own + tuple(
            each for each in dict.fromkeys(others) if not any(equal(each, bound) for bound in own)
        )

    return ir.AxisDomain(more(one.lower, other.lower), more(one.upper, other.upper))


def constant_value(expression: ir.Expr, definitions: Definitions = _NONE) -> int | None:
    """The integer that the expression always is, or None."""
    return _literal(normalize(expression, definitions))

"""Readable integer expressions: sums of products in the sketch's own names, and their text.

`simplify` multiplies out and collects like terms (`(i + 1)*T - i*T` is `T`), keeping constants by
name, so that a mask in generated code reads like the sketch. What is not a sum or product stays as
it stands, with its parts simplified.
"""

from __future__ import annotations

from typing import TypeAlias, assert_never

import attrs

from sketchc import ir

_Monomial: TypeAlias = tuple[ir.Expr, ...]
_Sum: TypeAlias = dict[_Monomial, int]


def difference(left: ir.Expr, right: ir.Expr) -> ir.Expr:
    """left - right, simplified."""
    return simplify(ir.Binary("-", left, right))


def simplify(expression: ir.Expr) -> ir.Expr:
    """The expression with sums multiplied out and like terms collected."""
    return _rebuild(_sum(expression))


def _sum(expression: ir.Expr) -> _Sum:
    match expression:
        case ir.Literal(value) if isinstance(value, int) and not isinstance(value, bool):
            return {(): value} if value else {}
        case ir.Unary("-", operand):
            return {term: -c for term, c in _sum(operand).items()}
        case ir.Binary("+" | "-" as operator, left, right):
            total = _sum(left)
            sign = 1 if operator == "+" else -1
            for term, c in _sum(right).items():
                _accumulate(total, term, sign * c)
            return total
        case ir.Binary("*", left, right):
            product: _Sum = {}
            second = _sum(right)
            for term, c in _sum(left).items():
                for other, d in second.items():
                    factors = sorted((*term, *other), key=_factor_key)
                    _accumulate(product, tuple(factors), c * d)
            return product
        case ir.Binary(_, left, right):
            inner = attrs.evolve(expression, left=simplify(left), right=simplify(right))
            return {(inner,): 1}
        case ir.Literal() | ir.Ref() | ir.Unary() | ir.Function() | ir.Iota():
            return {(expression,): 1}
        case _:
            assert_never(expression)


_KIND_ORDER = {
    ir.NameKind.LOOP: 0,
    ir.NameKind.BINDING: 1,
    ir.NameKind.SYMBOL: 2,
    ir.NameKind.PARAM: 3,
    ir.NameKind.LET: 4,
    ir.NameKind.CONSTANT: 5,
}


def _factor_key(factor: ir.Expr) -> tuple[int, str]:
    """Loop variables first, constants last: `i*T`, as people write it."""
    if isinstance(factor, ir.Ref):
        return (_KIND_ORDER[factor.kind], factor.name)
    return (6, repr(factor))


def _accumulate(total: _Sum, term: _Monomial, coefficient: int) -> None:
    value = total.get(term, 0) + coefficient
    if value:
        total[term] = value
    else:
        total.pop(term, None)


def _rebuild(total: _Sum) -> ir.Expr:
    """Positive terms first, the constant last."""
    ordered = [(term, c) for term, c in total.items() if term and c > 0]
    ordered += [(term, c) for term, c in total.items() if term and c < 0]
    result: ir.Expr | None = None
    for term, c in ordered:
        product = _product(term, abs(c))
        if result is None:
            result = product if c > 0 else ir.Unary("-", product)
        else:
            result = ir.Binary("+" if c > 0 else "-", result, product)
    rest = total.get((), 0)
    if result is None:
        return ir.Literal(rest)
    if rest:
        result = ir.Binary("+" if rest > 0 else "-", result, ir.Literal(abs(rest)))
    return result


def _product(term: _Monomial, coefficient: int) -> ir.Expr:
    factors: list[ir.Expr] = list(term)
    if coefficient != 1:
        factors.insert(0, ir.Literal(coefficient))
    result = factors[0]
    for factor in factors[1:]:
        result = ir.Binary("*", result, factor)
    return result


# ---------------------------------------------------------------- text

_PRECEDENCE = {
    "or": 1,
    "and": 2,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "==": 4,
    "!=": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "//": 6,
    "%": 6,
}
_TIGHT = frozenset(("*", "//", "%", "/"))


def text(expression: ir.Expr, outer: int = 0) -> str:
    """The expression as a sketch writes it; parentheses where `outer` binds tighter."""
    match expression:
        case ir.Literal(value):
            return str(value)
        case ir.Ref(name):
            return name
        case ir.Unary(operator, operand):
            inner = text(operand, 7)
            return f"-{inner}" if operator == "-" else f"not {inner}"
        case ir.Binary("min" | "max" | "cdiv" as operator, left, right):
            name = "ceil" if operator == "cdiv" else operator
            return f"{name}({text(left)}, {text(right)})"
        case ir.Binary(operator, left, right):
            level = _PRECEDENCE[operator]
            gap = "" if operator in _TIGHT else " "
            body = f"{text(left, level)}{gap}{operator}{gap}{text(right, level + 1)}"
            return f"({body})" if level < outer else body
        case ir.Function(name, arguments):
            return f"{name}({', '.join(text(argument) for argument in arguments)})"
        case ir.Iota(extent):
            return f"iota({text(extent)})"
        case _:
            assert_never(expression)

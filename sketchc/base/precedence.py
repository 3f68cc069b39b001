"""How tightly the operators of the sketch language bind, for everything that prints its text.

The parser has the same order in `grammar/sketch.lark`; a test compares them.
"""

from __future__ import annotations

CHOICE, COMPARISON, SUM, PRODUCT, SIGN, ATOM = 0, 4, 5, 6, 7, 8

#: The level of each operator; the sign of a number is `SIGN`, a name or a call `ATOM`.
PRECEDENCE = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), COMPARISON),
    **dict.fromkeys(("+", "-"), SUM),
    **dict.fromkeys(("*", "/", "//", "%"), PRODUCT),
}


def operand_levels(operator: str) -> tuple[int, int]:
    """How tightly the left and the right operand must bind to stand without parentheses: operators
    group to the left, and comparisons do not chain."""
    level = PRECEDENCE[operator]
    return level + (level == COMPARISON), level + 1


def bracketed(text: str, level: int, minimum: int) -> str:
    """`text`, in parentheses where its precedence `level` is below `minimum`."""
    return f"({text})" if level < minimum else text

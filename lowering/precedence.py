"""Expression text with its binding strength: one precedence table per output language.

Emitters build `Code` values and never write parentheses themselves, so a nested right operand
(`a - (b - c)`), a comparison under `&`, or a cast of a sum cannot come out wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from sketchc.base.precedence import bracketed

#: Level of names, literals, calls and parenthesised text.
ATOM = 100


@attrs.frozen
class Code:
    """A piece of an expression; `level` is the binding strength of its outermost operator."""

    text: str
    level: int = ATOM

    def __str__(self) -> str:
        return self.text


@attrs.frozen
class Precedence:
    """Levels of one output language (a higher level binds tighter).

    `chained` operators do not nest at their own level on either side: Python's comparisons, where
    `a < b < c` means something else. Operands of `obscure` ones are parenthesised below the level
    of `*`, though they need not be: compilers warn of `a + b & c`.
    """

    name: str
    binary_levels: Mapping[str, int]
    unary_levels: Mapping[str, int]
    postfix_level: int
    chained: frozenset[str] = frozenset()
    obscure: frozenset[str] = frozenset()

    def binary(self, operator: str, left: Code, right: Code) -> Code:
        """`left operator right`, parenthesised where the operands bind more loosely."""
        level = self.binary_levels[operator]
        left_needs = level + 1 if operator in self.chained else level
        right_needs = level + 1
        if operator in self.obscure:
            right_needs = self.binary_levels["*"]
            left_needs = level if left.level == level else right_needs
        text = f"{at_least(left, left_needs)} {operator} {at_least(right, right_needs)}"
        return Code(text, level)

    def fold(self, operator: str, operands: list[Code]) -> Code:
        """`a operator b operator c`, grouped to the left; at least one operand."""
        result = operands[0]
        for operand in operands[1:]:
            result = self.binary(operator, result, operand)
        return result

    def unary(self, operator: str, operand: Code) -> Code:
        """A prefix operator; words (`not`) are set off by a space."""
        level = self.unary_levels[operator]
        # A second sign is parenthesised: `- -x` reads badly and `--x` is another operator in C++.
        needed = level + 1 if operand.text.startswith(operator) else level
        space = " " if operator.isalpha() else ""
        return Code(f"{operator}{space}{at_least(operand, needed)}", level)

    def postfix(self, operand: Code, suffix: str) -> Code:
        """`operand` followed by a subscript, a member or a call, such as `[:, None]`."""
        text = at_least(operand, self.postfix_level)
        if operand.text[0].isdigit() or operand.text[0] == "-":
            text = parenthesised(operand).text
        return Code(text + suffix, self.postfix_level)

    def call(self, function: str, *arguments: Code | str) -> Code:
        """`function(arguments)`; an argument given as `str` is passed through as it is."""
        inner = ", ".join(str(argument) for argument in arguments)
        return Code(f"{function}({inner})", self.postfix_level)


def parenthesised(code: Code) -> Code:
    """The expression in parentheses."""
    return Code(f"({code.text})")


def at_least(code: Code, level: int) -> str:
    """The text of an operand, in parentheses where it binds more loosely than `level`."""
    return bracketed(code.text, code.level, level)


def _levels(first: int, *rows: str) -> dict[str, int]:
    """The level of each operator: a row holds those of one level, the loosest first."""
    return {sign: level for level, row in enumerate(rows, first) for sign in row.split()}


_COMPARISONS = "< <= > >= == != in is"

PYTHON = Precedence(
    "python",
    _levels(1, "or", "and", "", _COMPARISONS, "|", "^", "&", "<< >>", "+ -", "* / // %"),
    unary_levels={"not": 3, "-": 11, "~": 11},
    postfix_level=13,
    chained=frozenset(_COMPARISONS.split()),
)

CPP = Precedence(
    "c++",
    _levels(2, "||", "&&", "|", "^", "&", "== !=", "< <= > >=", "<< >>", "+ -", "* / %"),
    unary_levels={"!": 12, "-": 12, "~": 12},
    postfix_level=13,
    obscure=frozenset(("|", "^", "&", "<<", ">>")),
)

"""The one table of precedence: the parser groups as it says."""

from __future__ import annotations

from itertools import product

import pytest

from sketchc.base.diagnostics import Source
from sketchc.base.precedence import PRECEDENCE, operand_levels
from sketchc.parsing import syntax
from sketchc.parsing.parser import parse

OPERATORS = [operator for operator in PRECEDENCE if operator != "not"]


def parsed(text: str) -> syntax.Expression | None:
    """The expression, or None for one that the grammar does not have."""
    tree, _ = parse(Source("x.sketch", f"sketch s {{\n    let: x = {text};\n    pass\n}}\n"))
    if tree is None:
        return None
    (section,) = tree.sketches[0].sections
    assert section.keyword == "let"
    return section.items[0].value


@pytest.mark.parametrize(("first", "second"), list(product(OPERATORS, repeat=2)))
def test_the_parser_groups_as_the_table_says(first: str, second: str) -> None:
    found = parsed(f"a {first} b {second} c")
    if PRECEDENCE[first] == PRECEDENCE[second] == PRECEDENCE["<"]:
        assert found is None  # comparisons do not chain
        return
    assert isinstance(found, syntax.Binary)
    left_first = PRECEDENCE[first] >= operand_levels(second)[0]
    assert found.operator == (second if left_first else first)

"""What is said of an expression without values holds at all values: signs, intervals, hulls.

Random expressions over few names, each of which takes all small values that it may have."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from math import inf
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sketchc.checker.context.context import Context, Interval
from sketchc.checker.context.shapes import bounds
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import Value, evaluate
from sketchc.ir.walk import names, parts
from sketchc.launch.magnitudes import never_negative
from sketchc.lowering.loop_bounds import Range, extreme

KINDS = {
    "N": ir.NameKind.SYMBOL,
    "T": ir.NameKind.CONSTANT,
    "g": ir.NameKind.LET,
    "h": ir.NameKind.LET,
    "i": ir.NameKind.LOOP,
}
OPERATORS = ("+", "-", "*", "//", "%", "cdiv", "min", "max")
#: What is known of the names; of `h` nothing is.
KNOWN = {"g": True}
VALUES = {"N": range(4), "T": range(4), "g": range(3), "h": range(-3, 4), "i": range(-2, 5)}

NAMES = st.sampled_from(sorted(KINDS)).map(lambda name: ir.Ref(name, KINDS[name]))
LEAVES = st.one_of(NAMES, st.integers(-3, 3).map(ir.Literal))
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.builds(ir.Binary, st.sampled_from(OPERATORS), parts, parts),
        st.builds(ir.Unary, st.just("-"), parts),
    ),
    max_leaves=6,
)


def found(
    expression: ir.Expr, possible: Mapping[str, range]
) -> Iterator[tuple[int, dict[str, Value]]]:
    """All values of an expression, each with those of the names; not those where a divisor is none
    that a launch accepts."""
    used = sorted(possible.keys())
    for chosen in itertools.product(*(possible[name] for name in used)):
        values: dict[str, Value] = dict(zip(used, chosen, strict=True))
        divisors = [
            part.right
            for part in parts(expression)
            if isinstance(part, ir.Binary) and part.operator in ("//", "%", "cdiv")
        ]
        try:
            if all(evaluate(divisor, values) > 0 for divisor in divisors):
                yield int(evaluate(expression, values)), values
        except ZeroDivisionError:
            continue


def possible(expression: ir.Expr) -> dict[str, range]:
    """The values that its names take."""
    return {name: VALUES[name] for name in names(expression)}


@given(EXPRESSIONS)
@settings(max_examples=400, deadline=None)
def test_what_is_never_negative_has_no_negative_value(expression: ir.Expr) -> None:
    if never_negative(expression, KNOWN):
        assert all(value >= 0 for value, _ in found(expression, possible(expression)))


@pytest.mark.parametrize(
    ("expression", "known"),
    [
        (ir.Binary("max", ir.Ref("h", ir.NameKind.LET), ir.Literal(1)), True),
        (ir.Binary("%", ir.Ref("h", ir.NameKind.LET), ir.Ref("T", ir.NameKind.CONSTANT)), True),
        (ir.Binary("-", ir.Ref("N", ir.NameKind.SYMBOL), ir.Literal(1)), False),
        (ir.Ref("h", ir.NameKind.LET), False),
    ],
)
def test_signs_that_are_seen(expression: ir.Expr, known: bool) -> None:
    assert never_negative(expression, KNOWN) is known


def test_a_constant_may_be_known_to_be_negative() -> None:
    assert not never_negative(ir.Ref("T", ir.NameKind.CONSTANT), {"T": False})


@given(EXPRESSIONS)
@settings(max_examples=400, deadline=None)
def test_values_lie_in_the_interval(expression: ir.Expr) -> None:
    intervals: dict[str, Interval] = {
        name: (values[0], inf if name == "N" else values[-1]) for name, values in VALUES.items()
    }
    context = SimpleNamespace(values={"T": 3}, intervals=intervals)
    low, high = bounds(cast("Context", context), expression)
    tried = {**possible(expression), "T": range(3, 4)}
    assert all(low <= value <= high for value, _ in found(expression, tried))


@given(EXPRESSIONS, st.booleans())
@settings(max_examples=400, deadline=None)
def test_no_value_passes_the_extreme(expression: ir.Expr, upper: bool) -> None:
    ranges = {"i": Range(ir.Literal(-2), ir.Ref("N", KINDS["N"]))}
    end = extreme(expression, ranges, upper)
    if end is None:
        return
    tried = {**possible(expression), **possible(end), "N": VALUES["N"]}
    for value, values in found(expression, {**tried, "i": VALUES["i"]}):
        if values["i"] <= values["N"]:
            limit = evaluate(end, values)
            assert value <= limit if upper else value >= limit

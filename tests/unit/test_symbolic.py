"""Symbolic arithmetic keeps values: checked against evaluation at random integers."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sketchc.base.diagnostics import Source
from sketchc.checker.elaboration.elaborate import elaborate
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate
from sketchc.ir.show import show
from sketchc.ir.symbolic import constant_value, equal, normalize, simplify
from sketchc.ir.walk import substitute
from sketchc.parsing.parser import parse

NAMES = ("M", "N", "K")
REFS = st.sampled_from([ir.Ref(name, ir.NameKind.SYMBOL) for name in NAMES])
LEAVES = st.one_of(REFS, st.integers(-9, 9).map(ir.Literal))
OPERATORS = st.sampled_from(["+", "-", "*", "//", "%", "cdiv", "min", "max"])


def grow(inner):
    return st.one_of(
        st.builds(ir.Binary, OPERATORS, inner, inner),
        st.builds(ir.Unary, st.just("-"), inner),
    )


EXPRESSIONS = st.recursive(LEAVES, grow, max_leaves=10)
VALUES = st.fixed_dictionaries({name: st.integers(1, 12) for name in NAMES})


def value(expression, values):
    try:
        return evaluate(expression, values)
    except ZeroDivisionError:
        return None


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS, VALUES)
def test_simplify_keeps_the_value(expression, values):
    before = value(expression, values)
    assume(before is not None)
    assert value(simplify(expression), values) == before


@settings(max_examples=400, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS, VALUES)
def test_equal_expressions_have_equal_values(left, right, values):
    before, after = value(left, values), value(right, values)
    assume(before is not None and after is not None and before != after)
    assert not equal(left, right)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS, VALUES)
def test_printed_text_reads_back_with_the_same_value(expression, values):
    before = value(expression, values)
    assume(before is not None)
    text = f"""sketch s {{
    symbols: M, N, K;
    let: result = {show(expression)};
    tensors: X[M, N, K]: in f32;
}}
"""
    tree, found = parse(Source("s", text))
    assert tree is not None, (show(expression), found)
    sketch, found = elaborate(tree.sketches[0], {})
    assume(not any(diagnostic.code == "SK0314" for diagnostic in found))  # divisors below 1
    assert sketch is not None, (show(expression), found)
    assert value(sketch.lets[0].value, values) == before


def parsed(text: str) -> ir.Expr:
    source = f"""sketch s {{
    symbols: M, N, K, i, j;
    let: result = {text};
    tensors: X[M, N, K, i, j]: in f32;
}}
"""
    tree, found = parse(Source("s", source))
    assert tree is not None, found
    sketch, found = elaborate(tree.sketches[0], {})
    assert sketch is not None, found
    return sketch.lets[0].value


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("(i + 1)*N - i*N", "N"),
        ("(i + j)*(i - j)", "i*i - j*j"),
        ("ceil(M, N)", "(M + N - 1)//N"),
        ("ceil(M, 64)", "(M + 63)//64"),
        ("(M*N + K)//N", "M + K//N"),
        ("(6*M + 4)//4", "M + 1 + 2*M//4"),
        ("(M*N)%N", "0"),
        ("M - M//N*N", "M%N"),
        ("min(M, M + 1)", "M"),
        ("max(N, M)", "max(M, N)"),
        ("2*(M//2) + M%2", "M"),
    ],
)
def test_known_identities(left, right):
    assert equal(parsed(left), parsed(right))


@pytest.mark.parametrize(
    ("left", "right"),
    [("M//N*N", "M"), ("ceil(M, N)", "M//N"), ("min(M, N)", "M"), ("M - N", "N - M")],
)
def test_no_false_identities(left, right):
    assert not equal(parsed(left), parsed(right))


@pytest.mark.parametrize(
    "text",
    [
        "M - (N - K)",
        "M - N - K",
        "(M + N)*K",
        "M//(N//K)",
        "M//N//K",
        "M*(N%K)",
        "M*N%K",
        "-(M + N)",
        "-M + N",
        "min(M + 1, N*K)",
        "cdiv(M, N)",
    ],
)
def test_minimal_parentheses(text):
    assert show(parsed(text)) == text


def test_definitions_are_seen_through():
    name = ir.Ref("half", ir.NameKind.LET)
    definitions = {"half": normalize(parsed("M//2"))}
    assert equal(name, parsed("M//2"), definitions)
    assert not equal(name, parsed("M//2"))
    assert constant_value(ir.Binary("-", name, parsed("M//2")), definitions) == 0


def test_substitute():
    half = parsed("M//2")
    assert show(substitute(parsed("N + M"), {"M": half})) == "N + M//2"


def test_repeated_squaring_stays_small():
    squares = parsed("M + N + K")
    for _ in range(40):
        squares = ir.Binary("*", squares, squares)
        if len(show(squares)) > 1000:
            break
    assert equal(squares, squares)
    assert len(normalize(squares)) <= 3000

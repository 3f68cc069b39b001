"""Index tiles as forms over lanes: the same values as NumPy's, and only claims that hold."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_values import lanes_of

from sketchc import ir
from sketchc.checker.affine import (
    ONE,
    Atoms,
    Extremum,
    Floor,
    Linear,
    Opaque,
    Product,
    Quotient,
    add,
    constant,
)
from sketchc.checker.index_ranges import Lanes, lane_name, loaded_names, pointwise, validity
from sketchc.checker.scope import Scope
from sketchc.evaluate import evaluate
from sketchc.types import DType

ROWS, COLUMNS = 3, 4
SHAPE = (ir.Literal(ROWS), ir.Literal(COLUMNS))
QUICK = settings(max_examples=150, deadline=None)


def symbol(name: str) -> ir.Ref:
    return ir.Ref(name, ir.NameKind.SYMBOL)


def binding(name: str, layout: tuple[bool, ...] | None = None) -> ir.Ref:
    return ir.Ref(name, ir.NameKind.BINDING, layout=layout)


def literal(value: int) -> ir.Literal:
    return ir.Literal(value)


#: Names with lanes: a row index, a plane, and a snapshot of a tile.
BINDINGS: dict[str, ir.Expr] = {
    "m": ir.Binary("+", symbol("i"), ir.Iota(literal(ROWS), literal(0), None)),
    "p": ir.Binary(
        "+",
        ir.Binary("*", binding("m", (True, False)), symbol("S")),
        ir.Iota(literal(COLUMNS), literal(2), None),
    ),
    "s": ir.Binary("*", ir.TileLanes("idx", DType.I64, (literal(ROWS),), (True,)), literal(2)),
}
LEAVES = st.sampled_from(
    (
        literal(0),
        literal(3),
        symbol("i"),
        symbol("N"),
        binding("m", (True, False)),
        binding("p"),
        binding("s", (True, False)),
        ir.Iota(literal(COLUMNS), symbol("i"), None, (True,)),
        ir.Iota(literal(1), literal(5), None, (True, False)),
        ir.TileLanes("idx", DType.I64, (literal(ROWS),), (True, False)),
        ir.TileLanes("own", DType.I64, (literal(1), literal(COLUMNS)), (True, True)),
    )
)


def grown(inner: st.SearchStrategy[ir.Expr]) -> st.SearchStrategy[ir.Expr]:
    divisors = st.sampled_from((literal(2), literal(3), symbol("S")))
    return st.one_of(
        st.builds(lambda op, a, b: ir.Binary(op, a, b), st.sampled_from("+-*"), inner, inner),
        st.builds(
            lambda op, a, b: ir.Binary(op, a, b), st.sampled_from(("//", "%")), inner, divisors
        ),
        st.builds(
            lambda op, a, b: ir.Binary(op, a, b), st.sampled_from(("min", "max")), inner, inner
        ),
        st.builds(lambda a: ir.Unary("-", a), inner),
    )


EXPRESSIONS = st.recursive(LEAVES, grown, max_leaves=6)


def scope_of_names() -> Scope:
    """i >= 0, N >= 0, S >= 1, and the bindings above."""
    atoms = Atoms()
    names = {name: {atoms.variable(name, True): 1} for name in ("i", "N", "S")}
    scope = Scope(atoms, names)
    scope = scope.given(ir.Binary(">=", symbol("S"), literal(1)))
    for name, value in BINDINGS.items():
        scope = scope.bind(name, value)
    return scope


def numbers(i: int, n: int, s: int) -> dict[str, Any]:
    names: dict[str, Any] = {"i": i, "N": n, "S": s}
    names["idx"] = np.array([4, -1, 7])
    names["own"] = np.array([[2, 0, 9, -3]])
    for name, value in BINDINGS.items():
        names[name] = lanes_of(value, names)
    return names


def at_lane(
    value: ir.Expr, names: dict[str, Any], row: int, column: int, bindings: Any
) -> dict[str, int]:
    """The scalars that `pointwise` uses, for one lane."""
    values = {name: names[name] for name in ("i", "N", "S")}
    values[lane_name(0)], values[lane_name(1)] = row, column
    for name, lanes in loaded_names(value, SHAPE, bindings).items():
        rows = "0" in name.rpartition(" at ")[2].split(",")
        columns = "1" in name.rpartition(" at ")[2].split(",")
        array = names[lanes.tile]
        values[name] = int(array.flatten()[row if rows else column if columns else 0])
    return values


def value_of(atoms: Atoms, form: Linear, values: dict[str, int]) -> int:
    """A form's value by the definitions of its atoms."""

    def atom(number: int) -> int:
        match atoms.definitions[number]:
            case None:
                return 1 if number == ONE else int(values[atoms.names[number]])
            case Floor(numerator, divisor):
                return value_of(atoms, numerator, values) // divisor
            case Quotient(numerator, by):
                return value_of(atoms, numerator, values) // value_of(atoms, by, values)
            case Product(factors):
                return prod(atom(factor) for factor in factors)
            case Extremum(operator, left, right):
                sides = (value_of(atoms, side, values) for side in (left, right))
                return min(sides) if operator == "min" else max(sides)
            case Opaque():
                raise AssertionError(atoms.names[number])

    return sum(coefficient * atom(number) for number, coefficient in form.items())


@given(EXPRESSIONS, st.integers(0, 3), st.integers(0, 5), st.integers(1, 3))
@QUICK
def test_one_lane_has_the_value_that_numpy_gives_it(value: ir.Expr, i: int, n: int, s: int) -> None:
    names = numbers(i, n, s)
    expected = np.broadcast_to(lanes_of(value, names), (ROWS, COLUMNS))
    scope = scope_of_names()
    lanes = Lanes.of(scope, SHAPE, [value])
    form = lanes.form(value)
    plain = pointwise(value, SHAPE, scope.bindings)
    for row in range(ROWS):
        for column in range(COLUMNS):
            values = at_lane(value, names, row, column, scope.bindings)
            assert evaluate(plain, values) == expected[row, column]
            assert value_of(scope.atoms, form, values) == expected[row, column]


@given(EXPRESSIONS, st.integers(-6, 6))
@QUICK
def test_what_is_proved_of_all_lanes_holds_for_each(value: ir.Expr, limit: int) -> None:
    scope = scope_of_names()
    lanes = Lanes.of(scope, SHAPE, [value])
    form = lanes.form(value)
    above = lanes.proves(add(form, constant(-limit)))
    below = lanes.proves(add(constant(limit), form, -1))
    for i, n, s in ((0, 0, 1), (1, 4, 2), (3, 1, 3), (2, 9, 1)):
        found = np.broadcast_to(lanes_of(value, numbers(i, n, s)), (ROWS, COLUMNS))
        assert not above or found.min() >= limit
        assert not below or found.max() <= limit


def parameters(*names: str) -> Scope:
    """Names that are at least 1."""
    atoms = Atoms()
    scope = Scope(atoms, {name: {atoms.variable(name, True): 1} for name in names})
    for name in names:
        scope = scope.given(ir.Binary(">=", symbol(name), literal(1)))
    return scope


@pytest.mark.parametrize("literals", [(), ("C",), ("B", "C"), ("A",)])
def test_the_digits_of_a_flat_index_are_in_range(literals: tuple[str, ...]) -> None:
    """The mixed-radix lemma (LANGUAGE section 6), with symbols and with literals as radices."""
    sizes: dict[str, ir.Expr] = {name: symbol(name) for name in "ABC"}
    sizes.update({name: literal(place + 3) for place, name in enumerate(literals)})
    a, b, c = (sizes[name] for name in "ABC")
    scope = parameters("A", "B", "C", "T")
    total = ir.Binary("*", ir.Binary("*", a, b), c)
    loop = ir.For("i", literal(0), total, symbol("T"), ())
    scope = scope.enter(loop)
    index = ir.Iota(symbol("T"), ir.Ref("i", ir.NameKind.LOOP), total)
    lanes = Lanes.of(scope, (symbol("T"),), [index])
    lanes = lanes.within((ir.AxisDomain((), validity(index, lanes.extents, {}).axes[0][0].upper),))
    high = ir.Binary("//", index, ir.Binary("*", b, c))
    middle = ir.Binary("%", ir.Binary("//", index, c), b)
    low = ir.Binary("%", index, c)
    for digit, size in ((high, a), (middle, b), (low, c)):
        form = lanes.form(digit)
        assert lanes.proves(form)
        assert lanes.proves(add(add(lanes.form(size), form, -1), constant(-1)))
        tight = add(add(lanes.form(size), form, -1), constant(-2))
        assert not lanes.proves(tight)
    again = ir.Binary("+", ir.Binary("*", ir.Binary("+", ir.Binary("*", high, b), middle), c), low)
    rest = add(lanes.form(again), lanes.form(index), -1)
    assert lanes.proves(rest)
    assert lanes.proves(add({}, rest, -1))


def test_what_is_void_in_an_index_tile_is_void_in_what_is_made_of_it() -> None:
    column = ir.Iota(literal(COLUMNS), symbol("i"), symbol("N"))
    row = ir.TileLanes(
        "idx", DType.I64, (literal(ROWS),), (True, False), (ir.AxisDomain((), (symbol("S"),)),)
    )
    found = validity(ir.Binary("+", row, column), SHAPE, {})
    assert found.axes[0] == (ir.AxisDomain((), (symbol("S"),)),)
    (bound,) = found.axes[1]
    assert evaluate(bound.upper[0], {"i": 2, "N": 7}) == 5
    assert not found.stretched
    single = ir.Iota(literal(1), literal(0), symbol("N"), (True, False))
    assert validity(single, SHAPE, {}).stretched == (ir.AxisDomain((), (symbol("N"),)),)

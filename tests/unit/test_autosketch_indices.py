"""Indices of mixed radix are taken apart without changing what they say."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sketchc.agents.autosketch.flattening import upper_digit
from sketchc.agents.autosketch.loops import Axis, below, simplified
from sketchc.ir import nodes as ir
from sketchc.ir.evaluate import evaluate

EXTENTS = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def place(names: list[str], extents: list[int]) -> ir.Expr:
    """The row-major place of an index."""
    found: ir.Expr = ir.Literal(0)
    for name, extent in zip(names, extents, strict=True):
        ref = ir.Ref(name, ir.NameKind.LOOP)
        found = ir.Binary("+", ir.Binary("*", found, ir.Literal(extent)), ref)
    return found


@given(EXTENTS, st.lists(st.sampled_from([1, 2, 3, 4, 6, 8, 12]), min_size=1, max_size=3))
def test_digits_of_a_place_keep_their_values(extents: list[int], radices: list[int]) -> None:
    names = [f"i{number}" for number in range(len(extents))]
    axes = {name: ir.Literal(extent) for name, extent in zip(names, extents, strict=True)}
    digit = place(names, extents)
    digits: list[ir.Expr] = []
    for radix in radices:
        digits.append(ir.Binary("%", digit, ir.Literal(radix)))
        digit = ir.Binary("//", digit, ir.Literal(radix))
    for expression in (*digits, digit):
        short = simplified(expression, axes)
        for index in itertools.product(*map(range, extents)):
            values = dict(zip(names, index, strict=True))
            assert evaluate(short, values) == evaluate(expression, values)


@given(st.integers(1, 40), st.lists(st.sampled_from([1, 2, 3, 4, 6, 12]), min_size=1, max_size=4))
def test_digits_of_digits_keep_their_values(extent: int, radices: list[int]) -> None:
    """Windows of windows: `j%12//3%2` and so on."""
    axes = {"j": ir.Literal(extent)}
    digit: ir.Expr = ir.Ref("j", ir.NameKind.LOOP)
    for number, radix in enumerate(radices):
        digit = ir.Binary("//" if number % 2 else "%", digit, ir.Literal(radix))
        total = ir.Binary("+", ir.Binary("*", digit, ir.Literal(radix)), digit)
        for expression in (digit, ir.Binary("//", total, ir.Literal(radix))):
            short = simplified(expression, axes)
            for j in range(extent):
                assert evaluate(short, {"j": j}) == evaluate(expression, {"j": j})


def test_a_digit_is_read_off_the_whole_number() -> None:
    axes = {"j": ir.Literal(3136)}
    j = ir.Ref("j", ir.NameKind.LOOP)
    column = ir.Binary("%", j, ir.Literal(56))
    assert simplified(ir.Binary("%", column, ir.Literal(7)), axes) == ir.Binary(
        "%", j, ir.Literal(7)
    )


@pytest.mark.parametrize("taken", [(), ("ig",), ("ig", "ig_2")])
def test_the_upper_digit_of_an_axis_has_a_name_of_its_own(taken: tuple[str, ...]) -> None:
    found = upper_digit(Axis("i", ir.Literal(6)), ir.Literal(3), ("i", *taken))
    assert found.name not in ("i", *taken)
    assert found.extent == ir.Literal(3)


@given(EXTENTS, st.integers(1, 70))
def test_what_is_said_to_lie_below_a_bound_does(extents: list[int], bound: int) -> None:
    names = [f"i{number}" for number in range(len(extents))]
    axes = {name: ir.Literal(extent) for name, extent in zip(names, extents, strict=True)}
    assert below(place(names, extents), ir.Literal(bound), axes) == (math.prod(extents) <= bound)


def test_a_split_axis_that_is_joined_again_leaves_no_trace() -> None:
    n, i, j = (ir.Ref(name, ir.NameKind.LOOP) for name in ("N", "i", "j"))
    axes = {"i": ir.Ref("M", ir.NameKind.SYMBOL), "j": n}
    joined = ir.Binary("+", ir.Binary("*", i, n), j)
    assert simplified(ir.Binary("//", joined, n), axes) == i
    assert simplified(ir.Binary("%", joined, n), axes) == j
